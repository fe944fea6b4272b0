"""What an operator asks for by hand goes the same way as what a check found, with fewer guardrails in its way."""

from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.names import DIAGNOSE, DIAGNOSTICS_LEVEL, DRAIN
from nodeheal.contract.notification import Notification
from nodeheal.contract.results import Refused
from nodeheal.contract.vocabulary import (
    Action,
    Awaited,
    Ending,
    Escalation,
    NodeState,
    Outcome,
    Provider,
    Refusal,
    Step,
    Verdict,
)
from nodeheal.domain.errors import NotFound
from nodeheal.domain.faults.correlation import breaker_key
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.domain.review.review import state_word, status_text
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.describe_act import describe_act
from nodeheal.services.operators.review_incidents import review_incident
from nodeheal.services.steps import save_node
from tests.support.acts import requested
from tests.support.builders import ACT, NOW, memory_ports, node, stored_node, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE, FakeCluster
from tests.support.guardrails import OPEN, PAUSED
from tests.support.observations import recoveries
from tests.support.policies import with_policy
from tests.support.recovery_story import Story

NODE = node().node_id


def asked(action: Action, policy: RecoveryPolicy = ACT, **more: Any) -> Story:
    ports = memory_ports()
    ports.nodes.save(node())
    ports.nodes.save(node("mi-free"))
    return Story(requested(NODE, action, "ada: it smells", ports, **more), policy=policy)


@pytest.mark.parametrize("mode", ["observe", "approve", "act"])
def test_a_reboot_by_hand_begins_whatever_the_mode(mode: str) -> None:
    policy = with_policy(default_pool={"mode": mode})

    assert asked(Action.REBOOT, policy).next().step is Step.ISOLATE
    assert asked(Action.REBOOT, policy).isolated().next().step is Step.REBOOT


def test_the_reason_on_record_is_the_operators() -> None:
    assert asked(Action.REBOOT).history.incident.root.evidence == "ada: it smells"


def test_a_reboot_by_hand_that_does_not_help_goes_to_the_operator_and_not_to_a_replacement() -> None:
    decision = asked(Action.REBOOT).isolated().rebooted().failed().next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert "the reboot did not help" in decision.reason


def test_a_replacement_by_hand_is_one() -> None:
    assert asked(Action.REPLACE).isolated().next().step is Step.REPLACE


@pytest.mark.parametrize(
    "other",
    [None, {"state": NodeState.QUARANTINED}, {"job_id": "llama"}, {"open_incident": "inc-1"}, {"pool": "elsewhere"}],
    ids=["none", "broken", "at work", "failing", "of another pool"],
)
def test_a_node_that_nothing_could_replace_is_not_taken_out_for_a_replacement(other: dict[str, object] | None) -> None:
    ports = memory_ports()
    ports.nodes.save(node())
    if other is not None:
        ports.nodes.save(node("mi-other", **other))

    with pytest.raises(ValueError, match="no free node that could take the place"):
        requested(NODE, Action.REPLACE, "ada: it smells", ports)


def test_a_machine_that_ec2_makes_needs_no_free_node() -> None:
    ports = memory_ports()
    ports.nodes.save(node(provider=Provider.ec2))

    assert requested(NODE, Action.REPLACE, "ada: it smells", ports).subcode == "REPLACE"


@pytest.mark.parametrize(
    ("action", "then"),
    [
        (Action.REPLACE, f"HyperPod terminates {NODE} and destroys all its volumes, and makes a new machine"),
        (Action.REBOOT, f"it is rebooted; HyperPod takes no diagnostics: {NODE} stays out of service until a"),
        (Action.ISOLATE, "it stays out of service until"),
    ],
)
def test_what_follows_on_hyperpod_is_said_before(action: Action, then: str) -> None:
    ports = memory_ports()
    ports.nodes.save(node(provider=Provider.hyperpod))

    *_, (label, last) = describe_act(stored_node(ports, NODE), action, "", ports, RecoveryPolicy())

    assert label == "then"
    assert last.startswith(then)


def test_an_isolation_by_hand_stays_until_the_operator_gives_the_node_back() -> None:
    decision = asked(Action.ISOLATE).isolated().next()

    assert decision.ending is Ending.HANDED_TO_A_HUMAN
    assert decision.reason == "Isolation asked for by hand: the node is isolated until an operator gives it back"


