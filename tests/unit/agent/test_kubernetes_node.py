"""What the agent makes of its Node object: suspicions by others, and an isolation that somebody undoes."""

from datetime import UTC, datetime
from typing import Any

import pytest

from nodeheal.agent.checks.kubernetes_node import judge
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Action, Family
from nodeheal.domain.faults.catalog import find

BOOT = datetime(2026, 11, 29, 3, tzinfo=UTC)
BEFORE, AFTER = "2026-11-29T02:59:59Z", "2026-11-29T03:00:01Z"


def condition(kind: str, status: str, at: object = AFTER) -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": at, "reason": "Xid", "message": "79"}


def codes(*conditions: dict[str, Any], **spec: Any) -> list[tuple[str, str | None]]:
    result = judge({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": list(conditions)}}, BOOT)
    return [(problem.finding.code, problem.finding.component) for problem in result.problems]


@pytest.mark.parametrize(
    ("kind", "status"),
    [("AcceleratedHardwareReady", "False"), ("KernelDeadlock", "True"), ("NvidiaErrorReboot", "True")],
)
def test_a_condition_that_turned_bad_in_this_boot_is_a_suspicion(kind: str, status: str) -> None:
    assert codes(condition(kind, status)) == [("node_condition", kind)]


def test_what_node_problem_detector_says_of_neuron_reaches_people_with_its_reason() -> None:
    reason = "NeuronHasError_SRAM_UNCORRECTABLE_ERROR"
    said = condition("NeuronHealth", "True") | {"reason": reason, "message": "[87]: NEURON_HW_ERR=…"}

    [problem] = judge({"metadata": {"name": "n"}, "status": {"conditions": [said]}}, BOOT).problems

    row = find(problem.finding.family, problem.finding.code)
    assert (row and row.action, f"NeuronHealth is True, {reason}: [87]" in problem.evidence) == (Action.OBSERVE, True)


@pytest.mark.parametrize(
    ("kind", "status", "at"),
    [
        ("AcceleratedHardwareReady", "False", BEFORE),  # it stays so until its agent's pod restarts
        ("AcceleratedHardwareReady", "False", None),
        ("AcceleratedHardwareReady", "True", AFTER),
        ("KernelDeadlock", "Unknown", AFTER),
        ("Ready", "False", AFTER),  # Kubernetes acts on it itself
        ("MemoryPressure", "True", AFTER),
        ("nodeheal.io/Accelerator", "True", AFTER),
        ("<b>", "True", AFTER),
    ],
)
def test_other_conditions_are_none(kind: str, status: str, at: object) -> None:
    assert codes(condition(kind, status, at)) == []


def test_an_agent_cannot_flood_with_conditions() -> None:
    assert len(codes(*(condition(f"C{number}", "True") for number in range(100)))) == 16


@pytest.mark.parametrize(
    ("taint", "is_cordoned", "is_undone"),
    [(names.KUBERNETES_TAINT, False, True), (names.KUBERNETES_TAINT, True, False), ("other", False, False)],
)
def test_an_uncordon_under_our_taint_is_reported(taint: str, is_cordoned: bool, is_undone: bool) -> None:
    found = codes(taints=[{"key": taint}], unschedulable=is_cordoned)

    assert found == ([("isolation_undone", None)] if is_undone else [])


@pytest.mark.parametrize("code", ["node_condition", "isolation_undone"])
def test_neither_ever_acts(code: str) -> None:
    row = find(Family.host, code, None)
    assert row is not None
    assert row.action is Action.OBSERVE
