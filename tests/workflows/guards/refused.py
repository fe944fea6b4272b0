"""The guards of tests/workflows/scenarios/refused.py: where each stands, and what goes wrong without it."""

from nodeheal.adapters.memory.stores import MemoryWaitStore
from nodeheal.services import (
    new_machine,
    replace_machine,
    reserve_attempt,
    send_command,
    stand_in,
    start_gang,
)
from nodeheal.services import steps as service_steps
from tests.workflows.guards.guard import Guard, not_saved, taken_for_saved
from tests.workflows.scenarios import refused as when

_NAMED = "ports.waits.save(replace(wait, command_id=command_id, twin=(kind, command_id)), renews=True)"
_TAKEN_BACK = "_given_back(request, wait, alive, how, ports)"
_MADE_ROOM = "_given_back(request, wait, alive, GiveBack.TERMINATE, ports)"

GUARDS = (
    # Waits
    Guard(
        "whose wait is renewed",
        MemoryWaitStore.save,
        "stored.token != wait.token",
        when.a_call_names_its_command_after_the_next_one_has_begun,
    ),
    Guard(
        "that a wait was there to be named",
        send_command.name_command,
        f"not {_NAMED}",
        when.a_command_is_named_when_nobody_waits_for_it,
        not_saved(_NAMED),
    ),
    Guard(
        "that a workflow is resumed before its wait is forgotten",
        service_steps.resume,
        "ports.workflows.resume(wait.token, fitting)",
        when.a_wait_is_told_twice_because_the_first_was_throttled,
        "(forget(ports, wait), ports.workflows.resume(wait.token, fitting))[1]",
    ),
    # Commands
    Guard(
        "that a wait has a command",
        send_command.send_once,
        "known is not None and same and known.command_id",
        when.a_command_is_throttled,
        "known is not None and same",
    ),
    Guard(
        "that what was not sent is noted as not sent",
        send_command.send_once,
        "ports.waits.save(wait)",
        when.a_command_is_throttled,
        "None",
    ),
    Guard(
        "that a command is noted before it is sent",
        send_command.send_once,
        "ports.waits.save(replace(wait, command_id=_SENDING))",
        when.a_command_is_sent_by_one_who_dies,
        "None",
    ),
    Guard(
        "to which boot a command was sent",
        send_command.send_once,
        "(known.incident_id, known.boot_id) == (wait.incident_id, wait.boot_id)",
        when.a_command_of_its_last_boot_waits_for_its_answer,
        "known.incident_id == wait.incident_id",
    ),
    Guard(
        "which boot EC2 was asked to end",
        send_command._reboot_machine,
        "known.boot_id == wait.boot_id",
        when.ec2_was_asked_to_end_its_last_boot,
        "True",
    ),
    Guard(
        "that EC2 was asked, and not only meant to be",
        send_command._reboot_machine,
        "is_sent_to_machine(known)",
        when.ec2_was_too_busy_to_reboot_it,
        "True",
    ),
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
