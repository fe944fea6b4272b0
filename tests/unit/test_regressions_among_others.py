"""What is wrong today: each test fails until its bug is mended. Found by reading the code as an adversary would."""

import random
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.results import Isolated
from nodeheal.contract.steps import DecideRequest, StepRequest
from nodeheal.contract.vocabulary import Ending, Escalation, Family, Outcome, Step, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.recovery.decide import decide
from nodeheal.domain.recovery.decision_context import Observation
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.operations.steps import launch_gang, stop_gang
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.recovery.wait_for_news import wait_for_news
from tests.support.builders import ACT, NOW, xid
from tests.support.fake_cluster import BROKEN, PEER, FakeCluster
from tests.support.incident_steps import A, B, Incident, take
from tests.support.observations import later, no_gpus, seen
from tests.support.policies import with_policy
from tests.support.recovery_story import Story, steps_of
from tests.support.replays import HOUR, fault, replayed, steps

OTHER, THIRD = "mi-0bbbbbbbbbbbbbbbb", "mi-0cccccccccccccccc"
REMAP = 63


def test_a_job_that_its_own_fault_has_killed_is_a_humans_where_it_cannot_be_restarted() -> None:
    """Beside what would have let it finish first."""
    story = Story(xid(REMAP)).reports(xid(31, event_id="its own")).amid(job_is_running=True)
    story = story.then(Outcome.DONE, "llama runs again").then(Outcome.DONE, "it has ended").amid(job_is_running=False)
    story = story.isolated().rebooted().passed().then(Outcome.DONE, "it serves")
    due = story.next().step

    ended = story.then(Outcome.REFUSED, "10 of 10 are spent").next()

    assert due is Step.RESTART_WORKLOAD
    assert (ended.ending, ended.escalation) == (Ending.HANDED_TO_A_HUMAN, Escalation.JOB_NOT_RESTARTED)


def waiting() -> Incident:
    """An incident that waits for its job to end."""
    it = Incident(REMAP)
    wait_for_news(it.request(), it.ports)
    return it


def _throttled(*_: object) -> Any:
    raise NotAccepted("the table is throttled")


throttled: Any = _throttled


# A second delivery ---------------------------------------------------------------------------------------------------


def test_good_news_whose_wake_up_was_throttled_wakes_at_the_redelivery() -> None:
    it = waiting()
    well = xid(REMAP, event_id="well", verdict=Verdict.OK)
    get, it.ports.operations.get = it.ports.operations.get, throttled  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        take(it, well)
    it.ports.operations.get = get  # type: ignore[method-assign]

    take(it, well)

    assert it.resumed().outcome is Outcome.DONE


def test_a_fault_that_is_redelivered_while_its_incident_is_still_ending_is_not_lost() -> None:
    it = Incident(999)
    ending = it.request()
    with pytest.raises(NotAccepted, match="is ending"):
        take(it, xid(79))

    with pytest.raises(NotAccepted, match="is ending"):  # the queue is quicker than the ending
        take(it, xid(79))
    end_incident(ending, it.ports, ACT)

    assert take(it, xid(79)) is Ingested.OPENED


def test_a_one_step_ladder_that_climbs_when_repeated_goes_to_a_human() -> None:
    rule = {"fault": "xid/92", "ladder": ["OBSERVE"], "next_rung": "repeated", "why": "three are too many"}
    hours_ago = tuple(seen(92, A, None, observed_at=later(-n * HOUR)) for n in (1, 2, 3))

    story = Story(xid(92), job=None, policy=with_policy(overrides=[rule])).amid(observations=hours_ago)

    assert story.next().step is Step.ESCALATE


# What is settled -----------------------------------------------------------------------------------------------------


def test_a_harmless_sub_code_does_not_hide_a_grave_one_of_the_same_code() -> None:
    cluster = FakeCluster()
    cluster.reports(xid(149, subcode="NETIR_LINK_EVT/38", verdict=Verdict.DEGRADED))
    cluster.clock.advance(60)

    grave = xid(149, subcode="NETIR_LINK_EVT/10", event_id="grave", observed_at=cluster.clock())

    assert ingest(grave, cluster.ports, ACT) is Ingested.OPENED


