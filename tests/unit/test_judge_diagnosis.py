"""What a diagnosis is made of, and what its answer is worth beside the node's last good run."""

import json
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.health_event import CheckResult, DiagnosticsFinished
from nodeheal.contract.results import Diagnosed, StepResult
from nodeheal.contract.vocabulary import Check, NodeState, Outcome, Step, Verdict
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.verbs import conclude
from nodeheal.ports import Ports
from nodeheal.ports.commands import CommandStatus
from nodeheal.services.intake import wakeup
from nodeheal.services.saving import node_of
from tests.support.builders import (
    ACT,
    DIAGNOSTICS,
    commands_in,
    facts_of,
    named,
)
from tests.support.incident_steps import A, B, Incident
from tests.support.step_functions import as_step, run_diagnostics
from tests.support.three_nodes import booted

BUS = "neuron_all_reduce_gb_per_s"


def diagnosed(it: Incident, measured: dict[str, float], name: str = A, **changes: Any) -> StepResult:
    run_diagnostics(it.request(), it.ports, ACT)
    answer(it, measured, name, **changes)
    return it.resumed()


def answer(it: Incident, measured: dict[str, float], name: str = A, **changes: Any) -> None:
    told = {
        "request_id": named(DIAGNOSTICS, f"{it.id}-{it.turn}", it.ports),
        "verdict": Verdict.OK,
        "measured": measured,
        **changes,
    }
    wakeup.on_answer(DiagnosticsFinished(**it._fact("boot-2", name), **told), it.ports)


def rebooted() -> Incident:
    it = Incident()
    it.isolate(), it.reboot()
    return it


def test_a_pool_says_what_proves_a_repair() -> None:
    it = rebooted()
    document = {**ACT.model_dump(), "default_pool": {"mode": "act", "checks": ["efa", "neuron"]}}

    run_diagnostics(it.request(), it.ports, RecoveryPolicy.model_validate(document))

    [sent] = commands_in(it.ports).sent_of("run-diagnostics")
    assert (sent.parameters["Level"], sent.parameters["Checks"], sent.parameters["First"]) == (
        "2",
        "efa,neuron",
        "none",
    )


def test_what_this_node_failed_before_is_rerun_first() -> None:
    it = rebooted()
    it.diagnose(Verdict.FAILED)
    failed = Diagnosed(failed_tests=("pcie", "Robert'); DROP TABLE", "memory"), output="…")
    it.last = it.last.model_copy(update={"facts": failed}) if it.last else None
    request = as_step(it.request(), Step.DIAGNOSE)
    again = request.decision.model_copy(update={"node_id": A})

    run_diagnostics(request.model_copy(update={"decision": again}), it.ports, ACT)

    assert commands_in(it.ports).sent[-1].parameters["First"] == "pcie,memory"


def test_what_another_node_failed_is_not() -> None:
    it = rebooted()
    it.diagnose(Verdict.FAILED)
    it.last = it.last.model_copy(update={"facts": Diagnosed(failed_tests=("pcie",))}) if it.last else None
    request = as_step(it.request(), Step.DIAGNOSE)
    other = request.decision.model_copy(update={"node_id": B})
    it.ports.nodes.save(replace(it.node(B), open_incident=it.id))

    run_diagnostics(request.model_copy(update={"decision": other}), it.ports, ACT)

    assert commands_in(it.ports).sent[-1].parameters["First"] == "none"


def test_a_good_run_is_kept_for_the_next_one() -> None:
    it = rebooted()

    result = diagnosed(it, {BUS: 40.7})

    assert result.outcome is Outcome.DONE
    assert it.node().diagnostic_baseline == {BUS: 40.7}


def test_a_node_that_passes_but_has_become_worse_is_for_a_human() -> None:
    it = rebooted()
    it.ports.nodes.save(replace(it.node(), diagnostic_baseline={BUS: 40.0}))

    result = diagnosed(it, {BUS: 30.0})

    assert result.outcome is Outcome.UNKNOWN
    assert result.reason == f"diagnostics passed, but {BUS} is 30, 25 % worse than 40 in its last good run"
    assert it.node().diagnostic_baseline == {BUS: 40.0}


