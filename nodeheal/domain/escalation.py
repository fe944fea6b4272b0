"""Which word says why a human is needed, where it takes a look at the fault or at what was tried."""

from nodeheal.contract.vocabulary import Escalation, Outcome, Refusal
from nodeheal.domain.catalog import find
from nodeheal.domain.diagnosis import Fault
from nodeheal.domain.ladder import rungs_of, why_lemon, why_spent
from nodeheal.domain.progress import Progress
from nodeheal.domain.spell import Spell
from nodeheal.domain.verbs import DISRUPTIVENESS

_NOT_SEEN = (Outcome.TIMED_OUT, Outcome.UNKNOWN)


def why_asked(fault: Fault) -> Escalation:
    """Why a fault asks for a human by itself: nobody knows it, or somebody who knows it wants one."""
    event = fault.event
    is_known = fault.meaning.is_policy or find(event.family, event.code, event.subcode) is not None
    return Escalation.ASKS_FOR_A_HUMAN if is_known else Escalation.UNKNOWN_FAULT


def why_ended(fault: Fault, seen: Progress, say: Spell) -> Escalation:
    """Why no rung of the ladder is left: the first that is true of what is asked, what was spent, what was tried."""
    rungs = rungs_of(fault, say)
    if not seen.tried and not fault.is_by_hand and why_lemon(say):
        return Escalation.LEMON
    reached = max((DISRUPTIVENESS[rung.action] for rung in seen.tried), default=-1)
    if any(DISRUPTIVENESS[rung] > reached and why_spent(rung, say) for rung in rungs):
        return Escalation.ATTEMPTS_SPENT
    if seen.tried and seen.tried[-1].result.refused_for(Refusal.NO_CAPACITY):
        return Escalation.NO_CAPACITY
    if seen.tried and seen.tried[-1].result.outcome in _NOT_SEEN:
        return Escalation.NEVER_RETURNED
    if seen.proof is not None and seen.proof.outcome is not Outcome.DONE:
        return Escalation.DIAGNOSTICS_FAILED
    return Escalation.LADDER_ENDED if seen.tried else Escalation.ISOLATED_AS_ASKED
