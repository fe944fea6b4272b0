"""The review of an incident: its timeline, the duration of its phases, and its cost."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import JOB_SOURCE, OPERATOR_REQUEST
from nodeheal.contract.results import EvidenceSaved
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Awaited, Ending, Family, IncidentState, Outcome, Step
from nodeheal.domain.faults.catalog import find, title
from nodeheal.domain.fleet.unmanaged_tasks import job_text, tasks_there
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.recovery.confirmation import confirmations_in
from nodeheal.domain.recovery.incident import RESTARTED, History, Incident
from nodeheal.domain.recovery.timeline import AttemptReserved, EntryKind, NodeReleased, entries_with
from nodeheal.domain.verbs import VERBS, verb_of_step

DONE = "done"
FAULT_PAGE = "docs/reference/faults.md"

# What a WAIT waits for, in words.
AWAITED = {
    Awaited.JOB_END: "the job's end",
    Awaited.SETTLED: "the node to come up",
    Awaited.STABLE: "the node to run for a while",
    Awaited.APPROVAL: "approval",
    Awaited.BUDGET: "a slot of the budget",
    Awaited.CAPACITY: "capacity",
    Awaited.REPLACEMENT: "other replacements",
    Awaited.BREAKER: "the breaker's reset",
    Awaited.EXTERNAL_REPAIR: "HyperPod's repair",
}

_STOPPING = {verb.step for verb in VERBS.values() if verb.stops_training}
_TOUCHED_NOTHING = (Outcome.REFUSED, Outcome.FAILED)  # refused, or found impossible before anything was marked
_ENDED = {
    Ending.RECOVERED: "recovered",
    Ending.OBSERVED_ONLY: "observed only",
    Ending.HANDED_TO_A_HUMAN: "handed to a human",
}


@dataclass(frozen=True)
class Accelerators:
    """How many accelerators the incident takes from training. 0: it is not known."""

    node: int = 0
    others: int = 0  # of the other nodes of its job, which stand still while the job is stopped


@dataclass(frozen=True)
class DecisionTaken:
    """One decision, its policy version and its result. No outcome: it is under way, or was the last one."""

    at: datetime
    step: str
    reason: str
    policy_version: str
    ended_at: datetime | None
    outcome: str
    result: str
    phase: str


@dataclass(frozen=True)
class Line:
    """One line of the timeline, in seconds after the fault."""

    seconds: float
    kind: str
    text: str
    actor: str | None


@dataclass(frozen=True)
class TimelineSummary:
    """The timeline, sorted by a reviewer's questions."""

    answers: tuple[str, ...]  # of humans
    attempts: tuple[str, ...]  # that were reserved
    confirmed: tuple[str, ...]  # what the node answered when it was asked about its fault
    evidence: tuple[str, ...]  # where it lies
    timeline: tuple[Line, ...]


@dataclass(frozen=True)
class Review:
    """The whole story of one incident."""

    incident_id: str
    subject: str
    state: IncidentState
    status: str  # how it stands, in words
    ending: Ending | None
    summary: str
    node_id: str
    pool: str
    job_id: str | None
    job: str  # the same in words; of a node without one, the tasks of others that ran there
    fault: str
    fault_page: str
    component: str | None
    serial: str | None
    rack: str | None
    is_drill: bool
    asked_by_hand: str  # by whom, and why; empty: nobody asked, it was found
    is_found: bool  # a fault was found; False: an operator asked for it, or its node is new
    is_of_program: bool  # a job's program failed by itself, and the node on which that began was left alone
    fault_at: datetime
    opened_at: datetime
    closed_at: datetime | None
    decisions: tuple[DecisionTaken, ...]
    phase_seconds: dict[str, float]
    lost_accelerator_hours: float
    told: TimelineSummary

    @property
    def seconds_to_recover(self) -> float | None:
        """From the fault to the end of the incident, where nodeheal recovered everything and no human had to answer."""
        is_over = self.ending is Ending.RECOVERED and self.closed_at is not None and not self.told.answers
        return (self.closed_at - self.fault_at).total_seconds() if is_over and self.closed_at else None


