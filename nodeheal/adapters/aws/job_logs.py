"""Job logs in CloudWatch Logs."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.domain.jobs.job_log import LogLine, LogPlace, Page

_LINES = 10_000  # that one call returns at most
_CALLS = 50  # of one page: a stream that grows faster than it is read must not be read for ever


class CloudWatchJobLogs:
    """JobLogs. `make` makes the client of a Region."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make

    def read(self, place: LogPlace, stream: str, token: str = "") -> Page:
        from botocore.exceptions import ClientError

        lines: list[LogLine] = []
        for _ in range(_CALLS):
            where = {"nextToken": token} if token else {}
            try:
                with throttles_named("GetLogEvents"):
                    answer = self._make(place.region).get_log_events(
                        logGroupName=place.group, logStreamName=stream, startFromHead=True, limit=_LINES, **where
                    )
            except ClientError as error:
                if code_of(error) != "ResourceNotFoundException":
                    raise
                return Page((), token)  # the rank has written nothing yet
            lines += [LogLine(_at(event["timestamp"]), event["message"]) for event in answer["events"]]
            # At its end a stream answers with the token that it was asked with, and may answer with less before that.
            if answer["nextForwardToken"] == token:
                break
            token = answer["nextForwardToken"]
        return Page(tuple(lines), token)


def _at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
