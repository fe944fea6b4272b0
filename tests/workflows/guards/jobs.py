"""The guards of tests/workflows/scenarios/jobs.py: where each stands, and the scenario that goes wrong without it."""

from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.operations import launch_gang
from nodeheal.services import saving
from nodeheal.services.intake import wakeup
from nodeheal.services.jobs import ask_after_ranks, runs, start_gang, submit_job
from tests.workflows.guards.guard import Guard, not_saved, taken_for_saved
from tests.workflows.scenarios import jobs as when
from tests.workflows.scenarios import writes

GUARDS = (
    Guard(
        "that no rank may still write",
        launch_gang._places,
        "left_of(job, last, ports)",
        when.a_person_has_restarted_it_elsewhere,
        "()",
    ),
    Guard("which ranks are to be stopped", runs.left_of, "may_write(task, ports)", when.a_gpu_is_lost),
    Guard(
        "that a relaunch is newer than the fault",
        runs.is_newer_than_fault,
        "is_restart and (run.started_at > fault_at or is_elsewhere(run, request))",
        when.another_incident_has_restarted_it,
    ),
    Guard(
        "that a late event is older than the record",
        wakeup._advanced,
        "_ORDER[change.status] <= _ORDER[task.status]",
        when.a_rank_runs_after_it_stopped,
    ),
    Guard(
        "which task is the rank's",
        wakeup._advanced,
        "task.task_id not in ('', change.task_id)",
        when.an_older_task_stops,
    ),
    Guard(
        "that the scheduler hears the machine",
        ask_after_ranks._change,
        "seen.status != 'STOPPED' and (not seen.is_connected)",
        when.a_machine_is_not_heard,
    ),
    Guard(
        "that a task can be forgotten",
        ask_after_ranks._change,
        "is_forgotten and (not _may_be_forgotten(one, ports))",
        when.a_task_is_not_known_yet,
    ),
    Guard(
        "which boot a task was started on",
        ask_after_ranks._may_be_forgotten,
        "one.task.boot_id in (node.boot_id, *node.past_boots)",
        when.a_boot_is_not_heard_of_yet,
        "True",
    ),
    Guard(
        "that a job is still to be launched",
        start_gang.record_run,
        "not ports.jobs.save(replace(job, current_run=number, state=JobState.RUNNING, held_at=None))",
        writes.a_job_is_launched_while_it_ends,
        not_saved("ports.jobs.save(replace(job, current_run=number, state=JobState.RUNNING, held_at=None))"),
    ),
    Guard(
        "whose end settles a job",
        wakeup._settle_job,
        "job.current_run != run.number or job.state is JobState.SUBMITTED",
        when.an_older_run_ends_late,
    ),
    Guard(
        "the version of a job that ends",
        saving.save_changed,
        "save(changed)",
        when.a_job_is_written_while_it_ends,
        taken_for_saved("save(changed)"),
    ),
    Guard(
        "that a job that is started again is over",
        submit_job.restart_job,
        "known.is_over",
        when.a_job_is_started_again_while_it_runs,
        "True",
    ),
    Guard(
        "that a restart is of what its fault was last seen on",
        DecisionBuilder._decision,
        "self.assessment.fault.alike[-1].observed_at",
        when.its_next_run_shows_the_fault_again,
        "self.assessment.fault.alike[0].observed_at",
    ),
    Guard(
        "that a restart knows when its fault was seen",
        DecisionBuilder._decision,
        "self.assessment.fault.alike[-1].observed_at if self.assessment.fault.alike else None",
        when.its_next_run_shows_the_fault_again,
        "None",
    ),
)
