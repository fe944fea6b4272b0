"""Probes nodes that stopped reporting, and reports what the probes and the node's gang say."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import islice

from nodeheal.contract import names
from nodeheal.contract.health_event import EVIDENCE_BYTES, HealthEvent
from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Escalation, Family, Phase
from nodeheal.domain.fleet.liveness import (
    Heartbeat,
    NodeLiveness,
    ProbeAnswer,
    apply_heartbeat,
    is_silent,
    judge,
    liveness_of,
)
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.ports.signals import Draft
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.take_signal import take_draft
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.notify.compose import fit_subject
from nodeheal.services.notify.layout import command, field, link

_NODES_LISTED = 50


@dataclass(frozen=True)
class LivenessResult:
    """What the probes say about one silent node, and how that was ingested."""

    node_id: str
    told: str
    became: Ingested | None


def probe_silent_nodes(
    node_ids: Iterable[str], looks: int, heartbeats: Mapping[str, Heartbeat], ports: Ports, policy: RecoveryPolicy
) -> list[LivenessResult]:
    """Probes at most `looks` of the nodes that are still silent, and ingests one event for each.

    Records every event before it ingests the first one: a decision then sees that several nodes are silent.
    """
    silent: list[tuple[Node, HealthEvent]] = []
    heard: list[LivenessResult] = []
    for node in islice(_still_silent(node_ids, heartbeats, ports, policy), max(looks, 0)):
        answers = [*ports.liveness_probes.ask(node), *_ask_gang(node, heartbeats, ports, policy)]
        gone = next((answer for answer in answers if answer.gone), None)
        if gone is not None:
            became = take_draft(_departed(node, gone, policy), ports, policy)
            heard.append(LivenessResult(node.node_id, gone.text, became))
        else:
            silent.append((node, _silence_event(node, answers, policy)))
    for node, event in silent:
        ports.nodes.record(node.with_rack(event), node.job_id)
    return heard + [LivenessResult(event.node_id, event.evidence, ingest(event, ports, policy)) for _, event in silent]


def page_mass_silence(pool: str, company: Sequence[NodeLiveness], ports: Ports) -> bool:
    """Pages operators once that many nodes of a pool fell silent together. Touches no node. False: already paged."""
    began = min(node.last_seen for node in company)
    nodes = sorted(node.node_id for node in company)
    many = f"{len(nodes)} nodes of pool {pool} fell silent together"
    need = "look at their network, the nodes' IAM role, and access to DynamoDB. A shared cause is likely."
    listed = command("nodeheal", "nodes", "list", pool)
    body = [
        f"{many}. The first was last heard at {began:%Y-%m-%d %H:%M:%S} UTC. None of them is touched.",
        "",
        *field("Needed", need),
        listed,
        "",
        "Nodes:",
        *nodes[:_NODES_LISTED],
        *([f"and {len(nodes) - _NODES_LISTED} more"] if len(nodes) > _NODES_LISTED else []),
        "",
        *link("Runbook", ports.console_links.runbook(Escalation.NODES_SILENT)),
    ]
    notification = Notification(
        key=f"silence/{pool}/{began:%Y-%m-%dT%H}",
        subject=fit_subject(f"[nodeheal] {many}"),
        body="\n".join(body),
        severity="PAGE",
        pool=pool,
        phase=Phase.NEWS,
        family=Family.heartbeat,
        escalation=Escalation.NODES_SILENT,
        needed=(need, listed.strip()),
    )
    if ports.notifier.was_sent(notification.key):
        return False
    ports.notifier.announce(names.INCIDENT_ESCALATED, notification)
    return True


def _still_silent(
    node_ids: Iterable[str], heartbeats: Mapping[str, Heartbeat], ports: Ports, policy: RecoveryPolicy
) -> Iterator[Node]:
    """Reads the nodes again: one may have reported since the list was made, or be out of service."""
    now = ports.clock()
    for node_id in node_ids:
        node = ports.nodes.get(node_id)
        if node is None:
            continue
        heartbeat = heartbeats.get(node.instance_id)
        known = apply_heartbeat(node, heartbeat, now)
        # The item of a silent machine goes in time, and the record keeps what it said: one silence stays one event.
        is_written = known == node or ports.nodes.save(known)
        if is_written and is_silent(liveness_of(known).with_heartbeat(heartbeat, now), policy.silence, now):
            yield known


def _ask_gang(
    node: Node, heartbeats: Mapping[str, Heartbeat], ports: Ports, policy: RecoveryPolicy
) -> list[ProbeAnswer]:
    """Asks about the other ranks of its job: while they run, the job goes on, and with it this node's rank."""
    _, run = current_run(node.job_id, ports)
    if run is None or all(task.node_id != node.node_id or task.has_stopped for task in run.tasks):
        return []
    others = [task for task in run.tasks if task.node_id != node.node_id]
    broken = [task for task in others if task.has_stopped and not task.was_stopped and task.exit_code != 0]
    if broken:
        return [ProbeAnswer("gang", is_up=False, text=f"rank {broken[0].rank} of its job has ended")]
    # The record of a rank says that it runs until its node reports otherwise. At least one of those nodes must report.
    run_on = all(task.status == "RUNNING" for task in others)
    if run_on and any(_is_heard(task.node_id, heartbeats, ports, policy) for task in others):
        text = counted(len(others), "other rank of its job runs", "other ranks of its job run")
        return [ProbeAnswer("gang", is_up=True, text=text)]
    return []


def _is_heard(node_id: str, heartbeats: Mapping[str, Heartbeat], ports: Ports, policy: RecoveryPolicy) -> bool:
    node, now = ports.nodes.get(node_id), ports.clock()
    if node is None:
        return False
    return not policy.silence.is_quiet(liveness_of(node).with_heartbeat(heartbeats.get(node.instance_id), now), now)


def _departed(node: Node, gone: ProbeAnswer, policy: RecoveryPolicy) -> Draft:
    return Draft(
        instance_id=node.node_id,
        source=names.SWEEP_SOURCE,
        family=Family.host,
        code=names.INSTANCE_GONE,
        subcode=gone.gone,
        key=f"{node.node_id}|{node.boot_id}|{gone.gone}",
        observed_at=_fell_silent_at(node, policy),
        evidence=f"{gone.witness}: {gone.text}",
        takes_node_away=True,
    )


def _silence_event(node: Node, answers: Sequence[ProbeAnswer], policy: RecoveryPolicy) -> HealthEvent:
    """Returns the event. The same silence with the same outcome always gives the same event."""
    verdict, subcode, reason = judge(answers)
    last = f"{node.last_seen:%Y-%m-%d %H:%M:%S} UTC"
    fact = f"{node.node_id}|{node.boot_id}|{node.last_seen.isoformat()}|{subcode}"
    return HealthEvent(
        schema_version=1,
        event_id=sha256(fact.encode()).hexdigest()[:32],
        node_id=node.node_id,
        cluster=node.cluster.name,
        pool=node.pool,
        provider=node.provider,
        scheduler=node.cluster.kind,
        instance_id=node.instance_id,
        boot_id=node.boot_id,
        observed_at=_fell_silent_at(node, policy),
        agent_version=node.agent_version or "unknown",
        source=names.SWEEP_SOURCE,
        family=Family.heartbeat,
        code=names.SILENT,
        subcode=subcode or None,
        verdict=verdict,
        evidence=f"last heard at {last}. {reason}"[:EVIDENCE_BYTES],
    )


def _fell_silent_at(node: Node, policy: RecoveryPolicy) -> datetime:
    return node.last_seen + timedelta(seconds=policy.silence.silent_seconds)
