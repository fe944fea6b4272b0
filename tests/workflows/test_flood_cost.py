"""What docs/security.md says that reports and incidents of one bad node cost at most is what they cost."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from nodeheal.contract.health_event import (
    EVIDENCE_BYTES,
    FAILED_TESTS,
    LABELS,
    REASON_CHARACTERS,
    DiagnosticsFinished,
    HealthEvent,
    NodeBooted,
    NodeFact,
)
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.contract.words import WORD_CHARACTERS
from nodeheal.domain.fleet.node import RESOLVED_REMEMBERED
from nodeheal.domain.recovery.incident import fingerprint
from nodeheal.domain.recovery.timeline_fold import EVENTS_AT_MOST
from nodeheal.ports import Ports
from nodeheal.ports.storage import FAULTS_LOOKED_UP
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.node_rates import HEARTBEATS_A_MINUTE, LATE_A_DAY, REPORTS_A_MINUTE
from nodeheal.services.intake.wakeup import on_answer, on_node_booted
from nodeheal.simulation.prices import cost
from tests.support.builders import NOW, FrozenClock, node, stored_node, xid
from tests.support.fake_cluster import BROKEN, FakeCluster
from tests.workflows.bill import DEFAULTS, metered_table
from tests.workflows.meter import Units, count

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text("utf-8")
REPEATS = "94"  # a fault whose ladder climbs when it is repeated: each report of it is compared with those before
OBSERVED = "92"
TAKEN_A_DAY = REPORTS_A_MINUTE * 24 * 60 + LATE_A_DAY
# What cannot be counted here: a second of half a gigabyte, and two kilobytes of log.
ASSUMED = {"bus_event": 1, "queue_request": 1.2, "function_run": 1, "function_time": 0.5, "log": 2e-6}


def largest(number: int, code: str) -> HealthEvent:
    """An event as large as one may be."""
    labels = {f"{label:064}": "v" * 64 for label in range(LABELS)}
    at = NOW + timedelta(seconds=number)
    return xid(int(code), event_id=f"e{number}", evidence="x" * EVIDENCE_BYTES, labels=labels, observed_at=at)


def crowded() -> dict[str, str]:
    """What a node's item remembers at most: findings whose every word is as long as a word may be."""
    words = ("w" * WORD_CHARACTERS,) * 2
    return {
        "|".join((Family.nvrm_other, f"{n:0{WORD_CHARACTERS}}", *words, "b" * 64)): f"2026-{n:059}"
        for n in range(RESOLVED_REMEMBERED)
    }


def dearest_incident() -> dict[str, float]:
    """The node has filled its own item and the record of its pool. Its next fault is only observed."""
    units = Units()
    with metered_table(units) as make_ports:
        cluster = FakeCluster(DEFAULTS, make_ports=make_ports)
        known = stored_node(cluster.ports, BROKEN)
        cluster.ports.nodes.save(replace(known, resolved_faults=crowded()))
        for number in range(FAULTS_LOOKED_UP):
            before = {"node_id": BROKEN, "observed_at": NOW - timedelta(seconds=number)}
            cluster.ports.nodes.record(largest(number, OBSERVED).model_copy(update=before), "llama")
        units.forget()
        cluster.heard.clear()
        now = {"node_id": BROKEN, "observed_at": cluster.clock()}
        walked = cluster.reports(largest(FAULTS_LOOKED_UP, OBSERVED).model_copy(update=now))
        assert walked.end == "Observed only"
        return count(cluster, units)


@cache
def dearest_report() -> Units:
    """The node has filled the story of an incident that is settled, and the record of its pool, and reports again."""
    units, clock = Units(), FrozenClock()
    with metered_table(units) as make_ports:
        ports = make_ports(clock)
        ports.nodes.save(node(resolved_faults=crowded()))
        for number in range(EVENTS_AT_MOST + 20):
            clock.now = NOW + timedelta(seconds=number)
            ingest(largest(number, REPEATS if number == 0 else str(1 + number)), ports, DEFAULTS)
        known = stored_node(ports, node().node_id)
        settled = replace(known, open_incident=None).with_resolved_faults(
            {fingerprint(largest(0, REPEATS)): str(known.open_incident)}
        )
        ports.nodes.save(settled)
        now = EVENTS_AT_MOST + FAULTS_LOOKED_UP
        for number in range(EVENTS_AT_MOST, now):
            ports.nodes.record(largest(number, REPEATS), "llama")
        clock.now = NOW + timedelta(seconds=now)
        units.forget()
        assert ingest(largest(now, REPEATS), ports, DEFAULTS) is Ingested.REPEATED
    return units


