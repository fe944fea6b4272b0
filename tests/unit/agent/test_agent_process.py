"""The agent as a process on a node: what a fault, a crash, an outage and a reboot look like from the bus."""

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeheal.agent.commands.command_line import EXIT_CONFIG
from nodeheal.agent.main import main
from nodeheal.agent.node_commands import all_commands
from nodeheal.contract.health_event import HealthEvent, NodeBooted
from sandbox.toml import toml
from tests.support.agent_fakes import (
    XID_79,
    Answer,
    FakeEventBridge,
    NodeFolder,
    eventually,
    kernel_line,
    xid,
)
from tests.support.agent_process import AgentProcess

PRINT_LOADED = "print(*(name for name, module in sys.modules.items() if '__getattr__' not in vars(module)))"
RESIDENT_KIB = 45 * 1024


@pytest.fixture
def agent(node: NodeFolder) -> Iterator[AgentProcess]:
    process = AgentProcess(node)
    yield process
    process.clean_up()


def boots(bus: FakeEventBridge) -> list[str]:
    return [detail["boot_id"] for detail in bus.details("Node Booted")]


def test_a_node_that_comes_up_says_so_and_then_what_is_wrong(
    node: NodeFolder, agent: AgentProcess, bus: FakeEventBridge
) -> None:
    agent.start()
    eventually(lambda: boots(bus))
    node.logs(kernel_line(XID_79))

    eventually(lambda: bus.codes() == ["79"])

    booted = NodeBooted.model_validate(bus.details("Node Booted")[0])
    assert (booted.boot_id, booted.address, booted.accelerators) == ("boot-1", "10.0.0.7", 8)
    assert HealthEvent.model_validate(bus.details()[0]).evidence == kernel_line(XID_79).rstrip()
    assert agent.ends(signal.SIGTERM) == 0


def test_an_agent_that_is_interrupted_ends_well(node: NodeFolder, agent: AgentProcess, bus: FakeEventBridge) -> None:
    agent.start()
    eventually(lambda: boots(bus))

    assert agent.ends(signal.SIGINT) == 0


def test_what_is_grave_goes_around_a_bus_that_takes_nothing(
    node: NodeFolder, agent: AgentProcess, bus: FakeEventBridge
) -> None:
    bus.always = Answer(500)
    node.config_file.write_text(toml({**node.config(), "fallback_seconds": 0.1}))
    agent.start()
    eventually(lambda: bus.calls)
    node.logs(kernel_line(XID_79))

    eventually(lambda: any("xid" in published for published in bus.table.published))

    assert agent.ends(signal.SIGTERM) == 0


def test_nothing_goes_around_a_bus_that_has_not_failed_for_as_long_as_was_said(
    node: NodeFolder, agent: AgentProcess, bus: FakeEventBridge
) -> None:
    bus.always = Answer(500)
    node.config_file.write_text(toml({**node.config(), "fallback_seconds": 60}))
    agent.start()
    eventually(lambda: bus.calls)
    node.logs(kernel_line(XID_79))

    eventually(lambda: "79" in _spooled(node) and len(bus.calls) >= 4)

    assert bus.table.published == []
    assert agent.ends(signal.SIGTERM) == 0


def test_the_agent_gives_heartbeats(tmp_path: Path, bus: FakeEventBridge) -> None:
    node = NodeFolder(tmp_path, bus.url, heartbeat_seconds=0.2)
    agent = AgentProcess(node)
    agent.start()

    eventually(lambda: len(bus.table.beats) >= 3)

    assert not [entry for entry in bus.accepted if "heartbeat" in entry["Detail"]]
    agent.clean_up()


def test_metrics_are_told_where_they_are_asked_for(node: NodeFolder, agent: AgentProcess, bus: FakeEventBridge) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    node.config_file.write_text(toml({**node.config(), "checks": ["host_load"], "prometheus_port": port}))
    agent.start()

    eventually(lambda: "nodeheal_memory_used_ratio" in _scraped(port))

    assert bus.table.metrics == []
    assert agent.ends(signal.SIGTERM) == 0


