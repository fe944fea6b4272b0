"""FREEZE_EVIDENCE: a node saves what it knows of its fault before it is touched, and confirms or denies the fault."""

from base64 import urlsafe_b64encode
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.health_event import EvidenceFrozen, Frozen
from nodeheal.contract.names import evidence_key
from nodeheal.contract.results import EvidenceSaved, StepResult
from nodeheal.contract.steps import Accusation, StepRequest
from nodeheal.contract.vocabulary import Confirmation, Outcome, Step, VerbName
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.operation import Operation, OperationState, node_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.evidence import Upload
from nodeheal.operations.engine import begin_ahead
from nodeheal.operations.handler import Answers, Handler, OperationFacts, VerbContext, read_time, step_result
from nodeheal.operations.record import plan_step, read_printed, send_command, update
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.saving import node_of
from nodeheal.services.steps import add_timeline_entry

FAILURES_TOLD = 5
_ANSWERS = {
    Confirmation.CONFIRMED: "confirms",
    Confirmation.DENIED: "does not confirm",
    Confirmation.UNKNOWN: "cannot tell of",
}


class EvidenceAnswer(Frozen):
    """What became of the evidence, and whether the node shows the fault."""

    object_key: str | None = None
    size_bytes: int = 0
    items: int = 0
    failed: tuple[str, ...] = ()
    reason: str = ""
    confirmation: Confirmation = Confirmation.UNKNOWN
    confirmed_by: str = ""

    @classmethod
    def of(cls, event: EvidenceFrozen) -> "EvidenceAnswer":
        """The part of the event that decides."""
        return cls(**event.model_dump(include=set(cls.model_fields)))


