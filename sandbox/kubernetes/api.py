"""Calls the Kubernetes API as one user: thin, over urllib3."""

import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import urllib3

from sandbox.kubernetes.certificates import Certificate

MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
_TIMEOUT = urllib3.Timeout(connect=2.0, read=10.0)


class ApiError(Exception):
    """The API server has refused a request; `status` is the HTTP status, `reason` Kubernetes' own word."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        """`body`: the Status object of the answer."""
        super().__init__(f"{status} {body.get('reason', '')}: {body.get('message', '')}")
        self.status = status
        self.reason = str(body.get("reason", ""))


class Api:
    """The API server as a user with a client certificate, or with a token, sees it."""

    def __init__(self, server: str, authority: Path, certificate: Certificate | None = None, token: str = "") -> None:
        """`authority`: the certificate by which the server is trusted."""
        context = ssl.create_default_context(cafile=str(authority))
        if certificate is not None:
            context.load_cert_chain(certificate.certificate, certificate.key)
        self._server = server
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._pool = urllib3.PoolManager(ssl_context=context, maxsize=4)

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Self:
        """Return the API as the user of a kubeconfig that a control plane here has written sees it."""
        config = json.loads(path.read_text("utf-8"))
        [cluster], [user] = config["clusters"], config["users"]
        files = (Path(user["user"][name]) for name in ("client-certificate", "client-key"))
        return cls(cluster["cluster"]["server"], Path(cluster["cluster"]["certificate-authority"]), Certificate(*files))

    def variables(self) -> dict[str, str]:
        """Return the variables by which a container finds this API server."""
        server = urlsplit(self._server)
        return {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Read one object, or a list."""
        return self.call("GET", path, query=query)

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object in the collection at `path`."""
        return self.call("POST", path, body)

    def patch(self, path: str, body: Mapping[str, Any], kind: str = MERGE) -> dict[str, Any]:
        """Patch an object, or its subresource."""
        return self.call("PATCH", path, body, kind)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Delete an object; `body`: DeleteOptions."""
        return self.call("DELETE", path, body)

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Make one request and return its object; raise ApiError if it is refused."""
        answer = self._pool.request(
            method,
            self._url(path, query),
            body=None if body is None else json.dumps(body).encode(),
            headers={**self._headers, "Content-Type": kind},
            timeout=_TIMEOUT,
            retries=False,
        )
        if answer.status >= 400:
            raise ApiError(answer.status, _parse(answer.data))
        return _parse(answer.data)

    def is_ready(self, path: str) -> bool:
        """Return whether a path answers with success."""
        try:
            return self._pool.request("GET", self._server + path, timeout=_TIMEOUT, retries=False).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def watch(self, path: str, version: str, seconds: int, **query: str) -> Iterator[dict[str, Any]]:
        """Yield the events after a resource version for that many seconds; raise ApiError if it is too old."""
        asked = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(seconds), **query}
        answer = self._pool.request(
            "GET",
            self._url(path, asked),
            headers=self._headers,
            timeout=urllib3.Timeout(connect=2.0, read=seconds + 5.0),
            retries=False,
            preload_content=False,
        )
        try:
            if answer.status >= 400:
                raise ApiError(answer.status, _parse(answer.read()))
            for event in _lines(answer):
                if event["type"] == "ERROR":
                    raise ApiError(int(event["object"].get("code", 500)), event["object"])
                yield event
        finally:
            answer.close()

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        """Return the address of a path with its query."""
        return f"{self._server}{path}?{urlencode(query)}" if query else f"{self._server}{path}"


def _parse(data: bytes) -> dict[str, Any]:
    """Return the object of an answer; one that is no JSON is its message."""
    try:
        found = json.loads(data)
    except ValueError:
        return {"message": data.decode("utf-8", "replace")}
    return found if isinstance(found, dict) else {"message": str(found)}


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield each line of a stream as an object, as soon as it is whole."""
    rest = b""
    for part in answer.stream(decode_content=True):
        *lines, rest = (rest + part).split(b"\n")
        yield from (json.loads(line) for line in lines if line)
