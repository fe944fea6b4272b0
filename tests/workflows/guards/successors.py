"""The guards of tests/workflows/scenarios/successors.py: where each stands, and what goes wrong without it."""

from nodeheal.operations import late_capacity, replace
from nodeheal.services.recovery import (
    new_machine,
    retire_broken,
    return_to_service,
)
from tests.workflows.guards.guard import Guard, not_saved
from tests.workflows.scenarios import successors as when
from tests.workflows.scenarios import turns

_HAS_SLOT = "_claim_slot(node, knobs.max_nodes, ports)"

GUARDS = (
    Guard(
        "how many are replaced at once",
        replace._enter,
        f"not {_HAS_SLOT}",
        when.another_one_of_the_pool_is_being_replaced,
        not_saved(_HAS_SLOT),
    ),
    Guard(
        "that who holds a slot has crashed",
        replace._claim_slot,
        "not _is_replaced_now(holder, ports)",
        when.another_one_of_the_pool_is_being_replaced,
        "True",
    ),
    Guard(
        "what another is made from",
        replace._replace_machine,
        "not machine.group and (not machine.launch_template)",
        when.there_is_nothing_to_make_another_from,
    ),
    Guard(
        "that its end is waited for",
        replace._observe,
        "record.phase is Phase.TERMINATING",
        when.its_group_has_terminated_it,
        "True",
    ),
    Guard(
        "what a group has made, where it is looked for",
        replace._find_new_node,
        "is_made_for(operation, node, machine)",
        when.an_idle_sibling_is_there,
        "True",
    ),
    Guard(
        "what a group has made, where it boots",
        new_machine.on_machine_booted,
        "is_made_for(waiting, node, machine)",
        when.an_idle_sibling_boots,
        "True",
    ),
    Guard(
        "that it is another one that comes back",
        return_to_service._return,
        "node.node_id != broken",
        when.its_successor_is_proven,
    ),
    Guard(
        "that a group still owes a machine",
        replace._settle,
        "record.phase is Phase.GROUP_ASKED",
        when.its_successor_comes_after_the_deadline,
    ),
    Guard(
        "when a late machine was launched",
        late_capacity.is_owed,
        "machine.launched_at >= since",
        when.an_idle_sibling_comes_up_after_the_deadline,
        "True",
    ),
    Guard(
        "that a workflow finds a late machine itself",
        late_capacity.report_late,
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
