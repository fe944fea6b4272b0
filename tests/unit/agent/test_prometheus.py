"""What a Prometheus on the node is told, and that nobody else is, nor anything held up."""

import contextlib
import http.client
import logging
import math
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from nodeheal import __version__
from nodeheal.agent.runtime.trainings import Trainings
from nodeheal.agent.transport import prometheus
from nodeheal.agent.transport.gauges import Sample
from nodeheal.agent.transport.prometheus import HELP, Exporter
from nodeheal.agent.transport.training_samples import training_samples
from tests.support.agent_fakes import NodeFolder, eventually
from tests.unit.agent.exposition import Family, Labels, parse
from tests.unit.agent.metrics_page import TRAINING, WHO, everything, exposition

GAUGES = {"cpu_used_percent": 45.0}
NODE = frozenset({("node", "mi-0a1b"), ("pool", "a100")})


def served(gauges: Mapping[str, float], *samples: Sample) -> dict[str, dict[Labels, float]]:
    """Every sample by its metric and its labels, without those of the node, which each one has."""
    families = parse(exposition(WHO, gauges, samples))
    assert all(labels >= NODE for family in families.values() for labels in family.samples)
    return {
        name: {labels - NODE: value for labels, value in family.samples.items()} for name, family in families.items()
    }


def labels(**given: str) -> Labels:
    return frozenset(given.items())


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def exporter(port: int) -> Iterator[Exporter]:
    exporter = Exporter(port, WHO, lambda: GAUGES, list)
    exporter.start()
    # Who asks a port that nobody listens on yet may be given that very port to ask from, and is answered by itself.
    eventually(lambda: exporter._server is not None and answers(port))
    yield exporter
    exporter.stop(5)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def ask(port: int, method: str = "GET", path: str = "/metrics") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    return connection.getresponse()


