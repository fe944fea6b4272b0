"""The guards of tests/workflows/scenarios/heard.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import isolate
from nodeheal.services.jobs import check_nodes, find_checkpoint
from nodeheal.services.orders import Orders
from nodeheal.services.request_ids import wait_for_answer
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import heard as when

_SENT = "known is not None and known.command_id"

GUARDS = (
    # Checkpoints
    Guard(
        "that a checkpoint was found for this start",
        find_checkpoint.find_checkpoint,
        "request.searches == 0 and job.found is not None",
        when.nobody_can_tell_any_more_where_it_goes_on,
    ),
    # Orders to the nodes of a gang
    Guard(
        "whose order it is",
        Orders.find,
        "(_whose(order), order.boot_id) == (node_id, boot_id)",
        when.another_node_answers_an_order,
        "True",
    ),
    Guard(
        "that an answer names the random part",
        wait_for_answer,
        "request_id_of_wait(wait) == request_id",
        when.an_answer_names_no_random_part,
        "True",
    ),
    Guard("that an order was given", Orders.give, _SENT, when.an_order_is_given_again),
    Guard(
        "that an order was answered",
        Orders.ask,
        "wait.outstanding - answered",
        when.an_order_that_was_answered_is_asked_again,
        "wait.outstanding",
    ),
    Guard("that a check was sent", check_nodes._ask, _SENT, when.a_check_is_called_again),
    Guard(
        "of which round an answer is",
        check_nodes._strike_what_came_meanwhile,
        "answer.request_id == wait.key",
        when.an_earlier_round_has_an_answer,
        "True",
    ),
    # Of one node
    Guard(
        "that all have answered",
        isolate._observe,
        "not left",
        when.the_first_of_two_ranks_stops,
        "len(left) < 2",
    ),
)
