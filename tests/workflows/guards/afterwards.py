"""The guards of tests/workflows/scenarios/afterwards.py: where each stands, and what goes wrong without it."""

from nodeheal.domain.recovery.incident import Incident
from nodeheal.operations import launch_gang
from nodeheal.services.intake import hangs, ingest
from nodeheal.services.jobs import attribute_failure, job_nodes, judge_checks, runs, start_gang, sweep_jobs
from nodeheal.services.recovery import build_decision_context, end_incident, queue
from tests.workflows.guards.guard import Guard, taken_for_saved
from tests.workflows.scenarios import afterwards as when
from tests.workflows.scenarios import ends, jobs, launches, news, writes

_CALLED = "signal(waiting, YOUR_TURN, ports)"

_IS_UNDER_WAY = Incident.is_under_way.fget  # type: ignore[attr-defined]

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
        "not was_fault_of_job(fault, policy, node.pool)",
        ends.the_next_run_fails_alike,
        "True",
    ),
    Guard(
        "which faults were settled for the last run",
        start_gang.start_ranks,
        "not was_fault_of_job(fault, policy, node.pool)",
        when.its_last_run_has_failed_alike,
        "True",
    ),
    Guard(
        "that a node has told of its hang itself",
        hangs.joined,
        "known.node_id == event.node_id",
        when.it_hangs_still_when_its_pause_is_over,
    ),
    Guard(
        "that what is repeated on a paused node is told once",
        ingest._is_paused,
        "node.is_paused(now)",
        when.it_repeats_while_its_node_is_paused,
    ),
    Guard(
        "that what is repeated in a paused pool is told once",
        ingest._is_paused,
        "ports.pools.get(node.pool).why_paused(now)",
        news.it_repeats_while_its_pool_is_paused,
    ),
    # Places in line
    Guard(
        "that the first job in line has heard its call",
        job_nodes.call_next_job,
        _CALLED,
        when.the_first_job_in_line_is_gone,
        taken_for_saved(_CALLED),
    ),
    Guard(
        "that the first incident in line has heard its call",
        queue.wake_queue,
        "_wake(wait, ports)",
        when.the_first_incident_in_line_is_gone,
        taken_for_saved("_wake(wait, ports)"),
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
        launch_gang._places,
        "request.decision.is_move",
        launches.a_free_node_could_take_the_place_of_one_that_fails,
        "True",
    ),
    Guard(
        "whose fault keeps a rank from its node",
        launch_gang._why_unfit,
        "node.open_incident in (None, request.incident_id)",
        writes.two_want_the_first_of_two_spares,
        "node.open_incident is None",
    ),
    Guard(
        "that who has stopped writes no more",
        runs.may_write,
        "task.has_stopped or node is None",
        jobs.a_gpu_is_lost,
        "node is None",
    ),
    # Who brings it back
    Guard(
        "whose job an incident brings back",
        runs._may_bring_back,
        "history.incident.job_id != job.job_id",
        when.the_incident_on_its_node_is_not_its_own,
    ),
    Guard(
        "that an incident brings a job back",
        runs._may_bring_back,
        "last.awaits is not Awaited.JOB_END",
        when.the_incident_on_its_node_waits_for_its_end,
        "True",
    ),
    Guard(
        "that an incident is over",
        runs._may_bring_back,
        "not history.incident.is_under_way",
        when.the_incident_on_its_node_has_ended,
    ),
    Guard(
        "that an incident is over, for who waits for the job",
        build_decision_context._may_relaunch,
        "history.incident.is_under_way",
        when.the_incident_on_its_node_has_ended,
        "True",
    ),
    Guard(
        "that an incident has broken off",
        _IS_UNDER_WAY,
        "self.state in (IncidentState.OPEN, IncidentState.WAITING)",
        when.the_incident_on_its_node_has_broken_off,
        "True",
    ),
)
