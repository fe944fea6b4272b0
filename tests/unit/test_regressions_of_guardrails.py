"""Regressions of guardrails, lines and slots: recoveries that did harm, waited for ever, or reported what was wrong."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.results import Refused, Returned
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import (
    Awaited,
    Ending,
    Escalation,
    IncidentState,
    NodeState,
    Outcome,
    Refusal,
    Step,
    Verdict,
)
from nodeheal.domain.errors import MachineRefused, NotAccepted
from nodeheal.domain.faults.correlation import breaker_key, is_dropped_by_reset, reset_key
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.fleet.pool import Pool as PoolGuardrails
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.guardrails import breaker_cause
from nodeheal.domain.recovery.incident import TimelineEntry, decision_entry, result_entry
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.notify.compose_waiting import compose_question
from nodeheal.services.operators import approval_page
from nodeheal.services.operators.operator_guardrails import pause_node, reset_breaker, trip_breaker
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.recovery.return_to_service import return_to_service
from nodeheal.services.recovery.wait_for_news import wait_for_news
from nodeheal.services.steps import save_node
from nodeheal.services.sweep import sweep
from tests.support.approvals import Asked, both
from tests.support.builders import ACT, NOW, memory_ports, node, scheduler_in, started_job, stored_node, stored_run, xid
from tests.support.command_lines import must_parse
from tests.support.fake_cluster import FakeCluster
from tests.support.guardrails import APPROVE, OPEN, full, waited
from tests.support.incident_steps import A, B, C, Incident
from tests.support.jobs import ecs_job
from tests.support.lost_writes import lost_call
from tests.support.observations import crowd, seen
from tests.support.policies import with_policy
from tests.support.queues import left_to_an_incident_that_asks
from tests.support.recovery_story import Story
from tests.support.replacement_pool import A as EC2
from tests.support.replacement_pool import N, Pool
from tests.support.step_functions import isolate_node

LATER = NOW + timedelta(hours=1)


# The breaker ---------------------------------------------------------------------------------------------------------


def dropped_by_a_reset(why: str = "ada: the switch was replaced: port 7", **event: Any) -> FakeCluster:
    """A fault has waited for the breaker for an hour, and was too old when a human reset it."""
    cluster = FakeCluster()
    trip_breaker("demo", "6 nodes of the pool fail together", cluster.ports)

    def an_hour_later() -> None:
        cluster.clock.advance(3_600)
        reset_breaker("demo", why, cluster.ports)

    cluster.on_wait = an_hour_later
    cluster.reports(xid(79, **event))
    return cluster


def test_what_a_reset_drops_is_told_once_and_as_a_thing_of_the_pool() -> None:
    cluster = dropped_by_a_reset()

    [_, dropped] = [told for _, told in cluster.ports.notifier.announced]  # type: ignore[attr-defined]
    assert cluster.node().state_reason.startswith("in service unproven: XID 79 (GPU has fallen off the bus): it came")
    words = " ".join(dropped.body.split())

    assert dropped.subject == "[nodeheal] breaker reset: pool demo: what was stale by then is dropped"
    assert dropped.severity == "INFO"
    assert "\nBy: ada\nWhy: the switch was replaced: port 7\n" in dropped.body
    assert "XID 79 (GPU has fallen off the bus): it came more than 600 s before the breaker was reset; it" in words
    assert "Reset: 2026-03-01 04:00:00 UTC" in words
    assert "nothing was done to their nodes, and nobody has proven them" in words
    assert f"One of them: {A} (llama): XID 79" in words
    assert dropped.needed == ("nothing. A node that shows its fault again is recovered as usual.",)
    for line in ("incidents list demo --since 1d", "nodes reboot NODE --why ..."):
        assert f"nodeheal {line}" in dropped.body
        must_parse(line.split())


def test_drills_that_a_reset_drops_are_told_as_drills_and_apart_from_real_faults() -> None:
    drill, real = (
        cluster.ports.notifier.announced[-1][1]  # type: ignore[attr-defined]
        for cluster in (dropped_by_a_reset(evidence=f"NVRM: Xid 79 {DRILL_MARK}"), dropped_by_a_reset())
    )

    assert drill.subject == "[nodeheal] drill: breaker reset: pool demo: what was stale by then is dropped"
    assert "\nDrill: every fault that this is about was injected. The open breaker was real.\n" in drill.body
    assert "Drill" not in real.body
    assert drill.key != real.key


def test_a_reset_that_names_nobody_is_told_without_a_name() -> None:
    assert "\nBy:" not in dropped_by_a_reset("looked at").ports.notifier.announced[1][1].body  # type: ignore[attr-defined]


def test_a_reset_of_which_only_the_reason_is_known_has_no_name() -> None:
    assert OPEN.reset("looked at", NOW).breaker_reset == ("", "looked at")
    assert OPEN.breaker_reset == ("", "")


def test_where_nothing_older_than_the_reset_is_kept_the_reason_does_not_count_to_zero() -> None:
    keeps_nothing = with_policy(breaker={"stale_seconds": 0})
    story = waited(Story(xid(79), policy=keeps_nothing).amid(pool=OPEN), Outcome.DONE)

    dropped = story.amid(pool=OPEN.reset("", LATER)).next()

    assert dropped.reason.endswith("bus): it came before the breaker was reset; it is dropped")


def test_another_reset_drops_under_another_key() -> None:
    first, later = (OPEN.reset("", at) for at in (NOW, LATER))

    assert reset_key(first) == reset_key(OPEN.reset("for another reason", NOW)) != reset_key(later)
    assert is_dropped_by_reset(reset_key(first))
    assert not is_dropped_by_reset(breaker_key(OPEN))


def test_a_fault_that_was_dropped_as_old_is_news_when_the_node_shows_it_again() -> None:
    cluster = dropped_by_a_reset()
    assert cluster.ports.incidents.history(cluster.incident_id).incident.ending is Ending.OBSERVED_ONLY

    again = xid(79, event_id="again", observed_at=cluster.clock())

    assert ingest(again, cluster.ports, cluster.policy) is Ingested.OPENED


def test_what_else_is_well_on_the_node_makes_an_old_fault_no_fresher() -> None:
    story = waited(Story(xid(79)).amid(pool=OPEN), Outcome.DONE)
    story.reports(xid(63, event_id="well", verdict=Verdict.OK, observed_at=LATER))

    decision = story.amid(pool=PoolGuardrails("demo", breaker_reset_at=LATER)).next()

    assert decision.ending is Ending.OBSERVED_ONLY
    assert "it came more than 600 s before" in decision.reason


def test_a_fault_that_came_again_shortly_before_the_reset_is_not_old() -> None:
    story = waited(Story(xid(79)).amid(pool=OPEN), Outcome.DONE)
    story.reports(xid(79, event_id="again", observed_at=LATER))

    assert story.amid(pool=PoolGuardrails("demo", breaker_reset_at=LATER)).next().step is Step.ISOLATE


def test_an_earlier_reset_drops_nothing_while_the_breaker_is_open_again() -> None:
    story = waited(Story(xid(79)).amid(pool=OPEN), Outcome.DONE)

    assert story.amid(pool=replace(OPEN, breaker_reset_at=LATER)).next().awaits is Awaited.BREAKER


def waits_for_the_breaker() -> Incident:
    it = Incident()
    trip_breaker("demo", "6 nodes of the pool fail together", it.ports)
    wait_for_news(it.request(), it.ports)
    assert it.is_waiting()
    return it


def test_a_reset_that_died_before_it_woke_anybody_is_made_up_for_by_the_sweep() -> None:
    it = waits_for_the_breaker()

    class Down:
        def queued(self, *_: object) -> object:
            raise NotAccepted("throttled")

    with pytest.raises(NotAccepted):
        reset_breaker("demo", "fixed", replace(it.ports, operations=Down()))  # type: ignore[arg-type]
    sweep(it.ports, ACT)

    assert it.resumed().outcome is Outcome.DONE


def test_the_same_reset_again_goes_on_where_the_first_died() -> None:
    it = waits_for_the_breaker()
    queued = it.ports.operations.queued
    it.ports.operations.queued = Mock(side_effect=NotAccepted("throttled"))  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        reset_breaker("demo", "fixed", it.ports)
    it.ports.operations.queued = queued  # type: ignore[method-assign]
    first = it.ports.pools.get("demo")
    it.clock.advance(60)

    assert reset_breaker("demo", "fixed", it.ports) == 1

    assert it.ports.pools.get("demo") == first  # what has failed since the first one is not looked at yet
    assert it.resumed().outcome is Outcome.DONE
    with pytest.raises(ValueError, match="not open"):
        reset_breaker("demo", "fixed", it.ports)


def test_the_sweep_wakes_nobody_while_the_breaker_is_open() -> None:
    it = waits_for_the_breaker()

    sweep(it.ports, ACT)

    assert it.is_waiting()


def test_what_wakes_a_wait_while_the_breaker_is_open_lets_it_wait_on() -> None:
    story = waited(Story(xid(79)).amid(pool=OPEN), Outcome.DONE, "something new was reported")

    assert story.next().awaits is Awaited.BREAKER


def test_all_that_an_open_breaker_holds_is_one_page_whatever_else_fails_beside_it() -> None:
    alone = Story(xid(79)).amid(pool=OPEN).next()
    among_many = Story(xid(79)).amid(pool=OPEN, observations=crowd(5), pool_nodes=10).next()

    assert alone.page_key == among_many.page_key


@pytest.mark.parametrize(("mode", "trips"), [("act", True), ("approve", True), ("observe", False)])
def test_the_breaker_opens_wherever_nodeheal_may_act_be_it_after_a_yes(mode: str, trips: bool) -> None:
    story = Story(xid(79)).amid(observations=crowd(5), pool_nodes=10)

    assert (breaker_cause(story.history, with_policy(default_pool={"mode": mode}), NOW) is not None) is trips


@pytest.mark.parametrize(
    ("code", "changes"),
    [(31, {}), (79, {"opted_out": {A: "lab machine"}})],
    ids=["a fault of the job's", "on a node that is opted out"],
)
def test_what_would_touch_no_node_opens_no_breaker(code: int, changes: dict[str, object]) -> None:
    story = Story(xid(code)).amid(observations=crowd(5), pool_nodes=10)

    assert breaker_cause(story.history, with_policy(**changes), NOW) is None


def test_only_what_has_waited_is_dropped_for_passed_diagnostics_and_not_if_it_came_again_after_them() -> None:
    passed = NOW + timedelta(seconds=60)
    assert Story(xid(79)).amid(healthy_since=passed).next().step is Step.ISOLATE

    story = waited(full(Story(xid(79))), Outcome.DONE).amid(healthy_since=passed)

    assert story.reports(xid(79, event_id="again", observed_at=LATER)).next().step is Step.ISOLATE


# Slots ---------------------------------------------------------------------------------------------------------------


class Down:
    """Pools whose slots cannot be given back: the call dies there."""

    def __init__(self, pools: object) -> None:
        self._pools = pools

    def __getattr__(self, name: str) -> object:
        return getattr(self._pools, name)

    def release(self, *_: object) -> None:
        raise ConnectionError("the call is lost")


class Deaf:
    """A node store whose saves always lose their race."""

    def __init__(self, nodes: Any) -> None:
        self._nodes = nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes, name)

    def save(self, *_: object) -> bool:
        return False


def waits_in_line(it: Incident) -> None:
    """Another incident's node has the only slot."""
    isolate_node(it.request(), it.ports, it.policy)
    assert it.resumed().outcome is Outcome.REFUSED
    wait_for_news(it.request(), it.ports)
    assert it.is_waiting()


