"""What is measured of a decision, an ending, a pool; and that it reaches the log as CloudWatch reads it."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

import lambdas.end_incident
import lambdas.ingest
import lambdas.notify
import lambdas.sweep
from lambdas import composition
from nodeheal.adapters.memory.stores import MemoryAttemptLedger
from nodeheal.contract import metrics, names
from nodeheal.contract.metrics import METRICS
from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import AttemptLimit, DecideRequest
from nodeheal.contract.vocabulary import Action, Awaited, Escalation, Family, NodeState, Outcome, VerbName, Verdict
from nodeheal.domain.faults.catalog import ANY_CODE, catalog
from nodeheal.domain.fleet.pool import AcceleratorCount, RunningJobs
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.decision_context import accelerator_scope, node_scope
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.review import measures
from nodeheal.domain.review.measures import Measure, of_attempt, of_decision, of_ending, of_fault, of_notification
from nodeheal.services.measure_pools import measure_pools
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.sweep import Swept, sweep
from stacks.settings import REPOSITORY
from tests.support.approvals import Asked
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, under_way, xid
from tests.support.incident_steps import Incident
from tests.support.lambda_world import World, batch, on_bus, world
from tests.support.recovery_story import Story

__all__ = ["world"]  # the fixture

TOLD = Notification(key="k", subject="s", body="b", severity="PAGE", pool="demo")


def values(measures: list[Measure]) -> dict[str, float]:
    """Each measure's value by its metric and where it was measured."""
    return {"/".join((measure.metric.name, *measure.at)): measure.value for measure in measures}


def written(out: str) -> list[dict[str, Any]]:
    """What CloudWatch would read from the log."""
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return [line for line in lines if "_aws" in line]


# A fault, a decision --------------------------------------------------------------------------------------------------


def test_a_fault_counts_by_family_and_code_and_a_heartbeat_does_not() -> None:
    assert values(of_fault(Family.xid, "79", Verdict.FAILED, "demo")) == {
        "FaultsReported/xid/FAILED": 1,
        "FaultsByCode/demo/xid-79": 1,
    }
    assert of_fault(Family.heartbeat, "alive", Verdict.OK, "demo") == []


def test_codes_that_a_node_invents_share_one_metric() -> None:
    invented = [values(of_fault(Family.xid, code, Verdict.UNKNOWN, "demo")) for code in ("999999", "Z" * 64)]

    assert invented == [{"FaultsReported/xid/UNKNOWN": 1, "FaultsByCode/demo/xid-other": 1}] * 2


def test_every_code_of_the_catalog_has_its_own_metric() -> None:
    """Also where the rows are of sub-codes: the code alone decides, so that their number stays small."""
    shared = [
        code
        for family, code, _ in catalog()
        if code != ANY_CODE
        and f"FaultsByCode/demo/{family}-{code}" not in values(of_fault(Family(family), code, Verdict.FAILED, "demo"))
    ]

    assert shared == []


def test_a_code_that_only_its_sub_code_judges_shares_the_metric_of_unknown_ones() -> None:
    assert "FaultsByCode/demo/sxid-other" in values(of_fault(Family.sxid, "99999", Verdict.FAILED, "demo"))


def test_errors_of_neuron_devices_have_the_names_that_awss_problem_detector_gives_them() -> None:
    told = values(of_fault(Family.neuron, "DMA_ERROR", Verdict.FAILED, "demo"))

    assert told["NeuronHasError_DMA_ERROR"] == told["FaultsByCode/demo/neuron-DMA_ERROR"] == 1
    assert not any("HasError" in name for name in values(of_fault(Family.efa, "DMA_ERROR", Verdict.FAILED, "demo")))
    assert {("neuron", code, "") for code in metrics.NEURON_HAS_ERROR} <= catalog().keys()


