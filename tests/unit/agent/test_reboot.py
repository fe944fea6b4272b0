"""`nodeheal-agent run reboot`: one boot is ended once, whatever the SSM agent and the node do in between."""

import json
import os
import time as wall
from pathlib import Path

import pytest

from nodeheal.agent.config import load
from nodeheal.agent.reboot import EXIT_REBOOT, MARK, RebootOrder, reboot
from tests.unit.agent.documents import Ended, run_document
from tests.unit.agent.fakes import START, FakeTime, NodeFolder

DOCUMENT = Path(__file__).parents[3] / "packaging" / "ssm" / "reboot-node.json"
DONE, REFUSED = 0, 3
LIFE_SECONDS = 600


class Killed(BaseException):
    """kill -9, at that line."""


class RebootingNode:
    """A node that is ordered to end its first boot."""

    def __init__(self, node: NodeFolder, time: FakeTime, capsys: pytest.CaptureFixture[str]) -> None:
        self.node = node
        self._time = time
        self._capsys = capsys

    def is_ordered(self) -> int:
        """The order comes, for the first time or again; the exit code."""
        order = RebootOrder("boot-1", START.timestamp() + LIFE_SECONDS)
        return reboot(order, load(self.node.config_file), self._time.clock())

    def reboots(self) -> None:
        """It comes up as another boot."""
        self.node.reboots("boot-2")

    def is_offline_until_the_order_has_expired(self) -> None:
        """The order lies with SSM."""
        self._time.seconds += LIFE_SECONDS

    @property
    def says(self) -> dict[str, str]:
        """The last line that it printed."""
        told: dict[str, str] = json.loads(self._capsys.readouterr().out.splitlines()[-1])
        return told


@pytest.fixture
def it(node: NodeFolder, time: FakeTime, capsys: pytest.CaptureFixture[str]) -> RebootingNode:
    return RebootingNode(node, time, capsys)


def test_the_boot_that_is_meant_is_ended(it: RebootingNode) -> None:
    assert it.is_ordered() == EXIT_REBOOT
    assert it.says == {"rebooting": "boot-1"}


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
    assert it.says == {"refused": f"the order has expired: its end is {end}, this node's clock says {end}"}


def test_an_end_that_is_no_number_is_over(node: NodeFolder, time: FakeTime) -> None:
    order = RebootOrder("boot-1", float("nan"))

    assert reboot(order, load(node.config_file), time.clock()) == REFUSED


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


def test_an_order_that_is_rerun_before_the_node_has_gone_down_asks_again(it: RebootingNode) -> None:
    it.is_ordered()

    assert it.is_ordered() == EXIT_REBOOT


@pytest.mark.parametrize("line", ["fsync", "replace"])
def test_killed_before_it_could_answer_it_has_done_nothing_and_does_it_when_asked_again(
    it: RebootingNode, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[line], die)
        it.is_ordered()

    assert it.is_ordered() == EXIT_REBOOT
    it.reboots()
    it.is_offline_until_the_order_has_expired()
    assert it.is_ordered() == DONE


def test_a_disk_that_takes_nothing_keeps_no_node_from_its_reboot(it: RebootingNode) -> None:
    it.node.orders_dir.write_text("a file where a folder should be")

    assert it.is_ordered() == EXIT_REBOOT


@pytest.mark.parametrize("content", ["", "{", "[]", "\udcff", '{"boot_id": 7}'])
def test_a_mark_that_is_none_marks_nothing(it: RebootingNode, content: str) -> None:
    it.node.orders_dir.mkdir()
    (it.node.orders_dir / MARK).write_bytes(content.encode("utf-8", "surrogateescape"))
    it.reboots()
    it.is_offline_until_the_order_has_expired()

    assert it.is_ordered() == REFUSED


def run_reboot(node: NodeFolder, expires_in: float = 60) -> Ended:
    values = {"BootId": "boot-1", "ExpiresAt": str(int(wall.time() + expires_in))}
    return run_document(node, "reboot-node", values)


def test_the_document_passes_on_what_the_agent_answers(node: NodeFolder) -> None:
    late, asked = run_reboot(node, expires_in=-1), run_reboot(node)
    node.reboots("boot-2")
    rerun = run_reboot(node)

    assert [late.returncode, asked.returncode, rerun.returncode] == [REFUSED, EXIT_REBOOT, DONE]
    assert "the order has expired: its end is " in late.stderr


def test_a_node_whose_boot_is_unknown_is_neither_rebooted_nor_taken_for_rebooted(node: NodeFolder) -> None:
    for break_it, code in ((lambda: node.boot_id_file.write_text("\n"), 78), (node.boot_id_file.unlink, 71)):
        break_it()

        ended = run_reboot(node)

        assert ended.returncode == code
        assert "boot_id" in ended.stderr
