"""Waiting for news: whenever something comes, the incident goes on; what says nothing new lets it sleep."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Awaited, Family, Outcome, Step, Verdict
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.operations.engine import conclude, signal
from nodeheal.ports import Ports
from nodeheal.ports.storage import OperationStore
from nodeheal.services.intake.ingest import Ingested
from nodeheal.services.recovery.wait_for_news import wait_for_news, waiting_for_news
from tests.support.builders import NOW, xid
from tests.support.incident_steps import C, Incident, take

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


def test_an_event_between_the_decision_and_the_wait_resumes_at_once() -> None:
    it = Incident(REMAP)
    request = it.request()
    take(it, xid(79))

    wait_for_news(request, it.ports)

    assert it.resumed().outcome is Outcome.DONE
    assert waiting_for_news(it.id, it.ports) is None


def test_an_event_just_before_the_wait_is_stored_resumes_at_once() -> None:
    it = Incident(REMAP)
    request = it.request()
    late = replace(it.ports, operations=JustBefore(it.ports.operations, lambda: take(it, xid(79))))

    wait_for_news(request, late)

    assert it.resumed().outcome is Outcome.DONE


def test_a_job_that_ended_between_the_decision_and_the_wait_resumes_at_once() -> None:
    it = Incident(REMAP)
    request = it.request()
    gang_stops(it)

    wait_for_news(request, it.ports)

    assert it.resumed().outcome is Outcome.DONE
    assert it.request().decision.step is Step.ISOLATE


def test_a_job_that_ends_just_before_the_wait_is_stored_resumes_at_once() -> None:
    it = Incident(REMAP)
    request = it.request()
    late = replace(it.ports, operations=JustBefore(it.ports.operations, lambda: gang_stops(it)))

    wait_for_news(request, late)

    assert it.resumed().outcome is Outcome.DONE


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