def test_a_slot_of_a_node_that_its_broken_workflow_never_isolated_is_found_by_the_sweep() -> None:
    it = Incident()
    ingest(xid(79, node_id=B, instance_id=B, event_id="b"), it.ports, it.policy)
    it.ports.pools.claim("demo", B, 1)  # the call died right after: the workflow paged, and left it to a human
    broke = it.ports.incidents.history(str(it.node(B).open_incident)).incident
    it.ports.incidents.finish(replace(broke, state=IncidentState.ESCALATED))
    waits_in_line(it)

    sweep(it.ports, ACT)

    assert it.resumed().outcome is Outcome.DONE


def test_the_sweep_leaves_the_slot_of_a_node_that_is_just_being_isolated() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    ingest(xid(79, node_id=B, instance_id=B, event_id="b"), it.ports, it.policy)
    waits_in_line(it)

    sweep(it.ports, ACT)

    assert it.is_waiting()
    assert list(it.ports.pools.holders("demo")) == [B]


def test_the_sweep_leaves_the_slot_of_a_node_that_is_out_of_service() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))
    waits_in_line(it)

    sweep(it.ports, ACT)

    assert it.is_waiting()


def test_the_time_in_line_is_counted_from_when_it_stood_in_line() -> None:
    """A fault that let its job finish, or waited for a human, has not waited for a slot."""
    story = Story(xid(79))
    story.now = NOW + timedelta(days=3)
    story.then(Outcome.REFUSED, "full", facts=Refused(code=Refusal.BUDGET_FULL, slots=1), finished_at=story.now)

    decision = story.next()

    assert (decision.awaits, decision.deadline_seconds) == (Awaited.BUDGET, 86_400)


