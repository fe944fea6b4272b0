"""The guards of tests/workflows/scenarios/launches.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import launch_gang
from nodeheal.services.intake import wakeup
from nodeheal.services.jobs import ask_after_ranks, job_nodes, runs
from nodeheal.services.recovery import build_decision_context
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import launches as when

GUARDS = (
    Guard(
        "that a job which is over is not launched",
        launch_gang._start,
        "whose is not None",
        when.a_person_stops_the_job_before_its_launch,
    ),
    Guard(
        "that a job which was submitted again is not launched",
        launch_gang._start,
        "_NOT_OURS.get(job.state)",
        when.a_person_submits_the_job_again_before_its_launch,
        "_NOT_OURS.get(job.state) if job.is_over else None",
    ),
    Guard(
        "that a job which gets no further is not launched",
        launch_gang._places,
        "no_progress_reason(job, ports.jobs.runs(job.job_id))",
        when.a_job_gets_no_further,
        "''",
    ),
    Guard(
        "that a rank's node serves",
        launch_gang._why_unfit,
        "node.state in OUT_OF_SERVICE | ABSENT",
        when.a_node_of_the_gang_is_retired_before_its_launch,
    ),
    Guard(
        "that a rank's node has no fault",
        launch_gang._why_unfit,
        "fault.touches_the_node and fault.next_rung is not NextStepCondition.job_end",
        when.a_node_of_the_gang_fails_before_its_launch,
    ),
    Guard(
        "that a run has only begun",
        ask_after_ranks._is_left_unstarted,
        "run.started_at + LAUNCH_IS_OVER > ports.clock()",
        when.the_sweep_asks_after_ranks_that_are_being_started,
    ),
    Guard(
        "that somebody waits for a run to begin",
        ask_after_ranks._is_left_unstarted,
        "all((one.deadline_at <= ports.clock() for one in mine))",
        when.the_sweep_asks_after_ranks_that_take_long_to_start,
        "True",
    ),
    Guard(
        "that ends are told again",
        ask_after_ranks._due,
        "broke_up_long_ago(run, PATIENCE, ports.clock())",
        when.ends_are_on_record_and_nobody_was_told,
    ),
    Guard(
        "which boot has ended a rank",
        runs.has_rebooted_since,
        "not was_up_before",
        when.a_boot_that_a_rank_was_started_on_is_heard_late,
        "True",
    ),
    Guard(
        "that a rank which is not begun outlives a boot",
        runs.has_rebooted_since,
        "not is_to_begin",
        when.a_rank_that_was_never_handed_over_outlives_a_boot,
        "True",
    ),
    Guard(
        "that the scheduler has the rank",
        runs.has_rebooted_since,
        "task.task_id != ''",
        when.a_rank_of_which_the_scheduler_has_said_nothing_is_of_a_boot_before,
        "True",
    ),
    Guard(
        "that a rank has begun",
        runs.has_rebooted_since,
        "task.status == 'PENDING'",
        when.a_rank_began_before_the_boot,
        "True",
    ),
    Guard(
        "on which boot a rank has begun",
        runs.has_rebooted_since,
        "task.started_at or task.asked_at",
        when.a_rank_began_after_the_boot,
        "task.asked_at",
    ),
    Guard(
        "that a job is whole after a boot",
        build_decision_context._is_broken,
        "has_rebooted_since(task, node)",
        when.a_rank_runs_on_the_boot_after_the_one_it_was_sent_on,
        "task.boot_id != node.boot_id",
    ),
    Guard(
        "that a reboot has ended a rank",
        runs.may_write,
        "not has_rebooted_since(task, node)",
        when.a_rank_does_not_stop_and_its_node_reboots,
        "True",
    ),
    Guard(
        "that a rank is gone with its machine",
        runs.may_write,
        "node.state is not NodeState.RETIRED",
        when.a_rank_does_not_stop_and_its_machine_is_given_up,
        "True",
    ),
    Guard(
        "that nothing starts beside a rank that may write",
        job_nodes.free_nodes,
        "name not in kept",
        when.a_rank_may_still_write_when_its_node_is_to_be_freed,
        "True",
    ),
    Guard(
        "that a job that is down keeps its nodes",
        job_nodes.nodes_it_has,
        "run.number == job.current_run and has_begun",
        when.an_older_run_is_told_to_have_ended_while_the_next_one_is_down,
    ),
    Guard(
        "that all ranks have stopped when a job is settled",
        wakeup._settle_job,
        "not run.has_ended",
        when.one_rank_of_two_has_stopped,
    ),
)
