"""Where services meet adapters. Nothing here happens at import: everything is made at first use, once a process."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from aws_lambda_powertools import Logger
from pydantic import BaseModel, ValidationError

from nodeheal.adapters.aws.messenger import Destinations
from nodeheal.adapters.aws.ports import aws_ports
from nodeheal.contract import names
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.ports import Ports

Event = dict[str, Any]
Request = TypeVar("Request", bound=BaseModel)


@cache
def logger() -> Logger:
    """Structured logs; each handler adds what it is about."""
    return Logger(service="nodeheal")


@cache
def policy() -> RecoveryPolicy:
    """The policy document of this deployment, validated once a process."""
    return RecoveryPolicy.model_validate_json(Path(os.environ[names.ENV_POLICY_FILE]).read_text("utf-8"))


@cache
def ports() -> Ports:
    """Every port, on AWS. Clients are made when a port is first used."""
    return aws_ports(
        table=os.environ[names.ENV_TABLE],
        recover_node_arn=os.environ.get(names.ENV_RECOVER_NODE_ARN, ""),
        to=Destinations(
            bus=os.environ.get(names.ENV_BUS, names.BUS),
            topic_arn=os.environ.get(names.ENV_TOPIC_ARN, ""),
            quarantine_url=os.environ.get(names.ENV_QUARANTINE_URL, ""),
        ),
    )


def step(parse: type[Request], serve: Callable[[Request], BaseModel | None]) -> Callable[[Event, object], Event | None]:
    """A handler: parse the request, call one service, dump what it answers. A keep-warm ping loads everything else."""

    def handler(event: Event, context: object) -> Event | None:
        if event == names.KEEP_WARM:
            ports(), policy()
            return None
        request = parse.model_validate(event)
        logger().info("step asked", extra={"request": request.model_dump(mode="json", exclude={"task_token"})})
        answer = serve(request)
        if answer is None:
            return None
        dumped = answer.model_dump(mode="json")
        logger().info("step answered", extra={"answer": dumped})
        return dumped

    return handler


def explain(error: ValidationError) -> str:
    """What is wrong with an input, field by field: the first few are enough to act on."""
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)[:5])
