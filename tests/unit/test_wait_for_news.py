"""Waiting for news: whenever something comes, the incident goes on; what says nothing new lets it sleep."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.results import Refused
from nodeheal.contract.steps import DecideRequest, StepRequest
from nodeheal.contract.vocabulary import Awaited, Family, Outcome, Refusal, Step, VerbName, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.operation import incident_owner
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.operations.engine import signal
from nodeheal.operations.verbs import conclude
from nodeheal.operations.wait import operation_id_of
from nodeheal.ports import Ports
from nodeheal.ports.storage import OperationStore
from nodeheal.services.intake.ingest import Ingested
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.recovery.wait_for_news import _call_for_a_free_slot, wait_for_news, waiting_for_news
from tests.support.builders import ACT, NOW, memory_ports, under_way, xid
from tests.support.incident_steps import A, B, C, Incident, restarted_for_an_application_fault, take
from tests.support.incident_steps import Incident as Recovery
from tests.support.observations import later
from tests.support.recovery_story import Story
from tests.support.replays import HOUR
from tests.support.steps import asking, turn

REMAP = 63  # a row remap lets its job finish first


class JustBefore:
    """An OperationStore to which something happens just before an operation is stored."""

    def __init__(self, operations: OperationStore, happens: Callable[[], object]) -> None:
        self._operations, self._happens = operations, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)

    def save(self, operation: Any) -> bool:
        if operation.version == 0:
            self._happens()
        return self._operations.save(operation)


class HistoryWatched:
    """An IncidentStore that says what waits there were when a history was read."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self.waits_at_read: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ports.incidents, name)

    def history(self, incident_id: str) -> Any:
        self.waits_at_read.append(waiting_for_news(incident_id, self._ports) is not None)
        return self._ports.incidents.history(incident_id)


def gang_stops(it: Incident) -> None:
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=0)


def waiting(code: int = REMAP) -> Incident:
    """An incident that waits for its job to end."""
    it = Incident(code)
    request = it.request()
    assert request.decision.step is Step.WAIT
    wait_for_news(request, it.ports)
    return it


def test_nothing_new_lets_the_incident_wait_until_the_deadline_of_its_decision() -> None:
    it = waiting()

    wait = waiting_for_news(it.id, it.ports)

    assert it.is_waiting()
    assert wait is not None
    assert (wait.token, wait.deadline_at) == ("token-1", NOW + timedelta(days=7))
    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline]
    assert any("waiting until 2026-03-08 03:00:00 UTC at most" in text for text in told)


def test_the_wait_is_stored_before_the_world_is_looked_at() -> None:
    it = Incident(REMAP)
    request = it.request()
    watched = HistoryWatched(it.ports)

    wait_for_news(request, replace(it.ports, incidents=watched))

    assert watched.waits_at_read[-1]


@pytest.mark.parametrize("is_late", [False, True], ids=["before the wait", "just before the wait is stored"])
@pytest.mark.parametrize("happens", [lambda it: take(it, xid(79)), gang_stops], ids=["an event", "the job's end"])
def test_what_happens_after_the_decision_resumes_at_once(happens: Callable[[Incident], object], is_late: bool) -> None:
    it = Incident(REMAP)
    request = it.request()
    ports = it.ports
    if is_late:
        ports = replace(ports, operations=JustBefore(ports.operations, lambda: happens(it)))
    else:
        happens(it)

    wait_for_news(request, ports)

    assert it.resumed().outcome is Outcome.DONE
    assert waiting_for_news(it.id, it.ports) is None
    assert it.request().decision.step is Step.ISOLATE


def _settling() -> Incident:
    """A node that has just come up and misses its GPUs; its job has ended."""
    it = Incident(REMAP)
    gang_stops(it)
    it.ports.nodes.save(replace(it.node(C), booted_at=NOW, job_id="llama"))
    event = xid(79, family=Family.nvml, code="NO_DEVICES", component=None, node_id=C, instance_id=C)
    take(it, event)
    it.id = incident_id_of(event)
    return it


def test_the_last_rank_that_stops_resumes_the_incident() -> None:
    it = waiting()

    it.task_is("STOPPED", 0, exit_code=0)
    assert it.is_waiting()
    it.task_is("STOPPED", 1, exit_code=0)

    assert it.resumed().reason.startswith("there is news")
    assert waiting_for_news(it.id, it.ports) is None


@pytest.mark.parametrize(
    "news",
    [
        xid(79),
        xid(REMAP, event_id="elsewhere", component="0000:ba:00.0"),
        xid(REMAP, event_id="more-exactly", subcode="ROW"),
        xid(154, subcode="NONE", verdict=Verdict.OK),
        xid(REMAP, event_id="well", verdict=Verdict.OK),
    ],
    ids=["another code", "another gpu", "another sub-code", "the driver asks for nothing", "the same is well"],
)
def test_what_is_new_or_good_resumes_the_incident(news: HealthEvent) -> None:
    it = waiting()

    take(it, news)

    assert it.resumed().outcome is Outcome.DONE


