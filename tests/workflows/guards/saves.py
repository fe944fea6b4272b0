"""The guards of tests/workflows/scenarios/saves.py: where each stands, and what goes wrong without it."""

from nodeheal.services import saving
from nodeheal.services.recovery import return_to_service
from tests.workflows.guards.guard import Guard, taken_for_saved
from tests.workflows.scenarios import saves as when

_RETURNS = "ports.nodes.save(replace(node, healthy_since=passed_at, passed_at=passed_at))"

GUARDS = (
    Guard(
        "that a node is marked before it is switched off",
        saving.save_changed,
        "save(changed)",
        when.a_node_is_heard_while_it_is_isolated,
        taken_for_saved("save(changed)"),
    ),
    Guard(
        "that changes are written over what is stored now",
        saving.save_changed,
        "save(changed)",
        when.a_node_is_heard_while_it_is_paused,
        taken_for_saved("save(changed)"),
    ),
    Guard(
        "that a return is written",
        return_to_service._save_proven,
        _RETURNS,
        when.a_node_is_heard_while_it_is_returned,
        taken_for_saved(_RETURNS),
    ),
    Guard(
        "which boot is returned",
        return_to_service._save_proven,
        _RETURNS,
        when.a_node_boots_while_it_is_returned,
        "save_node(ports, node, state=node.state, passed_at=passed_at)",
    ),
    Guard(
        "that a node is let go at the end",
        saving.save_changed,
        "save(changed)",
        when.a_node_is_heard_while_its_incident_ends,
        taken_for_saved("save(changed)"),
    ),
    Guard(
        "that a node is freed by hand",
        saving.save_changed,
        "save(changed)",
        when.a_node_is_heard_while_it_is_given_back,
        taken_for_saved("save(changed)"),
    ),
    Guard(
        "that what our isolation has left is forgotten",
        saving.save_changed,
        "save(changed)",
        when.a_node_is_heard_while_it_is_switched_on,
        taken_for_saved("save(changed)"),
    ),
    Guard(
        "that a rank that was started is on record",
        saving.save_changed,
        "save(changed)",
        when.a_rank_is_told_of_while_another_starts,
        taken_for_saved("save(changed)"),
    ),
)
