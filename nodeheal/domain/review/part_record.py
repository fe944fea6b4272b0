"""The record of one part by its serial, for its vendor (RMA): its faults, repairs and proofs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Step, Verdict
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.review.review import evidence_of, title_of
from nodeheal.domain.verbs import verb_of_step

# What is done to a machine, and how it is proven. All else is about the job, or about waiting.
_REPAIRS = {step for step in Step if verb_of_step(step).concerns_hardware}
_SHOWN = 8  # serials that an error names


@dataclass(frozen=True)
class PartFault:
    """One fault that the part reported. `times`: how many equal reports the entry stands for."""

    at: datetime
    node_id: str
    component: str
    fault: str
    verdict: Verdict
    times: int
    line: str
    incident_id: str


@dataclass(frozen=True)
class PartRepair:
    """One repair or diagnosis of the node that contained the part, and its result."""

    at: datetime
    node_id: str
    step: Step
    outcome: str
    result: str
    incident_id: str


@dataclass(frozen=True)
class PartRecord:
    """The whole record, oldest first. Drills are left out."""

    serial: str
    product: str
    labels: dict[str, str]  # of the newest report: driver_version, rack and what else the node shares
    places: tuple[str, ...]  # each node and address that it was seen at
    faults: tuple[PartFault, ...]
    repairs: tuple[PartRepair, ...]
    incidents: tuple[str, ...]
    evidence: tuple[str, ...]  # where the saved state of the node lies


def part_record(serial: str, histories: Iterable[History]) -> PartRecord:
    """Returns the record of one part from the incidents that name it. Raises ValueError if none does."""
    real = sorted((h for h in histories if not h.is_drill), key=lambda h: h.incident.opened_at)
    named = [history for history in real if serial in _serials(history)]
    if not named:
        known = sorted({number for history in real for number in _serials(history)})
        raise ValueError(f"no incident names the serial {serial!r}; {_known(known)}")
    faults = tuple(sorted((fault for h in named for fault in _faults(serial, h)), key=lambda fault: fault.at))
    reports = [e for h in named for e in h.events if e.component_serial == serial]
    newest = max(reports, key=lambda event: event.observed_at)
    return PartRecord(
        serial=serial,
        product=next((event.product for event in reversed(reports) if event.product), ""),
        labels=dict(newest.labels),
        places=tuple(dict.fromkeys(f"{fault.node_id} {fault.component}".rstrip() for fault in faults)),
        faults=faults,
        repairs=tuple(repair for history in named for repair in _repairs(history)),
        incidents=tuple(history.incident.incident_id for history in named),
        evidence=tuple(link for history in named for link in evidence_of(history)),
    )


def _known(serials: list[str]) -> str:
    if not serials:
        return "no accelerator with a serial was reported in this time"
    return f"known in this time: {', '.join(serials[:_SHOWN])}{' and others' if len(serials) > _SHOWN else ''}"


def _serials(history: History) -> set[str]:
    return {event.component_serial for event in history.events if event.component_serial}


def _faults(serial: str, history: History) -> Iterator[PartFault]:
    for entry in history.timeline:
        event = entry.payload
        if not isinstance(event, HealthEvent):
            continue
        if event.component_serial == serial and event.verdict is not Verdict.OK:
            yield PartFault(
                at=event.observed_at,
                node_id=event.node_id,
                component=event.component or "",
                fault=title_of(event),
                verdict=event.verdict,
                times=max(entry.times, event.count),
                line=event.evidence,
                incident_id=history.incident.incident_id,
            )


def _repairs(history: History) -> Iterator[PartRepair]:
    """Yields what was done to the incident's own node. A replacement's diagnosis proves nothing about the part."""
    node_id = history.incident.node_id
    for turn in history.turns:
        result = turn.result
        if turn.decision.step in _REPAIRS and result is not None and turn.decision.node_id == node_id:
            yield PartRepair(
                at=result.finished_at,
                node_id=node_id,
                step=turn.decision.step,
                outcome=result.outcome.value,
                result=result.reason,
                incident_id=history.incident.incident_id,
            )
