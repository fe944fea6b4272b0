"""Conditions that could be turned round without a test noticing: one test for each."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import DecideRequest, Decision
from nodeheal.contract.vocabulary import (
    Action,
    Awaited,
    Confirmation,
    Ending,
    Family,
    IncidentState,
    NodeState,
    Outcome,
    Step,
    Verdict,
)
from nodeheal.domain.errors import NotAccepted, PlacementRefused
from nodeheal.domain.faults.correlation import episodes
from nodeheal.domain.fleet.node import PastRecovery, may_move, moved
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Breaker, Budget, Lemon, MaintenanceWindow, Mode, Override, Weekday
from nodeheal.domain.recovery.decision_context import Observation, accelerator_scope, node_scope, observation_of
from nodeheal.domain.recovery.incident import fingerprint, incident_id_of
from nodeheal.domain.recovery.progress import read_progress
from nodeheal.operations.diagnose import DiagnosisAnswer, judge
from nodeheal.operations.engine import conclude
from nodeheal.operations.steps import launch_gang
from nodeheal.ports.commands import CommandStatus
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.jobs.runs import current_run
from nodeheal.services.recovery.build_decision_context import is_running
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.reserve_attempt import why_no_attempt
from nodeheal.services.recovery.wait_for_news import wait_for_news
from tests.support.builders import ACT, NOW, memory_ports, node, scheduler_in, stored_run, xid
from tests.support.fake_cluster import PEER, FakeCluster
from tests.support.incident_steps import A, B, C, Incident, healed, restarted_for_an_application_fault, take
from tests.support.observations import later, no_gpus, seen
from tests.support.policies import with_policy
from tests.support.recovery_story import SPARE, Story
from tests.support.replays import fault, replayed, steps
from tests.support.step_functions import run_diagnostics

NODE = xid().node_id
OTHER, THIRD = "mi-0bbbbbbbbbbbbbbbb", "mi-0cccccccccccccccc"
HOUR, DAY = 3_600, 86_400
WINDOW = ACT.correlation.window_seconds


def amid(event: HealthEvent, *observations: Observation, job: str | None = "llama") -> Decision:
    """The first decision about the event, with these faults around it."""
    return Story(event, job=job).amid(observations=observations, pool_nodes=10).next()


# What the incident is about ------------------------------------------------------------------------------------------


def test_an_incident_whose_timeline_has_lost_its_event_is_still_decided_about_it() -> None:
    story = Story(xid(79))
    story.history = replace(story.history, events=())

    assert story.next().step is Step.ISOLATE


def test_an_incident_that_was_opened_by_good_news_is_closed_and_not_a_surprise() -> None:
    decision = Story(xid(79, verdict=Verdict.OK)).next()

    assert decision.ending is Ending.OBSERVED_ONLY
    assert decision.reason == "XID 79: It reports no fault."


def test_what_was_reported_in_the_moment_of_the_passed_diagnostics_counts() -> None:
    healthy_since = NOW - timedelta(hours=1)
    story = Story(xid(79)).amid(healthy_since=healthy_since).reports(xid(74, observed_at=healthy_since))

    assert story.isolated().next().step is Step.REPLACE


# Repetition and other jobs -------------------------------------------------------------------------------------------


def test_what_comes_exactly_within_the_gap_is_the_same_time() -> None:
    assert episodes([later(0), later(60)], gap_seconds=60) == 1


def test_an_observation_that_names_no_job_is_no_other_job() -> None:
    before = seen(31, NODE, None, observed_at=later(-2 * DAY))

    assert amid(xid(31), before).step is Step.RESTART_WORKLOAD


@pytest.mark.parametrize(
    ("others", "step"),
    [
        ((seen(31, OTHER, "bert"), seen(31, THIRD, "bert")), Step.ISOLATE),
        ((seen(13, OTHER), seen(13, THIRD)), Step.ISOLATE),
        ((seen(31, OTHER, observed_at=later(1)), seen(31, THIRD, observed_at=later(1))), Step.RESTART_WORKLOAD),
    ],
    ids=["another job", "another code", "this job and code"],
)
def test_only_nodes_of_this_job_with_this_code_make_it_the_application(
    others: tuple[Observation, ...], step: Step
) -> None:
    before = seen(31, NODE, "bert", observed_at=later(-2 * DAY))

    assert amid(xid(31), before, *others).step is step


def test_nodes_without_a_job_are_not_nodes_of_one_job() -> None:
    before = [seen(31, NODE, job, observed_at=later(-2 * DAY)) for job in ("bert", "gpt")]

    decision = amid(xid(31), *before, seen(31, OTHER, None), seen(31, THIRD, None), job=None)

    assert decision.step is Step.ISOLATE


@pytest.mark.parametrize(("seconds", "is_ours"), [(-WINDOW, False), (-WINDOW - 1, True)])
def test_the_window_holds_its_first_second(seconds: int, is_ours: bool) -> None:
    decision = amid(xid(31), seen(31, OTHER, observed_at=later(seconds)))

    assert (decision.step is Step.RESTART_WORKLOAD) is is_ours


@pytest.mark.parametrize(("seconds", "text"), [(WINDOW, "2 nodes of the job show it"), (WINDOW + 1, "")])
def test_the_window_holds_its_last_second(seconds: int, text: str) -> None:
    decision = amid(xid(31), seen(31, OTHER, observed_at=later(seconds)))

    assert decision.step is Step.RESTART_WORKLOAD
    assert ("nodes of the job" in decision.reason) is bool(text)
    assert text in decision.reason


def test_a_node_counts_from_its_first_observation() -> None:
    decision = amid(xid(31), seen(31, observed_at=later(-10)), seen(31, observed_at=later(10)))

    assert f"the job's restart belongs to the one on {OTHER}" in decision.reason


# Echoes --------------------------------------------------------------------------------------------------------------


def test_what_is_no_echo_belongs_to_nothing() -> None:
    assert "belongs to" not in amid(xid(92), seen(79)).reason


@pytest.mark.parametrize(
    ("root", "told"),
    [
        (seen(79, NODE, None), f"it belongs to XID 79 on {NODE}"),
        (seen(79, OTHER, None), ""),
    ],
    ids=["its own node", "a node that has as little to do with a job"],
)
def test_without_a_job_a_secondary_fault_answers_its_own_node_only(root: Observation, told: str) -> None:
    reason = amid(xid(45), root, job=None).reason

    assert told in reason
    assert ("it belongs to XID" in reason) is bool(told)


def test_a_secondary_fault_may_answer_a_fault_that_nobody_knows() -> None:
    assert f"it belongs to XID 999 on {OTHER}" in amid(xid(45), seen(999)).reason


def test_a_secondary_fault_answers_the_gravest_and_of_equals_the_first() -> None:
    milder = seen(31, OTHER, observed_at=later(-20))
    first, then = seen(79, THIRD, observed_at=later(-10)), seen(79, OTHER, observed_at=later(-5))

    assert f"it belongs to XID 79 on {THIRD}" in amid(xid(45), then, milder, first).reason


# Links and fabrics ---------------------------------------------------------------------------------------------------


def _link(**changes: Any) -> HealthEvent:
    return xid(74, **{"labels": {"fabric": "f1"}, **changes})


@pytest.mark.parametrize(
    ("fault", "around", "step"),
    [
        (_link(), seen(74, job="bert", labels={"fabric": "f1"}), Step.DIAGNOSE),
        (_link(), seen(74, job="bert", labels={"fabric": "f2"}), Step.REPLACE),
        (_link(), seen(999), Step.REPLACE),
        (_link(), seen(79), Step.REPLACE),
        (_link(), seen(145, subcode="RLW_RXPIPE", verdict=Verdict.DEGRADED), Step.REPLACE),
        (_link(), seen(31, job="bert", labels={"fabric": "f1"}), Step.REPLACE),
        (xid(64), seen(74), Step.REPLACE),
    ],
    ids=[
        "another job on the same fabric",
        "another fabric",
        "an unknown fault",
        "a fault that is no link's",
        "a link that is only observed",
        "no link's on the same fabric",
        "our own fault is no link's",
    ],
)
def test_the_other_end_of_a_link_is_a_broken_link_of_the_same_job_or_fabric(
    fault: HealthEvent, around: Observation, step: Step
) -> None:
    story = Story(fault).amid(observations=(around,)).isolated()

    assert story.next().step is step


def _switch(**changes: Any) -> HealthEvent:
    known = {"family": Family.sxid, "code": "12020", "component": "0000:c1:00.0", "event_id": "sxid"}
    return xid(79, **{**known, "labels": {"fabric": "f1"}, **changes})


def _switch_seen(node_id: str, seconds: float, **changes: Any) -> Observation:
    event = _switch(node_id=node_id, observed_at=later(seconds), event_id=f"{node_id}-{seconds}", **changes)
    return observation_of(event, "llama")


def test_a_fault_that_is_no_fabrics_stays_with_its_node() -> None:
    assert amid(xid(79, labels={"fabric": "f1"}), _switch_seen(OTHER, -3)).step is Step.ISOLATE


@pytest.mark.parametrize(
    "around",
    [
        _switch_seen(NODE, -3),
        _switch_seen(OTHER, -3, code="99999"),
        _switch_seen(OTHER, -3, family=Family.xid, code="79"),
        _switch_seen("mi-zz", 0),
    ],
    ids=["its own report", "an unknown fault", "a fault of no fabric", "a node that comes after it in the same moment"],
)
def test_what_owns_no_fabric_takes_no_fault_away(around: Observation) -> None:
    assert amid(_switch(), around).step is Step.ISOLATE


def test_of_two_reports_in_the_same_moment_the_fabric_belongs_to_the_node_that_sorts_first() -> None:
    assert "it belongs to SXID 12020 on mi-00" in amid(_switch(), _switch_seen("mi-00", 0)).reason


def test_the_fabric_belongs_to_the_first_of_those_that_reported_it() -> None:
    around = (_switch_seen("mi-00", -3), _switch_seen("mi-zz", -5))
    together = (_switch_seen("mi-04", -5), _switch_seen("mi-02", -5))

    reasons = [Story(_switch()).amid(observations=near, pool_nodes=100).next().reason for near in (around, together)]

    assert "it belongs to SXID 12020 on mi-zz" in reasons[0]
    assert "it belongs to SXID 12020 on mi-02" in reasons[1]


# The breaker ---------------------------------------------------------------------------------------------------------


def _wave(count: int, code: int = 79, /, began: float = 0, **labels: str) -> tuple[Observation, ...]:
    return tuple(
        seen(code, f"mi-{code}-{n:02}", None, observed_at=later(began + n), labels=labels) for n in range(count)
    )


def test_nodes_that_are_only_to_be_isolated_fail_too() -> None:
    assert amid(xid(79, labels={"rack": "r7"}), *_wave(2, 54, rack="r7"), job=None).awaits is Awaited.BREAKER


def test_one_wave_has_one_page_for_the_nodes_that_fail_before_and_after_the_full_hour() -> None:
    wave = _wave(4, began=-300)

    before, after = (amid(xid(79, observed_at=later(seconds)), *wave, job=None).page_key for seconds in (-10, 10))

    assert before is not None
    assert before == after


def test_the_breaker_names_what_most_of_the_failing_nodes_share() -> None:
    around = (*_wave(3, 74, rack="r7", switch="s1"), *_wave(1, 119, rack="r7"))

    reason = amid(xid(79, labels={"rack": "r7"}), *around, job=None).reason

    assert "5 nodes of the pool fail together, 5 of them with rack r7" in reason


def test_of_two_labels_that_are_shared_equally_every_node_names_the_same() -> None:
    around = _wave(3, 74, rack="r7", switch="s1")
    labels = ({"rack": "r7", "switch": "s1"}, {"switch": "s1", "rack": "r7"})

    keys = {amid(xid(79, labels=own), *around, job=None).page_key for own in labels}

    assert len(keys) == 1


# The ladder ----------------------------------------------------------------------------------------------------------


def test_an_attempt_that_the_limit_allows_is_not_refused_because_of_an_earlier_one() -> None:
    limits = ACT.model_dump(mode="json")["limits"]
    policy = with_policy(limits={**limits, "REBOOT": {"group": "REBOOT", "limit": 2, "window_seconds": DAY}})
    story = Story(xid(79), policy=policy).amid(spent={(node_scope(NODE), Action.REBOOT): 1})

    assert story.isolated().next().step is Step.REBOOT


@pytest.mark.parametrize(
    "second",
    [PastRecovery("", NOW - timedelta(days=1)), PastRecovery("inc-old", NOW - timedelta(days=7))],
    ids=["this very incident", "exactly a week old"],
)
def test_neither_the_incident_itself_nor_one_that_has_left_the_window_marks_a_lemon(second: PastRecovery) -> None:
    story = Story(xid(79))
    if not second.incident_id:
        second = replace(second, incident_id=story.history.incident.incident_id)
    story.amid(recoveries=(PastRecovery("inc-1", NOW - timedelta(days=2)), second)).isolated()

    assert story.next().step is Step.REBOOT


def test_that_it_is_a_lemon_is_told_before_the_swap_and_not_again_after_it() -> None:
    past = tuple(PastRecovery(f"inc-{n}", NOW - timedelta(days=n)) for n in (1, 2))
    story = Story(xid(79)).amid(recoveries=past).isolated()
    assert "lemon" in story.next().reason

    assert "lemon" not in story.swapped().failed().next().reason


# Attempts ------------------------------------------------------------------------------------------------------------


def _rebooting(serial: str = "S1") -> Incident:
    """An isolated node that is to be rebooted, whose accelerator is known."""
    it = Incident(999)
    event = xid(79, component_serial=serial)
    take(it, event)
    it.isolate()
    return it


def test_an_attempt_that_the_accelerator_refuses_is_given_back_to_the_node() -> None:
    it = _rebooting()
    request = it.request()
    on_node, on_accelerator = request.decision.reserve
    for n in range(on_accelerator.limit.limit):
        it.ports.attempts.reserve(on_accelerator.scope, f"of another incident {n}", on_accelerator.limit)

    refused = why_no_attempt(request, it.ports)

    assert refused == "2 of 2 reboots of accelerator S1 in 168 h are spent"
    assert it.ports.attempts.spent(on_node.scope, on_node.limit) == {on_node.limit.group: 0}
    assert on_accelerator.scope == accelerator_scope("S1")


def test_an_attempt_is_told_as_the_nodes_in_the_answer_and_in_the_story() -> None:
    it = _rebooting()

    refused = why_no_attempt(it.request(), it.ports)

    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline]
    assert refused == ""
    assert "attempt reserved: 1 of 1 reboots in 24 h" in told


# Waiting -------------------------------------------------------------------------------------------------------------


# Ingest --------------------------------------------------------------------------------------------------------------


def test_a_heartbeat_is_a_heartbeat_whatever_its_verdict() -> None:
    ports = memory_ports()
    ports.nodes.save(node())

    assert ingest(xid(family=Family.heartbeat, verdict=Verdict.UNKNOWN), ports, ACT) is Ingested.SEEN
    assert ports.workflows.started == []  # type: ignore[attr-defined]


def test_a_fault_from_before_the_passed_diagnostics_is_kept_as_history_and_opens_nothing() -> None:
    ports = memory_ports()
    ports.nodes.save(node(healthy_since=later(1)))

    assert ingest(xid(79), ports, ACT) is Ingested.HISTORY

    [(_, kept)] = ports.nodes.recorded.values()  # type: ignore[attr-defined]
    assert kept.note == "from before the node last passed its diagnostics"
    assert ingest(xid(79, event_id="then", observed_at=later(1)), ports, ACT) is Ingested.OPENED


def test_a_fault_is_recorded_with_its_job_for_the_decisions_about_others() -> None:
    ports = memory_ports()
    ports.nodes.save(node(job_id="llama"))

    ingest(xid(79), ports, ACT)

    [kept] = ports.nodes.observations(NODE, NOW, "demo", NOW)
    assert (kept.code, kept.job_id, kept.note) == ("79", "llama", "")


def test_a_fault_that_loses_its_race_reads_the_node_again_and_opens_its_incident() -> None:
    ports = memory_ports()
    ports.nodes.save(node())
    stale = iter([node(version=7)])
    get = ports.nodes.get
    ports.nodes.get = lambda node_id: next(stale, None) or get(node_id)  # type: ignore[method-assign]

    assert ingest(xid(79), ports, ACT) is Ingested.OPENED


def test_a_fault_that_loses_every_race_is_tried_again_later() -> None:
    ports = memory_ports()
    ports.nodes.save(node())
    ports.incidents.open = lambda *_: False  # type: ignore[method-assign]

    with pytest.raises(NotAccepted, match="written by others"):
        ingest(xid(79), ports, ACT)


def test_a_copy_of_an_event_does_not_start_an_incident_that_was_closed_before_it_began() -> None:
    it = Incident(63)
    history = it.ports.incidents.history(it.id)
    it.ports.incidents.finish(replace(history.incident, state=IncidentState.CLOSED))
    it.ports.workflows.started.clear()  # type: ignore[attr-defined]

    take(it, xid(79))

    assert it.ports.workflows.started == []  # type: ignore[attr-defined]


# The ending ----------------------------------------------------------------------------------------------------------


def test_a_swap_counts_as_a_recovery_of_the_broken_node_and_leaves_its_proven_spare_healthy() -> None:
    cluster = FakeCluster()
    cluster.reports(xid(74))

    spare = cluster.node(C)

    assert (spare.state, spare.open_incident, spare.recoveries) == (NodeState.HEALTHY, None, ())
    assert len(cluster.node(A).recoveries) == 1


def test_a_spare_without_a_proof_is_suspect_and_says_why() -> None:
    cluster = FakeCluster()
    cluster.diagnoses = {C: Verdict.FAILED}

    cluster.reports(xid(74))

    assert (cluster.node(C).state, cluster.node(C).state_reason) == (NodeState.SUSPECT, "no proof as a spare")


def test_everything_that_the_last_decision_knew_is_settled_and_its_summary_is_kept() -> None:
    cluster = FakeCluster()
    cluster.before_walk = [xid(92, event_id="beside", observed_at=later(1))]
    cluster.reports(xid(999))

    incident = cluster.ports.incidents.history(cluster.incident_id).incident

    assert "The catalog does not know this fault" in incident.summary
    again = xid(92, event_id="again", observed_at=later(60))
    assert ingest(again, cluster.ports, ACT) is Ingested.REPEATED


def test_an_application_fault_whose_job_could_not_be_restarted_is_settled() -> None:
    cluster = FakeCluster()
    cluster.deaf = {PEER}
    assert cluster.reports(xid(31)).end == "Escalated"

    assert ingest(xid(31, event_id="again", observed_at=later(60)), cluster.ports, ACT) is Ingested.REPEATED


# Looking around ------------------------------------------------------------------------------------------------------


def _crashed(*events: HealthEvent) -> Incident:
    """A row remap that waits for its job; then these events; then every rank of the job dies."""
    it = Incident(63)
    it.request()
    for event in events:
        take(it, event)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=1)
    return it


def test_a_job_that_has_crashed_runs_no_more_although_the_incident_itself_is_open() -> None:
    it = _crashed()

    assert is_running(*current_run("llama", it.ports), it.ports.incidents.history(it.id).incident, it.ports) is False


def test_a_job_whose_other_node_is_being_recovered_is_about_to_run_again() -> None:
    it = _crashed(xid(79, node_id=B, instance_id=B, event_id="on-b"))

    assert is_running(*current_run("llama", it.ports), it.ports.incidents.history(it.id).incident, it.ports) is True


def test_a_node_of_the_gang_that_nobody_knows_recovers_nothing() -> None:
    it = _crashed()
    run = stored_run(it.ports, "llama", 1)
    it.ports.jobs.save_run(run.with_task(replace(run.tasks[1], node_id="mi-gone")))

    assert is_running(*current_run("llama", it.ports), it.ports.incidents.history(it.id).incident, it.ports) is False


# What the new boot says ----------------------------------------------------------------------------------------------


def test_an_applications_fault_on_the_new_boot_does_not_speak_against_the_reboot() -> None:
    again = xid(31, event_id="app", boot_id="boot-2")

    assert Story(xid(79)).isolated().rebooted().passed().reports(again).next().step is Step.RETURN


@pytest.mark.parametrize(
    ("first", "second"),
    [(("z", 10), ("a", 20)), (("a", 10), ("z", 10))],
    ids=["the earlier one", "of the same moment the one that sorts first"],
)
def test_the_first_fault_of_the_new_boot_is_named(first: tuple[str, int], second: tuple[str, int]) -> None:
    story = Story(xid(79)).isolated().rebooted()
    for code, (event_id, seconds) in ((48, second), (74, first)):
        story.reports(xid(code, event_id=event_id, boot_id="boot-2", observed_at=later(seconds)))

    assert "the reboot did not help (XID 74" in story.next().reason


# How decisions are put -----------------------------------------------------------------------------------------------


def test_an_accelerator_without_a_limit_is_not_reserved_for() -> None:
    story = Story(xid(79, component_serial="S1"), policy=with_policy(accelerator_limits={})).isolated()

    assert [held.scope for held in story.next().reserve] == [node_scope(NODE)]


def test_a_pools_own_diagnostics_level_wins() -> None:
    policy = with_policy(pools={"demo": {"mode": "act", "diagnostics_level": 4}})

    assert Story(xid(79), policy=policy).isolated().rebooted().next().diagnostics_level == 4


def test_a_reason_reads_as_one_sentence_and_tells_of_others_only_where_there_are_some() -> None:
    alone, unknown = amid(xid(79)).reason, amid(xid(999)).reason

    assert alone.startswith("XID 79 (GPU has fallen off the bus): One reboot brings")
    assert "beside it" not in alone
    assert "eside it" not in unknown


# What holds nodeheal back --------------------------------------------------------------------------------------------


def _milder() -> RecoveryPolicy:
    rule = {"fault": "xid/79", "ladder": ["RESTART_WORKLOAD", "REBOOT"], "why": "it is the job's here"}
    return with_policy(overrides=[rule])


def test_a_fault_that_was_put_right_after_the_isolation_leaves_the_node_to_a_human() -> None:
    story = Story(xid(79)).isolated()
    story.policy = _milder()

    assert story.next().step is Step.ESCALATE
    assert "the node is isolated, and nothing asks for that any more" in story.next().reason


def test_a_fault_that_was_put_right_after_the_whole_recovery_changes_its_ending_no_more() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE).then(Outcome.DONE, "llama runs again")
    story.policy = _milder()

    assert story.next().ending is Ending.RECOVERED


def test_a_remap_is_not_waited_for_where_the_reboot_would_be_held_back() -> None:
    policy = with_policy(default_pool={"mode": "act", "modes": {"REBOOT": "observe"}})

    assert Story(xid(63), policy=policy).amid(job_is_running=True).next().ending is Ending.OBSERVED_ONLY


def test_where_a_reboot_needs_approval_a_remap_waits_for_its_job_and_then_asks() -> None:
    policy = with_policy(default_pool={"mode": "act", "modes": {"REBOOT": "approve"}})
    story = Story(xid(63), policy=policy)

    waits = [story.amid(job_is_running=runs).next().awaits for runs in (True, False)]

    assert waits == [Awaited.JOB_END, Awaited.APPROVAL]


def test_an_opt_out_is_the_reason_that_is_told_in_a_pool_that_is_observed_anyway() -> None:
    policy = with_policy(default_pool={"mode": "observe"}, opted_out={NODE: "lab machine"})

    assert "opted out (lab machine)" in Story(xid(79), policy=policy).next().reason


@pytest.mark.parametrize(
    ("event", "ladder", "step"),
    [
        (xid(63), ["OBSERVE"], Step.CLOSE),
        (xid(79, family=Family.host, code="scheduled_event", verdict=Verdict.DEGRADED), None, Step.WAIT),
    ],
    ids=["nothing comes after it", "a ladder of two escalation steps"],
)
def test_a_job_is_waited_for_where_a_second_step_waits_too(
    event: HealthEvent, ladder: list[str] | None, step: Step
) -> None:
    fault = f"{event.family}/{event.code}"
    rule = {"fault": fault, "ladder": ladder, "next_rung": "job_end", "why": "so it is here"}
    policy = with_policy(overrides=[rule] if ladder else [])

    assert Story(event, policy=policy).amid(job_is_running=True).next().step is step


# Coming up -----------------------------------------------------------------------------------------------------------


def test_a_boot_after_the_fault_is_no_excuse_for_it() -> None:
    assert Story(no_gpus()).amid(booted_at=later(10)).next().step is Step.ISOLATE


def test_the_later_of_boot_and_upgrade_is_what_a_node_settles_from() -> None:
    around = {"booted_at": later(-5 * HOUR), "agent_since": later(-30)}

    assert Story(no_gpus()).amid(**around).next().step is Step.WAIT


def test_gpus_that_went_missing_long_after_the_boot_are_a_fault_although_they_came_back() -> None:
    story = Story(no_gpus()).amid(booted_at=later(-5 * HOUR))
    story.reports(no_gpus(event_id="back", observed_at=later(5), verdict=Verdict.OK))

    assert story.next().step is Step.ISOLATE


# Steps ---------------------------------------------------------------------------------------------------------------


def test_a_turn_without_a_result_is_looked_at_before_the_next_one_is_decided() -> None:
    it = Incident()
    it.request()

    decide_next_step(DecideRequest(incident_id=it.id, turn=1), it.ports, ACT)

    [result] = [turn.result for turn in it.ports.incidents.history(it.id).turns if turn.result]
    assert (result.step, result.outcome, result.reason) == (Step.ISOLATE, Outcome.FAILED, "it could not be drained")


def test_a_result_that_belongs_to_no_turn_is_not_recorded() -> None:
    it = Incident()
    stray = StepResult(step=Step.WAIT, node_id=A, outcome=Outcome.DONE, reason="stray", finished_at=NOW)

    decide_next_step(DecideRequest(incident_id=it.id, turn=0, result=stray), it.ports, ACT)

    assert [entry.kind for entry in it.ports.incidents.history(it.id).timeline] == ["event", "decision"]


def test_a_node_that_is_given_back_says_since_when_and_until_when_and_why() -> None:
    it = Incident()
    it.isolate(), it.reboot()
    proven_at = it.diagnose().finished_at
    it.clock.advance(5)

    result = it.give_back()

    back, until = it.node(), it.clock() + timedelta(seconds=ACT.probation_seconds)
    assert (back.probation_until, back.healthy_since, back.passed_at, back.drained_by_us) == (
        until,
        proven_at,
        proven_at,
        False,
    )
    assert "back to service" in back.state_reason
    assert result.boot_id == "boot-2"
    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline]
    assert f"{A} is back in service, on probation until {until:%H:%M:%S} UTC" in told


def test_a_launch_is_told_with_its_ranks() -> None:
    it = healed()

    it.relaunch()

    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline]
    assert f"launching llama as run 2: rank 0 on {A}, rank 1 on {B}" in told


def test_no_rank_is_placed_on_a_node_that_is_out_of_service_whoever_took_it_out() -> None:
    it = healed()
    request = it.request()
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))

    launch_gang(request, it.ports, ACT)

    assert it.resumed().reason == f"{B} is QUARANTINED"


def test_a_rank_that_a_broken_launch_has_started_is_not_started_again() -> None:
    it = healed()
    request = it.request()
    first = stored_run(it.ports, "llama", 1)
    tasks = tuple(replace(task, task_id="", status="PENDING", exit_code=None) for task in first.tasks)
    started = (replace(tasks[0], task_id="task-llama-2-0"), tasks[1])
    it.ports.jobs.save_run(Run("llama", 2, it.clock(), f"{it.id}/{it.turn}", started))
    ranks: list[int] = []
    start = scheduler_in(it.ports).start_rank

    def watched(job: Any, run: Any, task: Any, environment: Any) -> str:
        ranks.append(task.rank)
        return str(start(job, run, task, environment))

    scheduler_in(it.ports).start_rank = watched
    launch_gang(request, it.ports, ACT)

    assert ranks == [1]


# When it has settled -------------------------------------------------------------------------------------------------


def _settling(now: float, *reports: HealthEvent) -> Decision:
    story = Story(no_gpus()).amid(booted_at=NOW).then(Outcome.TIMED_OUT)
    for event in reports:
        story.reports(event)
    story.now = later(now)
    return story.next()


def _then(seconds: float, event_id: str, verdict: Verdict = Verdict.OK, **changes: Any) -> HealthEvent:
    return no_gpus(**{"event_id": event_id, "observed_at": later(seconds), "verdict": verdict, **changes})


def test_what_comes_in_the_moment_in_which_it_should_have_settled_counts() -> None:
    assert Story(no_gpus()).amid(booted_at=later(-300)).next().step is Step.ISOLATE
    assert _settling(301, _then(300, "well")).ending is Ending.OBSERVED_ONLY
    assert _settling(300).step is Step.ESCALATE


@pytest.mark.parametrize(
    "well",
    [_then(301, "well", node_id=OTHER), _then(301, "well", code="GPU_COUNT_MISMATCH")],
    ids=["another node", "another check"],
)
def test_good_news_of_another_node_or_check_is_none_of_this_one(well: HealthEvent) -> None:
    assert "silence is not health" in _settling(310, well).reason


@pytest.mark.parametrize(
    ("reports", "step"),
    [
        ((_then(301, "b", Verdict.FAILED), _then(302, "a")), Step.CLOSE),
        ((_then(301, "b"), _then(302, "a", Verdict.FAILED)), Step.ISOLATE),
        ((_then(301, "b"), _then(301, "a", Verdict.FAILED)), Step.CLOSE),
        ((_then(301, "b", Verdict.FAILED), _then(301, "a")), Step.ISOLATE),
    ],
    ids=["well at last", "missing at last", "the same moment, well", "the same moment, missing"],
)
def test_the_last_report_after_the_settle_time_counts_in_whatever_order_they_came(
    reports: tuple[HealthEvent, ...], step: Step
) -> None:
    assert _settling(310, *reports).step is step
    assert _settling(310, *reversed(reports)).step is step


# The job's own fault -------------------------------------------------------------------------------------------------


def test_a_restart_that_failed_is_not_repeated_for_a_later_fault() -> None:
    story = Story(xid(31)).then(Outcome.FAILED, "rank 1 died")

    assert story.reports(xid(31, event_id="again", observed_at=later(60))).next().step is Step.ESCALATE


@pytest.mark.parametrize(("ladder", "step"), [(["OBSERVE"], Step.CLOSE), (["OBSERVE", "REBOOT"], Step.WAIT)])
def test_after_a_restart_a_job_is_waited_for_where_a_second_step_waits(ladder: list[str], step: Step) -> None:
    rule = {"fault": "xid/63", "ladder": ladder, "next_rung": "job_end", "why": "so it is here"}
    story = Story(xid(31), policy=with_policy(overrides=[rule])).amid(job_is_running=True).reports(xid(63))

    assert story.then(Outcome.DONE, "llama restarted").next().step is step


def test_the_riddle_that_is_handed_over_is_the_one_that_is_named() -> None:
    story = Story(xid(31)).reports(xid(92)).reports(xid(999)).then(Outcome.DONE, "llama restarted")

    assert "but XID 999 beside it needs a human" in story.next().reason


# Healing -------------------------------------------------------------------------------------------------------------


def test_each_step_of_a_recovery_says_why_it_is_taken() -> None:
    story = Story(xid(79)).isolated().rebooted()
    prove = story.next().reason
    back = story.passed().next().reason
    restart = story.then(Outcome.DONE).next().reason
    ended = story.then(Outcome.DONE, "llama runs again").next().reason

    assert prove.startswith("it is back with a new boot id")
    assert back.startswith("proven by a new boot id and passed diagnostics")
    assert restart.endswith("on the same nodes")
    assert ended == "XID 79 (GPU has fallen off the bus): rebooted; diagnostics passed; llama runs again"


def test_a_swap_restarts_the_job_in_the_spares_place() -> None:
    assert f"with {SPARE} in place of" in Story(xid(74)).isolated().swapped().passed().next().reason


def _bad_link() -> Story:
    """A link fault whose first escalation step is a reboot, and whose other end is reported too."""
    event = xid(145, subcode="RLW_REMAP/0x00000040")
    return Story(event).amid(observations=(seen(74, observed_at=later(1)),)).isolated()


def test_a_reboot_needs_no_diagnosis_of_the_two_ends_before_it() -> None:
    assert _bad_link().next().step is Step.REBOOT


def test_after_another_step_the_two_ends_are_not_told_apart_any_more() -> None:
    story = _bad_link().then(Outcome.REFUSED, "no attempt is reserved").answers(Confirmation.CONFIRMED)

    assert story.next().step is Step.REPLACE


def test_a_node_that_only_passed_its_diagnostics_is_given_back_for_that() -> None:
    story = Story(xid(74)).amid(observations=(seen(74, observed_at=later(1)),)).isolated().passed()

    assert story.next().reason.startswith("it passed its diagnostics")


def test_what_holds_a_recovery_back_in_the_middle_is_told() -> None:
    story = Story(xid(79)).isolated()
    story.policy = with_policy(default_pool={"mode": "act", "modes": {"REBOOT": "observe"}})
    assert "pool demo is in observe mode for a reboot; the node stays isolated" in story.next().reason

    story.policy = story.policy.model_copy(update={"opted_out": {NODE: "lab machine"}})
    assert "opted out (lab machine); the node stays isolated" in story.next().reason

    story.policy = ACT
    story.amid(observations=_wave(4), pool_nodes=10)
    assert "5 nodes of the pool fail together" in story.next().reason


# The launch ----------------------------------------------------------------------------------------------------------


def test_a_launch_settles_the_last_runs_faults_for_the_last_run_only() -> None:
    it = healed()
    of_the_job, of_the_node = xid(31, node_id=B), xid(74, node_id=B)
    settled = {fingerprint(event): "inc-1" for event in (of_the_job, of_the_node)}
    it.ports.nodes.save(replace(it.node(B), resolved_faults=settled))

    it.relaunch()

    assert it.node(B).resolved_faults == {fingerprint(of_the_node): "inc-1"}


def test_of_a_refused_launch_what_was_started_is_stopped_and_may_still_write() -> None:
    it = healed()
    request = it.request()
    first = stored_run(it.ports, "llama", 1)
    tasks = tuple(replace(task, task_id="", status="PENDING", exit_code=None) for task in first.tasks)
    started = (replace(tasks[0], task_id="task-llama-2-0"), tasks[1])
    it.ports.jobs.save_run(Run("llama", 2, it.clock(), f"{it.id}/{it.turn}", started))

    def refused(*_: object) -> str:
        raise PlacementRefused("no room")

    no_room: Any = refused
    scheduler_in(it.ports).start_rank = no_room
    launch_gang(request, it.ports, ACT)

    run = stored_run(it.ports, "llama", 2)
    assert [(task.status, task.stop_reason) for task in run.tasks] == [("PENDING", ""), ("STOPPED", "never started")]
    assert "task-llama-2-0" in scheduler_in(it.ports).stopped


# The look at the deadline --------------------------------------------------------------------------------------------


def test_an_isolation_that_broke_before_the_drain_says_so() -> None:
    it = Incident()
    request = it.request()
    it.ports.nodes.save(replace(it.node(), state=NodeState.ISOLATED))

    result = conclude(request, it.ports)

    assert (result.outcome, result.reason) == (Outcome.FAILED, "it could not be drained")


def _diagnosing(status: CommandStatus) -> StepResult:
    """What is concluded of a diagnosis whose command went so."""
    it = Incident()
    it.isolate(), it.reboot()
    request = it.request()
    run_diagnostics(request, it.ports, ACT)
    statuses = it.ports.commands.statuses  # type: ignore[attr-defined]
    statuses.update(dict.fromkeys(statuses, status))
    return conclude(request, it.ports)


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        (CommandStatus("FAILED"), Outcome.TIMED_OUT, "the command is FAILED"),
        (CommandStatus("SUCCEEDED", '{"verdict": "OK"}'), Outcome.UNKNOWN, "cannot be read"),
        (CommandStatus("SUCCEEDED", "null"), Outcome.UNKNOWN, "cannot be read"),
        (CommandStatus("SUCCEEDED", '{"verdict": "OK", "failed_tests": []}'), Outcome.DONE, "diagnostics passed"),
    ],
    ids=["failed", "without tests", "no document", "passed"],
)
def test_a_look_at_a_diagnosis_names_the_boot_that_it_is_about(
    status: CommandStatus, outcome: Outcome, reason: str
) -> None:
    result = _diagnosing(status)

    assert (result.outcome, result.boot_id) == (outcome, "boot-2")
    assert reason in result.reason


@pytest.mark.parametrize(("undone", "told"), [("pcie", "no result (pcie)"), ("", "no result")])
def test_a_diagnosis_without_a_result_names_the_tests_that_it_knows_of(undone: str, told: str) -> None:
    answer = DiagnosisAnswer(verdict=Verdict.UNKNOWN, undone_tests=(undone,) if undone else ())

    assert judge(answer, {}, 20)[1] == f"diagnostics gave {told}"
    failed = answer.model_copy(update={"verdict": Verdict.FAILED, "failed_tests": ("memory",)})
    assert judge(failed, {}, 20)[1] == "diagnostics failed: memory"


def test_a_restart_that_was_not_seen_says_where_its_ranks_are() -> None:
    it = healed()

    result = conclude(it.request(), it.ports)

    assert result.outcome is Outcome.TIMED_OUT
    assert result.reason.endswith("rank 0 is STOPPED, rank 1 is STOPPED")


# News ----------------------------------------------------------------------------------------------------------------


def _waiting(*beside: HealthEvent) -> Incident:
    it = Incident(63)
    for event in beside:
        take(it, event)
    wait_for_news(it.request(), it.ports)
    assert it.is_waiting()
    return it


def test_a_copy_of_what_the_decision_knew_is_no_news() -> None:
    it = _waiting()

    assert take(it, xid(63)) is Ingested.DUPLICATE
    assert it.is_waiting()


def test_a_harmless_line_that_was_told_before_is_no_news_whatever_else_was_told() -> None:
    it = _waiting(xid(92, event_id="other", observed_at=later(1)))

    take(it, xid(63, event_id="again", observed_at=later(2)))

    assert it.is_waiting()


def test_a_fault_that_asks_for_something_is_news_every_time() -> None:
    it = restarted_for_an_application_fault()
    take(it, xid(63, observed_at=it.clock()))
    wait_for_news(it.request(), it.ports)
    assert it.is_waiting()
    it.clock.advance(60)

    take(it, xid(31, event_id="next-run", observed_at=it.clock()))

    assert it.resumed().outcome is Outcome.DONE


def test_an_event_that_the_last_decision_has_just_counted_has_joined() -> None:
    it = Incident(999)
    append = it.ports.incidents.append
    decided: list[Decision] = []

    def then_it_is_decided(incident_id: str, entry: Any) -> bool:
        is_new = append(incident_id, entry)
        if not decided:
            decided.append(it.request().decision)
        return is_new

    it.ports.incidents.append = then_it_is_decided  # type: ignore[method-assign]

    assert take(it, xid(92, event_id="beside")) is Ingested.JOINED
    assert (decided[0].ending, decided[0].events_seen) == (Ending.HANDED_TO_A_HUMAN, 2)


def test_a_fabric_that_failed_before_is_another_one() -> None:
    before = _switch_seen(OTHER, -3, labels={"fabric": "f2"})

    assert amid(_switch(), before).step is Step.ISOLATE


def test_a_job_whose_restart_failed_counts_as_stopped() -> None:
    story = Story(xid(31)).then(Outcome.FAILED, "rank 1 died")

    assert read_progress(story.history, ACT).has_stopped_job is True


# What an event asks for ----------------------------------------------------------------------------------------------


def test_good_news_asks_for_nothing() -> None:
    well = xid(79, event_id="well", verdict=Verdict.OK)

    assert Story(xid(92)).reports(well).next().ending is Ending.OBSERVED_ONLY


def test_an_override_leaves_a_link_a_link() -> None:
    rule = {"fault": "xid/74", "ladder": ["REPLACE"], "why": "our boards never come back"}
    story = Story(xid(74), policy=with_policy(overrides=[rule])).amid(observations=(seen(74),)).isolated()

    assert story.next().step is Step.DIAGNOSE


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (xid(63, verdict=Verdict.UNKNOWN), "It is reported as UNKNOWN"),
        (xid(154, verdict=Verdict.UNKNOWN), "XID 154"),
    ],
    ids=["where the catalog is sure", "where the catalog is not sure either"],
)
def test_a_doubt_is_told_where_the_catalog_has_none(event: HealthEvent, reason: str) -> None:
    decision = Story(event).amid(job_is_running=True).next()

    assert decision.step is Step.ESCALATE
    assert reason in decision.reason
    assert ("the check cannot tell" in decision.reason) is (event.code == "63")


@pytest.mark.parametrize(
    ("event", "step"),
    [
        (xid(79, family=Family.sxid, code="20009"), Step.CLOSE),
        (xid(63, subcode="fatal"), Step.WAIT),
        (xid(79, family=Family.sxid, code="20009", subcode="fatal"), Step.ISOLATE),
    ],
    ids=["not called fatal", "no switch", "a switch that is called fatal"],
)
def test_fatal_is_a_word_of_the_switches(event: HealthEvent, step: Step) -> None:
    assert Story(event).amid(job_is_running=True).next().step is step


@pytest.mark.parametrize(
    ("code", "subcode", "step"),
    [
        (103, None, Step.ESCALATE),
        (64, None, Step.REPLACE),
        (159, None, Step.ESCALATE),
        (145, "RLW_TAGSTATE/0x80000000", Step.CLOSE),
        (150, "MSE/0x00000000", Step.ESCALATE),
    ],
    ids=[
        "it may come to a reboot",
        "known for it",
        "observed at first",
        "never more than observed",
        "a reboot at once",
    ],
)
def test_a_code_that_is_not_known_for_the_product_touches_nothing_that_it_could_destroy(
    code: int, subcode: str | None, step: Step
) -> None:
    event = xid(code, subcode=subcode, product="NVIDIA A100-SXM4-80GB")
    story = Story(event)
    if step is Step.REPLACE:
        story.isolated()

    assert story.next().step is step


# The driver's word ---------------------------------------------------------------------------------------------------


def _said(subcode: str | None = "NONE", seconds: float = 0, **changes: Any) -> HealthEvent:
    verdict = Verdict.OK if subcode == "NONE" else Verdict.FAILED
    known = {"event_id": f"154-{subcode}", "verdict": verdict, "observed_at": later(seconds)}
    return xid(154, **{**known, "subcode": subcode, **changes})


@pytest.mark.parametrize(
    ("said", "step"),
    [
        (_said(None), Step.ISOLATE),
        (_said(family=Family.sxid), Step.ISOLATE),
        (_said(seconds=WINDOW), Step.CLOSE),
        (_said(seconds=-WINDOW), Step.CLOSE),
        (_said(seconds=-WINDOW - 1), Step.ISOLATE),
    ],
    ids=["without an action", "a switch's 154", "at the window's end", "at its beginning", "before it"],
)
def test_only_a_statement_of_the_driver_close_to_the_fault_wins(said: HealthEvent, step: Step) -> None:
    assert Story(xid(79)).reports(said).next().step is step


@pytest.mark.parametrize(
    ("event", "step"),
    [
        (xid(79, family=Family.nvml, code="GPU_LOST"), Step.ISOLATE),
        (xid(79, family=Family.nvrm_other, code="gpu_lost"), Step.CLOSE),
    ],
    ids=["another tool's", "the driver's own"],
)
def test_the_driver_speaks_for_its_own_lines(event: HealthEvent, step: Step) -> None:
    assert Story(event).reports(_said()).next().step is step


def test_a_statement_wins_over_the_table_and_not_over_itself() -> None:
    by_itself, about_another = Story(_said("NODE_REBOOT")), Story(xid(79)).reports(_said("NODE_REBOOT"))

    assert "The driver states the recovery action itself" not in by_itself.next().why
    assert "The driver states the recovery action itself" in about_another.next().why


def test_a_link_stays_a_link_whatever_the_driver_wants_done_about_it() -> None:
    story = Story(xid(74)).reports(_said("NODE_REBOOT")).amid(observations=(seen(74),))
    story.amid(spent={(node_scope(NODE), Action.REBOOT): 1}).isolated()

    assert story.next().step is Step.DIAGNOSE


# A node's life -------------------------------------------------------------------------------------------------------

_S = NodeState


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_S.HEALTHY, {_S.SUSPECT, _S.ISOLATED, _S.RETIRED}),
        (_S.SUSPECT, {_S.HEALTHY, _S.ISOLATED, _S.RETIRED}),
        (_S.ISOLATED, {_S.RECOVERING, _S.PROBATION, _S.QUARANTINED, _S.HEALTHY}),
        (_S.RECOVERING, {_S.PROBATION, _S.QUARANTINED}),
        (_S.PROBATION, {_S.HEALTHY, _S.SUSPECT, _S.ISOLATED, _S.RETIRED}),
        (_S.QUARANTINED, {_S.HEALTHY, _S.PROBATION, _S.RETIRED}),
        (_S.RETIRED, set()),
    ],
)
def test_a_node_goes_where_its_life_allows_and_may_always_stay(before: NodeState, after: set[NodeState]) -> None:
    assert {state for state in NodeState if may_move(before, state)} == after | {before}


def test_a_move_says_why() -> None:
    assert moved(node(), NodeState.ISOLATED, "off the bus", NOW).state_reason == "off the bus"


@pytest.mark.parametrize("state", [NodeState.ISOLATED, NodeState.RECOVERING, NodeState.QUARANTINED])
def test_a_node_that_is_out_of_service_keeps_its_incident_although_that_has_broken(state: NodeState) -> None:
    it = Incident()
    incident = it.ports.incidents.history(it.id).incident
    it.ports.incidents.finish(replace(incident, state=IncidentState.ESCALATED))
    it.ports.nodes.save(replace(it.node(), state=state))

    assert take(it, xid(48)) is Ingested.JOINED


def test_a_new_boot_forgets_what_was_settled_and_remembers_when_it_came() -> None:
    before = node(resolved_faults={"xid/79/-/boot-1": "inc-1"})

    after = before.booted("boot-2", later(60))

    assert (after.resolved_faults, after.booted_at, after.last_seen) == ({}, later(60), later(60))


def test_an_event_that_comes_late_does_not_make_the_node_look_older() -> None:
    before = node(last_seen=later(60))

    assert before.booted("boot-1", NOW).last_seen == later(60)
    assert before.booted("boot-2", NOW).last_seen == later(60)


@pytest.mark.parametrize(
    ("version", "seconds", "expected"),
    [
        ("0.2.0", 60, ("0.2.0", 60)),
        ("0.1.0", 60, ("0.1.0", 0)),
        ("0.0.9", -1, ("0.1.0", 0)),
        ("0.2.0", 0, ("0.2.0", 0)),
    ],
    ids=["an upgrade", "the same", "from before the upgrade", "in the same moment"],
)
def test_an_agents_version_is_known_since_it_was_first_heard(
    version: str, seconds: float, expected: tuple[str, float]
) -> None:
    after = node(agent_version="0.1.0", agent_since=NOW).with_agent_version(version, later(seconds))

    assert (after.agent_version, after.agent_since) == (expected[0], later(expected[1]))
    assert node().with_agent_version("0.1.0", NOW).agent_since == NOW


def test_an_incident_counts_as_one_recovery_however_often_its_ending_is_written() -> None:
    first, then = PastRecovery("inc-1", NOW), PastRecovery("inc-2", later(60))

    after = node().with_recovery(first).with_recovery(then).with_recovery(then)

    assert after.recoveries == (then, first)


def test_an_incidents_name_can_be_an_executions_name() -> None:
    name = incident_id_of(xid(79, node_id="arn:aws/" + "x" * 60 + ".end"))

    assert re.fullmatch(r"inc-20260301T030000-[A-Za-z0-9-]{24}-[0-9a-f]{10}", name)
    assert name.split("-", 2)[2].startswith("x" * 20 + "-end-")


# The policy document -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["REBOOT", "REPLACE", "RESTART_WORKLOAD"])
def test_a_policy_without_a_limit_is_refused(missing: str) -> None:
    limits = {name: limit for name, limit in ACT.model_dump(mode="json")["limits"].items() if name != missing}

    with pytest.raises(ValueError, match=f"{missing} is missing"):
        with_policy(limits=limits)


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [((), (), True), (("a",), ("b", "a"), True), (("a",), ("b",), False), ((), ("a",), False)],
    ids=["every pool twice", "one pool twice", "two pools", "one pool beside all"],
)
def test_an_override_that_stands_twice_is_refused(
    first: tuple[str, ...], second: tuple[str, ...], is_refused: bool
) -> None:
    rules = [{"fault": "xid/79", "ladder": ["REBOOT"], "pools": pools, "why": "so"} for pools in (first, second)]

    if is_refused:
        with pytest.raises(ValueError, match="xid/79 stands twice for the same pool"):
            with_policy(overrides=rules)
    else:
        assert len(with_policy(overrides=rules).overrides) == 2


def test_of_two_overrides_that_are_equally_exact_one_is_taken() -> None:
    rules = [
        {"fault": "xid/145", "ladder": ["REBOOT"], "pools": ["demo"], "why": "the pool's"},
        {"fault": "xid/145/X", "ladder": ["REPLACE"], "why": "the sub-code's"},
    ]

    found = with_policy(overrides=rules).override("xid/145/X", "demo")

    assert found is not None
    assert found.why == "the pool's"


def test_a_policy_that_is_let_act_has_no_mode_no_window_and_no_opt_out_left() -> None:
    held = {
        "mode": "observe",
        "modes": {"REBOOT": "approve"},
        "maintenance": [{"days": ["sunday"], "starts_at": "02:00", "minutes": 120, "why": "patching"}],
    }
    policy = with_policy(default_pool=held, pools={"demo": held}, opted_out={NODE: "lab machine"}).acting()

    for pool in ("demo", "another"):
        assert policy.why_only_observe(NODE, pool, NOW) == ""
        assert {policy.pool(pool).mode_of(action) for action in (Action.REBOOT, Action.REPLACE)} == {Mode.act}


@pytest.mark.parametrize(("nodes", "slots"), [(10_000, 1_000), (3, 1), (0, 1)])
def test_a_percentage_is_of_a_hundred_and_never_below_the_floor(nodes: int, slots: int) -> None:
    assert Budget(max_nodes=100_000, max_percent=10, floor_nodes=1).slots(nodes) == slots


def test_the_breakers_percentage_is_of_a_hundred_too() -> None:
    assert Breaker(max_nodes=100_000, percent=10).limit(10_000) == 1_000


def test_a_maintenance_window_holds_on_its_day_from_its_first_moment() -> None:
    sunday, monday = (
        MaintenanceWindow(days=(day,), starts_at="03:00", minutes=60, why="patching")
        for day in (Weekday.sunday, Weekday.monday)
    )

    assert sunday.holds(NOW)  # a Sunday, 03:00
    assert not sunday.holds(NOW - timedelta(seconds=1))
    assert not monday.holds(NOW)


def test_a_maintenance_window_takes_no_zone() -> None:
    with pytest.raises(ValueError, match="it is UTC"):
        MaintenanceWindow(days=(Weekday.sunday,), starts_at="03:00+02:00", minutes=60, why="patching")


def test_a_lemon_is_taken_out_or_not_a_lemon() -> None:
    with pytest.raises(ValueError, match="does not take a lemon out"):
        Lemon(action=Action.REBOOT)


def test_a_reset_stands_between_an_isolation_and_a_reboot() -> None:
    ladder = (Action.ISOLATE, Action.RESET_GPU, Action.REBOOT)

    assert Override(fault="xid/79", ladder=ladder, why="step by step").ladder == ladder


# Replay --------------------------------------------------------------------------------------------------------------


def test_another_job_on_the_node_means_that_the_one_before_has_ended() -> None:
    seen = replayed(fault(63, A, 0, "llama"), fault(63, A, HOUR, "bert", component="0000:ba:00.0"))

    assert steps(seen)[:3] == ["WAIT", "ISOLATE", "REBOOT"]


def test_a_line_that_names_no_job_leaves_the_one_that_was_known() -> None:
    seen = replayed(fault(63, A, 0, "llama"), fault(63, A, HOUR, None, component="0000:ba:00.0"))

    assert steps(seen) == ["WAIT", "WAIT"]


def test_waits_end_in_the_order_of_their_deadlines() -> None:
    week = 7 * DAY
    seen = replayed(fault(63, B, 0, "bert"), fault(63, A, 60, "llama"), fault(45, C, week + 120))

    ended = [one for one in seen.decisions if one.step == "ESCALATE"]
    assert [one.node_id for one in ended] == [B, A]
    assert [one.at for one in ended] == [later(week), later(week + 60)]


def test_a_wait_ends_before_what_comes_in_the_moment_of_its_deadline() -> None:
    seen = replayed(fault(63, A, 0, "llama"), fault(79, A, 7 * DAY, "llama"))

    assert steps(seen)[:2] == ["WAIT", "ESCALATE"]


def test_a_node_that_a_human_gave_back_opens_a_new_incident() -> None:
    given_back = 8 * HOUR
    seen = replayed(fault(74), fault(48, A, given_back - 1), fault(64, A, given_back))

    assert seen.ingested == {"OPENED": 2, "JOINED": 1}
