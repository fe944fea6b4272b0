"""Have a node save what it can tell of its fault, before anything is done to it that would wipe it out."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from nodeheal.contract.names import evidence_key
from nodeheal.contract.steps import StepRequest, StepResult
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.errors import NotFound
from nodeheal.domain.evidence import Upload
from nodeheal.domain.node import Node
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.ports import Ports, Wait
from nodeheal.services.run_diagnostics import request_id_of
from nodeheal.services.send_command import send_once
from nodeheal.services.steps import forget, result_of, tell, token_of

EVIDENCE = "evidence"
FAILURES_TOLD = 5


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
        tell(request, ports, "evidence-asked", f"{node.node_id} saves its state first, within {seconds} s")


def _ask(node: Node, request: StepRequest, ports: Ports, policy: RecoveryPolicy, expires_at: datetime) -> bool:
    """Give leave to upload, and send the command. False: it had been sent already, or there is nobody to send it to."""
    key = evidence_key(request.incident_id, request_id_of(request))
    upload = ports.sign_upload(key, policy.evidence.max_bytes, expires_at)
    wait = _wait(request, node, upload, ports)

    def send(request_id: str) -> str:
        bug_report = policy.evidence.bug_report
        return ports.commands.collect(node, request_id, upload, expires_at, bug_report=bug_report)

    try:
        return send_once(wait, send, request, ports) is not None
    except NotFound as gone:
        forget(ports, wait)
        result = result_of(request, ports, Outcome.FAILED, f"nothing could be saved: {gone}")
        ports.workflows.resume(wait.token, result)
        return False


def frozen(
    blank: StepResult, object_key: str | None, size_bytes: int, items: int, failed: Sequence[str], reason: str
) -> StepResult:
    """The result that a node's answer comes to. `blank` knows where the evidence had to go; no other place counts."""
    link = blank.evidence.get("link", "")
    if object_key is None or not link.endswith(f"/{object_key}"):
        why = f"the evidence was not uploaded: {reason or 'the node names another place'}"
        return blank.model_copy(update={"outcome": Outcome.FAILED, "reason": why[:1000], "evidence": {}})
    shown = ", ".join(failed[:FAILURES_TOLD]) + (" and more" if len(failed) > FAILURES_TOLD else "")
    gaps = f"; not whole: {shown}" if failed else ""
    known = {**blank.evidence, "bytes": str(size_bytes)}
    done = {"outcome": Outcome.DONE, "reason": f"{items} files saved at {link}{gaps}", "evidence": known}
    return blank.model_copy(update=done)


def _why_not(node: Node | None, request: StepRequest, policy: RecoveryPolicy) -> str:
    if not policy.evidence.enabled:
        return "the policy says to save no evidence"
    if node is None:
        return f"{request.decision.node_id} is not in the table; has its agent ever reported?"
    if node.open_incident != request.incident_id:
        return f"{node.node_id} belongs to incident {node.open_incident or 'nobody'}"
    return ""


def _wait(request: StepRequest, node: Node, upload: Upload, ports: Ports) -> Wait:
    """The wait, with a result to fill in that knows where the evidence goes."""
    where = {"link": upload.link, "console": upload.console_url}
    blank = result_of(request, ports, Outcome.UNKNOWN, "no answer yet", boot_id=node.boot_id, evidence=where)
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
