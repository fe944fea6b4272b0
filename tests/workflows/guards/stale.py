"""The guards of tests/workflows/scenarios/stale.py: where each stands, and what goes wrong without it."""

from nodeheal.domain.recovery import decide, recover
from nodeheal.services import sweep
from nodeheal.services.intake import take_signal, wakeup
from nodeheal.services.jobs import prepare_job
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import news
from tests.workflows.scenarios import stale as when

GUARDS = (
    # Runs
    Guard(
        "which run it is that runs",
        wakeup._note_that_it_runs,
        "job.current_run != run.number",
        when.an_older_run_is_said_to_run,
    ),
    Guard(
        "that what runs is wanted still",
        wakeup._note_that_it_runs,
        "job.state is not JobState.RUNNING",
        when.a_run_is_said_to_run_that_a_person_has_stopped,
    ),
    Guard(
        "that a job was submitted again",
        wakeup._settle_job,
        "job.state is JobState.SUBMITTED",
        when.it_is_submitted_again_when_its_last_rank_stops,
    ),
    # What others say
    Guard(
        "what takes a node away",
        take_signal.take_draft,
        "draft.takes_node_away",
        when.somebody_says_that_it_is_broken,
        "True",
    ),
    Guard(
        "that what goes away is no fault by itself",
        take_signal.take_draft,
        "draft.takes_node_away",
        news.a_machine_goes_that_nobody_needs,
    ),
    Guard(
        "what is weak",
        take_signal.take_draft,
        "draft.is_advisory",
        when.somebody_says_that_it_is_broken,
        "True",
    ),
    Guard(
        "that something weak joins what is open",
        take_signal.take_draft,
        "node.open_incident is None",
        when.somebody_says_something_advisory_of_a_node_with_an_incident,
        "True",
    ),
    Guard(
        "on which boot others have seen it",
        take_signal._boot_at,
        "draft.observed_at > node.booted_at",
        when.somebody_has_said_it_of_its_last_boot,
        "True",
    ),
    Guard(
        "that each topic has a newest word",
        take_signal._with,
        "known.partition('#')[0] != about",
        when.something_older_is_said_after_another_topic,
    ),
    Guard(
        "who is out of service when it goes",
        take_signal._take_departure,
        "node.state in OUT_OF_SERVICE",
        news.a_machine_goes_under_a_rank,
        "True",
    ),
    Guard(
        "that a job needs its node no more",
        take_signal._is_needed,
        "job.state is not JobState.COMPLETED",
        when.a_machine_goes_whose_job_has_ended,
        "True",
    ),
    Guard(
        "that what is gone will not boot",
        take_signal._take_departure,
        "is_gone",
        when.a_machine_goes_whose_boot_is_waited_for,
        nth=1,
    ),
    Guard(
        "that a machine which came up is not gone",
        take_signal._take_departure,
        "not is_past",
        when.a_machine_is_said_to_have_gone_before_it_came_up,
        "True",
        nth=1,
    ),
    # What was lost
    Guard(
        "that what was lost long ago is over",
        sweep._start_what_was_lost,
        "now - timedelta(seconds=TOO_LATE_SECONDS)",
        when.an_incident_was_lost_days_ago,
        "now - timedelta(days=365)",
    ),
    # Checkpoints
    Guard(
        "whose directory it is, at the submission",
        prepare_job._refuse_taken_directory,
        "is_another and theirs is not None and overlap(theirs, job.checkpoints.directory)",
        when.a_job_that_lives_saves_there,
    ),
    Guard(
        "that a job which is over needs no directory",
        prepare_job._refuse_taken_directory,
        "not other.is_over",
        when.a_job_that_is_over_has_saved_there,
        "True",
    ),
    # Evidence
    Guard(
        "that evidence is switched off",
        recover._evidence_first,
        "not builder.policy.evidence.enabled",
        when.no_evidence_is_wanted,
    ),
    Guard(
        "that evidence of a hang is switched off",
        decide._save_stacks_first,
        "not builder.policy.evidence.enabled",
        when.no_stacks_are_wanted,
    ),
)
