"""How a caller has acts done over HTTP: signed, by its proxy, again with the same key, and what each answer means."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import boto3
import pytest

from nodeheal.adapters.aws.acts import ActsApi
from nodeheal.contract.acts import KEY_HEADER, Isolate, RecoveryRequested
from nodeheal.domain.errors import Conflict, NotAccepted, NotFound, NotPermitted

ACT = Isolate(node="mi-0a1", why="it smells")
KEY = "0" * 32
DONE = (200, {"kind": "RECOVERY_REQUESTED", "incident": "inc-1", "is_own": True})
CLOSED: tuple[int, Any] = (0, None)  # the connection is closed without an answer


def refused(status: int, code: str) -> tuple[int, Any]:
    return status, {"kind": "REFUSED", "code": code, "text": "because"}


class Server(HTTPServer):
    """Gives these answers in turn, and keeps what it was sent."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.requests = list(answers), list[Any]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), json.loads(body)))
        status, answer = self.server.answers.pop(0)
        if status:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AK",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }.items():
        monkeypatch.setenv(name, value)
    served: list[Server] = []

    def serve(*given: tuple[int, Any]) -> Server:
        served.append(Server(*given))
        threading.Thread(target=served[-1].serve_forever, daemon=True).start()
        return served[-1]

    yield serve
    for server in served:
        server.shutdown()
        server.server_close()


def do(server: Server) -> Any:
    return ActsApi(lambda: server.url, boto3.Session, lambda seconds: None).do(ACT, KEY)


def test_a_request_is_signed_for_the_api_and_names_no_actor(answers: Any) -> None:
    server = answers(DONE)

    done = do(server)

    [(path, headers, body)] = server.requests
    assert isinstance(done, RecoveryRequested)
    assert (path, headers[KEY_HEADER]) == ("/acts/isolate", KEY)
    assert "/eu-west-1/execute-api/aws4_request" in headers["Authorization"]
    assert body == {"kind": "ISOLATE", "node": "mi-0a1", "why": "it smells"}


@pytest.mark.parametrize(
    "first", [CLOSED, (503, {"message": "Service Unavailable"}), (429, {}), refused(409, "IN_PROGRESS")]
)
def test_what_has_no_answer_yet_is_asked_again_with_the_same_key(answers: Any, first: tuple[int, Any]) -> None:
    server = answers(first, DONE)

    do(server)

    assert [headers[KEY_HEADER] for _, headers, _ in server.requests] == [KEY, KEY]


def test_credentials_are_taken_once_for_an_act(answers: Any) -> None:
    sessions: list[Any] = []

    def session() -> Any:
        sessions.append(boto3.Session())
        return sessions[-1]

    ActsApi(lambda: answers(CLOSED, DONE).url, session, lambda seconds: None).do(ACT, KEY)

    assert len(sessions) == 1


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (refused(404, "NOT_FOUND"), NotFound, "because"),
        (refused(409, "CONFLICT"), Conflict, "because"),
        (refused(422, "UNFIT"), ValueError, "because"),
        (refused(503, "NOT_NOW"), NotAccepted, "because"),
        ((403, {"message": "Forbidden"}), NotPermitted, "execute-api:Invoke for POST /acts/isolate"),
        ((404, {"message": "Not Found"}), NotPermitted, "deploy the version of this command"),
        ((500, {"message": "Internal Server Error"}), NotAccepted, "the function broke"),
        ((200, {"kind": "SOMETHING_NEW"}), NotAccepted, "no control plane of this version"),
    ],
)
def test_each_answer_says_what_happened(
    answers: Any, answer: tuple[int, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        do(answers(answer))


def test_a_request_goes_by_the_callers_proxy(answers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = answers(DONE)
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    ActsApi(lambda: "http://acts.example", boto3.Session, lambda seconds: None).do(ACT, KEY)

    assert proxy.requests[0][0] == "http://acts.example/acts/isolate"
