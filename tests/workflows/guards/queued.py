"""The guards of tests/workflows/scenarios/queued.py: where each stands, and what goes wrong without it."""

from nodeheal.services.jobs import job_nodes
from nodeheal.services.recovery import queue, return_to_service
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import queued as when

GUARDS = (
    # Whose turn it is
    Guard(
        "that jobs go first",
        queue.place_of,
        "10 if incident.job_id else 0",
        when.one_without_a_job_came_first,
        "0",
    ),
    Guard(
        "that the graver fault goes first",
        queue.place_of,
        "DISRUPTIVENESS[decision.action] if decision.action else 0",
        when.one_with_less_to_do_came_first,
        "0",
    ),
    Guard(
        "that a slot which is free is told of",
        return_to_service._return,
        "wake_queue(node.pool, ports)",
        when.somebody_stands_in_line_when_a_node_is_back,
        "None",
    ),
    Guard(
        "that a slot of what was given back is told of",
        return_to_service._join,
        "wake_queue(new.pool, ports)",
        when.somebody_stands_in_line_when_a_new_machine_is_in_place,
        "None",
    ),
    # Who has been looked at
    Guard(
        "at which node a human has looked",
        job_nodes._not_seen_to,
        "i.node_id == a.node_id",
        when.a_neighbour_was_looked_at,
        "True",
    ),
    Guard(
        "that a human has looked since",
        job_nodes._not_seen_to,
        "i.opened_at + second > a.at",
        when.it_was_looked_at_before_its_check,
        "True",
    ),
)
