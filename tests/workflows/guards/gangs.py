"""The guards of tests/workflows/scenarios/gangs.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import launch_gang, launch_job, stop_gang, watch_gang
from nodeheal.services.intake import wakeup
from nodeheal.services.jobs import attribute_failure, job_nodes, start_gang
from nodeheal.services.recovery import build_decision_context
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import gangs as when
from tests.workflows.scenarios import jobs

GUARDS = (
    # Ranks
    Guard(
        "that a rank was started, whatever has become of it",
        start_gang.start_ranks,
        "there.get(task.placement) or ports.scheduler_for(job).start_rank(job, run, task, environment)",
        when.a_rank_was_started_and_not_noted,
        "ports.scheduler_for(job).start_rank(job, run, task, environment)",
    ),
    Guard(
        "whose run is on record",
        start_gang._next_number,
        "known.why != why",
        when.a_launch_breaks_off_between_its_run_and_its_job,
        "True",
    ),
    Guard(
        "which ranks were never started",
        start_gang.written_off,
        "t.task_id",
        when.a_launch_is_given_up_when_one_rank_runs,
    ),
    Guard(
        "that the gang is elsewhere",
        stop_gang.stop_ranks,
        "is_elsewhere(run, request)",
        when.the_gang_has_left_the_node_that_is_isolated,
    ),
    Guard(
        "that a relaunch is left alone",
        stop_gang._start,
        "is_newer_than_fault(run, request, ports)",
        jobs.another_incident_has_restarted_it,
    ),
    Guard(
        "that a relaunch is not repeated",
        launch_gang._start,
        "is_newer_than_fault(last, request, ports)",
        jobs.another_incident_has_restarted_it,
    ),
    Guard(
        "that a job which is over stays so",
        wakeup._settle_job,
        "job.is_over",
        when.a_job_is_over_when_its_last_rank_stops,
    ),
    # Nodes
    Guard(
        "that a node has no incident when its job is launched",
        launch_job._why_unfit,
        "node.state in OUT_OF_SERVICE or node.open_incident is not None",
        when.a_node_gets_an_incident_before_its_job_is_launched,
    ),
    Guard(
        "that no rank of the run before may write",
        launch_job._why_not,
        "left_of(job, last, ports)",
        when.a_rank_of_its_last_submission_may_still_write,
        "()",
    ),
    Guard(
        "that a node has passed",
        job_nodes.unfit_of,
        "a.outcome is not Outcome.DONE",
        when.a_node_has_failed_its_check,
    ),
    Guard(
        "that a node has not failed",
        job_nodes.unfit_of,
        "a.outcome is Outcome.UNKNOWN",
        when.a_node_has_failed_its_check_long_ago,
        "True",
    ),
    Guard(
        "how soon a node is asked again",
        job_nodes.unfit_of,
        "a.at <= again_from",
        when.a_node_has_just_not_answered_its_check,
        "True",
    ),
    Guard(
        "how often a node is asked again",
        job_nodes.unfit_of,
        "often[a.node_id] == 1",
        when.a_node_has_not_answered_two_checks,
        "True",
    ),
    Guard(
        "that a claimed node is fit still",
        job_nodes._claim_one,
        "replace(node, claimed_by=None).is_available(ports.clock())",
        when.a_node_that_it_has_claimed_has_failed,
        "True",
    ),
    Guard(
        "which nodes are large enough",
        job_nodes._able,
        "node.accelerators >= job.accelerators",
        when.the_free_nodes_are_too_small,
        "True",
    ),
    Guard(
        "that a replacement node is not opted out",
        build_decision_context._ways_out,
        "not policy.why_opted_out(node.node_id)",
        when.the_only_free_node_is_opted_out_when_it_could_move,
        "True",
    ),
    # Who brings it back
    Guard(
        "whose incident was handed over",
        attribute_failure._handed_over,
        "i.job_id == job.job_id",
        when.another_jobs_incident_was_handed_over,
        "True",
    ),
    Guard(
        "that a node is paused",
        watch_gang._why_held,
        "node.is_paused(now)",
        when.its_node_is_paused_when_it_fails,
    ),
    Guard(
        "that who is to bring it back has not ended",
        launch_gang._left_to,
        "any((not head.is_under_way or head.job_id is None for head in heads))",
        when.who_could_bring_it_back_has_ended,
    ),
    Guard(
        "that each of its nodes is seen to",
        launch_gang._left_to,
        "len(heads) < len(unfit)",
        when.one_of_its_nodes_has_nobody,
    ),
)
