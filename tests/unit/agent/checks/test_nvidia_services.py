"""Services around NVIDIA GPUs, and versions that do not fit."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.agent.checks import nvidia_services
from nodeheal.agent.checks.check import NodeCheckResult
from nodeheal.agent.checks.nvidia_services import FABRIC_MANAGER, IMEX, PERSISTENCE, judge_units, parse_units
from tests.unit.agent.checks.places import HUNG, Node, says


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(nvidia_services, "LIBRARY_FOLDERS", (tmp_path / "lib", tmp_path / "lib64"))
    node = Node(tmp_path).gpus(8, 8)
    node.write("lib/libnvidia-ml.so.570.133.20")
    node.write("lib/libnvidia-ml.so.1")
    node.answers["systemctl show"] = says(units())
    return node


def units(
    manager: str = "active",
    daemon: str = "active",
    loaded: str = "loaded",
    enabled: str = "enabled",
    imex: str = "active",
    imex_enabled: str = "enabled",
) -> str:
    return (
        f"Id={FABRIC_MANAGER}\nLoadState={loaded}\nActiveState={manager}\nUnitFileState=enabled\n\n"
        f"Id={PERSISTENCE}\nLoadState=loaded\nActiveState={daemon}\nUnitFileState={enabled}\n\n"
        f"Id={IMEX}\nLoadState=loaded\nActiveState={imex}\nUnitFileState={imex_enabled}\n"
    )


def codes(look: NodeCheckResult) -> list[str]:
    return [problem.finding.code for problem in look.problems]


def look(node: Node) -> NodeCheckResult:
    return nvidia_services.look(node.place, {})


def test_a_node_whose_services_run_and_whose_versions_fit_is_healthy(node: Node) -> None:
    seen = look(node)

    assert (seen.problems, seen.unclear, seen.summary) == ((), "", "driver 570.133.20")


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_fabric_manager_that_is_down_counts_only_where_there_are_switches(node: Node, state: str) -> None:
    node.answers["systemctl show"] = says(units(manager=state))

    without = codes(look(node))
    node.pci(20, "0x068000")

    assert without == []
    assert codes(look(node)) == ["fabric_manager_down"]


@pytest.mark.parametrize(("state", "loaded"), [("activating", "loaded"), ("inactive", "not-found")])
def test_a_fabric_manager_that_comes_up_or_is_no_service_here_is_not_down(node: Node, state: str, loaded: str) -> None:
    node.pci(20, "0x068000")
    node.answers["systemctl show"] = says(units(manager=state, loaded=loaded))

    assert codes(look(node)) == []


def test_a_persistence_daemon_is_missed_only_where_it_is_enabled(node: Node) -> None:
    node.answers["systemctl show"] = says(units(daemon="failed"))
    enabled = codes(look(node))
    node.answers["systemctl show"] = says(units(daemon="inactive", enabled="disabled"))

    assert (enabled, codes(look(node))) == (["persistence_daemon_down"], [])


@pytest.mark.parametrize(
    ("kind", "state", "enabled", "found"),
    [
        ("p6e-gb200.36xlarge", "inactive", "enabled", ["imex_down"]),
        ("p6e-gb200.36xlarge", "failed", "enabled", ["imex_down"]),
        ("p6e-gb200.36xlarge", "active", "enabled", []),
        ("p6e-gb200.36xlarge", "inactive", "masked", []),  # as for Kubernetes, which runs IMEX for each job
        ("p5.48xlarge", "inactive", "enabled", []),  # it ends by itself where no domain spans nodes
        ("p5.48xlarge", "failed", "enabled", ["imex_down"]),
    ],
)
def test_imex_is_missed_where_the_nvlink_domain_spans_nodes(
    node: Node, kind: str, state: str, enabled: str, found: list[str]
) -> None:
    node.is_a(kind)
    node.answers["systemctl show"] = says(units(imex=state, imex_enabled=enabled))

    assert codes(look(node)) == found


def test_a_library_that_was_upgraded_under_the_loaded_driver_is_told(node: Node) -> None:
    node.write(
        "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release"
    )

    found = look(node).problems

    assert [problem.finding.code for problem in found] == ["driver_mismatch"]
    assert found[0].evidence == "the loaded module is 550.90.07, the installed library 570.133.20"


def test_two_installed_libraries_of_which_one_fits_are_no_mismatch(node: Node) -> None:
    node.write("lib64/libnvidia-ml.so.580.65.06")

    assert codes(look(node)) == []


def test_a_library_nobody_finds_is_no_mismatch(node: Node) -> None:
    (node.root / "lib/libnvidia-ml.so.570.133.20").unlink()

    assert codes(look(node)) == []


def test_a_driver_that_says_no_version_is_not_compared(node: Node) -> None:
    node.write("proc/driver/nvidia/version", "")

    assert (codes(look(node)), look(node).summary) == ([], "")


def test_a_node_without_gpus_needs_no_services(tmp_path: Path) -> None:
    node = Node(tmp_path)
    without = nvidia_services.why_not(node.place)

    assert (bool(without), nvidia_services.why_not(node.gpus(8, 8).place)) == (True, "")


def test_a_systemd_that_hangs_is_said_to(node: Node) -> None:
    node.answers["systemctl show"] = HUNG

    assert look(node).unclear == "systemctl: no answer within 9 s"


@pytest.mark.parametrize("answer", [HUNG, says("", 1), says("Failed to connect to bus: No such file", 1)])
def test_a_systemd_that_does_not_answer_is_unclear(node: Node, answer: object) -> None:
    node.answers["systemctl show"] = answer  # type: ignore[assignment]

    seen = look(node)

    assert seen.unclear
    assert seen.problems == ()


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert isinstance(list(judge_units(parse_units(text), 1, True)), list)
    assert nvidia_services.module_version(text) in (text, "") or nvidia_services.module_version(text) in text
