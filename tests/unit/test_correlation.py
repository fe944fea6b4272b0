"""What other nodes report beside a fault: of another job, secondary, at a link's other end, of a fabric, of a crowd."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Awaited, Confirmation, Ending, Family, Outcome, Step, Verdict
from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.faults.correlation import common_cause, episodes
from nodeheal.domain.policy.policy_models import Override
from nodeheal.domain.recovery.decision_context import Observation, observation_of
from tests.support.builders import ACT, NOW, xid
from tests.support.observations import NODE, OTHER, THIRD, crowd, later, new_node, seen, stated, sxid, wave
from tests.support.policies import with_policy
from tests.support.recovery_story import Story, steps_of


def test_repeats_are_counted_for_each_gpu_and_in_their_window() -> None:
    elsewhere = tuple(seen(94, NODE, component="0000:ba:00.0", observed_at=NOW - timedelta(hours=n)) for n in (1, 2))
    long_ago = tuple(seen(94, NODE, observed_at=NOW - timedelta(days=n)) for n in (2, 3))

    assert Story(xid(94)).amid(observations=elsewhere).next().step is Step.RESTART_WORKLOAD
    assert Story(xid(94)).amid(observations=long_ago).next().step is Step.RESTART_WORKLOAD


def test_a_storm_is_one_time() -> None:
    assert episodes([later(n) for n in range(0, 600, 30)], gap_seconds=60) == 1
    assert episodes([later(0), later(61), later(200)], gap_seconds=60) == 3
    assert episodes([], gap_seconds=60) == 0


@pytest.mark.parametrize("code", [13, 31, 43])
def test_an_application_fault_under_another_job_on_the_same_gpu_is_hardware(code: int) -> None:
    before = seen(code, NODE, "bert", observed_at=NOW - timedelta(days=2))

    story = Story(xid(code)).amid(observations=(before,))

    assert story.next().step is Step.ISOLATE
    assert "under 2 jobs (bert, llama): it is the hardware" in story.next().reason
    assert story.isolated().next().step is Step.REBOOT


@pytest.mark.parametrize(
    "elsewhere",
    [
        seen(31, NODE, "bert", component="0000:ba:00.0", observed_at=NOW - timedelta(days=2)),
        seen(31, OTHER, "bert", observed_at=NOW - timedelta(days=2)),
        seen(13, NODE, "bert", observed_at=NOW - timedelta(days=2)),
        seen(31, NODE, "bert", observed_at=NOW - timedelta(days=8)),
        seen(31, NODE, "llama", observed_at=NOW - timedelta(days=2)),
    ],
    ids=["another gpu", "another node", "another code", "too long ago", "the same job"],
)
def test_only_the_same_code_on_the_same_gpu_under_another_job_counts(elsewhere: Observation) -> None:
    assert Story(xid(31)).amid(observations=(elsewhere,)).next().step is Step.RESTART_WORKLOAD


def test_the_same_code_on_many_nodes_of_one_job_is_the_application_and_no_node_is_touched() -> None:
    many = (seen(31, OTHER, observed_at=later(2)), seen(31, THIRD, observed_at=later(3)))
    before = seen(31, NODE, "bert", observed_at=NOW - timedelta(days=2))

    decision = Story(xid(31)).amid(observations=(*many, before)).next()

    assert decision.step is Step.RESTART_WORKLOAD
    assert "3 nodes of the job show it at once: it is the application" in decision.reason


def test_a_secondary_fault_names_the_gravest_of_the_same_job_and_of_equals_the_first() -> None:
    milder = seen(31, OTHER, observed_at=later(-20))
    first, then = seen(79, THIRD, observed_at=later(-10)), seen(79, OTHER, observed_at=later(-5))

    decision = Story(xid(45)).amid(observations=(then, milder, first)).next()

    assert decision.ending is Ending.OBSERVED_ONLY
    assert f"it belongs to XID 79 on {THIRD}" in decision.reason


@pytest.mark.parametrize(
    "unrelated",
    [seen(79, OTHER, "bert"), seen(79, OTHER, observed_at=NOW - timedelta(hours=1)), seen(45, OTHER)],
    ids=["another job", "long ago", "a secondary fault itself"],
)
def test_a_secondary_fault_without_a_root_is_only_recorded(unrelated: Observation) -> None:
    decision = Story(xid(45)).amid(observations=(unrelated,)).next()

    assert decision.ending is Ending.OBSERVED_ONLY
    assert "it belongs to XID" not in decision.reason


def test_a_secondary_fault_on_a_node_without_a_job_names_what_its_own_node_has_shown_and_no_other() -> None:
    own = seen(79, NODE, None, observed_at=NOW - timedelta(seconds=5))
    elsewhere = seen(119, OTHER, None, observed_at=NOW - timedelta(seconds=9))

    assert f"it belongs to XID 79 on {NODE}" in Story(xid(45), None).amid(observations=(own, elsewhere)).next().reason
    assert "it belongs to XID" not in Story(xid(45), None).amid(observations=(elsewhere,)).next().reason


def at_both_ends() -> Story:
    """Another node of the same job reports the other end."""
    return Story(xid(74)).amid(observations=(seen(74, OTHER, observed_at=later(1)),))


def test_a_link_that_fails_at_both_ends_is_diagnosed_before_a_node_is_replaced() -> None:
    story = at_both_ends().isolated()

    assert story.next().step is Step.DIAGNOSE
    assert "only one end is bad" in story.next().reason
    assert story.failed().next().step is Step.REPLACE


def test_the_good_end_of_a_link_goes_back_to_work_unreplaced() -> None:
    story = at_both_ends().isolated().passed().then(Outcome.DONE).then(Outcome.DONE, "llama runs again")

    assert steps_of(story) == ["ISOLATE", "DIAGNOSE", "RETURN", "RESTART_WORKLOAD", "CLOSE"]


def test_a_broken_link_of_another_job_is_another_link() -> None:
    story = Story(xid(74)).amid(observations=(seen(74, OTHER, "bert"),)).isolated()

    assert story.next().step is Step.REPLACE


PEER, AFTER_THE_WINDOW = "0000:ba:00.0", ACT.correlation.window_seconds + 1


ROOTS = [
    xid(79, component=PEER),
    xid(119, component=PEER),
    xid(120, component=PEER),
    xid(175, component=PEER),
    xid(154, component=PEER, subcode="GPU_RESET"),
    xid(79, family=Family.nvrm_other, code="fallen_off_bus", component=PEER),
    sxid(component="0000:c1:00.0"),
]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("root", ROOTS, ids=lambda event: f"{event.family}/{event.code}")
def test_an_nvlink_error_beside_a_lost_peer_or_switch_asks_for_nothing_itself(root: HealthEvent, first: int) -> None:
    events = [root.model_copy(update={"observed_at": later(2)}), xid(74, observed_at=later(3))]
    story = Story(events[first]).reports(events[1 - first]).isolated()

    assert story.next().step is Step.REBOOT
    assert story.next().fault.startswith(f"{root.family.upper()} {root.code}")


@pytest.mark.parametrize(
    "other",
    [
        xid(79, component=PEER, observed_at=later(AFTER_THE_WINDOW)),  # long after it
        xid(119, component=PEER, observed_at=later(-AFTER_THE_WINDOW)),  # long before it
        xid(48, component=PEER),  # nothing that takes links down
        sxid(code="20009", subcode="nonfatal", verdict=Verdict.DEGRADED),  # asks for nothing
        stated("NONE", component=PEER, verdict=Verdict.OK),  # likewise
    ],
    ids=lambda event: f"{event.family}/{event.code}",
)
def test_an_nvlink_error_that_nothing_explains_still_replaces_the_node(other: HealthEvent) -> None:
    assert Story(xid(74)).reports(other).isolated().next().step is Step.REPLACE


def test_an_nvlink_error_that_came_before_its_peer_was_lost_too_still_replaces_the_node() -> None:
    earlier = xid(74, event_id="earlier", observed_at=later(-AFTER_THE_WINDOW))
    story = Story(earlier).reports(xid(74)).reports(xid(79, component=PEER))

    assert story.isolated().next().step is Step.REPLACE


@pytest.mark.parametrize(
    ("subcode", "step"), [("signal", Step.REPLACE), ("parity", Step.REPLACE), ("reset", Step.REBOOT)]
)
def test_the_registers_of_an_nvlink_error_decide_where_nothing_explains_it(subcode: str, step: Step) -> None:
    assert Story(xid(74, subcode=subcode)).isolated().next().step is step


def test_an_operators_rule_for_an_nvlink_error_holds_beside_a_lost_peer() -> None:
    rule = Override(fault="xid/74", ladder=(Action.REPLACE,), why="our boards never come back")
    policy = ACT.model_copy(update={"overrides": (rule,)})
    story = Story(xid(74), policy=policy).reports(xid(79, component=PEER))

    assert story.isolated().next().step is Step.REPLACE


@pytest.mark.parametrize("code", [171, 172])
def test_what_says_where_an_error_lies_stands_aside_for_that_error_and_alone_asks_a_human(code: int) -> None:
    beside = Story(xid(94)).amid(job_is_running=True).reports(xid(code))
    elsewhere = Story(xid(94, component=PEER)).amid(job_is_running=True).reports(xid(code))

    assert Story(xid(code)).next().step is Step.ESCALATE
    assert Story(xid(48)).reports(xid(code)).isolated().next().step is Step.REBOOT
    assert [fault.action for fault in assess_faults(beside.history, ACT).other_faults] == [Action.OBSERVE]
    assert [fault.action for fault in assess_faults(elsewhere.history, ACT).other_faults] == [Action.ESCALATE]


def test_a_fabric_that_another_node_reported_first_has_its_incident_there() -> None:
    first = observation_of(sxid(node_id=OTHER, observed_at=NOW - timedelta(seconds=3)), "llama")

    decision = Story(sxid()).amid(observations=(first,)).next()

    assert decision.ending is Ending.OBSERVED_ONLY
    assert f"one fabric, one incident: it belongs to SXID 12020 on {OTHER}" in decision.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"fabric": "f2"}, "observed_at": later(-3)},
        {"labels": {"fabric": "f2"}},
        {"labels": {}},
        {"observed_at": later(3)},
    ],
    ids=["another fabric before", "another fabric", "no fabric", "the same one later"],
)
def test_another_fabric_or_a_later_report_takes_nothing_away(changes: dict[str, Any]) -> None:
    other = observation_of(sxid(node_id=OTHER, **changes), "llama")

    assert Story(sxid()).amid(observations=(other,)).next().step is Step.ISOLATE


def test_many_nodes_at_once_with_one_cause_trip_the_breaker_and_page_once() -> None:
    racks = crowd(5, labels={"rack": "r7"})
    one = Story(xid(74, labels={"rack": "r7"})).amid(observations=racks, pool_nodes=40).next()
    other = Story(xid(119, node_id=OTHER, labels={"rack": "r7"})).amid(observations=racks, pool_nodes=40).next()

    assert (one.awaits, other.awaits) == (Awaited.BREAKER, Awaited.BREAKER)
    assert "6 nodes of the pool fail together" in one.reason
    assert "rack r7" in one.reason
    assert one.page_key is not None
    assert one.page_key.startswith("breaker/demo/rack r7/")
    assert one.page_key == other.page_key


def test_the_same_fault_on_many_nodes_is_a_common_cause_too() -> None:
    decision = Story(xid(79)).amid(observations=crowd(2), pool_nodes=10).next()

    assert decision.awaits is Awaited.BREAKER
    nodes = f"mi-00000000000000000, mi-00000000000000001, {NODE}"
    assert f"3 of them with fault xid/79 (within 1 s: {nodes})." in decision.reason


def test_of_many_failing_nodes_some_are_named() -> None:
    reason = Story(xid(79)).amid(observations=crowd(9), pool_nodes=10).next().reason

    assert "mi-00000000000000004 and 5 more)" in reason
    assert "mi-00000000000000005" not in reason


def test_a_node_that_has_failed_by_itself_beside_its_drill_is_no_drill() -> None:
    drills = tuple(replace(one, is_drill=True) for one in crowd(2))
    real = seen(64, drills[0].node_id, None)

    reason = Story(xid(79, evidence=DRILL_MARK)).amid(observations=(*drills, real), pool_nodes=10).next().reason

    assert "; 2 of 3 are drills)" in reason


def test_what_others_see_of_an_injected_fault_is_that_it_was_injected() -> None:
    assert seen(79, evidence=f"Xid 79 {DRILL_MARK}").is_drill
    assert not seen(79).is_drill


@pytest.mark.parametrize(
    ("others", "pool_nodes"),
    [
        (crowd(1), 10),  # fewer than the floor
        (crowd(5), 400),  # under ten percent, and under the ten that always trip it
        (crowd(5, 31), 10),  # no node is to blame
    ],
    ids=["two nodes", "a small part of a large pool", "applications"],
)
def test_a_few_nodes_or_other_troubles_do_not_trip_it(others: tuple[Observation, ...], pool_nodes: int) -> None:
    assert Story(xid(79)).amid(observations=others, pool_nodes=pool_nodes).next().step is Step.ISOLATE


def test_a_breaker_that_trips_in_the_middle_leaves_the_node_isolated_and_reboots_nothing() -> None:
    story = Story(xid(79)).isolated().amid(observations=crowd(9), pool_nodes=10)

    assert story.next().awaits is Awaited.BREAKER
    assert story.next().reason.endswith("this one stays isolated")


HOUR, DAY = 3_600, 86_400


WINDOW = ACT.correlation.window_seconds


def amid(event: HealthEvent, *observations: Observation, job: str | None = "llama") -> Decision:
    """The first decision about the event, with these faults around it."""
    return Story(event, job=job).amid(observations=observations, pool_nodes=10).next()


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

    assert decision.ending is Ending.OBSERVED_ONLY
    assert f"the job's restart belongs to the one on {OTHER}" in decision.reason


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


def test_nodes_that_are_only_to_be_isolated_fail_too() -> None:
    assert amid(xid(79, labels={"rack": "r7"}), *wave(2, 54, rack="r7"), job=None).awaits is Awaited.BREAKER


def test_one_wave_has_one_page_for_the_nodes_that_fail_before_and_after_the_full_hour() -> None:
    early = wave(4, began=-300)

    before, after = (amid(xid(79, observed_at=later(seconds)), *early, job=None).page_key for seconds in (-10, 10))

    assert before is not None
    assert before == after


def test_the_breaker_names_what_most_of_the_failing_nodes_share() -> None:
    around = (*wave(3, 74, rack="r7", switch="s1"), *wave(1, 119, rack="r7"))

    reason = amid(xid(79, labels={"rack": "r7"}), *around, job=None).reason

    assert "5 nodes of the pool fail together, 5 of them with rack r7" in reason


def test_of_two_labels_that_are_shared_equally_every_node_names_the_same() -> None:
    around = wave(3, 74, rack="r7", switch="s1")
    labels = ({"rack": "r7", "switch": "s1"}, {"switch": "s1", "rack": "r7"})

    keys = {amid(xid(79, labels=own), *around, job=None).page_key for own in labels}

    assert len(keys) == 1


def test_a_reason_reads_as_one_sentence_and_tells_of_others_only_where_there_are_some() -> None:
    alone, unknown = amid(xid(79)).reason, amid(xid(999)).reason

    assert alone.startswith("XID 79 (GPU has fallen off the bus): One reboot brings")
    assert "beside it" not in alone
    assert "eside it" not in unknown


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


def test_a_new_node_is_none_of_the_nodes_that_fail_together() -> None:
    story = Story(new_node()).amid(observations=crowd(5), pool_nodes=40)
    fault = assess_faults(story.history, ACT).fault

    assert common_cause(fault, story.history, ACT) is None
    broken = Story(xid(74)).amid(observations=crowd(5), pool_nodes=40)
    assert common_cause(assess_faults(broken.history, ACT).fault, broken.history, ACT) is not None


OTHER, THIRD = "mi-0bbbbbbbbbbbbbbbb", "mi-0cccccccccccccccc"


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
