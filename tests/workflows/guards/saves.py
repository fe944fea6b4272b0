"""The guards of tests/workflows/scenarios/saves.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import isolate
from nodeheal.services import steps as service_steps
from nodeheal.services.jobs import start_gang
from nodeheal.services.operators import release_node
from nodeheal.services.recovery import end_incident, return_to_service, undo_isolation
from tests.workflows.guards.guard import Guard, taken_for_saved
from tests.workflows.scenarios import saves as when

_NOTED = "ports.jobs.save_run(stored.with_task(replace(task, task_id=task_id, status='PENDING', stop_reason='')))"
_RETURNS = "ports.nodes.save(replace(node, healthy_since=passed_at, passed_at=passed_at))"

GUARDS = (
    Guard(
        "that a node is marked before it is switched off",
        isolate._switch_off,
        "ports.nodes.save(marked)",
        when.a_node_is_heard_while_it_is_isolated,
        taken_for_saved("ports.nodes.save(marked)"),
    ),
    Guard(
        "that changes are written over what is stored now",
        service_steps._save_changed,
        "ports.nodes.save(changed := change(node_of(node.node_id, ports)))",
        when.a_node_is_heard_while_it_is_paused,
        taken_for_saved("ports.nodes.save(changed := change(node_of(node.node_id, ports)))"),
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
        end_incident._let_go,
        "ports.nodes.save(after)",
        when.a_node_is_heard_while_its_incident_ends,
        taken_for_saved("ports.nodes.save(after)"),
    ),
    Guard(
        "that a node is freed by hand",
        release_node.release_node,
        "ports.nodes.save(replace(freed, open_incident=named, healthy_since=ports.clock()))",
        when.a_node_is_heard_while_it_is_given_back,
        taken_for_saved("ports.nodes.save(replace(freed, open_incident=named, healthy_since=ports.clock()))"),
    ),
    Guard(
        "that what our isolation has left is forgotten",
        undo_isolation.undo_isolation,
        "ports.nodes.save(after)",
        when.a_node_is_heard_while_it_is_switched_on,
        taken_for_saved("ports.nodes.save(after)"),
    ),
    Guard(
        "that a rank that was started is on record",
        start_gang._note_task_id,
        _NOTED,
        when.a_rank_is_told_of_while_another_starts,
        taken_for_saved(_NOTED),
    ),
)
