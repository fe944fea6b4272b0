"""What the checks measure, for a Prometheus on this node: its text format, version 0.0.4, on loopback only.

A few lines over a socket: the server of the standard library takes more memory than all of the metrics.
"""

import logging
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from nodeheal import __version__
from nodeheal.agent.bell import Bell
from nodeheal.agent.forking import at_work
from nodeheal.agent.gauges import Gauge, taken_apart

LOOPBACK = "127.0.0.1"
PATH = "/metrics"
REQUEST_BYTES = 8192
PATIENCE_SECONDS = 2.0  # for all of a request and its answer: there is one at a time
RETRY_SECONDS = 60.0  # before a port is tried again that somebody else has
_WAITING = 8
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

logger = logging.getLogger(__name__)


def exposition(node_id: str, gauges: Mapping[str, float]) -> str:
    """The gauges in Prometheus' words: base units, so shares of one and not of a hundred, and labels."""
    lines = defaultdict[str, list[str]](list)
    lines["nodeheal_agent_info"].append(f"{_labels(node=node_id, version=__version__)} 1")
    for gauge in taken_apart(gauges):
        labels = _labels(**{gauge.kind: gauge.which}) if gauge.which else ""
        name, value = _in_base_units(gauge)
        lines[f"nodeheal_{name}"].append(f"{labels} {value!r}")
    return "".join(
        f"# TYPE {name} gauge\n" + "".join(f"{name}{sample}\n" for sample in samples) for name, samples in lines.items()
    )


def _in_base_units(gauge: Gauge) -> tuple[str, float]:
    stem = gauge.name.removesuffix("_percent")
    return (gauge.name, gauge.value) if stem == gauge.name else (f"{stem}_ratio", gauge.value / 100)


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"


class Exporter(threading.Thread):
    """Answers whoever asks on this node. One that is slow, or says nonsense, makes only others wait who ask."""

    def __init__(self, port: int, node_id: str, gauges: Callable[[], Mapping[str, float]]) -> None:
        super().__init__(name="prometheus", daemon=True)
        self._port = port
        self._node_id = node_id
        self._gauges = gauges
        self._stopping = Bell()
        self._listener: socket.socket | None = None

    def run(self) -> None:
        """Answer until stopped. A port that is taken is said once, and tried again."""
        has_complained = False
        while not self._stopping.is_set():
            try:
                self._listener = socket.create_server((LOOPBACK, self._port), backlog=_WAITING)
            except OSError as error:
                if not has_complained:
                    logger.error("nobody can ask for metrics", extra={"port": self._port, "why": error})
                has_complained = True
                self._stopping.wait(RETRY_SECONDS)
                continue
            with self._listener:
                self._serve(self._listener)

    def stop(self, patience_seconds: float) -> None:
        """End, also in the middle of waiting."""
        self._stopping.set()
        if self._listener is not None:
            try:
                self._listener.shutdown(socket.SHUT_RDWR)  # on Linux this ends `accept`
            except OSError:
                logger.debug("nobody listened any more")
        self.join(patience_seconds)

    def _serve(self, listener: socket.socket) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if not self._stopping.wait(1.0):  # such as too many open files
                    logger.warning("a caller for metrics was lost", extra={"why": error})
                return
            with at_work(), connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        try:
            words = _first_line(connection).split()
            connection.settimeout(PATIENCE_SECONDS)
            connection.sendall(self._answer_to(words))
        except OSError:
            return  # it has gone, or it takes too long

    def _answer_to(self, words: list[bytes]) -> bytes:
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", "this is no HTTP/1 request\n")
        if words[0] != b"GET":
            return _response("405 Method Not Allowed", "only GET\n", "Allow: GET\r\n")
        if words[1].partition(b"?")[0] != PATH.encode():
            return _response("404 Not Found", f"there is only {PATH}\n")
        return _response("200 OK", exposition(self._node_id, self._gauges()))


def _first_line(connection: socket.socket) -> bytes:
    """Of a whole request, or of as much as comes in time. Raises OSError."""
    ends_at, request = time.monotonic() + PATIENCE_SECONDS, b""
    while b"\r\n\r\n" not in request and len(request) < REQUEST_BYTES:
        connection.settimeout(max(0.001, ends_at - time.monotonic()))
        data = connection.recv(REQUEST_BYTES)
        if not data:
            break
        request += data
        if time.monotonic() >= ends_at:
            raise TimeoutError
    return request.partition(b"\r\n")[0]


def _response(status: str, text: str, more: str = "") -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
    )
    return head.encode() + body
