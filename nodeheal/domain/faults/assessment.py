"""The fault that an incident is about: the gravest that its node reported, read together with everything around it."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Action, NextRung
from nodeheal.domain.faults.correlation import climb
from nodeheal.domain.faults.diagnosis import STATEMENT, Fault, Meaning, diagnose
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import History, outlasts_its_boot
from nodeheal.domain.verbs import DISRUPTIVENESS

_TIME = attrgetter("observed_at", "event_id")


@dataclass(frozen=True)
class Case:
    """What the incident is about, and what else its node reported: one fault of each kind, in order."""

    fault: Fault
    beside: tuple[Fault, ...]
    events: tuple[HealthEvent, ...]  # each once, in order, of this node and boot, since it was last known good

    @property
    def told_beside(self) -> str:
        """What else was reported with the fault, for the reason."""
        beside = ", ".join(dict.fromkeys(fault.title for fault in self.beside))
        return f" (with {beside} beside it)" if beside else ""

    @property
    def has_riddle(self) -> bool:
        """Whether something was reported beside the fault that a human must look at."""
        return any(fault.action is Action.ESCALATE for fault in self.beside)


def without_gravest(case: Case) -> Case | None:
    """What is left when the gravest fault is somebody else's, or over; None when that is nothing to act on."""
    if not any(fault.waits_for_job or fault.action is not Action.OBSERVE for fault in case.beside):
        return None
    return _case_of(case.beside, case.events)


def read_case(history: History, policy: RecoveryPolicy) -> Case:
    """The gravest fault of the boot that the incident began on; the first of equals, so that order does not matter.

    A harmless event may open an incident that a grave one joins; which of them came first says nothing.
    """
    root = history.incident.root
    events = _relevant(history) or [root]
    faults = diagnose(events, policy, history.incident.pool)
    if not faults:
        title = f"{root.family.value.upper()} {root.code}"
        faults = [Fault(root, Meaning(title, "It reports no fault.", (Action.OBSERVE,)))]
    reached = max([DISRUPTIVENESS[fault.meaning.ladder[fault.start]] for fault in faults])
    faults = [climb(f, history, policy) if _may_rise_above(reached, f) else f for f in faults]
    return _case_of(faults, tuple(events))


def _case_of(faults: Sequence[Fault], events: tuple[HealthEvent, ...]) -> Case:
    # Of two that ask for nothing now, the one that asks for something later. What the driver wants done about a fault
    # (XID 154) is no cause of its own.
    heights = [DISRUPTIVENESS[fault.meaning.ladder[fault.start]] for fault in faults]
    highest = max(heights)
    highest_ones = [fault for fault, height in zip(faults, heights, strict=True) if height == highest]
    highest_ones = [fault for fault in faults if fault.keeps_out] or highest_ones
    gravest = max(highest_ones, key=lambda fault: (fault.waits_for_job, fault.key != STATEMENT))
    return Case(gravest, tuple(fault for fault in faults if fault is not gravest), events)


def _may_rise_above(height: int, fault: Fault) -> bool:
    """Whether its repetition could make it the gravest: only then is it worth looking for."""
    meaning = fault.meaning
    if meaning.next_rung is NextRung.unproven:
        return False
    return DISRUPTIVENESS[meaning.ladder[1] if len(meaning.ladder) > 1 else Action.ESCALATE] > height


def _relevant(history: History) -> list[HealthEvent]:
    """What the node itself reported on the incident's boot, and has not disproven since by passing diagnostics: each
    event once, in order of time."""
    root, good_since = history.incident.root, history.surroundings.good_since
    own = [event for event in history.events if event.node_id == root.node_id]
    once = {event.event_id: event for event in own if event.boot_id == root.boot_id or outlasts_its_boot(event)}
    in_order = sorted(once.values(), key=_TIME)
    if good_since is None or good_since >= root.observed_at:  # else it passed them in this very incident
        return in_order
    return [event for event in in_order if event.observed_at >= good_since]
