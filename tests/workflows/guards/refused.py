"""The guards of tests/workflows/scenarios/refused.py: where each stands, and what goes wrong without it."""

from nodeheal.services.jobs import start_gang
from nodeheal.services.recovery import new_machine, replace_machine, reserve_attempt, stand_in
from tests.workflows.guards.guard import Guard, not_saved, taken_for_saved
from tests.workflows.scenarios import refused as when

_NAMED = "ports.waits.save(replace(wait, command_id=command_id, twin=(kind, command_id)), renews=True)"
_TAKEN_BACK = "_given_back(request, wait, alive, how, ports)"
_MADE_ROOM = "_given_back(request, wait, alive, GiveBack.TERMINATE, ports)"

GUARDS = (
    # Waits
    # Commands
    # New machines
    Guard(
        "that a new machine could be claimed",
        stand_in.claim_new,
        "not claim_node(new.node_id, request.incident_id, ports)",
        when.another_incident_has_the_new_machine,
        not_saved("claim_node(new.node_id, request.incident_id, ports)"),
    ),
    Guard(
        "that a replacement has got its machine",
        new_machine.settle,
        "not claim_new(request, fresh, ports)",
        when.another_incident_takes_the_machine_that_was_launched,
        not_saved("claim_new(request, fresh, ports)"),
    ),
    Guard(
        "that a machine is new",
        new_machine.settle,
        "wait.command_id != fresh.node_id and (not _may_be_new(fresh, wait, ports))",
        when.a_machine_that_has_served_is_free,
    ),
    Guard(
        "which group has made a machine",
        new_machine._is_made_for,
        "machine.group != group_of(wait)",
        when.another_group_makes_a_machine,
    ),
    Guard(
        "that a group has lost its machine",
        replace_machine._leave_to_group,
        f"not {_TAKEN_BACK}",
        when.ec2_will_not_take_it_from_its_group,
        not_saved(_TAKEN_BACK),
    ),
    Guard(
        "that room was made",
        replace_machine._terminate_first,
        _MADE_ROOM,
        when.ec2_will_not_make_room_for_its_successor,
        taken_for_saved(_MADE_ROOM),
    ),
    # Attempts
    Guard(
        "that an attempt which is refused gives back what was granted",
        reserve_attempt._reserve,
        "refund_attempt(request, ports)",
        when.one_of_two_limits_is_reached,
        "None",
    ),
    Guard(
        "that a node is out of service before it is touched",
        reserve_attempt.why_not_act,
        "node.state not in states",
        when.it_serves_when_its_replacement_is_asked_for,
    ),
    Guard(
        "whose isolation it is",
        reserve_attempt.why_not_act,
        "node.open_incident != request.incident_id",
        when.another_has_isolated_it_when_its_reboot_is_asked_for,
    ),
    # Ranks
    Guard(
        "that a gang which is refused leaves nothing running",
        start_gang.start_ranks,
        "ports.scheduler_for(job).stop_rank(job.cluster, task_id, told)",
        when.its_second_rank_is_refused,
        "None",
    ),
)
