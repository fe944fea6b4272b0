"""Sends signed POSTs to one AWS service over one connection that is kept open."""

import http
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from nodeheal import __version__
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.transport.connection import BadAnswer, Connection
from nodeheal.agent.transport.credentials import CredentialChain, NoCredentials
from nodeheal.agent.transport.sigv4 import CredentialScope, signed_headers

TIMEOUT_SECONDS = 10.0
# AWS refuses a request whose signature is dated more than five minutes in the past or the future.
TOLERATED_SKEW = timedelta(minutes=2)
_LAST_YEAR = 2999  # a later time is invalid and would overflow date arithmetic
_REFUSED = (http.HTTPStatus.BAD_REQUEST, http.HTTPStatus.FORBIDDEN)

# These errors need a person to change a permission, a credential or a clock.
ACCESS_ERRORS = (
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "AuthorizationErrorException",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "NotAuthorizedForSourceException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
)


class RequestFailed(Exception):
    """The service did not answer. `is_refusal`: no request was sent, because there are no credentials."""

    def __init__(self, reason: str, is_refusal: bool = False) -> None:
        super().__init__(reason)
        self.is_refusal = is_refusal


class AwsClient:
    """A client of one service over one connection. Not safe to share between threads."""

    def __init__(self, service: str, region: str, url: str, credentials: CredentialChain, clock: Clock) -> None:
        self._scope = CredentialScope(region, service)
        self._url = urlsplit(url)
        self._credentials = credentials
        self._clock = clock
        self._connection: Connection | None = None
        self._date: str | None = None  # of the last answer
        self._skew = timedelta()  # seconds that the service's clock is ahead of ours, where that is too much to ignore

    @property
    def region(self) -> str:
        """The AWS Region of the service."""
        return self._scope.region

    @property
    def ahead(self) -> timedelta:
        """Seconds that the service's clock is ahead of this node's, where AWS would refuse the difference; else 0."""
        return self._skew

    def zero(self) -> float:
        """Return when this node's boot began, by the service's clock."""
        return self._clock.zero() + self._skew.total_seconds()

    def now(self) -> float:
        """Return the service's time, in seconds since the epoch."""
        return (self._clock.utc_now() + self._skew).timestamp()

    @property
    def host(self) -> str:
        """The host name of the service."""
        return self._url.netloc

    def ask(self, headers: dict[str, str], body: bytes | Callable[[], bytes]) -> tuple[int, bytes]:
        """Send a request; returns (status, body). Raises RequestFailed. It may send twice, so use it only for
        idempotent calls.

        Where AWS refuses a signature because of this node's clock, the request is signed again with the service's time.
        A body that contains the time is built again from `ahead`.
        """
        status, answer = self._ask_once(headers, _worded(body))
        if status in _REFUSED and self._learns_the_time():
            return self._ask_once(headers, _worded(body))
        return status, answer

    def _learns_the_time(self) -> bool:
        """Update `ahead` from the answer; whether it differs from what the last call was signed with."""
        server_time = _time_of(self._date or "")
        if server_time is None:
            return False
        ahead = server_time - self._clock.utc_now()
        has_learnt = abs(ahead - self._skew) >= TOLERATED_SKEW
        if has_learnt:
            self._skew = ahead
        return has_learnt

    def _ask_once(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        try:
            headers = self._signed(headers, body)
        except NoCredentials as error:
            raise RequestFailed(str(error), is_refusal=True) from error
        try:
            connection = self._connection = self._connection or self._connect()
            is_reused = connection.is_open
        except ValueError as error:  # not a valid port
            raise RequestFailed(f"{self.host}: {error}") from error
        try:
            return self._exchange(connection, body, headers)
        except (OSError, BadAnswer) as error:
            if not is_reused or isinstance(error, TimeoutError):
                raise RequestFailed(f"{self.host}: {str(error) or type(error).__name__}") from error
        # The server had closed the idle connection.
        try:
            return self._exchange(connection, body, headers)
        except (OSError, BadAnswer) as error:
            raise RequestFailed(f"{self.host}: {str(error) or type(error).__name__}") from error

    def forget_credentials(self) -> None:
        """Discard the refused credentials; the next call looks for new ones."""
        self._credentials.forget()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _signed(self, headers: dict[str, str], body: bytes) -> dict[str, str]:
        headers = {"Host": self._url.netloc, **headers}
        path = self._url.path or "/"
        now = self._clock.utc_now() + self._skew
        signed = signed_headers(headers, body, path, self._credentials.current(), self._scope, now)
        return {**signed, "User-Agent": f"nodeheal-agent/{__version__}"}

    def _exchange(self, connection: Connection, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        response = connection.request("POST", self._url.path or "/", headers, body)
        self._date = response.headers.get("date")
        return response.status, response.body

    def _connect(self) -> Connection:
        url = self._url
        return Connection(url.hostname or "", url.port, TIMEOUT_SECONDS, has_tls=url.scheme == "https")


def _worded(body: bytes | Callable[[], bytes]) -> bytes:
    return body if isinstance(body, bytes) else body()


def _time_of(date: str) -> datetime | None:
    """Parse the time of a Date header; None where it is not a date."""
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError):
        return None
    return None if moment.year > _LAST_YEAR else moment.replace(tzinfo=moment.tzinfo or UTC)