def test_a_fault_that_is_repeated_while_its_incident_stands_in_line_does_not_use_its_turns_up() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))
    waits_in_line(it)

    it.clock.advance(60)
    ingest(xid(79, event_id="again", observed_at=it.clock()), it.ports, it.policy)

    assert it.is_waiting()


def test_good_news_while_its_incident_stands_in_line_does_not_use_its_turns_up() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))
    waits_in_line(it)

    ingest(xid(63, verdict=Verdict.OK), it.ports, it.policy)

    assert it.is_waiting()


def test_another_fault_while_its_incident_stands_in_line_is_news() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))
    waits_in_line(it)

    it.clock.advance(60)
    ingest(xid(74, observed_at=it.clock()), it.ports, it.policy)

    assert not it.is_waiting()


# Replacement nodes --------------------------------------------------------------------------------------------------


def test_a_node_that_a_human_has_paused_is_nobodys_replacement_node() -> None:
    it = Incident(code=74)
    pause_node(C, 3_600, "I work on it", it.ports)
    it.isolate()

    assert it.swap().outcome is Outcome.REFUSED
    assert it.node(C).open_incident is None


def test_a_node_that_is_opted_out_is_nobodys_replacement_node() -> None:
    cluster = FakeCluster(with_policy(opted_out={"mi-0cccccccccccccccc": "lab machine"}))

    cluster.reports(xid(74))

    assert ("run-diagnostics", "mi-0cccccccccccccccc") not in cluster.commands
    assert cluster.node("mi-0cccccccccccccccc").job_id is None


