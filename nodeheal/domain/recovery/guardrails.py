"""Guardrails: modes, opt-outs, maintenance, pauses, approvals, the breaker, and stale faults."""

from dataclasses import replace
from datetime import datetime, timedelta

from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Ending, Escalation, Outcome, Verdict
from nodeheal.domain.faults import correlation
from nodeheal.domain.faults.assessment import FaultAssessment
from nodeheal.domain.faults.correlation import CommonCause
from nodeheal.domain.faults.diagnosis import Fault
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.recovery.ladder import first_step
from nodeheal.domain.recovery.progress import Progress
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.verbs import VERBS

_OF_RESERVED_CAPACITY = (
    "its capacity was bought ahead: a reservation may give the same host again, and a capacity block's is lost"
)
AT_JOB_END = "When the job has ended."


def hands_off_reason(builder: DecisionBuilder, fault: Fault) -> str:
    """Returns why the node must not be touched now. Empty: it may be touched.

    An operator's request is allowed during maintenance, because operators work by hand then.
    """
    node_id, pool = builder.history.incident.node_id, builder.history.incident.pool
    paused = builder.history.context.pauses.why_paused(node_id, pool, builder.now)
    if fault.is_by_hand:
        return builder.policy.why_opted_out(node_id) or paused
    return builder.policy.why_only_observe(node_id, pool, builder.now) or paused


def mode_of(builder: DecisionBuilder, fault: Fault, action: Action) -> Mode:
    """Returns how far nodeheal may go by itself. An operator's request needs no further permission, if it is one."""
    if fault.is_by_hand:
        return Mode.approve if fault.needs_approval else Mode.act
    return builder.policy.pool(builder.history.incident.pool).mode_of(action)


def blocked_before_start(builder: DecisionBuilder, progress: Progress, fault: Fault) -> Decision | None:
    """Ends the incident before anything is touched: the pool is only observed, or the node must not be touched."""
    pool, would = builder.history.incident.pool, _proposal(builder, progress, fault)
    blocked = hands_off_reason(builder, fault)
    if not blocked and mode_of(builder, fault, fault.action) is Mode.observe:
        blocked = f"pool {pool} is in observe mode"
    if not blocked:
        return None
    if progress.restart is not None:
        return builder.escalate(
            Escalation.RECOVERY_BLOCKED, f"{fault.title}: {blocked} since the recovery began; nothing more is done"
        )
    answer = next((approval for approval in progress.approvals.values() if approval.outcome is Outcome.DONE), None)
    if answer is not None:
        message = f"{fault.title}: {answer.reason}, but {blocked}; nothing was done, although nodeheal would {would}"
        return builder.escalate(
            Escalation.RECOVERY_BLOCKED, message
        )  # like a no: the fault is there, and somebody asked
    unless = "otherwise" if hands_off_reason(builder, fault) else "in act mode"
    message = f"{fault.title}: {blocked}; {unless} nodeheal would {would}"
    cause = correlation.common_cause(
        fault, builder.history, builder.policy
    )  # a storm that is only observed is one email, too
    return builder.close(Ending.OBSERVED_ONLY, message, is_held_back=True, page_key=cause.key if cause else None)