@pytest.mark.parametrize("around", PAUSED.values(), ids=PAUSED)
def test_a_pause_holds_back_what_is_asked_by_hand_too(around: dict[str, object]) -> None:
    assert asked(Action.REBOOT).amid(**around).next().ending is Ending.OBSERVED_ONLY


def test_an_opt_out_holds_back_what_is_asked_by_hand_too() -> None:
    policy = with_policy(opted_out={NODE: "lab machine"})

    assert "opted out (lab machine)" in asked(Action.REBOOT, policy).next().reason


def test_an_open_breaker_holds_back_what_is_asked_by_hand_too() -> None:
    assert asked(Action.REBOOT).amid(pool=OPEN).next().awaits is Awaited.BREAKER


def test_a_full_budget_holds_back_what_is_asked_by_hand_too() -> None:
    story = asked(Action.REBOOT).then(Outcome.REFUSED, "full", facts=Refused(code=Refusal.BUDGET_FULL))

    assert story.next().awaits is Awaited.BUDGET


def test_a_lemon_is_rebooted_where_an_operator_asks_for_a_reboot() -> None:
    assert asked(Action.REBOOT).amid(recoveries=recoveries(1, 2, 3)).isolated().next().step is Step.REBOOT


def test_the_attempt_is_counted_as_any_other() -> None:
    assert [r.scope for r in asked(Action.REBOOT).isolated().next().reserve] == [f"node#{NODE}"]


def test_a_node_with_an_open_incident_is_left_to_it() -> None:
    ports = memory_ports()
    ports.nodes.save(node(open_incident="inc-7"))

    with pytest.raises(ValueError, match="open incident, inc-7"):
        requested(NODE, Action.REBOOT, "ada: now", ports)


def test_a_retired_or_unknown_node_is_refused_by_name() -> None:
    ports = memory_ports()
    ports.nodes.save(node(state=NodeState.RETIRED))

    with pytest.raises(ValueError, match="is retired"):
        requested(NODE, Action.REBOOT, "ada: now", ports)
    with pytest.raises(NotFound, match="mi-0unknown"):
        requested("mi-0unknown", Action.REBOOT, "ada: now", ports)


def test_a_whole_reboot_by_hand_returns_the_node_and_does_not_speak_against_it() -> None:
    cluster = FakeCluster(RecoveryPolicy(stable_seconds=0))  # a pool that is only observed
    save_node(cluster.ports, cluster.node(), job_id=None)
    event = requested(BROKEN, Action.REBOOT, "ada: a new kernel", cluster.ports)

    walked = cluster.reports(event)

    assert walked.end == "Recovered"
    assert next(verb for verb, _ in cluster.commands if verb != "freeze-evidence") == "reboot-node"
    assert cluster.node().recoveries == ()


def test_what_was_asked_for_while_the_breaker_was_open_is_done_after_its_reset_however_late() -> None:
    opened = Pool("demo").tripped("3 nodes fail together (a, b, c; all are drills)", NOW)
    story = asked(Action.ISOLATE).amid(pool=opened)

    held = story.next()
    later = story.then(Outcome.DONE).amid(pool=opened.reset("ada: looked at", NOW + timedelta(hours=2))).next()

    assert (held.awaits, later.step) == (Awaited.BREAKER, Step.ISOLATE)
    assert held.page_key == breaker_key(opened)  # the page of the drills says it all


def test_asking_twice_is_two_incidents() -> None:
    cluster = FakeCluster(RecoveryPolicy(stable_seconds=0), spare=False)
    save_node(cluster.ports, cluster.node(), job_id=None)
    cluster.reports(requested(BROKEN, Action.REBOOT, "ada: once", cluster.ports))

    again = requested(BROKEN, Action.REBOOT, "ada: twice", cluster.ports)

    assert ingest(again, cluster.ports, cluster.policy) == "OPENED"
    assert cluster.node().open_incident == incident_id_of(again)


