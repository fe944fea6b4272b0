"""The guards of tests/workflows/scenarios/found.py: where each stands, and what goes wrong without it."""

from nodeheal.adapters.memory.stores import MemoryJobStore, MemoryNodeStore
from nodeheal.domain.recovery import ladder
from nodeheal.operations import gang, isolate, replace
from nodeheal.services.intake import ingest, take_signal
from nodeheal.services.operators import release_node
from nodeheal.services.recovery import new_machine
from tests.workflows.guards.guard import Guard
from tests.workflows.scenarios import found as when

GUARDS = (
    # News
    Guard(
        "that good news is brought",
        ingest._take_good_news,
        "_is_unseen(history) and (not _is_in_line(history))",
        when.it_is_well_while_its_incident_waits,
    ),
    Guard(
        "that an incident needs its node",
        take_signal._is_needed,
        "node.open_incident is not None",
        when.a_machine_goes_that_has_an_incident,
    ),
    Guard(
        "that a launch has failed",
        new_machine.on_group_launch,
        "launch.failed",
        when.its_group_cannot_make_another,
    ),
    Guard(
        "that one machine is one human's",
        new_machine._report_late,
        "is_owed(owed, machine) and report_late(owed, node, machine.group, ports)",
        when.one_machine_comes_late_for_two,
        "(is_owed(owed, machine) and report_late(owed, node, machine.group, ports), False)[1]",
    ),
    # What was lost
    Guard(
        "that a node is drained, and nothing runs there",
        isolate._observe,
        "record.is_asked and (not left)",
        when.it_is_drained_at_the_deadline,
    ),
    Guard(
        "that a rank had stopped before",
        gang.ranks_left,
        "not task.has_stopped",
        when.a_rank_stops_before_its_end_is_waited_for,
        "True",
    ),
    # Attempts
    Guard(
        "that a replacement is under way",
        replace._start,
        "is_untouched",
        when.its_slot_is_gone_when_its_replacement_is_asked_again,
        "True",
        nth=1,
    ),
    Guard(
        "what is done with a lemon",
        ladder.remaining_steps,
        "builder.policy.lemon.action in ESCALATION_STEPS",
        when.a_lemon_is_replaced,
    ),
    # Whose it is
    Guard(
        "which pool's nodes are looked at",
        MemoryNodeStore.in_pool,
        "n.pool == pool",
        when.the_only_spare_is_of_another_pool,
        "True",
    ),
    Guard(
        "whose runs are looked at",
        MemoryJobStore.runs,
        "name == job_id",
        when.another_job_writes_when_this_one_is_over,
        "True",
    ),
    Guard(
        "that a replacement node has proven nothing",
        release_node._freed,
        "node.state is NodeState.SUSPECT and node.open_incident is None",
        when.a_suspect_is_given_back_by_hand,
    ),
)
