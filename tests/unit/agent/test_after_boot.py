"""What the command of a reboot leaves for the next boot: run once, there only, and while it is worth something."""

import argparse
import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent import node_commands
from nodeheal.agent.commands import table as commands
from nodeheal.agent.commands.node_command import EXIT_REFUSED
from nodeheal.agent.node_commands import diag
from nodeheal.agent.runtime import orders
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.config import AgentConfig, load
from tests.support.agent_commands import ORDER, packed
from tests.support.agent_fakes import IDENTITY, NodeFolder


def enabled(_: Sequence[str]) -> str:
    return ""


@pytest.fixture
def config(node: NodeFolder) -> AgentConfig:
    return load(node.config_file)


@pytest.fixture
def place(config: AgentConfig) -> Path:
    return Path(config.orders_dir) / orders.FILE


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The diagnostics that are run."""
    run: list[list[str]] = []

    def carry_out(arguments: argparse.Namespace) -> int:
        run.append(sorted(f"{name}={_spelled(value)}" for name, value in vars(arguments).items()))
        return 0

    monkeypatch.setattr(node_commands, "carry_out", carry_out)
    return run


def _spelled(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def boots(node: NodeFolder, *more: str) -> int:
    return commands.carry_out(["after-boot", "--config", str(node.config_file), *more])


def test_what_was_left_is_run_once_after_the_boot(
    node: NodeFolder, config: AgentConfig, place: Path, asked: list[list[str]]
) -> None:
    assert orders.leave(packed(), config.boot_id(), config, enabled) == ORDER["request_id"]
    assert place.stat().st_mode & 0o777 == 0o600
    node.reboots("boot-2")

    assert [boots(node), boots(node)] == [0, 0]

    [options] = asked
    assert options == [
        "boot_id=boot-2",
        "checks=dcgm,efa",
        "command_name=diag",
        f"config={node.config_file}",
        "deadline_seconds=None",
        "expires_at=1790000000.0",
        "first=pcie",
        "level=2",
        "request_id=inc-1-2.0af",
    ]
    assert not place.exists()


def test_the_diagnostics_take_what_was_left(node: NodeFolder, config: AgentConfig, monkeypatch: Any) -> None:
    run: list[diag.DiagnoseCommand] = []

    def diagnose(order: diag.DiagnoseCommand, *_: object) -> int:
        run.append(order)
        return 0

    monkeypatch.setattr(diag, "diagnose", diagnose)
    orders.leave(packed(), config.boot_id(), config, enabled)
    node.reboots("boot-2")

    assert boots(node) == 0

    [order] = run
    assert (order.level, order.checks, order.first) == (2, ("dcgm", "efa"), ("pcie",))
    assert (order.boot_id, order.request_id, order.expires_at) == ("boot-2", "inc-1-2.0af", 1_790_000_000.0)


def test_on_the_boot_that_was_to_be_ended_nothing_is_run(
    node: NodeFolder, config: AgentConfig, place: Path, asked: list[list[str]]
) -> None:
    orders.leave(packed(), config.boot_id(), config, enabled)

    assert boots(node) == 3
    assert asked == []
    assert not place.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "!",
        packed([]),
        packed({**ORDER, "more": "x"}),
        packed({**ORDER, "level": 2}),
        packed({name: text for name, text in ORDER.items() if name != "first"}),
        packed({**ORDER, "first": "x" * 5_000}),
    ],
)
def test_what_is_no_order_is_not_left(config: AgentConfig, place: Path, text: str) -> None:
    assert orders.leave(text, "boot-1", config, enabled) == ""
    assert not place.exists()


def test_a_node_without_the_unit_leaves_nothing(config: AgentConfig, place: Path) -> None:
    asked: list[Sequence[str]] = []

    def disabled(command: Sequence[str]) -> str:
        asked.append(command)
        return "systemctl: exit code 1: disabled"

    assert orders.leave(packed(), "boot-1", config, disabled) == ""
    assert asked == [["systemctl", "is-enabled", "--quiet", orders.UNIT]]
    assert not place.exists()


def test_a_node_that_stays_up_forgets_it(config: AgentConfig, place: Path) -> None:
    orders.leave(packed(), "boot-1", config, enabled)

    orders.forget(config)
    orders.forget(config)

    assert not place.exists()


def a_link(place: Path) -> None:
    place.with_name("else").write_text(json.dumps({**ORDER, "node": IDENTITY.node_id, "not_on": "boot-1"}))
    place.symlink_to("else")


def a_text(place: Path) -> None:
    place.write_text("what?")


@pytest.mark.parametrize("lies_there", [a_link, a_text])
def test_what_is_no_order_of_roots_is_not_run(
    node: NodeFolder, place: Path, asked: list[list[str]], lies_there: Callable[[Path], None]
) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    lies_there(place)
    node.reboots("boot-2")

    boots(node)

    assert asked == []


def test_what_was_left_for_the_machine_of_which_this_disk_is_a_copy_is_not_run(
    node: NodeFolder, config: AgentConfig, place: Path, asked: list[list[str]]
) -> None:
    orders.leave(packed(), config.boot_id(), replace(config, node_id="mi-0origin"), enabled)
    node.reboots("boot-2")

    assert boots(node) == EXIT_REFUSED

    assert (asked, place.exists()) == ([], False)


def test_an_order_of_another_user_is_not_run(
    node: NodeFolder, config: AgentConfig, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.leave(packed(), "boot-1", config, enabled)
    node.reboots("boot-2")
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)

    boots(node)

    assert asked == []


def order_of(config: AgentConfig, seconds: float = 60) -> diag.DiagnoseCommand:
    until = Clock().utc_now().timestamp() + seconds
    return diag.DiagnoseCommand(1, "inc-1-2.0af", config.boot_id(), until)


def test_diagnostics_wait_for_those_that_run(config: AgentConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diag, "LOCK_POLL_SECONDS", 0.01)
    clock, order, seen, begun = Clock(), order_of(config), list[str](), threading.Event()
    place = Path(config.orders_dir)

    def second() -> None:
        begun.set()
        with diag.alone(place, order, config, clock) as refusal:
            seen.append(f"second {refusal}")

    assert not diag.is_running(config)
    with diag.alone(place, order, config, clock):
        thread = threading.Thread(target=second)
        thread.start()
        assert begun.wait(10)
        thread.join(0.1)
        assert diag.is_running(config)
        seen.append("first")
    thread.join(10)

    assert seen == ["first", "second None"]


def test_diagnostics_whose_order_expires_while_they_wait_are_refused(
    config: AgentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diag, "LOCK_POLL_SECONDS", 0.01)
    clock, place = Clock(), Path(config.orders_dir)

    with (
        diag.alone(place, order_of(config), config, clock),
        diag.alone(place, order_of(config, 0.05), config, clock) as refusal,
    ):
        assert "the command has expired" in str(refusal)


def test_where_nothing_can_be_locked_they_run(
    node: NodeFolder, config: AgentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Path) -> int:
        raise OSError("read-only")

    monkeypatch.setattr(diag, "_open_folder", broken)

    with diag.alone(Path(config.orders_dir), order_of(config), config, Clock()) as refusal:
        assert refusal is None
    assert not diag.is_running(config)


def test_what_was_left_is_dropped_where_a_command_runs_them(
    node: NodeFolder, config: AgentConfig, place: Path, asked: list[list[str]]
) -> None:
    """They would run beside the job that comes after that command."""
    orders.leave(packed(), "boot-1", config, enabled)
    node.reboots("boot-2")

    with diag.alone(place.parent, order_of(config), config, Clock()):
        assert boots(node) == 0

    assert asked == []
    assert not place.exists()


def test_a_command_that_comes_first_takes_away_what_was_left(
    config: AgentConfig, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.leave(packed(), "boot-0", config, enabled)
    monkeypatch.setattr(diag, "run_all", lambda *_: pytest.fail("ran") if place.exists() else [])
    monkeypatch.setattr(diag, "worst_of", lambda _: (_ for _ in ()).throw(KeyError("it ran")))

    with pytest.raises(KeyError, match="it ran"):
        diag.diagnose(order_of(config), config, None, None, Clock())  # type: ignore[arg-type]
