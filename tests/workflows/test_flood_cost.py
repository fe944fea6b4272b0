"""What docs/security.md says a report of one bad node costs at most is what such a report costs."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from nodeheal.contract.health_event import EVIDENCE_BYTES, LABELS, HealthEvent
from nodeheal.domain.fold import EVENTS_AT_MOST
from nodeheal.domain.incident import fingerprint
from nodeheal.ports import FAULTS_LOOKED_UP
from nodeheal.services.ingest import LATE_A_DAY, REPORTS_A_MINUTE, Ingested, ingest
from nodeheal.simulation.prices import cost
from tests.unit.builders import NOW, FrozenClock, node, xid
from tests.workflows.bill import DEFAULTS, metered_table
from tests.workflows.meter import Units

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text("utf-8")
REPEATS = "94"  # a fault whose ladder climbs when it is repeated: each report of it is compared with those before
TAKEN_A_DAY = REPORTS_A_MINUTE * 24 * 60 + LATE_A_DAY
# What cannot be counted here: a second of half a gigabyte, and two kilobytes of log.
ASSUMED = {"bus_event": 1, "queue_request": 1.2, "function_run": 1, "function_time": 0.5, "log": 2e-6}


def largest(number: int, code: str) -> HealthEvent:
    """An event as large as one may be."""
    labels = {f"{label:064}": "v" * 64 for label in range(LABELS)}
    at = NOW + timedelta(seconds=number)
    return xid(int(code), event_id=f"e{number}", evidence="x" * EVIDENCE_BYTES, labels=labels, observed_at=at)


def dearest_report() -> Units:
    """The node has filled the story of an incident that is settled, and the record of its pool, and reports again."""
    units, clock = Units(), FrozenClock()
    with metered_table(units) as make_ports:
        ports = make_ports(clock)
        ports.nodes.save(node())
        for number in range(EVENTS_AT_MOST + 20):
            clock.now = NOW + timedelta(seconds=number)
            ingest(largest(number, REPEATS if number == 0 else str(1 + number)), ports, DEFAULTS)
        known = ports.nodes.get(node().node_id)
        assert known is not None
        settled = {fingerprint(largest(0, REPEATS)): str(known.open_incident)}
        ports.nodes.save(replace(known, open_incident=None, settled=settled))
        now = EVENTS_AT_MOST + FAULTS_LOOKED_UP
        for number in range(EVENTS_AT_MOST, now):
            ports.nodes.record(largest(number, REPEATS), "llama")
        clock.now = NOW + timedelta(seconds=now)
        units.forget()
        assert ingest(largest(now, REPEATS), ports, DEFAULTS) is Ingested.REPEATED
    return units


def test_the_page_names_what_the_dearest_report_costs() -> None:
    units = dearest_report()

    dollars = sum(cost({**ASSUMED, "table_write": units.write, "table_read": units.read}).values())
    stated = re.search(r"(\d+) write units, (\d+) read units.*?\$([\d.]+) each \| (\d+) \|", PAGE)
    assert stated is not None, PAGE
    assert [float(one) for one in stated.groups()] == [
        units.write,
        round(units.read),
        round(dollars, 5),
        round(dollars * TAKEN_A_DAY),
    ]
    assert f"{TAKEN_A_DAY:,} a day" in PAGE
