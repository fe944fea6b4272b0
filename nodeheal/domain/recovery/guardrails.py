"""What holds nodeheal back: modes, opt-outs, maintenance, pauses, approvals, the breaker, and news that is old."""

from datetime import datetime, timedelta

from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Ending, Escalation, Outcome, Verdict
from nodeheal.domain.faults import correlation
from nodeheal.domain.faults.assessment import Case, read_case
from nodeheal.domain.faults.correlation import CommonCause
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.domain.recovery.decision_builder import Spell
from nodeheal.domain.recovery.incident import History, Incident
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.verbs import VERBS

AT_JOB_END = "When the job has ended."


def why_hands_off(say: Spell, fault: Fault) -> str:
    """What keeps nodeheal off the node at this time; empty: nothing. Maintenance is where operators work by hand."""
    node_id, pool = say.history.incident.node_id, say.history.incident.pool
    paused = say.history.surroundings.why_paused(node_id, say.now)
    if fault.is_by_hand:
        return say.policy.why_opted_out(node_id) or paused
    return say.policy.why_only_observe(node_id, pool, say.now) or paused


def mode_of(say: Spell, fault: Fault, action: Action) -> Mode:
    """How far nodeheal may go by itself. What an operator asks for is allowed by that."""
    return Mode.act if fault.is_by_hand else say.policy.pool(say.history.incident.pool).mode_of(action)


def held_back(say: Spell, seen: Progress, fault: Fault) -> Decision | None:
    """End it before anything is touched: the pool is only observed, or somebody wants hands off the node."""
    pool, would = say.history.incident.pool, _would(fault)
    held = why_hands_off(say, fault)
    if not held and mode_of(say, fault, fault.action) is Mode.observe:
        held = f"pool {pool} is in observe mode"
    if not held:
        return None
    if seen.restart is not None:
        return say.hand_over(
            Escalation.HELD_IN_THE_MIDDLE, f"{fault.title}: {held} since the recovery began; nothing more is done"
        )
    if (answer := seen.approvals.get(fault.action)) is not None and answer.outcome is Outcome.DONE:
        told = f"{fault.title}: {answer.reason}, but {held}; nothing was done, although nodeheal would {would}"
        return say.hand_over(Escalation.HELD_IN_THE_MIDDLE, told)  # like a no: the fault is there, and somebody asked
    told = f"{fault.title}: {held}; in act mode nodeheal would {would}"
    cause = correlation.common_cause(fault, say.history, say.policy)  # a storm that is only observed is one email, too
    return say.close(Ending.OBSERVED_ONLY, told, is_held_back=True, page_key=cause.key if cause else None)


def withdrawn(say: Spell, seen: Progress, case: Case) -> Decision | None:
    """Who asked for it by hand has taken it back before anything was touched. What else was reported is not theirs."""
    incident, is_gone = say.history.incident, say.history.surroundings.is_taken_away
    is_touched = seen.isolation is not None and seen.isolation.outcome is not Outcome.REFUSED
    is_asked_for = any(event.code == OPERATOR_REQUEST for event in say.history.events)
    if not is_asked_for or not is_gone or is_touched:
        return None
    others = [f.title for f in (case.fault, *case.beside) if not f.is_by_hand and f.action is not Action.OBSERVE]
    if others:
        about = ", ".join(others)
        told = f"what was asked for by hand was withdrawn, but {incident.node_id} has reported {about} since"
        return say.hand_over(Escalation.NOT_ISOLATED, told)
    return say.close(Ending.OBSERVED_ONLY, f"{case.fault.title}: it was withdrawn by hand before anything was touched")


def held_in_the_middle(say: Spell, seen: Progress, fault: Fault, rung: Action) -> Decision | None:
    """The node is isolated already; what holds nodeheal back from the next rung leaves it as it is."""
    pool = say.history.incident.pool
    held = why_hands_off(say, fault)
    if not held and mode_of(say, fault, rung) is Mode.observe:
        held = f"pool {pool} is in observe mode for {VERBS[rung].announced}"
    if held:
        told = f"{fault.title}: {held}; the node stays isolated and nothing more is done"
        return say.hand_over(Escalation.HELD_IN_THE_MIDDLE, told)
    return breaker(say, seen, fault) or approval(say, seen, fault, rung)


def why_not_given_up(incident: Incident, paused: str, policy: RecoveryPolicy, now: datetime) -> str:
    """What keeps nodeheal from giving the broken machine up, minutes after it was decided; empty: nothing. Another one
    serves in its place: whoever wants hands off may be at work on this one."""
    if incident.root.code == OPERATOR_REQUEST:
        return policy.why_opted_out(incident.node_id) or paused
    held = policy.why_only_observe(incident.node_id, incident.pool, now) or paused
    is_observed = policy.pool(incident.pool).mode_of(Action.REPLACE) is Mode.observe
    return held or (
        f"pool {incident.pool} is in observe mode for {VERBS[Action.REPLACE].announced}" if is_observed else ""
    )