class _Record(Frozen):
    """Where the evidence must be stored; no other place counts."""

    link: str = ""
    console: str = ""


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn."""
    return plan_step(request, ports, VerbName.FREEZE_EVIDENCE, node_owner(request.decision.node_id))


def ask_ahead(isolation: StepRequest, world: VerbContext) -> None:
    """Requests the evidence while the gang stops, if the decision says so. If this fails, its own step requests it."""
    seconds = isolation.decision.evidence_seconds
    if not seconds:
        return
    asked = {"step": Step.FREEZE_EVIDENCE, "deadline_seconds": seconds}
    request = isolation.model_copy(update={"decision": isolation.decision.model_copy(update=asked)})
    with suppress(NotAccepted):
        begin_ahead(plan(request, world.ports), world)


def _start(operation: Operation, world: VerbContext) -> Operation | StepResult:
    """Sends the command. A node that is gone ends the operation at once: evidence never delays a recovery."""
    ports, policy, request = world.ports, world.policy, operation.step
    node, now = ports.nodes.get(operation.node_id), ports.clock()
    why_not = _why_not(node, request, policy)
    if node is None or why_not:
        return step_result(operation, now, Outcome.REFUSED, why_not)
    seconds = min(policy.evidence.seconds, request.decision.deadline_seconds)
    expires_at, accused = now + timedelta(seconds=seconds), request.decision.accused
    upload = None
    if policy.evidence.enabled:
        key = evidence_key(request.incident_id, request.operation_turn)
        upload = ports.sign_upload(key, policy.evidence.max_bytes, expires_at)
    where = _Record(link=upload.link, console=upload.console_url) if upload is not None else _Record()
    operation = replace(operation, boot_id=node.boot_id, data_json=where.model_dump_json())
    try:
        asks = command(upload, accused, with_bug_report=policy.evidence.bug_report)
        operation = send_command(operation, node, asks, expires_at, ports)
    except NotFound as gone:
        return step_result(operation, now, Outcome.FAILED, f"nothing could be saved: {gone}")
    asked = ["saves its state first"] if policy.evidence.enabled else []
    asked += [f"is asked whether it shows {accused.about}"] if accused is not None else []
    add_timeline_entry(request, ports, "evidence-asked", f"{node.node_id} {' and '.join(asked)}, within {seconds} s")
    return operation


def command(upload: Upload | None, accused: Accusation | None, *, with_bug_report: bool) -> Command:
    """Without an upload nothing is saved; the node is to confirm the fault all the same."""
    fault = accused.model_dump_json().encode() if accused is not None else b""
    return Command(
        "freeze-evidence",
        {
            "Upload": upload.ticket if upload is not None else "none",
            "MaxBytes": str(upload.max_bytes if upload is not None else 0),
            "BugReport": "yes" if with_bug_report else "no",
            "Accused": urlsafe_b64encode(fault).decode().rstrip("=") or "none",
        },
    )


def _why_not(node: Node | None, request: StepRequest, policy: RecoveryPolicy) -> str:
    if not policy.evidence.enabled and request.decision.accused is None:
        return "the policy says to save no evidence"
    if node is None:
        return f"{request.decision.node_id} is not in the table; has its agent ever reported?"
    if node.open_incident != request.incident_id:
        return f"{node.node_id} belongs to incident {node.open_incident or 'nobody'}"
    return ""


def _observe(operation: Operation, facts: OperationFacts) -> StepResult | None:
    if operation.answer_json:
        return _judged(operation, facts)
    if operation.has_command_failed:
        why = "the node refused the command or could not run it"
        return step_result(operation, facts.now, Outcome.FAILED, why)
    if not facts.is_final:
        return None
    if operation.state is OperationState.PLANNED:
        return step_result(operation, facts.now, Outcome.UNKNOWN, "no evidence was asked for")
    # The upload may still arrive. The result has its place, so that a human can look there later.
    seconds = operation.step.decision.deadline_seconds
    why = f"no evidence within {seconds} s; the command is {operation.command_state or 'UNKNOWN'}"
    known = {"boot_id": operation.boot_id, "facts": _asked(operation)}
    return step_result(operation, facts.now, Outcome.TIMED_OUT, why, **known)  # type: ignore[arg-type]


def _asked(operation: Operation) -> EvidenceSaved:
    where, accused = _Record.model_validate_json(operation.data_json), operation.step.decision.accused
    return EvidenceSaved(link=where.link, console=where.console, accused=accused.about if accused is not None else "")


def _judged(operation: Operation, facts: OperationFacts) -> StepResult:
    answer, asked = EvidenceAnswer.model_validate_json(operation.answer_json), _asked(operation)
    message = ""
    if asked.accused:
        why = f" ({answer.confirmed_by})" if answer.confirmed_by else ""
        message = f"{operation.node_id} {_ANSWERS[answer.confirmation]} {asked.accused}{why}"
        known = {"confirmation": answer.confirmation, "confirmed_by": answer.confirmed_by}
        asked = asked.model_copy(update=known)
    outcome, reason, shown = _of_upload(answer, asked, message)
    return step_result(operation, facts.now, outcome, reason, boot_id=operation.boot_id, facts=shown)


def _of_upload(answer: EvidenceAnswer, asked: EvidenceSaved, message: str) -> tuple[Outcome, str, EvidenceSaved | None]:
    known = asked if asked.accused else None
    if not asked.link:
        return (Outcome.DONE if message else Outcome.FAILED), message or "nothing was asked", known
    if not asked.link.endswith(f"/{answer.object_key}"):
        why = f"the evidence was not uploaded: {answer.reason or 'the node names another place'}"[:1000]
        nowhere = known and known.model_copy(update={"link": "", "console": ""})
        return Outcome.FAILED, f"{message}; {why}" if message else why, nowhere
    shown = ", ".join(answer.failed[:FAILURES_TOLD]) + (" and more" if len(answer.failed) > FAILURES_TOLD else "")
    gaps = f"; not whole: {shown}" if answer.failed else ""
    saved = f"{answer.items} files saved at {asked.link}{gaps}"
    stored = asked.model_copy(update={"size_bytes": answer.size_bytes})
    return Outcome.DONE, f"{message}; {saved}" if message else saved, stored


def _refresh(operation: Operation, ports: Ports) -> Operation:
    """The command's own output is one line of JSON, which the agent prints beside the event that did not arrive."""
    if not operation.reference or operation.answer_json:
        return operation
    status = ports.commands.look(node_of(operation.node_id, ports), operation.reference)
    answer = _read_output(status.output) if status.state == "SUCCEEDED" else None
    if answer is not None:
        return update(operation, ports, lambda operation: replace(operation, answer_json=answer.model_dump_json()))
    return update(operation, ports, lambda operation: replace(operation, command_state=status.state))


def _read_output(output: str) -> EvidenceAnswer | None:
    try:
        saved = read_printed(output)
        return EvidenceAnswer(
            object_key=saved["object_key"],
            size_bytes=int(saved["size_bytes"]),
            items=int(saved["items"]),
            failed=tuple(map(str, saved["failed"])),
            reason=str(saved["reason"]),
            confirmation=Confirmation(saved["confirmation"]),
            confirmed_by=str(saved["confirmed_by"])[:300],
        )
    except (KeyError, TypeError, ValueError):
        return None


ANSWERS = Answers(EvidenceFrozen, lambda event: EvidenceAnswer.of(event).model_dump_json())
HANDLER = Handler(_start, _observe, read_time, _refresh, answers=ANSWERS)
