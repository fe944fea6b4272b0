"""Pauses, as the command and as persons write them: memory and DynamoDB over one specification."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from nodeheal.adapters.aws.items import to_item
from nodeheal.adapters.aws.pauses import DynamoPauseStore
from nodeheal.adapters.memory.stores import MemoryPauseStore
from nodeheal.contract import names
from nodeheal.domain.fleet.pause import NO_PAUSES, UNREADABLE, Pause, Pauses
from nodeheal.ports import Ports
from tests.support.builders import NOW
from tests.support.dynamo_tables import clock, ports

__all__ = ["clock", "ports"]  # fixtures

HOUR = timedelta(hours=1)
PAUSE = Pause(NOW + HOUR, "ada: new riser")


def written_by_hand(ports: Ports, key: str, fields: Mapping[str, object]) -> None:
    """Write the item as a person does in the console."""
    if isinstance(ports.pauses, MemoryPauseStore):
        ports.pauses.items[key] = fields
        return
    assert isinstance(ports.pauses, DynamoPauseStore)
    ports.pauses._table.put(to_item({"pk": names.PAUSES_PK, "sk": key, **fields}))


def test_nothing_is_paused_at_first(ports: Ports) -> None:
    assert ports.pauses.read() == NO_PAUSES


def test_pauses_come_back_as_they_were_written(ports: Ports) -> None:
    ports.pauses.save(names.node_pause_sk("mi-a"), PAUSE)
    ports.pauses.save(names.pool_pause_sk("demo"), PAUSE)

    assert ports.pauses.read() == Pauses({"node#mi-a": PAUSE, "pool#demo": PAUSE})


def test_the_last_write_holds(ports: Ports) -> None:
    key, ended = names.node_pause_sk("mi-a"), Pause(NOW, "ada: it is in")
    ports.pauses.save(key, PAUSE)
    ports.pauses.save(key, ended)

    assert ports.pauses.read() == Pauses({key: ended})
    assert ports.pauses.read().of_node("mi-a", NOW) is None


@pytest.mark.parametrize("fields", [{}, {"until": 7, "why": "x"}, {"until": "2026", "why": ["x"]}, {"until": b"x"}])
def test_an_item_that_cannot_be_read_is_a_pause_without_an_end(ports: Ports, fields: Mapping[str, object]) -> None:
    written_by_hand(ports, "node#mi-a", fields)
    ports.pauses.save(names.node_pause_sk("mi-b"), PAUSE)

    assert ports.pauses.read() == Pauses({"node#mi-a": UNREADABLE, "node#mi-b": PAUSE})


def test_an_item_with_more_fields_is_read_and_one_that_names_nothing_pauses_nothing(ports: Ports) -> None:
    written_by_hand(ports, "pool#demo", {"until": PAUSE.until.isoformat(), "why": PAUSE.why, "ticket": 4711})
    written_by_hand(ports, "everything", {})

    pauses = ports.pauses.read()
    assert pauses.of_pool("demo", NOW) == PAUSE
    assert pauses.why_paused("mi-a", "other", NOW) == ""


def test_the_table_forgets_a_pause_only_some_days_after_its_end(ports: Ports) -> None:
    if not isinstance(ports.pauses, DynamoPauseStore):
        pytest.skip("memory forgets nothing")
    ports.pauses.save(names.node_pause_sk("mi-a"), PAUSE)

    item = ports.pauses._table.get(names.PAUSES_PK, names.node_pause_sk("mi-a"))
    assert item is not None
    assert int(item[names.TTL_ATTRIBUTE]["N"]) == int((PAUSE.until + timedelta(days=7)).timestamp())
