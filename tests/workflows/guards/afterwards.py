"""The guards of tests/workflows/scenarios/afterwards.py: where each stands, and what goes wrong without it."""

from nodeheal.services import (
    attribute_failure,
    end_incident,
    hangs,
    job_nodes,
    judge_checks,
    launch_gang,
    queue,
    start_gang,
    sweep_jobs,
)
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import afterwards as when
from tests.workflows.scenarios import ends, launches

_CALLED = "resume(ports, wait, result.model_copy(update={'finished_at': ports.clock()}))"

GUARDS = (
    # Faults
    Guard(
        "of which boot a fault is settled",
        end_incident._settled,
        "e.boot_id == root.boot_id",
        when.it_has_failed_on_its_next_boot,
        "True",
    ),
    Guard(
        "whose fault is settled",
        end_incident._settled,
        "e.node_id == node.node_id",
        when.a_neighbour_has_failed_too,
        "True",
    ),
    Guard(
        "which faults a restart has dealt with",
        end_incident._settled,
        "not dealt_with_the_job(fault, policy, node.pool)",
        ends.the_next_run_fails_alike,
        "True",
    ),
    Guard(
        "which faults were settled for the last run",
        start_gang.start_ranks,
        "not dealt_with_the_job(fault, policy, node.pool)",
        when.its_last_run_has_failed_alike,
        "True",
    ),
    Guard(
        "that a node has told of its hang itself",
        hangs.joined,
        "known.boot_id == event.node_id",
        when.it_hangs_still_when_its_pause_is_over,
    ),
    # Places in line
    Guard(
        "that the first job in line has heard its call",
        job_nodes.call_next_job,
        _CALLED,
        when.the_first_job_in_line_is_gone,
        f"({_CALLED}, True)[1]",
    ),
    Guard(
        "that the first incident in line has heard its call",
        queue.wake_queue,
        "_wake(wait, ports)",
        when.the_first_incident_in_line_is_gone,
        "(_wake(wait, ports), True)[1]",
    ),
    # Jobs
    Guard(
        "that a job has lost its start",
        sweep_jobs.sweep_jobs,
        "_has_lost_its_start(job, ports)",
        when.a_jobs_start_is_lost,
    ),
    Guard(
        "that a job's workflow broke",
        sweep_jobs.sweep_jobs,
        "job.is_over",
        when.a_jobs_workflow_broke,
    ),
    Guard(
        "how often nodes are chosen",
        judge_checks.choose_others,
        "request.round + 1 >= ROUNDS",
        when.nodes_were_chosen_too_often,
    ),
    Guard(
        "that findings may be under way",
        attribute_failure._explain,
        "request.looks == 0",
        when.a_finding_is_under_way_when_a_run_fails,
    ),
    Guard(
        "what an exit code is worth",
        attribute_failure._explain,
        "not broke.is_clear and (not request.is_failure)",
        when.an_exit_code_says_nothing,
    ),
    Guard(
        "that a job may move",
        launch_gang.launch_gang,
        "request.decision.is_move",
        launches.a_free_node_could_take_the_place_of_one_that_fails,
        "True",
    ),
)
