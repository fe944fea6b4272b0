"""What the agent knows, for a Prometheus on this node: its text format, version 0.0.4, on loopback only.

A few lines over a socket: the server of the standard library takes more memory than all of the metrics.
"""

import logging
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from nodeheal import __version__
from nodeheal.agent.eventfd_event import EventfdEvent
from nodeheal.agent.forking import at_work
from nodeheal.agent.gauges import Gauge, Sample, taken_apart, training_job
from nodeheal.agent.identity import Identity

LOOPBACK = "127.0.0.1"
PATH = "/metrics"
REQUEST_BYTES = 8192
PATIENCE_SECONDS = 2.0  # for all of a request and its answer: there is one at a time
RETRY_SECONDS = 60.0  # before a port is tried again that somebody else has
_WAITING = 8
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
# Every metric that the agent serves, and what it says. A check of somebody's own may measure others.
HELP = {
    "nodeheal_agent_info": "The agent's version, and the node's cluster and product; always 1.",
    "nodeheal_check_age_seconds": "Seconds since the check answered last.",
    "nodeheal_check_duration_seconds": "Seconds that the check's last answer took, with its wait; none for streams.",
    "nodeheal_check_verdict": "1 for the verdict of the check's last answer, 0 for the others. UNKNOWN is not healthy.",
    "nodeheal_cpu_used_ratio": "Share of all processors that worked.",
    "nodeheal_disk_read_bytes_per_second": "Read from all disks together.",
    "nodeheal_disk_used_ratio": "Share of a file system that is used, of its room or its inodes, whichever is more.",
    "nodeheal_disk_write_bytes_per_second": "Written to all disks together.",
    "nodeheal_events_refused_total": "Events that the bus refused for good, and that were dropped.",
    "nodeheal_events_sent_total": "Events that the bus accepted.",
    "nodeheal_faults_total": "Faults that this agent has found since it started, by code and component.",
    "nodeheal_gpu_healthy": "1: NVML shows no problem of the GPU; 0: it shows one. Absent where it cannot tell.",
    "nodeheal_gpu_info": "What the GPU is called beside its number; always 1.",
    "nodeheal_gpu_memory_used_bytes": "Memory of the GPU that is used.",
    "nodeheal_gpu_power_watts": "Power that the GPU draws.",
    "nodeheal_gpu_temperature_celsius": "Temperature of the GPU.",
    "nodeheal_gpu_utilisation_ratio": "Share of the last moments in which the GPU worked.",
    "nodeheal_heartbeat_failures_total": "Heartbeats that the table did not take.",
    "nodeheal_heartbeats_total": "Heartbeats that the table took.",
    "nodeheal_last_heartbeat_age_seconds": "Seconds since the table took a heartbeat.",
    "nodeheal_last_publish_age_seconds": "Seconds since the bus accepted an event.",
    "nodeheal_memory_stalled_ratio": "Share of the last minute in which every task waited for memory.",
    "nodeheal_memory_used_ratio": "Share of the memory that is not available any more.",
    "nodeheal_network_receive_bytes_per_second": "Received by all network cards, without RDMA and EFA.",
    "nodeheal_network_transmit_bytes_per_second": "Sent by all network cards, without RDMA and EFA.",
    "nodeheal_publish_failures_total": "Calls to the bus that failed, or in which events were not accepted.",
    "nodeheal_spool_bytes": "What the spool uses of its disk.",
    "nodeheal_spool_dropped_total": "Events that the spool has dropped for lack of room, ever.",
    "nodeheal_spool_events": "Events that wait for the bus.",
    "nodeheal_training_step_age_seconds": "Seconds since the training job showed a step.",
}
OF_A_CHECK = "Measured by a check of this node."

logger = logging.getLogger(__name__)


def exposition(identity: Identity, gauges: Mapping[str, float], samples: Iterable[Sample]) -> str:
    """All samples in Prometheus' words: base units, so shares of one and not of a hundred, and the labels of the node.

    The node's own labels are on each: what scrapes loopback gives every node the same address. The training job is on
    what its GPUs measure, and its label is not `job`, which Prometheus itself sets. It is not on their health: a GPU
    that fails ends its job, and an alarm on it must not begin again for that.
    """
    node = {"node": identity.node_id, "pool": identity.pool}
    about = {"cluster": identity.cluster, "version": __version__, "product": identity.product or ""}
    lines = defaultdict[str, list[str]](list)
    for sample in (Sample("agent_info", 1, about), *_measured(gauges), *samples):
        labels = _labels({**node, **sample.labels})
        lines[f"nodeheal_{sample.name}"].append(f"{labels} {float(sample.value)!r}")
    return "".join(
        _head(name) + "".join(f"{name}{sample}\n" for sample in samples_of) for name, samples_of in lines.items()
    )


def _measured(gauges: Mapping[str, float]) -> Iterator[Sample]:
    job = training_job(gauges)
    for gauge in taken_apart(gauges):
        name, value = _in_base_units(gauge)
        if gauge.kind == "training":
            yield Sample(name, value, {"training_job": gauge.job, "run": gauge.which.partition("/")[2]})
        else:
            of = {gauge.kind: gauge.which} if gauge.which else {}
            has_job = gauge.kind == "gpu" and gauge.name != "gpu_healthy"
            yield Sample(name, value, {**of, "training_job": job} if has_job else of)


def _head(name: str) -> str:
    kind = "counter" if name.endswith("_total") else "gauge"
    return f"# HELP {name} {HELP.get(name, OF_A_CHECK)}\n# TYPE {name} {kind}\n"


def _in_base_units(gauge: Gauge) -> tuple[str, float]:
    stem = gauge.name.removesuffix("_percent")
    return (gauge.name, gauge.value) if stem == gauge.name else (f"{stem}_ratio", gauge.value / 100)


def _labels(labels: Mapping[str, str]) -> str:
    """Those that are not empty: to Prometheus an empty label is none."""
    told = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items() if value)
    return f"{{{told}}}"


class Exporter(threading.Thread):
    """Answers whoever asks on this node. One that is slow, or says nonsense, makes only others wait who ask."""

    def __init__(
        self,
        port: int,
        identity: Identity,
        gauges: Callable[[], Mapping[str, float]],
        samples: Callable[[], Iterable[Sample]],
    ) -> None:
        super().__init__(name="prometheus", daemon=True)
        self._port = port
        self._identity = identity
        self._gauges = gauges
        self._samples = samples
        self._stopping = EventfdEvent()
        self._listener: socket.socket | None = None
        self._is_broken = False

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

    def _metrics(self) -> bytes:
        """A metric that cannot be read must not end the thread, and so all metrics."""
        try:
            return _response("200 OK", exposition(self._identity, self._gauges(), self._samples()))
        except Exception:
            if not self._is_broken:
                logger.exception("metrics cannot be served; each request tries again")
            self._is_broken = True
            return _response("500 Internal Server Error", "metrics cannot be served: see the agent's log\n")

    def _answer_to(self, words: list[bytes]) -> bytes:
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", "this is no HTTP/1 request\n")
        if words[0] != b"GET":
            return _response("405 Method Not Allowed", "only GET\n", "Allow: GET\r\n")
        if words[1].partition(b"?")[0] != PATH.encode():
            return _response("404 Not Found", f"there is only {PATH}\n")
        return self._metrics()


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