def approval(say: Spell, seen: Progress, fault: Fault, action: Action) -> Decision | None:
    """Ask a human first, where the pool wants that. None: nobody has to be asked, or the answer was yes."""
    pool = say.history.incident.pool
    if mode_of(say, fault, action) is not Mode.approve:
        return None
    would = VERBS[action].proposal if seen.isolation is None else f"go on with {VERBS[action].announced}"
    answer = seen.approvals.get(action)
    if answer is None:
        asked = f"pool {pool} asks for approval first; nodeheal would {would}"
        seconds = say.policy.deadlines.approval_seconds
        return say.wait(Awaited.APPROVAL, f"{fault.title}: {asked}. {fault.short_why}", seconds, action)
    if answer.outcome is Outcome.DONE:
        return None
    if answer.outcome is Outcome.REFUSED:
        return say.hand_over(Escalation.APPROVAL_REFUSED, f"{fault.title}: nodeheal would {would}, but {answer.reason}")
    ignored = f"{fault.title}: nodeheal would {would}, but nobody has approved it; silence is no yes"
    return say.hand_over(Escalation.APPROVAL_IGNORED, ignored)


def breaker(say: Spell, seen: Progress, fault: Fault) -> Decision | None:
    """Wait for a human while so many nodes fail for one cause that the cause is not in them."""
    pool = say.history.surroundings.pool
    cause = None if pool.is_tripped else correlation.common_cause(fault, say.history, say.policy)
    if not pool.is_tripped and cause is None:
        return None
    text = cause.text if cause else pool.breaker_why
    key = cause.key if cause else correlation.breaker_key(pool)
    isolated = "; this one stays isolated" if seen.is_isolated else ""
    told = f"{fault.title}: {text}. The cause is not in the nodes: none is touched until a human resets the breaker"
    seconds, waited = say.policy.deadlines.breaker_seconds, seen.waited.get(Awaited.BREAKER)
    if waited is None or waited.outcome is not Outcome.TIMED_OUT:
        wait = say.wait_on(seen, Awaited.BREAKER, f"{told}{isolated}", seconds, fault.action, key)
        if wait is not None:
            return wait
    late = f"{fault.title}: {text}; nobody has reset the breaker in time, so this is a human's"
    return say.hand_over(Escalation.BREAKER_OVERDUE, late, page_key=f"{key}/overdue")


def why_trip(history: History, policy: RecoveryPolicy, now: datetime) -> CommonCause | None:
    """What opens the pool's breaker now: so many nodes fail for one cause, and nodeheal may act on them."""
    case = read_case(history, policy)
    say = Spell(history, policy, case, now)
    pool = history.surroundings.pool
    is_observed = mode_of(say, case.fault, case.fault.action) is Mode.observe
    if pool.is_tripped or is_observed or not case.fault.touches_the_node or why_hands_off(say, case.fault):
        return None
    return correlation.common_cause(case.fault, history, policy)


def out_of_date(say: Spell, seen: Progress, case: Case) -> Decision | None:
    """Drop what a wait has made old: the node has another boot or passed its diagnostics, or the breaker took long."""
    around, root = say.history.surroundings, say.history.incident.root
    bad = [event.observed_at for event in case.events if event.verdict is not Verdict.OK]
    fault, last_seen_at = case.fault, max(bad, default=root.observed_at)
    told, key = "", None
    # A job that is short of a rank needs the node, or another one: it is isolated, and diagnosed.
    if say.history.has_booted_since(fault.event) and (seen.has_waited or not around.is_job_broken):
        told = f"the node has rebooted since (boot {around.boot_id[:8]})"
    elif seen.has_waited and around.good_since is not None and around.good_since > last_seen_at:
        told = "the node has passed its diagnostics since"
    elif Awaited.BREAKER in seen.waited and _is_stale(say, last_seen_at):
        allowed = say.policy.breaker.stale_seconds
        told = f"it came {f'more than {allowed} s ' if allowed else ''}before the breaker was reset"
        key = correlation.reset_key(around.pool)
    if not told:
        return None
    # Held back, not dealt with: if the node shows it again, that is news.
    return say.close(Ending.OBSERVED_ONLY, f"{fault.title}: {told}; it is dropped", is_held_back=True, page_key=key)


def _is_stale(say: Spell, last_seen_at: datetime) -> bool:
    pool = say.history.surroundings.pool
    if pool.breaker_reset_at is None or pool.is_tripped:
        return False
    return pool.breaker_reset_at - last_seen_at > timedelta(seconds=say.policy.breaker.stale_seconds)


def _would(fault: Fault) -> str:
    would = VERBS[fault.action].proposal
    return f"{would} when the job has ended" if fault.note == AT_JOB_END else would
