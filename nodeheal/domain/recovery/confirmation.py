"""Confirmation of a fault that only its own node has reported, before a replacement or a lasting isolation."""

from typing import Any

from nodeheal.contract.results import EvidenceSaved, StepResult
from nodeheal.contract.steps import Accusation, Decision
from nodeheal.contract.vocabulary import Confirmation, Escalation, Family, Outcome, Step
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.ladder import escalation_steps
from nodeheal.domain.recovery.progress import Progress

# The node ends its work in the time that the policy gives; its answer takes a moment more.
ANSWER_MARGIN_SECONDS = 15
_NOT_DONE = (Outcome.FAILED, Outcome.REFUSED)


def accusation_of(fault: Fault) -> Accusation | None:
    """Returns what the node is asked to confirm. None: AWS, nodeheal or an operator has reported it."""
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


def ask_node(builder: DecisionBuilder, progress: Progress, fault: Fault, why: str) -> Decision:
    """Asks the node to save its evidence and to say whether it shows the fault.

    Where its isolation has asked for the same already, the step goes on with that.
    """
    asked = builder.step(Step.FREEZE_EVIDENCE, why, deadline_seconds=_seconds_to_answer(builder))
    accused, begun = accusation_of(fault), progress.evidence_begun
    turn = begun.turn if begun is not None and progress.evidence is None else None
    is_same = begun is not None and (begun.accused, begun.boot_id) == (accused, builder.history.context.boot_id)
    return asked.model_copy(update={"accused": accused, "continues": turn if is_same else None})


def ask_while_isolating(builder: DecisionBuilder, fault: Fault) -> dict[str, Any]:
    """Returns the fields of an isolation's decision that have the node asked for its evidence while the gang stops.

    A silent node is not asked. Of a new node nothing has failed yet.
    """
    accused = accusation_of(fault)
    is_needed = accused is not None or bool(escalation_steps(fault, builder))
    if not (builder.policy.evidence.enabled and is_needed) or fault.is_routine or is_silent(fault):
        return {}
    return {"accused": accused, "evidence_seconds": _seconds_to_answer(builder)}


def is_silent(fault: Fault) -> bool:
    """Tells whether the fault is that the node is not heard of. Its answer is not waited for."""
    return fault.event.family is Family.heartbeat


def _seconds_to_answer(builder: DecisionBuilder) -> int:
    return builder.policy.evidence.seconds + ANSWER_MARGIN_SECONDS


def unconfirmed(builder: DecisionBuilder, progress: Progress, fault: Fault) -> Decision | None:
    """Returns the next step while only the node's report supports the fault. None: it is confirmed or shown.

    A node that denies the fault is diagnosed. Where it does not answer, only an independent witness confirms the fault;
    without one a human decides.
    """
    accused = accusation_of(fault)
    if accused is None or _is_shown_otherwise(progress):
        return None
    answer = progress.answers.get(accused.about)
    if answer is None:
        why = "nothing that cannot be undone is done on one report: the node is asked whether it shows the fault"
        return ask_node(builder, progress, fault, f"{fault.title}: {why}")
    confirmation = confirmation_in(answer)
    if confirmation is Confirmation.DENIED and progress.proof is None:
        return builder.step(Step.DIAGNOSE, f"{fault.title}: {answer.reason}; its diagnostics decide")
    if confirmation is Confirmation.CONFIRMED or _witness(progress, answer):
        return None
    reasons = [answer.reason, progress.proof.reason if progress.proof is not None else ""]
    reason = f"{fault.title}: {'; '.join(filter(None, reasons))}. No witness confirms it either; a human must decide"
    return builder.escalate(Escalation.NOT_CONFIRMED, reason)


def is_unclear(decision: Decision, result: StepResult) -> bool:
    """Tells whether the node was asked for a confirmation or for its diagnostics and has not answered."""
    if result.step is Step.FREEZE_EVIDENCE:
        return decision.accused is not None and confirmation_in(result) is Confirmation.UNKNOWN
    return result.step is Step.DIAGNOSE and result.outcome is Outcome.TIMED_OUT


def confirmation_in(result: StepResult) -> Confirmation:
    """Returns the node's answer; UNKNOWN: it has given none."""
    confirmation = result.facts.confirmation if isinstance(result.facts, EvidenceSaved) else None
    return confirmation or Confirmation.UNKNOWN


def confirmations_in(history: History) -> list[str]:
    """Returns one line for each time that the node was asked about a fault."""
    # The isolation asks ahead; its answer is the result of the step that waits for it.
    asked = [(turn.decision.accused, turn.result) for turn in history.turns if turn.decision.step is not Step.ISOLATE]
    return [_answer_text(accused, result) for accused, result in asked if accused is not None and result is not None]


def _answer_text(accused: Accusation, result: StepResult) -> str:
    has_answered = isinstance(result.facts, EvidenceSaved) and result.facts.confirmation is not None
    by = result.facts.confirmed_by if has_answered and isinstance(result.facts, EvidenceSaved) else "no answer"
    why = "; ".join(filter(None, [by, result.down_reported_by]))
    return f"{confirmation_in(result)}: {accused.about}{f' ({why})' if why else ''}"


def denial_reason(progress: Progress) -> str:
    """Returns the reason why the node denies the fault that it was asked about last. Empty: it does not deny it."""
    last = list(progress.answers.values())[-1:]
    return "".join(answer.reason for answer in last if confirmation_in(answer) is Confirmation.DENIED)


def _is_shown_otherwise(progress: Progress) -> bool:
    """Tells whether failed diagnostics, or a verb that did not help, support the report."""
    has_failed = progress.proof is not None and progress.proof.outcome is Outcome.FAILED
    return has_failed or any(step.result.outcome not in _NOT_DONE for step in progress.tried)


def _witness(progress: Progress, answer: StepResult) -> str:
    return answer.down_reported_by or (progress.proof.down_reported_by if progress.proof is not None else "")
