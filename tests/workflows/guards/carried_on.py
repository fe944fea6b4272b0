"""The guards of tests/workflows/scenarios/carried_on.py: where each stands, and what goes wrong without it."""

from nodeheal.services import sweep
from nodeheal.services.intake import take_signal
from nodeheal.services.operators import request_action
from nodeheal.services.recovery import queue
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import carried_on as when

GUARDS = (
    # Commands
    # Machines
    Guard(
        "who says that a machine is gone",
        take_signal._take_departure,
        "draft.code == INSTANCE_GONE",
        when.something_else_says_that_a_machine_is_gone,
        "True",
    ),
    Guard(
        "that it is retired already",
        take_signal._retire,
        "known.state is NodeState.RETIRED",
        when.a_machine_goes_that_was_retired_by_hand,
    ),
    Guard(
        "that it may be retired still",
        take_signal._retire,
        "not may_move(known.state, NodeState.RETIRED)",
        when.a_node_is_isolated_while_its_machine_goes,
    ),
    # Whose turn it is
    Guard(
        "who stands in line before others",
        queue.in_line_before,
        "wait.incident_id != incident_id",
        when.it_stands_in_line_itself,
        "True",
    ),
    Guard(
        "that a turn in line is over",
        queue.in_line_before,
        "t.result is not None",
        when.it_was_not_called_yet,
        "True",
    ),
    Guard(
        "that a turn was one in line",
        queue.in_line_before,
        "t.decision.awaits is Awaited.BUDGET",
        when.it_was_called_by_something_else,
        "True",
    ),
    # What the sweep and people ask for
    Guard(
        "in which pool the sweep was",
        sweep._portions,
        "order and order[0] == place.pool",
        when.the_pool_where_the_sweep_was_is_gone,
        "True",
    ),
    Guard(
        "which incident has taken what was asked for",
        request_action._holds,
        "any((event.event_id == request.event_id for event in ports.incidents.history(incident_id).events))",
        when.something_is_asked_of_a_node_that_has_just_failed,
        "bool(ports.incidents.history(incident_id))",
    ),
)