def said(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(4096).partition(b"\r\n")[0]


def test_gauges_are_served_in_base_units_with_the_labels_of_the_node() -> None:
    gauges = {
        "gpu_temperature_celsius:0": 45.0,
        "gpu_utilisation_percent:0": 97.0,
        "gpu_temperature_celsius:1": 61.0,
        'disk_used_percent:/a"b\\c\nd': 50.0,
        "network_receive_bytes_per_second": 1e12,
        "cpu_used_percent": math.nan,
    }

    found = served(gauges)

    assert found.pop("nodeheal_agent_info") == {labels(cluster="training", version=__version__): 1}
    assert found == {
        "nodeheal_gpu_temperature_celsius": {labels(gpu="0"): 45.0, labels(gpu="1"): 61.0},
        "nodeheal_gpu_utilisation_ratio": {labels(gpu="0"): 0.97},
        "nodeheal_disk_used_ratio": {labels(disk='/a"b\\c\nd'): 0.5},
        "nodeheal_network_receive_bytes_per_second": {labels(): 1e12},
    }


def test_gpus_carry_the_training_job_while_exactly_one_shows_its_steps() -> None:
    alone = {
        "gpu_power_watts:0": 700.0,
        "gpu_healthy:0": 1.0,
        "cpu_used_percent": 1.0,
        "training_step_age_seconds:llama/3": 2.0,
    }
    two = {**alone, "training_step_age_seconds:qwen": 5.0}

    assert served(alone)["nodeheal_gpu_power_watts"] == {labels(gpu="0", training_job="llama"): 700.0}
    assert served(alone)["nodeheal_cpu_used_ratio"] == {labels(): 0.01}
    assert served(alone)["nodeheal_gpu_healthy"] == {labels(gpu="0"): 1.0}
    assert served(two)["nodeheal_gpu_power_watts"] == {labels(gpu="0"): 700.0}
    assert served(two)["nodeheal_training_step_age_seconds"] == {
        labels(training_job="llama", run="3"): 2.0,
        labels(training_job="qwen"): 5.0,
    }


def test_the_age_of_a_step_that_a_check_and_the_heartbeats_measure_is_served_once() -> None:
    gauges = {"training_step_age_seconds:llama/3": 9.0, "training_step_age_seconds:qwen/1": 5.0}

    assert served(gauges, *training_samples([TRAINING], 0.0))["nodeheal_training_step_age_seconds"] == {
        labels(training_job="llama", run="3"): 1.0,
        labels(training_job="qwen", run="1"): 5.0,
    }


def test_no_name_that_a_job_gives_its_files_becomes_a_label(tmp_path: Path) -> None:
    for name in ('ll"ama.3.steps', "ll\nama.3.steps", "LLAMA.3.steps", "llama.3.steps", f"{'x' * 64}.3.steps"):
        (tmp_path / name).write_text('{"step": 500, "pause": "a\\"b"}')
    trainings = Trainings(tmp_path, lambda: 60.0, lambda: 60.0).look()

    found = served({}, *training_samples(trainings, 0.0))

    assert found["nodeheal_training_step"] == {labels(training_job="llama", run="3"): 500}


def test_a_loss_that_is_not_a_number_is_served_as_such() -> None:
    lost = replace(TRAINING, loss=math.nan)

    [loss] = served({}, *training_samples([lost], 0.0))["nodeheal_training_loss"].values()

    assert math.isnan(loss)


def test_samples_of_the_agent_are_served_beside_what_checks_measure() -> None:
    found = served(GAUGES, Sample("events_sent_total", 3), Sample("check_verdict", True, {"check": "disk"}))

    assert found["nodeheal_events_sent_total"] == {labels(): 3}
    assert found["nodeheal_check_verdict"] == {labels(check="disk"): 1}


def test_a_measure_of_a_check_that_nobody_knows_is_served_with_a_help_text() -> None:
    assert parse(exposition(WHO, {"room_temperature_celsius": 21.0}, ()))["nodeheal_room_temperature_celsius"].help


def test_every_metric_has_its_own_help_text_and_every_help_text_a_metric(node: NodeFolder) -> None:
    found = everything(node)

    assert {name: family.help for name, family in found.items()} == HELP


def test_the_document_lists_every_metric_with_its_labels_and_its_help_text(node: NodeFolder) -> None:
    document = (Path(__file__).parents[3] / "docs/metrics.md").read_text()
    listed = set(re.findall(r"^\| `nodeheal_\w+` \|.*$", document, re.MULTILINE))

    assert listed == {f"| `{name}` | {labels} | {text} |" for name, labels, text in rows(everything(node))}


def rows(found: dict[str, Family]) -> Iterator[tuple[str, str, str]]:
    """(metric, its labels beside the node's, what it says)"""
    for name, family in sorted(found.items()):
        names = {key for one in family.samples for key, _ in one} - {"node", "pool"}
        yield name, ", ".join(f"`{each}`" for each in sorted(names)), family.help


@pytest.mark.usefixtures("exporter")
def test_a_request_is_answered_in_the_text_format(port: int) -> None:
    answer = ask(port)

    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert answer.read().decode() == exposition(WHO, GAUGES, ())


def test_metrics_that_cannot_be_read_end_neither_the_exporter_nor_the_next_request(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    results = iter([RuntimeError("disk"), RuntimeError("disk"), []])

    def samples() -> list[Sample]:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return []

    exporter = Exporter(port, WHO, lambda: GAUGES, samples)
    exporter.start()
    eventually(lambda: exporter._server is not None and answers(port))

    assert [ask(port).status for _ in range(3)] == [500, 500, 200]
    assert [record.getMessage() for record in caplog.records] == ["metrics cannot be served; each request tries again"]
    exporter.stop(5)


@pytest.mark.usefixtures("exporter")
def test_a_caller_that_says_nothing_or_dribbles_is_not_waited_for_long(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "PATIENCE_SECONDS", 0.3)
    is_over = threading.Event()

    def dribbles(dribbler: socket.socket) -> None:
        with contextlib.suppress(OSError):  # until it is hung up on
            while not is_over.wait(0.05):
                dribbler.sendall(b"G")

    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as dribbler:
        threading.Thread(target=dribbles, args=(dribbler,), daemon=True).start()

        assert ask(port).status == 200
        is_over.set()


def test_only_this_node_can_ask(exporter: Exporter) -> None:
    assert exporter._server is not None
    assert exporter._server.server_address[0] == "127.0.0.1"


def test_a_port_that_somebody_has_is_said_once_and_tried_again(
    port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prometheus, "RETRY_SECONDS", 0.02)
    somebody = socket.create_server(("127.0.0.1", port))
    exporter = Exporter(port, WHO, lambda: GAUGES, list)
    with caplog.at_level(logging.ERROR):
        exporter.start()
        eventually(lambda: caplog.records)
        exporter.join(0.2)
        somebody.close()
        eventually(lambda: answers(port))

    assert [record.getMessage() for record in caplog.records] == ["metrics cannot be served; retrying"]
    exporter.stop(5)
    assert not exporter.is_alive()


def test_it_ends_while_it_waits_for_a_caller(exporter: Exporter, port: int) -> None:
    exporter.stop(5)

    assert not exporter.is_alive()
    assert not answers(port)
