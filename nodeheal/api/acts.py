"""Acts of people: what one will do now, and having it done. The control plane does it, and AWS names who asked."""

from typing import Protocol, assert_never
from uuid import uuid4

from nodeheal.api.views import Consequences, Fact
from nodeheal.contract.acts import (
    Act,
    ActDone,
    Approve,
    CloseIncident,
    Diagnose,
    Drain,
    Enroll,
    Isolate,
    Reboot,
    Reconcile,
    Refuse,
    Release,
    Replace,
    ResetBreaker,
    RestartJob,
    Retire,
    StopJob,
    SubmitJob,
)
from nodeheal.domain.errors import Conflict
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.ports import Ports
from nodeheal.services.intake.enroll_node import check_enrolment
from nodeheal.services.operators import describe_act
from nodeheal.services.operators.answer_approval import pending_question
from nodeheal.services.operators.check_act import action_of, check_request
from nodeheal.services.operators.close_incident import check_close
from nodeheal.services.operators.describe_answer import why_paused
from nodeheal.services.operators.do_act import enrolment_of
from nodeheal.services.operators.release_node import check_release
from nodeheal.services.operators.retire_node import check_retirement
from nodeheal.services.operators.withdraw_request import waiting_request
from nodeheal.services.saving import node_of


class ControlPlane(Protocol):
    """Does acts, behind IAM."""

    def do(self, act: Act, key: str) -> ActDone:
        """Do it once for this key, as the caller whom AWS names, and return what is on record then.

        Raises NotFound, Conflict, ValueError, NotPermitted: nothing was done; HalfDone, NotAccepted: ask again.
        """


def new_key() -> str:
    """Return a key for an act that nobody has asked for before: 32 characters of [0-9a-f]."""
    return uuid4().hex


def preview(act: Act, ports: Ports, policy: RecoveryPolicy) -> Consequences:
    """Return what the act will do as things are now. Reads only.

    Raises NotFound, Conflict and ValueError where it would be refused.
    """
    return Consequences(facts=tuple(Fact(label=label, text=text) for label, text in _facts(act, ports, policy)))


def _facts(act: Act, ports: Ports, policy: RecoveryPolicy) -> list[tuple[str, str]]:
    match act:
        case Approve():
            return _answer(Question(act.incident, act.turn), Answer.approve, ports)
        case Refuse():
            return _answer(Question(act.incident, act.turn), Answer.refuse, ports)
        case Isolate() | Drain() | Diagnose() | Reboot() | Replace():
            action, kind = action_of(act)
            level = act.level if isinstance(act, Diagnose) else None
            node = node_of(act.node, ports)
            check_request(act, node, ports, policy)
            return describe_act.describe_act(node, action, kind, ports, policy, level)
        case Release():
            node = node_of(act.node, ports)
            if (waiting := waiting_request(node, ports)) is None:
                check_release(node, ports)
            return describe_act.describe_release(node, waiting)
        case Enroll():
            node = check_enrolment(act.node, enrolment_of(act, act.why), ports)
            return describe_act.describe_enrolment(node)
        case Retire():
            node = node_of(act.node, ports)
            check_retirement(node, ports)
            return describe_act.describe_retirement(node, ports)
        case CloseIncident():
            return describe_act.describe_close(check_close(act.incident, ports))
        case ResetBreaker():
            return describe_act.describe_reset(act.pool, ports)
        case SubmitJob():
            return describe_act.describe_submission(act.spec, ports, policy, is_idempotent=act.is_idempotent)
        case StopJob():
            return describe_act.describe_stop(act.job, ports)
        case RestartJob():
            return describe_act.describe_restart(act.job, ports)
        case Reconcile():
            return [("then", "the records are compared with the scheduler, EC2 and the executions, and set right")]
    assert_never(act)


def _answer(question: Question, answer: Answer, ports: Ports) -> list[tuple[str, str]]:
    asked = pending_question(question, ports)
    if asked is None:
        raise Conflict(f"{question.incident_id} does not ask this any more")
    incident = ports.incidents.incident(question.incident_id)
    if answer is Answer.approve and (paused := why_paused(incident, ports)):
        raise Conflict(f"{paused}, so a yes would do nothing now")
    return [
        ("asks", asked.asks),
        ("until", f"{asked.deadline_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("then", asked.means[answer]),
    ]
