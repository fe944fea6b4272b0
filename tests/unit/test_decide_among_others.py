"""The decision core among others: echoes, other jobs, link ends, fabrics, many nodes at once, the node's own past."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.results import Isolated
from nodeheal.contract.vocabulary import Action, Awaited, Ending, Family, Outcome, Step, Verdict
from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.faults.correlation import episodes
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import MaintenanceWindow, Mode, Override, PoolPolicy, Weekday
from nodeheal.domain.recovery.decide import decide
from nodeheal.domain.recovery.decision_context import Observation, accelerator_scope, node_scope, observation_of
from tests.support.builders import ACT, NOW, xid
from tests.support.observations import NODE, OTHER, THIRD, crowd, later, no_gpus, recoveries, seen
from tests.support.policies import with_policy
from tests.support.recovery_story import SPARE, Story, steps_of

# The driver's own word -----------------------------------------------------------------------------------------------


def stated(subcode: str, **changes: Any) -> HealthEvent:
    """XID 154: the driver states a recovery action."""
    return xid(154, **{"subcode": subcode, "event_id": f"154-{subcode}", **changes})


@pytest.mark.parametrize(
    ("code", "subcode", "step"),
    [
        (64, "GPU_RESET", Step.REBOOT),  # the table replaces
        (74, "NODE_REBOOT", Step.REBOOT),  # the table replaces
        (31, "NODE_REBOOT", Step.REBOOT),  # the table restarts the job
    ],
)
def test_the_drivers_own_word_wins_over_the_table(code: int, subcode: str, step: Step) -> None:
    story = Story(xid(code)).reports(stated(subcode)).isolated()

    assert story.next().step is step
    assert "The driver states the recovery action itself" in story.next().reason


def test_the_drivers_newest_word_counts() -> None:
    first = stated("NODE_REBOOT", observed_at=later(1))
    then = stated("NONE", observed_at=later(2), verdict=Verdict.OK)

    assert Story(xid(79)).reports(then).reports(first).next().ending is Ending.OBSERVED_ONLY
    again = stated("NODE_REBOOT", event_id="again", observed_at=later(3))
    assert Story(xid(79)).reports(then).reports(first).reports(again).next().step is Step.ISOLATE


def test_the_drivers_word_about_another_gpu_says_nothing_about_this_one() -> None:
    elsewhere = stated("NODE_REBOOT", component="0000:ba:00.0")

    assert Story(xid(64)).reports(elsewhere).isolated().next().step is Step.REPLACE


def test_the_drivers_word_long_after_the_fault_is_about_something_else() -> None:
    late = stated("NONE", observed_at=later(ACT.correlation.window_seconds + 1), verdict=Verdict.OK)

    assert Story(xid(74)).reports(late).isolated().next().step is Step.REPLACE


def test_a_secondary_fault_stays_a_secondary_fault_whatever_the_driver_states_beside_it() -> None:
    decision = Story(xid(79)).reports(xid(45)).reports(stated("NODE_REBOOT")).next()

    assert decision.fault.startswith("XID 79")


# Memory --------------------------------------------------------------------------------------------------------------


def test_a_double_bit_error_with_a_remap_beside_it_is_rebooted_at_once_job_or_not() -> None:
    story = Story(xid(48)).amid(job_is_running=True).reports(xid(63))

    assert story.next().step is Step.ISOLATE
    assert "with XID 63 (Row remap or page retirement recorded) beside it" in story.next().reason
    assert story.isolated().next().step is Step.REBOOT


def test_a_double_bit_error_whose_remap_failed_is_replaced() -> None:
    assert Story(xid(48)).reports(xid(64)).isolated().next().step is Step.REPLACE


def test_a_row_remap_lets_the_job_finish_and_then_reboots_without_restarting_it() -> None:
    story = Story(xid(63)).amid(job_is_running=True)
    assert story.next().step is Step.WAIT
    assert "then a reboot" in story.next().reason

    story.then(Outcome.DONE, "the job has ended").amid(job_is_running=False)
    story.isolated().rebooted().passed().then(Outcome.DONE)

    assert steps_of(story) == ["WAIT", "ISOLATE", "REBOOT", "DIAGNOSE", "RETURN", "CLOSE"]


def test_a_job_that_does_not_end_leaves_the_remap_to_a_human() -> None:
    story = Story(xid(63)).amid(job_is_running=True).then(Outcome.TIMED_OUT, "no news within 604800 s")

    assert story.next().step is Step.ESCALATE
    assert "a reboot is due" in story.next().reason


def test_an_application_fault_during_the_wait_restarts_the_job_and_the_wait_goes_on() -> None:
    story = Story(xid(63)).amid(job_is_running=True).then(Outcome.DONE, "there is news").reports(xid(31))
    story.then(Outcome.DONE, "llama restarted", finished_at=later(60))
    assert steps_of(story) == ["WAIT", "RESTART_WORKLOAD", "WAIT"]

    story.then(Outcome.DONE, "there is news").reports(xid(31, event_id="next run", observed_at=later(90)))
    assert story.next().step is Step.RESTART_WORKLOAD

    story.then(Outcome.DONE, "llama restarted", finished_at=later(120)).then(Outcome.DONE).amid(job_is_running=False)
    assert story.next().step is Step.ISOLATE
    assert story.next().fault.startswith("XID 63")


def test_a_riddle_during_the_wait_tells_the_human_of_the_remap_too() -> None:
    story = Story(xid(63)).amid(job_is_running=True).then(Outcome.DONE, "there is news").reports(xid(999))

    assert story.next().step is Step.ESCALATE
    assert "with XID 63 (Row remap or page retirement recorded) beside it" in story.next().reason


def test_a_graver_fault_ends_the_wait_for_the_job() -> None:
    story = Story(xid(63)).amid(job_is_running=True).then(Outcome.DONE, "there is news").reports(xid(79))

    assert story.next().step is Step.ISOLATE


def test_a_contained_error_restarts_the_job_until_the_gpu_repeats_it() -> None:
    before = [seen(94, NODE, job, observed_at=NOW - timedelta(hours=n)) for n, job in ((2, "a"), (5, "b"))]

    assert Story(xid(94)).amid(observations=tuple(before[:1])).next().step is Step.RESTART_WORKLOAD
    repeated = Story(xid(94)).amid(observations=tuple(before)).next()
    assert repeated.step is Step.ISOLATE
    assert "3 times in 24 h on the same accelerator" in repeated.reason


def test_repeats_are_counted_for_each_gpu_and_in_their_window() -> None:
    elsewhere = tuple(seen(94, NODE, component="0000:ba:00.0", observed_at=NOW - timedelta(hours=n)) for n in (1, 2))
    long_ago = tuple(seen(94, NODE, observed_at=NOW - timedelta(days=n)) for n in (2, 3))

    assert Story(xid(94)).amid(observations=elsewhere).next().step is Step.RESTART_WORKLOAD
    assert Story(xid(94)).amid(observations=long_ago).next().step is Step.RESTART_WORKLOAD


def test_a_storm_is_one_time() -> None:
    assert episodes([later(n) for n in range(0, 600, 30)], gap_seconds=60) == 1
    assert episodes([later(0), later(61), later(200)], gap_seconds=60) == 3
    assert episodes([], gap_seconds=60) == 0


@pytest.mark.parametrize("times", [1, 3])
def test_a_context_switch_timeout_reboots_when_it_is_repeated(times: int) -> None:
    before = tuple(seen(109, NODE, observed_at=NOW - timedelta(hours=n)) for n in range(1, times))

    decision = Story(xid(109)).amid(observations=before).next()

    assert decision.step is (Step.RESTART_WORKLOAD if times == 1 else Step.ISOLATE)


# Applications --------------------------------------------------------------------------------------------------------


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


def test_one_job_is_restarted_once_however_many_of_its_nodes_report() -> None:
    first = seen(31, OTHER, observed_at=NOW - timedelta(seconds=1))

    decision = Story(xid(31)).amid(observations=(first,)).next()

    assert decision.ending is Ending.OBSERVED_ONLY
    assert f"the job's restart belongs to the one on {OTHER}" in decision.reason


def test_a_riddle_beside_an_application_fault_goes_to_a_human_after_the_restart() -> None:
    story = Story(xid(31)).reports(xid(999)).then(Outcome.DONE, "llama restarted")

    assert story.next().step is Step.ESCALATE
    assert "XID 999" in story.next().reason


# Echoes --------------------------------------------------------------------------------------------------------------


def test_a_secondary_fault_names_the_fault_on_another_node_of_the_same_job() -> None:
    root = seen(79, OTHER, observed_at=NOW - timedelta(seconds=5))

    decision = Story(xid(45)).amid(observations=(root,)).next()

    assert decision.ending is Ending.OBSERVED_ONLY
    assert f"it belongs to XID 79 on {OTHER}" in decision.reason


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


# Links and fabrics ---------------------------------------------------------------------------------------------------


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


def sxid(**changes: Any) -> HealthEvent:
    """A fatal error of an NVSwitch."""
    values = {"family": Family.sxid, "code": "12020", "subcode": "fatal", "component": "0000:c1:00.0"}
    return xid(79, **{**values, "event_id": "sxid", "labels": {"fabric": "f1"}, **changes})


def test_a_fatal_switch_error_and_the_links_that_it_takes_down_are_one_incident() -> None:
    links = [xid(74, event_id=f"link-{n}", component=f"0000:{n:02x}:00.0") for n in range(8)]
    story = Story(sxid())
    for link in links:
        story.reports(link)

    assert steps_of(story.isolated())[0] == "ISOLATE"
    assert story.next().step is Step.REBOOT


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


@pytest.mark.parametrize("changes", [{"labels": {"fabric": "f2"}}, {"labels": {}}, {"observed_at": later(3)}])
def test_another_fabric_or_a_later_report_takes_nothing_away(changes: dict[str, Any]) -> None:
    other = observation_of(sxid(node_id=OTHER, **changes), "llama")

    assert Story(sxid()).amid(observations=(other,)).next().step is Step.ISOLATE


@pytest.mark.parametrize("code", ["19049", "20035"])  # the guide calls the first one non-fatal, and lacks the second
def test_a_switch_error_that_its_driver_calls_fatal_is_treated_as_a_fatal_one(code: str) -> None:
    assert Story(sxid(code=code)).isolated().next().step is Step.REBOOT


@pytest.mark.parametrize("code", ["19048", "28006"])  # the guide calls the first one fatal, and lacks the second
def test_a_switch_error_that_its_driver_calls_non_fatal_is_counted(code: str) -> None:
    counted = sxid(code=code, subcode="nonfatal", verdict=Verdict.DEGRADED)

    assert Story(counted).next().ending is Ending.OBSERVED_ONLY


def test_a_switch_error_without_the_drivers_word_goes_to_a_human_if_nobody_knows_it() -> None:
    assert Story(sxid(code="28006", subcode=None, verdict=Verdict.UNKNOWN)).next().step is Step.ESCALATE


@pytest.mark.parametrize("code", ["fatal", "dpc"])
def test_a_pcie_error_that_the_kernel_recovers_touches_nothing_and_one_that_it_cannot_reboots(code: str) -> None:
    error = xid(79, family=Family.pcie_aer, code=code, verdict=Verdict.DEGRADED)
    failed = xid(79, family=Family.pcie_aer, code="recovery_failed", event_id="failed")

    assert Story(error).next().ending is Ending.OBSERVED_ONLY
    assert Story(error).reports(failed).isolated().next().step is Step.REBOOT


# Many at once --------------------------------------------------------------------------------------------------------


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


# The node's own past -------------------------------------------------------------------------------------------------


def test_the_third_incident_in_a_week_marks_a_lemon_which_is_replaced_and_not_rebooted() -> None:
    story = Story(xid(79)).amid(recoveries=recoveries(2, 5)).isolated()

    assert story.next().step is Step.REPLACE
    assert f"{NODE} is a lemon: 3 incidents in 7 days" in story.next().reason


@pytest.mark.parametrize("past", [(2,), (2, 8)])
def test_two_incidents_or_an_old_one_mark_no_lemon(past: tuple[int, ...]) -> None:
    assert Story(xid(79)).amid(recoveries=recoveries(*past)).isolated().next().step is Step.REBOOT


def test_a_lemon_may_be_kept_out_instead() -> None:
    policy = RecoveryPolicy.model_validate({**ACT.model_dump(), "lemon": {"action": "ISOLATE"}})
    story = Story(xid(79), policy=policy).amid(recoveries=recoveries(1, 2)).isolated()

    assert story.next().step is Step.ESCALATE
    assert "lemon" in story.next().reason


def test_a_lemons_application_fault_is_still_the_applications() -> None:
    assert Story(xid(31)).amid(recoveries=recoveries(1, 2)).next().step is Step.RESTART_WORKLOAD


def test_a_reboot_that_the_window_has_seen_is_not_offered_again() -> None:
    story = Story(xid(79)).amid(spent={(node_scope(NODE), Action.REBOOT): 1}).isolated()

    assert story.next().step is Step.REPLACE
    assert story.next().reason == "1 of 1 reboots in 24 h are spent; next is a replacement"


def test_an_accelerators_serial_carries_its_past_into_another_node() -> None:
    story = Story(xid(79, component_serial="S/1"))
    story.amid(spent={(accelerator_scope("S/1"), Action.REBOOT): 2}).isolated()

    assert story.next().step is Step.REPLACE
    assert "2 of 2 reboots of accelerator S/1 in 168 h are spent" in story.next().reason


def test_a_destructive_step_reserves_for_the_node_and_the_accelerator() -> None:
    decision = Story(xid(79, component_serial="S1")).isolated().next()

    assert [held.scope for held in decision.reserve] == [node_scope(NODE), accelerator_scope("S1")]


def test_the_ladder_never_goes_down_within_a_window() -> None:
    story = Story(xid(79)).amid(spent={(node_scope(NODE), Action.REPLACE): 1}).isolated()

    assert story.next().step is Step.ESCALATE
    assert "so a reboot is not tried again" in story.next().reason


def test_flapping_between_codes_climbs_one_ladder() -> None:
    story = Story(xid(79)).isolated().rebooted().reports(xid(74, event_id="flap"))

    assert story.failed().next().step is Step.REPLACE
    assert story.then(Outcome.REFUSED, "no spare").reports(xid(48, event_id="flop")).next().step is Step.ESCALATE


def test_what_the_node_reported_before_it_last_passed_its_diagnostics_says_nothing() -> None:
    stale = xid(74, event_id="stale", observed_at=NOW - timedelta(hours=2))

    story = Story(xid(79)).amid(healthy_since=NOW - timedelta(hours=1)).reports(stale).isolated()

    assert story.next().step is Step.REBOOT


def test_what_another_boot_or_another_node_reported_says_nothing() -> None:
    story = (
        Story(xid(79)).reports(xid(74, event_id="a", boot_id="boot-0")).reports(xid(74, event_id="b", node_id=SPARE))
    )

    assert story.isolated().next().step is Step.REBOOT


# Coming up -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("since", ["booted_at", "agent_since"])
def test_missing_gpus_are_given_time_after_a_boot_or_an_agent_upgrade(since: str) -> None:
    story = Story(no_gpus()).amid(**{since: NOW - timedelta(seconds=30)})

    decision = story.next()

    assert decision.step is Step.WAIT
    assert decision.deadline_seconds == 270 + ACT.deadlines.quick_seconds


def test_gpus_that_are_still_missing_when_the_node_has_settled_are_a_fault() -> None:
    story = Story(no_gpus()).amid(booted_at=NOW).then(Outcome.TIMED_OUT)
    story.reports(no_gpus(event_id="still", observed_at=later(301))).now = later(330)

    assert story.next().step is Step.ISOLATE


def test_gpus_that_came_up_meanwhile_close_the_incident() -> None:
    story = Story(no_gpus()).amid(booted_at=NOW).then(Outcome.DONE)
    story.reports(no_gpus(event_id="fine", observed_at=later(301), verdict=Verdict.OK)).now = later(302)

    assert story.next().ending is Ending.OBSERVED_ONLY
    assert "gone when it settled" in story.next().reason


@pytest.mark.parametrize("verdict", [None, Verdict.UNKNOWN])
def test_silence_after_the_settle_time_is_not_health(verdict: Verdict | None) -> None:
    story = Story(no_gpus()).amid(booted_at=NOW).then(Outcome.TIMED_OUT)
    if verdict:
        story.reports(no_gpus(event_id="vague", observed_at=later(301), verdict=verdict))
    story.now = later(330)

    assert story.next().step is Step.ESCALATE
    assert "silence is not health" in story.next().reason


def test_gpus_that_go_missing_in_the_middle_of_the_day_are_a_fault_at_once() -> None:
    assert Story(no_gpus()).amid(booted_at=NOW - timedelta(hours=5)).next().step is Step.ISOLATE


# What the policy says ------------------------------------------------------------------------------------------------


def test_an_override_wins_over_the_catalog_and_says_why() -> None:
    policy = with_policy(overrides=[{"fault": "xid/79", "ladder": ["REPLACE"], "why": "our boards never come back"}])

    decision = Story(xid(79), policy=policy).isolated().next()

    assert decision.step is Step.REPLACE
    assert "our boards never come back" in decision.reason


def test_an_override_wins_over_the_drivers_word_too() -> None:
    policy = with_policy(overrides=[{"fault": "xid/79", "ladder": ["REPLACE"], "why": "our boards never come back"}])

    assert Story(xid(79), policy=policy).reports(stated("NODE_REBOOT")).isolated().next().step is Step.REPLACE


def test_the_most_exact_override_wins() -> None:
    policy = with_policy(
        overrides=[
            {"fault": "xid/*", "ladder": ["ISOLATE"], "why": "every XID"},
            {"fault": "xid/79", "ladder": ["REPLACE"], "why": "this one"},
            {"fault": "xid/79", "ladder": ["REBOOT"], "why": "this one here", "pools": ["demo"]},
        ]
    )

    def winner(fault: str, pool: str) -> str:
        found = policy.override(fault, pool)
        return found.why if found else ""

    assert winner("xid/48", "p") == "every XID"
    assert winner("xid/79", "p") == "this one"
    assert winner("xid/79", "demo") == "this one here"
    assert winner("sxid/79", "p") == ""


def test_an_override_may_teach_a_code_that_nobody_knows() -> None:
    policy = with_policy(overrides=[{"fault": "xid/999", "ladder": ["REBOOT"], "why": "the vendor told us"}])

    assert Story(xid(999, verdict=Verdict.UNKNOWN), policy=policy).next().step is Step.ISOLATE


def test_a_mode_per_action_holds_back_only_that_action() -> None:
    policy = with_policy(default_pool={"mode": "act", "modes": {"REPLACE": "observe"}})

    assert Story(xid(79), policy=policy).next().step is Step.ISOLATE
    assert Story(xid(74), policy=policy).next().ending is Ending.OBSERVED_ONLY
    assert Story(xid(79), policy=policy).isolated().rebooted().failed().next().step is Step.ESCALATE


def test_approve_mode_touches_nothing_and_asks() -> None:
    policy = with_policy(default_pool={"mode": "approve"})

    decision = Story(xid(79), policy=policy).next()

    assert (decision.step, decision.awaits, decision.action) == (Step.WAIT, Awaited.APPROVAL, Action.REBOOT)
    assert "asks for approval first; nodeheal would isolate the node, reboot it" in decision.reason


def test_a_node_that_is_opted_out_is_only_observed() -> None:
    policy = with_policy(opted_out={NODE: "lab machine"})

    assert "opted out (lab machine)" in Story(xid(79), policy=policy).next().reason
    assert Story(xid(79), policy=policy).next().ending is Ending.OBSERVED_ONLY
    assert Story(xid(79, node_id=OTHER), policy=policy).next().step is Step.ISOLATE


def test_a_pool_in_maintenance_is_only_observed() -> None:
    window = MaintenanceWindow(days=(Weekday.sunday,), starts_at="02:00", minutes=120, why="the weekly patching")
    policy = ACT.model_copy(update={"default_pool": PoolPolicy(mode=Mode.act, maintenance=(window,))})
    story = Story(xid(79), policy=policy)  # NOW is a Sunday, 03:00

    assert "in maintenance (the weekly patching)" in story.next().reason
    story.now = later(2 * 3600)
    assert story.next().step is Step.ISOLATE


def test_a_maintenance_window_may_run_past_midnight() -> None:
    window = MaintenanceWindow(days=(Weekday.saturday,), starts_at="23:00", minutes=300, why="patching")

    assert window.holds(NOW)
    assert not window.holds(later(3600))
    assert not window.holds(NOW - timedelta(hours=5))


@pytest.mark.parametrize(
    ("product", "step"),
    [
        (None, Step.ISOLATE),
        ("NVIDIA H100 80GB HBM3", Step.ISOLATE),
        ("NVIDIA L40S", Step.ISOLATE),
        ("NVIDIA A100-SXM4-80GB", Step.ESCALATE),
    ],
)
def test_a_code_that_the_sources_do_not_name_for_the_product_goes_to_a_human(product: str | None, step: Step) -> None:
    assert Story(xid(143, product=product)).next().step is step


@pytest.mark.parametrize(("verdict", "step"), [(Verdict.UNKNOWN, Step.ESCALATE), (Verdict.DEGRADED, Step.ESCALATE)])
def test_a_fault_that_is_reported_with_doubt_touches_nothing(verdict: Verdict, step: Step) -> None:
    assert Story(xid(79, verdict=verdict)).next().step is step


# Whatever happens ----------------------------------------------------------------------------------------------------

_CODES = st.sampled_from([13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 109, 119, 154, 999])
_EVENTS = st.lists(st.tuples(_CODES, st.integers(0, 900), st.sampled_from(["b9", "ba"])), min_size=1, max_size=12)


@settings(max_examples=200)
@given(events=_EVENTS, seed=st.integers(0, 2**16), copies=st.integers(0, 3))
def test_neither_order_nor_duplicates_change_a_decision(events: list[Any], seed: int, copies: int) -> None:
    reported = [
        xid(code, event_id=f"e{n}", observed_at=later(at), component=f"0000:{gpu}:00.0")
        for n, (code, at, gpu) in enumerate(events)
    ]
    shuffled = reported + reported[:copies]
    random.Random(seed).shuffle(shuffled)
    story = Story(reported[0])
    story.history = replace(story.history, events=tuple(reported))
    other = replace(story.history, events=tuple(shuffled))

    first, second = decide(story.history, ACT, NOW), decide(other, ACT, NOW)

    assert first.model_copy(update={"events_seen": 0}) == second.model_copy(update={"events_seen": 0})
    assert first.reason


@settings(max_examples=150)
@given(
    codes=st.lists(_CODES, min_size=1, max_size=6),
    outcomes=st.lists(st.sampled_from(Outcome), max_size=24),
    spent=st.dictionaries(st.sampled_from([Action.REBOOT, Action.REPLACE]), st.integers(0, 2)),
)
def test_the_ladder_only_goes_up_and_no_attempt_exceeds_its_limit(
    codes: list[int], outcomes: list[Outcome], spent: dict[Action, int]
) -> None:
    story = Story(xid(codes[0])).amid(spent={(node_scope(NODE), action): count for action, count in spent.items()})
    for n, code in enumerate(codes[1:]):
        story.reports(xid(code, event_id=f"e{n}"))

    for outcome in outcomes:
        decision = story.next()
        if decision.ending is not None:
            break
        for held in decision.reserve:
            count = story.history.context.spent.get((held.scope, held.limit.group), 0)
            assert count < held.limit.limit or held.limit.group is Action.RESTART_WORKLOAD
            grown = {**story.history.context.spent, (held.scope, held.limit.group): count + 1}
            story.amid(spent=grown)
        story.then(outcome, boot_id=f"boot-{len(story.history.turns)}", facts=Isolated(is_drained=True))

    taken = [
        turn.decision.action for turn in story.history.turns if turn.decision.action in (Action.REBOOT, Action.REPLACE)
    ]
    assert taken in ([], [Action.REBOOT], [Action.REPLACE], [Action.REBOOT, Action.REPLACE])
    assert story.next().reason


@settings(max_examples=100)
@given(events=_EVENTS, mode=st.sampled_from([Mode.observe, Mode.approve]))
def test_no_mode_but_act_ever_touches_anything(events: list[Any], mode: Mode) -> None:
    policy = with_policy(default_pool={"mode": mode.value})
    story = Story(xid(events[0][0]), policy=policy)
    for n, (code, at, gpu) in enumerate(events):
        story.reports(xid(code, event_id=f"e{n}", observed_at=later(at), component=f"0000:{gpu}:00.0"))

    assert story.next().step in (Step.CLOSE, Step.ESCALATE, Step.WAIT)


def test_an_override_is_refused_where_its_ladder_goes_down() -> None:
    with pytest.raises(ValueError, match="does not go up"):
        Override(fault="xid/79", ladder=(Action.REPLACE, Action.REBOOT), why="upside down")
