"""A fault of an accelerator bears its serial, also when the accelerator does not answer any more."""

import json

import pytest

from nodeheal.agent.checks.check_result import NodeCheckResult, Problem
from nodeheal.agent.identity.serials import Serials
from nodeheal.contract.vocabulary import Family
from nodeheal.parsers.finding import Finding
from tests.support.agent_fakes import NodeFolder, xid
from tests.support.agent_loop import Run

PCI, UUID, SERIAL = "0000:b9:00.0", "GPU-aaaa", "1651323000001"
GPU = NodeCheckResult(called={"gpu:0": {"pci": PCI, "uuid": UUID, "serial": SERIAL}})


def serials_of(run: Run) -> list[str | None]:
    return [json.loads(detail).get("component_serial") for detail in run.told()]


def test_what_the_kernel_reports_of_a_gpu_bears_its_serial(node: NodeFolder) -> None:
    run = Run(node)
    run.look(GPU)
    node.logs(xid(79))
    run.agent.step()

    assert serials_of(run) == [SERIAL]


def test_also_of_one_that_was_lost_before_the_agent_was_started_again(node: NodeFolder) -> None:
    first = Run(node)
    first.look(GPU)
    first.agent._keep([])
    first.spool.close()
    run = Run(node)
    run.look(NodeCheckResult())
    node.logs(xid(79))
    run.agent.step()

    assert serials_of(run) == [SERIAL]


def test_what_a_check_finds_by_its_uuid_bears_it_too_and_nothing_else_does(node: NodeFolder) -> None:
    problems = (
        Problem(Finding(Family.dcgm, "DCGM_FR_VOLATILE_DBE_DETECTED", UUID, "an error")),
        Problem(Finding(Family.host, "disk_full", "/", "no room")),
    )
    run = Run(node)
    run.look(NodeCheckResult(problems, called=GPU.called))

    assert serials_of(run) == [SERIAL, None]


def test_another_boot_begins_without(node: NodeFolder) -> None:
    serials = Serials({}, "boot-1")
    serials.learn(GPU.called.values())

    again, after = Serials(serials.dump(), "boot-1"), Serials(serials.dump(), "boot-2")

    assert again.dump() == serials.dump()
    assert after.dump() == Serials({}, "boot-2").dump()


@pytest.mark.parametrize("serial", ["", "0", "[N/A]", "N/A", "1651 323000", "x" * 65, "\udcff" * 8])
def test_what_stands_for_none_is_none(serial: str) -> None:
    serials = Serials({}, "boot-1")
    serials.learn([{"pci": PCI, "serial": serial}])

    assert serials.dump() == Serials({}, "boot-1").dump()


@pytest.mark.parametrize("saved", [None, 5, {"boot_id": "boot-1"}, {"boot_id": "boot-1", "by_name": [1]}])
def test_a_state_that_others_wrote_is_no_obstacle(saved: object) -> None:
    assert Serials({"serials": saved}, "boot-1").dump() == Serials({}, "boot-1").dump()
