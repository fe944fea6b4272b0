"""What CloudWatch is told, how often, and what happens where it does not take it."""

import logging
import math
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from nodeheal.agent.checks import gpu_judgement, host_load
from nodeheal.agent.checks.gpu_reading import GpuReading
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.transport import aws_client, metrics
from nodeheal.agent.transport.aws_client import AwsClient
from nodeheal.agent.transport.credentials import CredentialChain
from nodeheal.agent.transport.metrics import PUBLISHED, NodeMetrics, Publisher, following, request
from tests.support.agent_fakes import IDENTITY, KEYS, START, FakeEventBridge, FakeTime, eventually

NODE = IDENTITY.node_id
GAUGES = {
    "gpu_temperature_celsius:0": 45.0,
    "gpu_temperature_celsius:1": 61.0,
    "disk_used_percent:/": 40.0,
    "network_receive_bytes_per_second": 500.0,
}


@pytest.fixture
def node_metrics(bus: FakeEventBridge, time: FakeTime) -> Iterator[NodeMetrics]:
    credentials, clock = CredentialChain(time.clock(), KEYS), time.clock()
    one = NodeMetrics(AwsClient("monitoring", "eu-central-1", bus.url, credentials, clock), NODE)
    yield one
    one.close()


@pytest.fixture
def publisher(node_metrics: NodeMetrics, time: FakeTime) -> Publisher:
    return Publisher(node_metrics, lambda: GAUGES, time.clock())


def test_all_gpus_are_one_metric_of_the_node(publisher: Publisher, bus: FakeEventBridge) -> None:
    publisher.publish()

    [call] = bus.table.metrics
    told = {datum["MetricName"]: datum for datum in call["MetricData"]}
    assert call["Namespace"] == "nodeheal/nodes"
    assert set(told) == {"gpu_temperature_celsius", "disk_used_percent", "network_receive_bytes_per_second"}
    assert told["gpu_temperature_celsius"] == {
        "MetricName": "gpu_temperature_celsius",
        "Dimensions": [{"Name": "NodeId", "Value": NODE}],
        "Timestamp": int(START.timestamp()),
        "StatisticValues": {"SampleCount": 2, "Sum": 106.0, "Minimum": 45.0, "Maximum": 61.0},
    }
    assert told["disk_used_percent"]["Unit"] == "Percent"
    assert told["network_receive_bytes_per_second"]["Unit"] == "Bytes/Second"


def test_each_gpu_is_a_metric_of_its_own_where_that_is_asked_for(bus: FakeEventBridge, time: FakeTime) -> None:
    post = AwsClient("monitoring", "eu-central-1", bus.url, CredentialChain(time.clock(), KEYS), time.clock())
    one = NodeMetrics(post, NODE, each_gpu=True)
    one.put(GAUGES, START)
    one.close()

    [call] = bus.table.metrics
    told = {
        (datum["MetricName"], *(dimension["Value"] for dimension in datum["Dimensions"])): one["Sum"]
        for datum in call["MetricData"]
        for one in [datum["StatisticValues"]]
    }
    assert told == {
        ("gpu_temperature_celsius", NODE): 106.0,
        ("gpu_temperature_celsius", NODE, "0"): 45.0,
        ("gpu_temperature_celsius", NODE, "1"): 61.0,
        ("disk_used_percent", NODE): 40.0,
        ("network_receive_bytes_per_second", NODE): 500.0,
    }
    assert [dimension["Name"] for dimension in call["MetricData"][1]["Dimensions"]] == ["NodeId", "Gpu"]


@pytest.mark.parametrize("ahead", [timedelta(days=1), timedelta(days=-1)])
def test_what_a_node_with_a_wrong_clock_measures_is_dated_by_cloudwatchs_time(
    publisher: Publisher, bus: FakeEventBridge, time: FakeTime, ahead: timedelta
) -> None:
    bus.refuses_strange_times = True
    time.seconds = (datetime.now(UTC) - START - ahead).total_seconds()

    publisher.publish()

    [call] = bus.table.metrics
    assert {abs(datum["Timestamp"] - datetime.now(UTC).timestamp()) < 60 for datum in call["MetricData"]} == {True}


