"""A machine that a group makes when nobody waits for it any more: a human, who has the incident, is told of it."""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract import names
from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Awaited, Phase
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import History, TimelineEntry
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.notify.compose import fit_subject, heading
from nodeheal.services.notify.layout import command, field, link, paragraph

LATE = "late_machine"  # a wait without a workflow, by the broken node's id; it stands in its group's line
LOOKED_FOR = timedelta(days=7)  # a group may try for ever; what comes later than this is nobody's successor
_WAITS_STILL = (Awaited.CAPACITY, Awaited.REPLACEMENT)


def expect_late(wait: Wait, group: str, ports: Ports) -> None:
    """Remember that the group still owes a machine for this broken node. Its workflow waits for it no more."""
    owed = replace(wait, kind=LATE, deadline_at=ports.clock() + LOOKED_FOR, command_id="", twin=None)
    place = wait.line[1] if wait.line else wait.key
    ports.waits.save(replace(owed, line=(names.late_line(group), place)))


def forget_late(node_id: str, ports: Ports) -> None:
    """The broken node has its successor."""
    wait = ports.waits.get(LATE, node_id)
    if wait is not None:
        ports.waits.drop(wait)


def owed_by(group: str, ports: Ports) -> list[Wait]:
    """The broken nodes for which the group still owes a machine, the longest one first."""
    return list(ports.waits.in_line(names.late_line(group)))


def tell_of_late(wait: Wait, new: Node, group: str, ports: Ports) -> bool:
    """Tell that this is the machine that was owed. False: it is not wanted, or a workflow will find it by itself."""
    broken = ports.nodes.get(wait.key)
    if broken is None or broken.open_incident != wait.incident_id:
        ports.waits.drop(wait)  # a human has given it back, or up
        return False
    history = ports.incidents.history(wait.incident_id)
    last = history.turns[-1].decision if history.turns else None
    if last is not None and last.awaits in _WAITS_STILL:
        return False  # its next try looks for what the group has made
    text = f"{new.node_id} has come up in group {group}, too late to take the place of {broken.node_id} by itself"
    line = TimelineEntry(ports.clock(), "progress", f"late-{new.node_id}", text, new.node_id)
    ports.incidents.append(wait.incident_id, line)
    ports.messenger.announce(names.INCIDENT_ESCALATED, _compose(history, new, text, ports))
    ports.waits.drop(wait)
    return True


def _compose(history: History, new: Node, text: str, ports: Ports) -> Notification:
    incident = history.incident
    needed = (
        f"{new.node_id} serves in pool {incident.pool}, and has passed no diagnostics: have it rebooted and proven."
    )
    body = [
        *paragraph(f"{text}."),
        "",
        *field("Needed", f"{needed} Then give {incident.node_id} up, which frees its slot:"),
        command("nodeheal", "nodes", "reboot", new.node_id, "--why", "..."),
        command("nodeheal", "nodes", "retire", incident.node_id, "--why", "..."),
        "",
        link("Incident", f"nodeheal incidents show {incident.incident_id}"),
    ]
    return Notification(
        key=f"{incident.incident_id}/late/{new.node_id}",
        subject=fit_subject(f"{heading(history)} late: {new.node_id} has come up for {incident.node_id}"),
        body="\n".join(body),
        severity="INFO",
        pool=incident.pool,
        phase=Phase.NEWS,
        node_id=incident.node_id,
        family=incident.root.family,
    )
