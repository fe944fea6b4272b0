"""Conditions that could be turned round without a test noticing: one test for each."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.steps import DecideRequest, Decision, StepResult
from nodeheal.contract.vocabulary import Action, Ending, Family, IncidentState, NodeState, Outcome, Step, Verdict
from nodeheal.domain.correlate import episodes
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.incident import incident_id_of
from nodeheal.domain.job import Run
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.domain.surroundings import PastRecovery, Sighting, accelerator_scope, node_scope, sighting_of
from nodeheal.services.decide_next_step import decide_next_step
from nodeheal.services.ingest import Ingested, ingest
from nodeheal.services.launch_gang import launch_gang
from nodeheal.services.look_around import is_running, look_around
from nodeheal.services.reserve_attempt import reserve_attempt
from nodeheal.services.wait_for_news import wait_for_news
from tests.unit.builders import ACT, NOW, memory_ports, node, xid
from tests.unit.test_decide import Story
from tests.unit.test_regressions import restarted_for_an_application_fault
from tests.unit.test_steps import A, B, C, Incident
from tests.workflows.fake_cluster import PEER, FakeCluster

NODE = xid().node_id
OTHER, THIRD = "mi-0bbbbbbbbbbbbbbbb", "mi-0cccccccccccccccc"
HOUR, DAY = 3_600, 86_400
WINDOW = ACT.correlation.window_seconds


def later(seconds: float) -> Any:
    """A time after the fault."""
    return NOW + timedelta(seconds=seconds)


def seen(code: int = 31, /, node_id: str = OTHER, job: str | None = "llama", **changes: Any) -> Sighting:
    """A fault that was seen somewhere in the pool."""
    event_id = f"{node_id}-{code}-{job}-{changes.get('observed_at', NOW)}"
    return sighting_of(xid(code, **{"node_id": node_id, "event_id": event_id, **changes}), job)


def with_policy(**changes: Any) -> RecoveryPolicy:
    """The acting policy, changed."""
    return RecoveryPolicy.model_validate({**ACT.model_dump(mode="json"), **changes})


def amid(event: HealthEvent, *sightings: Sighting, job: str | None = "llama") -> Decision:
    """The first decision about the event, with these faults around it."""
    return Story(event, job=job).amid(sightings=sightings, pool_nodes=10).next()


def take(it: Incident, event: HealthEvent) -> Ingested:
    """The event is delivered."""
    return ingest(event, it.ports, ACT)


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
    good_since = NOW - timedelta(hours=1)
    story = Story(xid(79)).amid(good_since=good_since).reports(xid(74, observed_at=good_since))

    assert story.isolated().next().step is Step.REPLACE


# Repetition and other jobs -------------------------------------------------------------------------------------------


def test_what_comes_exactly_within_the_gap_is_the_same_time() -> None:
    assert episodes([later(0), later(60)], gap_seconds=60) == 1


def test_a_sighting_that_names_no_job_is_no_other_job() -> None:
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
    others: tuple[Sighting, ...], step: Step
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


def test_a_node_counts_from_its_first_sighting() -> None:
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
def test_without_a_job_an_echo_answers_its_own_node_only(root: Sighting, told: str) -> None:
    reason = amid(xid(45), root, job=None).reason

    assert told in reason
    assert ("it belongs to XID" in reason) is bool(told)


def test_an_echo_may_answer_a_fault_that_nobody_knows() -> None:
    assert f"it belongs to XID 999 on {OTHER}" in amid(xid(45), seen(999)).reason


def test_an_echo_answers_the_gravest_and_of_equals_the_first() -> None:
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
    fault: HealthEvent, around: Sighting, step: Step
) -> None:
    story = Story(fault).amid(sightings=(around,)).isolated()

    assert story.next().step is step


def _switch(**changes: Any) -> HealthEvent:
    known = {"family": Family.sxid, "code": "12020", "component": "0000:c1:00.0", "event_id": "sxid"}
    return xid(79, **{**known, "labels": {"fabric": "f1"}, **changes})


def _switch_seen(node_id: str, seconds: float, **changes: Any) -> Sighting:
    event = _switch(node_id=node_id, observed_at=later(seconds), event_id=f"{node_id}-{seconds}", **changes)
    return sighting_of(event, "llama")


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
def test_what_owns_no_fabric_takes_no_fault_away(around: Sighting) -> None:
    assert amid(_switch(), around).step is Step.ISOLATE


def test_of_two_reports_in_the_same_moment_the_fabric_belongs_to_the_node_that_sorts_first() -> None:
    assert "it belongs to SXID 12020 on mi-00" in amid(_switch(), _switch_seen("mi-00", 0)).reason


def test_the_fabric_belongs_to_the_first_of_those_that_reported_it() -> None:
    around = (_switch_seen("mi-00", -3), _switch_seen("mi-zz", -5))
    together = (_switch_seen("mi-04", -5), _switch_seen("mi-02", -5))

    reasons = [Story(_switch()).amid(sightings=near, pool_nodes=100).next().reason for near in (around, together)]

    assert "it belongs to SXID 12020 on mi-zz" in reasons[0]
    assert "it belongs to SXID 12020 on mi-02" in reasons[1]


# The breaker ---------------------------------------------------------------------------------------------------------


def _wave(count: int, code: int = 79, /, began: float = 0, **labels: str) -> tuple[Sighting, ...]:
    return tuple(
        seen(code, f"mi-{code}-{n:02}", None, observed_at=later(began + n), labels=labels) for n in range(count)
    )


def test_nodes_that_are_only_to_be_isolated_fail_too() -> None:
    assert amid(xid(79, labels={"rack": "r7"}), *_wave(2, 54, rack="r7"), job=None).step is Step.ESCALATE


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

    result = reserve_attempt(request, it.ports)

    assert result.outcome is Outcome.REFUSED
    assert result.reason == "2 of 2 reboots of accelerator S1 in 168 h are spent"
    assert it.ports.attempts.spent(on_node.scope, on_node.limit) == 0
    assert on_accelerator.scope == accelerator_scope("S1")


def test_an_attempt_is_told_as_the_nodes_in_the_answer_and_in_the_story() -> None:
    it = _rebooting()

    result = reserve_attempt(it.request(), it.ports)

    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline]
    assert result.reason == "1 of 1 reboots in 24 h"
    assert "attempt reserved: 1 of 1 reboots in 24 h" in told


# Waiting -------------------------------------------------------------------------------------------------------------


def test_without_a_job_nothing_can_have_ended_before_the_wait() -> None:
    it = Incident()
    it.ports.nodes.save(replace(it.node(C), booted_at=NOW))
    event = xid(79, family=Family.nvml, code="NO_DEVICES", component=None, node_id=C, instance_id=C)
    take(it, event)
    it.id, it.turn = incident_id_of(event), 0
    request = it.request()
    assert (request.decision.step, request.decision.job_id) == (Step.WAIT, None)

    wait_for_news(request, it.ports)

    assert it.is_waiting()


def test_a_job_that_ends_between_a_later_decision_and_its_wait_resumes_at_once() -> None:
    it = restarted_for_an_application_fault()
    take(it, xid(63, observed_at=it.clock()))
    request = it.request()
    assert (request.turn, request.decision.step) == (2, Step.WAIT)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, run=2, exit_code=0)

    wait_for_news(request, it.ports)

    assert it.resumed().outcome is Outcome.DONE


# Ingest --------------------------------------------------------------------------------------------------------------


def test_a_heartbeat_is_a_sign_of_life_whatever_its_verdict() -> None:
    ports = memory_ports()
    ports.nodes.save(node())

    assert ingest(xid(family=Family.heartbeat, verdict=Verdict.UNKNOWN), ports, ACT) is Ingested.SEEN
    assert ports.workflows.started == []  # type: ignore[attr-defined]


def test_a_fault_from_before_the_passed_diagnostics_is_kept_as_history_and_opens_nothing() -> None:
    ports = memory_ports()
    ports.nodes.save(node(good_since=later(1)))

    assert ingest(xid(79), ports, ACT) is Ingested.HISTORY

    [(_, kept)] = ports.nodes.recorded.values()  # type: ignore[attr-defined]
    assert kept.note == "from before the node last passed its diagnostics"
    assert ingest(xid(79, event_id="then", observed_at=later(1)), ports, ACT) is Ingested.OPENED


def test_a_fault_is_recorded_with_its_job_for_the_decisions_about_others() -> None:
    ports = memory_ports()
    ports.nodes.save(node(job_id="llama"))

    ingest(xid(79), ports, ACT)

    [kept] = ports.nodes.sightings(NODE, NOW, "demo", NOW)
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


def test_a_fault_of_a_node_that_a_human_has_joins_the_incident_that_was_handed_over() -> None:
    cluster = FakeCluster()
    cluster.reports(xid(74))
    assert cluster.ports.incidents.history(cluster.incident_id).incident.state is IncidentState.ESCALATED

    became = ingest(xid(79, observed_at=later(60)), cluster.ports, ACT)

    assert (cluster.node().state, became) == (NodeState.QUARANTINED, Ingested.JOINED)


def test_only_an_incident_that_has_not_begun_is_started_by_what_joins_it() -> None:
    it = Incident(63)
    it.request()
    it.ports.workflows.started.clear()  # type: ignore[attr-defined]

    take(it, xid(79))

    assert it.ports.workflows.started == []  # type: ignore[attr-defined]


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
    assert cluster.reports(xid(31)).end == "Handed to a human"

    assert ingest(xid(31, event_id="again", observed_at=later(60)), cluster.ports, ACT) is Ingested.REPEATED


# Looking around ------------------------------------------------------------------------------------------------------


def test_a_nodes_own_past_reaches_as_far_as_the_longer_of_the_two_windows() -> None:
    it = Incident()
    days = ACT.correlation.other_job_window_seconds // DAY
    it.ports.nodes.record(xid(31, event_id="old", observed_at=later(-days * DAY)), "bert")

    around = look_around(it.ports.incidents.history(it.id), it.ports, ACT).surroundings

    assert "old" in [sighting.event_id for sighting in around.sightings]


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

    assert is_running(it.ports.incidents.history(it.id).incident, it.ports) is False


def test_a_job_whose_other_node_is_being_recovered_is_about_to_run_again() -> None:
    it = _crashed(xid(79, node_id=B, instance_id=B, event_id="on-b"))

    assert is_running(it.ports.incidents.history(it.id).incident, it.ports) is True


def test_a_node_of_the_gang_that_nobody_knows_recovers_nothing() -> None:
    it = _crashed()
    run = it.ports.jobs.get_run("llama", 1)
    assert run is not None
    it.ports.jobs.save_run(run.with_task(replace(run.tasks[1], node_id="mi-gone")))

    assert is_running(it.ports.incidents.history(it.id).incident, it.ports) is False


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


def test_a_decision_names_the_rung_that_it_climbs() -> None:
    assert Story(xid(79)).isolated().next().action is Action.REBOOT


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


@pytest.mark.parametrize(("mode", "ending"), [("observe", Ending.OBSERVED_ONLY), ("approve", Ending.HANDED_TO_A_HUMAN)])
def test_a_remap_is_not_waited_for_where_the_reboot_would_be_held_back(mode: str, ending: Ending) -> None:
    policy = with_policy(default_pool={"mode": "act", "modes": {"REBOOT": mode}})

    assert Story(xid(63), policy=policy).amid(job_is_running=True).next().ending is ending


def test_an_opt_out_is_the_reason_that_is_told_in_a_pool_that_is_observed_anyway() -> None:
    policy = with_policy(default_pool={"mode": "observe"}, opted_out={NODE: "lab machine"})

    assert "opted out (lab machine)" in Story(xid(79), policy=policy).next().reason


@pytest.mark.parametrize(
    ("event", "ladder", "step"),
    [
        (xid(63), ["OBSERVE"], Step.CLOSE),
        (xid(79, family=Family.host, code="scheduled_event", verdict=Verdict.DEGRADED), None, Step.WAIT),
    ],
    ids=["nothing comes after it", "a ladder of two rungs"],
)
def test_a_job_is_waited_for_where_a_second_rung_waits_too(
    event: HealthEvent, ladder: list[str] | None, step: Step
) -> None:
    fault = f"{event.family}/{event.code}"
    rule = {"fault": fault, "ladder": ladder, "next_rung": "job_end", "why": "so it is here"}
    policy = with_policy(overrides=[rule] if ladder else [])

    assert Story(event, policy=policy).amid(job_is_running=True).next().step is step


# Coming up -----------------------------------------------------------------------------------------------------------


def _no_gpus(**changes: Any) -> HealthEvent:
    return xid(79, **{"family": Family.nvml, "code": "NO_DEVICES", "component": None, "event_id": "none", **changes})


def test_a_boot_after_the_fault_is_no_excuse_for_it() -> None:
    assert Story(_no_gpus()).amid(booted_at=later(10)).next().step is Step.ISOLATE


def test_the_later_of_boot_and_upgrade_is_what_a_node_settles_from() -> None:
    around = {"booted_at": later(-5 * HOUR), "agent_since": later(-30)}

    assert Story(_no_gpus()).amid(**around).next().step is Step.WAIT


def test_gpus_that_went_missing_long_after_the_boot_are_a_fault_although_they_came_back() -> None:
    story = Story(_no_gpus()).amid(booted_at=later(-5 * HOUR))
    story.reports(_no_gpus(event_id="back", observed_at=later(5), verdict=Verdict.OK))

    assert story.next().step is Step.ISOLATE


# Steps ---------------------------------------------------------------------------------------------------------------


def test_a_turn_without_a_result_is_decided_all_the_same() -> None:
    it = Incident()
    it.request()

    decision = decide_next_step(DecideRequest(incident_id=it.id, turn=1), it.ports, ACT)

    assert decision.step is Step.ISOLATE


def test_a_result_that_belongs_to_no_turn_is_not_recorded() -> None:
    it = Incident()
    stray = StepResult(step=Step.WAIT, node_id=A, outcome=Outcome.DONE, reason="stray", finished_at=NOW)

    decide_next_step(DecideRequest(incident_id=it.id, turn=0, result=stray), it.ports, ACT)

    assert [entry.kind for entry in it.ports.incidents.history(it.id).timeline] == ["decision", "event"]


def test_a_node_that_is_given_back_says_since_when_and_until_when_and_why() -> None:
    it = Incident()
    it.isolate(), it.reboot()
    proven_at = it.diagnose().finished_at
    it.clock.advance(5)

    result = it.give_back()

    back, until = it.node(), it.clock() + timedelta(seconds=ACT.probation_seconds)
    assert (back.probation_until, back.good_since, back.drained_by_us) == (until, proven_at, False)
    assert "back to service, on probation" in back.state_reason
    assert result.boot_id == "boot-2"
    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline]
    assert f"{A} is back in service, on probation until {until:%H:%M:%S} UTC" in told


def _healed() -> Incident:
    it = Incident()
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    return it


def test_a_launch_is_told_with_its_ranks() -> None:
    it = _healed()

    it.relaunch()

    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline]
    assert f"launching llama as run 2: rank 0 on {A}, rank 1 on {B}" in told


def test_a_node_that_the_scheduler_has_lost_refuses_the_launch() -> None:
    it = _healed()
    request = it.request()

    def gone(*_: object) -> str:
        raise NotFound("no such container instance")

    lost: Any = gone
    it.ports.scheduler.start = lost  # type: ignore[method-assign]
    launch_gang(request, it.ports, ACT)

    assert (it.resumed().outcome, it.resumed().reason) == (Outcome.REFUSED, "no such container instance")
    assert it.ports.waits.waits == {}  # type: ignore[attr-defined]


def test_no_rank_is_placed_on_a_node_that_is_out_of_service_whoever_took_it_out() -> None:
    it = _healed()
    request = it.request()
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))

    launch_gang(request, it.ports, ACT)

    assert it.resumed().reason == f"{B} is QUARANTINED"


def test_a_rank_that_a_broken_launch_has_started_is_not_started_again() -> None:
    it = _healed()
    request = it.request()
    first = it.ports.jobs.get_run("llama", 1)
    assert first is not None
    tasks = tuple(replace(task, task_id="", status="PENDING", exit_code=None) for task in first.tasks)
    started = (replace(tasks[0], task_id="task-llama-2-0"), tasks[1])
    it.ports.jobs.save_run(Run("llama", 2, it.clock(), f"{it.id}/{it.turn}", started))
    ranks: list[int] = []
    start = it.ports.scheduler.start

    def watched(job: Any, run: Any, task: Any, environment: Any) -> str:
        ranks.append(task.rank)
        return start(job, run, task, environment)

    it.ports.scheduler.start = watched  # type: ignore[method-assign]
    launch_gang(request, it.ports, ACT)

    assert ranks == [1]
