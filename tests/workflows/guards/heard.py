"""The guards of tests/workflows/scenarios/heard.py: where each stands, and what goes wrong without it."""

from nodeheal.adapters.memory.stores import MemoryWaitStore
from nodeheal.services import check_nodes, find_checkpoint, freeze_evidence, run_diagnostics, send_command, steps
from nodeheal.services.orders import Orders
from nodeheal.services.request_ids import wait_for_answer
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import heard as when

_SENT = "known is not None and known.command_id"

GUARDS = (
    # Checkpoints
    Guard(
        "which boot has found a checkpoint",
        find_checkpoint.take_checkpoint,
        "wait.boot_id == event.boot_id",
        when.another_boot_has_found_a_checkpoint,
        "True",
    ),
    Guard(
        "which node has found a checkpoint",
        find_checkpoint.take_checkpoint,
        "blank.facts.node_id != event.node_id",
        when.another_node_has_found_a_checkpoint,
    ),
    Guard(
        "whose checkpoint it is",
        find_checkpoint.take_checkpoint,
        "_why_not_believed(event, job.checkpoints.directory)",
        when.a_node_names_a_file_of_others,
        "''",
    ),
    Guard(
        "that a checkpoint is where it is said to be",
        find_checkpoint._why_not_believed,
        "'..' not in (event.path or '').split('/')",
        when.a_node_names_a_way_to_a_file_of_others,
        "True",
    ),
    Guard(
        "that a checkpoint was found for this start",
        find_checkpoint.find_checkpoint,
        "request.searches == 0 and job.found is not None",
        when.nobody_can_tell_any_more_where_it_goes_on,
    ),
    Guard(
        "that a search was sent",
        find_checkpoint._ask,
        f"{_SENT} and (known.boot_id == wait.boot_id)",
        when.a_search_is_called_again,
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
        "where evidence may be",
        freeze_evidence.frozen,
        "answer.object_key is None or not asked.link.endswith(f'/{answer.object_key}')",
        when.evidence_is_said_to_be_elsewhere,
    ),
    Guard(
        "which tests there are",
        run_diagnostics._failed_before,
        "_TEST.fullmatch(test)",
        when.a_node_names_a_test_that_is_none,
        "True",
    ),
    Guard(
        "that all have answered",
        steps.resume_if_complete,
        "not wait.outstanding",
        when.the_first_of_two_ranks_stops,
        "True",
    ),
    Guard(
        "that a wait is there still",
        MemoryWaitStore.save,
        "renews and (stored is None or stored.token != wait.token)",
        when.an_answer_is_quicker_than_its_commands_id,
    ),
    Guard(
        "that nothing is left of a wait that is over",
        send_command.name_command,
        "ports.waits.get(wait.kind, wait.key) is None",
        when.an_answer_comes_while_its_commands_id_is_stored,
    ),
)
