"""The console, served on loopback, and a browser's side of HTTP without a browser."""

import http.client
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Any
from urllib.parse import urlencode

import uvicorn

from nodeheal.adapters.aws.finding import GOOD, DoctorFinding
from nodeheal.adapters.aws.policy_documents import PolicyDocuments
from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.manifests import KubernetesManifests
from nodeheal.api.client import Client
from nodeheal.console.app import Deployment, console_app
from nodeheal.console.gate import Session
from nodeheal.domain.errors import NodehealError
from tests.support.appconfig import PLACE, FakeAppConfig


@dataclass
class ServedConsole:
    """A console that is served. `cookie`: of the session; empty: nobody is signed in."""

    session: Session
    port: int
    cookie: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """The address that it answers at."""
        return f"127.0.0.1:{self.port}"

    def enter(self) -> None:
        """Sign in with the key."""
        answer = self.get(f"/enter?key={self.session.key}")
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

    def get(self, path: str, **headers: str) -> "PageAnswer":
        """Ask for a page."""
        return self._ask("GET", path, b"", headers)

    def post(self, path: str, form: Mapping[str, str], *, token: str | None = None, **headers: str) -> "PageAnswer":
        """Send a form, as a page of the console does. `token`: another one than the session's."""
        fields = {"token": self.session.form_token if token is None else token, **form}
        own = {"origin": f"http://{self.host}", "content-type": "application/x-www-form-urlencoded"}
        return self._ask("POST", path, urlencode(fields).encode(), {**own, **headers})

    def _ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> "PageAnswer":
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        sent = {"host": self.host, "cookie": self.cookie, **headers}
        connection.request(method, path, body or None, {name: value for name, value in sent.items() if value})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return PageAnswer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, text)


@dataclass(frozen=True)
class PageAnswer:
    """An answer of the console's."""

    status: int
    headers: dict[str, str]
    text: str


def deployment_of(client: Client, **changes: Any) -> Deployment:
    """Return a deployment of this client, with one policy in force and an account without a fault."""
    documents = PolicyDocuments(FakeAppConfig(), PLACE)
    documents.apply("{}", "user/ada: the first one")
    deployment = Deployment(
        client,
        "user/ada",
        "account 123456789012, us-east-1",
        client.read_policy,
        _in_words,
        documents=lambda: documents,
        look=lambda: iter([DoctorFinding("credentials", GOOD, "user/ada in us-east-1")]),
        manifests=lambda: KubernetesManifests(EksClusters(_no_client)),
    )
    return replace(deployment, **changes)


@contextmanager
def served(client: Client, deployment: Deployment | None = None, **changes: Any) -> Iterator[ServedConsole]:
    """Serve the console of this client; nobody is signed in yet. `changes`: of the session."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    port = listening.getsockname()[1]
    session = Session("127.0.0.1", port, deployment or deployment_of(client), **changes)
    config = uvicorn.Config(console_app(session), log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield ServedConsole(session, port)
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


def _no_client(service: str) -> Any:
    raise AssertionError(f"{service} was called")


def _in_words(error: Exception) -> str | None:
    return str(error) if isinstance(error, (NodehealError, ValueError)) else None
