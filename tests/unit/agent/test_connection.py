"""The agent's HTTP: what it reads as an answer, what it refuses, and which certificates it trusts."""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeheal.agent.transport.connection import BODY_BYTES, BadAnswer, Connection, Response, _context
from tests.support.agent_fakes import FakeEventBridge
from tests.support.authority import Authority, found_authority

Serve = Callable[..., "Server"]


class Server:
    """Says its answers, one a request, over as many connections as it takes. `hangs_up`: after each."""

    def __init__(self, *answers: bytes, hangs_up: bool = False) -> None:
        self._answers, self._hangs_up = iter(answers), hangs_up
        self.asked: list[bytes] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._run, daemon=True).start()

    def connection(self, seconds: float = 5.0) -> Connection:
        return Connection("127.0.0.1", self._listener.getsockname()[1], seconds)

    def close(self) -> None:
        self._listener.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the test is over
            self._serve()

    def _serve(self) -> None:
        answer = next(self._answers, None)
        while answer is not None:
            connection, _ = self._listener.accept()
            self.connections += 1
            with connection:
                while answer is not None and (asked := connection.recv(65536)):
                    self.asked.append(asked)
                    connection.sendall(answer)
                    answer = next(self._answers, None)
                    if self._hangs_up:
                        break


@pytest.fixture
def serve() -> Iterator[Serve]:
    begun: list[Server] = []

    def begin(*answers: bytes, hangs_up: bool = False) -> Server:
        begun.append(Server(*answers, hangs_up=hangs_up))
        return begun[-1]

    yield begin
    for server in begun:
        server.close()


FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nDate: now\r\n\r\nfine"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (FINE, b"fine"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + FINE, b"fine"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nfin\r\n1\r\ne\r\n0\r\nTrailer: x\r\n\r\n",
            b"fine",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200\nContent-Length: 1\n\nx", b"x"),
    ],
)
def test_an_answer_is_read_as_long_as_it_is_and_another_may_follow(serve: Serve, answer: bytes, body: bytes) -> None:
    server = serve(answer, FINE)
    connection = server.connection()

    first, second = connection.request("GET", "/", {}), connection.request("GET", "/", {})

    assert (first.body, second.body, server.connections) == (body, b"fine", 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nfine",
        b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nfine",
        b"HTTP/1.1 200 OK\r\n\r\nfine",
    ],
)
def test_a_connection_that_ends_with_its_answer_is_opened_again_for_the_next(serve: Serve, answer: bytes) -> None:
    server = serve(answer, FINE, hangs_up=True)
    connection = server.connection()

    first, was_open = connection.request("GET", "/", {}), connection.is_open
    second = connection.request("GET", "/", {})

    assert (first.body, was_open, second.body, server.connections) == (b"fine", False, b"fine", 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 2xx OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfine",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES + 1),
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 101 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (BODY_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % -1,
    ],
)
def test_what_is_no_answer_or_only_half_of_one_is_said_and_the_connection_closed(serve: Serve, answer: bytes) -> None:
    connection = serve(answer, hangs_up=True).connection()

    with pytest.raises(BadAnswer):
        connection.request("POST", "/", {})

    assert not connection.is_open


def test_an_endless_body_ends(serve: Serve) -> None:
    connection = serve(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (BODY_BYTES + 2), hangs_up=True).connection()

    with pytest.raises(BadAnswer, match="more than"):
        connection.request("GET", "/", {})


def test_nobody_waits_longer_than_was_said(serve: Serve) -> None:
    connection = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfine", FINE).connection(seconds=0.2)

    with pytest.raises(TimeoutError):
        connection.request("GET", "/", {})

    assert not connection.is_open


@pytest.mark.parametrize("value", ["a\r\nX-B: 2", "a\n"])
def test_no_header_smuggles_another_one_and_the_error_does_not_quote_it(serve: Serve, value: str) -> None:
    server = serve(FINE)

    with pytest.raises(BadAnswer) as caught:
        server.connection().request("POST", "/", {"X-A": value})

    assert (server.asked, value in str(caught.value)) == ([], False)


def test_hanging_up_does_not_wait_for_an_answer_that_another_thread_waits_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = Connection("127.0.0.1", silent.getsockname()[1], 15.0)
        ends = list[Exception]()

        def asks() -> None:
            try:
                connection.request("POST", "/", {})
            except (OSError, BadAnswer) as error:
                ends.append(error)

        asking = threading.Thread(target=asks)
        asking.start()
        asked, _ = silent.accept()
        asked.recv(1)
        time.sleep(0.2)
        began = time.monotonic()

        connection.close()
        asking.join(15.0)

        assert time.monotonic() - began < 5.0
        assert len(ends) == 1
        asked.close()


def certified(authority: Authority, host: str = "127.0.0.1") -> Response:
    """What a server with a certificate of this authority answers."""
    bus = FakeEventBridge(authority.server())
    bus.start()
    connection = Connection(host, int(bus.url.rpartition(":")[2]), 5.0, has_tls=True)
    try:
        headers = {"X-Amz-Target": "AWSEvents.PutEvents"}
        return connection.request("POST", "/", headers, json.dumps({"Entries": []}).encode())
    finally:
        connection.close()
        bus.stop()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Authority]:
    """One that this machine trusts, and no other."""
    found = found_authority(tmp_path, "Amazon Root CA 1")
    monkeypatch.setenv("SSL_CERT_FILE", str(found.certificate))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    _context.cache_clear()
    yield found
    _context.cache_clear()


def test_whom_the_machine_trusts_is_trusted(authority: Authority) -> None:
    assert certified(authority).status == 200


def test_a_certificate_of_another_host_is_refused(authority: Authority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
        certified(authority, host="localhost")


def test_a_stranger_of_the_same_name_is_refused(authority: Authority, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()

    with pytest.raises(ssl.SSLCertVerificationError):
        certified(found_authority(folder, "Amazon Root CA 1"))


def test_the_error_names_the_file_that_cannot_be_read(authority: Authority) -> None:
    authority.certificate.rename(authority.certificate.with_name("away"))
    named = f"authorities in {authority.certificate} .cannot be read: No such file"

    with pytest.raises(ssl.SSLCertVerificationError, match=named):
        certified(authority)
