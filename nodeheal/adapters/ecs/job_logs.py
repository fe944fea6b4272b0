"""Reads job logs of ECS tasks: the log driver awslogs sends them to CloudWatch Logs."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.domain.errors import NotFound
from nodeheal.domain.jobs.job import GangTask, Job
from nodeheal.domain.jobs.job_log import LogLine, LogLocation, LogPage
from nodeheal.ports.scheduler import TaskDefinitions

_LINES = 10_000  # the limit of one call
_CALLS = 50  # of one page: reading must end although the stream grows faster


class EcsJobLogs:
    """Implements JobLogs. `make` creates the client of a Region."""

    def __init__(self, definitions: TaskDefinitions, make: Callable[[str], Any]) -> None:
        self._definitions, self._make = definitions, make

    def locate(self, job: Job) -> LogLocation:
        container = self._definitions.find(job.task_definition).container(job.container)
        if container is None or container.log is None:
            fact = f"{job.task_definition} does not send the output of {job.container} to CloudWatch Logs"
            raise NotFound(f"{fact} (log driver awslogs, with a stream prefix): read it where it goes, or on the nodes")
        return container.log

    def stream(self, location: LogLocation, job: Job, task: GangTask) -> str:
        return f"{location.prefix}/{job.container}/{task.task_id.rpartition('/')[2]}"

    def last(self, location: LogLocation, stream: str, lines: int) -> Sequence[LogLine]:
        return _lines(self._events(location, stream, limit=lines, startFromHead=False) or {})

    def read(self, location: LogLocation, stream: str, token: str = "") -> LogPage:
        lines: list[LogLine] = []
        for _ in range(_CALLS):
            where = {"nextToken": token} if token else {}
            answer = self._events(location, stream, limit=_LINES, startFromHead=True, **where)
            if answer is None:
                return LogPage((), token)  # the rank has written nothing yet
            lines += _lines(answer)
            # At the end of a stream the answer repeats the request's token; earlier pages may be short.
            if answer["nextForwardToken"] == token:
                break
            token = answer["nextForwardToken"]
        return LogPage(tuple(lines), token)

    def _events(self, location: LogLocation, stream: str, **given: Any) -> dict[str, Any] | None:
        """One page of a stream; None where the stream is not there yet."""
        from botocore.exceptions import ClientError

        try:
            with throttles_named("GetLogEvents"):
                answer = self._make(location.region).get_log_events(
                    logGroupName=location.group, logStreamName=stream, **given
                )
        except ClientError as error:
            if code_of(error) != "ResourceNotFoundException":
                raise
            return None
        return dict(answer)


def _lines(answer: Mapping[str, Any]) -> list[LogLine]:
    return [LogLine(_at(event["timestamp"]), event["message"]) for event in answer.get("events", ())]


def _at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
