"""The guards of tests/workflows/scenarios/watched.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import stop_job, watch_gang
from nodeheal.services.intake import wakeup
from nodeheal.services.jobs import job_steps, runs, start_gang, submit_job, sweep_jobs
from nodeheal.services.notify import notify_job_owner
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import afterwards, gangs
from tests.workflows.scenarios import watched as when

GUARDS = (
    # Ranks that end
    Guard(
        "when a rank has ended",
        wakeup._advanced,
        "change.status == 'STOPPED'",
        when.the_first_of_two_ranks_to_break_is_told_last,
    ),
    Guard(
        "that every rank has ended",
        wakeup._tell_who_waits_for_the_end,
        "run.has_ended",
        when.one_rank_is_done_while_an_incident_waits_for_its_job,
        "True",
    ),
    Guard(
        "that a job which is to be restarted keeps what it has",
        wakeup._settle_job,
        "run.has_succeeded",
        when.a_rank_breaks_and_the_job_is_to_be_restarted,
        "True",
    ),
    # Ranks that are stopped, and started
    Guard(
        "that a first run is no restart",
        runs.is_newer_than_fault,
        "run.incident_id not in ('', request.incident_id)",
        when.an_old_fault_of_its_node_is_heard_when_it_has_been_submitted,
        "run.incident_id != request.incident_id",
    ),
    Guard(
        "that a relaunch has moved it away",
        runs.is_newer_than_fault,
        "is_elsewhere(run, request)",
        when.it_was_moved_away_before_its_node_failed,
    ),
    Guard(
        "that a node has another boot than its rank",
        runs.has_rebooted_since,
        "node.boot_id != task.boot_id",
        when.the_clock_of_a_node_is_ahead,
        "True",
    ),
    Guard(
        "who waits for an end already",
        runs.await_end,
        "incident_id in stored.end_awaited_by",
        when.a_stop_is_asked_for_twice,
    ),
    Guard(
        "which ranks of a job are to be stopped",
        stop_job._start,
        "may_write(task, ports)",
        when.a_node_of_a_job_that_is_stopped_has_rebooted,
        "True",
    ),
    Guard(
        "that nothing was saved",
        start_gang._resume_hint,
        "not run.resumed_from",
        when.it_starts_where_nothing_was_saved,
    ),
    Guard(
        "that a checkpoint has a number",
        start_gang._resume_hint,
        "run.resumed_step is None",
        when.it_goes_on_from_a_checkpoint_without_a_number,
    ),
    Guard(
        "when the checkpoint was written that it goes on from",
        start_gang.record_run,
        "found",
        when.it_goes_on_from_a_checkpoint_without_a_number,
        "None",
        nth=5,
    ),
    Guard(
        "that every rank has its task",
        start_gang.start_ranks,
        "all((task.task_id for task in run.tasks))",
        gangs.a_rank_was_started_and_not_noted,
        "True",
    ),
    # Watched
    Guard(
        "that a job has an owner",
        notify_job_owner._about,
        "job.owner is None",
        when.a_job_of_nobody_is_brought_back,
    ),
    Guard(
        "that there is nobody to tell",
        notify_job_owner._of_step,
        "about is None",
        when.a_job_of_nobody_is_brought_back,
    ),
    Guard(
        "that only a failure waits for the end of a pause",
        watch_gang._observe,
        "job.stop_wanted",
        when.a_person_stops_a_job_that_waits_for_the_end_of_a_pause,
        nth=1,
    ),
    Guard(
        "that a run is not known to wait for the end of a pause",
        watch_gang._observe,
        "job.held_at is None",
        when.it_breaks_again_in_the_same_way_while_its_pool_is_paused,
    ),
    Guard(
        "that who waits for a job's end does not bring it back",
        runs._may_bring_back,
        "last is None or last.awaits is not Awaited.JOB_END",
        afterwards.the_incident_on_its_node_waits_for_its_end,
        "True",
    ),
    Guard(
        "what an incident has decided last",
        runs._may_bring_back,
        "history.turns",
        afterwards.the_incident_on_its_node_waits_for_its_end,
        "()",
        nth=1,
    ),
    Guard(
        "that who waits for something else brings it back",
        runs._may_bring_back,
        "last.awaits is not Awaited.JOB_END",
        when.an_incident_waits_for_a_slot_when_its_job_has_failed,
    ),
    # Submitted
    Guard(
        "that a job which is submitted as it was may be over",
        submit_job.submit_job,
        "not job.is_over",
        when.a_job_that_has_ended_is_submitted_as_it_was,
        "True",
    ),
    Guard(
        "that a job which is over has lost no start",
        sweep_jobs._has_lost_its_start,
        "job.state is not JobState.SUBMITTED",
        when.its_first_step_breaks,
    ),
    Guard(
        "that something was noted since its submission",
        sweep_jobs._has_lost_its_start,
        "job.summary",
        when.it_waits_for_nodes_when_the_sweep_passes,
    ),
    Guard(
        "that its pool wants the ways tested",
        job_steps.network_test_or_launch,
        "not wanted",
        when.nobody_wants_the_ways_between_its_nodes_tested,
    ),
)