def test_a_fault_counts_in_the_pool_that_the_record_names(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.serves(Incident(999))

    lambdas.ingest.handler(batch(on_bus(xid(48).model_copy(update={"pool": "invented"}))), None)

    [by_code] = [line for line in written(capsys.readouterr().out) if "FaultsByCode" in line]
    assert (by_code["Pool"], by_code["Code"]) == ("demo", "xid-48")


def test_the_first_decision_opens_the_incident_and_the_next_says_how_the_step_went() -> None:
    story = Story(xid(79))
    first = of_decision(DecideRequest(incident_id="i", turn=0), story.next())
    result = story.isolated().history.turns[0].result
    then = of_decision(DecideRequest(incident_id="i", turn=1, result=result), story.next())

    assert values(first) == {"DecisionsTaken/ISOLATE": 1, "IncidentsOpened/demo": 1}
    assert values(then) == {"DecisionsTaken/REBOOT": 1, "StepsEnded/ISOLATE/DONE": 1}


def test_silence_after_a_question_is_counted() -> None:
    ignored = Story(xid(999)).next().model_copy(update={"escalation": Escalation.APPROVAL_IGNORED})

    assert values(of_decision(DecideRequest(incident_id="i", turn=3), ignored))["ApprovalsLate"] == 1


def test_an_answer_counts_however_it_came() -> None:
    it = Asked()

    it.answer(Answer.refuse)
    request = DecideRequest(incident_id=it.id, turn=1, result=it.resumed())

    measured = of_decision(request, decide_next_step(request, it.ports, it.policy))
    assert Measure(metrics.APPROVALS_ANSWERED, at=("refuse",)) in measured


@pytest.mark.parametrize(("limit", "name"), [(1, "AttemptsSpent/REBOOT"), (0, "AttemptsRefused/REBOOT")])
def test_an_attempt_is_spent_or_refused(monkeypatch: pytest.MonkeyPatch, limit: int, name: str) -> None:
    taken: list[Measure] = []
    monkeypatch.setattr(composition, "emit", lambda measured: taken.extend(measured()))
    ledger = MemoryAttemptLedger(FrozenClock())
    of_node = AttemptLimit(group=Action.REBOOT, limit=limit, window_seconds=60)

    granted, count = composition.MeasuredAttempts(ledger).reserve(node_scope("mi-1"), "inc-1/2", of_node)

    assert (granted, count) == (bool(limit), limit)
    assert values(taken) == {name: 1}


def test_an_attempt_of_a_node_counts_once_though_its_accelerator_has_a_limit_too() -> None:
    limit = AttemptLimit(group=Action.REBOOT, limit=1, window_seconds=60)

    assert of_attempt(accelerator_scope("1654"), limit, is_granted=True) == []
    assert of_attempt(accelerator_scope("1654"), limit, is_granted=False) != []


def test_every_measure_is_taken_by_a_function() -> None:
    functions = "".join(path.read_text("utf-8") for path in (REPOSITORY / "lambdas").glob("*.py"))

    assert [name for name in vars(measures) if name.startswith("of_") and f"{name}(" not in functions] == []


# An ending ------------------------------------------------------------------------------------------------------------


def after(history: History, **seconds: float) -> History:
    """The history, its steps finished so long after the fault."""
    turns = []
    for turn in history.turns:
        at = NOW + timedelta(seconds=seconds[turn.decision.step.value])
        assert turn.result is not None
        turns.append(replace(turn, result=turn.result.model_copy(update={"finished_at": at})))
    return replace(history, turns=tuple(turns))


def test_a_recovery_has_four_durations() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE).then(Outcome.DONE, "llama runs again")
    told = after(story.history, ISOLATE=2, REBOOT=200, DIAGNOSE=260, RETURN=261, RESTART_WORKLOAD=300)

    assert values(of_ending(told, story.next())) == {
        "IncidentsEnded/demo/RECOVERED": 1,
        "FaultToIsolated/demo": 2,
        "IsolatedToProven/demo": 258,
        "FaultToReturned/demo": 261,
        "FaultToJobRunning/demo": 300,
    }


def test_what_was_not_done_took_no_time_and_a_fast_clock_makes_it_not_negative() -> None:
    story = Story(xid(79)).isolated().rebooted().then(Outcome.UNKNOWN)
    told = after(story.history, ISOLATE=-3, REBOOT=200, DIAGNOSE=260)

    assert values(of_ending(told, story.next())) == {
        "IncidentsEnded/demo/HANDED_TO_A_HUMAN": 1,
        "HandedOver/DIAGNOSTICS_UNCLEAR": 1,
        "FaultToIsolated/demo": 0,
    }


def test_an_email_is_sent_or_folded() -> None:
    assert values(of_notification(TOLD, is_sent=True)) == {"NotificationsSent/PAGE": 1}
    assert values(of_notification(TOLD, is_sent=False)) == {"NotificationsFolded": 1}


# Pools ----------------------------------------------------------------------------------------------------------------


def test_pools_are_measured_with_their_slots_their_line_and_their_breaker() -> None:
    ports = memory_ports()
    ports.nodes.save(node("mi-1", state=NodeState.QUARANTINED))
    ports.nodes.save(node("mi-2"))
    ports.pools.claim("demo", "mi-1", 1)
    ports.pools.save(ports.pools.get("demo").tripped("a bad rack", NOW))
    line = (names.pool_line(Awaited.BUDGET, "demo"), "90#a")
    under_way(ports, VerbName.WAIT, line=line)

    found = values(measure_pools(sweep(ports, ACT), ports, ACT))

    expected = {"BudgetSlotsHeld/demo": 1, "BudgetSlotsLimit/demo": 1, "IncidentsInLine": 1, "BreakersOpen": 1}
    assert found == expected


def test_the_limit_of_a_pool_that_was_not_looked_over_whole_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = memory_ports()
    for number in range(4):
        ports.nodes.save(node(f"mi-{number}"))
    monkeypatch.setattr("nodeheal.services.sweep.NODES_A_RUN", 2)
    monkeypatch.setattr("nodeheal.services.sweep.NODES_A_PAGE", 2)

    begun, ended = sweep(ports, ACT), sweep(ports, ACT)

    assert (begun.counted, ended.counted) == ({}, {})
    assert "BudgetSlotsLimit/demo" not in values(measure_pools(ended, ports, ACT))


