"""A health event comes in: history, a heartbeat, part of an open incident, or a new incident."""

from dataclasses import replace
from enum import StrEnum

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Action, Family, IncidentState, NextStepCondition, NodeState, Verdict
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.faults.correlation import episodes
from nodeheal.domain.faults.diagnosis import meaning_of
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, BootView, Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.domain.recovery.incident import History, Incident, fingerprint, incident_id_of
from nodeheal.ports import Ports
from nodeheal.services.intake.add_event import add_event
from nodeheal.services.intake.hangs import joined, note_first, why_not_of_this_run
from nodeheal.services.intake.node_rates import Rate, rate_of
from nodeheal.services.intake.upsert_node import enrolled_node
from nodeheal.services.recovery.queue import IN_LINE
from nodeheal.services.recovery.wait_for_news import bring_news
from nodeheal.services.saving import SAVE_TRIES

# Whose faults are history: there is nothing to recover.
_LIFELESS = {NodeState.RETIRED: "the node is retired", NodeState.ENROLLED: "its agent has never been heard"}


class Ingested(StrEnum):
    """What became of an event."""

    OPENED = "OPENED"
    JOINED = "JOINED"
    REPEATED = "REPEATED"
    DUPLICATE = "DUPLICATE"
    HISTORY = "HISTORY"
    SEEN = "SEEN"
    TOO_MANY = "TOO_MANY"
    UNENROLLED = "UNENROLLED"


def ingest(event: HealthEvent, ports: Ports, policy: RecoveryPolicy) -> Ingested:
    """Take one event. Safe to repeat: the same event always ends in the same incident, once."""
    rate: Rate | None = None
    for _ in range(SAVE_TRIES):
        node = _node_of(event, ports)
        if node is None:
            return Ingested.UNENROLLED
        event = node.says(event)
        if rate is None and event.is_from_node:  # what others say is not counted
            rate = rate_of(event, ports)
        if rate is not None and rate.over:
            _note_flood(event, node, rate, ports)
            return Ingested.TOO_MANY
        past = _why_past(event, node)
        if past:
            ports.nodes.record(event, node.job_id, past)
            return Ingested.HISTORY
        if event.is_from_node:
            seen_at = min(event.observed_at, ports.clock())  # what is of the future would have it never missed
            node = node.booted(event.boot_id, seen_at).with_agent_version(event.agent_version, event.observed_at)
        if event.is_heartbeat or event.verdict is Verdict.OK:
            return _take_good_news(event, node, ports)
        stale = _why_stale(event, node) or why_not_of_this_run(event, node, ports)
        if stale:
            ports.nodes.record(event, node.job_id, stale)
            return Ingested.HISTORY
        event = node.with_rack(event)
        is_shown = rate is None or rate.is_shown_to_pool
        ports.nodes.record(event, node.job_id, in_pool=is_shown)
        outcome = _take_fault(event, node, ports, policy)
        if outcome is not None:
            return outcome
    raise NotAccepted(f"{event.node_id} is being written by others; event {event.event_id} is tried again later")


def _note_flood(event: HealthEvent, node: Node, rate: Rate, ports: Ports) -> None:
    """Keep the first report of a window that is not taken as history: people see from it that others are missing."""
    if rate.over == 1 and not event.is_heartbeat:
        text = "the node has sent more reports than are taken of one node; from this one on they are only counted"
        ports.nodes.record(event, node.job_id, text)


def _node_of(event: HealthEvent, ports: Ports) -> Node | None:
    """Whose it is, still to be saved. What others say of a node is no word of its own. None: of no enrolled node."""
    if event.is_from_node:
        return enrolled_node(event, ports)
    node = ports.nodes.get(event.node_id)
    if node is None or node.state is NodeState.UNENROLLED:
        return None
    return node


def _why_past(event: HealthEvent, node: Node) -> str:
    """Why it says nothing of how the node is now; empty where it may. Nothing is done because of such an event."""
    if node.view(event.boot_id, event.observed_at) is BootView.PAST:
        return "from before the node's current boot"
    return "from before the node had an agent" if event.is_history else ""


def _why_stale(event: HealthEvent, node: Node) -> str:
    """Why there is nothing to recover from a fault; empty where there may be."""
    if node.state in _LIFELESS:
        return _LIFELESS[node.state]
    is_outlived = node.healthy_since is not None and event.observed_at < node.healthy_since
    return "from before the node last passed its diagnostics" if is_outlived else ""


def _take_good_news(event: HealthEvent, node: Node, ports: Ports) -> Ingested:
    """That something is well matters to an incident that waits for it; a heartbeat says nothing of the kind."""
    if event.is_from_node:
        ports.nodes.save(node)  # a lost race means that another function has just seen the node
    if event.family is Family.heartbeat or node.open_incident is None:
        return Ingested.SEEN
    is_new, history = add_event(event, node.open_incident, ports)
    if _is_unseen(history) and not _is_in_line(history):
        bring_news(node.open_incident, ports)
    return Ingested.JOINED if is_new else Ingested.DUPLICATE