def test_a_call_is_one_that_cloudwatch_knows() -> None:
    model = botocore.session.get_session().get_service_model("cloudwatch")
    shape: Any = model.operation_model("PutMetricData").input_shape
    unit: Any = model.shape_for("StandardUnit")

    call: dict[str, Any] = request(NODE, dict.fromkeys(PUBLISHED, 1.0), START)

    assert not ParamValidator().validate(call, shape).has_errors()
    assert "json" in model.metadata["protocols"]
    assert metrics._HEADERS["X-Amz-Target"] == f"{model.metadata['targetPrefix']}.PutMetricData"
    assert metrics._HEADERS["Content-Type"] == f"application/x-amz-json-{model.metadata['jsonVersion']}"
    assert {datum["Unit"] for datum in call["MetricData"] if "Unit" in datum} < set(unit.enum)


def test_what_is_not_named_costs_nothing_and_what_is_no_number_is_not_told() -> None:
    gauges = {
        "gpu_colour_percent:0": 1.0,
        "cpu_used_percent": math.nan,
        "gpu_power_watts:0": math.inf,
        "gpu_power_watts:1": 2.0**361,
        "gpu_power_watts:2": 70.0,
    }

    call: dict[str, Any] = request(NODE, gauges, START)

    [datum] = call["MetricData"]

    assert datum["StatisticValues"]["SampleCount"] == 1
    assert datum["StatisticValues"]["Sum"] == 70.0


def test_what_is_published_is_what_checks_measure_and_what_the_document_lists() -> None:
    gpu = gpu_judgement.gauges(
        [GpuReading(0, "x", temperature_celsius=1, power_watts=1, utilisation_percent=1, memory_used_mib=1)],
        {0: True},
    )
    counts = {kind: {"a": 1} for kind in ("network_receive", "network_transmit", "disk_read", "disk_write")}
    host = host_load.gauges({"cpu": {"busy": 0, "all": 0}, **counts}, {"cpu": {"busy": 1, "all": 2}, **counts}, 60)
    others = ("memory_used_percent", "memory_stalled_percent", "disk_used_percent")  # see the tests of these checks

    document = (Path(__file__).parents[3] / "docs/metrics.md").read_text()

    assert {*(name.partition(":")[0] for name in gpu), *host, *others} == set(PUBLISHED)
    assert [name for name in PUBLISHED if f"`{name}`" not in document] == []


def test_where_nothing_is_measured_nothing_is_sent(node_metrics: NodeMetrics, bus: FakeEventBridge) -> None:
    node_metrics.put({}, START)

    assert bus.connections == 0


@pytest.mark.parametrize("error", ["AccessDenied", "Throttling", "InvalidParameterValue", "", "SignatureDoesNotMatch"])
def test_a_minute_that_is_not_taken_is_lost_and_said_once(
    publisher: Publisher, bus: FakeEventBridge, caplog: pytest.LogCaptureFixture, error: str
) -> None:
    bus.table.refusal = error
    if not error:
        bus.stop()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            publisher.publish()
        bus.table.refusal = ""
        if not error:
            bus.start()
        publisher.publish()

    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert error in str(vars(caplog.records[0])["why"])
    assert vars(caplog.records[1])["minutes_lost"] == 3
    assert len(bus.table.metrics) == 1


def test_each_reason_why_minutes_are_lost_is_said_once(
    publisher: Publisher, bus: FakeEventBridge, caplog: pytest.LogCaptureFixture
) -> None:
    for bus.table.refusal in ("AccessDenied", "Throttling", "AccessDenied", "", "AccessDenied"):
        publisher.publish()

    said = [str(vars(record)["why"]).split()[-1] for record in caplog.records if record.levelno == logging.ERROR]
    assert said == ["AccessDenied", "Throttling", "AccessDenied"]


