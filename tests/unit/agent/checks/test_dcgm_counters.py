"""Double-bit error counters that DCGM's policies read, as `dcgmi dmon` shows them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.checks import dcgm_counters
from nodeheal.agent.checks.check import CheckContext, NodeCheckResult
from nodeheal.agent.checks.dcgm_drills import note
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.vocabulary import Action, Family, Verdict
from nodeheal.domain.faults.catalog import find
from tests.unit.agent.checks.places import Node, installed

HEADER = "#Entity         DBEVD       DBEVDEV\nID\n"


@dataclass
class Dmon:
    """A dcgmi that prints what the test writes, as `dmon` does without a count."""

    place: CheckContext
    printed: Path

    def prints(self, *rows: str) -> None:
        """The rows of one interval."""
        with self.printed.open("a") as file:
            file.write("".join(f"{row}\n" for row in rows))


@pytest.fixture
def dmon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dmon:
    node = Node(tmp_path).gpus(8, 8)
    printed = tmp_path / "printed"
    printed.write_text(HEADER)
    tool = installed(tmp_path, "dcgmi", monkeypatch)
    tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexec tail -n +1 -s 0.05 -f {printed}\n')
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.defpath}")
    monkeypatch.setattr(dcgm_counters, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(dcgm_counters, "TICK_SECONDS", 0.2)
    config = replace(node.place.config, drills=True, dcgm_drills_file=str(tmp_path / "drills.json"))
    (tmp_path / "boot").write_text("boot-1\n")
    return Dmon(replace(node.place, config=replace(config, boot_id_file=str(tmp_path / "boot"))), printed)


def row(gpu: int, *values: object) -> str:
    return f"{f'GPU {gpu}':16}" + "".join(f"{value!s:12}" for value in values)


def results(dmon: Dmon, *intervals: tuple[str, ...], **state: Any) -> Iterator[NodeCheckResult]:
    """What the check yields after each interval."""
    stream = dcgm_counters.stream(dmon.place, state)
    try:
        for rows in intervals:
            dmon.prints(*rows)
            yield next(stream)
    finally:
        stream.close()


def told(result: NodeCheckResult) -> list[tuple[str, str | None]]:
    return [(problem.finding.code, problem.finding.component) for problem in result.happened]


def test_a_value_injected_into_field_319_is_reported_with_its_gpu(dmon: Dmon) -> None:
    first, second = results(dmon, (row(0, 0, 0), row(1, 0, 0)), (row(0, 0, 4), row(1, 0, 0)))

    assert told(first) == []
    assert told(second) == [("POLICY_DBE", "GPU 0")]
    assert second.happened[0].evidence == "DCGM counts more double-bit errors of GPU 0: field 319 from 0 to 4"
    assert (dmon.printed.parent / "asked").read_text() == "dmon -e 311,319 -d 10000\n"


def test_a_counter_that_was_above_zero_before_the_first_reading_is_no_fault(dmon: Dmon) -> None:
    first, second, third = results(dmon, (row(3, 7, 7),), (row(3, 7, 7),), (row(3, 8, 8),))

    assert (told(first), told(second)) == ([], [])
    assert [problem.evidence.partition(": ")[2] for problem in third.happened] == [
        "field 311 from 7 to 8, field 319 from 7 to 8"
    ]


def test_a_restarted_agent_knows_the_counters_of_this_boot(dmon: Dmon) -> None:
    [result] = results(dmon, (row(3, 0, 1),), counts={"GPU 3/319": 0.0})

    assert told(result) == [("POLICY_DBE", "GPU 3")]


def test_an_injected_value_that_is_gone_again_is_no_second_fault_and_the_next_drill_is_one(dmon: Dmon) -> None:
    rows = [(row(0, 0, value),) for value in (0, 4, 0, "N/A", 4)]

    assert [len(result.happened) for result in results(dmon, *rows)] == [0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    "strange", ["GPU 0", "GPU 0  1", "GPU 0  1 2 3", "Switch 0  9 9", "GPU x  9 9", "dmon was stopped"]
)
def test_what_is_no_row_of_a_gpu_is_no_counter(dmon: Dmon, strange: str) -> None:
    first, second = results(dmon, (row(0, 0, 0),), (strange, row(0, 0, 0)))

    assert (told(first), told(second)) == ([], [])


def test_a_tool_that_shows_nothing_is_unclear(dmon: Dmon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcgm_counters, "SILENT_SECONDS", 0.0)

    assert dcgm_counters.look(dmon.place, {}).unclear == "dcgmi dmon shows no counters"


def test_a_drill_by_nodeheal_carries_its_mark_and_one_typed_on_the_node_does_not(dmon: Dmon) -> None:
    note(dmon.place.config, 0, 319, "4")

    _, drilled = results(dmon, (row(0, 0, 0), row(1, 0, 0)), (row(0, 0, 4), row(1, 0, 4)))

    assert [DRILL_MARK in problem.finding.message for problem in drilled.happened] == [True, False]


def test_a_rise_reboots_the_node_as_xid_48_does() -> None:
    rise, xid = find(Family.dcgm, "POLICY_DBE"), find(Family.xid, "48")

    assert rise is not None and xid is not None
    assert (rise.ladder, rise.verdict) == (xid.ladder, Verdict.FAILED)
    assert rise.action is Action.REBOOT


def test_nodes_without_gpus_or_dcgm_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = installed(tmp_path, "dcgmi", monkeypatch)
    without = dcgm_counters.why_not(Node(tmp_path).place)
    configured = dcgm_counters.why_not(Node(tmp_path, accelerators=2).place)
    tool.chmod(0o644)

    assert (bool(without), configured, bool(dcgm_counters.why_not(Node(tmp_path).gpus(8, 8).place))) == (True, "", True)
