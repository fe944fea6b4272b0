"""What every function does alike that people have acts done by: who asks, for which act, and once for a key.

API Gateway has checked the caller's signature, and that IAM lets them use this route. Its event names the caller, so
nobody can say who they are.
"""

import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from typing import Any

from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyValidationError,
)
from pydantic import TypeAdapter, ValidationError

from lambdas.composition import Event, is_ping, logger, ports, records
from nodeheal.adapters.aws.calls import client
from nodeheal.contract import names
from nodeheal.contract.acts import KEY_HEADER, Act, ActDone, Actor, ActRefused, Key, parse_act
from nodeheal.contract.vocabulary import ActKind, ActRefusal
from nodeheal.domain.actor import actor_of
from nodeheal.domain.refusals import UnreadableAct, refusal_of

Do = Callable[[Any, Actor, str], ActDone]  # of the act, who asks, and its key
_KEY: TypeAdapter[str] = TypeAdapter(Key)
_KEY_CHARACTERS = 32
_REMEMBERED_SECONDS = 86_400  # longer than anybody asks again
_STATUS: Mapping[ActRefusal, int] = {
    ActRefusal.INVALID: 400,
    ActRefusal.NOT_FOUND: 404,
    ActRefusal.CONFLICT: 409,
    ActRefusal.HALF_DONE: 409,
    ActRefusal.IN_PROGRESS: 409,
    ActRefusal.UNFIT: 422,
    ActRefusal.NOT_NOW: 503,
}


def acting(*kinds: ActKind, do: Do, needs_whole_records: bool = True) -> Callable[[Event, object], Event | None]:
    """Return the handler of a function for these acts. A repeat of an act answers as the first one did."""
    routes = {f"POST {kind.path}": kind for kind in kinds}

    def handler(event: Event, context: object) -> Event | None:
        if is_ping(event):
            return None
        asked: dict[str, object] = {}
        try:
            actor, act, key = _read(APIGatewayProxyEventV2(event), routes)
            # A job's file may hold secrets in its environment.
            asked = {"actor": actor.id, "act": act.model_dump(mode="json", exclude={"spec"})}
            if needs_whole_records:
                records().must_be_whole(ports())
            done = _do_once(do, act, actor, key, context)
        except IdempotencyAlreadyInProgressError:
            return _refuse(ActRefused(code=ActRefusal.IN_PROGRESS, text="it is being done"), asked)
        except IdempotencyValidationError:
            text = f"{KEY_HEADER}: this key was used for another act"
            return _refuse(ActRefused(code=ActRefusal.CONFLICT, text=text), asked)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            return _refuse(refusal, asked)
        logger().info("act done", extra={**asked, "done": done})
        return _answer(200, json.dumps(done))

    return handler


def _read(request: APIGatewayProxyEventV2, routes: Mapping[str, ActKind]) -> tuple[Actor, Act, str]:
    """Return who asks, for what, and its key. Raises ValueError."""
    authorizer = request.request_context.authorizer
    caller = authorizer.iam.user_arn if authorizer is not None else None
    kind = routes[request.route_key]  # of another route, API Gateway sends nothing here
    try:
        body, key = request.decoded_body or "", _KEY.validate_python(request.headers.get(KEY_HEADER.lower()))
    except ValidationError:
        raise UnreadableAct(f"{KEY_HEADER}: give 32 characters of 0-9 and a-f in this header") from None
    except ValueError:
        raise UnreadableAct("the body is no UTF-8 text") from None
    return actor_of(caller or ""), parse_act(kind, body), key


@cache
def _remembers() -> tuple[IdempotencyConfig, DynamoDBPersistenceLayer]:
    config = IdempotencyConfig(
        event_key_jmespath="[actor, key]",
        payload_validation_jmespath="act",
        raise_on_no_idempotency_key=True,
        expires_after_seconds=_REMEMBERED_SECONDS,
        hash_function="sha256",
    )
    table = DynamoDBPersistenceLayer(
        os.environ[names.ENV_TABLE],
        key_attr=names.PARTITION_KEY,
        sort_key_attr=names.SORT_KEY,
        static_pk_value=names.ACTS_PK,
        expiry_attr=names.TTL_ATTRIBUTE,
        boto3_client=client("dynamodb"),
    )
    return config, table


def _do_once(do: Do, act: Act, actor: Actor, key: str, context: Any) -> dict[str, Any]:
    """Do it, or return what it did when it was first asked for with this key. What it raises is not remembered."""
    config, table = _remembers()
    config.register_lambda_context(context)

    def first(request: dict[str, Any]) -> dict[str, Any]:
        own_key = sha256(f"{actor.id} {key}".encode()).hexdigest()[:_KEY_CHARACTERS]  # no caller has another's
        return do(act, actor, own_key).model_dump(mode="json")

    once = idempotent_function(
        first, data_keyword_argument="request", persistence_store=table, config=config, key_prefix=names.ACTS_PK
    )
    done: dict[str, Any] = once(request={"actor": actor.id, "key": key, "act": act.model_dump(mode="json")})
    return done


def _refuse(refusal: ActRefused, asked: Mapping[str, object]) -> Event:
    logger().warning("act refused", extra={**asked, "code": refusal.code, "why": refusal.text})
    return _answer(_STATUS[refusal.code], refusal.model_dump_json())


def _answer(status: int, body: str) -> Event:
    return {"statusCode": status, "headers": {"Content-Type": "application/json"}, "body": body}