def cancelled_by_operator(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision | None:
    """Ends a recovery that an operator has requested and withdrawn before anything was touched.

    Other faults that the node has reported since go to a human.
    """
    incident, is_gone = builder.history.incident, builder.history.context.is_released_or_retired
    is_touched = progress.isolation is not None and progress.isolation.outcome is not Outcome.REFUSED
    is_asked_for = any(event.code == OPERATOR_REQUEST for event in builder.history.events)
    if not is_asked_for or not is_gone or is_touched:
        return None
    others = [
        f.title
        for f in (assessment.fault, *assessment.other_faults)
        if not f.is_by_hand and f.action is not Action.OBSERVE
    ]
    if others:
        about = ", ".join(others)
        message = f"what was asked for by hand was withdrawn, but {incident.node_id} has reported {about} since"
        return builder.escalate(Escalation.NOT_ISOLATED, message)
    return builder.close(
        Ending.OBSERVED_ONLY, f"{assessment.fault.title}: it was withdrawn by hand before anything was touched"
    )


def blocked_mid_recovery(
    builder: DecisionBuilder, progress: Progress, fault: Fault, action: Action, why: str
) -> Decision | None:
    """Escalates when a guardrail blocks the next verb on an isolated node. The node stays isolated.

    `why`: why it is this verb's turn.
    """
    pool = builder.history.incident.pool
    blocked = hands_off_reason(builder, fault)
    if not blocked and mode_of(builder, fault, action) is Mode.observe:
        blocked = f"pool {pool} is in observe mode for {VERBS[action].announced}"
    if blocked:
        message = f"{fault.title}: {blocked}; the node stays isolated and nothing more is done"
        return builder.escalate(Escalation.RECOVERY_BLOCKED, message)
    return breaker(builder, progress, fault) or approval(builder, progress, fault, action, why)


def keep_machine_reason(incident: Incident, paused: str, policy: RecoveryPolicy, now: datetime) -> str:
    """Returns why the broken machine must be kept after another one has taken its place. Empty: it may be given up.

    It is asked again minutes after the decision, because an operator may have begun to work on the machine.
    """
    if incident.root.code == OPERATOR_REQUEST:
        return policy.why_opted_out(incident.node_id) or paused
    blocked = policy.why_only_observe(incident.node_id, incident.pool, now) or paused
    is_observed = policy.pool(incident.pool).mode_of(Action.REPLACE) is Mode.observe
    return blocked or (
        f"pool {incident.pool} is in observe mode for {VERBS[Action.REPLACE].announced}" if is_observed else ""
    )


def approval_of_start(builder: DecisionBuilder, progress: Progress, fault: Fault) -> Decision | None:
    """Asks before the node is isolated: about what can be done with the attempts that are left."""
    if mode_of(builder, fault, fault.action) is not Mode.approve:
        return None
    action, why = first_step(fault, progress, builder)
    if mode_of(builder, fault, action) is Mode.observe:
        action = Action.ISOLATE  # it ends there
    return _ask(builder, progress, fault, action, why)


def approval(
    builder: DecisionBuilder, progress: Progress, fault: Fault, action: Action, why: str = ""
) -> Decision | None:
    """Asks a human first, where the pool requires it.

    Returns None when nobody has to be asked or the answer was yes.
    """
    is_asked = mode_of(builder, fault, action) is Mode.approve or is_of_reserved_capacity(builder, fault, action)
    return _ask(builder, progress, fault, action, why) if is_asked else None


def is_of_reserved_capacity(builder: DecisionBuilder, fault: Fault, action: Action) -> bool:
    """Whether an action gives up capacity that was bought ahead. An operator who requests it has decided that."""
    is_decided = fault.is_by_hand and not fault.needs_approval
    return action is Action.REPLACE and builder.history.context.has_reserved_capacity and not is_decided


def _ask(builder: DecisionBuilder, progress: Progress, fault: Fault, action: Action, why: str) -> Decision | None:
    pool = builder.history.incident.pool
    would = VERBS[action].proposal if progress.isolation is None else f"go on with {VERBS[action].announced}"
    would += _because(why)
    answer, asks = progress.approvals.get(action), f"pool {pool} asks for approval first"
    if fault.needs_approval:
        asks = "it is not known that who asks for it may, so that an approval comes first"
    if is_of_reserved_capacity(builder, fault, action):
        asks = _OF_RESERVED_CAPACITY
        isolated = progress.isolation
        if answer is not None and isolated is not None and answer.finished_at < isolated.finished_at:
            answer = None  # that yes was given before this was known
    if answer is None:
        asked = f"{asks}; nodeheal would {would}"
        seconds = builder.policy.deadlines.approval_seconds
        return builder.wait(Awaited.APPROVAL, f"{fault.title}: {asked}. {fault.short_why}", seconds, action)
    if answer.outcome is Outcome.DONE:
        return None
    if answer.outcome is Outcome.REFUSED:
        return builder.escalate(
            Escalation.APPROVAL_REFUSED, f"{fault.title}: nodeheal would {would}, but {answer.reason}"
        )
    ignored = f"{fault.title}: nodeheal would {would}, but nobody has approved it: no answer means no"
    return builder.escalate(Escalation.APPROVAL_IGNORED, ignored)


def breaker(builder: DecisionBuilder, progress: Progress, fault: Fault) -> Decision | None:
    """Waits for a human while so many nodes fail that the cause is not in them."""
    pool = builder.history.context.pool
    cause = None if pool.is_tripped else correlation.common_cause(fault, builder.history, builder.policy)
    if not pool.is_tripped and cause is None:
        return None
    text = cause.text if cause else pool.breaker_why
    key = cause.key if cause else correlation.breaker_key(pool)
    if correlation.are_all_drills(text) and not (builder.history.is_drill or fault.is_by_hand):
        key = f"{key}/real"  # the page of the drills, which is marked as one, must not be all that is said of this
    isolated = "; this one stays isolated" if progress.is_isolated else ""
    message = (
        f"{fault.title}: {text}. The cause is not in the nodes: nothing more is isolated, rebooted or replaced until a "
        "human resets the breaker"
    )
    seconds, waited = builder.policy.deadlines.breaker_seconds, progress.waited.get(Awaited.BREAKER)
    if waited is None or waited.outcome is not Outcome.TIMED_OUT:
        wait = builder.wait_on(progress, Awaited.BREAKER, f"{message}{isolated}", seconds, fault.action, key)
        if wait is not None:
            return wait
    late = f"{fault.title}: {text}; nobody has reset the breaker in time, so this is a human's"
    kind = "/drill" if builder.history.is_drill else ""  # it must not be all that is said of the others
    return builder.escalate(Escalation.BREAKER_OVERDUE, late, page_key=f"{key}/overdue{kind}")


def with_open_breaker(situation: Situation, cause: CommonCause, now: datetime) -> Situation:
    """Returns the situation in which the pool's breaker is open for this cause."""
    context = situation.history.context
    opened = replace(context, pool=context.pool.tripped(cause.text, now))
    return replace(situation, history=replace(situation.history, context=opened))


def breaker_cause(situation: Situation, now: datetime) -> CommonCause | None:
    """Returns the common cause that opens the pool's breaker now. None: it stays as it is."""
    history, policy, assessment = situation.history, situation.policy, situation.assessment
    builder = DecisionBuilder(history, policy, assessment, now)
    pool = history.context.pool
    is_observed = mode_of(builder, assessment.fault, assessment.fault.action) is Mode.observe
    if (
        pool.is_tripped
        or is_observed
        or not assessment.fault.touches_the_node
        or hands_off_reason(builder, assessment.fault)
    ):
        return None
    return correlation.common_cause(assessment.fault, history, policy)


def stale(builder: DecisionBuilder, progress: Progress, assessment: FaultAssessment) -> Decision | None:
    """Drops a fault that is no longer true: the node has rebooted, passed its diagnostics, or waited too long."""
    context, root = builder.history.context, builder.history.incident.root
    bad = [event.observed_at for event in assessment.events if event.verdict is not Verdict.OK]
    fault, last_seen_at = assessment.fault, max(bad, default=root.observed_at)
    message, key = "", None
    # A job that is short of a rank needs the node, or another one: it is isolated, and diagnosed.
    if builder.history.has_booted_since(fault.event) and (progress.has_waited or not context.is_job_broken):
        message = f"the node has rebooted since (boot {context.boot_id[:8]})"
    elif progress.has_waited and context.healthy_since is not None and context.healthy_since > last_seen_at:
        message = "the node has passed its diagnostics since"
    elif Awaited.BREAKER in progress.waited and not fault.is_by_hand and _is_stale(builder, last_seen_at):
        allowed = builder.policy.breaker.stale_seconds
        message = f"it came {f'more than {allowed} s ' if allowed else ''}before the breaker was reset"
        key = correlation.reset_key(context.pool)
        if builder.history.is_drill:
            key = f"{key}/drill"  # its email is marked as one, and must not be all that is said of the others
    if not message:
        return None
    # Held back, not dealt with: if the node shows it again, that is news.
    return builder.close(
        Ending.OBSERVED_ONLY, f"{fault.title}: {message}; it is dropped", is_held_back=True, page_key=key
    )


def _is_stale(builder: DecisionBuilder, last_seen_at: datetime) -> bool:
    pool = builder.history.context.pool
    if pool.breaker_reset_at is None or pool.is_tripped:
        return False
    return pool.breaker_reset_at - last_seen_at > timedelta(seconds=builder.policy.breaker.stale_seconds)


def _proposal(builder: DecisionBuilder, progress: Progress, fault: Fault) -> str:
    action, why = first_step(fault, progress, builder)
    at_end = " when the job has ended" if fault.note == AT_JOB_END else ""
    return f"{VERBS[action].proposal}{at_end}{_because(why)}"


def _because(why: str) -> str:
    return f", because {why}" if why else ""