def test_a_broken_machine_that_ec2_will_not_give_up_is_left_to_a_human_and_not_called_recovered() -> None:
    story = Story(xid(74)).isolated().renewed().passed()
    story.then(
        Outcome.DONE, "mi-0spare is in service; mi-0a could not be given back", facts=Returned(is_broken_left=True)
    )
    story.then(Outcome.DONE, "llama runs again")

    assert story.next().ending is Ending.HANDED_TO_A_HUMAN
    assert "could not be given back" in story.next().reason


@pytest.mark.parametrize("retire", [False, True], ids=["given back", "retired"])
def test_a_new_node_of_the_group_is_not_for_one_that_a_human_has_taken_in_the_meantime(retire: bool) -> None:
    pool = Pool()
    pool.replaces()
    release_node(EC2, "it was the cable", pool.ports, retire=retire)
    pool.group_makes()

    pool.boots()

    assert pool.node(N).open_incident is None
    assert pool.node(EC2).state is (NodeState.RETIRED if retire else NodeState.HEALTHY)


def test_a_replacement_node_that_proved_nothing_can_be_given_back_by_hand() -> None:
    ports = memory_ports()
    ports.nodes.save(node(C, state=NodeState.SUSPECT, state_reason="no proof as a spare"))

    release_node(C, "diagnosed by hand", ports)

    found = stored_node(ports, C)
    assert found.state is NodeState.HEALTHY


