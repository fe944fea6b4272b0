"""Neuron devices: all there, and what their counters say since the last look."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeheal.agent.checks import neuron
from nodeheal.agent.checks.check import NodeCheckResult, State
from nodeheal.agent.checks.hardware import Expected
from tests.support.goldens import golden
from tests.unit.agent.checks.places import ABSENT, Node, says

NEW, OLD = "sys/devices/virtual/neuron_device", "sys/class/neuron_device"
ERRORS = {"failure": 0, "timeout": 0, "hw_error": 0, "hw_hbm_ue_error": 0}


def furnish(node: Node, devices: int = 2, root: str = NEW, **errors: int) -> Node:
    """A tree as a driver fills it, with these counts on core 0 of device 0."""
    for number in range(devices):
        device = f"{root}/neuron{number}"
        node.write(f"{device}/core_count", "1")
        node.write(f"{device}/info/serial_number", "1a2b")
        for name in ("sram_ecc_uncorrected", "mem_ecc_uncorrected"):
            node.write(f"{device}/stats/hardware/{name}", str(errors.get(name, 0) if number == 0 else 0))
        for name in ("success", *ERRORS):
            folder = f"{device}/neuron_core0/stats/status/{name}"
            node.write(f"{folder}/total", str(errors.get(name, 0) if number == 0 else 0))
            node.write(f"{folder}/present", "0")
    return node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path, accelerators=2)
    node.answers["neuron-ls"] = ABSENT
    return furnish(node)


def look(node: Node, state: State | None = None) -> NodeCheckResult:
    return neuron.look(node.place, state or {})


def happened(look: NodeCheckResult) -> list[tuple[str, str | None]]:
    return [(problem.finding.code, problem.finding.component) for problem in look.happened]


@pytest.mark.parametrize("root", [NEW, OLD])
def test_devices_without_errors_are_healthy(tmp_path: Path, root: str) -> None:
    node = furnish(Node(tmp_path, accelerators=2, answers={"neuron-ls": ABSENT}), root=root, success=48113)

    seen = look(node)

    assert (seen.problems, seen.happened, seen.unclear) == ((), (), "")
    assert neuron.why_not(node.place) == ""


def test_a_device_is_described_by_its_model_and_serial(node: Node) -> None:
    node.write(f"{NEW}/neuron1/info/architecture/device_name", "Trainium2")

    first, second = look(node).accelerators

    assert (first.index, first.component, first.model, first.serial) == (0, "neuron0", None, "1a2b")
    assert (second.component, second.model) == ("neuron1", "Trainium2")


def test_an_error_is_told_when_it_is_counted_and_not_again(node: Node) -> None:
    first = look(node)
    furnish(node, hw_error=1)

    second = look(node, first.state)
    third = look(node, second.state)

    assert (happened(first), happened(second), happened(third)) == ([], [("HARDWARE_ERROR", "neuron0:nc0")], [])


def test_of_an_old_error_and_a_new_one_only_the_new_one_is_counted(node: Node) -> None:
    before = look(furnish(node, timeout=7))

    seen = look(furnish(node, timeout=9), before.state)

    assert [problem.evidence for problem in seen.happened] == ["timeout: 2 since the last look"]


def test_an_error_that_was_there_when_the_node_came_up_is_told_once(node: Node) -> None:
    first = look(furnish(node, sram_ecc_uncorrected=1))

    assert happened(first) == [("SRAM_UNCORRECTABLE_ERROR", "neuron0")]
    assert happened(look(node, first.state)) == []


def test_counters_that_began_anew_are_told_again(node: Node) -> None:
    before = look(furnish(node, hw_error=5))

    assert happened(look(furnish(node, hw_error=2), before.state)) == [("HARDWARE_ERROR", "neuron0:nc0")]


def test_what_is_remembered_of_a_healthy_node_is_next_to_nothing(node: Node) -> None:
    assert look(furnish(node, success=10**9)).state["counters"] == {}


def test_a_missing_device_is_a_problem_for_as_long_as_it_is_missing(node: Node) -> None:
    node.accelerators = 4

    first = look(node)
    second = look(node, first.state)

    for seen in (first, second):
        assert [problem.evidence for problem in seen.problems] == ["2 of 4 Neuron devices are in the tree"]


def test_a_node_whose_type_has_devices_and_that_shows_none_is_told(tmp_path: Path) -> None:
    node = Node(tmp_path, answers={"neuron-ls": ABSENT}).is_a("trn1.32xlarge")

    (problem,) = look(node).problems

    assert neuron.why_not(node.place) == ""
    assert (problem.finding.code, problem.evidence) == (
        "neuron_count_mismatch",
        "0 of 16 Neuron devices are there (as trn1.32xlarge has)",
    )


def test_a_layout_that_nobody_knows_is_unclear_and_not_healthy(tmp_path: Path) -> None:
    node = Node(tmp_path, answers={"neuron-ls": ABSENT})
    node.write(f"{NEW}/neuron0/core_count", "2")
    node.write(f"{NEW}/neuron0/counters_v3/errors", "0")

    seen = look(node)

    assert seen.unclear
    assert not seen.problems


def test_a_counter_that_cannot_be_read_is_unclear(node: Node) -> None:
    node.write(f"{NEW}/neuron0/neuron_core0/stats/status/hw_error/total", "(Input/output error)")

    assert "cannot be read" in look(node).unclear


def test_an_error_beside_a_counter_that_cannot_be_read_hides_the_doubt_not(node: Node) -> None:
    furnish(node, timeout=1)
    node.write(f"{NEW}/neuron1/neuron_core0/stats/status/hw_error/total", "")

    seen = look(node)

    assert (happened(seen), "cannot be read" in seen.unclear) == ([("EXECUTION_TIMEOUT", "neuron0:nc0")], True)


def test_only_what_is_needed_is_read_and_no_link_is_followed(node: Node) -> None:
    (node.root / NEW / "neuron0" / "device").symlink_to("..")

    read = neuron.read_tree([node.root / NEW])

    assert len(read) == 2 * (1 + 2 + 5)
    assert not [path for path in read if "device/" in path or path.endswith(("present", "serial_number"))]


def test_the_tool_is_asked_rarely_and_what_it_misses_is_told(node: Node) -> None:
    node.accelerators = 17
    furnish(node, devices=17)
    node.answers["neuron-ls"] = says(golden("neuron_ls_healthy.json"))

    first = look(node)
    second = look(node, first.state)

    for seen in (first, second):
        assert [problem.evidence for problem in seen.problems] == ["16 of 17 Neuron devices are listed"]
    assert len(node.ran) == 1


def test_the_tool_is_asked_again_after_an_hour(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("nodeheal.agent.checks.neuron.time.monotonic", lambda: now[0])
    seen, asked = look(node), []
    for seconds in (neuron.LIST_EVERY_SECONDS - 1, 1):
        now[0] += seconds
        seen = look(node, seen.state)
        asked.append(len(node.ran))

    assert asked == [1, 2]


@pytest.mark.parametrize("component", [None, "neuron3"])
def test_what_the_tool_missed_is_the_same_until_it_is_asked_again(
    node: Node, monkeypatch: pytest.MonkeyPatch, component: str | None
) -> None:
    monkeypatch.setattr("nodeheal.agent.checks.neuron.time.monotonic", lambda: 1000.0)
    state = {"asked_at": 1000.0, "told_by_tool": [[component, "one is not listed"], ["x"], 7]}

    seen = look(node, state)

    assert [(one.finding.component, one.evidence) for one in seen.problems] == [(component, "one is not listed")]


def test_what_a_total_counts_since_is_said(node: Node) -> None:
    first = look(furnish(node, timeout=7))

    assert [problem.evidence for problem in first.happened] == ["timeout: 7 since the driver was loaded"]


def test_where_nobody_knows_how_many_there_should_be_none_is_unclear(tmp_path: Path) -> None:
    node = Node(tmp_path, answers={"neuron-ls": ABSENT})
    (tmp_path / NEW).mkdir(parents=True)

    assert (look(node).problems, bool(look(node).unclear)) == ((), True)


def test_what_was_remembered_of_a_counter_and_is_no_number_is_forgotten(node: Node) -> None:
    path = "neuron0/neuron_core0/stats/status/timeout/total"

    seen = look(furnish(node, timeout=1), {"counters": {path: "many"}})

    assert happened(seen) == [("EXECUTION_TIMEOUT", "neuron0:nc0")]


def test_what_both_miss_is_told_once(node: Node) -> None:
    node.accelerators = 17
    node.answers["neuron-ls"] = says(golden("neuron_ls_healthy.json"))

    assert len(look(node).problems) == 1


@pytest.mark.parametrize("answer", [ABSENT, says("", 1), says("{")])
def test_a_tool_that_says_nothing_changes_nothing(node: Node, answer: object) -> None:
    node.answers["neuron-ls"] = answer  # type: ignore[assignment]

    seen = look(node)

    assert (seen.problems, seen.unclear) == ((), "")


def test_a_node_without_neuron_devices_is_not_checked(tmp_path: Path) -> None:
    assert neuron.why_not(Node(tmp_path).is_a("p5.48xlarge").place) == "no Neuron device"


PATHS = st.sampled_from(
    [f"neuron0/{end}" for end in ("core_count", "stats/hardware/sram_ecc_uncorrected", "stats/x")]
    + [f"neuron0/neuron_core0/stats/status/{name}/total" for name in ("hw_error", "timeout", "success")]
)


@given(st.dictionaries(PATHS, st.text() | st.integers(0, 10**25).map(str)), st.dictionaries(PATHS, st.integers()))
def test_any_part_of_a_tree_after_any_other_is_judged_and_never_healthy(
    tree: dict[str, str], before: dict[str, int]
) -> None:
    seen = neuron.judge(tree, Expected(0), {"counters": before})

    assert seen.unclear or seen.problems or seen.happened