@pytest.mark.parametrize("family_code", [(Family.xid, "159"), (Family.ib, "symbol_error")], ids="/".join)
def test_a_fault_that_climbs_when_it_is_repeated_climbs_when_it_is_repeated(family_code: tuple[Family, str]) -> None:
    cluster, (family, code) = FakeCluster(), family_code
    for n in range(3):
        event = xid(0, family=family, code=code, verdict=Verdict.DEGRADED, event_id=f"n{n}")
        event = event.model_copy(update={"observed_at": cluster.clock()})
        if ingest(event, cluster.ports, ACT) is Ingested.OPENED:
            cluster.reports(event)
        cluster.clock.advance(HOUR)

    assert ("reboot-node", BROKEN) in cluster.commands


def test_a_repetition_that_makes_a_fault_climb_ends_a_wait() -> None:
    it = waiting()
    for n in range(3):
        it.clock.advance(HOUR)
        degraded = {"verdict": Verdict.DEGRADED, "event_id": f"n{n}", "observed_at": it.clock()}
        take(it, xid(159, **degraded))
        if not it.is_waiting():
            it.resumed()
            again = it.request()
            if again.decision.step is not Step.WAIT:
                break
            wait_for_news(again, it.ports)

    assert again.decision.step is Step.ISOLATE


def test_a_fault_that_an_override_makes_the_jobs_own_is_news_in_the_next_run() -> None:
    cluster = FakeCluster(with_policy(overrides=[{"fault": "xid/92", "ladder": ["RESTART_WORKLOAD"], "why": "ours"}]))
    assert cluster.reports(xid(92)).end == "Recovered"
    cluster.clock.advance(HOUR)

    again = xid(92, event_id="again", observed_at=cluster.clock())

    assert ingest(again, cluster.ports, ACT) is Ingested.OPENED


def test_a_fault_that_came_in_a_maintenance_window_is_news_when_the_window_is_over() -> None:
    window = {"days": ["sunday"], "starts_at": "02:00", "minutes": 120, "why": "patching"}  # NOW is a Sunday, 03:00
    cluster = FakeCluster(with_policy(default_pool={"mode": "act", "maintenance": [window]}))
    assert cluster.reports(xid(79)).end == "Observed only"
    cluster.clock.advance(2 * HOUR)

    again = xid(79, event_id="again", observed_at=cluster.clock())

    assert ingest(again, cluster.ports, ACT) is Ingested.OPENED


# What is reported beside the gravest ---------------------------------------------------------------------------------


def test_a_row_remap_that_follows_a_harmless_line_still_waits_for_its_job() -> None:
    harmless = xid(92)
    remap = xid(REMAP, observed_at=later(1))

    assert Story(harmless).amid(job_is_running=True).reports(remap).next().step is Step.WAIT


@pytest.mark.parametrize("beside", [REMAP, 31, 999], ids=["a remap", "the job's own fault", "an unknown fault"])
def test_gpus_that_came_up_meanwhile_do_not_close_what_was_reported_beside_them(beside: int) -> None:
    story = Story(no_gpus()).amid(booted_at=NOW, job_is_running=True).reports(xid(beside, observed_at=later(5)))
    story.then(Outcome.DONE)
    story.reports(no_gpus(event_id="fine", observed_at=later(301), verdict=Verdict.OK)).now = later(302)

    assert story.next().step is not Step.CLOSE


def test_one_gpu_that_came_up_does_not_speak_for_another_that_is_missing() -> None:
    def missing(gpu: int, at: float, **changes: Any) -> HealthEvent:
        known = {"code": "GPU_MISSING", "component": f"GPU {gpu}", "observed_at": later(at)}
        return no_gpus(event_id=f"{gpu}-{at}", **{**known, **changes})

    story = Story(missing(3, 0)).amid(booted_at=NOW).then(Outcome.DONE)
    story.reports(missing(3, 301)).reports(missing(5, 302, verdict=Verdict.OK)).now = later(303)

    assert story.next().step is Step.ISOLATE


def test_a_node_whose_fabric_is_anothers_incident_is_still_healed_of_its_own_fault() -> None:
    fabric: dict[str, Any] = {
        "family": Family.sxid,
        "code": "12020",
        "labels": {"fabric": "nvl-1"},
        "component": "0000:01:00.0",
    }
    owner = seen(0, OTHER, observed_at=later(-5), **fabric)
    story = Story(xid(0, event_id="sxid", **fabric)).amid(observations=(owner,))
    story.reports(xid(79, observed_at=later(1)))

    assert story.next().step is Step.ISOLATE


