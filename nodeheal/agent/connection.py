"""One HTTP/1.1 connection that is kept open. The standard library's brings its package `email`: 2 MiB of a node.

It sends what this agent makes, and reads what services answer it: bodies of a known length, in chunks, or to the end.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING

from nodeheal.agent.ca_bundle import CaBundle

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HTTP_PORT, HTTPS_PORT = 80, 443
LINE_BYTES = 64 * 1024
HEADERS = 128
BODY_BYTES = 16 * 1024 * 1024  # no service that is asked here says nearly as much
CONTINUE, SWITCHING, NO_CONTENT, NOT_MODIFIED = 100, 101, 204, 304

_DIGITS = {10: frozenset("0123456789"), 16: frozenset("0123456789abcdefABCDEF")}


class BadAnswer(Exception):
    """What came is no HTTP, too much of it, or not all of it."""


@dataclass(frozen=True)
class Response:
    """What was answered. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Incoming(RawIOBase):
    """What comes over a socket, until a moment: one who says a byte now and then must not hold us for ever."""

    def __init__(self, opened: socket.socket) -> None:
        self._opened = opened
        self.until = 0.0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Some bytes. Raises TimeoutError."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        self._opened.settimeout(left)
        return self._opened.recv_into(buffer)


class Connection:
    """To one host. Opened at the first request, and again after it was closed. Not safe to share between threads."""

    def __init__(self, host: str, port: int | None, seconds: float, trust: CaBundle | None = None) -> None:
        """`seconds`: how long each step may take: to connect, to ask, to hear the whole answer. With `trust` it is
        encrypted, and the host proves its name.
        """
        self._host, self._port = host, port or (HTTPS_PORT if trust else HTTP_PORT)
        self._seconds, self._trust = seconds, trust
        self._socket: socket.socket | None = None
        self._incoming: _Incoming | None = None
        self._reader: BufferedReader | None = None

    @property
    def is_open(self) -> bool:
        """Whether there was an answer before this one, and the other side has not said that it hangs up."""
        return self._socket is not None

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Response:
        """Ask, and wait for the whole answer. Raises OSError, BadAnswer; the connection is then closed."""
        try:
            return self._exchange(_request(method, path, {"Host": self._authority(), **headers}, body))
        except (OSError, BadAnswer):
            self.close()
            raise
        except ValueError as error:  # a host that is none (UnicodeError), or another thread has hung up
            self.close()
            raise BadAnswer(str(error)) from error

    def close(self) -> None:
        """Hang up. From any thread: one that waits for an answer holds the reader until it is told that none comes."""
        opened, reader, self._socket, self._reader = self._socket, self._reader, None, None
        if opened is not None:
            with contextlib.suppress(OSError):  # the other side was first
                opened.shutdown(socket.SHUT_RDWR)
        if reader is not None:
            reader.close()
        if opened is not None:
            opened.close()

    def _authority(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host

    def _exchange(self, request: bytes) -> Response:
        opened, incoming, reader = self._socket, self._incoming, self._reader
        if opened is None or incoming is None or reader is None:
            opened = self._socket = self._connect()
            incoming = self._incoming = _Incoming(opened)
            reader = self._reader = BufferedReader(incoming)
        opened.settimeout(self._seconds)
        opened.sendall(request)
        incoming.until = time.monotonic() + self._seconds
        response, stays_open = _read(reader)
        if not stays_open:
            self.close()
        return response

    def _connect(self) -> socket.socket:
        if self._trust is None:
            return self._opened(None)
        try:
            return self._believed(self._trust)
        except ssl.SSLCertVerificationError as error:  # what OpenSSL says does not name the file to be mended
            raise ssl.SSLCertVerificationError(
                error.errno, f"{error.verify_message}; {self._trust.source()}"
            ) from error

    def _believed(self, trust: CaBundle) -> socket.socket:
        believed = trust.context()
        try:
            return self._opened(believed)
        except ssl.SSLCertVerificationError:
            wider = trust.wider(believed)
            if wider is None:
                raise
            return self._opened(wider)

    def _opened(self, tls: ssl.SSLContext | None) -> socket.socket:
        # As bytes: a name that is text brings the tables of names in all alphabets, a fifth of a MiB.
        host = self._host.encode("ascii")
        plain = socket.create_connection((host, self._port), self._seconds)  # type: ignore[arg-type]
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return tls.wrap_socket(plain, server_hostname=host) if tls else plain
        except BaseException:
            plain.close()
            raise


def _request(method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    lines += [f"Content-Length: {len(body)}"] if body or method != "GET" else []
    head = "\r\n".join(lines)
    if not head.isascii() or any(not line.isprintable() for line in lines):
        raise BadAnswer("the request is none: a header holds what no header may hold")  # a secret, so not which
    return head.encode("ascii") + b"\r\n\r\n" + body


def _read(reader: BufferedReader) -> tuple[Response, bool]:
    """The answer, and whether another request may follow."""
    version, status = _status(reader)
    while CONTINUE <= status < 200 and status != SWITCHING:
        _headers(reader)
        version, status = _status(reader)
    headers = _headers(reader)
    tokens = headers.get("connection", "").lower()
    stays_open = "close" not in tokens if version == "HTTP/1.1" else "keep-alive" in tokens
    if status in (NO_CONTENT, NOT_MODIFIED):
        return Response(status, headers, b""), stays_open
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return Response(status, headers, _chunks(reader)), stays_open
    length = headers.get("content-length")
    if length is None:
        return Response(status, headers, _to_the_end(reader)), False
    return Response(status, headers, _exactly(reader, _number(length, 10))), stays_open


def _status(reader: BufferedReader) -> tuple[str, int]:
    line = _line(reader)
    version, _, rest = line.partition(" ")
    code = rest.partition(" ")[0]
    if not version.startswith("HTTP/1.") or len(code) != 3 or not code.isdecimal():
        raise BadAnswer(f"this is no HTTP: {line[:100]!r}")
    return version, int(code)


def _headers(reader: BufferedReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(HEADERS):
        line = _line(reader)
        if not line:
            return headers
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    raise BadAnswer(f"more than {HEADERS} headers")


def _chunks(reader: BufferedReader) -> bytes:
    body = b""
    while size := _number(_line(reader).partition(";")[0], 16):
        if len(body) + size > BODY_BYTES:
            raise BadAnswer(f"more than {BODY_BYTES} bytes")
        body += _exactly(reader, size)
        if _line(reader):
            raise BadAnswer("a chunk is longer than it says")
    _headers(reader)  # trailers
    return body


def _exactly(reader: BufferedReader, size: int) -> bytes:
    if size > BODY_BYTES:
        raise BadAnswer(f"more than {BODY_BYTES} bytes")
    body = reader.read(size)
    if len(body) < size:
        raise BadAnswer(f"{len(body)} of {size} bytes, and then no more")
    return body


def _to_the_end(reader: BufferedReader) -> bytes:
    body = reader.read(BODY_BYTES + 1)
    if len(body) > BODY_BYTES:
        raise BadAnswer(f"more than {BODY_BYTES} bytes")
    return body


def _line(reader: BufferedReader) -> str:
    line = reader.readline(LINE_BYTES)
    if not line.endswith(b"\n"):
        raise BadAnswer("a line without an end" if line else "the other side hung up")
    return line.rstrip(b"\r\n").decode("latin-1")


def _number(text: str, base: int) -> int:
    text = text.strip()
    if not text or len(text) > 16 or not set(text) <= _DIGITS[base]:
        raise BadAnswer(f"{text[:32]!r} is no length")
    return int(text, base)
