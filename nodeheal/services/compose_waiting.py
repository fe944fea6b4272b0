"""Write the emails of an incident that waits: for a human's answer, for capacity, for the breaker."""

from collections.abc import Mapping
from datetime import datetime

from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Awaited
from nodeheal.domain.approval import Answer
from nodeheal.domain.incident import History
from nodeheal.services.compose import facts_of, fit_subject, story_of


def compose_question(
    history: History, request: StepRequest, addresses: Mapping[Answer, str], due: datetime
) -> Notification:
    """The question, with a link for each answer. The page behind a link asks once more: scanners follow links."""
    incident, decision = history.incident, request.decision
    job = f", {incident.job_id}" if incident.job_id else ""
    body = [
        decision.reason,
        "",
        *facts_of(history, decision),
        "",
        f"Needed     your answer by {due:%Y-%m-%d %H:%M:%S} UTC. Silence is no: then it is handed to a human.",
        "",
        "Approve    " + addresses[Answer.approve],
        "",
        "Refuse     " + addresses[Answer.refuse],
        "",
        f"Or         nodeheal approve {incident.incident_id} --why ...",
        f"           nodeheal refuse {incident.incident_id} --why ...",
        "",
        *story_of(history),
    ]
    return Notification(
        key=f"{incident.incident_id}/approval/{request.turn}",
        subject=fit_subject(f"[nodeheal] approve? {incident.node_id}{job}: {decision.fault}"),
        body="\n".join(body),
        severity="PAGE",
        pool=incident.pool,
    )


def compose_waiting(history: History, decision: Decision) -> Notification | None:
    """What people must know of a wait. None where it is nothing to them."""
    incident = history.incident
    if decision.awaits is Awaited.BREAKER:
        reset = f"nodeheal breaker reset {incident.pool} --why ..."
        needed = f"Needed     find what they have in common and put it right, then: {reset}"
        subject = f"[nodeheal] breaker open: pool {incident.pool} is not touched until a human resets it"
    elif decision.awaits is Awaited.CAPACITY:
        needed = f"Needed     capacity: {decision.reason}"
        subject = f"[nodeheal] no capacity: {incident.node_id} waits for a replacement"
    else:
        return None
    return Notification(
        key=decision.page_key or f"{incident.incident_id}/{decision.awaits}",
        subject=fit_subject(subject),
        body="\n".join([decision.reason, "", *facts_of(history, decision), "", needed, "", *story_of(history)]),
        severity="PAGE",
        pool=incident.pool,
    )