@pytest.mark.parametrize(
    ("code", "job", "step"),
    [(999, "llama", Step.ESCALATE), (REMAP, "llama", Step.WAIT), (999, None, Step.ESCALATE)],
    ids=["a riddle", "a remap", "a riddle without a job"],
)
def test_a_restart_that_is_not_ours_does_not_close_what_was_reported_beside_it(
    code: int, job: str | None, step: Step
) -> None:
    story = Story(xid(31), job=job).amid(job_is_running=True, observations=(seen(31, observed_at=later(-1)),))

    assert story.reports(xid(code, observed_at=later(1))).next().step is step


def test_a_job_that_its_own_fault_killed_is_restarted_although_a_remap_is_seen_to_first() -> None:
    story = Story(xid(31)).amid(job_is_running=False).reports(xid(REMAP, observed_at=later(1)))

    for result in ({"facts": Isolated(is_drained=True)}, {"boot_id": "boot-2"}, {}, {}):
        story.then(Outcome.DONE, **result)

    assert steps_of(story)[:4] == ["ISOLATE", "REBOOT", "DIAGNOSE", "RETURN"]
    assert story.next().step is Step.RESTART_WORKLOAD


# Jobs and their runs -------------------------------------------------------------------------------------------------


def test_a_fault_of_the_next_run_on_another_node_is_another_restart() -> None:
    cluster = FakeCluster()
    cluster.clock.advance(1)
    cluster.reports(xid(31))
    cluster.clock.advance(120)
    cluster._gang_becomes("STOPPED", exit_code=1)

    cluster.reports(xid(31, event_id="peer", node_id=PEER, instance_id=PEER, observed_at=cluster.clock()))

    assert cluster.ports.jobs.get("llama").current_run == 3  # type: ignore[union-attr]
    assert cluster.job_nodes == [BROKEN, PEER]


def test_a_later_fault_of_an_incident_is_not_taken_for_one_before_the_relaunch() -> None:
    it = Incident(31)
    first = it.request()
    run = it.ports.jobs.get_run("llama", 1)
    job = it.ports.jobs.get("llama")
    assert run is not None
    assert job is not None
    it.clock.advance(60)  # another node's incident has relaunched the job meanwhile
    relaunched = replace(run, number=2, started_at=it.clock(), why="inc-of-b/1", version=0)
    it.ports.jobs.save_run(relaunched)
    it.ports.jobs.save(replace(job, current_run=2))
    launch_gang(first, it.ports, ACT)
    assert "relaunched since, as run 2" in it.resumed().reason
    take(it, xid(REMAP, observed_at=it.clock()))
    it.request()  # it waits for the job's end, because of the remap
    it.clock.advance(HOUR)
    take(it, xid(31, event_id="again", observed_at=it.clock()))

    again = it.request()
    assert again.decision.step is Step.RESTART_WORKLOAD
    stop_gang(again, it.ports, ACT)

    assert it.is_waiting()  # for the ranks of run 2 to stop


def test_two_row_remaps_on_one_job_do_not_wait_for_one_another_when_it_has_crashed() -> None:
    it = waiting()
    on_b = xid(REMAP, node_id=B, instance_id=B, event_id="on-b")
    take(it, on_b)
    decision = decide_next_step(DecideRequest(incident_id=incident_id_of(on_b), turn=0), it.ports, ACT)
    assert decision.step is Step.WAIT
    of_b = StepRequest(incident_id=incident_id_of(on_b), turn=1, decision=decision, task_token="of-b")
    wait_for_news(of_b, it.ports)

    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=1)
    it.resumed()

    assert it.request().decision.step is Step.ISOLATE


def _end_on_b(it: Incident, event: HealthEvent) -> None:
    """The incident on the job's other node ends with a human."""
    decision = decide_next_step(DecideRequest(incident_id=incident_id_of(event), turn=0), it.ports, ACT)
    end_incident(StepRequest(incident_id=incident_id_of(event), turn=1, decision=decision), it.ports, ACT)


def _waits_again() -> tuple[Incident, HealthEvent]:
    """The job is over, but an incident on its other node might relaunch it: the one on A decides to wait on."""
    it, on_b = waiting(), xid(999, node_id=B, instance_id=B, event_id="on-b")
    take(it, on_b)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    it.resumed()
    return it, on_b


