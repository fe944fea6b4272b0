"""What a Prometheus on the node is told, and that nobody else is, nor anything held up."""

import contextlib
import http.client
import logging
import math
import socket
from collections.abc import Iterator

import pytest

from nodeheal import __version__
from nodeheal.agent import prometheus
from nodeheal.agent.prometheus import Exporter, exposition
from tests.unit.agent.fakes import eventually

INFO = f'# TYPE nodeheal_agent_info gauge\nnodeheal_agent_info{{node="mi-0a1b",version="{__version__}"}} 1\n'
GAUGES = {"cpu_used_percent": 45.0}


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def exporter(port: int) -> Iterator[Exporter]:
    exporter = Exporter(port, "mi-0a1b", lambda: GAUGES)
    exporter.start()
    # Who asks a port that nobody listens on yet may be given that very port to ask from, and is answered by itself.
    eventually(lambda: exporter._listener is not None and answers(port))
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


def test_gauges_are_told_in_base_units_with_the_samples_of_one_name_together() -> None:
    gauges = {
        "gpu_temperature_celsius:0": 45.0,
        "gpu_utilisation_percent:0": 97.0,
        "gpu_temperature_celsius:1": 61.0,
        'disk_used_percent:/a"b\\c\nd': 50.0,
        "network_receive_bytes_per_second": 1e12,
        "cpu_used_percent": math.nan,
    }

    assert exposition("mi-0a1b", gauges) == INFO + (
        "# TYPE nodeheal_gpu_temperature_celsius gauge\n"
        'nodeheal_gpu_temperature_celsius{gpu="0"} 45.0\n'
        'nodeheal_gpu_temperature_celsius{gpu="1"} 61.0\n'
        "# TYPE nodeheal_gpu_utilisation_ratio gauge\n"
        'nodeheal_gpu_utilisation_ratio{gpu="0"} 0.97\n'
        "# TYPE nodeheal_disk_used_ratio gauge\n"
        'nodeheal_disk_used_ratio{disk="/a\\"b\\\\c\\nd"} 0.5\n'
        "# TYPE nodeheal_network_receive_bytes_per_second gauge\n"
        "nodeheal_network_receive_bytes_per_second 1000000000000.0\n"
    )


@pytest.mark.usefixtures("exporter")
def test_whoever_asks_is_told(port: int) -> None:
    answer = ask(port)

    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert answer.read().decode() == INFO + "# TYPE nodeheal_cpu_used_ratio gauge\nnodeheal_cpu_used_ratio 0.45\n"
    assert ask(port, path="/metrics?name=x").status == 200


@pytest.mark.usefixtures("exporter")
def test_what_is_no_question_is_refused(port: int) -> None:
    refused = [ask(port, "POST").status, ask(port, path="/").status]
    nonsense = [said(port, one) for one in (b"", b"\0\xff\r\n\r\n", b"GET /metrics\r\n\r\n")]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as flood, contextlib.suppress(ConnectionError):
        flood.sendall(b"x" * 1_000_000)

    assert refused == [405, 404]
    assert nonsense == [b"HTTP/1.1 400 Bad Request"] * 3
    assert ask(port).status == 200


@pytest.mark.usefixtures("exporter")
def test_a_caller_that_says_nothing_or_dribbles_is_not_waited_for_long(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "PATIENCE_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as dribbler:
        dribbler.sendall(b"G")

        assert ask(port).status == 200


def test_only_this_node_can_ask(exporter: Exporter) -> None:
    assert exporter._listener is not None
    assert exporter._listener.getsockname()[0] == "127.0.0.1"


def test_a_port_that_somebody_has_is_said_once_and_tried_again(
    port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prometheus, "RETRY_SECONDS", 0.02)
    somebody = socket.create_server(("127.0.0.1", port))
    exporter = Exporter(port, "mi-0a1b", lambda: GAUGES)
    with caplog.at_level(logging.ERROR):
        exporter.start()
        eventually(lambda: caplog.records)
        exporter.join(0.2)
        somebody.close()
        eventually(lambda: answers(port))

    assert [record.getMessage() for record in caplog.records] == ["nobody can ask for metrics"]
    exporter.stop(5)
    assert not exporter.is_alive()


def test_it_ends_while_it_waits_for_a_caller(exporter: Exporter, port: int) -> None:
    exporter.stop(5)

    assert not exporter.is_alive()
    assert not answers(port)
