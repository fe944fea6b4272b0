"""Have a node save what it can tell of its fault before anything is done to it, and confirm or deny that fault."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodeheal.contract.names import evidence_key
from nodeheal.contract.results import EvidenceSaved, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Confirmation, Outcome
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.evidence import EvidenceAsked, Upload
from nodeheal.ports import Ports, Wait
from nodeheal.services.run_diagnostics import request_id_of
from nodeheal.services.send_command import send_once
from nodeheal.services.steps import forget, result_of, tell, token_of

EVIDENCE = "evidence"
FAILURES_TOLD = 5
_ANSWERS = {
    Confirmation.CONFIRMED: "confirms",
    Confirmation.DENIED: "does not confirm",
    Confirmation.UNKNOWN: "cannot tell of",
}


def freeze_evidence(request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Send the command once. The workflow resumes when the node has uploaded what it has, or cannot.

    A node that is gone is an answer like any other: evidence is worth having, never worth holding a recovery up for.
    """
    token = token_of(request)
    node = ports.nodes.get(request.decision.node_id)
    why_not = _why_not(node, request, policy)
    if node is None or why_not:
        ports.workflows.resume(token, result_of(request, ports, Outcome.REFUSED, why_not))
        return
    seconds = min(policy.evidence.seconds, request.decision.deadline_seconds)
    if _ask(node, request, ports, policy, ports.clock() + timedelta(seconds=seconds)):
        accused = request.decision.accused
        asked = ["saves its state first"] if policy.evidence.enabled else []
        asked += [f"is asked whether it shows {accused.about}"] if accused is not None else []
        tell(request, ports, "evidence-asked", f"{node.node_id} {' and '.join(asked)}, within {seconds} s")


def _ask(node: Node, request: StepRequest, ports: Ports, policy: RecoveryPolicy, expires_at: datetime) -> bool:
    """Give leave to upload, and send the command. False: it had been sent already, or there is nobody to send it to."""
    key, upload = evidence_key(request.incident_id, request_id_of(request)), None
    if policy.evidence.enabled:
        upload = ports.sign_upload(key, policy.evidence.max_bytes, expires_at)
    ask = EvidenceAsked(upload, policy.evidence.bug_report, request.decision.accused)
    wait = _wait(request, node, upload, ports)
    try:
        sent = send_once(wait, lambda name: ports.commands.collect(node, ask, name, expires_at), request, ports)
    except NotFound as gone:
        forget(ports, wait)
        result = result_of(request, ports, Outcome.FAILED, f"nothing could be saved: {gone}")
        ports.workflows.resume(wait.token, result)
        return False
    return sent is not None


@dataclass(frozen=True)
class Frozen:
    """A node's answer: what became of the evidence, and whether it shows the fault."""

    object_key: str | None = None
    size_bytes: int = 0
    items: int = 0
    failed: Sequence[str] = ()
    reason: str = ""
    confirmation: Confirmation = Confirmation.UNKNOWN
    confirmed_by: str = ""


def frozen(blank: StepResult, answer: Frozen) -> StepResult:
    """The result that a node's answer comes to. `blank` knows where the evidence had to go; no other place counts, and
    about which fault the node was asked."""
    asked = blank.facts if isinstance(blank.facts, EvidenceSaved) else EvidenceSaved()
    told, known = _confirmed(blank.node_id, asked, answer)
    if not asked.link:
        outcome = Outcome.DONE if told else Outcome.FAILED
        return blank.model_copy(update={"outcome": outcome, "reason": told or "nothing was asked", "facts": known})
    if answer.object_key is None or not asked.link.endswith(f"/{answer.object_key}"):
        why = f"the evidence was not uploaded: {answer.reason or 'the node names another place'}"[:1000]
        reason = f"{told}; {why}" if told else why
        nowhere = known.model_copy(update={"link": "", "console": ""}) if known.accused else None
        return blank.model_copy(update={"outcome": Outcome.FAILED, "reason": reason, "facts": nowhere})
    shown = ", ".join(answer.failed[:FAILURES_TOLD]) + (" and more" if len(answer.failed) > FAILURES_TOLD else "")
    gaps = f"; not whole: {shown}" if answer.failed else ""
    saved = f"{answer.items} files saved at {asked.link}{gaps}"
    reason = f"{told}; {saved}" if told else saved
    found = known.model_copy(update={"size_bytes": answer.size_bytes})
    return blank.model_copy(update={"outcome": Outcome.DONE, "reason": reason, "facts": found})


def _confirmed(node_id: str, asked: EvidenceSaved, answer: Frozen) -> tuple[str, EvidenceSaved]:
    """What the node says of the fault, in words and as a fact; nothing where it was asked about none."""
    if not asked.accused:
        return "", asked
    told = f"{node_id} {_ANSWERS[answer.confirmation]} {asked.accused}"
    why = f" ({answer.confirmed_by})" if answer.confirmed_by else ""
    known = {"confirmation": answer.confirmation, "confirmed_by": answer.confirmed_by}
    return f"{told}{why}", asked.model_copy(update=known)


def _why_not(node: Node | None, request: StepRequest, policy: RecoveryPolicy) -> str:
    if not policy.evidence.enabled and request.decision.accused is None:
        return "the policy says to save no evidence"
    if node is None:
        return f"{request.decision.node_id} is not in the table; has its agent ever reported?"
    if node.open_incident != request.incident_id:
        return f"{node.node_id} belongs to incident {node.open_incident or 'nobody'}"
    return ""


def _wait(request: StepRequest, node: Node, upload: Upload | None, ports: Ports) -> Wait:
    """The wait, with a result to fill in that knows where the evidence goes, and which fault it is asked about."""
    where = EvidenceSaved(
        link=upload.link if upload is not None else "",
        console=upload.console_url if upload is not None else "",
        accused=request.decision.accused.about if request.decision.accused is not None else "",
    )
    blank = result_of(request, ports, Outcome.UNKNOWN, "no answer yet", boot_id=node.boot_id, facts=where)
    deadline = ports.clock() + timedelta(seconds=request.decision.deadline_seconds)
    return Wait(
        EVIDENCE,
        request_id_of(request),
        token_of(request),
        request.incident_id,
        deadline,
        boot_id=node.boot_id,
        result_json=blank.model_dump_json(),
    )
