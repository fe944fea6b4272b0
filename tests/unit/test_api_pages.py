"""Lists of nodeheal.api in pages: every row once, whatever happens between two pages."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.api import incident_list, job_list, node_list
from nodeheal.api.pages import LONGEST_CURSOR, ListKind, Page, Rows, place_of, take
from nodeheal.contract.vocabulary import Availability, IncidentState, JobState
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.review import StateWord
from nodeheal.ports import Ports
from tests.support.builders import NOW, memory_ports, node, xid
from tests.support.jobs import ecs_job

POOLS = ["a100", "demo"]
List = Callable[[Ports, Page], Rows[Any]]


@pytest.fixture
def ports() -> Ports:
    """Two pools with nodes, incidents and jobs."""
    ports = memory_ports()
    heads: Any = ports.incidents
    for number, pool in enumerate(POOLS * 3):
        ports.nodes.save(node(f"mi-{number}", pool=pool))
        state = JobState.COMPLETED if number in (2, 3) else JobState.RUNNING
        ports.jobs.save(replace(ecs_job(f"job-{number}", pool, "c", "trainer:1", "trainer", 1), state=state))
        name, opened = f"inc-{number}", NOW + timedelta(seconds=number // 2)
        heads.incidents[name] = Incident(
            name, f"mi-{number}", pool, xid(), opened, "1", list(IncidentState)[number % len(IncidentState)]
        )
    return ports


LISTS: dict[str, List] = {
    "nodes": lambda ports, page: node_list.nodes(POOLS, NO_PAUSES, ports, (), page),
    "incidents": lambda ports, page: incident_list.incidents(POOLS, ports, NOW, frozenset(), page),
    "jobs": lambda ports, page: job_list.jobs(POOLS, ports, page=page),
}


def pages_of(read: List, ports: Ports, limit: int) -> list[Sequence[Any]]:
    """The rows of each page, until there is no next one."""
    page = Page(limit)
    pages: list[Sequence[Any]] = []
    while True:
        view = read(ports, page)
        pages.append(view.rows)
        if view.next is None:
            return pages
        page = Page(limit, view.next)


@pytest.mark.parametrize("limit", [1, 2, 4, 6, 7])
@pytest.mark.parametrize("kind", LISTS)
def test_pages_together_are_the_whole_list(ports: Ports, kind: str, limit: int) -> None:
    whole = LISTS[kind](ports, Page())

    pages = pages_of(LISTS[kind], ports, limit)

    assert (len(whole.rows), whole.next) == (6, None)
    assert [row for rows in pages for row in rows] == list(whole.rows)
    assert [len(rows) for rows in pages[:-1]] == [limit] * (len(pages) - 1)
    assert pages[-1], "no page is empty"


def test_jobs_that_live_come_first_over_all_pools(ports: Ports) -> None:
    names = [row.job for rows in pages_of(LISTS["jobs"], ports, 3) for row in rows]

    assert names == ["job-0", "job-1", "job-4", "job-5", "job-2", "job-3"]
    assert [row.job for row in job_list.jobs(POOLS, ports, live_only=True).rows] == names[:4]


def test_incidents_come_the_newest_first_over_all_pools(ports: Ports) -> None:
    rows = incident_list.incidents(POOLS, ports, NOW).rows

    assert [row.incident for row in rows] == ["inc-5", "inc-4", "inc-3", "inc-2", "inc-1", "inc-0"]


def test_a_filter_fills_its_pages_too(ports: Ports) -> None:
    waiting = frozenset({StateWord.waiting})
    words = incident_list.incidents(POOLS, ports, NOW, waiting, Page(1))
    nodes = node_list.nodes(POOLS, NO_PAUSES, ports, [Availability.DRAINED], Page(1))

    last = incident_list.incidents(POOLS, ports, NOW, waiting, Page(1, str(words.next)))
    assert [row.incident for row in (*words.rows, *last.rows)] == ["inc-5", "inc-1"]
    assert (last.next, nodes.rows, nodes.next) == (None, (), None)


def test_what_is_opened_and_what_moves_on_between_two_pages_repeats_no_row(ports: Ports) -> None:
    heads: Any = ports.incidents
    first = LISTS["incidents"](ports, Page(3))
    heads.incidents["inc-9"] = replace(heads.incidents["inc-5"], incident_id="inc-9", opened_at=NOW + timedelta(1))
    heads.incidents["inc-4"] = replace(heads.incidents["inc-4"], state=IncidentState.CLOSED)

    second = LISTS["incidents"](ports, Page(3, str(first.next)))

    assert [row.incident for row in second.rows] == ["inc-2", "inc-1", "inc-0"]


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("cursor", ["x", "not base64!", "é", "bnVsbA", "A" * (LONGEST_CURSOR + 1), "W10"])
def test_what_is_no_cursor_is_refused_by_name(ports: Ports, kind: str, cursor: str) -> None:
    with pytest.raises(ValueError, match=f"^'{cursor[:50]}.* is no cursor of this list of {kind}"):
        LISTS[kind](ports, Page(2, cursor))


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("other", LISTS)
def test_a_cursor_of_another_list_is_refused(ports: Ports, kind: str, other: str) -> None:
    cursor = str(LISTS[other](ports, Page(1)).next)
    if kind == other:
        assert LISTS[kind](ports, Page(1, cursor)).rows
        return

    with pytest.raises(ValueError, match=f"no cursor of this list of {kind}"):
        LISTS[kind](ports, Page(1, cursor))


def test_a_cursor_of_a_pool_that_is_not_asked_for_is_refused(ports: Ports) -> None:
    cursor = str(node_list.nodes(POOLS, NO_PAUSES, ports, (), Page(1)).next)

    with pytest.raises(ValueError, match="no cursor of this list of nodes: it goes on in pool a100"):
        node_list.nodes(["demo"], NO_PAUSES, ports, (), Page(1, cursor))


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (ListKind.incidents, ("soon", "x")),
        (ListKind.incidents, ("9999-12-31T23:59:59Z", "x")),
        (ListKind.jobs, ("dead", "x")),
    ],
)
def test_a_cursor_with_a_place_that_no_list_has_is_refused(ports: Ports, kind: ListKind, place: Sequence[str]) -> None:
    _, cursor = take(["a", "b"], Page(1), kind, lambda _: place)
    assert place_of(Page(1, str(cursor)), kind, 2) == tuple(place)

    with pytest.raises(ValueError, match=f"no cursor of this list of {kind}"):
        LISTS[kind](ports, Page(1, str(cursor)))


@pytest.mark.parametrize("part", ["~~~~", "\ud800", "a b", "x" * 257])
@pytest.mark.parametrize("kind", LISTS)
def test_a_cursor_holds_nothing_that_no_name_has(ports: Ports, kind: str, part: str) -> None:
    _, cursor = take(["a", "b"], Page(1), ListKind(kind), lambda _: (part, part))

    with pytest.raises(ValueError, match=f"no cursor of this list of {kind}"):
        LISTS[kind](ports, Page(1, str(cursor)))


def test_behind_an_incident_that_is_older_than_what_is_asked_for_nothing_comes(ports: Ports) -> None:
    _, cursor = take(["a", "b"], Page(1), ListKind.incidents, lambda _: ("2020-01-01T00:00:00Z", "inc-0"))

    assert LISTS["incidents"](ports, Page(1, str(cursor))).rows == ()


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_rows(limit: int) -> None:
    with pytest.raises(ValueError, match=f"limit: {limit} is no number of rows"):
        Page(limit)
