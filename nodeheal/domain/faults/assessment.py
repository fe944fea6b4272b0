"""Assesses an incident's faults: which one is the gravest, in the light of everything around it."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Action, NextStepCondition
from nodeheal.domain.faults.correlation import escalate_if_repeated
from nodeheal.domain.faults.diagnosis import STATEMENT, Fault, Meaning, faults_of
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import History, is_boot_independent
from nodeheal.domain.verbs import DISRUPTIVENESS

_TIME = attrgetter("observed_at", "event_id")


@dataclass(frozen=True)
class FaultAssessment:
    """The fault that the incident is about, and the node's other faults, one of each kind, in order."""

    fault: Fault
    other_faults: tuple[Fault, ...]
    events: tuple[HealthEvent, ...]  # each once, in order, of this node and boot, since it was last known good

    @property
    def others_text(self) -> str:
        """The other faults, in words, for the reason."""
        other_faults = ", ".join(dict.fromkeys(fault.title for fault in self.other_faults))
        return f" (with {other_faults} beside it)" if other_faults else ""

    @property
    def has_unclassified_fault(self) -> bool:
        """Whether one of the other faults needs a human."""
        return any(fault.action is Action.ESCALATE for fault in self.other_faults)


def without_gravest_fault(assessment: FaultAssessment) -> FaultAssessment | None:
    """Returns the assessment of the other faults. None: they ask for nothing."""
    if not any(fault.waits_for_job or fault.action is not Action.OBSERVE for fault in assessment.other_faults):
        return None
    return _assessment_of(assessment.other_faults, assessment.events)


def assess_faults(history: History, policy: RecoveryPolicy) -> FaultAssessment:
    """Returns the gravest fault of the boot on which the incident began. Of equals the first wins.

    A harmless event may open an incident that a grave one joins. The order of their arrival does not matter.
    """
    root = history.incident.root
    events = _relevant(history) or [root]
    faults = faults_of(events, policy, history.incident.pool)
    if not faults:
        title = f"{root.family.value.upper()} {root.code}"
        faults = [Fault(root, Meaning(title, "It reports no fault.", (Action.OBSERVE,)))]
    reached = max([DISRUPTIVENESS[fault.meaning.ladder[fault.start]] for fault in faults])
    faults = [escalate_if_repeated(f, history, policy) if _may_rise_above(reached, f) else f for f in faults]
    return _assessment_of(faults, tuple(events))


def _assessment_of(faults: Sequence[Fault], events: tuple[HealthEvent, ...]) -> FaultAssessment:
    # Of two that ask for nothing now, the one that asks for something later. What the driver wants done about a fault
    # (XID 154) is no cause of its own.
    levels = [DISRUPTIVENESS[fault.meaning.ladder[fault.start]] for fault in faults]
    highest = max(levels)
    gravest_ones = [fault for fault, level in zip(faults, levels, strict=True) if level == highest]
    gravest_ones = [fault for fault in faults if fault.keeps_out] or gravest_ones
    gravest = max(gravest_ones, key=lambda fault: (fault.waits_for_job, fault.key != STATEMENT))
    return FaultAssessment(gravest, tuple(fault for fault in faults if fault is not gravest), events)


def _may_rise_above(level: int, fault: Fault) -> bool:
    """Tells whether its repetition could make it the gravest fault. Only then its repetition is looked up."""
    meaning = fault.meaning
    if meaning.next_rung is NextStepCondition.unproven:
        return False
    return DISRUPTIVENESS[meaning.ladder[1] if len(meaning.ladder) > 1 else Action.ESCALATE] > level


def _relevant(history: History) -> list[HealthEvent]:
    """Returns the node's own events of the incident's boot, each once, in order of time.

    Events from before the node last passed its diagnostics are left out.
    """
    root, healthy_since = history.incident.root, history.context.healthy_since
    own = [event for event in history.events if event.node_id == root.node_id]
    once = {event.event_id: event for event in own if event.boot_id == root.boot_id or is_boot_independent(event)}
    in_order = sorted(once.values(), key=_TIME)
    if healthy_since is None or healthy_since >= root.observed_at:  # else it passed them in this very incident
        return in_order
    return [event for event in in_order if event.observed_at >= healthy_since]
