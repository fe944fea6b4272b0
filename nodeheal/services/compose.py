"""Write the email that an operator reads at night: what happened, why, what was tried, what is needed."""

from nodeheal.contract.notification import SUBJECT_CHARACTERS, Notification
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Ending, NodeState, Outcome, Step
from nodeheal.domain.incident import History
from nodeheal.domain.node import Node
from nodeheal.domain.progress import Progress

_WORDS = {
    Ending.RECOVERED: "recovered",
    Ending.OBSERVED_ONLY: "observed only",
    Ending.HANDED_TO_A_HUMAN: "needs a human",
}


def compose(history: History, seen: Progress, decided: Decision, node: Node) -> Notification:
    """One email for one ending of one incident. Sending it twice is folded by its key."""
    incident, ending = history.incident, decided.ending or Ending.HANDED_TO_A_HUMAN
    is_down = " is down" if seen.has_stopped_job else ""
    job = f", {incident.job_id}{is_down}" if incident.job_id else ""
    subject = f"[nodeheal] {_WORDS[ending]}: {incident.node_id}{job}: {decided.fault}"
    return Notification(
        key=decided.page_key or f"{incident.incident_id}/{ending}",
        subject=fit_subject(subject),
        body="\n".join(
            [*_head(history, seen, decided), "", *_needed(history, seen, ending, node), "", *story_of(history)]
        ),
        severity="PAGE" if ending is Ending.HANDED_TO_A_HUMAN else "INFO",
        pool=incident.pool,
    )


def fit_subject(subject: str) -> str:
    """SNS takes printable ASCII only, on one line."""
    plain = " ".join(subject.encode("ascii", "replace").decode().split())
    return plain if len(plain) <= SUBJECT_CHARACTERS else plain[: SUBJECT_CHARACTERS - 3] + "..."


def _head(history: History, seen: Progress, decided: Decision) -> list[str]:
    tried = "; ".join(filter(None, [seen.told(), seen.restart.reason if seen.restart else ""]))
    answers = [f"Answered   {answer.reason}" for answer in seen.approvals.values()]
    return [decided.reason, "", *facts_of(history, decided), f"Tried      {tried or 'nothing'}", *answers]


def facts_of(history: History, decided: Decision) -> list[str]:
    """What every email says of an incident: where, what, with whose job, and why that is taken so."""
    incident = history.incident
    return [
        f"Node       {incident.node_id} (pool {incident.pool})",
        f"Fault      {decided.fault}" + (f" on {incident.root.component}" if incident.root.component else ""),
        # Indented, so that no line of a node's looks like one of ours: an email may hold links that decide.
        "Evidence   " + "\n           ".join(incident.root.evidence.splitlines()),
        *_saved(history),
        f"Job        {incident.job_id or 'none of ours'}",
        f"Why        {decided.why}",
    ]


def _saved(history: History) -> list[str]:
    """Where the node's own evidence is, for whoever opens a case with the vendor."""
    results = [turn.result for turn in history.turns if turn.result is not None]
    told = []
    for result in results:
        if result.step is Step.FREEZE_EVIDENCE and "link" in result.evidence:
            late = "" if result.outcome is Outcome.DONE else " (not seen to arrive in time; look there)"
            told += [f"Saved      {result.evidence['link']}{late}", f"           {result.evidence.get('console', '')}"]
    return told


def _needed(history: History, seen: Progress, ending: Ending, node: Node) -> list[str]:
    incident = history.incident
    if ending is Ending.RECOVERED:
        return ["Needed     nothing."]
    if ending is Ending.OBSERVED_ONLY:
        return ["Needed     nothing now; nodeheal has touched nothing."]
    needed = []
    if node.state is NodeState.QUARANTINED:
        needed += [
            f"Needed     {node.node_id} is out of service and stays so, and keeps its slot of the disruption budget of",
            f"           pool {incident.pool}. Repair it, or retire it, and say so with one of:",
            f"             nodeheal nodes release {node.node_id} --why ...",
            f"             nodeheal nodes retire {node.node_id} --why ...",
        ]
    if seen.has_stopped_job and incident.job_id:
        needed.append(f"Needed     {incident.job_id} is stopped. Start it again when it has enough healthy nodes.")
    return needed or [f"Needed     look at {node.node_id}; nodeheal has left it and its job as they were."]


def story_of(history: History) -> list[str]:
    """What happened so far, and where to read more."""
    incident = history.incident
    start = incident.root.observed_at
    told = (entry for entry in history.timeline if entry.kind != "progress")
    story = [f"  {(entry.at - start).total_seconds():8.1f}  {entry.text}" for entry in told]
    return [
        "What happened, in seconds after the fault:",
        *story,
        "",
        f"Incident   {incident.incident_id}",
        f"Policy     {incident.policy_version}",
    ]