def dollars_of(units: Units, **other: float) -> float:
    return sum(cost({**ASSUMED, "table_write": units.write, "table_read": units.read, **other}).values())


def test_the_page_names_what_the_dearest_report_costs() -> None:
    units = dearest_report()

    dollars = dollars_of(units)
    stated = re.search(r"(\d+) write units, (\d+) read units.*?\$([\d.]+) each \| (\d+) \|", PAGE)
    assert stated is not None, PAGE
    assert [float(one) for one in stated.groups()] == [
        units.write,
        round(units.read),
        round(dollars, 5),
        round(dollars * TAKEN_A_DAY),
    ]
    assert f"{TAKEN_A_DAY:,} a day" in PAGE


def test_the_page_names_what_observed_incidents_cost() -> None:
    dollars = sum(cost(dearest_incident()).values())

    stated = re.search(r"\$([\d.]+) for each such incident.*?\| (\d+) \|", PAGE)
    assert stated is not None, PAGE
    assert [float(one) for one in stated.groups()] == [round(dollars, 5), round(dollars * TAKEN_A_DAY)]


def sent_by_crowded(event: HealthEvent, times: int) -> tuple[Ingested, Units]:
    """What became of the last of them, and what it read and wrote, by a node whose item is full."""
    units, clock = Units(), FrozenClock()
    with metered_table(units) as make_ports:
        ports = make_ports(clock)
        ports.nodes.save(node(resolved_faults=crowded()))
        for number in range(times):
            units.forget()
            became = ingest(event.model_copy(update={"event_id": f"e{number}"}), ports, DEFAULTS)
    return became, units


def test_the_page_names_what_heartbeats_over_the_bus_cost() -> None:
    alive = xid(79, family=Family.heartbeat, code="alive", verdict=Verdict.OK)
    became, units = sent_by_crowded(alive, times=1)

    dollars = dollars_of(units)
    stated = re.search(r"heartbeats over the bus.*?: \$([\d.]+) each \| ([\d.]+) \|", PAGE)
    assert stated is not None and became is Ingested.SEEN
    assert [float(one) for one in stated.groups()] == [
        round(dollars, 6),
        round(dollars * HEARTBEATS_A_MINUTE * 24 * 60, 1),
    ]


def test_the_page_names_what_reports_cost_that_are_only_counted() -> None:
    became, units = sent_by_crowded(xid(79), times=REPORTS_A_MINUTE + 2)

    dollars = dollars_of(units, function_time=0.05)
    stated = re.search(r"400 a second.*?a write, (\d+) reads, .*?: \$([\d.]+) \| (\d+) \|", PAGE)
    assert stated is not None and became is Ingested.TOO_MANY
    assert units.write == 1
    assert [float(one) for one in stated.groups()] == [
        units.read,
        round(dollars, 7),
        round(dollars * 400 * 86_400),
    ]


def dearest_fact(kind: type[NodeFact], clock: FrozenClock) -> NodeFact:
    """A boot, or an answer as large as one may be, of a node that was asked nothing."""
    shared = xid(79).model_dump(include=set(NodeFact.model_fields)) | {"observed_at": clock()}
    if kind is NodeBooted:
        new = {"boot_id": "boot-of-the-flood", "booted_at": clock(), "address": "10.0.0.7", "accelerators": 8}
        return NodeBooted.model_validate(shared | new)
    checks = [{"check": "dcgm", "verdict": "FAILED", "reason": "x" * REASON_CHARACTERS, "seconds": 1}] * 8
    tests = ["x" * REASON_CHARACTERS] * FAILED_TESTS
    said = {"request_id": "r" * 64, "verdict": "FAILED", "checks": checks, "failed_tests": tests}
    return DiagnosticsFinished.model_validate(shared | said | {"evidence": "x" * EVIDENCE_BYTES})


@pytest.mark.parametrize(("kind", "take"), [(NodeBooted, on_node_booted), (DiagnosticsFinished, on_answer)])
def test_a_boot_or_an_answer_costs_less_than_the_dearest_report(
    kind: type[NodeFact], take: Callable[[NodeFact, Ports], None]
) -> None:
    units, clock = Units(), FrozenClock()
    with metered_table(units) as make_ports:
        ports = make_ports(clock)
        ports.nodes.save(node(resolved_faults=crowded()))
        units.forget()
        take(dearest_fact(kind, clock), ports)

    report = dearest_report()
    assert units.write > 1
    assert dollars_of(units) < dollars_of(report)
