"""The ladder: which rungs are left for a fault. It has memory, and it never goes down within a window."""

from datetime import timedelta

from nodeheal.contract.vocabulary import Action
from nodeheal.domain import budget
from nodeheal.domain.diagnosis import Fault
from nodeheal.domain.progress import Progress
from nodeheal.domain.spell import Spell
from nodeheal.domain.verbs import DISRUPTIVENESS, RUNGS, VERBS


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
            return f"{budget.spelled(reservation, count)} are spent"
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
