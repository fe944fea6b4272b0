"""LATE_CAPACITY: an Auto Scaling group launches a machine after the workflow has stopped waiting for it.

A human has the incident by then, and is notified. The operation has no workflow: it stands in the group's line until
the machine comes up, or until it is forgotten.
"""

from datetime import datetime, timedelta

from nodeheal.contract import names
from nodeheal.contract.health_event import Frozen, UtcTime
from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Awaited, Phase, VerbName
from nodeheal.domain.fleet.machine import Machine
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.operation import Operation, node_owner
from nodeheal.domain.recovery.incident import History, TimelineEntry
from nodeheal.operations.handler import STANDS_IN_LINE
from nodeheal.operations.record import start_waiting, update
from nodeheal.ports import Ports
from nodeheal.services.notify.compose import fit_subject, heading
from nodeheal.services.notify.layout import command, field, link, paragraph

LOOKED_FOR = timedelta(days=7)  # a group may try without end; a machine that comes later than this replaces no node
_WAITS_STILL = (Awaited.CAPACITY, Awaited.REPLACEMENT)


class _Record(Frozen):
    """`since`: a machine that was launched before is not the one that is owed."""

    since: UtcTime | None


def track_late_capacity(replacement: Operation, group: str, since: datetime | None, ports: Ports) -> None:
    """Remember that the group still owes a machine for this broken node. Its workflow waits for it no more."""
    owed = Operation(
        owner=replacement.owner,
        operation_id=f"{replacement.operation_id}-late",
        verb=VerbName.LATE_CAPACITY,
        token="",
        incident_id=replacement.incident_id,
        deadline_at=ports.clock() + LOOKED_FOR,
        request_json=replacement.request_json,
        data_json=_Record(since=since).model_dump_json(),
        node_id=replacement.node_id,
        line=(names.late_line(group), replacement.line[1] if replacement.line else replacement.node_id),
    )
    start_waiting(owed, ports)


def forget_late_capacity(node_id: str, ports: Ports) -> None:
    """The broken node has its successor."""
    for operation in ports.operations.open_of(node_owner(node_id)):
        if operation.verb is VerbName.LATE_CAPACITY:
            update(operation, ports, Operation.delivered)


def late_capacity_of(group: str, ports: Ports) -> list[Operation]:
    """The broken nodes for which the group still owes a machine, the longest one first."""
    return list(ports.operations.queued(names.late_line(group)))


def is_owed(operation: Operation, machine: Machine) -> bool:
    """Whether the group launched this machine after it was asked for one."""
    since = _Record.model_validate_json(operation.data_json).since
    return since is not None and machine.launched_at is not None and machine.launched_at >= since


def report_late(operation: Operation, new: Node, group: str, ports: Ports) -> bool:
    """Notify people that this is the machine that was owed.

    False: it is not wanted, or a workflow will find it by itself.
    """
    broken = ports.nodes.get(operation.node_id)
    if broken is None or broken.open_incident != operation.incident_id:
        update(operation, ports, Operation.delivered)  # a human has given it back, or up
        return False
    history = ports.incidents.history(operation.incident_id)
    last = history.turns[-1].decision if history.turns else None
    if last is not None and last.awaits in _WAITS_STILL:
        return False  # its next try looks for what the group has made
    text = f"{new.node_id} has come up in group {group}, too late to take the place of {broken.node_id} by itself"
    entry = TimelineEntry(ports.clock(), "progress", f"late-{new.node_id}", text, new.node_id)
    ports.incidents.append(operation.incident_id, entry)
    ports.notifier.announce(names.INCIDENT_ESCALATED, _compose(history, new, text, ports))
    update(operation, ports, Operation.delivered)
    return True


def _compose(history: History, new: Node, text: str, ports: Ports) -> Notification:
    incident = history.incident
    needed = (
        f"{new.node_id} serves in pool {incident.pool}, and has passed no diagnostics: have it rebooted and proven."
        f" Then give {incident.node_id} up, which frees its slot:"
    )
    commands = [
        command("nodeheal", "nodes", "reboot", new.node_id, "--why", "..."),
        command("nodeheal", "nodes", "retire", incident.node_id, "--why", "..."),
    ]
    body = [
        *paragraph(f"{text}."),
        "",
        *field("Needed", needed),
        *commands,
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
        incident_id=incident.incident_id,
        needed=(needed, *map(str.strip, commands)),
        link=ports.console_links.execution(incident.incident_id),
    )


HANDLER = STANDS_IN_LINE
