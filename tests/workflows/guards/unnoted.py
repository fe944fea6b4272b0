"""The guards of tests/workflows/scenarios/unnoted.py: where each stands, and what goes wrong without it."""

from nodeheal.services.jobs import job_nodes, runs, start_gang
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import unnoted as when

GUARDS = (
    Guard(
        "that a run was given up while it was started",
        start_gang._note_task_id,
        "task.has_stopped",
        when.a_run_is_given_up_while_a_rank_of_it_is_started,
    ),
    Guard(
        "that a rank that was given up is not there",
        start_gang.start_ranks,
        "task.placement not in there",
        when.a_run_was_given_up_that_is_there_when_its_launch_is_called_again,
        "True",
    ),
    Guard(
        "that a run was ever begun",
        job_nodes._begun,
        "task.task_id or run.number == current",
        when.a_launch_died_before_its_job_pointed_at_its_run,
        "True",
    ),
    Guard(
        "that a job may have been launched since it was read",
        job_nodes._begun,
        "any((run.number > current for run in runs))",
        when.a_launch_points_its_job_at_its_run_meanwhile,
    ),
    Guard(
        "that a job which is over stays so",
        start_gang.abandon,
        "not stored.is_over",
        when.a_job_is_over_when_its_relaunch_is_refused,
        "True",
    ),
    Guard(
        "that a rank may have been started without a note of it",
        runs.left_of,
        "note_started(job, run, ports)",
        when.a_rank_that_was_never_noted_outlives_a_boot,
        "run",
    ),
)
