"""Sends what the checks measure to CloudWatch, once a minute. People look at it; no decision uses it."""

import http
import json
import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.eventfd_event import EventfdEvent
from nodeheal.agent.runtime.forking import at_work
from nodeheal.agent.runtime.jitter import between
from nodeheal.agent.runtime.log_once import LogOnce
from nodeheal.agent.transport.aws_client import ACCESS_ERRORS, AwsClient, RequestFailed
from nodeheal.agent.transport.gauges import taken_apart
from nodeheal.contract import names
from nodeheal.contract.json_text import read_json

EVERY_SECONDS = 60.0
# Each metric costs money on each node: only those listed here are sent. docs/metrics.md gives the cost.
PUBLISHED = (
    "cpu_used_percent",
    "memory_used_percent",
    "memory_stalled_percent",
    "disk_used_percent",
    "disk_read_bytes_per_second",
    "disk_write_bytes_per_second",
    "network_receive_bytes_per_second",
    "network_transmit_bytes_per_second",
    "gpu_healthy",
    "gpu_utilisation_percent",
    "gpu_memory_used_bytes",
    "gpu_temperature_celsius",
    "gpu_power_watts",
)
MOST_A_CALL = 1000  # PutMetricData's limit; no node has as many
_UNITS = {"_percent": "Percent", "_bytes": "Bytes", "_bytes_per_second": "Bytes/Second"}
_HEADERS = {
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "GraniteServiceVersion20100801.PutMetricData",
}

logger = logging.getLogger(__name__)


class NotPut(Exception):
    """CloudWatch did not accept the metrics."""


def request(node_id: str, gauges: Mapping[str, float], at: datetime, *, each_gpu: bool = False) -> dict[str, object]:
    """Build the call: one metric of each name for all GPUs together, as count, sum, minimum and maximum.

    `each_gpu`: in addition one of each name for every GPU, with the dimension `Gpu` beside the node's.
    """
    values = defaultdict[tuple[str, str], list[float]](list)
    for gauge in taken_apart(gauges):
        values[gauge.name, ""].append(gauge.value)
        if each_gpu and gauge.kind == "gpu":
            values[gauge.name, gauge.which].append(gauge.value)
    data = [
        _datum(name, samples, {"NodeId": node_id, **({"Gpu": gpu} if gpu else {})}, at)
        for (name, gpu), samples in values.items()
        if name in PUBLISHED
    ]
    return {"Namespace": names.NODE_METRICS_NAMESPACE, "MetricData": data[:MOST_A_CALL]}


def _datum(name: str, values: list[float], dimensions: Mapping[str, str], at: datetime) -> dict[str, object]:
    datum: dict[str, object] = {
        "MetricName": name,
        "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
        "Timestamp": int(at.timestamp()),
        "StatisticValues": {
            "SampleCount": len(values),
            "Sum": sum(values),
            "Minimum": min(values),
            "Maximum": max(values),
        },
    }
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), None)
    return {**datum, "Unit": unit} if unit else datum


class NodeMetrics:
    """This node's metrics in CloudWatch. Not safe to share between threads."""

    def __init__(self, cloudwatch: AwsClient, node_id: str, *, each_gpu: bool = False) -> None:
        self._cloudwatch = cloudwatch
        self._request = partial(request, node_id, each_gpu=each_gpu)

    def put(self, gauges: Mapping[str, float], at: datetime) -> None:
        """Send the metrics, if there are any. Raises NotPut. Sending twice only doubles their sums and counts."""
        if not self._request(gauges, at)["MetricData"]:
            return

        def body() -> bytes:  # by CloudWatch's time, where the node's clock is wrong
            return json.dumps(self._request(gauges, at + self._cloudwatch.ahead)).encode()

        try:
            status, raw = self._cloudwatch.ask(_HEADERS, body)
        except RequestFailed as error:
            raise NotPut(str(error)) from error
        if status == http.HTTPStatus.OK:
            return
        code = _code(raw)
        if code in ACCESS_ERRORS or status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            self._cloudwatch.forget_credentials()
        raise NotPut(f"CloudWatch answered {status} {code}".rstrip())

    def close(self) -> None:
        """Close the connection."""
        self._cloudwatch.close()


def _code(raw: bytes) -> str:
    try:
        answer = read_json(raw)
    except ValueError:
        return ""
    return str(answer.get("__type", "")).rpartition("#")[2] if isinstance(answer, dict) else ""


class Publisher(threading.Thread):
    """Publishes the metrics each minute, in a thread of its own. A minute that CloudWatch does not accept is lost:
    keeping it would take room from events.
    """

    def __init__(
        self,
        metrics: NodeMetrics,
        gauges: Callable[[], Mapping[str, float]],
        clock: Clock,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        super().__init__(name="metrics", daemon=True)
        self._metrics = metrics
        self._gauges = gauges
        self._clock = clock
        self._every = every_seconds
        self._stopping = EventfdEvent()
        self._lost = 0
        self._reasons = LogOnce()

    def run(self) -> None:
        """Publish until stopped, at the node's own second of each minute, so that no minute has two values or none."""
        due_at = self._clock.monotonic() + between(0.0, self._every)
        while not self._stopping.wait(max(0.0, due_at - self._clock.monotonic())):
            with at_work():
                self.publish()
            due_at = following(due_at, self._every, self._clock.monotonic())

    def stop(self, patience_seconds: float) -> None:
        """End after the call in progress."""
        self._stopping.set()
        self.join(patience_seconds)
        self._metrics.close()

    def publish(self) -> None:
        """Publish once. Each failure is logged once, until a call succeeds again."""
        try:
            self._metrics.put(self._gauges(), self._clock.utc_now())
        except NotPut as error:
            if self._reasons.is_news(error):
                logger.error(
                    "CloudWatch does not accept this node's metrics; they are lost until it does", extra={"why": error}
                )
            self._lost += 1
            return
        if self._lost:
            logger.info("CloudWatch accepts this node's metrics again", extra={"minutes_lost": self._lost})
        self._lost = 0
        self._reasons.forget()


def following(due_at: float, every_seconds: float, now: float) -> float:
    """Return the first future moment in step with `due_at`; missed ones are skipped."""
    return due_at + every_seconds * max(1, math.floor((now - due_at) / every_seconds) + 1)