# A human's yes -------------------------------------------------------------------------------------------------------


def test_a_yes_to_one_restart_is_none_to_the_next() -> None:
    story = waited(Story(xid(31), policy=APPROVE), Outcome.DONE, "approved by ada")
    story.then(Outcome.DONE, "llama restarted as run 2")

    decision = story.reports(xid(31, event_id="run-2", observed_at=LATER)).next()

    assert (decision.step, decision.awaits) == (Step.WAIT, Awaited.APPROVAL)


def test_an_old_link_shows_the_question_that_it_answers() -> None:
    story = waited(Story(xid(79), policy=APPROVE), Outcome.DONE).isolated().rebooted().failed()
    story.then(Outcome.UNKNOWN)

    page = approval_page.question(story.history, 1, both(), memory_ports())

    assert "isolate the node, reboot it" in page
    assert "go on with a replacement" not in page


# One step after the other ---------------------------------------------------------------------------------------------


def test_replacements_that_are_under_way_do_not_use_up_the_turns_of_one_that_waits_for_them() -> None:
    story = Story(xid(74)).isolated()
    for _ in range(8):  # two replacements' time
        story.then(Outcome.REFUSED, "1 of 1 replacements are under way", facts=Refused(code=Refusal.REPLACEMENTS_FULL))
        wait = story.next()
        assert wait.awaits is Awaited.REPLACEMENT, wait.reason
        assert wait.deadline_seconds <= ACT.deadlines.replace_seconds
        story.now += timedelta(seconds=wait.deadline_seconds)
        story.then(Outcome.TIMED_OUT)

    assert story.now - NOW >= timedelta(hours=1)


@pytest.mark.parametrize(("ended", "outcome"), [(False, Outcome.REFUSED), (True, Outcome.DONE)])
def test_a_job_that_came_to_the_node_while_its_incident_waited_is_not_taken_down(ended: bool, outcome: Outcome) -> None:
    it = Incident()
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    save_node(it.ports, it.node(A), job_id=None)
    started_job(ecs_job("other", "demo", "training", "trainer:1", "trainer", 1), [it.node(A)], it.ports)
    if ended:
        run = stored_run(it.ports, "other", 1)
        it.ports.jobs.save_run(run.with_task(replace(run.tasks[0], status="STOPPED")))

    isolate_node(it.request(), it.ports, it.policy)

    assert it.resumed().outcome is outcome
    assert not it.resumed().refused_for(Refusal.EXTERNAL_REMEDIATOR)
    assert (it.node(A).state is NodeState.ISOLATED) == ended


@pytest.mark.parametrize("refuses", [False, True])
def test_whether_the_broken_machine_is_gone_is_told_with_the_return_of_its_successor(refuses: bool) -> None:
    pool = Pool(group="", template="lt-1")
    asked = pool.replaces()
    [new] = pool.machines.tokens.values()
    pool.boots(new)
    answer = pool.answer()
    assert answer is not None
    passed = answer.model_copy(update={"step": Step.DIAGNOSE, "node_id": new, "replacement_node_id": None})
    entries = []
    for turn, result in enumerate((answer, passed)):
        entries += [decision_entry(turn, asked.decision.model_copy(update={"step": result.step}), NOW)]
        entries += [result_entry(turn, result)]
    head = pool.ports.incidents.history(asked.incident_id).incident
    assert pool.ports.incidents.advance(replace(head, turn=1), entries)
    if refuses:
        pool.machines.terminate_instance = refused_by_ec2

    back = asked.decision.model_copy(update={"step": Step.RETURN, "node_id": new})
    result = return_to_service(asked.model_copy(update={"decision": back, "turn": 5}), pool.ports, pool.policy)

    assert (result.outcome, result.facts) == (Outcome.DONE, Returned(is_broken_left=refuses))
    assert (EC2 in pool.ports.pools.holders("demo")) is refuses


