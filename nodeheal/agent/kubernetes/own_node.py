"""Reads this node's own Node object from the API server, with the token of the agent's pod."""

import http.client
import json
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

Object = Mapping[str, Any]  # as the API has it

# Of the pod, by the chart: the folder with token and ca.crt, and the node's name.
ENV_FOLDER, ENV_NODE = "NODEHEAL_CLUSTER_DIR", "NODEHEAL_NODE_NAME"
# Of every container, by the kubelet.
ENV_HOST, ENV_PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_SECONDS = 10.0
_LONGEST = 4 * 1024 * 1024  # a Node object with all its images is a tenth of it


class NodeObjectError(OSError):
    """The API server has refused, or has sent what is no Node object."""


@dataclass(frozen=True)
class OwnNode:
    """The node's name, and where and by what its Node object is read. The kubelet renews the token in the file."""

    name: str
    host: str
    port: int
    folder: Path

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """Return the node of this pod; None where this is no pod of the chart."""
        given = [environment.get(name, "") for name in (ENV_NODE, ENV_HOST, ENV_PORT, ENV_FOLDER)]
        name, host, port, folder = given
        return cls(name, host, int(port), Path(folder)) if all(given) and port.isdecimal() else None

    def read(self) -> Object:
        """Return the Node object. Raises OSError."""
        with closing(self._connect(_SECONDS)) as connection:
            answer = self._ask(connection, f"/api/v1/nodes/{quote(self.name, safe='')}")
            with _breaks_named():
                return _object(answer.read(_LONGEST))

    def changes(self, version: str, seconds: int) -> Iterator[Object]:
        """Yield the Node object after each change since this resourceVersion, for so long. Raises OSError."""
        query = f"watch=1&fieldSelector=metadata.name%3D{quote(self.name, safe='')}&allowWatchBookmarks=true"
        path = f"/api/v1/nodes?{query}&resourceVersion={quote(version)}&timeoutSeconds={seconds}"
        with closing(self._connect(seconds + _SECONDS)) as connection:
            answer = self._ask(connection, path)
            while True:
                with _breaks_named():
                    line = answer.readline(_LONGEST)
                if not line:
                    return
                event = _object(line)
                if event.get("type") == "ERROR":
                    raise NodeObjectError("the API server has ended the watch")
                if event.get("type") in ("ADDED", "MODIFIED"):
                    yield _checked(event.get("object"))

    def _connect(self, seconds: float) -> http.client.HTTPSConnection:
        trust = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        return http.client.HTTPSConnection(self.host, self.port, timeout=seconds, context=trust)

    def _ask(self, connection: http.client.HTTPSConnection, path: str) -> http.client.HTTPResponse:
        token = (self.folder / "token").read_text("ascii").strip()
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})
            answer = connection.getresponse()
        except http.client.HTTPException as error:
            raise NodeObjectError(f"{self.host}:{self.port} does not speak HTTP: {type(error).__name__}") from error
        if answer.status != http.client.OK:
            raise NodeObjectError(f"the API server answers {answer.status} for node {self.name}")
        return answer


@contextmanager
def _breaks_named() -> Iterator[None]:
    try:
        yield
    except http.client.HTTPException as error:
        raise NodeObjectError(f"the answer has broken off: {type(error).__name__}") from error


def _object(text: bytes) -> Object:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise NodeObjectError("the API server has sent what is no JSON") from error
    return _checked(parsed)


def _checked(parsed: object) -> Object:
    if not isinstance(parsed, dict):
        raise NodeObjectError("the API server has sent no object")
    return parsed
