"""At a deadline, look once before concluding: the event that should have come may be late, lost or never sent."""

import json
from typing import TYPE_CHECKING

from nodeheal.contract.results import CallAgain, Isolated, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, Awaited, Confirmation, NodeState, Outcome, Step, Verdict
from nodeheal.domain.recovery.approval_links import Question
from nodeheal.ports import CommandStatus, Ports, Wait
from nodeheal.services.boot_wait import BOOT, REBOOTING, noted_boot
from nodeheal.services.early_end import early_end, ended_early
from nodeheal.services.freeze_evidence import EVIDENCE, Frozen, frozen
from nodeheal.services.isolate_node import DRAINED
from nodeheal.services.judge_diagnosis import judge
from nodeheal.services.launch_gang import GANG_RUNNING, launch_id
from nodeheal.services.look_at_replacement import look_at_replacement
from nodeheal.services.recorded_answer import answered, recorded_answer
from nodeheal.services.reserve_attempt import give_attempt_back
from nodeheal.services.run_diagnostics import DIAGNOSTICS, request_id_of
from nodeheal.services.send_command import is_sent_to_machine, is_under_way, sent_as
from nodeheal.services.steps import entry_id, forget, node_of, result_of
from nodeheal.services.stop_gang import GANG_STOPPED, current_run, may_write, run_key, stop_key
from nodeheal.services.stop_start import look_at_stop_start
from nodeheal.services.wait_for_approval import APPROVAL, approval_key
from nodeheal.services.wait_for_news import NEWS

if TYPE_CHECKING:
    from collections.abc import Callable

_RUNS_WAITED_FOR = 5  # of the newest: each submission of a job that is down is one


def look_once(request: StepRequest, ports: Ports) -> StepResult:
    """What can be seen of a step whose answer did not come. UNKNOWN where nothing can be told."""
    look: dict[Step, Callable[[StepRequest, Ports], StepResult]] = {
        Step.ISOLATE: _at_isolation,
        Step.FREEZE_EVIDENCE: _at_evidence,
        Step.REBOOT: _at_reboot,
        Step.DIAGNOSE: _at_diagnosis,
        Step.REPLACE: look_at_replacement,
        Step.RESTART_WORKLOAD: _at_restart,
        Step.WAIT: _at_wait,
    }
    looker = look.get(request.decision.step)
    if looker is None:
        return result_of(request, ports, Outcome.UNKNOWN, "the step broke, and there is nothing to look at")
    return looker(request, ports)


def _seconds(request: StepRequest) -> str:
    return f"{request.decision.deadline_seconds} s"


def _at_isolation(request: StepRequest, ports: Ports) -> StepResult:
    node = node_of(request.decision.node_id, ports)
    told = {entry.entry_id for entry in ports.incidents.history(request.incident_id).timeline}
    # The state is written before the drain; only the line after it says that the drain went through.
    ours = node.state is NodeState.ISOLATED and node.open_incident == request.incident_id
    drained = ours and entry_id(request, DRAINED) in told
    _, run = current_run(request.decision.job_id, ports)
    _forget_gang(request, ports)
    alive = [f"rank {task.rank} on {task.node_id}" for task in run.tasks if may_write(task, ports)] if run else []
    facts = Isolated(is_drained=drained)
    if drained and not alive:
        return result_of(request, ports, Outcome.DONE, "drained, and its gang has stopped", facts=facts)
    why = f"not seen to stop within {_seconds(request)}: {', '.join(alive)}" if drained else "it could not be drained"
    return result_of(request, ports, Outcome.TIMED_OUT if drained else Outcome.FAILED, why, facts=facts)


def _forget_gang(request: StepRequest, ports: Ports) -> None:
    """Nobody waits any more for ranks of the job to stop, or to run, on this incident's behalf: neither of its run nor
    of the ones before, for people may have submitted the job again since the wait began."""
    for run in ports.jobs.runs(request.decision.job_id or "")[-_RUNS_WAITED_FOR:]:
        stopping = stop_key(run.job_id, run.number, request.incident_id)
        for wait in (
            ports.waits.get(GANG_STOPPED, stopping),
            ports.waits.get(GANG_RUNNING, run_key(run.job_id, run.number)),
        ):
            if wait is not None and wait.incident_id == request.incident_id:
                forget(ports, wait)


def _at_reboot(request: StepRequest, ports: Ports) -> StepResult:
    if request.decision.action is Action.STOP_START:
        return look_at_stop_start(request, ports)
    node = node_of(request.decision.node_id, ports)
    wait = ports.waits.get(BOOT, node.node_id)
    if wait is None or wait.incident_id != request.incident_id:
        left = noted_boot(request, ports, REBOOTING)
        if left not in ("", node.boot_id):  # its event came with the deadline, and resumed nobody
            return result_of(request, ports, Outcome.DONE, "back with a new boot id", boot_id=node.boot_id)
        if not left:
            give_attempt_back(request, ports)
        return result_of(request, ports, Outcome.FAILED, "the reboot was not sent")
    if node.boot_id != wait.boot_id:
        forget(ports, wait)
        return result_of(request, ports, Outcome.DONE, "back with a new boot id", boot_id=node.boot_id)
    if is_under_way(request, node, wait, ports):
        return result_of(
            request, ports, Outcome.UNKNOWN, "the reboot may be under way; waiting for it", facts=CallAgain()
        )
    if not sent_as(wait):
        forget(ports, wait)
        return result_of(request, ports, Outcome.UNKNOWN, "the reboot may have been sent; the node has not rebooted")
    if is_sent_to_machine(wait):
        machine = ports.machines.describe(node.instance_id)
        forget(ports, wait)
        why = f"no new boot id within {_seconds(request)}; EC2 says {machine.state if machine else 'that it is gone'}"
        return result_of(request, ports, Outcome.TIMED_OUT, why)
    state = ports.commands.look(node, wait.command_id).state
    forget(ports, wait)  # after the look: one that is throttled is repeated, and must find what it looks for
    why = f"no new boot id within {_seconds(request)}; the reboot command is {state}"
    return result_of(request, ports, Outcome.FAILED if state == "FAILED" else Outcome.TIMED_OUT, why)


