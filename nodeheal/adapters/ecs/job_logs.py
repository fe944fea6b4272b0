"""Reads job logs of ECS tasks: the log driver awslogs sends them to CloudWatch Logs."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.domain.errors import NotFound
from nodeheal.domain.jobs.job import GangTask, Job
from nodeheal.domain.jobs.job_log import LogLine, LogLocation, Page
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
            told = f"{job.task_definition} does not send the output of {job.container} to CloudWatch Logs"
            raise NotFound(f"{told} (log driver awslogs, with a stream prefix): read it where it goes, or on the nodes")
        return container.log

    def stream(self, location: LogLocation, job: Job, task: GangTask) -> str:
        return f"{location.prefix}/{job.container}/{task.task_id.rpartition('/')[2]}"

    def read(self, location: LogLocation, stream: str, token: str = "") -> Page:
        from botocore.exceptions import ClientError

        lines: list[LogLine] = []
        for _ in range(_CALLS):
            where = {"nextToken": token} if token else {}
            try:
                with throttles_named("GetLogEvents"):
                    answer = self._make(location.region).get_log_events(
                        logGroupName=location.group, logStreamName=stream, startFromHead=True, limit=_LINES, **where
                    )
            except ClientError as error:
                if code_of(error) != "ResourceNotFoundException":
                    raise
                return Page((), token)  # the rank has written nothing yet
            lines += [LogLine(_at(event["timestamp"]), event["message"]) for event in answer["events"]]
            # At the end of a stream the answer repeats the request's token; earlier pages may be short.
            if answer["nextForwardToken"] == token:
                break
            token = answer["nextForwardToken"]
        return Page(tuple(lines), token)


def _at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
