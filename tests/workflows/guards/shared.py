"""The guards of tests/workflows/scenarios/shared.py: where each stands, and what goes wrong without it."""

from nodeheal.domain.faults import correlation
from nodeheal.domain.recovery import decide, guardrails
from nodeheal.operations import isolate, launch_gang
from nodeheal.services.intake import ingest, liveness
from nodeheal.services.jobs import job_nodes, runs
from nodeheal.services.operators import withdraw_request
from nodeheal.services.recovery import spares
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import shared as when

GUARDS = (
    # One restart of a job
    Guard(
        "whose restart it is",
        decide._restart_job_only,
        "first != fault.event.node_id",
        when.another_node_of_the_job_has_shown_it_first,
    ),
    Guard(
        "that the next run has failed",
        decide._restart_job_only,
        "progress.restart is not None and fault.alike[-1].observed_at > progress.restart.finished_at",
        when.its_next_run_fails_alike,
    ),
    Guard(
        "that there is a next run",
        decide._restart_job_only,
        "progress.restart.outcome is Outcome.DONE",
        when.its_job_could_not_be_restarted,
        "True",
    ),
    Guard(
        "that somebody has said yes",
        guardrails.blocked_before_start,
        "answer.outcome is Outcome.DONE",
        when.a_yes_comes_before_its_node_is_paused,
    ),
    # One incident of a fabric
    Guard(
        "who has told first of a fabric",
        correlation.owner_of_fabric,
        "is_before",
        when.another_node_of_its_fabric_has_told_later,
        "True",
    ),
    Guard(
        "which fabric it is",
        correlation.owner_of_fabric,
        "_share_fabric(s, event)",
        when.another_fabric_is_broken_too,
        "True",
    ),
    Guard(
        "that another node owns it",
        correlation.owner_of_fabric,
        "s.node_id != event.node_id",
        when.it_has_told_of_its_fabric_before,
        "True",
    ),
    Guard(
        "what is a fault of a fabric",
        correlation.owner_of_fabric,
        "is_fabric",
        when.something_else_was_seen_in_its_fabric,
        "True",
    ),
    Guard(
        "that a fabric has one incident",
        correlation.owner_of_fabric,
        "is_fabric and is_before and (s.node_id != event.node_id) and _share_fabric(s, event)",
        when.another_node_of_its_fabric_has_told_before,
    ),
    # New machines of one group
    # What is no fault
    Guard("that all is well", ingest.ingest, "event.verdict is Verdict.OK", when.it_says_that_it_is_well),
    Guard("what is a heartbeat", ingest.ingest, "event.is_heartbeat", when.it_beats),
    Guard(
        "what keeps a request from being withdrawn",
        withdraw_request._is_a_finding,
        "event.verdict is not Verdict.OK",
        when.it_is_well_when_a_request_is_withdrawn,
        "True",
    ),
    # Who is looked at
    Guard(
        "that a node is isolated still",
        isolate._observe,
        "node.state is NodeState.ISOLATED",
        when.it_was_given_back_at_the_deadline_of_its_isolation,
        "True",
    ),
    Guard(
        "whose isolation it is, at the deadline",
        isolate._observe,
        "node.open_incident == operation.incident_id",
        when.it_was_anothers_at_the_deadline_of_its_isolation,
        "True",
    ),
    Guard(
        "that a peer is good again",
        launch_gang._why_unfit,
        "node.healthy_since is not None and node.healthy_since >= fault.alike[-1].observed_at",
        when.its_peer_is_back_when_it_is_launched,
    ),
    Guard(
        "what keeps a rank from a node",
        launch_gang._why_unfit,
        "fault.touches_the_node",
        when.its_peer_has_a_fault_of_its_program,
        "True",
    ),
    Guard(
        "what lets a job finish first",
        launch_gang._why_unfit,
        "fault.next_rung is not NextStepCondition.job_end",
        when.its_peer_waits_for_the_jobs_end,
        "True",
    ),
    Guard(
        "that a gang runs",
        liveness._ask_gang,
        "run_on",
        when.the_gang_of_a_silent_node_has_ended,
        "True",
    ),
    Guard(
        "that a member of the gang is no spare of it",
        spares.claim_spare,
        "node.node_id not in but",
        when.a_free_member_of_the_gang_is_no_spare,
        "True",
    ),
    Guard(
        "that a member of the gang is no replacement node of it",
        job_nodes._able,
        "node.node_id not in gang",
        when.a_free_member_of_the_gang_stands_in_for_nobody,
        "True",
    ),
    Guard(
        "whether the gang goes on",
        runs.nodes_of_gang,
        "job.is_over",
        when.a_member_of_a_gang_that_is_over_is_a_spare,
    ),
    Guard(
        "that another job has a node of the gang",
        launch_gang._why_unfit,
        "job_of_others(node, str(request.decision.job_id), ports)",
        when.another_job_has_a_member_of_the_gang,
        "''",
    ),
    Guard(
        "that another job has claimed a node of the gang",
        job_nodes.job_of_others,
        "(node.job_id, node.claimed_by)",
        when.another_job_has_claimed_a_member_of_the_gang,
        "(node.job_id,)",
    ),
    Guard(
        "whether the other job is over",
        job_nodes.job_of_others,
        "not other.is_over",
        when.a_job_that_is_over_had_a_member_of_the_gang,
        "True",
    ),
)
