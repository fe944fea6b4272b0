"""DCGM's health watches, of both generations, and its host engine."""

import json
from pathlib import Path

import pytest

from nodeheal.agent.checks import dcgm, nvlink_state
from nodeheal.agent.checks.check import NodeCheckResult
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.transport.event import verdict_of
from nodeheal.contract.vocabulary import Verdict
from tests.support.goldens import golden
from tests.unit.agent.checks.places import ABSENT, HUNG, Node, installed, says

NO_ENGINE = says(
    "",
    1,
    "Error: unable to establish a connection to the specified host: localhost\nError: Unable to connect.",
)
OFF = says(golden("dcgm_health_off.txt"), 1)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path).gpus(8, 8)


def look(node: Node, health: Output, **state: object) -> NodeCheckResult:
    node.answers["dcgmi health -c -j"] = health
    return dcgm.look(node.place, state)


def codes(look: NodeCheckResult) -> list[str]:
    return [problem.finding.code for problem in look.problems]


@pytest.mark.parametrize("generation", [3, 4])
def test_healthy_watches_are_healthy(node: Node, generation: int) -> None:
    seen = look(node, says(golden(f"dcgm_health_{generation}_healthy.json")))

    assert (seen.problems, seen.unclear) == ((), "")


@pytest.mark.parametrize(
    "recording", ["dcgm_health_3_failure.json", "dcgm_health_3_warning.json", "dcgm_health_4_failure.json"]
)
def test_what_the_watches_have_seen_is_told(node: Node, recording: str) -> None:
    assert codes(look(node, says(golden(recording))))


LINK_DOWN = says(
    json.dumps(
        {
            "body": {
                "GPU": {
                    "children": {
                        "6": {
                            "children": {
                                "Errors": {
                                    "children": {
                                        "NVLink system": {
                                            "overflow": ["GPU 6's NvLink link 2 is currently down"],
                                            "value": "Failure",
                                        }
                                    }
                                }
                            },
                            "value": "Failure",
                        }
                    }
                },
                "Overall Health": {"value": "Failure"},
            }
        }
    )
)


@pytest.mark.parametrize(
    ("links", "verdicts", "is_unclear"),
    [
        ("up", [Verdict.FAILED], False),
        ("unknown", [Verdict.UNKNOWN], True),
        ("training", [], True),
        ("absent", [], False),
    ],
)
def test_a_link_that_is_down_counts_only_where_the_links_are_up(
    node: Node, links: str, verdicts: list[Verdict], is_unclear: bool
) -> None:
    node.answers[" ".join(nvlink_state.COMMAND)] = says(f"{links}\n")

    seen = look(node, LINK_DOWN)

    assert [verdict_of(problem.finding) for problem in seen.problems] == verdicts
    assert bool(seen.unclear) == is_unclear
    assert {problem.confirm for problem in seen.problems} <= {2}


def test_a_link_whose_state_nobody_knows_is_no_evidence(node: Node) -> None:
    [problem] = look(node, LINK_DOWN).problems

    assert verdict_of(problem.finding) is Verdict.UNKNOWN


def test_watches_that_are_off_are_turned_on_and_nothing_is_known_yet(node: Node) -> None:
    node.answers["dcgmi health -s a"] = says("Health monitor systems set successfully.")

    seen = look(node, OFF)

    assert node.ran[-1] == "dcgmi health -s a"
    assert (seen.problems, seen.unclear) == ((), "the health watches were off; they are on now")


def test_watches_that_cannot_be_turned_on_are_told_so(node: Node) -> None:
    node.answers["dcgmi health -s a"] = says("Error", 1)

    assert look(node, OFF).unclear == "the health watches were off; they cannot be turned on"


def test_a_host_engine_that_does_not_answer_twice_is_down(node: Node) -> None:
    node.answers["systemctl is-enabled"] = says("enabled\nnot-found\n", 1)

    first = look(node, NO_ENGINE)
    second = look(node, NO_ENGINE, **first.state)

    assert (codes(first), bool(first.unclear)) == ([], True)
    assert codes(second) == ["host_engine_down"]


def test_a_host_engine_that_came_back_between_begins_anew(node: Node) -> None:
    down = look(node, NO_ENGINE)
    back = look(node, says(golden("dcgm_health_4_healthy.json")), **down.state)

    assert codes(look(node, NO_ENGINE, **back.state)) == []


@pytest.mark.parametrize("enabled", [says("disabled\nnot-found\n", 1), HUNG, ABSENT])
def test_a_host_engine_that_nobody_has_enabled_is_not_missed(node: Node, enabled: Output) -> None:
    node.answers["systemctl is-enabled"] = enabled

    seen = look(node, NO_ENGINE, down=True)

    assert (codes(seen), bool(seen.unclear)) == ([], True)


@pytest.mark.parametrize("answer", [HUNG, ABSENT, says(""), says('{"body": {"Overall Health": {"value": "Heal')])
def test_no_answer_is_unclear(node: Node, answer: Output) -> None:
    seen = look(node, answer)

    assert (seen.problems, bool(seen.unclear)) == ((), True)


def test_a_tool_that_hangs_is_said_to(node: Node) -> None:
    assert look(node, HUNG).unclear == "dcgmi: no answer within 9 s"


def test_only_nodes_with_gpus_and_dcgm_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path)
    tool = installed(tmp_path, dcgm.TOOL, monkeypatch)
    without_gpus = dcgm.why_not(node.place)
    node.gpus(8, 8)
    with_both = dcgm.why_not(node.place)
    tool.chmod(0o644)

    assert (bool(without_gpus), with_both, bool(dcgm.why_not(node.place))) == (True, "", True)