def refused_by_ec2(*_: object) -> None:
    raise MachineRefused("OperationNotPermitted (termination protection)")


def test_an_incident_that_never_brings_back_the_job_that_was_left_to_it_says_so() -> None:
    it, answered = left_to_an_incident_that_asks()
    it.ports.incidents.finish(
        replace(it.ports.incidents.history(it.id).incident, state=IncidentState.CLOSED, ending=Ending.RECOVERED)
    )
    decision = decide_next_step(answered, it.ports, APPROVE)
    assert decision.ending is Ending.HANDED_TO_A_HUMAN

    end_incident(StepRequest(incident_id=answered.incident_id, turn=2, decision=decision), it.ports, APPROVE)

    [(_, mail)] = it.ports.notifier.announced  # type: ignore[attr-defined]
    assert "\nNeeded:\n1. llama is stopped." in mail.body


def test_an_incident_that_is_dropped_does_not_forget_the_job_that_was_left_to_it() -> None:
    it, answered = left_to_an_incident_that_asks()
    it.ports.incidents.finish(
        replace(it.ports.incidents.history(it.id).incident, state=IncidentState.CLOSED, ending=Ending.RECOVERED)
    )
    assert answered.result is not None
    approved = answered.model_copy(update={"result": answered.result.model_copy(update={"outcome": Outcome.DONE})})
    save_node(it.ports, it.node(B), boot_id="boot-2")  # somebody has rebooted it in the meantime

    decision = decide_next_step(approved, it.ports, APPROVE)

    assert decision.step in (Step.RESTART_WORKLOAD, Step.ESCALATE)


# Guards that no test had noticed were gone ----------------------------------------------------------------------------


def test_who_answers_second_is_told_so_even_where_only_that_call_reached_the_workflow() -> None:
    it = Asked()
    first = TimelineEntry(NOW, "answer", f"answer-{it.asked.turn:04d}", "refused by ada", Answer.refuse.value)
    it.ports.incidents.append(it.id, first)  # the call died before it could resume
    it.clock.advance(60)

    taken, why = it.answer(Answer.approve, "bob")

    assert (taken, why) == (False, "it was answered before: refused by ada")
    assert (it.resumed().outcome, it.resumed().finished_at) == (Outcome.REFUSED, it.clock())


def test_a_reset_that_others_write_over_is_written_again() -> None:
    it = Incident()
    trip_breaker("demo", "6 nodes of the pool fail together", it.ports)
    save, lost = it.ports.pools.save, iter([True])
    it.ports.pools.save = lambda pool: not next(lost, False) and save(pool)  # type: ignore[method-assign]

    reset_breaker("demo", "fixed", it.ports)

    assert not it.ports.pools.get("demo").is_tripped


def test_a_job_that_could_not_be_restarted_is_told_although_its_node_is_given_back_by_then() -> None:
    story = Story(xid(74)).isolated().swapped().passed().then(Outcome.FAILED, "its image is gone")

    decision = story.amid(is_released_or_retired=True).next()

    assert decision.escalation is Escalation.JOB_NOT_RESTARTED
    assert "llama is down" in decision.reason


def test_a_fault_after_the_return_goes_to_a_human_and_to_no_further_step() -> None:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE, "back in service")

    decision = story.reports(xid(79, event_id="again", boot_id="boot-2")).next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert "when it was back in service already" in decision.reason


def test_only_a_replacement_waits_for_the_diagnosis_of_a_link_and_only_before_anything_was_tried() -> None:
    policy = with_policy(overrides=[{"fault": "xid/74", "ladder": ["REBOOT", "REPLACE"], "why": "so we want it"}])
    other_end = (seen(74, B, observed_at=NOW + timedelta(seconds=1)),)
    story = Story(xid(74), policy=policy).amid(observations=other_end).isolated()

    assert story.next().step is Step.REBOOT
    assert story.then(Outcome.TIMED_OUT, "no new boot id").next().step is Step.REPLACE


