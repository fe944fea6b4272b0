"""The guards of tests/workflows/scenarios/successors.py: where each stands, and what goes wrong without it."""

from nodeheal.services.recovery import (
    late_machine,
    look_at_replacement,
    new_machine,
    replace_machine,
    replace_node,
    replacement_slots,
    retire_broken,
    return_to_service,
)
from tests.workflows.guards.guard import Guard, not_saved
from tests.workflows.scenarios import successors as when
from tests.workflows.scenarios import turns

_HAS_SLOT = "claim_slot(node, knobs.max_nodes, ports)"

GUARDS = (
    Guard(
        "that its successor has come",
        replace_machine._carries_on,
        "new is not None",
        when.it_is_asked_again_when_its_successor_has_come,
    ),
    Guard(
        "that it was given up",
        replace_machine._carries_on,
        "known is None or known.command_id in ('', TERMINATED)",
        when.it_is_asked_again_while_its_successor_is_made,
        "True",
    ),
    Guard(
        "that it was not given up yet",
        replace_machine._carries_on,
        "known.command_id in ('', TERMINATED)",
        when.it_is_asked_again_after_ec2_was_too_busy,
    ),
    Guard(
        "how many are replaced at once",
        replace_machine.replace_machine,
        f"not {_HAS_SLOT}",
        when.another_one_of_the_pool_is_being_replaced,
        not_saved(_HAS_SLOT),
    ),
    Guard(
        "that who holds a slot has crashed",
        replacement_slots.claim_slot,
        "ports.waits.get(REPLACEMENT, holder) is None",
        when.another_one_of_the_pool_is_being_replaced,
        "True",
    ),
    Guard(
        "what another is made from",
        replace_machine.replace_machine,
        "not machine.group and (not machine.launch_template)",
        when.there_is_nothing_to_make_another_from,
    ),
    Guard(
        "that its end is waited for",
        new_machine.on_machine_gone,
        "wait.command_id != TERMINATING",
        when.its_group_has_terminated_it,
    ),
    Guard(
        "that no spare is taken while a machine is made",
        replace_node.replace_node,
        "knobs.prefer_spare and (not is_under_way(request, ports))",
        when.a_spare_is_free_while_its_successor_is_made,
        "knobs.prefer_spare",
    ),
    Guard(
        "what a group has made, where it is looked for",
        new_machine.find_new_node,
        "_is_made_for(wait, machine, ports)",
        when.an_idle_sibling_is_there,
        "True",
    ),
    Guard(
        "what a group has made, where it boots",
        new_machine.welcome,
        "_is_made_for(wait, machine, ports)",
        when.an_idle_sibling_boots,
        "True",
    ),
    Guard(
        "that it is another one that comes back",
        return_to_service.return_to_service,
        "node.node_id != broken",
        when.its_successor_is_proven,
    ),
    Guard(
        "that a group still owes a machine",
        look_at_replacement.look_at_replacement,
        "wait.command_id == ASKED",
        when.its_successor_comes_after_the_deadline,
    ),
    Guard(
        "when a late machine was launched",
        new_machine._welcome_late,
        "machine.launched_at >= since",
        when.an_idle_sibling_comes_up_after_the_deadline,
        "True",
    ),
    Guard(
        "that a workflow finds a late machine itself",
        late_machine.tell_of_late,
        "last is not None and last.awaits in _WAITS_STILL",
        turns.its_workflow_will_look_for_the_late_machine,
    ),
    Guard(
        "that it is given up already",
        retire_broken.retire_broken,
        "node.state is NodeState.RETIRED",
        when.the_broken_one_is_given_up_twice,
    ),
)
