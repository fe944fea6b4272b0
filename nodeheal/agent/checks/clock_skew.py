"""Compares the node's clock with the Date header of the event bus's endpoint.

The request is not signed: refusals have a date, too.
"""

from datetime import UTC, datetime
from urllib.parse import urlsplit

from nodeheal.agent.checks.check import CheckContext, NodeCheck, NodeCheckResult, Problem, State, always
from nodeheal.agent.runtime.thresholds import CLOCK_WRONG
from nodeheal.agent.transport.endpoint import endpoint
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding

ANSWER_SECONDS = 8.0


def ahead_seconds(date: str, now: datetime) -> float | None:
    """Return by how many seconds `now` is ahead of an HTTP date; None where it is not a date. Source: RFC 9110, section
    5.6.7.
    """
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError):
        return None
    return (now - moment.replace(tzinfo=moment.tzinfo or UTC)).total_seconds()


def _look(place: CheckContext, _: State) -> NodeCheckResult:
    try:
        date = _date_of(place)
    except OSError as error:
        return NodeCheckResult(
            unclear=f"the event bus's endpoint does not answer: {str(error) or type(error).__name__}"
        )
    ahead = ahead_seconds(date, datetime.now(UTC))
    if ahead is None:
        return NodeCheckResult(unclear=f"not a date: {date[:100]!r}")
    return judge(ahead, place.config.limit(CLOCK_WRONG))


def judge(ahead: float, wrong_seconds: float) -> NodeCheckResult:
    """Judge a clock that is this many seconds ahead."""
    message = f"the clock is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"
    problem = Problem(Finding(Family.host, "clock_skew", None, message), message)
    is_wrong = abs(ahead) >= wrong_seconds
    return NodeCheckResult(
        (problem,) if is_wrong else (), gauges={"clock_ahead_seconds": round(ahead, 1)}, summary=message
    )


def _date_of(place: CheckContext) -> str:
    """Read the Date header, in the check's process only."""
    import http.client

    url = urlsplit(place.config.endpoint_url or endpoint("events", place.config.region))
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/")
        return connection.getresponse().getheader("Date") or ""
    except OSError as error:
        raise OSError(f"{url.netloc}: {str(error) or type(error).__name__}") from error
    except http.client.HTTPException as error:
        raise OSError(f"{url.netloc}: {type(error).__name__}") from error
    finally:
        connection.close()


CHECK = NodeCheck(
    name="clock_skew",
    about="the node's clock, against the time that AWS tells",
    interval_seconds=600.0,
    deadline_seconds=30.0,
    why_not=always,
    look=_look,
    confirm=2,
    settle_seconds=120.0,
)
