"""Measures of faults, decisions and endings: pure arithmetic, from values to metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from nodeheal.contract import metrics
from nodeheal.contract.metrics import Metric
from nodeheal.contract.notification import Notification
from nodeheal.contract.results import Answered
from nodeheal.contract.steps import AttemptLimit, DecideRequest, Decision
from nodeheal.contract.vocabulary import Ending, Escalation, Family, Outcome, Step, Verdict
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.recovery.decision_context import accelerator_scope
from nodeheal.domain.recovery.incident import History

OTHER = "other"  # of a family: codes without a row in the catalog


@dataclass(frozen=True)
class Measure:
    """One value of one metric, with one value for each dimension."""

    metric: Metric
    value: float = 1
    at: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.at) != len(self.metric.dimensions) or not all(self.at):
            raise ValueError(f"{self.metric.name} is measured by {self.metric.dimensions}, not at {self.at}")

    @property
    def dimensions(self) -> Mapping[str, str]:
        """Each dimension with its value."""
        return dict(zip(self.metric.dimensions, self.at, strict=True))


def of_fault(family: Family, code: str, verdict: Verdict, pool: str) -> list[Measure]:
    """Measures a reported fault. A heartbeat, or a fault that is over, is none. `pool`: the recorded pool of the node.

    An unknown code counts as `other`: each name costs money, and a node could invent thousands.
    """
    if verdict is Verdict.OK:
        return []
    known = f"{family.value}-{code if find(family, code) else OTHER}"
    measures = [
        Measure(metrics.FAULTS_REPORTED, at=(family.value, verdict.value)),
        Measure(metrics.FAULTS_BY_CODE, at=(pool, known)),
    ]
    if family is Family.neuron and code in metrics.NEURON_HAS_ERROR:
        measures.append(Measure(metrics.NEURON_HAS_ERROR[code]))
    return measures


def of_decision(request: DecideRequest, decision: Decision) -> list[Measure]:
    """Measures a decision, and the step before it if its result came in time. The first decision opens the incident."""
    measures = [Measure(metrics.DECISIONS_TAKEN, at=(decision.step.value,))]
    if request.turn == 0:
        measures.append(Measure(metrics.INCIDENTS_OPENED, at=(decision.pool,)))
    if request.result is not None:
        ended = (request.result.step.value, request.result.outcome.value)
        measures.append(Measure(metrics.STEPS_ENDED, at=ended))
        # Here, and not where it is given: a link, a command and one whose wake-up was lost all come by.
        facts = request.result.facts
        if isinstance(facts, Answered):
            measures.append(Measure(metrics.APPROVALS_ANSWERED, at=(facts.answer,)))
    if decision.escalation is Escalation.APPROVAL_IGNORED:
        measures.append(Measure(metrics.APPROVALS_LATE))
    return measures


def of_attempt(scope: str, limit: AttemptLimit, *, is_granted: bool) -> list[Measure]:
    """Measures an attempt that was reserved, or refused. One of a node is not counted for its accelerator as well."""
    if is_granted and scope.startswith(accelerator_scope("")):
        return []
    metric = metrics.ATTEMPTS_SPENT if is_granted else metrics.ATTEMPTS_REFUSED
    return [Measure(metric, at=(limit.group.value,))]


def of_ending(history: History, decision: Decision) -> list[Measure]:
    """Measures how an incident ended, and the duration of its phases."""
    pool, ending = history.incident.pool, decision.ending or Ending.HANDED_TO_A_HUMAN
    measures = [Measure(metrics.INCIDENTS_ENDED, at=(pool, ending.value))]
    if decision.escalation is not None:
        measures.append(Measure(metrics.HANDED_OVER, at=(decision.escalation.value,)))
    if history.is_only_a_check:
        return measures  # it waits for its turn, and no job waits for it
    return measures + _phases(history, pool)


def of_notification(notification: Notification, *, is_sent: bool) -> list[Measure]:
    """Measures an email that was sent, or folded into an earlier one."""
    if not is_sent:
        return [Measure(metrics.NOTIFICATIONS_FOLDED)]
    return [Measure(metrics.NOTIFICATIONS_SENT, at=(notification.severity,))]


def _phases(history: History, pool: str) -> list[Measure]:
    fault = history.incident.root.observed_at
    own = replace(history, turns=tuple(turn for turn in history.turns if not turn.decision.is_move))
    isolated, proven = _last_done(history, Step.ISOLATE), _last_done(own, Step.DIAGNOSE)
    spans = [
        (metrics.FAULT_TO_ISOLATED, fault, isolated),
        (metrics.ISOLATED_TO_PROVEN, isolated, proven),
        (metrics.FAULT_TO_RETURNED, fault, _last_done(history, Step.RETURN)),
        (metrics.FAULT_TO_JOB_RUNNING, fault, _last_done(history, Step.RESTART_WORKLOAD)),
    ]
    # A node's clock may run ahead of ours: less than no time is none.
    return [
        Measure(metric, max(0.0, (end - begin).total_seconds()), (pool,))
        for metric, begin, end in spans
        if begin is not None and end is not None
    ]


def _last_done(history: History, step: Step) -> datetime | None:
    results = [turn.result for turn in history.turns if turn.result is not None]
    done = [result.finished_at for result in results if (result.step, result.outcome) == (step, Outcome.DONE)]
    return done[-1] if done else None
