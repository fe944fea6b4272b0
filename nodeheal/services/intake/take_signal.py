"""Turns what another system reports about a node into a health event of that node, or a line of its history."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from nodeheal.contract.health_event import EVIDENCE_BYTES, HealthEvent
from nodeheal.contract.names import INSTANCE_GONE
from nodeheal.contract.vocabulary import JobState, NodeState, Verdict
from nodeheal.contract.words import word
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.fleet.liveness import TERMINATED
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node, may_move, moved
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.engine import machine_gone
from nodeheal.ports import Ports
from nodeheal.ports.signals import Draft
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.saving import change_node

_BOOT_ID = 64
_UNKNOWN_AGENT = "unknown"


@dataclass(frozen=True)
class Taken:
    """What became of a draft. `became` None: not a node of this deployment, so it was ignored."""

    draft: Draft
    became: Ingested | None


def take_signal(drafts: Iterable[Draft], ports: Ports, policy: RecoveryPolicy) -> list[Taken]:
    """Take what one foreign event says. Safe to repeat: a delivery that comes again changes nothing."""
    return [Taken(draft, take_draft(draft, ports, policy)) for draft in drafts]


def take_draft(draft: Draft, ports: Ports, policy: RecoveryPolicy) -> Ingested | None:
    """Take one draft. None: the machine is not a node of this deployment."""
    node = ports.nodes.get(draft.instance_id)
    if node is None:
        return None
    event = health_event(draft, node)
    if not _is_newest(draft, node, ports):
        return _history(event, node, ports, f"something newer was heard from {draft.source} before")
    if draft.takes_node_away:
        return _take_departure(draft, event, node, ports, policy)
    if draft.is_advisory and node.open_incident is None:
        return _history(event, node, ports, "advisory: it opens no incident by itself")
    return ingest(event, ports, policy)


def health_event(draft: Draft, node: Node) -> HealthEvent:
    """The draft as an event of the node, on the boot that it was on at that time."""
    row = find(draft.family, draft.code, draft.subcode)
    known = row.verdict if row else Verdict.UNKNOWN
    return HealthEvent(
        schema_version=1,
        event_id=sha256(f"{draft.source}|{draft.key}|{draft.code}".encode()).hexdigest()[:32],
        node_id=node.node_id,
        cluster=node.cluster.name,
        pool=node.pool,
        provider=node.provider,
        scheduler=node.cluster.kind,
        instance_id=node.instance_id,
        boot_id=_boot_at(draft, node),
        observed_at=draft.observed_at,
        agent_version=node.agent_version or _UNKNOWN_AGENT,
        source=draft.source,
        family=draft.family,
        code=word(draft.code),
        subcode=word(draft.subcode) if draft.subcode else None,
        verdict=draft.verdict or known,
        evidence=draft.evidence[:EVIDENCE_BYTES],
    )


def _boot_at(draft: Draft, node: Node) -> str:
    """Returns the boot at that time. Other sources do not know boots: an older finding is about the boot before."""
    if draft.observed_at > node.booted_at:
        return node.boot_id
    return node.past_boots[0] if node.past_boots else f"before-{node.boot_id}"[:_BOOT_ID]


def _is_newest(draft: Draft, node: Node, ports: Ports) -> bool:
    """Stores the version. True: no newer one of this topic was taken. A repeat is True: it may have been lost."""
    if draft.version is None:
        return True
    version = draft.version

    def heard(known: Node) -> Node:
        if known.signal_versions.get(draft.topic, version) > version:
            return known
        return replace(known, signal_versions=_with(known.signal_versions, draft.topic, version))

    stored = change_node(node.node_id, ports, heard)
    return stored.signal_versions[draft.topic] == version


def _with(heard: Mapping[str, int], topic: str, version: int) -> dict[str, int]:
    about = topic.partition("#")[0]
    others = {known: newest for known, newest in heard.items() if known.partition("#")[0] != about}
    return {**others, topic: version}


def _history(event: HealthEvent, node: Node, ports: Ports, note: str) -> Ingested:
    ports.nodes.record(event, node.job_id, note)
    return Ingested.HISTORY


def _take_departure(
    draft: Draft, event: HealthEvent, node: Node, ports: Ports, policy: RecoveryPolicy
) -> Ingested | None:
    """The machine leaves. A fault only for a node in service that a job or an incident needs."""
    is_past = event.boot_id != node.boot_id
    is_gone = draft.code == INSTANCE_GONE and draft.subcode == TERMINATED and not is_past
    if is_gone:
        machine_gone(node.node_id, ports)  # it will not come back from its reboot
    if node.state in OUT_OF_SERVICE and not is_past:
        # nodeheal ended it, or no job uses it: wakes the operations that wait for it, and opens no incident.
        return ingest(event.model_copy(update={"verdict": Verdict.OK}), ports, policy)
    if is_past or _is_needed(node, ports):
        return ingest(event, ports, policy)
    if is_gone:
        _retire(node, draft.evidence, ports)
    return _history(event, node, ports, "the machine left, and no job of ours ran there")


def _is_needed(node: Node, ports: Ports) -> bool:
    if node.open_incident is not None:
        return True
    job, run = current_run(node.job_id, ports)
    return job is not None and run is not None and job.state is not JobState.COMPLETED


def _retire(node: Node, why: str, ports: Ports) -> None:
    def retired(known: Node) -> Node:
        if known.state is NodeState.RETIRED or not may_move(known.state, NodeState.RETIRED):
            return known
        return moved(known, NodeState.RETIRED, why, ports.clock())

    change_node(node.node_id, ports, retired)
