"""The guards of tests/workflows/scenarios/owners.py: where each stands, and the scenario that goes wrong without it."""

from nodeheal.domain.fleet.node import Node
from nodeheal.operations import isolate, launch_job
from nodeheal.services.jobs import job_nodes
from nodeheal.services.operators import close_incident, release_node, retire_node
from nodeheal.services.recovery import (
    decide_next_step,
    end_incident,
    reserve_attempt,
    retire_broken,
    return_to_service,
    spares,
    unmanaged_tasks,
)
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import owners as when

GUARDS = (
    Guard(
        "its isolation",
        reserve_attempt.why_not_act,
        "node.open_incident != request.incident_id or node.state not in states",
        when.the_node_is_given_back,
    ),
    Guard(
        "whose node is isolated",
        isolate._why_refused,
        "node.open_incident != request.incident_id",
        when.the_node_is_anothers,
    ),
    Guard(
        "whose claim a node has when it is launched on",
        launch_job._why_unfit,
        "node.claimed_by != job.job_id",
        when.a_node_is_claimed_anew_before_the_launch,
    ),
    Guard(
        "whose node is returned",
        return_to_service.return_to_service,
        "node.open_incident != request.incident_id",
        when.the_node_is_anothers_when_it_is_returned,
    ),
    Guard(
        "whose node is let go",
        end_incident._let_go,
        "node.open_incident != incident_id",
        when.the_node_is_anothers_at_the_end,
    ),
    Guard(
        "another owner",
        isolate._other_owner,
        "machine is None or machine.external_remediator in (None, *policy.pool(node.pool).replacement.accept_owners)",
        when.another_repairs_it,
        "True",
    ),
    Guard(
        "another job on the node",
        isolate._other_job,
        "run is not None and (not run.has_ended)",
        when.another_job_has_come,
    ),
    Guard(
        "that a spare is free",
        spares.claim_spare,
        "node.is_available(ports.clock())",
        when.the_spare_has_work,
        "True",
    ),
    Guard(
        "that a replacement node is free",
        spares.claim_node,
        "not node.is_available(ports.clock())",
        when.the_replacement_node_is_taken_before_it_is_tested,
    ),
    Guard(
        "that a replacement node has passed",
        decide_next_step.decide_next_step,
        "read_progress(history, policy).replacement_failed",
        when.a_replacement_node_that_failed_is_no_spare,
    ),
    Guard(
        "that a recovery is at work",
        release_node._must_be_idle,
        "incident.state is IncidentState.OPEN",
        when.a_human_releases_under_a_recovery,
    ),
    Guard(
        "that a node is free for a job",
        job_nodes._claim_one,
        "node is not None and node.is_available(ports.clock())",
        when.another_job_claims_too,
        "node is not None",
    ),
    Guard(
        "whose broken machine is given up",
        retire_broken.retire_broken,
        "node.open_incident != request.incident_id",
        when.the_broken_one_is_anothers_when_it_is_given_up,
    ),
    Guard(
        "whose node a closed incident lets go",
        close_incident._held,
        "node is None or node.open_incident != incident_id",
        when.one_that_broke_is_closed_under_the_next,
        "node is None",
    ),
    Guard(
        "that a spare is not opted out",
        spares.claim_spare,
        "not policy.why_opted_out(node.node_id)",
        when.the_only_spare_is_opted_out,
        "True",
    ),
    Guard(
        "that a spare is in service",
        Node.is_available,
        "self.state is NodeState.HEALTHY or self.is_past_probation(now)",
        when.the_only_spare_is_in_quarantine,
        "True",
    ),
    Guard(
        "that a spare is nobody's to look at",
        Node.is_available,
        "not self.is_paused(now)",
        when.a_human_wants_hands_off_the_only_spare,
        "True",
    ),
    Guard(
        "that a spare has proven itself",
        Node.is_past_probation,
        "self.probation_until <= now",
        when.the_only_spare_has_just_been_healed,
        "True",
    ),
    Guard(
        "that a node that is retired carries no job",
        retire_node._out_of_service,
        "node.job_id is not None",
        when.a_node_that_trains_is_retired,
    ),
    Guard(
        "that a node that is retired has no incident",
        retire_node._out_of_service,
        "node.open_incident is not None",
        when.a_node_whose_incident_waits_is_retired,
    ),
    Guard(
        "whose task may be stopped",
        unmanaged_tasks.stop_unmanaged_tasks,
        "task.may_be_stopped",
        when.a_task_of_others_is_not_to_be_stopped,
        "True",
    ),
    Guard(
        "which task is to be started again",
        unmanaged_tasks.restart_unmanaged_tasks,
        "each.is_owed",
        when.a_task_of_others_ends_by_itself,
        "True",
    ),
)
