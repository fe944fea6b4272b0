"""The guards of tests/workflows/scenarios/machines.py: where each stands, and what goes wrong without it."""

from nodeheal.services.recovery import new_machine, stand_in
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import machines as when

GUARDS = (
    Guard(
        "when a machine was launched",
        new_machine._is_made_for,
        "machine.launched_at >= since",
        when.an_idle_sibling_comes_up,
        "True",
    ),
    Guard(
        "when a launch failed", new_machine._tell_of_failure, "launch.at < since", when.a_launch_had_failed_for_another
    ),
    Guard(
        "whose successor is waited for",
        new_machine.settle,
        "node_of(wait.key, ports).open_incident != wait.incident_id",
        when.the_broken_one_is_anothers_when_its_successor_comes,
    ),
    Guard(
        "one successor a turn",
        stand_in.claim_new,
        "stand_in_of(request, ports) == new.node_id",
        when.two_machines_come_in_one_moment,
        "True",
    ),
    Guard(
        "that a new machine is free",
        stand_in.claim_node,
        "not node.is_available(ports.clock())",
        when.the_new_machine_gets_work,
    ),
)