def test_a_node_that_is_drained_is_isolated_when_its_job_has_ended_and_its_job_is_not_restarted() -> None:
    story = asked(Action.ISOLATE, kind=DRAIN).amid(job_is_running=True)

    waits = story.next()
    ended = story.then(Outcome.DONE).amid(job_is_running=False).next()

    assert (waits.step, waits.awaits) == (Step.WAIT, Awaited.JOB_END)
    assert ended.step is Step.ISOLATE
    assert story.isolated().amid(free_nodes=1).next().ending is Ending.HANDED_TO_A_HUMAN


@pytest.mark.parametrize(("level", "given", "seconds"), [(None, 2, 1_200), (4, 4, 14_400)])
def test_a_diagnosis_by_hand_isolates_first_and_takes_the_level_that_was_asked_for(
    level: int | None, given: int, seconds: int
) -> None:
    story = asked(Action.ISOLATE, kind=DIAGNOSE, level=level)

    isolates, diagnosis = story.next(), story.isolated().next()

    assert isolates.step is Step.ISOLATE
    assert (diagnosis.step, diagnosis.diagnostics_level) == (Step.DIAGNOSE, given)
    assert diagnosis.deadline_seconds == seconds


def test_a_level_that_an_agent_names_is_not_taken() -> None:
    event = xid(79).model_copy(update={"labels": {DIAGNOSTICS_LEVEL: "4"}})

    assert Story(event).isolated().rebooted().next().diagnostics_level == 2


@pytest.mark.parametrize("has_passed", [True, False])
def test_a_node_that_passes_a_diagnosis_by_hand_serves_at_once_and_one_that_does_not_stays_out(
    has_passed: bool,
) -> None:
    it = FakeCluster()
    it.diagnoses[SPARE] = Verdict.OK if has_passed else Verdict.FAILED

    it.reports(requested(SPARE, Action.ISOLATE, "ada: it is slow", it.ports, kind=DIAGNOSE))

    incident = it.ports.incidents.incident(it.incident_id)
    assert incident.ending is (Ending.RECOVERED if has_passed else Ending.HANDED_TO_A_HUMAN)
    assert it.node(SPARE).state is (NodeState.HEALTHY if has_passed else NodeState.QUARANTINED)
    assert it.node(SPARE).is_available(it.clock(), NO_PAUSES) is has_passed
    assert state_word(incident) == ("done" if has_passed else "handed over")
    assert status_text(incident) == ("done" if has_passed else "handed to a human (not closed)")
    [told] = mails(it)
    assert told.subject.startswith(f"[nodeheal] {'done' if has_passed else 'needs a human'}: {SPARE}: ")
    assert not review_incident(it.incident_id, it.ports).is_found


def mails(it: FakeCluster) -> list[Notification]:
    """What people were told at the end."""
    return [told for _, told in it.ports.notifier.announced if told.ending is not None]  # type: ignore[attr-defined]


def test_an_isolation_that_was_asked_for_is_told_as_done_and_pages_nobody() -> None:
    it = FakeCluster()

    it.reports(requested(SPARE, Action.ISOLATE, "ada: a new riser", it.ports))

    [told] = mails(it)
    assert told.severity == "INFO"
    assert told.subject.startswith(f"[nodeheal] isolated as asked: {SPARE}: ")
    assert "When you have done with it what you wanted, give it back to work (release)" in told.body
    assert "Repair it" not in told.body
    assert "\nAfter the request:\n+0 s: an operator asked for it\n" in told.body


def test_the_job_of_a_node_that_is_isolated_by_hand_goes_on_elsewhere() -> None:
    it = FakeCluster(ACT.model_copy(update={"move_job_seconds": 120}))

    it.reports(requested(BROKEN, Action.ISOLATE, "ada: it smells", it.ports))

    run = it.ports.jobs.runs("llama")[-1]
    assert it.node(BROKEN).state is NodeState.QUARANTINED
    assert ({task.node_id for task in run.tasks}, run.is_running) == ({PEER, SPARE}, True)


def test_an_isolation_that_the_catalog_asks_for_needs_a_human() -> None:
    it = FakeCluster()

    it.reports(xid(54, node_id=SPARE, instance_id=SPARE))

    [told] = mails(it)
    assert (told.escalation, told.severity) == (Escalation.ISOLATED_ON_REQUEST, "PAGE")
    assert told.subject.startswith(f"[nodeheal] needs a human: {SPARE}: ")
    assert "Repair it and give it back" in told.body