@pytest.mark.parametrize("measured", [{BUS: 33.0}, {"another_celsius": 99.0}, {}])
def test_noise_and_what_cannot_be_compared_hold_nobody_up(measured: dict[str, float]) -> None:
    it = rebooted()
    it.ports.nodes.save(replace(it.node(), diagnostic_baseline={BUS: 40.0}))

    assert diagnosed(it, measured).outcome is Outcome.DONE


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.UNKNOWN, Verdict.DEGRADED])
def test_a_run_that_was_not_good_is_not_what_the_next_one_is_measured_by(verdict: Verdict) -> None:
    it = rebooted()

    diagnosed(it, {BUS: 1.0}, verdict=verdict)

    assert it.node().diagnostic_baseline == {}


def test_the_tests_that_failed_are_in_the_result() -> None:
    it = rebooted()

    result = diagnosed(it, {}, verdict=Verdict.FAILED, failed_tests=("pcie", "memory"))

    assert facts_of(result, Diagnosed).failed_tests == ("pcie", "memory")


def test_how_each_check_went_is_in_the_result() -> None:
    it = rebooted()

    result = diagnosed(it, {}, checks=[{"check": "dcgm", "verdict": "OK", "seconds": 12.5}])

    assert facts_of(result, Diagnosed).checks == "dcgm OK in 12.5 s"


def test_an_answer_whose_event_was_lost_is_compared_as_well() -> None:
    it = rebooted()
    it.ports.nodes.save(replace(it.node(), diagnostic_baseline={BUS: 40.0}))
    request = it.request()
    run_diagnostics(request, it.ports, ACT)
    printed = json.dumps({"verdict": "OK", "failed_tests": [], "measured": {BUS: 30.0}})
    it.ports.commands.statuses["command-2"] = CommandStatus("SUCCEEDED", printed)  # type: ignore[attr-defined]

    result = conclude(request, it.ports)

    assert (result.outcome, "25 % worse" in result.reason) == (Outcome.UNKNOWN, True)


def by_hand(it: Incident, boot_id: str = "boot-1", **changes: Any) -> None:
    told = {"request_id": "by-hand", "checks": ({"check": "dcgm", "verdict": "OK"},), "verdict": Verdict.OK, **changes}
    wakeup.on_answer(DiagnosticsFinished(**it._fact(boot_id, A), **told), it.ports)


NO_DCGM = ({"check": "dcgm", "verdict": "UNKNOWN", "reason": "dcgmi cannot be run: not found"},)


def test_a_diagnosis_by_hand_is_recorded_for_people_and_proves_nothing() -> None:
    it = Incident()

    by_hand(it)

    found = it.node().last_diagnosis
    assert found is not None
    assert (found.verdict, found.reason) == (Verdict.OK, "")
    assert it.node().passed_at is None


def test_a_diagnosis_that_dcgm_is_missing_for_says_so_whoever_asked() -> None:
    it = Incident()
    by_hand(it, verdict=Verdict.UNKNOWN, checks=NO_DCGM)
    asked = rebooted()
    diagnosed(asked, {}, verdict=Verdict.UNKNOWN, checks=NO_DCGM)

    for each in (it, asked):
        found = each.node().last_diagnosis
        assert found is not None
        assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "dcgm: dcgmi cannot be run: not found")


@pytest.mark.parametrize("changes", [{"boot_id": "boot-of-old"}, {"checks": ()}])
def test_neither_an_earlier_boots_diagnosis_nor_a_test_between_nodes_is_recorded(changes: dict[str, Any]) -> None:
    it = Incident()

    by_hand(it, **changes)

    assert it.node().last_diagnosis is None


@pytest.mark.parametrize(("state", "is_kept"), [(NodeState.HEALTHY, True), (NodeState.ENROLLED, False)])
def test_a_diagnosis_by_hand_is_kept_with_a_node_that_has_reported(
    three_nodes: Ports, state: NodeState, is_kept: bool
) -> None:
    assert three_nodes.nodes.save(replace(node_of(A, three_nodes), state=state))
    checks = [CheckResult(check=Check.dcgm, verdict=Verdict.FAILED, seconds=1.0)]
    fact = booted().model_dump(exclude={"booted_at", "address", "accelerators"})
    found = DiagnosticsFinished(**fact, request_id="by-hand", verdict=Verdict.FAILED, checks=checks)

    wakeup.on_answer(found, three_nodes)

    assert (node_of(A, three_nodes).last_diagnosis is not None) is is_kept