def review_of(history: History, accelerators: Accelerators, now: datetime) -> Review:
    """Returns the review of an incident. `now`: until when unfinished phases are counted."""
    incident, root = history.incident, history.incident.root
    taken = tuple(_taken(history))
    whose = incident.job_id or tasks_there(history.timeline) or "no job of ours"
    fault = next((turn.decision.fault for turn in reversed(history.turns) if turn.decision.fault), title_of(root))
    return Review(
        incident_id=incident.incident_id,
        subject=f"{status_text(incident)}: {incident.node_id}, {whose}: {fault}",
        state=incident.state,
        status=status_text(incident),
        ending=incident.ending,
        summary=incident.summary,
        node_id=incident.node_id,
        pool=incident.pool,
        job_id=incident.job_id,
        job=job_text(history),
        fault=fault,
        fault_page=_fault_page(root),
        component=root.component,
        serial=root.component_serial,
        rack=root.labels.get("rack"),
        is_drill=history.is_drill,
        is_found=not history.is_only_a_check and root.code != OPERATOR_REQUEST,
        is_of_program=(root.source, root.family) == (JOB_SOURCE, Family.task)
        and not any(decision.step == Step.ISOLATE for decision in taken),
        asked_by_hand=root.evidence if root.code == OPERATOR_REQUEST else "",
        fault_at=root.observed_at,
        opened_at=incident.opened_at,
        closed_at=incident.closed_at,
        decisions=taken,
        phase_seconds=_phases(incident, taken),
        lost_accelerator_hours=round(lost_hours(history, taken, accelerators, now), 3),
        told=_told(history),
    )


def _told(history: History) -> TimelineSummary:
    entries, fault_at = history.timeline, history.incident.root.observed_at
    return TimelineSummary(
        answers=tuple(entry.text for entry in entries if entry.kind is EntryKind.answer),
        attempts=tuple(entry.text for entry in entries_with(entries, AttemptReserved)),
        confirmed=tuple(confirmations_in(history)),
        evidence=tuple(evidence_of(history)),
        timeline=tuple(Line((e.at - fault_at).total_seconds(), e.kind, e.text, e.actor) for e in entries),
    )


def status_text(incident: Incident) -> str:
    """Returns the incident's ending in words, and whether a human has closed it; before its end, its state."""
    if incident.ending is None:
        return incident.state.value.lower()
    if _is_done(incident):
        return DONE
    if incident.has_only_restarted:
        return RESTARTED
    is_theirs, is_closed = incident.ending is Ending.HANDED_TO_A_HUMAN, incident.state is IncidentState.CLOSED
    return _ENDED[incident.ending] + ((" (closed)" if is_closed else " (not closed)") if is_theirs else "")


class StateWord(StrEnum):
    """How an incident stands, in the word that lists print and take."""

    open = "open"
    waiting = "waiting"
    recovered = "recovered"
    restarted = RESTARTED
    done = DONE
    observed = "observed"
    handed_over = "handed over"
    closed = "closed"
    escalated = "escalated"  # its workflow broke, and has written no ending


def state_word(incident: Incident) -> StateWord:
    """Returns the word for lists."""
    if incident.ending is None:
        return StateWord(incident.state.value.lower())
    if incident.ending is Ending.HANDED_TO_A_HUMAN:
        return StateWord.closed if incident.state is IncidentState.CLOSED else StateWord.handed_over
    if _is_done(incident):
        return StateWord.done
    if incident.has_only_restarted:
        return StateWord.restarted
    return StateWord.observed if incident.ending is Ending.OBSERVED_ONLY else StateWord.recovered


def doing_now(incident: Incident) -> str:
    """Returns the step that runs, or what the incident waits for, in a word or two; empty: it has ended."""
    if not incident.is_under_way:
        return ""
    if incident.awaits is not None:
        return f"waits: {incident.awaits.value.lower().replace('_', ' ')}"
    return incident.step.value.lower().replace("_", " ") if incident.step is not None else "begins"


def _is_done(incident: Incident) -> bool:
    """Whether it was a diagnosis that was asked for, and nothing had to be recovered."""
    return incident.ending is Ending.RECOVERED and incident.needs_proof_only


def title_of(event: HealthEvent) -> str:
    """Returns the fault's number and name."""
    return title(event.family, event.code, event.subcode)


def shown_title(incident: Incident) -> str:
    """Returns the fault that the incident began with, for lists. It says so where an operator has injected it."""
    return title_of(incident.root) + (" (drill)" if incident.began_as_drill else "")


