"""Whether a fault that only its node has reported may lead to a replacement or to a lasting isolation."""

from nodeheal.contract.results import EvidenceSaved, StepResult
from nodeheal.contract.steps import Accusation, Decision
from nodeheal.contract.vocabulary import Confirmation, Escalation, Outcome, Step
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.recovery.decision_builder import Spell
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.progress import Progress

# The node ends its work in the time that the policy gives; its answer takes a moment more.
TO_BE_HEARD_SECONDS = 15
_NOT_DONE = (Outcome.FAILED, Outcome.REFUSED)


def accusation_of(fault: Fault) -> Accusation | None:
    """What the node is asked to confirm; None: not its agent has reported it, but AWS, nodeheal or an operator."""
    event = fault.alike[-1] if fault.alike else fault.event
    if fault.is_by_hand or not event.is_from_node:
        return None
    return Accusation(
        family=event.family,
        code=event.code,
        subcode=event.subcode,
        component=event.component,
        boot_id=event.boot_id,
        source=event.source,
    )


def ask_node(say: Spell, fault: Fault, why: str) -> Decision:
    """Have the node save its evidence, and say whether it shows the fault."""
    seconds = say.policy.evidence.seconds + TO_BE_HEARD_SECONDS
    asked = say.step(Step.FREEZE_EVIDENCE, why, deadline_seconds=seconds)
    return asked.model_copy(update={"accused": accusation_of(fault)})


def unconfirmed(say: Spell, seen: Progress, fault: Fault) -> Decision | None:
    """The next step while nothing but the node's report speaks for the fault. None: it is confirmed, or shown.

    A node that denies it is diagnosed. Where the node does not answer, only an independent witness counts as a
    confirmation; without one a human decides.
    """
    accused = accusation_of(fault)
    if accused is None or _is_shown(seen):
        return None
    answer = seen.answers.get(accused.about)
    if answer is None:
        why = "nothing that cannot be undone is done on one report: the node is asked whether it shows the fault"
        return ask_node(say, fault, f"{fault.title}: {why}")
    said = confirmation_in(answer)
    if said is Confirmation.DENIED and seen.proof is None:
        return say.step(Step.DIAGNOSE, f"{fault.title}: {answer.reason}; its diagnostics decide")
    if said is Confirmation.CONFIRMED or _witness(seen, answer):
        return None
    told = [answer.reason, seen.proof.reason if seen.proof is not None else ""]
    reason = f"{fault.title}: {'; '.join(filter(None, told))}. No witness confirms it either; a human must decide"
    return say.hand_over(Escalation.NOT_CONFIRMED, reason)


def is_unclear(decision: Decision, result: StepResult) -> bool:
    """Whether the node was asked about a fault, or for its diagnostics, and has not answered: who else can tell?"""
    if result.step is Step.FREEZE_EVIDENCE:
        return decision.accused is not None and confirmation_in(result) is Confirmation.UNKNOWN
    return result.step is Step.DIAGNOSE and result.outcome is Outcome.TIMED_OUT


def confirmation_in(result: StepResult) -> Confirmation:
    """What the node has answered. An agent of version 0.1 does not say."""
    found = result.facts.confirmation if isinstance(result.facts, EvidenceSaved) else None
    return found or Confirmation.UNKNOWN


def told_in(history: History) -> list[str]:
    """What the node answered each time that it was asked about a fault, in one line each."""
    asked = [(turn.decision.accused, turn.result) for turn in history.turns]
    return [_told(accused, result) for accused, result in asked if accused is not None and result is not None]


def _told(accused: Accusation, result: StepResult) -> str:
    has_answered = isinstance(result.facts, EvidenceSaved) and result.facts.confirmation is not None
    by = result.facts.confirmed_by if has_answered and isinstance(result.facts, EvidenceSaved) else "no answer"
    why = "; ".join(filter(None, [by, result.down_reported_by]))
    return f"{confirmation_in(result)}: {accused.about}{f' ({why})' if why else ''}"


def denial(seen: Progress) -> str:
    """That the node denies the fault that it was asked about last, in words; empty: it does not."""
    last = list(seen.answers.values())[-1:]
    return "".join(answer.reason for answer in last if confirmation_in(answer) is Confirmation.DENIED)


def _is_shown(seen: Progress) -> bool:
    """Whether anything but the report speaks for the fault: diagnostics that failed, or a rung that did not help."""
    has_failed = seen.proof is not None and seen.proof.outcome is Outcome.FAILED
    return has_failed or any(rung.result.outcome not in _NOT_DONE for rung in seen.tried)


def _witness(seen: Progress, answer: StepResult) -> str:
    return answer.down_reported_by or (seen.proof.down_reported_by if seen.proof is not None else "")