def test_running_jobs_are_counted_by_pool_and_not_where_nobody_has_looked() -> None:
    ports = memory_ports()
    ports.nodes.save(node("mi-1"))
    jobs = RunningJobs(shown=3, with_findings=1, accelerators=32, as_usual=24)
    looked = Swept(running_jobs={"demo": jobs}, accelerators={"demo": AcceleratorCount(40, 32)})

    known = values(measure_pools(looked, ports, ACT))
    uncounted = values(measure_pools(Swept(running_jobs={"demo": jobs}), ports, ACT))

    assert (known["JobsShowingSteps/demo"], known["JobsWithFindings/demo"], known["FleetGood/demo"]) == (3, 1, 60.0)
    assert known.keys() - uncounted.keys() == {"FleetGood/demo"}
    assert known.keys() - values(measure_pools(Swept(), ports, ACT)).keys() == {
        "FleetGood/demo",
        "JobsShowingSteps/demo",
        "JobsWithFindings/demo",
    }


# On the way to CloudWatch ---------------------------------------------------------------------------------------------


def test_a_measure_says_where_it_was_taken() -> None:
    with pytest.raises(ValueError, match="FaultsReported is measured by"):
        Measure(metrics.FAULTS_REPORTED, at=("xid",))
    with pytest.raises(ValueError, match="IncidentsOpened is measured by"):
        Measure(metrics.INCIDENTS_OPENED, at=("",))


def test_a_metric_has_exactly_its_own_dimensions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "sweep")  # Powertools would make a dimension of it

    of_neuron = Measure(metrics.NEURON_HAS_ERROR["DMA_ERROR"])
    composition.emit(
        lambda: [Measure(metrics.POLICY_REFUSED), Measure(metrics.STEPS_ENDED, at=("REBOOT", "DONE")), of_neuron]
    )

    told = [line["_aws"]["CloudWatchMetrics"][0] for line in written(capsys.readouterr().out)]
    assert [(one["Namespace"], one["Dimensions"]) for one in told] == [
        (names.METRICS_NAMESPACE, [[]]),
        (names.METRICS_NAMESPACE, [["Step", "Outcome"]]),
        ("NeuronHealthCheck", [[]]),  # as AWS's node-problem-detector for Neuron has it
    ]


def test_a_metric_that_cannot_be_had_harms_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> list[Measure]:
        raise RuntimeError("throttled")

    composition.emit(broken)

    assert written(capsys.readouterr().out) == []


def test_the_functions_measure_what_they_do(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    it = world.serves(Incident(999))
    request = it.request()

    lambdas.end_incident.handler(request.model_dump(mode="json"), None)
    lambdas.ingest.handler(batch("{", on_bus(xid(48))), None)
    lambdas.notify.handler(batch(json.dumps({"detail": TOLD.model_dump(mode="json")})), None)
    lambdas.notify.handler(batch(json.dumps({"detail": TOLD.model_dump(mode="json")})), None)
    lambdas.sweep.handler({}, None)

    told = {line["_aws"]["CloudWatchMetrics"][0]["Metrics"][0]["Name"] for line in written(capsys.readouterr().out)}
    assert told >= {
        "MessagesQuarantined",
        "FaultsReported",
        "IncidentsEnded",
        "HandedOver",
        "NotificationsSent",
        "NotificationsFolded",
        "BreakersOpen",
    }


def test_every_metric_is_emitted_somewhere() -> None:
    constants = {metric: name for name, metric in vars(metrics).items() if metric in METRICS and name.isupper()}
    code = [path.read_text("utf-8") for part in ("lambdas", "nodeheal") for path in (REPOSITORY / part).rglob("*.py")]

    assert [name for name in constants.values() if not any(f"metrics.{name}" in text for text in code)] == []


def test_every_metric_is_explained_with_its_dimensions() -> None:
    page = (REPOSITORY / "docs" / "metrics.md").read_text("utf-8")
    of_the_control_plane = page.partition("## Of the nodes")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", of_the_control_plane, re.MULTILINE))

    assert set(told) == {metric.name for metric in METRICS}
    for metric in METRICS:
        assert tuple(re.findall(r"\w+", told[metric.name])) == metric.dimensions, metric.name


def test_no_dimension_grows_with_the_fleet() -> None:
    assert {name for metric in METRICS for name in metric.dimensions} <= {
        "Action",
        "Answer",
        "Code",  # of the catalog's: see test_codes_that_a_node_invents_share_one_metric
        "Ending",
        "Escalation",
        "Family",
        "Function",
        "Outcome",
        "Pool",
        "Severity",
        "Step",
        "Verdict",
    }


def test_a_node_that_nobody_enrolled_is_not_counted(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    it = world.serves(Incident(999))
    it.ports.enrolment_tags.without.add("i-0ghost")  # type: ignore[attr-defined]

    lambdas.ingest.handler(batch(on_bus(xid(48, node_id="i-0ghost"))), None)

    assert written(capsys.readouterr().out) == []
