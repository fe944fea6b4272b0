"""Correlates faults: repeated ones, under other jobs, at both ends of a link, on many nodes at once."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import DRILL_MARK, OPERATOR_REQUEST, ROUTINE_CHECKS
from nodeheal.contract.vocabulary import Action, NextStepCondition, Scope, Verdict
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.faults.diagnosis import Fault, meaning_of
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.humanize import lasting
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import Observation
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.verbs import DISRUPTIVENESS, VERBS

_RESETS = "breaker-reset/"
_NODES_NAMED = 5
_ALL_ARE_DRILLS = "; all are drills)"


def escalate_if_repeated(fault: Fault, history: History, policy: RecoveryPolicy) -> Fault:
    """Returns the fault on the ladder's second step, where its repetition asks for that."""
    if fault.next_rung is NextStepCondition.other_job:
        return _under_other_jobs(fault, history, policy)
    if fault.next_rung is NextStepCondition.repeated:
        return _repeated(fault, history, policy)
    if fault.next_rung is NextStepCondition.job_end and not history.context.job_is_running:
        return fault.on_second_step("No job runs on it now, so nothing has to wait.")
    return fault


def _under_other_jobs(fault: Fault, history: History, policy: RecoveryPolicy) -> Fault:
    """Treats an application's fault as hardware when it follows the accelerator under several jobs."""
    rules = policy.correlation
    nodes = nodes_with_fault(fault, history, rules.window_seconds)
    if len(nodes) >= rules.same_code_nodes:
        return fault  # every node of the job at once: the application, whatever this GPU has seen before
    alike = _same_place(fault, history, rules.other_job_window_seconds)
    jobs = {observation.job_id for observation in alike if observation.job_id} | ({history.incident.job_id} - {None})
    if len(jobs) < rules.other_jobs:
        return fault
    names = ", ".join(sorted(str(job) for job in jobs))
    return fault.on_second_step(
        f"The same accelerator has shown it under {len(jobs)} jobs ({names}): it is the hardware."
    )


def _repeated(fault: Fault, history: History, policy: RecoveryPolicy) -> Fault:
    rules = policy.correlation
    newest = fault.alike[-1].observed_at if fault.alike else fault.event.observed_at
    times = {s.event_id: s.at for s in _same_place(fault, history, rules.repeat_window_seconds, newest)}
    times |= {event.event_id: event.observed_at for event in fault.alike}
    oldest = newest - timedelta(seconds=rules.repeat_window_seconds)
    count = episodes((at for at in times.values() if oldest <= at <= newest), rules.window_seconds)
    if count < rules.repeats:
        return fault
    hours = rules.repeat_window_seconds / 3600
    return fault.on_second_step(f"It has come {count} times in {hours:g} h on the same accelerator.")


def episodes(times: Iterable[datetime], gap_seconds: int) -> int:
    """Counts how often something happened. Times that are closer than the gap count once."""
    count, last = 0, None
    for at in sorted(times):
        count += last is None or (at - last).total_seconds() > gap_seconds
        last = at
    return count


def _same_place(fault: Fault, history: History, window_seconds: int, at: datetime | None = None) -> list[Observation]:
    """Returns where the same fault was observed on the same accelerator in the window."""
    event = fault.event
    return [
        s
        for s in _within(history, at or event.observed_at, window_seconds)
        if (s.node_id, s.component) == (event.node_id, event.component)
        and (s.family, s.code) == (event.family, event.code)
    ]


def _within(history: History, at: datetime, seconds: int) -> list[Observation]:
    window = timedelta(seconds=seconds)
    begin, end = at - window, at + window
    return [s for s in history.context.observations if begin <= s.at <= end]


def nodes_with_fault(fault: Fault, history: History, window_seconds: int) -> dict[str, datetime]:
    """Returns the nodes of the job that show the same fault at about the same time, each with its first observation."""
    event, job = fault.alike[-1] if fault.alike else fault.event, history.incident.job_id
    nodes = {event.node_id: event.observed_at}
    started = history.context.run_started_at
    for s in _within(history, event.observed_at, window_seconds):
        if started is not None and s.at < started <= event.observed_at:
            continue  # of the run before
        if job is not None and s.job_id == job and (s.family, s.code) == (event.family, event.code):
            nodes[s.node_id] = min(s.at, nodes.get(s.node_id, s.at))
    return nodes


def root_of_secondary_fault(fault: Fault, history: History, policy: RecoveryPolicy) -> Observation | None:
    """Returns the fault that a secondary fault (XID 45) follows from: the gravest one of its job or node near it.

    None: the fault is not a secondary one, or nothing else was observed.
    """
    event, job = fault.event, history.incident.job_id
    if fault.key not in policy.correlation.secondary_faults:
        return None
    around = [
        s
        for s in _within(history, event.observed_at, policy.correlation.window_seconds)
        if (s.node_id == event.node_id or (job is not None and s.job_id == job))
        and _disruptiveness_of(s, event.pool, policy) > 0
    ]
    return max(
        around, key=lambda s: (_disruptiveness_of(s, event.pool, policy), -s.at.timestamp(), s.event_id), default=None
    )


def _disruptiveness_of(observation: Observation, pool: str, policy: RecoveryPolicy) -> int:
    """Returns how disruptive the first action on an observed fault is."""
    row = find(observation.family, observation.code, observation.subcode)
    verdict = row.verdict if row else Verdict.UNKNOWN
    meaning = meaning_of(observation.family, observation.code, observation.subcode, verdict, None, pool, policy)
    return DISRUPTIVENESS[meaning.ladder[0]] if meaning else DISRUPTIVENESS[Action.OBSERVE]


