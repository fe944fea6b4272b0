"""The guards of tests/workflows/scenarios/commands.py: where each stands, and what goes wrong without it."""

from nodeheal.services import saving
from nodeheal.services.intake import enroll_node
from nodeheal.services.operators import inject_fault
from tests.workflows.guards.guard import Guard, taken_for_saved
from tests.workflows.scenarios import commands as when

GUARDS = (
    Guard(
        "where drills may be",
        inject_fault.inject_fault,
        "not policy.pool(node.pool).drills",
        when.a_drill_is_asked_for_where_none_may_be,
    ),
    Guard(
        "that no drill comes into a recovery",
        inject_fault.inject_fault,
        "node.open_incident is not None",
        when.a_drill_is_asked_for_of_a_node_at_work,
    ),
    Guard(
        "that a node is well before its drill",
        inject_fault.inject_fault,
        "node.state not in (NodeState.HEALTHY, NodeState.PROBATION)",
        when.a_drill_is_asked_for_of_a_suspect,
    ),
    Guard(
        "that who is retired stays so",
        enroll_node._must_fit,
        "node.state is NodeState.RETIRED",
        when.a_retired_node_is_enrolled,
    ),
    Guard(
        "whose word on its pool holds",
        enroll_node._must_fit,
        "said.pool != node.pool",
        when.a_node_is_enrolled_for_another_pool,
    ),
    Guard(
        "whose word on its cluster holds",
        enroll_node._must_fit,
        "said.cluster not in (None, node.cluster)",
        when.a_node_is_enrolled_for_another_cluster,
    ),
    Guard(
        "whose word on its provider holds",
        enroll_node._must_fit,
        "said.provider not in (None, node.provider)",
        when.a_node_is_enrolled_with_another_provider,
    ),
    Guard(
        "that a spare has no job",
        enroll_node._must_fit,
        "said.is_spare and node.job_id and (not said.has_no_job)",
        when.a_node_that_trains_is_enrolled_as_a_spare,
    ),
    Guard(
        "that every registry knows a node",
        enroll_node.enroll_node,
        "[mark for mark in found if not mark.name]",
        when.a_node_is_enrolled_that_ecs_does_not_know,
        "[]",
    ),
    Guard(
        "that a pause is on record",
        saving.save_changed,
        "save(changed)",
        when.a_breaker_opens_while_its_pool_is_paused,
        taken_for_saved("save(changed)"),
    ),
)
