"""Stop a machine and start it again: EC2 then looks for another host for it, so a fault of the old one is left behind.

The step stops it; EC2's event that it has stopped starts it; its boot resumes the workflow. How far this has got stands
in the wait, before anything is asked, and each call looks at the machine before it asks: a repeated one goes on from
where the last one broke off, whoever calls. A stop and a start may be asked for twice, as a reboot may not.
"""

from dataclasses import replace

from nodeheal.contract.results import CallAgain, Refused, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome, Refusal
from nodeheal.domain.errors import MachineRefused, NoCapacity, NotAccepted
from nodeheal.domain.fleet.machine import NO_ROOM, STOPPED_BY_CALL, Machine, Power, why_not_stop
from nodeheal.domain.fleet.node import Node
from nodeheal.ports import Ports, Wait
from nodeheal.services.boot_wait import (
    BOOT,
    LEFT,
    STARTING,
    STOPPED,
    STOPPING,
    is_started,
    note_boot,
    noted_boot,
    wait_for_boot,
)
from nodeheal.services.reserve_attempt import give_attempt_back
from nodeheal.services.steps import forget, node_of, result_of, resume, tell, told_line

# Lines of the timeline
_STOP_SENT, _START_SENT, _START_AGAIN = "stop-sent", "start-sent", "start-again"


def stop_start(request: StepRequest, node: Node, ports: Ports) -> None:
    """Go on with it. Only a new boot id after the start resumes the workflow with DONE."""
    wait = _own_wait(request, node, ports)
    if is_started(request, node, ports):
        resume(ports, wait, result_of(request, ports, Outcome.DONE, "back with a new boot id", boot_id=node.boot_id))
        return
    if wait.command_id == STOPPED:
        tell(request, ports, _START_AGAIN, f"{wait.key} is stopped; starting it")  # once a turn: no wheel without end
    machine = ports.machines.describe(node.instance_id)  # after the wait has this call's token: its event finds it
    why_not = f"{node.instance_id} is gone" if machine is None else "" if wait.command_id else why_not_stop(machine)
    if machine is None or why_not:
        _refuse(request, wait, why_not, ports)
    elif wait.command_id == "" or (wait.command_id == STOPPING and machine.state in ("pending", "running")):
        _stop(request, wait, machine, ports)
    elif wait.command_id == STOPPED or (machine.state == "stopped" and not _is_stopped_again(wait, machine, ports)):
        _start(request, wait, node, ports)


def is_begun(request: StepRequest, ports: Ports) -> bool:
    """Whether this turn has asked EC2 for anything, as far as anybody can tell."""
    wait = _wait_of(request, ports)
    told = told_line(request, ports, _STOP_SENT) or told_line(request, ports, LEFT)
    return told is not None or (wait is not None and bool(wait.command_id))


def on_machine_stopped(machine_id: str, ports: Ports) -> None:
    """A machine has stopped. If we have stopped it, it is started; if it was to start, its workflow is told why not."""
    wait = ports.waits.get(BOOT, machine_id)
    if wait is None or not wait.request_json or not wait.command_id:
        return
    request = StepRequest.model_validate_json(wait.request_json)
    if wait.command_id == STARTING:
        machine = ports.machines.describe(machine_id)
        if machine is None or machine.state != "stopped":
            return  # the event of our own stop has come late, or twice
        if _is_stopped_again(wait, machine, ports):
            return  # the look at the deadline tells of it: EC2 may only not have seen our start yet
        if machine.state_reason and not machine.state_reason.startswith(STOPPED_BY_CALL):
            resume(ports, wait, _not_started(request, machine, ports))
            return
    _start(request, wait, node_of(wait.key, ports), ports)


def look_at_stop_start(request: StepRequest, ports: Ports) -> StepResult:
    """At the deadline, or where a call broke: what can be seen. A machine that has stopped is started once more.

    A look whose answer was lost is repeated, and sees the same without the wait.
    """
    node, wait = node_of(request.decision.node_id, ports), _wait_of(request, ports)
    machine = ports.machines.describe(node.instance_id)
    has_begun, is_back = is_begun(request, ports), is_started(request, node, ports)
    if not is_back and wait is not None and machine is not None and _is_to_start_again(request, wait, machine, ports):
        ports.waits.save(replace(wait, command_id=STOPPED))
        return result_of(request, ports, Outcome.UNKNOWN, f"{wait.key} is stopped; starting it", facts=CallAgain())
    if wait is not None:
        forget(ports, wait)
    if is_back:
        return result_of(request, ports, Outcome.DONE, "back with a new boot id", boot_id=node.boot_id)
    if not has_begun:
        give_attempt_back(request, ports)
        return result_of(request, ports, Outcome.FAILED, "nothing was asked of EC2")
    return _seen(request, machine, ports)