def other_end(fault: Fault, history: History, policy: RecoveryPolicy) -> Observation | None:
    """Returns another node that reports a broken link at about the same time. One of the two ends is bad."""
    if fault.scope is not Scope.link:
        return None
    job = history.incident.job_id
    for s in _within(history, fault.event.observed_at, policy.correlation.window_seconds):
        row = find(s.family, s.code, s.subcode)
        is_link = row is not None and row.scope is Scope.link and VERBS[row.action].takes_node_out
        is_related = (job is not None and s.job_id == job) or _share_fabric(s, fault.event)
        if is_link and s.node_id != fault.event.node_id and is_related:
            return s
    return None


def _share_fabric(observation: Observation, event: HealthEvent) -> bool:
    fabric = event.labels.get("fabric")
    return fabric is not None and observation.labels.get("fabric") == fabric


def owner_of_fabric(fault: Fault, history: History, policy: RecoveryPolicy) -> Observation | None:
    """Returns the node that reported a fault of the same fabric first. Its incident handles the fabric."""
    if fault.scope is not Scope.fabric:
        return None
    event = fault.event
    for s in sorted(
        _within(history, event.observed_at, policy.correlation.window_seconds), key=lambda s: (s.at, s.node_id)
    ):
        row = find(s.family, s.code, s.subcode)
        is_before = (s.at, s.node_id) < (event.observed_at, event.node_id)
        is_fabric = row is not None and row.scope is Scope.fabric
        if is_fabric and is_before and s.node_id != event.node_id and _share_fabric(s, event):
            return s
    return None


@dataclass(frozen=True)
class CommonCause:
    """The common cause of many failing nodes. `key`: the same for all decisions about it."""

    text: str
    key: str


def common_cause(fault: Fault, history: History, policy: RecoveryPolicy) -> CommonCause | None:
    """Returns what so many failing nodes have in common that the breaker opens. None: it stays closed."""
    if fault.is_by_hand or fault.is_routine or fault.key in policy.breaker.departures:
        return None
    limit = policy.breaker.limit(history.context.pool_nodes)
    event, reset_at = fault.event, history.context.pool.breaker_reset_at
    failing: dict[str, tuple[str, dict[str, str]]] = {event.node_id: (fault.key, dict(event.labels))}
    real = set() if DRILL_MARK in event.evidence else {event.node_id}
    began = ended = event.observed_at
    for s in _within(history, event.observed_at, policy.breaker.window_seconds):
        if reset_at is not None and s.at <= reset_at:
            continue  # a human has looked at it
        key = f"{s.family.value}/{s.code}"
        is_no_failure = s.code in {*ROUTINE_CHECKS, OPERATOR_REQUEST} or key in policy.breaker.departures
        if not is_no_failure and _disruptiveness_of(s, event.pool, policy) >= DISRUPTIVENESS[Action.ISOLATE]:
            failing.setdefault(s.node_id, (key, dict(s.labels)))
            real |= set() if s.is_drill else {s.node_id}
            began, ended = min(began, s.at), max(ended, s.at)
    if len(failing) < limit:
        return None
    shared = Counter(label for _, labels in failing.values() for label in labels.items())
    shared += Counter(("fault", key) for key, _ in failing.values())
    # A fleet mostly runs one driver: only very many nodes that share it say something about it.
    causes = {
        f"{name} {value}": count
        for (name, value), count in shared.items()
        if count >= (policy.breaker.max_nodes if name == "driver_version" else limit)
    }
    if not causes:
        return None
    what, count = max(causes.items(), key=lambda item: (item[1], item[0]))
    span = f"within {lasting(max(1, round((ended - began).total_seconds())))}"
    together = f"{len(failing)} nodes of the pool fail together, {count} of them with {what}"
    text = f"{together} ({span}: {_named(failing, real)}"
    return CommonCause(text, f"breaker/{event.pool}/{what}/{began:%Y-%m-%dT%H}")


def _named(failing: Collection[str], real: Collection[str]) -> str:
    """Names the first of the failing nodes and says how many faults were injected, with the bracket that follows."""
    nodes = sorted(failing)
    names = ", ".join(nodes[:_NODES_NAMED]) + (f" and {len(nodes) - _NODES_NAMED} more" if nodes[_NODES_NAMED:] else "")
    if not real:
        return f"{names}{_ALL_ARE_DRILLS}"
    drills = len(failing) - len(real)
    return f"{names}; {drills} of {len(failing)} are drills)" if drills else f"{names})"


def are_all_drills(cause: str) -> bool:
    """Tells whether every fault of a common cause was injected, by its text: an open breaker keeps no more."""
    return cause.endswith(_ALL_ARE_DRILLS)


def reset_key(pool: Pool) -> str:
    """Returns the key of the one email about all that a reset of the breaker drops."""
    return f"{_RESETS}{pool.name}/{pool.breaker_reset_at:%Y-%m-%dT%H:%M:%S}"


def is_dropped_by_reset(page_key: str | None) -> bool:
    """Tells whether a decision's page is about that."""
    return page_key is not None and page_key.startswith(_RESETS)


def breaker_key(pool: Pool) -> str:
    """Returns the key of the one page about this opening of the pool's breaker."""
    return f"breaker/{pool.name}/{pool.breaker_opened_at:%Y-%m-%dT%H:%M:%S}"
