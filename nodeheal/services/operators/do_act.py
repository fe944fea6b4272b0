"""Does what an operator has asked for with a node, an incident or a breaker. Any of it can be asked for again.

What only AWS's own permissions can give stays with the person: the tags that let nodeheal act on a machine are set
before a node is enrolled, and taken off after it is retired.
"""

from typing import assert_never

from nodeheal.contract import names
from nodeheal.contract.acts import (
    ActDone,
    Actor,
    AnswerTaken,
    Approve,
    BreakerReset,
    CloseIncident,
    Diagnose,
    Drain,
    Enroll,
    IncidentClosed,
    Isolate,
    NodeRecorded,
    NodeRequest,
    OperatorAct,
    Reboot,
    RecoveryRequested,
    Refuse,
    Release,
    Replace,
    ResetBreaker,
    Retire,
)
from nodeheal.domain.errors import Conflict, NotAccepted
from nodeheal.domain.fleet.enrolment import Enrolment
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.ports import Ports
from nodeheal.services.intake.enroll_node import check_enrolment, record_enrolment
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.answer_approval import answer_approval
from nodeheal.services.operators.check_act import action_of, check_request
from nodeheal.services.operators.close_incident import close_incident
from nodeheal.services.operators.operator_guardrails import reset_breaker
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.operators.request_action import begun_by, request_action, taken_by
from nodeheal.services.operators.retire_node import retire_node
from nodeheal.services.operators.withdraw_request import withdraw_request
from nodeheal.services.saving import node_of


def do_act(act: OperatorAct, actor: Actor, key: str, ports: Ports, policy: RecoveryPolicy) -> ActDone:
    """Do it, and return what is on record then. `key`: the same for the same act, however often it is sent.

    Raises NotFound; Conflict and ValueError where what is on record does not permit it; NotAccepted and HalfDone, after
    which the act can be asked for again.
    """
    match act:
        case Approve():
            return _answer(Question(act.incident, act.turn), Answer.approve, act.why, actor, ports)
        case Refuse():
            return _answer(Question(act.incident, act.turn), Answer.refuse, act.why, actor, ports)
        case Isolate() | Drain() | Diagnose() | Reboot() | Replace():
            return request_act(act, actor, key, ports, policy)
        case Release():
            return _release(act, actor, ports)
        case Enroll():
            return _enroll(act, actor, ports)
        case Retire():
            return _recorded(retire_node(act.node, actor.reason(act.why), ports, actor.id))
        case CloseIncident():
            is_new = close_incident(act.incident, actor.reason(act.why), ports, actor.id)
            return IncidentClosed(incident=act.incident, is_new=is_new)
        case ResetBreaker():
            woken = reset_breaker(act.pool, " ".join(act.why.split()), ports, actor.name)
            return BreakerReset(pool=act.pool, woken=woken)
    assert_never(act)


def enrolment_of(act: Enroll, why: str) -> Enrolment:
    """What an operator states about a node."""
    return Enrolment(
        act.pool,
        why,
        act.provider,
        act.is_spare,
        act.accelerators,
        act.has_no_job,
        act.rack,
        act.cluster,
        act.scheduler,
    )


def _answer(question: Question, answer: Answer, why: str, actor: Actor, ports: Ports) -> AnswerTaken:
    if question.turn > ports.incidents.incident(question.incident_id).turn:
        raise Conflict(f"{question.incident_id} has asked nothing at turn {question.turn}")
    answered = answer_approval(question, answer, actor.name, " ".join(why.split()), ports, actor.id)
    if not answered.is_taken:
        raise Conflict(answered.text)
    return AnswerTaken(text=answered.text)


def request_act(
    act: NodeRequest, actor: Actor, key: str, ports: Ports, policy: RecoveryPolicy, *, needs_approval: bool = False
) -> RecoveryRequested:
    """Begin what is asked for with a node, or join its incident. Raises as do_act."""
    action, kind = action_of(act)
    level = act.level if isinstance(act, Diagnose) else None
    if (begun := begun_by(key, act.node, ports)) is not None:  # by a call that died before it could answer
        ingest(begun, ports, policy)  # starts what was not started
        return RecoveryRequested(incident=incident_id_of(begun), is_own=True)
    node = node_of(act.node, ports)
    check_request(act, node, ports, policy)
    why = actor.reason(act.why)
    request = request_action(node, action, why, ports, key=key, kind=kind, level=level, needs_approval=needs_approval)
    ingest(request, ports, policy)
    taken = taken_by(request, ports)
    if taken is None:
        raise NotAccepted(f"{act.node} was changed by others in this moment; nothing was begun, try again")
    return RecoveryRequested(incident=taken, is_own=taken == incident_id_of(request))


def _release(act: Release, actor: Actor, ports: Ports) -> NodeRecorded:
    """What was asked for by hand and only waits is taken back; anything else is undone."""
    why = actor.reason(act.why)
    withdrawn = withdraw_request(act.node, why, ports, actor.id)
    node = node_of(act.node, ports) if withdrawn else release_node(act.node, why, ports, actor=actor.id)
    return _recorded(node, withdrawn=withdrawn)


def _enroll(act: Enroll, actor: Actor, ports: Ports) -> NodeRecorded:
    """Record a node that carries the mark. No function sets it, and without it IAM lets nodeheal do nothing there."""
    enrolment = enrolment_of(act, actor.reason(act.why))
    known = check_enrolment(act.node, enrolment, ports)
    if ports.enrolment_tags.pool_of(known.instance_id, known.provider) is None:
        how = "set it with `nodeheal nodes enroll`, or ask again where it was set a moment ago"
        raise NotAccepted(f"{act.node} carries no tag {names.MANAGED_TAG}: {how}")
    node, changes = record_enrolment(act.node, enrolment, ports)
    return _recorded(node, changes)


def _recorded(node: Node, changes: tuple[str, ...] = (), withdrawn: str | None = None) -> NodeRecorded:
    return NodeRecorded(
        node=node.node_id,
        state=node.state,
        is_spare=node.is_spare,
        has_reported=node.has_reported,
        changes=changes,
        withdrawn=withdrawn,
    )
