"""`nodeheal-agent run reboot`: one boot is ended once, whatever the SSM agent and the node do in between."""

import json
import os
import time as wall
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeheal.agent.node_commands.reboot import (
    DELAY_SECONDS,
    EXIT_REBOOT,
    FALLBACK_SECONDS,
    FORCED_UNIT,
    MARK,
    UNIT,
    RebootCommand,
    reboot,
)
from nodeheal.agent.runtime import systemd
from nodeheal.agent.runtime.config import load
from nodeheal.agent.runtime.orders import FILE
from tests.support.agent_commands import ORDER, packed
from tests.support.agent_documents import Ended, run_document
from tests.support.agent_fakes import IDENTITY, START, FakeTime, NodeFolder

DOCUMENT = Path(__file__).parents[3] / "packaging" / "ssm" / "reboot-node.json"
DONE, REFUSED = 0, 3
LIFE_SECONDS = 600


class Killed(BaseException):
    """kill -9, at that line."""


class Systemd:
    """systemd of one boot: it holds timers by name. `refuses`: what it says to every new timer."""

    def __init__(self) -> None:
        self.timers: dict[str, list[str]] = {}
        self.refuses = ""
        self.refuses_unit = ""

    def __call__(self, command: Sequence[str]) -> str:
        tool, *words = command
        if tool == "systemctl":
            assert words[:2] == ["is-active", "--quiet"]
            return "" if {name.removesuffix(".timer") for name in words[2:]} & set(self.timers) else "inactive"
        assert tool == "systemd-run"
        unit = words[0].removeprefix("--unit=")
        if self.refuses or unit == self.refuses_unit:
            return self.refuses or "no"
        if unit in self.timers:
            return f"Unit {unit}.timer was already loaded"
        self.timers[unit] = words
        return ""


class RebootingNode:
    """A node that is ordered to end its first boot."""

    def __init__(self, node: NodeFolder, time: FakeTime, capsys: pytest.CaptureFixture[str]) -> None:
        self.node = node
        self.systemd = Systemd()
        self._time = time
        self._capsys = capsys

    def is_ordered(self) -> int:
        """The command comes, for the first time or again; the exit code."""
        order = RebootCommand("boot-1", START.timestamp() + LIFE_SECONDS)
        return reboot(order, load(self.node.config_file), self._time.clock(), self.systemd)

    def reboots(self) -> None:
        """It comes up as another boot, and systemd has forgotten its timers."""
        self.node.reboots("boot-2")
        self.systemd.timers.clear()

    def has_left(self, seconds: float) -> None:
        """The command expires so soon."""
        self._time.seconds = LIFE_SECONDS - seconds

    def is_offline_until_the_order_has_expired(self) -> None:
        """The command lies with SSM."""
        self._time.seconds += LIFE_SECONDS

    @property
    def says(self) -> dict[str, str]:
        """The last line that it printed."""
        told: dict[str, str] = json.loads(self._capsys.readouterr().out.splitlines()[-1])
        return told


@pytest.fixture
def it(node: NodeFolder, time: FakeTime, capsys: pytest.CaptureFixture[str]) -> RebootingNode:
    return RebootingNode(node, time, capsys)


def test_the_order_ends_with_success_and_systemd_reboots_the_node_a_moment_later(it: RebootingNode) -> None:
    assert it.is_ordered() == DONE
    assert it.says == {"rebooting": "boot-1", "in_seconds": DELAY_SECONDS}

    timer = it.systemd.timers[UNIT]
    assert timer[-3:] == ["systemctl", "reboot", "-i"]
    assert {"--on-active=3", "--timer-property=AccuracySec=100ms", "--collect"} <= set(timer)


def test_a_shutdown_that_is_not_through_by_its_bound_is_forced(it: RebootingNode) -> None:
    it.is_ordered()

    timer = it.systemd.timers[FORCED_UNIT]
    assert "--on-active=153" in timer
    assert "reboot --force --no-sync" in timer[-1]
    # systemd stops all other timers when the shutdown begins, and starts no other service in it
    outlives = {"--timer-property=DefaultDependencies=no", "--property=DefaultDependencies=no", "--slice=-.slice"}
    assert outlives <= set(timer)


def test_the_bound_is_the_configurations(it: RebootingNode) -> None:
    with it.node.config_file.open("a") as config:
        config.write("reboot_force_seconds = 600\n")

    it.is_ordered()

    assert "--on-active=603" in it.systemd.timers[FORCED_UNIT]


