"""The escalation ladder: which verbs are left for a fault, and why a human is needed where none is.

It remembers what was tried, and never goes down within a window.
"""

from datetime import timedelta

from nodeheal.contract.vocabulary import Action, Escalation, Outcome, Refusal
from nodeheal.domain.faults.catalog import find
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.recovery import attempt_budget
from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.verbs import DISRUPTIVENESS, ESCALATION_STEPS, VERBS

_NOT_SEEN = (Outcome.TIMED_OUT, Outcome.UNKNOWN)


def remaining_steps(fault: Fault, progress: Progress, builder: DecisionBuilder) -> tuple[list[Action], list[str]]:
    """Returns the verbs that are left, in order, and why others are left out, in words."""
    lemon = "" if fault.is_by_hand else lemon_reason(builder)
    actions = escalation_steps(fault, builder)
    if lemon:
        actions = [builder.policy.lemon.action] if builder.policy.lemon.action in ESCALATION_STEPS else []
    notes = [lemon] if lemon and not progress.tried else []
    reached = max((DISRUPTIVENESS[step.action] for step in progress.tried), default=-1)
    left = []
    for action in actions:
        if DISRUPTIVENESS[action] <= reached:
            continue
        spent = spent_reason(action, builder)
        if spent:
            notes.append(spent)
        else:
            left.append(action)
    return left, notes


def first_step(fault: Fault, progress: Progress, builder: DecisionBuilder) -> tuple[Action, str]:
    """Returns what would really be done first, and why it is not what the fault asks for. Empty: it is."""
    if fault.action not in ESCALATION_STEPS:
        return fault.action, ""
    left, notes = remaining_steps(fault, progress, builder)
    return (left[0] if left else Action.ISOLATE), "; ".join(notes)


def escalation_steps(fault: Fault, builder: DecisionBuilder) -> list[Action]:
    """Returns the fault's destructive verbs, in order, with those that the pool adds to every ladder.

    An operator's request gets nothing added.
    """
    actions = [action for action in fault.ladder[fault.start :] if action in ESCALATION_STEPS]
    pool, provider = builder.policy.pool(builder.history.incident.pool), builder.history.context.provider
    for action, verb in VERBS.items() if not fault.is_by_hand else ():
        if verb.follows in fault.ladder and verb.is_on(pool) and provider in verb.providers:
            # A fault that begins on a later step has had what this follows in earlier incidents.
            place = actions.index(verb.follows) + 1 if verb.follows in actions else 0
            actions[place:place] = [action]
    is_kept = builder.history.context.has_reserved_capacity and not fault.is_by_hand
    if is_kept and Action.REPLACE in actions and Action.REBOOT not in fault.ladder:
        place = actions.index(Action.REPLACE)
        actions[place:place] = [Action.REBOOT]  # the machine keeps its capacity by it
    return actions


def spent_reason(action: Action, builder: DecisionBuilder) -> str:
    """Returns why this verb may not be tried: no attempt is left, or a higher one was tried before. Empty: it may."""
    spent = builder.history.context.spent
    for reservation in builder.reservations(action):
        count = spent.get((reservation.scope, action), 0)
        if count >= reservation.limit.limit:
            return f"{attempt_budget.attempts_text(reservation, count)} are spent"
    for higher in ESCALATION_STEPS:
        scopes = (
            [r.scope for r in builder.reservations(higher)] if DISRUPTIVENESS[higher] > DISRUPTIVENESS[action] else []
        )
        if any(spent.get((scope, higher), 0) for scope in scopes):
            return (
                f"{VERBS[higher].announced} was tried in this window already, "
                f"so {VERBS[action].announced} is not tried again"
            )
    return ""


def lemon_reason(builder: DecisionBuilder) -> str:
    """Returns why the node is a lemon: it was recovered too often. Empty: it is none."""
    rules, incident = builder.policy.lemon, builder.history.incident
    oldest = builder.now - timedelta(seconds=rules.window_seconds)
    others = {
        past.incident_id
        for past in builder.history.context.recoveries
        if past.opened_at > oldest and past.incident_id != incident.incident_id
    }
    if len(others) + 1 < rules.incidents:
        return ""
    days = rules.window_seconds / 86_400
    return f"{incident.node_id} is a lemon: {len(others) + 1} incidents in {days:g} days"


def escalation_of_fault(fault: Fault) -> Escalation:
    """Returns why a fault goes to a human by itself: it is unknown, or the catalog or the policy asks for one."""
    event = fault.event
    is_known = fault.meaning.is_policy or find(event.family, event.code, event.subcode) is not None
    return Escalation.MANUAL_REVIEW_REQUIRED if is_known else Escalation.UNKNOWN_FAULT


def escalation_of_ladder(fault: Fault, progress: Progress, builder: DecisionBuilder) -> Escalation:
    """Returns why no verb of the ladder is left. The first reason that applies wins."""
    actions = escalation_steps(fault, builder)
    if not progress.tried and not fault.is_by_hand and lemon_reason(builder):
        return Escalation.LEMON
    reached = max((DISRUPTIVENESS[step.action] for step in progress.tried), default=-1)
    if any(DISRUPTIVENESS[action] > reached and spent_reason(action, builder) for action in actions):
        return Escalation.ATTEMPTS_SPENT
    if progress.tried and progress.tried[-1].result.refused_for(Refusal.NO_CAPACITY):
        return Escalation.NO_CAPACITY
    if progress.tried and progress.tried[-1].result.outcome in _NOT_SEEN:
        return Escalation.NEVER_RETURNED
    if progress.proof is not None and progress.proof.outcome is not Outcome.DONE:
        return Escalation.DIAGNOSTICS_FAILED
    return Escalation.LADDER_ENDED if progress.tried else Escalation.ISOLATED_ON_REQUEST