def test_a_heartbeat_is_no_news() -> None:
    it = waiting()

    became = take(it, xid(0, family=Family.heartbeat, code="ALIVE", verdict=Verdict.OK))

    assert became is Ingested.SEEN
    assert it.is_waiting()


def test_the_same_good_news_twice_resumes_once_and_is_kept_once() -> None:
    it = waiting()
    good = xid(REMAP, event_id="well", verdict=Verdict.OK)

    became = [take(it, good) for _ in range(2)]

    assert became == [Ingested.JOINED, Ingested.DUPLICATE]
    assert [e.event_id for e in it.ports.incidents.history(it.id).events].count("well") == 1


def test_news_at_the_same_time_resume_once() -> None:
    it = waiting()
    read_before = waiting_for_news(it.id, it.ports)
    assert read_before is not None

    take(it, xid(79))
    signal(read_before, "news", it.ports)

    assert len(it.ports.workflows.resumed) == 1  # type: ignore[attr-defined]
    assert waiting_for_news(it.id, it.ports) is None


def test_a_deadline_without_news_says_so_and_forgets_the_wait() -> None:
    it = Incident(REMAP)
    request = it.request()
    wait_for_news(request, it.ports)

    result = conclude(request, it.ports)

    assert (result.outcome, result.reason) == (Outcome.TIMED_OUT, "no news within 604800 s")
    assert waiting_for_news(it.id, it.ports) is None


@pytest.mark.parametrize(
    ("awaits", "told"),
    [
        (Awaited.STABLE, "it ran for that long without a fault"),
        (Awaited.SETTLED, "the node has had its time to boot"),
        (Awaited.CAPACITY, "it is time to try again"),
        (Awaited.REPLACEMENT, "it is time to try again"),
    ],
)
def test_a_wait_for_time_to_pass_is_done_when_it_has(awaits: Awaited, told: str) -> None:
    it = Incident(REMAP)
    request = it.request()
    request = request.model_copy(update={"decision": request.decision.model_copy(update={"awaits": awaits})})
    wait_for_news(request, it.ports)

    result = conclude(request, it.ports)

    assert (result.outcome, result.reason) == (Outcome.DONE, told)


def test_waiting_without_a_token_is_refused() -> None:
    it = Incident(REMAP)

    with pytest.raises(ValueError, match="without a task token"):
        wait_for_news(it.request(task_token=None), it.ports)

    assert waiting_for_news(it.id, it.ports) is None


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


def _throttled(*_: object) -> Any:
    raise NotAccepted("the table is throttled")


throttled: Any = _throttled


def test_good_news_whose_wake_up_was_throttled_wakes_at_the_redelivery() -> None:
    it = waiting()
    well = xid(REMAP, event_id="well", verdict=Verdict.OK)
    get, it.ports.operations.get = it.ports.operations.get, throttled  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        take(it, well)
    it.ports.operations.get = get  # type: ignore[method-assign]

    take(it, well)

    assert it.resumed().outcome is Outcome.DONE


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


def test_a_question_of_the_same_turn_is_no_wait_for_news() -> None:
    it = Recovery()
    turn_now = it.ports.incidents.incident(it.id).turn
    name, owner = operation_id_of(it.id, turn_now), incident_owner(it.id)
    asked = under_way(memory_ports(), VerbName.WAIT, incident_id=it.id, operation_id=name, owner=owner)
    assert it.ports.operations.save(replace(asked, verb=VerbName.APPROVE, version=0))

    assert waiting_for_news(it.id, it.ports) is None


def test_the_slots_of_the_last_refusal_for_the_budget_count(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    refused = turn(Step.ISOLATE, Outcome.REFUSED)
    assert refused.result is not None
    full = refused.result.model_copy(update={"facts": Refused(code=Refusal.BUDGET_FULL, slots=3)})
    turns = (replace(refused, result=full), turn(Step.WAIT, Outcome.DONE))
    history = replace(Story(xid(79, node_id=A)).history, turns=turns)
    monkeypatch.setattr(three_nodes.incidents, "history", lambda _: history)
    monkeypatch.setattr("nodeheal.services.recovery.wait_for_news.wake_queue", lambda pool, _: woken.append(pool))

    _call_for_a_free_slot(asking(Step.WAIT, awaits=Awaited.BUDGET), three_nodes)

    assert woken == ["demo"]


def test_a_token_ends_one_wait_once(three_nodes: Ports) -> None:
    result = turn(Step.WAIT, Outcome.DONE).result
    assert result is not None

    assert [three_nodes.workflows.resume("token", result) for _ in range(2)] == [True, False]


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