def lost_hours(history: History, taken: tuple[DecisionTaken, ...], accelerators: Accelerators, now: datetime) -> float:
    """Accelerator-hours that the incident took from training:

        accelerators of the node x hours from the decision to isolate it to its return (or its replacement node's)
      + accelerators of the job's other nodes x hours from the same decision to the job running again

    Where the node is not isolated, both end when the job runs again. What never ended counts, for the node, until a
    human gave it back, or until `now` while it is still out of service; for the others, until the incident's end. What
    the job had computed since its last checkpoint is lost too, and is not counted: nodeheal does not see it.
    """
    stopping = [
        decision for decision in taken if decision.step in _STOPPING and decision.outcome not in _TOUCHED_NOTHING
    ]
    if not stopping:
        return 0.0
    begun = stopping[0].at
    over = history.incident.closed_at or now
    runs_again = _done_at(taken, Step.RESTART_WORKLOAD)
    returned = _done_at(taken, Step.RETURN) or _released_at(history)
    was_isolated = any(decision.step == Step.ISOLATE for decision in stopping)
    node_until = (returned or now) if was_isolated else (runs_again or over)
    return accelerators.node * _hours(begun, node_until) + accelerators.others * _hours(begun, runs_again or over)


def _hours(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds()) / 3_600


def _done_at(taken: tuple[DecisionTaken, ...], step: Step) -> datetime | None:
    done = [decision.ended_at for decision in taken if decision.step == step and decision.outcome == Outcome.DONE]
    return done[-1] if done else None


def _released_at(history: History) -> datetime | None:
    return next((entry.at for entry in entries_with(history.timeline, NodeReleased)), None)


def _taken(history: History) -> Iterator[DecisionTaken]:
    for turn in history.turns:
        decision, result = turn.decision, turn.result
        yield DecisionTaken(
            at=turn.decided_at or history.incident.opened_at,
            step=decision.step.value,
            reason=decision.reason,
            policy_version=decision.policy_version or history.incident.policy_version,
            ended_at=result.finished_at if result else None,
            outcome=result.outcome.value if result else "",
            result=result.reason if result else "",
            phase=_phase_of(decision),
        )


def _phase_of(decision: Decision) -> str:
    if decision.awaits is not None:
        return f"waited for {decision.awaits.value.lower().replace('_', ' ')}"
    return verb_of_step(decision.step).done


def _phases(incident: Incident, taken: tuple[DecisionTaken, ...]) -> dict[str, float]:
    """Returns the seconds of each phase, from its decision to its result. A repeated phase is summed up.

    A step that was refused has done nothing. A wait that ended by a refusal was one.
    """
    phases = {"detected": (incident.opened_at - incident.root.observed_at).total_seconds()}
    for decision in taken:
        is_undone = decision.outcome == Outcome.REFUSED and decision.step != Step.WAIT
        if decision.phase and decision.ended_at is not None and not is_undone:
            phases[decision.phase] = phases.get(decision.phase, 0.0) + (decision.ended_at - decision.at).total_seconds()
    return {name: round(seconds, 3) for name, seconds in phases.items()}


def evidence_of(history: History) -> Iterator[str]:
    """Yields where the saved state of the node is: its object, and its page in the console."""
    for turn in history.turns:
        if turn.result is not None and turn.decision.step is Step.FREEZE_EVIDENCE:
            saved = turn.result.facts
            yield from filter(None, (saved.link, saved.console) if isinstance(saved, EvidenceSaved) else ())


def _fault_page(root: HealthEvent) -> str:
    row = find(root.family, root.code, root.subcode)
    return f"{FAULT_PAGE}#{row.key.replace('/', '-')}" if row else FAULT_PAGE


def is_job_seen_to(job: Job, incident: Incident) -> bool:
    """Tells whether the incident is only about a failure of the job's own, to which a person has seen since."""
    return incident.root.source == JOB_SOURCE and is_seen_to(job, incident)


def is_seen_to(job: Job, incident: Incident) -> bool:
    """Tells whether the job is over, was given up, or was submitted again since."""
    submitted, ended = job.submitted_at, incident.closed_at
    is_later = submitted is not None and ended is not None and submitted > ended
    return is_later or (job.is_over and not job.waits_for_a_human)
