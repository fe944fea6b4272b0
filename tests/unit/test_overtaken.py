"""What humans and the world change while an incident waits: it finds out, and does nothing about what is over."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.names import pool_line
from nodeheal.contract.vocabulary import (
    Awaited,
    Ending,
    Escalation,
    IncidentState,
    NodeState,
    Outcome,
    Step,
    VerbName,
    Verdict,
)
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.operation import job_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.operations.steps import launch_gang, wait_for_approval
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.operator_guardrails import reset_breaker, trip_breaker
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.recovery.queue import wake_queue
from nodeheal.services.recovery.wait_for_news import wait_for_news
from tests.support.approvals import LINKS
from tests.support.builders import ACT, NOW, node, scheduler_in, stored_run, under_way, xid
from tests.support.incident_steps import A, B, C, Incident
from tests.support.policies import with_policy
from tests.support.step_functions import isolate_node
from tests.support.two_nodes import OTHER

STABLE = ACT.model_copy(update={"stable_seconds": 300})
ASKS_IN_THE_MIDDLE = with_policy(default_pool={"mode": "act", "modes": {"REPLACE": "approve"}})


# A node that a human gives back ---------------------------------------------------------------------------------------


class Waiting(Incident):
    """An incident whose node is isolated, and which waits."""

    def until_stable(self) -> "Waiting":
        self.isolate(), self.reboot(), self.diagnose()
        wait_for_news(self.request(), self.ports)
        assert self.is_waiting()
        return self

    def until_asked(self) -> "Waiting":
        self.isolate(), self.reboot(), self.diagnose(Verdict.FAILED)
        wait_for_approval(self.request(), self.ports, LINKS)
        assert self.is_waiting()
        return self

    @property
    def state(self) -> IncidentState:
        return self.ports.incidents.history(self.id).incident.state

    def mails(self) -> list[Any]:
        return [told for _, told in self.ports.notifier.announced]  # type: ignore[attr-defined]


def test_a_node_that_is_given_back_wakes_what_waited_and_ends_it_without_touching_the_node() -> None:
    it = Waiting(policy=STABLE).until_stable()

    release_node(A, "I looked at it", it.ports)
    it.resumed()
    last = it.request()

    assert last.decision.ending is Ending.HANDED_TO_A_HUMAN
    assert last.decision.escalation is Escalation.JOB_NOT_RESTARTED
    assert "was given back or retired by hand; nothing more is done, and llama is down" in last.decision.reason
    assert it.node().state is NodeState.HEALTHY


def test_an_incident_that_a_human_has_closed_is_not_open_again_while_it_ends() -> None:
    it = Waiting(policy=STABLE).until_stable()

    release_node(A, "I looked at it", it.ports)
    it.resumed()
    last = it.request()

    assert it.state is IncidentState.CLOSED
    end_incident(last, it.ports, STABLE)
    assert (it.node().state, it.node().open_incident) == (NodeState.HEALTHY, None)


def test_a_node_without_a_job_that_is_given_back_pages_nobody() -> None:
    it = Waiting(policy=STABLE).until_stable()
    incident = it.ports.incidents.incidents[it.id]  # type: ignore[attr-defined]
    it.ports.incidents.incidents[it.id] = replace(incident, job_id=None)  # type: ignore[attr-defined]

    release_node(A, "I looked at it", it.ports)
    it.resumed()
    end_incident(it.request(), it.ports, STABLE)

    assert it.state is IncidentState.CLOSED
    assert [mail.severity for mail in it.mails()] == ["INFO"]


def test_what_waited_is_woken_though_the_scheduler_does_not_take_the_node_back_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = Waiting(policy=STABLE).until_stable()
    monkeypatch.setattr(type(scheduler_in(it.ports)), "undrain", throttled)

    with pytest.raises(NotAccepted):
        release_node(A, "I looked at it", it.ports)

    it.resumed()
    assert "was given back or retired by hand" in it.request().decision.reason
    monkeypatch.undo()
    release_node(A, "I looked at it", it.ports)
    assert (A in scheduler_in(it.ports).draining, it.node().drained_by_us) == (False, False)


def throttled(*_: object) -> None:
    raise NotAccepted("throttled")


def test_a_node_that_is_given_back_under_a_question_answers_it() -> None:
    it = Waiting(policy=ASKS_IN_THE_MIDDLE).until_asked()

    release_node(A, "I looked at it", it.ports)

    assert (it.resumed().outcome, it.resumed().reason) == (
        Outcome.REFUSED,
        f"{A} was given back or retired by hand",
    )
    assert "was given back or retired by hand" in it.request().decision.reason


def test_a_proven_node_that_is_retired_before_its_job_runs_still_has_the_job_brought_back() -> None:
    it = Incident()
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    it.ports.nodes.save(replace(it.node(), open_incident=None))

    assert it.request().decision.step is Step.RESTART_WORKLOAD


def test_a_node_that_is_isolated_anew_while_it_is_given_back_is_not_switched_on() -> None:
    it = Waiting(policy=STABLE).until_stable()
    free = it.ports.pools.release

    def and_another_isolates_it(pool: str, node_id: str) -> None:
        free(pool, node_id)
        it.ports.nodes.save(replace(it.node(), state=NodeState.ISOLATED, open_incident="inc-other"))

    it.ports.pools.release = and_another_isolates_it  # type: ignore[method-assign]

    release_node(A, "I looked at it", it.ports)

    assert it.node().drained_by_us
    assert not scheduler_in(it.ports).placement_of(it.node()).is_schedulable


def test_a_node_that_was_left_drained_and_fails_again_is_not_switched_on_by_hand() -> None:
    it = Incident()
    it.isolate()
    it.ports.nodes.save(replace(it.node(), state=NodeState.HEALTHY))

    with pytest.raises(ValueError, match="is at work on"):
        release_node(A, "I looked at it", it.ports)

    assert not scheduler_in(it.ports).placement_of(it.node()).is_schedulable


def test_who_stands_in_line_is_called_when_a_node_is_given_back() -> None:
    it = Waiting(policy=STABLE).until_stable()
    place = (pool_line("BUDGET", "demo"), "89#2026")
    under_way(it.ports, VerbName.WAIT, incident_id="inc-next", token="next", line=place)

    release_node(A, "I looked at it", it.ports)

    assert "next" in it.ports.workflows.resumed  # type: ignore[attr-defined]


# A breaker that a human resets ----------------------------------------------------------------------------------------


def test_what_was_found_before_a_reset_does_not_open_the_breaker_after_it() -> None:
    it = Incident()
    before = it.ports.pools.get("demo")
    trip_breaker("demo", "6 nodes of the pool fail together", it.ports, before)
    reset_breaker("demo", "the switch was replaced", it.ports)

    now = trip_breaker("demo", "6 nodes of the pool fail together", it.ports, before)

    assert not now.is_tripped
    assert not it.ports.pools.get("demo").is_tripped
    assert trip_breaker("demo", "7 nodes of the pool fail together", it.ports, now).is_tripped


def test_a_reset_in_the_middle_of_a_decision_is_not_undone_by_it() -> None:
    it = Incident()
    for number in range(9):
        other = f"mi-0{number:016x}"
        it.ports.nodes.save(node(other, last_seen=NOW))
        ingest(xid(79, node_id=other, instance_id=other, event_id=other), it.ports, ACT)
    get = it.ports.pools.get

    def and_then_it_is_reset(pool: str) -> Pool:
        found = get(pool)
        it.ports.pools.get = get  # type: ignore[method-assign]
        trip_breaker(pool, "10 nodes fail together", it.ports)
        reset_breaker(pool, "the switch was replaced", it.ports)
        return found

    it.ports.pools.get = and_then_it_is_reset  # type: ignore[method-assign]

    it.request()

    assert not get("demo").is_tripped


def test_two_that_find_the_same_open_one_breaker() -> None:
    it = Incident()
    before = it.ports.pools.get("demo")
    first = trip_breaker("demo", "6 nodes fail", it.ports, before)

    second = trip_breaker("demo", "7 nodes fail", it.ports, before)

    assert isinstance(second, Pool)
    assert (second.breaker_opened_at, second.breaker_why) == (NOW, first.breaker_why)


# A node that is moved to another pool ---------------------------------------------------------------------------------


def in_line(policy: RecoveryPolicy = ACT) -> Incident:
    """The budget of pool `other` is full, where the node is now; its incident began in pool `demo`."""
    it = Incident(policy=policy)
    it.ports.nodes.save(replace(it.node(), pool="other"))
    it.ports.pools.claim("other", C, 1)
    isolate_node(it.request(), it.ports, policy)
    assert it.resumed().outcome is Outcome.REFUSED
    wait_for_news(it.request(), it.ports)
    return it


def test_a_node_that_was_moved_stands_in_the_line_of_the_pool_whose_slot_it_needs() -> None:
    it = in_line()

    assert [wait.incident_id for wait in it.ports.operations.queued(pool_line("BUDGET", "other"))] == [it.id]
    assert wake_queue("demo", it.ports) is None
    assert wake_queue("other", it.ports) == it.id


def test_the_breaker_that_holds_a_moved_node_is_that_of_its_pool() -> None:
    it = Incident()
    it.ports.nodes.save(replace(it.node(), pool="other"))
    trip_breaker("other", "6 nodes fail", it.ports)
    request = it.request()
    assert request.decision.awaits is Awaited.BREAKER

    wait_for_news(request, it.ports)
    assert it.is_waiting()
    reset_breaker("other", "fixed", it.ports)

    assert it.resumed().outcome is Outcome.DONE


# Two incidents of one job ---------------------------------------------------------------------------------------------


def test_a_run_has_one_launcher_and_wakes_nobody_else() -> None:
    it = Incident()
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    launch_gang(it.request(), it.ports, ACT)
    [launch] = it.ports.operations.open_of(job_owner("llama"))
    other = theirs(it, before_the_run=True)

    launch_gang(other, it.ports, ACT)

    done = it.ports.workflows.resumed["theirs"]  # type: ignore[attr-defined]
    assert (done.outcome, done.reason) == (Outcome.DONE, "llama was relaunched since, as run 2")
    assert it.ports.operations.open_of(job_owner("llama")) == [launch]


def theirs(it: Incident, *, before_the_run: bool) -> Any:
    """What the incident on node B asks for: the same job again."""
    run = stored_run(it.ports, "llama", 2)
    at = run.started_at.replace(microsecond=0)
    event = OTHER.model_copy(update={"observed_at": NOW if before_the_run else at.replace(minute=at.minute + 1)})
    ingest(event, it.ports, ACT)
    mine = it.turn, it.id
    it.turn, it.id = 0, incident_id_of(event)
    request = it.request(task_token="theirs")
    it.turn, it.id = mine
    restart = request.decision.model_copy(
        update={"step": Step.RESTART_WORKLOAD, "job_id": "llama", "node_id": B, "fault_at": event.observed_at}
    )
    return request.model_copy(update={"decision": restart})