def test_credentials_that_are_refused_are_found_anew(bus: FakeEventBridge, time: FakeTime) -> None:
    chain = CredentialChain(time.clock(), KEYS)
    forgotten: list[str] = []
    chain.forget = lambda: forgotten.append("credentials")  # type: ignore[method-assign]
    publisher = Publisher(
        NodeMetrics(AwsClient("monitoring", "eu-central-1", bus.url, chain, time.clock()), NODE),
        lambda: GAUGES,
        time.clock(),
    )
    for bus.table.refusal in ("Throttling", "ExpiredToken"):
        publisher.publish()

    assert forgotten == ["credentials"]


def test_an_answer_that_is_no_answer_is_a_lost_minute(
    publisher: Publisher, bus: FakeEventBridge, caplog: pytest.LogCaptureFixture
) -> None:
    bus.table.answer = lambda target, body: (type("A", (), {"status": 502, "hangs_up": False}), b"<html>")  # type: ignore[method-assign,assignment,return-value]

    publisher.publish()

    assert "CloudWatch answered 502" in str(vars(caplog.records[0])["why"])


def test_one_that_does_not_answer_is_a_lost_minute(
    time: FakeTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aws_client, "TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        post = AwsClient("monitoring", "eu-central-1", url, CredentialChain(time.clock(), KEYS), time.clock())

        Publisher(NodeMetrics(post, NODE), lambda: GAUGES, time.clock()).publish()

    assert "timed out" in str(vars(caplog.records[0])["why"])


def test_a_publisher_goes_on_until_it_is_stopped(node_metrics: NodeMetrics, bus: FakeEventBridge) -> None:
    publisher = Publisher(node_metrics, lambda: GAUGES, Clock(), every_seconds=0.02)
    publisher.start()

    eventually(lambda: len(bus.table.metrics) >= 3)
    publisher.stop(5)

    assert not publisher.is_alive()


@pytest.mark.parametrize(
    ("now", "then"), [(100.0, 160.0), (100.1, 160.0), (159.9, 160.0), (160.0, 220.0), (400.0, 460.0), (99.9, 160.0)]
)
def test_it_stays_at_its_moment_of_the_minute_whatever_a_call_takes(now: float, then: float) -> None:
    assert following(100.0, 60.0, now) == then


# What it costs --------------------------------------------------------------------------------------------------------

# CloudWatch in us-east-1: so many metrics at so many dollars a month each, and a call.
TIERS = ((10_000, 0.30), (240_000, 0.10), (750_000, 0.05), (10**12, 0.02))
CALL_USD, MINUTES_A_MONTH = 0.01 / 1000, 43_800
GPUS = 8


def metrics_usd(count: int) -> float:
    """A month of so many metrics."""
    usd = 0.0
    for room, price in TIERS:
        usd += min(count, room) * price
        count = max(0, count - room)
    return usd


def row(level: str, metrics_a_node: int, nodes: int) -> str:
    """One row of the table in docs/metrics.md."""
    count, calls = metrics_a_node * nodes, nodes * MINUTES_A_MONTH * CALL_USD
    usd = metrics_usd(count)
    return f"| `{level}` | {nodes:,} | {count:,} | {usd:,.0f} USD | {calls:,.0f} USD | {usd + calls:,.0f} USD |"


def test_the_bill_in_the_document_is_computed() -> None:
    document = (Path(__file__).parents[3] / "docs/metrics.md").read_text()
    of_gpus = [name for name in PUBLISHED if name.startswith("gpu_")]
    each = {"nodes": len(PUBLISHED), "gpus": len(PUBLISHED) + GPUS * len(of_gpus)}

    rows = [row(level, count, nodes) for level, count in each.items() for nodes in (100, 10_000, 100_000)]

    assert [line for line in rows if line not in document] == []
    assert f"{each['nodes']} metrics a node, {len(PUBLISHED) - len(of_gpus)} where there is no NVIDIA GPU" in document
    assert f"{each['gpus']} metrics a node of {GPUS} GPUs" in document
