"""What an incident has done so far, read from its history each time. That is the ladder's memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from nodeheal.contract.results import CallAgain, Isolated, Refused, Replaced, Returned, StepResult
from nodeheal.contract.steps import Accusation, Decision
from nodeheal.contract.vocabulary import Action, Awaited, Outcome, Refusal, Step, Verdict
from nodeheal.domain.faults.diagnosis import faults_of
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.verbs import ESCALATION_STEPS, VERBS, verb_of_step

_STEPS_OF_LADDER = {VERBS[action].step for action in ESCALATION_STEPS}


@dataclass(frozen=True)
class TriedStep:
    """One destructive verb that was tried, and its result."""

    action: Action
    result: StepResult
    failure: str = ""  # why it did not help, once that is known

    @property
    def name(self) -> str:
        """The noun that people use for it."""
        return VERBS[self.action].noun

    def __str__(self) -> str:
        name = self.name
        if self.result.outcome is Outcome.TIMED_OUT:
            return f"the {name} was begun and not seen to end ({self.result.reason})"
        if self.result.outcome is not Outcome.DONE:
            return f"the {name} was not possible ({self.result.reason})"
        if self.failure:
            return f"the {name} did not help ({self.failure})"
        verb = VERBS[self.action]
        return self.result.reason if verb.is_told_by_result else verb.done


@dataclass(frozen=True)
class EvidenceBegun:
    """The isolation has asked the node for its evidence: in which turn, about which fault, on which boot."""

    turn: int
    accused: Accusation | None
    boot_id: str


@dataclass(frozen=True)
class Progress:
    """The state of the recovery. `None` means: not done yet."""

    isolation: StepResult | None = None
    tried: tuple[TriedStep, ...] = ()
    proof: StepResult | None = None  # of the node that is to carry the job
    evidence: StepResult | None = None  # of what the node could tell before it was touched
    left_alone: StepResult | None = None  # a verb not carried out: a person has the node, or its work is not known
    evidence_begun: EvidenceBegun | None = None  # by the isolation
    answers: Mapping[str, StepResult] = field(default_factory=dict)  # about each fault that the node was asked about
    contradiction: str = ""  # a fault on the boot that the reboot led to
    returned: StepResult | None = None
    restart: StepResult | None = None
    move: StepResult | None = None  # of the job, to free nodes, before this one was healed
    replacement_node: StepResult | None = None  # the proof of the free node on which the job is to go on
    replacement_failed: str = ""  # in words, where that node proved nothing
    waited: Mapping[Awaited, StepResult] = field(default_factory=dict)  # by what for, the last time
    due: Mapping[tuple[Awaited, str], datetime] = field(default_factory=dict)  # when a wait is over, by its page's key
    approvals: Mapping[Action, StepResult] = field(default_factory=dict)  # a human's answers, by what was asked
    missing: StepResult | None = None  # the last try of a replacement for which there was no capacity
    capacity_tries: int = 0
    slot_tries: int = 0  # of a replacement while as many as may be were under way
    queued_since: datetime | None = None  # when the budget was first found full
    has_waited_for_capacity: bool = False  # since that try

    @property
    def is_isolated(self) -> bool:
        """Whether the node is drained.

        Tasks that did not stop in time do not undo that; the restart proves their end.
        """
        result = self.isolation
        is_drained = result is not None and isinstance(result.facts, Isolated) and result.facts.is_drained
        return result is not None and (result.outcome is Outcome.DONE or is_drained)

    @property
    def has_waited(self) -> bool:
        """Whether anything was waited for before the node was touched. The situation may have changed since."""
        return bool(self.waited or self.approvals)

    @property
    def replacement(self) -> str | None:
        """The node that takes the place of the broken one."""
        return self.tried[-1].result.replacement_node_id if self.tried else None

    @property
    def has_new_machine(self) -> bool:
        """Whether the replacement is a new machine of the provider, and not a spare of the pool."""
        facts = self.tried[-1].result.facts if self.tried else None
        return isinstance(facts, Replaced) and facts.is_new_machine

    @property
    def has_serving_machine(self) -> bool:
        """Whether a new machine serves already, because its scheduler gives it work by itself."""
        went = bool(self.tried) and self.tried[-1].result.outcome is Outcome.DONE
        facts = self.tried[-1].result.facts if went else None
        return isinstance(facts, Replaced) and facts.serves_at_once

    @property
    def is_broken_one_left(self) -> bool:
        """Whether the broken machine could not be given back after another one took its place."""
        facts = self.returned.facts if self.returned is not None else None
        return isinstance(facts, Returned) and facts.is_broken_left

    @property
    def is_kept_out(self) -> bool:
        """Whether the node is healed, and others keep it out of service."""
        facts = self.returned.facts if self.returned is not None else None
        return isinstance(facts, Returned) and bool(facts.kept_out)

    @property
    def awaits_proof(self) -> bool:
        """Whether the last verb was carried out and no diagnosis has checked its effect yet."""
        went = bool(self.tried) and self.tried[-1].result.outcome is Outcome.DONE
        return went and self.proof is None and not self.contradiction

    @property
    def is_proven(self) -> bool:
        """Whether diagnostics show that the last verb helped. An unclear result is no proof."""
        return self.proof is not None and self.proof.outcome is Outcome.DONE and not self.contradiction

    @property
    def has_moved_job(self) -> bool:
        """Whether the job continues on other nodes. This node is then healed for its own sake."""
        return self.move is not None and self.move.outcome is Outcome.DONE

    @property
    def job_is_left_to(self) -> str:
        """The incident that restarts the job instead of this one. Empty: this one does."""
        left = self.restart.refused_for(Refusal.LEFT_TO_INCIDENT) if self.restart is not None else None
        return left.incident_id if left is not None else ""

    def summary(self) -> str:
        """What was tried, in words."""
        return "; ".join([*map(str, self.tried), *filter(None, [self.replacement_failed])])


def read_progress(history: History, policy: RecoveryPolicy) -> Progress:
    """Reads the turns in order, then applies the faults that the node has reported since."""
    progress = Progress()
    for number, turn in enumerate(history.turns, start=1):
        if turn.result is not None:
            progress = _after(progress, turn.decision, turn.result)
        if turn.decision.step is Step.ISOLATE:
            progress = replace(progress, evidence_begun=_evidence_begun(number, turn.decision))
    return _after_new_faults_of_candidate(_after_new_faults(progress, history, policy), history, policy)


def _after(progress: Progress, decision: Decision, result: StepResult) -> Progress:
    """Returns the progress after one more result."""
    if result.refused_for(Refusal.NEW_BOOT) or isinstance(result.facts, CallAgain):
        return progress  # nothing was done: the next decision is made from the start
    if result.refused_for(Refusal.TAKEN_OVER) or result.refused_for(Refusal.WORK_UNKNOWN):
        return replace(progress, left_alone=result)
    if result.step in _STEPS_OF_LADDER and not _is_without_machine(result):
        action = verb_of_step(result.step, decision.action).action
        assert action is not None
        return replace(progress, tried=(*progress.tried, TriedStep(action, result)), proof=None)
    match result.step:
        case Step.WAIT:
            return _after_wait(progress, decision, result)
        case Step.ISOLATE:
            return _after_isolation(progress, result)
        case Step.REPLACE:
            return _after_missing_machine(progress, result)
        case Step.DIAGNOSE if decision.is_move:
            return _after_diagnosis_of_candidate(progress, result)
        case Step.DIAGNOSE:
            has_failed = result.outcome is not Outcome.DONE
            return replace(progress if not has_failed else _last_failed(progress, result.reason), proof=result)
        case Step.FREEZE_EVIDENCE:
            answers = {} if decision.accused is None else {decision.accused.about: result}
            return replace(progress, evidence=result, answers={**progress.answers, **answers})
        case Step.RETURN:
            return replace(progress, returned=result)
        case Step.RESTART_WORKLOAD:
            return _after_restart(progress, decision, result)
    return progress


def _after_isolation(progress: Progress, result: StepResult) -> Progress:
    since = progress.queued_since
    if result.refused_for(Refusal.BUDGET_FULL):
        since = since or result.finished_at
    # What it stopped has to be brought back again.
    return replace(progress, isolation=result, restart=None, queued_since=since)


def _after_missing_machine(progress: Progress, result: StepResult) -> Progress:
    return replace(
        progress,
        missing=result,
        has_waited_for_capacity=False,
        capacity_tries=progress.capacity_tries + (result.refused_for(Refusal.NO_CAPACITY) is not None),
        slot_tries=progress.slot_tries + (result.refused_for(Refusal.REPLACEMENTS_FULL) is not None),
    )


def _last_failed(progress: Progress, why: str) -> Progress:
    """Returns the progress in which what was tried last did not help."""
    if not progress.tried:
        return progress
    *before, last = progress.tried
    return replace(progress, tried=(*before, replace(last, failure=why)))


def _evidence_begun(number: int, isolation: Decision) -> EvidenceBegun | None:
    if not isolation.evidence_seconds:
        return None
    return EvidenceBegun(isolation.continues or number, isolation.accused, isolation.boot_id)


def _is_without_machine(result: StepResult) -> bool:
    if result.step is not Step.REPLACE:
        return False
    return isinstance(result.facts, Refused) and result.facts.code in (Refusal.NO_CAPACITY, Refusal.REPLACEMENTS_FULL)


def _after_restart(progress: Progress, decision: Decision, result: StepResult) -> Progress:
    move = result if decision.is_move else progress.move
    if decision.is_move and result.outcome is not Outcome.DONE:
        return replace(progress, move=move)  # it stays where it is, and is brought back when its node is healed
    # That yes is used up: the next restart is another.
    approvals = dict(progress.approvals)
    approvals.pop(Action.RESTART_WORKLOAD, None)
    return replace(progress, move=move, restart=result, approvals=approvals)


def _after_diagnosis_of_candidate(progress: Progress, result: StepResult) -> Progress:
    """Records the diagnosis of another node. It proves nothing about the broken one."""
    if result.outcome is Outcome.DONE:
        return replace(progress, replacement_node=result)
    failed = f"{result.node_id} could not stand in for it: {result.reason}"
    return replace(progress, move=result, replacement_failed=failed)  # the job waits for its node


def _after_wait(progress: Progress, decision: Decision, result: StepResult) -> Progress:
    awaited, due = decision.awaits, progress.due
    if awaited is None:
        return progress
    if decision.due_at is not None:
        due = {(awaited, decision.page_key or ""): decision.due_at, **due}
    if awaited is Awaited.APPROVAL and decision.action is not None:
        return replace(progress, due=due, approvals={**progress.approvals, decision.action: result})
    has_waited = progress.has_waited_for_capacity or awaited in (Awaited.CAPACITY, Awaited.REPLACEMENT)
    is_its_turn = awaited is Awaited.BUDGET and result.outcome is Outcome.DONE
    return replace(
        progress,
        due=due,
        waited={**progress.waited, awaited: result},
        has_waited_for_capacity=has_waited,
        isolation=None if is_its_turn else progress.isolation,  # it may try again
    )


def _after_new_faults(progress: Progress, history: History, policy: RecoveryPolicy) -> Progress:
    """Marks the last verb as failed when the node reports a fault on the boot that it led to."""
    last = progress.tried[-1] if progress.tried else None
    if last is None or last.result.boot_id is None:
        return progress
    led_to = (last.result.replacement_node_id or last.result.node_id, last.result.boot_id)
    since = last.result.finished_at if VERBS[last.action].keeps_boot else None
    first = _first_fault(led_to, history, policy, since)
    return (
        replace(_last_failed(progress, f"{first} after it"), contradiction=f"{first} after it") if first else progress
    )


def _after_new_faults_of_candidate(progress: Progress, history: History, policy: RecoveryPolicy) -> Progress:
    """Does the same for the free node on which the job is to continue. This incident holds that node."""
    passed = progress.replacement_node
    if passed is None or passed.node_id == progress.replacement:
        return progress
    first = _first_fault((passed.node_id, str(passed.boot_id)), history, policy)
    if not first:
        return progress
    unfit = replace(progress, replacement_node=None)
    if progress.move is not None:
        return unfit
    return _after_diagnosis_of_candidate(unfit, passed.model_copy(update={"outcome": Outcome.FAILED, "reason": first}))


def _first_fault(
    where: tuple[str, str], history: History, policy: RecoveryPolicy, since: datetime | None = None
) -> str:
    """Returns the first fault of the node itself on this boot, in words. Empty: there is none.

    `since`: on a boot that goes on, what was reported before does not count.
    """
    once = {event.event_id: event for event in history.events}
    in_order = sorted(once.values(), key=lambda event: (event.observed_at, event.event_id))
    there = [event for event in in_order if (event.node_id, event.boot_id) == where and event.verdict is Verdict.FAILED]
    there = [event for event in there if since is None or event.observed_at > since]
    against = [
        fault
        for fault in faults_of(there, policy, history.incident.pool)
        if fault.action not in (Action.OBSERVE, Action.RESTART_WORKLOAD)
    ]
    first = min(against, key=lambda fault: (fault.event.observed_at, fault.event.event_id), default=None)
    return f"{first.title} on {first.event.node_id}" if first is not None else ""
