"""The ladder: which rungs are left for a fault, and why a human is needed where none is.

It has memory, and it never goes down within a window.
"""

from datetime import timedelta

from nodeheal.contract.vocabulary import Action, Escalation, Outcome, Refusal
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.recovery import attempt_budget
from nodeheal.domain.recovery.decision_builder import Spell
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.verbs import DISRUPTIVENESS, RUNGS, VERBS

_NOT_SEEN = (Outcome.TIMED_OUT, Outcome.UNKNOWN)


def next_rungs(fault: Fault, seen: Progress, say: Spell) -> tuple[list[Action], list[str]]:
    """(the destructive rungs that are left, in order; why others are left out, in words)."""
    lemon = "" if fault.is_by_hand else why_lemon(say)
    rungs = rungs_of(fault, say)
    if lemon:
        rungs = [say.policy.lemon.action] if say.policy.lemon.action in RUNGS else []
    notes = [lemon] if lemon and not seen.tried else []
    reached = max((DISRUPTIVENESS[rung.action] for rung in seen.tried), default=-1)
    left = []
    for rung in rungs:
        if DISRUPTIVENESS[rung] <= reached:
            continue
        spent = why_spent(rung, say)
        if spent:
            notes.append(spent)
        else:
            left.append(rung)
    return left, notes


def rungs_of(fault: Fault, say: Spell) -> list[Action]:
    """The destructive rungs of the fault, in order. A pool may put a stop and start after the reboot, on EC2 only.

    Not where an operator has asked for a reboot: that one is all he asked for.
    """
    rungs = [action for action in fault.ladder[fault.start :] if action in RUNGS]
    is_wanted = say.policy.pool(say.history.incident.pool).stop_start and not fault.is_by_hand
    providers = VERBS[Action.STOP_START].providers
    if not is_wanted or say.history.surroundings.provider not in providers or Action.REBOOT not in fault.ladder:
        return rungs
    # A ladder that is climbed at its second rung has had its reboots in earlier incidents.
    place = rungs.index(Action.REBOOT) + 1 if Action.REBOOT in rungs else 0
    return [*rungs[:place], Action.STOP_START, *rungs[place:]]


def why_spent(rung: Action, say: Spell) -> str:
    """Why the ledger has no attempt left for this rung, or has been higher already; empty: it may be tried."""
    spent = say.history.surroundings.spent
    for reservation in say.reservations(rung):
        count = spent.get((reservation.scope, rung), 0)
        if count >= reservation.limit.limit:
            return f"{attempt_budget.spelled(reservation, count)} are spent"
    for higher in RUNGS:
        scopes = [r.scope for r in say.reservations(higher)] if DISRUPTIVENESS[higher] > DISRUPTIVENESS[rung] else []
        if any(spent.get((scope, higher), 0) for scope in scopes):
            return (
                f"{VERBS[higher].announced} was tried in this window already, "
                f"so {VERBS[rung].announced} is not tried again"
            )
    return ""


def why_lemon(say: Spell) -> str:
    """Whether the node was recovered so often that it is a lemon, in words; empty: it was not."""
    rules, incident = say.policy.lemon, say.history.incident
    oldest = say.now - timedelta(seconds=rules.window_seconds)
    others = {
        past.incident_id
        for past in say.history.surroundings.recoveries
        if past.opened_at > oldest and past.incident_id != incident.incident_id
    }
    if len(others) + 1 < rules.incidents:
        return ""
    days = rules.window_seconds / 86_400
    return f"{incident.node_id} is a lemon: {len(others) + 1} incidents in {days:g} days"


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