def test_a_policy_that_wants_evidence_from_now_on_asks_for_none_of_a_node_that_was_rebooted() -> None:
    story = Story(xid(79)).isolated().rebooted().failed()
    story.policy = with_policy(evidence={"enabled": True})

    assert story.next().step is Step.REPLACE


def test_a_new_machine_that_did_not_come_into_service_is_told_to_a_human_before_the_job_is_started() -> None:
    story = Story(xid(74)).isolated().renewed().passed().then(Outcome.REFUSED, "it belongs to nobody")

    decision = story.next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert "it is not in service: it belongs to nobody" in decision.reason


def test_a_pool_that_is_only_observed_since_a_restart_began_is_handed_over() -> None:
    story = Story(xid(31)).then(Outcome.DONE, "llama restarted as run 2")
    story.policy = with_policy(default_pool={"mode": "observe"})

    decision = story.reports(xid(31, event_id="run-2", observed_at=LATER)).next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert "since the recovery began" in decision.reason


# What a node says, and what a broken workflow leaves behind ---------------------------------------------------------


def test_no_line_of_a_node_looks_like_one_of_ours_in_the_email_that_asks() -> None:
    it = Incident(policy=APPROVE)
    request, history = it.request(), it.ports.incidents.history(it.id)
    evil = history.incident.root.model_copy(update={"evidence": "Xid 79\n\nApprove: https://evil.example"})
    links = dict.fromkeys(Answer, "https://approve.example")

    mail = compose_question(replace(history, incident=replace(history.incident, root=evil)), request, links, LATER)

    lines = mail.body.splitlines()
    assert lines[:5] == ["Approve:", "https://approve.example", "", "Refuse:", "https://approve.example"]
    assert mail.body.count("Approve:") == 1


def claimed_by(state: IncidentState) -> Incident:
    """The broken node is isolated and a spare is claimed; the incident is in this state."""
    it = Incident(code=74)
    it.isolate()
    save_node(it.ports, it.node(C), open_incident=it.id)
    it.ports.incidents.finish(replace(it.ports.incidents.history(it.id).incident, state=state))
    return it


def test_a_spare_that_a_broken_workflow_had_claimed_is_free_when_a_human_has_taken_over() -> None:
    it = claimed_by(IncidentState.ESCALATED)

    release_node(A, "repaired", it.ports)

    assert it.node(C).is_available(it.clock(), NO_PAUSES)


def test_a_node_takes_no_work_before_it_is_written_that_it_is_in_service() -> None:
    it = claimed_by(IncidentState.ESCALATED)
    scheduler: Any = scheduler_in(it.ports)
    lost = replace(it.ports, nodes=Deaf(it.ports.nodes))

    with pytest.raises(NotAccepted):
        release_node(A, "repaired", lost)

    assert scheduler.draining == {A}


def test_a_release_that_died_before_it_switched_the_node_on_goes_on_when_it_is_called_again() -> None:
    it = claimed_by(IncidentState.ESCALATED)
    scheduler: Any = scheduler_in(it.ports)
    undrain = scheduler.undrain
    scheduler.undrain = lost_call
    with pytest.raises(ConnectionError):
        release_node(A, "repaired", it.ports)
    scheduler.undrain = undrain

    after = release_node(A, "repaired", it.ports)

    assert (after.state, after.drained_by_us, scheduler.draining) == (NodeState.HEALTHY, False, set())
    with pytest.raises(ValueError, match="HEALTHY"):
        release_node(A, "once more", it.ports)


def test_a_spare_of_a_workflow_that_lives_is_its_own_to_let_go() -> None:
    it = claimed_by(IncidentState.WAITING)

    release_node(A, "repaired", it.ports)

    assert it.node(C).open_incident == it.id


def test_a_node_is_not_given_back_under_a_recovery_that_is_at_work_on_it() -> None:
    it = Incident()
    it.isolate()
    it.request()  # the reboot is decided

    with pytest.raises(ValueError, match=f"{it.id} is at work on {A}; wait until it has ended"):
        release_node(A, "looks fine to me", it.ports)

    assert it.node().state is NodeState.ISOLATED
    assert list(it.ports.pools.holders("demo")) == [A]
