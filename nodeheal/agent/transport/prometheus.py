"""Serves the agent's metrics to a Prometheus on this node, on loopback only, with prometheus_client."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric

from nodeheal import __version__
from nodeheal.agent.identity.node_identity import Identity
from nodeheal.agent.runtime.eventfd_event import EventfdEvent
from nodeheal.agent.runtime.forking import at_work
from nodeheal.agent.transport.gauges import Gauge, Sample, taken_apart, training_job

LOOPBACK = "127.0.0.1"
PATIENCE_SECONDS = 2.0  # for a whole request with its answer: one request at a time
RETRY_SECONDS = 60.0  # before a port that another process uses is tried again
_POLL_SECONDS = 0.5  # how soon a stopped server ends
# Every metric that the agent serves, with its help text. An operator's own check may add others.
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
    "nodeheal_training_checkpoint_age_seconds": "Seconds since the training job wrote its last checkpoint.",
    "nodeheal_training_loss": "Loss of the last ten minutes, the median; NaN where it is not a number any more.",
    "nodeheal_training_slowest_compute_seconds": "Own work in a step of the node's slowest rank, without its waits.",
    "nodeheal_training_step": "The last step that the training job has done.",
    "nodeheal_training_step_age_seconds": "Seconds since the training job showed a step.",
    "nodeheal_training_step_seconds": "Seconds of a step in the last ten minutes, the median, without pauses.",
    "nodeheal_training_usual_step_seconds": "Seconds of a step in this run before, the median.",
}
OF_A_CHECK = "Measured by a check of this node."

logger = logging.getLogger(__name__)


def metrics(identity: Identity, gauges: Mapping[str, float], samples: Iterable[Sample]) -> Iterator[Metric]:
    """Convert all samples to Prometheus' conventions: base units, so ratios instead of percent, and the node's labels.

    The node's own labels are on each sample, because a scrape of loopback gives every node the same address. The
    training job is a label of its GPUs' values; the label is not called `job`, which Prometheus sets itself. It is not
    on the health of GPUs: a GPU that fails ends its job, and the changed label would restart an alarm.
    """
    node = {"node": identity.node_id, "pool": identity.pool}
    about = {"cluster": identity.cluster, "version": __version__, "product": identity.product or ""}
    series: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    # Prometheus refuses a page with a sample twice: the age of a step, which a check and the heartbeats measure, is
    # that of the heartbeats.
    for sample in (Sample("agent_info", 1, about), *_measured(gauges), *samples):
        # An empty label is the same as none.
        labels = tuple(sorted((key, value) for key, value in {**node, **sample.labels}.items() if value))
        series.setdefault(f"nodeheal_{sample.name}", {})[labels] = float(sample.value)
    for name, values in series.items():
        family = _metric(name)
        for each, value in values.items():
            family.add_sample(name, dict(each), value)
        yield family


def _metric(name: str) -> Metric:
    kind = "counter" if name.endswith("_total") else "gauge"
    return Metric(name.removesuffix("_total"), HELP.get(name, OF_A_CHECK), kind)


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


def _in_base_units(gauge: Gauge) -> tuple[str, float]:
    stem = gauge.name.removesuffix("_percent")
    return (gauge.name, gauge.value) if stem == gauge.name else (f"{stem}_ratio", gauge.value / 100)


class Exporter(threading.Thread):
    """Answers requests from this node, one at a time. A slow or broken client delays only other clients."""

    def __init__(
        self,
        port: int,
        identity: Identity,
        gauges: Callable[[], Mapping[str, float]],
        samples: Callable[[], Iterable[Sample]],
    ) -> None:
        super().__init__(name="prometheus", daemon=True)
        self._port = port
        self._identity, self._gauges, self._samples = identity, gauges, samples
        registry = CollectorRegistry()
        registry.register(self)
        self._app = make_wsgi_app(registry)
        self._stopping = EventfdEvent()
        self._server: _Server | None = None
        self._is_broken = False

    def run(self) -> None:
        """Answer until stopped. A port in use is logged once, and tried again."""
        has_complained = False
        while not self._stopping.is_set():
            try:
                self._server = _Server((LOOPBACK, self._port), _Handler)
            except OSError as error:
                if not has_complained:
                    logger.error("metrics cannot be served; retrying", extra={"port": self._port, "why": error})
                has_complained = True
                self._stopping.wait(RETRY_SECONDS)
                continue
            with self._server as server:
                server.set_app(self._answer)
                server.timeout = _POLL_SECONDS
                while not self._stopping.is_set():
                    server.handle_request()

    def stop(self, patience_seconds: float) -> None:
        """End, also during a wait."""
        self._stopping.set()
        self.join(patience_seconds)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics to prometheus_client."""
        return metrics(self._identity, self._gauges(), self._samples())

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request. A metric that cannot be read must not end the thread, and so all metrics."""
        try:
            body: Iterable[bytes] = self._app(environ, start_response)
            return body
        except Exception:
            if not self._is_broken:
                logger.exception("metrics cannot be served; each request tries again")
            self._is_broken = True
            start_response("500 Internal Server Error", [("Content-Type", "text/plain")])
            return [b"metrics cannot be served: see the agent's log\n"]


class _Server(WSGIServer):
    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer in time, or close the connection. The agent forks for its checks only while no other thread works."""
        timer = threading.Timer(PATIENCE_SECONDS, _hang_up, (request,))
        timer.daemon = True
        timer.start()
        try:
            with at_work():
                super().finish_request(request, client_address)
        finally:
            timer.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a client that has disconnected, or is too slow."""
        logger.debug("a client of the metrics port was disconnected", exc_info=True)


def _hang_up(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended
        request.shutdown(socket.SHUT_RDWR)


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: there is a request every few seconds."""
