"""Connects the simulated nodes' awslogs driver to CloudWatch Logs. Import it only in the emulator."""

from typing import Any

from ministack.core.responses import request_scope
from ministack.services import cloudwatch_logs

from sandbox.aws_json import Json
from sandbox.iam import ACCOUNT, REGION
from sandbox.patches import attribute
from sandbox.task_logs import Sink

_EXISTS = "ResourceAlreadyExistsException"


def log_sink() -> Sink:
    """Append to a stream without IAM: on AWS the task's execution role is checked, which the emulator does not
    assume.
    """
    create, put = attribute(cloudwatch_logs, "_create_log_stream"), attribute(cloudwatch_logs, "_put_log_events")

    def sink(group: str, stream: str, events: list[Json]) -> None:
        where = {"logGroupName": group, "logStreamName": stream}
        with request_scope(ACCOUNT, REGION):
            made = _words(create(where))
            if made and _EXISTS not in made:
                raise OSError(f"failed to initialize logging driver: {made}")
            if events:
                put({**where, "logEvents": events})

    return sink


def _words(answer: Any) -> str:
    """Return the emulator's refusal; empty: it succeeded."""
    status, _, body = answer
    return "" if status < 300 else body.decode() if isinstance(body, bytes) else str(body)
