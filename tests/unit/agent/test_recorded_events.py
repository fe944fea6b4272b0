"""What each released agent sends, this control plane takes: agents are upgraded after it, and one by one."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodeheal import __version__
from nodeheal.contract import health_event, names
from nodeheal.contract.health_event import HealthEvent, NodeFact
from nodeheal.contract.vocabulary import Family, Verdict
from nodeheal.services.intake.ingest import Ingested, ingest
from tests.support.builders import ACT, memory_ports
from tests.unit.agent.record_events import RECORDS

RELEASES = sorted(RECORDS.glob("*.jsonl"))
MODELS: dict[str, type[NodeFact]] = {
    names.NODE_HEALTH_REPORTED: health_event.HealthEvent,
    names.NODE_BOOTED: health_event.NodeBooted,
    names.NODE_HARDWARE_REPORTED: health_event.NodeHardwareReported,
    names.DIAGNOSTICS_FINISHED: health_event.DiagnosticsFinished,
    names.EVIDENCE_FROZEN: health_event.EvidenceFrozen,
    names.CHECKPOINT_FOUND: health_event.CheckpointFound,
}
Json = dict[str, Any]


def read(release: Path) -> list[Json]:
    return [json.loads(line) for line in release.read_text("utf-8").splitlines()]


def details(sent: list[Json], detail_type: str) -> list[Json]:
    return [one["Detail"] for one in sent if one["DetailType"] == detail_type]


def findings(sent: list[Json]) -> list[HealthEvent]:
    return [HealthEvent.model_validate(detail) for detail in details(sent, names.NODE_HEALTH_REPORTED)]


@pytest.fixture(params=RELEASES, ids=lambda path: path.stem)
def sent(request: pytest.FixtureRequest) -> list[Json]:
    return read(request.param)


def test_every_event_is_taken_and_says_what_it_said(sent: list[Json]) -> None:
    for one in sent:
        taken = MODELS[one["DetailType"]].model_validate(one["Detail"])

        said = {name: value for name, value in one["Detail"].items() if not name.endswith("_at")}
        assert {name: json.loads(taken.model_dump_json())[name] for name in said} == said


def test_every_event_comes_from_where_the_rules_look(sent: list[Json]) -> None:
    assert {(one["Source"], one["EventBusName"]) for one in sent} == {(names.AGENT_SOURCE, names.BUS)}


def test_a_fault_opens_an_incident_or_joins_one_and_a_heartbeat_does_neither(sent: list[Json]) -> None:
    ports = memory_ports()

    became = {event.event_id: ingest(event, ports, ACT) for event in findings(sent)}

    first, *others = [event for event in findings(sent) if event.verdict is Verdict.FAILED]
    assert became[first.event_id] is Ingested.OPENED
    assert others
    for event in findings(sent):
        assert (became[event.event_id] is Ingested.SEEN) == event.is_heartbeat


def test_what_the_old_boot_had_left_to_say_is_history_for_the_new_one(sent: list[Json]) -> None:
    said = findings(sent)
    ports = memory_ports()
    alive = [event for event in said if event.is_heartbeat]
    for event in alive:
        ingest(event, ports, ACT)

    last_words = [event for event in said if event.boot_id == alive[0].boot_id and event.code == "48"]

    assert {ingest(event, ports, ACT) for event in last_words} == {Ingested.HISTORY}


def test_the_record_of_this_version_has_every_kind_of_event() -> None:
    sent = read(RECORDS / f"{__version__}.jsonl")

    # The recorded node has no accelerators, so that it reports no hardware.
    assert {one["DetailType"] for one in sent} == set(MODELS) - {names.NODE_HARDWARE_REPORTED}
    assert {Verdict(detail["verdict"]) for detail in details(sent, names.DIAGNOSTICS_FINISHED)} == set(Verdict)
    assert {detail["object_key"] is None for detail in details(sent, names.EVIDENCE_FROZEN)} == {True, False}
    assert {detail["path"] is None for detail in details(sent, names.CHECKPOINT_FOUND)} == {True, False}
    assert {event.family for event in findings(sent)} >= {
        *(Family.xid, Family.sxid, Family.nvrm_other, Family.neuron, Family.efa, Family.ib),
        *(Family.pcie_aer, Family.mce, Family.oom, Family.heartbeat),
    }
    assert max(event.count for event in findings(sent)) > 1