def _at_diagnosis(request: StepRequest, ports: Ports) -> StepResult:
    node = node_of(request.decision.node_id, ports)
    wait = ports.waits.get(DIAGNOSTICS, request_id_of(request))
    if wait is None:
        return result_of(request, ports, Outcome.UNKNOWN, "the diagnostics were not started")
    status = ports.commands.look(node, wait.command_id) if sent_as(wait) else None
    forget(ports, wait)
    if status is None or status.state != "SUCCEEDED":
        state = status.state if status else "UNKNOWN"
        why = f"diagnostics did not answer within {_seconds(request)}; the command is {state}"
        return result_of(request, ports, Outcome.TIMED_OUT, why, boot_id=wait.boot_id)
    return _read_summary(request, ports, status.output, wait)


def _read_summary(request: StepRequest, ports: Ports, output: str, wait: Wait) -> StepResult:
    """The command's own output: one line of JSON that the agent prints beside the event that did not arrive."""
    try:
        summary = json.loads(output.strip().splitlines()[-1])
        verdict, failed = Verdict(summary["verdict"]), [str(test) for test in summary["failed_tests"]]
        measured = {str(name): float(number) for name, number in summary.get("measured", {}).items()}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        why = "the diagnostics' output cannot be read"
        return result_of(request, ports, Outcome.UNKNOWN, why, boot_id=wait.boot_id)
    found = judge(StepResult.model_validate_json(wait.result_json), verdict, failed, measured, ports)
    return found.model_copy(update={"finished_at": ports.clock()})


def _at_evidence(request: StepRequest, ports: Ports) -> StepResult:
    """What is known of the evidence. It may still arrive: its place is told, so that a human can look there later."""
    wait = ports.waits.get(EVIDENCE, request_id_of(request))
    if wait is None:
        return result_of(request, ports, Outcome.UNKNOWN, "no evidence was asked for")
    node = node_of(request.decision.node_id, ports)
    status = ports.commands.look(node, wait.command_id) if sent_as(wait) else CommandStatus("UNKNOWN")
    forget(ports, wait)
    blank = StepResult.model_validate_json(wait.result_json)
    known = _read_saved(blank, status.output) if status.state == "SUCCEEDED" else None
    why = f"no evidence within {_seconds(request)}; the command is {status.state}"
    found = known or blank.model_copy(update={"outcome": Outcome.TIMED_OUT, "reason": why})
    return found.model_copy(update={"finished_at": ports.clock()})


def _read_saved(blank: StepResult, output: str) -> StepResult | None:
    """The command's own output: one line of JSON that the agent prints beside the event that did not arrive."""
    try:
        saved = json.loads(output.strip().splitlines()[-1])
        told = saved["object_key"], int(saved["size_bytes"]), int(saved["items"]), tuple(map(str, saved["failed"]))
        # An agent of version 0.1 prints nothing about the fault.
        confirmation = Confirmation(saved.get("confirmation", Confirmation.UNKNOWN))
        return frozen(
            blank, Frozen(*told, str(saved["reason"]), confirmation, str(saved.get("confirmed_by", ""))[:300])
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def _at_wait(request: StepRequest, ports: Ports) -> StepResult:
    question = Question(request.incident_id, request.turn)
    for wait in (ports.waits.get(NEWS, request.incident_id), ports.waits.get(APPROVAL, approval_key(question))):
        if wait is not None:
            forget(ports, wait)
    if request.decision.awaits is Awaited.APPROVAL:
        ignored = result_of(request, ports, Outcome.TIMED_OUT, f"nobody answered within {_seconds(request)}")
        # After the wait is dropped: whoever answers now is told that it is too late.
        first = recorded_answer(question, ports.incidents.history(request.incident_id))
        return answered(ignored, first, ports) if first is not None else ignored
    return result_of(request, ports, Outcome.TIMED_OUT, f"no news within {_seconds(request)}")


def _at_restart(request: StepRequest, ports: Ports) -> StepResult:
    job, run = current_run(request.decision.job_id, ports)
    _forget_gang(request, ports)
    if run is not None and run.is_running and run.why == launch_id(request):
        return result_of(request, ports, Outcome.DONE, f"{run.job_id} runs as run {run.number}")
    dead = ended_early(run) if run is not None and run.why == launch_id(request) else []
    if run is not None and dead:
        return result_of(request, ports, *early_end(job, run, dead[0]))
    ranks = ", ".join(f"rank {task.rank} is {task.status}" for task in run.tasks) if run else "no run is recorded"
    return result_of(request, ports, Outcome.TIMED_OUT, f"not all ranks run after {_seconds(request)}: {ranks}")