def test_an_order_that_comes_twice_in_one_boot_arms_one_reboot(it: RebootingNode) -> None:
    it.is_ordered()
    armed = dict(it.systemd.timers)

    assert it.is_ordered() == DONE
    assert it.systemd.timers == armed


def test_an_order_that_comes_again_while_the_node_shuts_down_asks_the_ssm_agent_for_no_second_reboot(
    it: RebootingNode,
) -> None:
    it.is_ordered()
    del it.systemd.timers[UNIT]  # it has elapsed, and a system that shuts down starts no timer
    it.systemd.refuses = "Transaction is destructive."

    assert it.is_ordered() == DONE


def test_a_reboot_that_could_not_be_bounded_is_made_all_the_same(it: RebootingNode) -> None:
    it.systemd.refuses_unit = FORCED_UNIT

    assert it.is_ordered() == DONE
    assert list(it.systemd.timers) == [UNIT]


def test_where_systemd_takes_no_timer_the_ssm_agent_is_asked_for_the_reboot(it: RebootingNode) -> None:
    it.systemd.refuses = "systemd-run: No such file or directory"

    assert it.is_ordered() == EXIT_REBOOT
    assert it.says == {"rebooting": "boot-1", "in_seconds": FALLBACK_SECONDS}

    it.reboots()

    assert it.is_ordered() == DONE
    assert it.says == {"already_rebooted": "boot-1", "boot_id": "boot-2"}


@pytest.mark.parametrize(
    ("systemd_says", "left", "code"),
    [("", 3, DONE), ("", 2.9, REFUSED), ("missing", 70, EXIT_REBOOT), ("missing", 69, REFUSED)],
)
def test_a_node_that_would_go_down_after_the_orders_end_stays_up(
    it: RebootingNode, systemd_says: str, left: float, code: int
) -> None:
    it.systemd.refuses = systemd_says
    it.has_left(left)

    assert it.is_ordered() == code
    if code == REFUSED:
        assert it.systemd.timers == {}
        assert "the command expires in" in it.says["refused"]
        it.has_left(-1)
        it.reboots()
        assert it.is_ordered() == REFUSED  # no mark claims that boot


@pytest.mark.parametrize(
    ("script", "why"),
    [(None, "No such file or directory"), ("echo 'Access denied' >&2; exit 1", "exit code 1: Access denied")],
)
def test_a_tool_of_systemd_that_is_missing_or_fails_says_why(
    tmp_path: Path, script: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    if script is not None:
        (tmp_path / "tool").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "tool").chmod(0o755)

    assert systemd.call(["tool", "--now"]) == f"tool: {why}"


def test_a_service_manager_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "DEADLINE_SECONDS", 0.05)

    assert systemd.call(["sleep", "60"]) == "sleep: no answer within 0.05 s"


def test_the_rerun_after_the_reboot_does_nothing_and_is_a_success(it: RebootingNode) -> None:
    it.is_ordered()
    it.reboots()

    assert it.is_ordered() == DONE
    assert it.says == {"already_rebooted": "boot-1", "boot_id": "boot-2"}


def test_a_boot_that_took_longer_than_the_order_lives_is_still_a_success(it: RebootingNode) -> None:
    it.is_ordered()
    it.reboots()
    it.is_offline_until_the_order_has_expired()

    assert it.is_ordered() == DONE


def test_a_node_that_has_rebooted_of_itself_while_it_was_asked_to_is_left_alone(it: RebootingNode) -> None:
    it.reboots()

    assert it.is_ordered() == DONE


def test_an_order_that_comes_late_to_its_boot_is_refused(it: RebootingNode) -> None:
    it.is_offline_until_the_order_has_expired()

    assert it.is_ordered() == REFUSED
    end = f"{START.timestamp() + LIFE_SECONDS:.0f}"
    assert it.says == {"refused": f"the command has expired: its end is {end}, this node's clock says {end}"}


def test_an_end_that_is_no_number_is_over(node: NodeFolder, time: FakeTime) -> None:
    order = RebootCommand("boot-1", float("nan"))

    assert reboot(order, load(node.config_file), time.clock(), Systemd()) == REFUSED


def test_an_order_that_comes_late_to_another_boot_is_refused(it: RebootingNode) -> None:
    it.reboots()
    it.is_offline_until_the_order_has_expired()

    assert it.is_ordered() == REFUSED
    assert it.says == {"refused": "meant for boot boot-1, this is boot-2"}