def test_an_incident_that_ends_without_a_relaunch_wakes_who_waits_for_the_job() -> None:
    it, on_b = _waits_again()
    wait_for_news(it.request(), it.ports)
    assert it.is_waiting()

    _end_on_b(it, on_b)

    assert it.resumed().outcome is Outcome.DONE


# Retired nodes -------------------------------------------------------------------------------------------------------


# Many nodes ----------------------------------------------------------------------------------------------------------


def test_two_nodes_without_a_job_are_not_taken_for_the_two_ends_of_a_link() -> None:
    story = Story(xid(74), job=None).amid(observations=(seen(74, job=None),)).isolated()

    assert story.next().step is Step.REPLACE


def test_a_label_that_the_whole_fleet_has_is_no_common_cause() -> None:
    def apart(code: int, node_id: str, rack: str) -> Observation:
        return seen(code, node_id, None, labels={"driver_version": "580.95.05", "rack": rack})

    around = (apart(74, OTHER, "r2"), apart(119, THIRD, "r3"))
    story = Story(xid(79, labels={"driver_version": "580.95.05", "rack": "r1"}), job=None)

    assert story.amid(observations=around, pool_nodes=10).next().step is Step.ISOLATE


def test_what_the_policy_only_observes_does_not_trip_the_breaker() -> None:
    policy = with_policy(overrides=[{"fault": "xid/74", "ladder": ["OBSERVE"], "why": "a false alarm here"}])
    around = tuple(seen(74, f"mi-{n:02}", None, labels={"rack": "r7"}) for n in range(3))
    story = Story(xid(79, labels={"rack": "r7"}), job=None, policy=policy)

    assert story.amid(observations=around, pool_nodes=10).next().step is Step.ISOLATE


# Time ----------------------------------------------------------------------------------------------------------------


def test_the_drivers_word_about_something_between_two_faults_hours_apart_is_not_about_them() -> None:
    story = Story(xid(79)).reports(xid(79, event_id="again", observed_at=later(10 * HOUR)))
    story.reports(xid(154, subcode="NONE", verdict=Verdict.OK, observed_at=later(5 * HOUR)))

    assert story.next().step is Step.ISOLATE


def test_what_came_over_a_week_has_not_come_three_times_in_a_day() -> None:
    degraded = [
        xid(159, verdict=Verdict.DEGRADED, event_id=f"n{n}", observed_at=later(n * 48 * HOUR)) for n in range(3)
    ]
    story = Story(xid(REMAP)).amid(job_is_running=True)
    for event in degraded:
        story.reports(event)

    assert story.next().step is Step.WAIT


def test_neither_order_nor_duplicates_change_a_decision_after_a_reboot() -> None:
    new = {"boot_id": "boot-2"}
    events = [
        xid(154, event_id="b", observed_at=later(11), subcode="DRAIN_P2P", **new),
        xid(79, event_id="c", observed_at=later(400), **new),
        xid(79, event_id="d", observed_at=later(12), **new),
    ]
    story = Story(xid(79)).isolated().rebooted()
    said = set()
    for seed in range(24):
        random.Random(seed).shuffle(events)
        history = replace(story.history, events=(*story.history.events, *events))
        said.add(decide(history, ACT, NOW).model_dump_json())

    assert len(said) == 1


# Replay --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "quiet",
    [
        {"family": Family.heartbeat, "code": "alive", "verdict": Verdict.OK},
        {"family": Family.xid, "code": "63", "verdict": Verdict.DEGRADED},
    ],
    ids=["heartbeats", "the same line"],
)
def test_what_says_nothing_new_does_not_end_a_replayed_wait(quiet: dict[str, Any]) -> None:
    more = [fault(0, A, 60.0 * n, "llama", **quiet) for n in range(1, 40)]

    seen = replayed(fault(REMAP, A, 0, "llama", verdict=Verdict.DEGRADED), *more)

    assert steps(seen) == ["WAIT"]
    assert seen.endings == {}


def test_a_job_that_had_ended_by_itself_is_not_restarted_because_another_of_its_nodes_fails_later() -> None:
    story = Story(xid(REMAP)).amid(job_is_running=False).isolated().rebooted().passed().then(Outcome.DONE)
    assert story.next().step is Step.CLOSE

    story.amid(job_is_running=True)  # as an open incident on another node of its last run makes it look

    assert story.next().step is Step.CLOSE