def _scraped(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_an_agent_whose_role_may_not_publish_its_key_keeps_its_events_until_it_may(
    node: NodeFolder, agent: AgentProcess, bus: FakeEventBridge
) -> None:
    bus.table.refusal = "AccessDeniedException"
    agent.start()
    eventually(lambda: "Node Booted" in _kinds_spooled(node))
    node.logs(xid(79))
    eventually(lambda: _spooled(node) == ["79"])
    assert bus.accepted == []

    bus.table.refusal = ""

    eventually(lambda: bus.codes() == ["79"])


def test_an_outage_delays_a_fault_and_loses_nothing(
    node: NodeFolder, agent: AgentProcess, bus: FakeEventBridge
) -> None:
    agent.start()
    eventually(lambda: boots(bus))
    bus.stop()
    node.logs(xid(31) + xid(79))
    eventually(lambda: _spooled(node) == ["31", "79"])

    bus.start()

    eventually(lambda: bus.codes() == ["31", "79"])


def test_a_killed_agent_loses_nothing_and_repeats_nothing(
    node: NodeFolder, agent: AgentProcess, bus: FakeEventBridge
) -> None:
    agent.start()
    eventually(lambda: boots(bus))
    node.logs(xid(1))
    eventually(lambda: bus.codes() == ["1"])
    for code in range(2, 8):
        node.logs(xid(code))
        agent.ends(signal.SIGKILL)
        node.logs(xid(code + 100))
        agent.start()

    expected = [str(number) for code in range(2, 8) for number in (code, code + 100)]
    eventually(lambda: len(set(bus.codes())) == 1 + len(expected))

    ids = {detail["event_id"] for detail in bus.details()}
    assert len(ids) == 1 + len(expected)  # a call that was cut off may be sent again, under the same id
    assert list(dict.fromkeys(bus.codes())) == ["1", *expected]
    assert len({detail["event_id"] for detail in bus.details("Node Booted")}) == 1


def test_events_that_waited_when_the_agent_was_killed_are_delivered_by_the_next_one(
    node: NodeFolder, agent: AgentProcess, bus: FakeEventBridge
) -> None:
    agent.start()
    eventually(lambda: boots(bus))
    bus.stop()
    node.logs(xid(79))
    eventually(lambda: _spooled(node) == ["79"])
    agent.ends(signal.SIGKILL)
    bus.start()

    agent.start()

    eventually(lambda: bus.codes() == ["79"])


def test_a_fault_from_before_a_reboot_is_told_as_the_old_boots(
    node: NodeFolder, agent: AgentProcess, bus: FakeEventBridge
) -> None:
    agent.start()
    eventually(lambda: boots(bus))
    agent.ends(signal.SIGKILL)
    node.logs(xid(79))
    node.reboots("boot-2")

    agent.start()
    eventually(lambda: "boot-2" in boots(bus))
    node.logs(xid(31))
    eventually(lambda: len(bus.codes()) == 2)

    assert [(detail["code"], detail["boot_id"]) for detail in bus.details()] == [("79", "boot-1"), ("31", "boot-2")]
    # What was accepted just before the kill may be sent again, under the same id.
    assert list(dict.fromkeys(boots(bus))) == ["boot-1", "boot-2"]


def test_the_agent_is_small(node: NodeFolder, agent: AgentProcess, bus: FakeEventBridge) -> None:
    agent.start()
    eventually(lambda: boots(bus))

    status = Path(f"/proc/{agent.pid}/status").read_text()

    resident = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    assert resident < RESIDENT_KIB


def test_the_agent_needs_neither_pydantic_nor_boto3() -> None:
    orders = {order.carry_out.__module__ for order in all_commands().values()}

    modules = _loaded_with("nodeheal.agent.main", *orders)

    loaded = {name.partition(".")[0] for name in modules}
    assert orders <= modules
    assert not loaded & {"pydantic", "pydantic_core", "boto3", "botocore"}


def test_the_agent_that_watches_holds_nothing_of_what_orders_and_gpus_need() -> None:
    loaded = _loaded_with("nodeheal.agent.main", "nodeheal.agent.runtime.watching", "nodeheal.agent.runtime.loop")
    loaded |= _loaded_with("nodeheal.agent.transport.connect", "nodeheal.agent.runtime.compose")

    assert "nodeheal.agent.transport.sender" in loaded
    assert [name for name in loaded if name.startswith("nodeheal.agent.commands.node_command")] == []
    assert not loaded & {"tarfile", "ctypes"}
    assert not loaded & {"pynvml", "prometheus_client"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [("node = 1", "agent.toml: unknown key 'node'"), ("checks = ['dusk']", "there is no check 'dusk'; there are ")],
)
def test_a_wrong_configuration_is_named(node: NodeFolder, wrong: str, words: str) -> None:
    told = {key: value for key, value in node.config().items() if key != "checks"}
    node.config_file.write_text(f"{wrong}\n{toml(told)}")

    ended = subprocess.run(
        [sys.executable, "-m", "nodeheal.agent.main", "watch"],
        env=node.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 78
    assert words in ended.stderr


@pytest.mark.parametrize("words", [["watch", "--config"], ["--config"]])
def test_the_file_that_is_named_comes_before_the_environments(
    node: NodeFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, words: list[str]
) -> None:
    monkeypatch.setenv("NODEHEAL_AGENT_CONFIG", str(node.directory / "of-the-environment.toml"))
    named = node.directory / "named.toml"
    named.write_text("nodes = 1\n")

    code = main([*words, str(named), *(["watch"] if words[0] != "watch" else [])])

    assert code == EXIT_CONFIG
    assert str(vars(caplog.records[-1])["why"]).startswith(f"{named}: unknown key 'nodes'")


def _kinds_spooled(node: NodeFolder) -> list[str]:
    if not (node.state_dir / "spool.db").exists():
        return []
    with sqlite3.connect(f"file:{node.state_dir / 'spool.db'}?mode=ro", uri=True) as database:
        is_made = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone()
        return [row[0] for row in database.execute("SELECT detail_type FROM events")] if is_made else []


def _spooled(node: NodeFolder) -> list[str]:
    with sqlite3.connect(f"file:{node.state_dir / 'spool.db'}?mode=ro", uri=True) as database:
        details = [json.loads(row[0]) for row in database.execute("SELECT detail FROM events ORDER BY seq")]
    return [detail["code"] for detail in details if detail.get("family") == "xid"]


def _loaded_with(*modules: str) -> set[str]:
    """Every module that these bring along, without those that were put off."""
    put_off = "from nodeheal.agent.runtime.lazy_imports import load_when_used; load_when_used()"
    loaded = subprocess.run(
        [sys.executable, "-c", f"{put_off}\nimport sys, {', '.join(modules)}\n{PRINT_LOADED}"],
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(loaded.stdout.split())
