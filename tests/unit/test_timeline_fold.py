"""S8: one incident's timeline is bounded, however many events its node sends, and nothing that matters is lost."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.vocabulary import Action, Verdict
from nodeheal.domain.recovery.incident import History, fingerprint
from nodeheal.domain.recovery.incident import Incident as Head
from nodeheal.domain.recovery.timeline import event_entry
from nodeheal.domain.recovery.timeline_fold import EVENTS_AT_MOST, SAME_EVENTS_AT_MOST
from nodeheal.services.intake import node_rates
from nodeheal.services.intake.ingest import Ingested, ingest
from tests.support.builders import NOW, xid
from tests.support.incident_steps import Incident

EVENTS = 1_000  # the bound on what one event reads does not depend on it


class Flooded(Incident):
    """An open incident of one node, which goes on sending. Counts the entries that are read because of it."""

    def __init__(self) -> None:
        super().__init__(79)
        self.most_read = self.read = 0
        history = self.ports.incidents.history

        def counted(incident_id: str) -> History:
            told = history(incident_id)
            self.read += len(told.timeline)
            self.most_read = max(self.most_read, len(told.timeline))
            return told

        self.ports.incidents.history = counted  # type: ignore[method-assign]

    def hears(self, number: int, **changes: object) -> Ingested:
        event = xid(63).model_copy(update={"event_id": f"flood-{number}", "evidence": "x" * 8_192, **changes})
        return ingest(self.at(number, event), self.ports, self.policy)

    @staticmethod
    def at(number: int, event: HealthEvent) -> HealthEvent:
        return event.model_copy(update={"observed_at": NOW + timedelta(milliseconds=number + 1)})

    @property
    def told(self) -> History:
        return self.ports.incidents.history(self.id)


@pytest.fixture
def it(monkeypatch: pytest.MonkeyPatch) -> Flooded:
    monkeypatch.setattr(node_rates, "REPORTS_A_MINUTE", 1_000_000)  # a bound of its own, for many minutes in one
    return Flooded()


def test_equal_events_are_few_entries_and_one_counts_the_rest(it: Flooded) -> None:
    """S8: each event was an entry of 8 KiB, and each read all of them: 869 GB for 10,000 events."""
    became = {it.hears(number) for number in range(EVENTS)}

    assert became == {Ingested.JOINED}
    assert it.most_read <= SAME_EVENTS_AT_MOST + 3
    assert it.read <= 2 * EVENTS * (SAME_EVENTS_AT_MOST + 3)
    history = it.told
    assert history.event_count == EVENTS + 1
    assert len(history.events) == SAME_EVENTS_AT_MOST + 1
    (newest,) = [entry for entry in history.timeline if entry.times > 1]
    assert newest.at == NOW + timedelta(milliseconds=EVENTS)
    assert newest.text.endswith(f"(stands for {EVENTS - SAME_EVENTS_AT_MOST + 1} events)")


def test_many_different_events_are_bounded_too_and_those_that_ask_for_most_stay(it: Flooded) -> None:
    """S8: an event differs from the last one where its sender wants it to."""
    for number in range(1_000):
        it.hears(number, code=f"1{number:04}", component=f"GPU-{number}")
        if number == 500:
            it.hears(500_000, code="74", verdict=Verdict.FAILED)

    history = it.told
    assert it.most_read <= EVENTS_AT_MOST + 3
    assert history.event_count == 1_002
    assert history.events[0].code == "79"
    assert "74" in {event.code for event in history.events}


def test_a_folded_event_is_news_that_the_decision_before_it_has_not_seen(it: Flooded) -> None:
    for number in range(SAME_EVENTS_AT_MOST * 2):
        it.hears(number)
    decision = it.request().decision
    assert decision.events_seen == it.told.event_count == SAME_EVENTS_AT_MOST * 2 + 1

    it.hears(100)

    assert it.told.event_count == decision.events_seen + 1


def test_a_redelivered_event_is_a_duplicate_after_a_fold(it: Flooded) -> None:
    for number in range(SAME_EVENTS_AT_MOST * 2):
        it.hears(number)

    assert it.hears(SAME_EVENTS_AT_MOST * 2 - 1) is Ingested.DUPLICATE
    assert it.told.event_count == SAME_EVENTS_AT_MOST * 2 + 1


def test_the_newest_of_equal_events_is_the_one_that_is_shown_though_it_came_earlier(it: Flooded) -> None:
    """A queue may deliver out of order. Whether a fault has come again is read from the newest."""
    numbers = list(range(SAME_EVENTS_AT_MOST * 2))
    for number in [*numbers[:5], numbers[-1], *numbers[5:-1]]:
        it.hears(number)

    assert max(event.observed_at for event in it.told.events) == NOW + timedelta(milliseconds=numbers[-1] + 1)
    assert it.told.event_count == len(numbers) + 1


def test_what_an_operator_has_asked_for_is_not_folded_away(it: Flooded) -> None:
    """Its sender looks it up by its id."""
    for number in range(SAME_EVENTS_AT_MOST * 2):
        it.hears(number, code=OPERATOR_REQUEST, subcode=str(Action.REBOOT))

    assert sum(event.code == OPERATOR_REQUEST for event in it.told.events) == SAME_EVENTS_AT_MOST * 2


def test_repeats_of_a_fault_that_is_settled_are_folded_too(it: Flooded) -> None:
    """S8: they joined the closed incident without end."""
    before = it.node()
    it.ports.nodes.save(replace(before, open_incident=None, resolved_faults={fingerprint(it.at(0, xid(63))): it.id}))

    became = {it.hears(number) for number in range(200)}

    assert became == {Ingested.REPEATED}
    assert len(it.told.events) == SAME_EVENTS_AT_MOST + 1


def test_a_story_that_was_folded_begins_anew_where_it_did() -> None:
    """Which events a decision had seen is counted with those that an entry stands for."""
    events = tuple(
        xid(63).model_copy(update={"event_id": f"e-{number}", "observed_at": NOW + timedelta(seconds=number)})
        for number in range(4)
    )
    entries = [event_entry(event) for event in events]
    entries[2] = replace(entries[2], times=10)
    history = History(it_of(events[0]), events, (), tuple(entries))

    assert [len(history._first_events(count)) for count in (1, 2, 3, 11, 12, 13)] == [1, 2, 2, 2, 3, 4]


def it_of(root: HealthEvent) -> Head:
    return Head("inc-1", root.node_id, root.pool, root, NOW, "1")
