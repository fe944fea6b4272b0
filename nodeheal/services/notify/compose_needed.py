"""What an email about an ended incident asks of its reader, each part with the command to paste."""

from collections.abc import Sequence

from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Ending, Escalation, NodeState, Refusal
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.recovery.incident import History, Incident
from nodeheal.domain.recovery.progress import Progress
from nodeheal.services.notify.compose_unmanaged_tasks import needed_for_unmanaged_tasks
from nodeheal.services.notify.layout import command, field

# What is to be done, and a line for each command of it.
Part = tuple[str, list[str]]


def needed(parts: Sequence[Part]) -> list[str]:
    """Under one heading, however much it is."""
    return [
        line
        for number, (text, commands) in enumerate(parts)
        for line in [*field("" if number else "Needed", text), *commands]
    ]


def what_is_needed(history: History, seen: Progress, decided: Decision, node: Node) -> list[Part]:
    """What the reader has to do once the incident has ended, the first thing first."""
    ending = decided.ending or Ending.HANDED_TO_A_HUMAN
    if ending is Ending.RECOVERED:
        return [(needed_for_unmanaged_tasks(history, seen) or "nothing.", [])]
    if ending is Ending.OBSERVED_ONLY:
        return [_after_observing(history.incident, seen, decided)]
    parts: list[Part] = []
    if decided.escalation is Escalation.NO_CAPACITY:
        parts.append((f"{missing(history)}, in place of {node.node_id}: free one, or buy one.", []))
    if node.state is NodeState.QUARANTINED:
        parts.append(_about_the_node(node, history.incident))
    if seen.has_stopped_job and history.incident.job_id:
        parts.append(_about_the_job(history.incident))
    if theirs := needed_for_unmanaged_tasks(history, seen):
        parts.append((theirs, []))
    parts = parts or [(f"look at {node.node_id}; nodeheal has left it and its job as they were.", [])]
    if node.state not in OUT_OF_SERVICE:
        close = command("nodeheal", "incidents", "close", history.incident.incident_id, "--why", "...")
        parts.append(("When you have seen to it, close the incident:", [close]))
    return parts


def missing(history: History) -> str:
    """Returns what was not available at the last try."""
    results = [turn.result for turn in history.turns if turn.result is not None]
    found = [refused for result in results if (refused := result.refused_for(Refusal.NO_CAPACITY)) is not None]
    return f"a machine ({found[-1].missing})" if found else "a machine"


def _after_observing(incident: Incident, seen: Progress, decided: Decision) -> Part:
    if decided.is_held_back and seen.has_waited:
        told = f"{incident.node_id} was dropped unproven: look at it, or have it rebooted and proven with:"
        return told, [command("nodeheal", "nodes", "reboot", incident.node_id, "--why", "...")]
    return "nothing now; nodeheal has touched nothing.", []


def _about_the_node(node: Node, incident: Incident) -> Part:
    slot = "takes no slot" if incident.is_of_new_node else "keeps its slot"
    out = f"{node.node_id} is out of service and stays so, and {slot} of the disruption budget"
    return f"{out} of pool {incident.pool}. Repair it, or retire it, and say so with one of:", [
        command("nodeheal", "nodes", "release", node.node_id, "--why", "..."),
        command("nodeheal", "nodes", "retire", node.node_id, "--why", "..."),
    ]


def _about_the_job(incident: Incident) -> Part:
    """Only its owner has what starts it: image, data, arguments."""
    again = "Start it again, the way it was first started, when it has enough healthy nodes. Which are healthy:"
    return f"{incident.job_id} is stopped. {again}", [command("nodeheal", "nodes", "list", incident.pool)]
