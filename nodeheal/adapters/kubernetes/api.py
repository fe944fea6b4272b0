"""Asks the API server of one cluster: JSON over HTTPS with a bearer token, by urllib3, which the SDK brings along."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from nodeheal.domain.errors import NodehealError, NotAccepted

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

Object = Mapping[str, Any]  # as the API has it

# Who has written a field, as the API names it: what is ours is told from what others have set to the same value.
MANAGER = "nodeheal"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
BUDGET_CAUSE = "DisruptionBudget"  # of a 429: an eviction would break a PodDisruptionBudget
_PAGE = 500  # objects of one answer to a list; kubectl's own number
_CONNECT_SECONDS, _READ_SECONDS = 2.0, 10.0
_RENEWED_ON = 401
_PATH = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9._:-]{0,252})+")  # of names as Kubernetes takes them
_WORDS = 80


@dataclass(frozen=True)
class Endpoint:
    """Where a cluster's API server is. `authority`: its certificate authority, PEM."""

    url: str
    authority: str


class ApiError(NodehealError):
    """The API server's refusal: an HTTP status, and what its Status object says."""

    def __init__(self, status: int, reason: str, message: str, causes: tuple[str, ...] = ()) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message, self.causes = status, reason, message, causes

    @property
    def is_budget(self) -> bool:
        """Whether a PodDisruptionBudget refuses the eviction."""
        return self.status == 429 and BUDGET_CAUSE in self.causes


@contextmanager
def refusals_named(what: str) -> Iterator[None]:
    """Convert a refusal that no caller handles into NotAccepted: the step is repeated, and its end says why."""
    try:
        yield
    except ApiError as error:
        raise NotAccepted(f"{what}: {error}") from error


class KubernetesApi:
    """Calls one API server. `find_endpoint` and `make_token` are called at the first use, and `make_token` again where
    a token is refused.
    """

    def __init__(self, find_endpoint: Callable[[], Endpoint], make_token: Callable[[], str]) -> None:
        self._find_endpoint, self._make_token = find_endpoint, make_token
        self._endpoint: Endpoint | None = None
        self._pool: PoolManager | None = None
        self._token = ""

    def get(self, path: str) -> Object:
        """Return an object. Raises ApiError, NotAccepted."""
        return self._call("GET", path)

    def find(self, path: str) -> Object | None:
        """Return an object; None: there is none. Raises ApiError, NotAccepted."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def pages(self, path: str, **selectors: str) -> Iterator[Object]:
        """Yield the objects of a list, read in pages. Raises ApiError, NotAccepted."""
        continued = ""
        while True:
            words = {"limit": str(_PAGE), **selectors, **({"continue": continued} if continued else {})}
            page = self._call("GET", f"{path}?{urlencode(words)}")
            yield from page.get("items") or ()
            continued = page.get("metadata", {}).get("continue", "")
            if not continued:
                return

    def patch(self, path: str, change: Object) -> Object:
        """Return the object after a JSON merge patch: a list in it replaces the whole list. Raises ApiError (409: it
        has another resourceVersion now), NotAccepted.
        """
        return self._call("PATCH", f"{path}?fieldManager={MANAGER}", change, MERGE_PATCH)

    def patch_status(self, path: str, status: Object) -> Object:
        """Return the object after a strategic merge patch of its status: an entry of a list replaces the one with its
        key, and leaves the others. Raises ApiError, NotAccepted.
        """
        return self._call("PATCH", f"{path}/status?fieldManager={MANAGER}", {"status": status}, STRATEGIC_MERGE_PATCH)

    def post(self, path: str, body: Object) -> Object:
        """Return what was created. Raises ApiError, NotAccepted."""
        return self._call("POST", path, body)

    def delete(self, path: str, uid: str) -> None:
        """Delete this very object, by the rules of its finalizers. Raises ApiError (409: it has another uid),
        NotAccepted.
        """
        self._call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}})

    def _call(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        answer = self._send(method, path, body, kind)
        if answer.status == _RENEWED_ON:
            self._token = ""
            answer = self._send(method, path, body, kind)
        if answer.status < 300:
            return _object(method, path, answer)
        error = _error(answer)
        if error.status >= 500 or (error.status == 429 and not error.is_budget):
            raise NotAccepted(f"{method} {_resource(path)}: {error}") from error
        raise error

    def _send(self, method: str, path: str, body: Object | None, kind: str) -> "BaseHTTPResponse":
        from urllib3.exceptions import HTTPError

        if not _PATH.fullmatch(_resource(path)):  # a name that somebody has chosen would lead elsewhere
            raise ApiError(404, "NotFound", f"{path[:_WORDS]!r} is no path of Kubernetes")
        endpoint, pool = self._connect()
        self._token = self._token or self._make_token()
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = kind
        content = None if body is None else json.dumps(body).encode()
        try:
            return pool.request(method, endpoint.url + path, body=content, headers=headers, redirect=False)
        except HTTPError as error:  # its text names the host and the path, never a header
            self._endpoint = None  # a cluster of the same name may have another one
            raise NotAccepted(f"the API server at {endpoint.url} has not answered: {error}") from error

    def _connect(self) -> "tuple[Endpoint, PoolManager]":
        import ssl

        from urllib3 import PoolManager, Timeout

        if self._endpoint is None or self._pool is None:
            self._endpoint = self._find_endpoint()
            trust = ssl.create_default_context(cadata=self._endpoint.authority)
            timeout = Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS)
            self._pool = PoolManager(ssl_context=trust, timeout=timeout, retries=False)
        return self._endpoint, self._pool


def _object(method: str, path: str, answer: "BaseHTTPResponse") -> Object:
    """Return the JSON object of an answer. Raises NotAccepted for an answer that is something else."""
    try:
        body = json.loads(answer.data)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise NotAccepted(f"{method} {_resource(path)}: the answer is no object of Kubernetes")
    return body


def _resource(path: str) -> str:
    """Return a path without its query."""
    return path.partition("?")[0]


def _error(answer: "BaseHTTPResponse") -> ApiError:
    """Return the error of an answer; a proxy in between may have written it, so that it may be anything."""
    try:
        status = json.loads(answer.data)
        details = status.get("details") or {}
        causes = tuple(str(cause.get("reason", "")) for cause in details.get("causes") or ())
        reason, message = str(status.get("reason", "")), str(status.get("message", ""))
    except (ValueError, AttributeError, TypeError):
        reason, message, causes = "", answer.data[:200].decode(errors="replace"), ()
    return ApiError(answer.status, reason, message, causes)