def test_an_order_of_an_earlier_boot_is_not_taken_for_the_last_one(it: RebootingNode) -> None:
    it.node.orders_dir.mkdir()
    (it.node.orders_dir / MARK).write_text('{"boot_id": "boot-0"}')
    it.reboots()
    it.is_offline_until_the_order_has_expired()

    assert it.is_ordered() == REFUSED


@pytest.mark.parametrize("line", ["fsync", "replace"])
@pytest.mark.parametrize("systemd_says", ["", "missing"])
def test_killed_before_it_could_answer_it_does_the_same_when_asked_again(
    it: RebootingNode, line: str, systemd_says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Killed

    it.systemd.refuses = systemd_says
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[line], die)
        it.is_ordered()

    assert it.is_ordered() == (EXIT_REBOOT if systemd_says else DONE)
    it.reboots()
    it.is_offline_until_the_order_has_expired()
    assert it.is_ordered() == DONE
    assert it.systemd.timers == {}


def test_a_disk_that_takes_nothing_keeps_no_node_from_its_reboot(it: RebootingNode) -> None:
    it.node.orders_dir.write_text("a file where a folder should be")

    assert it.is_ordered() == DONE
    assert UNIT in it.systemd.timers


@pytest.mark.parametrize("content", ["", "{", "[]", "\udcff", '{"boot_id": 7}'])
def test_a_mark_that_is_none_marks_nothing(it: RebootingNode, content: str) -> None:
    it.node.orders_dir.mkdir()
    (it.node.orders_dir / MARK).write_bytes(content.encode("utf-8", "surrogateescape"))
    it.reboots()
    it.is_offline_until_the_order_has_expired()

    assert it.is_ordered() == REFUSED


def run_reboot(node: NodeFolder, expires_in: float = 60, left: str = "none") -> Ended:
    values = {"BootId": "boot-1", "ExpiresAt": str(int(wall.time() + expires_in)), "AfterBoot": left}
    return run_document(node, "reboot-node", values)


def test_the_document_passes_on_what_the_agent_answers(node: NodeFolder) -> None:
    late, asked = run_reboot(node, expires_in=-1), run_reboot(node)
    called = node.systemd_log.read_text()
    node.reboots("boot-2")
    rerun = run_reboot(node)

    assert [late.returncode, asked.returncode, rerun.returncode] == [REFUSED, DONE, DONE]
    assert "the command has expired: its end is " in late.stderr
    assert called.count("systemd-run --unit=nodeheal-reboot --on-active=3 ") == 1
    assert node.systemd_log.read_text() == called


def test_the_diagnostics_that_the_document_brings_are_left_on_the_node(node: NodeFolder) -> None:
    asked = run_reboot(node, left=packed())

    left = json.loads((node.orders_dir / FILE).read_text())
    assert json.loads(asked.stdout)["diagnoses"] == ORDER["request_id"]
    assert left == {**ORDER, "node": IDENTITY.node_id, "not_on": "boot-1"}


def test_a_reboot_that_nobody_can_make_leaves_no_diagnostics(node: NodeFolder) -> None:
    node.has_tool("systemd-run", "exit 1")
    node.has_tool("systemctl", '[ "$1" = is-enabled ]')

    late, asked = run_reboot(node, expires_in=10, left=packed()), run_reboot(node, expires_in=100, left=packed())

    assert (late.returncode, asked.returncode) == (REFUSED, EXIT_REBOOT)
    assert "diagnoses" not in asked.stdout
    assert not (node.orders_dir / FILE).exists()


def test_a_node_without_systemd_run_is_rebooted_by_the_ssm_agent(node: NodeFolder) -> None:
    node.has_tool("systemd-run", "exit 1")
    node.has_tool("systemctl", "exit 3")

    asked = run_reboot(node, expires_in=100)

    assert asked.returncode == EXIT_REBOOT
    assert json.loads(asked.stdout) == {"rebooting": "boot-1", "in_seconds": FALLBACK_SECONDS}


def test_a_node_whose_boot_is_unknown_is_neither_rebooted_nor_taken_for_rebooted(node: NodeFolder) -> None:
    for break_it, code in ((lambda: node.boot_id_file.write_text("\n"), 78), (node.boot_id_file.unlink, 71)):
        break_it()

        ended = run_reboot(node)

        assert ended.returncode == code
        assert "boot_id" in ended.stderr