def _take_fault(event: HealthEvent, node: Node, ports: Ports, policy: RecoveryPolicy) -> Ingested | None:
    """None: the node has changed under us; read it again."""
    if node.open_incident and not _is_abandoned(node, ports):
        return _join(event, node.open_incident, ports)
    settled = node.resolved_faults.get(fingerprint(event))
    if settled and not is_open_again(event, node, settled, ports, policy):
        is_new, _ = add_event(event, settled, ports)
        return Ingested.REPEATED if is_new else Ingested.DUPLICATE
    is_news_elsewhere = joined(event, ports)
    if is_news_elsewhere is not None:
        return Ingested.JOINED if is_news_elsewhere else Ingested.DUPLICATE
    incident = Incident(
        incident_id=incident_id_of(event),
        node_id=node.node_id,
        pool=node.pool,
        root=event,
        opened_at=ports.clock(),
        policy_version=policy.version,
        job_id=node.job_id,
    )
    if ports.incidents.open(incident, replace(node, open_incident=incident.incident_id)):
        note_first(event, incident.incident_id, ports)
        ports.workflows.start(incident.incident_id, node.node_id)
        return Ingested.OPENED
    # A copy of the event that arrives beside it may see the incident before its workflow was started.
    return _join(event, incident.incident_id, ports) if _exists(incident.incident_id, ports) else None


def _is_abandoned(node: Node, ports: Ports) -> bool:
    """Whether the node's incident ended in a broken workflow before the node was taken out of service."""
    if node.state in OUT_OF_SERVICE or node.open_incident is None:
        return False
    return ports.incidents.incident(node.open_incident).state is IncidentState.ESCALATED


def _join(event: HealthEvent, incident_id: str, ports: Ports) -> Ingested:
    """Add the event to the incident that is open. If a crash lost what follows its opening, this makes up for it."""
    is_new, history = add_event(event, incident_id, ports)
    if history.incident.turn == 0 and history.incident.state is IncidentState.OPEN:
        note_first(history.incident.root, incident_id, ports)
        ports.workflows.start(incident_id, event.node_id)
    # A redelivery makes up for what a crash or a throttle kept from being done the first time.
    if _is_unseen(history) and _is_news(event, history):
        bring_news(incident_id, ports)
    if _may_end_without_it(history, event.node_id, ports):
        raise NotAccepted(f"{incident_id} is ending; event {event.event_id} is taken again when it has")
    return Ingested.JOINED if is_new else Ingested.DUPLICATE


def is_open_again(event: HealthEvent, node: Node, settled: str, ports: Ports, policy: RecoveryPolicy) -> bool:
    """Whether a fault that an incident has dealt with on this boot needs another one: what kept nodeheal from acting
    is over, or it has come so often since that its ladder climbs."""
    row = find(event.family, event.code, event.subcode)
    verdict = row.verdict if row else event.verdict
    meaning = meaning_of(event.family, event.code, event.subcode, verdict, event.product, node.pool, policy)
    if meaning is None:
        return False
    may_act = policy.pool(node.pool).mode_of(meaning.ladder[0]) is not Mode.observe
    may_act = may_act and not policy.why_only_observe(node.node_id, node.pool, ports.clock())
    may_act = may_act and not _is_paused(node, ports)
    climbs = meaning.next_rung is NextStepCondition.repeated
    if not may_act and not climbs:
        return False  # without reading its story: in a storm this is asked for every line
    before = ports.incidents.history(settled)
    last = before.turns[-1].decision if before.turns else None
    if last is not None and last.is_held_back:
        return may_act
    if not climbs:
        return False
    rules, since = policy.correlation, before.incident.root.observed_at
    observations = ports.nodes.observations(node.node_id, since, node.pool, event.observed_at)
    kind = (event.node_id, event.family, event.code, event.component)
    times = [s.at for s in observations if (s.node_id, s.family, s.code, s.component) == kind and s.at > since]
    return episodes([since, *times, event.observed_at], rules.window_seconds) >= rules.repeats


def _is_paused(node: Node, ports: Ports) -> bool:
    return bool(ports.pauses.read().why_paused(node.node_id, node.pool, ports.clock()))


def _is_unseen(history: History) -> bool:
    """Whether there is an event that the last decision has not seen."""
    return bool(history.turns) and history.turns[-1].decision.events_seen < history.event_count


def _is_in_line(history: History) -> bool:
    """One that stands in line can do nothing about a repeat or good news; each look would use one of its turns up."""
    return bool(history.turns) and history.turns[-1].decision.awaits in IN_LINE


def _is_news(event: HealthEvent, history: History) -> bool:
    """Whether an incident that waits has to know: a driver that repeats a harmless line every minute says nothing."""
    row = find(event.family, event.code, event.subcode)
    asks_for_something = row is not None and (
        row.action is not Action.OBSERVE or row.next_rung is NextStepCondition.repeated
    )
    if asks_for_something and not _is_in_line(history):
        return True
    kind = (event.family, event.code, event.subcode, event.component)
    others = [other for other in history.events if other.event_id != event.event_id]
    return all((other.family, other.code, other.subcode, other.component) != kind for other in others)


def _may_end_without_it(history: History, node_id: str, ports: Ports) -> bool:
    """Whether the last decision was taken before the event came, and lets the node go."""
    last = history.turns[-1].decision if history.turns else None
    if last is None or last.ending is None or last.events_seen >= history.event_count:
        return False
    node = ports.nodes.get(node_id)
    return node is None or node.state not in OUT_OF_SERVICE


def _exists(incident_id: str, ports: Ports) -> bool:
    try:
        ports.incidents.incident(incident_id)
    except NotFound:
        return False
    return True
