"""Edges of the core's small judgements, each by the case that tells it apart."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import NEW_NODE, OPERATOR_REQUEST, SWEEP_SOURCE
from nodeheal.contract.results import CallAgain, Isolated, Refused, Replaced, StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import (
    Action,
    Awaited,
    EndCause,
    Ending,
    Escalation,
    Family,
    NodeState,
    Outcome,
    Provider,
    Refusal,
    Step,
    Verdict,
)
from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.faults.correlation import common_cause
from nodeheal.domain.fleet.liveness import Heartbeat, apply_heartbeat
from nodeheal.domain.jobs.gang import first_failure
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.jobs.restarts import is_limit_of_lone_hangs, own_limits
from nodeheal.domain.policy.policy_models import Mode, PoolPolicy
from nodeheal.domain.recovery.decide import _escalate_repeated_lone_hangs
from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.domain.recovery.guardrails import stale
from nodeheal.domain.recovery.incident import History, Turn, is_boot_independent
from nodeheal.domain.recovery.job_move import _upper_bound
from nodeheal.domain.recovery.progress import Progress, read_progress
from nodeheal.domain.recovery.recover import _boot_concerned
from nodeheal.domain.verbs import VERBS
from tests.support.builders import ACT, NOW, node, xid
from tests.support.incident_steps import LLAMA, A
from tests.support.observations import OTHER, crowd
from tests.support.recovery_story import Story
from tests.support.steps import result


def later(seconds: float = 60, code: int = 79, /, **changes: Any) -> HealthEvent:
    """A fault that is reported later."""
    at = NOW + timedelta(seconds=seconds)
    return xid(code, **{"event_id": f"later-{code}-{seconds}", "observed_at": at, **changes})


def new_node() -> HealthEvent:
    return xid(79, family=Family.host, code=NEW_NODE, verdict=Verdict.DEGRADED, source=SWEEP_SOURCE)


def request(action: Action) -> HealthEvent:
    return xid(79, family=Family.host, code=OPERATOR_REQUEST, subcode=action.value, source="operator")


# Events


def test_what_another_node_reports_is_no_fault_of_this_one() -> None:
    story = Story(xid(79)).reports(later(1, 48, node_id=OTHER))

    assert [event.node_id for event in assess_faults(story.history, ACT).events] == [xid().node_id]


@pytest.mark.parametrize(
    ("event", "is_independent"),
    [(new_node(), True), (request(Action.REPLACE), True), (request(Action.REBOOT), False), (xid(79), False)],
)
def test_what_holds_for_later_boots_too(event: HealthEvent, is_independent: bool) -> None:
    assert is_boot_independent(event) is is_independent


def test_an_incident_that_an_operator_has_opened_is_not_one_of_a_new_node() -> None:
    assert not Story(request(Action.REPLACE)).history.incident.is_of_new_node
    assert not Story(xid(79, source="aws.health")).history.incident.is_of_new_node
    assert Story(new_node()).history.incident.is_of_new_node


def rebased(*events: HealthEvent, story: Story | None = None) -> History:
    """The history as of its newest boot, after these reports."""
    story = story or Story(xid(79))
    for event in events:
        story.reports(event)
    return story.history.rebased_on_latest_boot()


@pytest.mark.parametrize(
    "event",
    [
        later(boot_id="boot-2", node_id=OTHER),
        later(boot_id="boot-2", verdict=Verdict.OK),
        later(boot_id="boot-1"),
        later(-60, boot_id="boot-0"),
    ],
    ids=["of another node", "good news", "of the same boot", "of a boot before"],
)
def test_an_incident_stays_with_its_boot(event: HealthEvent) -> None:
    assert rebased(event).incident.root == xid(79)


def test_an_incident_goes_on_with_the_first_fault_of_the_newest_boot() -> None:
    first = later(120, boot_id="boot-3")

    assert rebased(later(60, boot_id="boot-2"), first, later(180, boot_id="boot-3")).incident.root == first


@pytest.mark.parametrize(("outcome", "is_over"), [(Outcome.DONE, True), (Outcome.REFUSED, False)])
def test_what_a_node_reports_after_its_isolation_is_about_the_repair(outcome: Outcome, is_over: bool) -> None:
    story = Story(xid(79)).then(outcome, facts=Isolated(is_drained=True) if is_over else None)
    assert story.history.turns[0].decision.events_seen == 1

    root = rebased(later(boot_id="boot-2"), story=story).incident.root

    assert (root == xid(79)) is is_over


def test_only_a_refusal_is_one() -> None:
    decision = Decision(step=Step.REBOOT, reason="so", node_id=A)
    known: dict[str, Any] = {"step": Step.REBOOT, "node_id": A, "reason": "so", "finished_at": NOW}

    assert Turn(decision, StepResult(outcome=Outcome.REFUSED, **known)).is_refused
    assert not Turn(decision, StepResult(outcome=Outcome.DONE, **known)).is_refused


# Nodes and runs


def test_a_node_that_never_reported_has_no_heartbeat() -> None:
    known, beat = node(A, state=NodeState.ENROLLED), Heartbeat(f"AROA:{A}", "boot-1", NOW, 60)

    assert apply_heartbeat(known, beat, NOW) == known
    assert apply_heartbeat(node(A), beat, NOW).last_seen == NOW


def task(**changes: Any) -> GangTask:
    return replace(GangTask(A, 0, "boot-1", "placement"), **changes)


def test_a_rank_that_runs_has_not_succeeded_whatever_its_exit_code() -> None:
    assert not task(status="RUNNING", exit_code=0).has_succeeded
    assert task(status="STOPPED", exit_code=0).has_succeeded


@pytest.mark.parametrize(("exit_code", "code"), [(137, "exit_137"), (1, "exit_1")])
def test_a_container_beside_the_rank_that_was_out_of_memory_is_not_the_rank(exit_code: int, code: str) -> None:
    dead = task(status="STOPPED", exit_code=exit_code, end_causes=(EndCause.OUT_OF_MEMORY,))

    failure = first_failure(Run("llama", 1, NOW, "submitted", (dead,)))

    assert failure is not None and failure.code == code


# Limits and policies


def test_of_a_jobs_limits_one_is_of_hangs_that_one_node_reports() -> None:
    limits = own_limits(replace(LLAMA, submission=1), [A])

    assert [is_limit_of_lone_hangs(one) for one in limits] == [False, False, True]


def test_a_policy_says_how_far_nodeheal_goes_with_each_action_that_does_something() -> None:
    known = {action for action, verb in VERBS.items() if verb.has_mode}

    assert {Action.ISOLATE, Action.REBOOT, Action.STOP_START, Action.REPLACE, Action.RESTART_WORKLOAD} <= known
    assert PoolPolicy(modes=dict.fromkeys(known, Mode.observe)).modes.keys() == known
    for action in set(Action) - known:
        with pytest.raises(ValueError, match="has no mode"):
            PoolPolicy(modes={action: Mode.observe})


@pytest.mark.parametrize(("action", "waits"), [(Action.REBOOT, True), (Action.REPLACE, False)])
def test_a_machine_that_comes_back_has_to_run_before_it_is_trusted(action: Action, waits: bool) -> None:
    history = Story(xid(79)).amid(provider=Provider.ec2).history
    patient = ACT.model_copy(update={"stable_seconds": 500})
    assert not ACT.stable_seconds

    def at_most(policy: Any) -> float:
        return _upper_bound(DecisionBuilder(history, policy, assess_faults(history, policy), NOW), action)

    assert at_most(patient) - at_most(ACT) == (500 if waits else 0)


def test_a_new_node_is_none_of_the_nodes_that_fail_together() -> None:
    story = Story(new_node()).amid(observations=crowd(5), pool_nodes=40)
    fault = assess_faults(story.history, ACT).fault

    assert common_cause(fault, story.history, ACT) is None
    broken = Story(xid(74)).amid(observations=crowd(5), pool_nodes=40)
    assert common_cause(assess_faults(broken.history, ACT).fault, broken.history, ACT) is not None


# Progress


def test_nothing_is_waited_for_at_the_beginning() -> None:
    assert not Progress().has_waited


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_node_that_was_not_drained_in_time_is_not_isolated(is_drained: bool) -> None:
    story = Story(xid(79)).then(Outcome.TIMED_OUT, facts=Isolated(is_drained=is_drained))

    assert read_progress(story.history, ACT).is_isolated is is_drained


@pytest.mark.parametrize("is_new", [True, False])
def test_a_spare_is_no_new_machine(is_new: bool) -> None:
    story = Story(xid(64)).isolated()
    story.then(Outcome.DONE, boot_id="boot-9", replacement_node_id="mi-0spare", facts=Replaced(is_new_machine=is_new))

    assert read_progress(story.history, ACT).has_new_machine is is_new


def test_a_step_that_is_called_again_has_not_been_tried() -> None:
    story = Story(xid(79)).isolated().then(Outcome.UNKNOWN, facts=CallAgain())

    assert read_progress(story.history, ACT).tried == []


def test_a_replacement_that_is_refused_for_another_reason_waits_for_no_capacity() -> None:
    story = Story(xid(64)).isolated().then(Outcome.REFUSED, facts=Refused(code=Refusal.EXTERNAL_REMEDIATOR))

    progress = read_progress(story.history, ACT)

    assert progress.missing is None
    assert [one.action for one in progress.tried] == [Action.REPLACE]


@pytest.mark.parametrize("seconds", [0, 90])
def test_the_isolation_says_whether_the_evidence_was_asked_for(seconds: int) -> None:
    """And no later turn does."""
    story = Story(xid(79)).isolated().rebooted()
    first, *others = story.history.turns
    asking = replace(first, decision=first.decision.model_copy(update={"evidence_seconds": seconds}))
    history = replace(story.history, turns=(asking, *others))

    begun = read_progress(history, ACT).evidence_begun

    assert (begun is not None and begun.turn == 1) is bool(seconds)


# Decisions


def test_a_fault_before_the_return_is_no_failure_after_it() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().reports(later(boot_id="boot-2"))

    assert story.next().escalation is not Escalation.FAILED_AFTER_RETURN


def test_what_a_new_node_comes_to_is_said_of_it() -> None:
    """Where it cannot be isolated nothing is wrong with it, and where it passes it may serve."""
    refused = Story(new_node(), job=None).then(Outcome.REFUSED, "no slot is free").next()
    passed = Story(new_node(), job=None).isolated().passed().then(Outcome.DONE).next()

    assert (refused.ending, "it was not diagnosed: no slot is free" in refused.reason) == (Ending.OBSERVED_ONLY, True)
    assert passed.reason.endswith("diagnostics passed; it may serve")


def test_a_reason_is_about_the_boot_that_was_tried_last() -> None:
    story = Story(xid(79)).isolated().rebooted()
    fault = assess_faults(story.history, ACT).fault

    assert _boot_concerned(read_progress(story.history, ACT), fault) == "boot-2"
    assert _boot_concerned(Progress(), fault) == "boot-1"


def test_a_fault_that_nobody_waited_with_is_seen_to_although_the_node_has_passed_since() -> None:
    """The node passed, and failed: which came last, a late event does not say."""
    story = Story(xid(79)).amid(healthy_since=NOW + timedelta(seconds=30))

    assert story.next().step is Step.ISOLATE


@pytest.mark.parametrize("seconds", [0, 100])
def test_a_fault_that_came_again_after_the_node_had_passed_is_not_dropped(seconds: int) -> None:
    story = Story(xid(79)).reports(later(seconds)).amid(healthy_since=NOW + timedelta(seconds=50))
    assessment = assess_faults(story.history, ACT)
    waited = Progress(waited={Awaited.BUDGET: StepResult.model_validate(result(Step.WAIT))})

    dropped = stale(DecisionBuilder(story.history, ACT, assessment, NOW), waited, assessment)

    assert (dropped is not None) is (seconds < 50)


@pytest.mark.parametrize("is_lone", [True, False])
def test_only_hangs_that_one_node_reports_are_handed_over_before_the_gang_is_stopped(is_lone: bool) -> None:
    limits = own_limits(replace(LLAMA, submission=1), [A])
    held = next(one for one in limits if is_limit_of_lone_hangs(one) is is_lone)
    spent = {(held.scope, held.limit.group): held.limit.limit}
    history = Story(xid(31)).amid(job_limits=limits, spent=spent).history
    assessment = assess_faults(history, ACT)

    decision = _escalate_repeated_lone_hangs(DecisionBuilder(history, ACT, assessment, NOW), assessment.fault)

    assert (decision is not None) is is_lone
