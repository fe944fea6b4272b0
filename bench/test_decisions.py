"""How fast the core decides and the parsers read, with pytest-benchmark: `make bench` runs it, the tests do not."""

from datetime import timedelta

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from nodeheal.contract.evidence.kernel_line import parse_message
from nodeheal.contract.health_event import HealthEvent
from nodeheal.domain.decide import decide
from nodeheal.domain.incident import History, Incident, incident_id_of
from tests.unit.builders import ACT, NOW, xid

EVENTS = 50
# What a node in trouble says: one fault, its echoes, the driver's word, and the same again each minute.
CODES = (79, 45, 45, 154, 45)


def _storm() -> list[HealthEvent]:
    return [xid(48, event_id=f"event-{n}", observed_at=NOW + timedelta(seconds=n)) for n in range(EVENTS)]


def _trouble() -> list[HealthEvent]:
    return [
        xid(
            CODES[n % len(CODES)],
            event_id=f"event-{n}",
            subcode="NODE_REBOOT" if CODES[n % len(CODES)] == 154 else None,
            component=f"0000:{n % 2:02x}:00.0",
            observed_at=NOW + timedelta(seconds=n),
        )
        for n in range(EVENTS)
    ]


@pytest.mark.parametrize("events", [_storm(), _trouble()], ids=["one-code", "five-codes-on-two-gpus"])
def test_decide_with_fifty_events(benchmark: BenchmarkFixture, events: list[HealthEvent]) -> None:
    root = events[0]
    incident = Incident(incident_id_of(root), root.node_id, root.pool, root, NOW, ACT.version, job_id="llama")
    history = History(incident, tuple(events), ())

    decision = benchmark(decide, history, ACT, NOW)

    assert decision.reason


def test_parse_a_fault(benchmark: BenchmarkFixture) -> None:
    finding = benchmark(parse_message, xid(79).evidence)

    assert finding is not None
    assert finding.code == "79"
