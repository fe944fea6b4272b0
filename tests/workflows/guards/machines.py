"""The guards of tests/workflows/scenarios/machines.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import replace
from nodeheal.services.recovery import spares
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import machines as when

GUARDS = (
    Guard(
        "when a machine was launched",
        replace.is_made_for,
        "machine.launched_at >= record.since",
        when.an_idle_sibling_comes_up,
        "True",
    ),
    Guard("when a launch failed", replace.launch_failed, "launch.at < since", when.a_launch_had_failed_for_another),
    Guard(
        "whose successor is waited for",
        replace.take_new_node,
        "node_of(operation.node_id, ports).open_incident != request.incident_id",
        when.the_broken_one_is_anothers_when_its_successor_comes,
    ),
    Guard(
        "one successor a turn",
        replace._taken,
        "operation.is_over or read_record(operation).new_node_id",
        when.two_machines_come_in_one_moment,
    ),
    Guard(
        "that a new machine is free",
        spares.claim_node,
        "not node.is_available(ports.clock())",
        when.the_new_machine_gets_work,
    ),
)
