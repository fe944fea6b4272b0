"""The control plane without AWS: acts and results go through JSON, as between the command and the functions."""

from dataclasses import dataclass, field
from typing import Any

from nodeheal.api.acts import new_key
from nodeheal.contract.acts import (
    ACT_RESULT,
    KEY_HEADER,
    Act,
    ActDone,
    Actor,
    ActRefused,
    ActResult,
    Reconcile,
    RestartJob,
    StopJob,
    SubmitJob,
    parse_act,
)
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Action, ActKind
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.refusals import raise_refusal, refusal_of
from nodeheal.ports import Ports
from nodeheal.services.jobs.request_job import request_job
from nodeheal.services.operators.do_act import do_act
from nodeheal.services.operators.reconcile_records import reconcile_records
from nodeheal.services.operators.request_action import check_action, request_action
from nodeheal.services.records_epoch import refuse_if_gone_back
from nodeheal.services.saving import node_of

ADA = Actor(id="arn:aws:iam::123456789012:user/ada", name="ada")


@dataclass
class MemoryControlPlane:
    """Implements ControlPlane over these ports, for one caller. `acts`: what was asked for."""

    ports: Ports
    policy: RecoveryPolicy
    actor: Actor = ADA
    acts: list[Act] = field(default_factory=list)

    def do(self, act: Act, key: str) -> ActDone:
        """As the functions do it, with the same refusals."""
        self.acts.append(act)
        answer = self._answer(parse_act(act.kind, act.model_dump_json()), key)
        result = ACT_RESULT.validate_json(answer.model_dump_json())
        if isinstance(result, ActRefused):
            raise_refusal(result)
        return result

    def _answer(self, act: Act, key: str) -> ActResult:
        try:
            if isinstance(act, Reconcile):
                return reconcile_records(act, self.actor, self.ports, self.policy)
            refuse_if_gone_back(self.ports)
            if isinstance(act, SubmitJob | StopJob | RestartJob):
                return request_job(act, self.actor, key, self.ports, self.policy)
            return do_act(act, self.actor, key, self.ports, self.policy)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            return refusal


def does(act: Act, ports: Ports, policy: RecoveryPolicy, **more: Any) -> ActDone:
    """Have it done by a control plane over these ports. Raises as one on AWS."""
    return MemoryControlPlane(ports, policy, **more).do(act, new_key())


def requested(
    node_id: str, action: Action, why: str, ports: Ports, *, kind: str = "", level: int | None = None
) -> HealthEvent:
    """The event of a request by hand that nobody has made before."""
    node = node_of(node_id, ports)
    check_action(node, action, ports)
    return request_action(node, action, why, ports, key=new_key(), kind=kind, level=level)


def http_request(kind: ActKind, body: str, key: str, caller: str = ADA.id) -> dict[str, Any]:
    """A request as API Gateway hands it to a function (payload format 2.0), from this caller."""
    route = f"POST {kind.path}"
    return {
        "version": "2.0",
        "routeKey": route,
        "headers": {"content-type": "application/json", KEY_HEADER.lower(): key},
        "requestContext": {"routeKey": route, "authorizer": {"iam": {"userArn": caller}}},
        "body": body,
        "isBase64Encoded": False,
    }