def _is_to_start_again(request: StepRequest, wait: Wait, machine: Machine, ports: Ports) -> bool:
    """Whether we have stopped it, nobody else has since, and it was not started again in this turn yet."""
    if machine.state != "stopped" or not wait.command_id or _is_stopped_again(wait, machine, ports):
        return False
    return told_line(request, ports, _START_AGAIN) is None


def _is_stopped_again(wait: Wait, machine: Machine, ports: Ports) -> bool:
    """Whether somebody has stopped it after EC2 had taken our start: that one wants it stopped."""
    if not machine.state_reason.startswith(STOPPED_BY_CALL):
        return False
    return told_line(StepRequest.model_validate_json(wait.request_json), ports, _START_SENT) is not None


def _own_wait(request: StepRequest, node: Node, ports: Ports) -> Wait:
    """This turn's wait, stored with this call's token."""
    known, fresh = _wait_of(request, ports), wait_for_boot(request, node, ports, keeps_request=True)
    wait = replace(fresh, command_id=known.command_id) if known else fresh
    ports.waits.save(wait)
    return wait


def _wait_of(request: StepRequest, ports: Ports) -> Wait | None:
    wait = ports.waits.get(BOOT, request.decision.node_id)
    if wait is None or wait.incident_id != request.incident_id or not wait.request_json:
        return None
    return wait if StepRequest.model_validate_json(wait.request_json).turn == request.turn else None


def _refuse(request: StepRequest, wait: Wait, why: str, ports: Ports) -> None:
    """The machine is not one that may be stopped, or it is gone. Where nothing was asked, nothing is spent."""
    if not wait.command_id:
        give_attempt_back(request, ports)
    resume(ports, wait, result_of(request, ports, Outcome.FAILED if wait.command_id else Outcome.REFUSED, why))


def _stop(request: StepRequest, wait: Wait, machine: Machine, ports: Ports) -> None:
    ports.waits.save(replace(wait, command_id=STOPPING))  # before the call: its event may be quicker than its answer
    try:
        ports.machines.power(machine.machine_id, Power.STOP)
    except NotAccepted:
        ports.waits.save(wait)  # provably not asked
        raise
    except MachineRefused as refusal:
        _refuse(request, wait, str(refusal), ports)
        return
    tell(request, ports, _STOP_SENT, f"{wait.key} is being stopped; it is started again when it has")


def _start(request: StepRequest, wait: Wait, node: Node, ports: Ports) -> None:
    note_boot(request, node, ports, LEFT)
    starting = replace(wait, command_id=STARTING, boot_id=node.boot_id)
    ports.waits.save(starting)
    try:
        ports.machines.power(node.instance_id, Power.START)
    except NotAccepted:
        ports.waits.save(replace(starting, command_id=STOPPED))
        raise
    except NoCapacity as short:
        missing = Refused(code=Refusal.NO_CAPACITY, missing=str(short))
        why = f"{wait.key} is stopped, and there is no capacity to start it: {short}"
        resume(ports, starting, result_of(request, ports, Outcome.FAILED, why, facts=missing))
        return
    except MachineRefused as refusal:
        resume(
            ports,
            starting,
            result_of(request, ports, Outcome.FAILED, f"{wait.key} is stopped, and EC2 will not start it: {refusal}"),
        )
        return
    tell(request, ports, _START_SENT, f"{wait.key} has stopped, and is being started")


def _not_started(request: StepRequest, machine: Machine, ports: Ports) -> StepResult:
    what = "EC2 could not start it"
    if machine.state_reason.startswith(STOPPED_BY_CALL):
        is_sent = told_line(request, ports, _START_SENT) is not None
        what = "somebody has stopped it since it was started" if is_sent else "it was not started again"
    why = f"{machine.machine_id} is stopped: {what} ({machine.state_reason or 'no reason given'})"
    no_room = machine.state_reason.startswith(NO_ROOM)
    missing = Refused(code=Refusal.NO_CAPACITY, missing=machine.state_reason) if no_room else None
    return result_of(request, ports, Outcome.FAILED, why, facts=missing)


def _seen(request: StepRequest, machine: Machine | None, ports: Ports) -> StepResult:
    if machine is None:
        return result_of(request, ports, Outcome.FAILED, f"{request.decision.node_id} is gone")
    if machine.state == "stopped":
        return _not_started(request, machine, ports)
    asked = "no new boot id" if noted_boot(request, ports, LEFT) else "it has not stopped"
    why = f"{asked} within {request.decision.deadline_seconds} s; EC2 says {machine.state}"
    return result_of(request, ports, Outcome.TIMED_OUT, why)
