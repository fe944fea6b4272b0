"""Creates this node's events: the contract's shapes as frozen dataclasses.

A test compares them with `nodeheal.contract.health_event`, which is not imported: pydantic alone costs 10 MiB of memory
on each node.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import ClassVar, TypedDict

from nodeheal import __version__
from nodeheal.agent.identity.node_identity import Identity as Identity
from nodeheal.contract import names
from nodeheal.contract.measures import MEASURES
from nodeheal.contract.vocabulary import (
    Action,
    Check,
    CheckpointFormat,
    Confirmation,
    Family,
    Provider,
    SchedulerKind,
    Verdict,
)
from nodeheal.contract.words import ADDRESS, word
from nodeheal.domain.faults.catalog import verdict
from nodeheal.parsers.finding import Finding, ToolReport

SCHEMA_VERSION = 1
EVIDENCE_CHARACTERS = 8192
REASON_CHARACTERS = 1000
CHECK_CHARACTERS = 300  # health_event.REASON_CHARACTERS
FAILED_TESTS = 64  # a tool has about twenty
ACCELERATORS_TOLD = 64  # health_event.ACCELERATORS_TOLD
EVIDENCE_ITEMS = 64  # health_event.EVIDENCE_ITEMS
SKIPPED = 16  # health_event.SKIPPED
SOURCE_CHARACTERS, PATH_CHARACTERS = 300, 2_048  # as above
CUT_MARK = " … [cut]"


@dataclass(frozen=True, kw_only=True)
class NodeFact:
    """The fields of every event."""

    detail_type: ClassVar[str]

    schema_version: int = SCHEMA_VERSION
    event_id: str
    node_id: str
    cluster: str
    pool: str
    provider: Provider
    instance_id: str
    boot_id: str
    observed_at: datetime
    agent_version: str = __version__
    scheduler: SchedulerKind

    def to_json(self) -> str:
        """Serialise the event for the bus. Invalid characters from a tool's JSON or a file name become `?`, since
        neither the disk nor the bus accepts them.
        """
        text = json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"), default=datetime.isoformat)
        return text.encode("utf-8", "replace").decode()


@dataclass(frozen=True, kw_only=True)
class HealthEvent(NodeFact):
    """One finding of one check, or a heartbeat."""

    detail_type: ClassVar[str] = names.NODE_HEALTH_REPORTED

    source: str
    family: Family
    code: str
    subcode: str | None = None
    component: str | None = None
    component_serial: str | None = None
    verdict: Verdict
    suggested_action: Action | None = None
    count: int = 1
    product: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    evidence: str = ""
    is_history: bool = False


@dataclass(frozen=True, kw_only=True)
class NodeBooted(NodeFact):
    """A node has booted."""

    detail_type: ClassVar[str] = names.NODE_BOOTED

    booted_at: datetime
    address: str
    accelerators: int


@dataclass(frozen=True)
class Accelerator:
    """One accelerator, as its driver describes it. None: the driver or the product does not give it."""

    index: int
    component: str  # as faults name it: its PCI address, or its device
    model: str | None = None
    serial: str | None = None  # of its board
    uuid: str | None = None
    memory_mib: int | None = None
    ecc_uncorrected: int | None = None  # over its whole life
    rows_remapped: int | None = None  # memory rows that spare ones replace
    links: int | None = None  # NVLinks that it has
    links_up: int | None = None
    temperature_celsius: float | None = None  # when this was reported


@dataclass(frozen=True, kw_only=True)
class NodeHardwareReported(NodeFact):
    """What a node is made of."""

    detail_type: ClassVar[str] = names.NODE_HARDWARE_REPORTED

    machine: str | None = None  # the firmware's product name; on EC2 the instance type
    accelerators: tuple[Accelerator, ...]


@dataclass(frozen=True)
class DiagnosticResult:
    """The result of one part of a diagnosis."""

    check: Check
    verdict: Verdict
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DiagnosticsFinished(NodeFact):
    """The answer to a diagnostics command."""

    detail_type: ClassVar[str] = names.DIAGNOSTICS_FINISHED

    request_id: str
    verdict: Verdict
    failed_tests: tuple[str, ...] = ()
    undone_tests: tuple[str, ...] = ()
    checks: tuple[DiagnosticResult, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class EvidenceFrozen(NodeFact):
    """Which evidence was saved before any action on the node, and where."""

    detail_type: ClassVar[str] = names.EVIDENCE_FROZEN

    request_id: str
    object_key: str | None = None
    size_bytes: int = 0
    items: int = 0
    failed: tuple[str, ...] = ()
    reason: str = ""
    confirmation: Confirmation = Confirmation.UNKNOWN
    confirmed_by: str = ""


@dataclass(frozen=True)
class Confirmed:
    """Whether this node shows the fault that a command names, and where, or why that is not known."""

    confirmation: Confirmation = Confirmation.UNKNOWN
    confirmed_by: str = ""


@dataclass(frozen=True)
class Sight:
    """What a node sees at a path, or at the nearest existing folder above it. Two nodes with the same folder have equal
    values.
    """

    file_system: str  # its type, as mountinfo spells it
    source: str  # what is mounted: a device or an export
    inode: int
    device: int
    missing: str = ""  # the part of the path that does not exist yet
    machine: str = ""  # the boot id of the kernel: a local disk is visible on one machine only


@dataclass(frozen=True, kw_only=True)
class CheckpointFound(NodeFact):
    """The checkpoint that a job can resume from."""

    detail_type: ClassVar[str] = names.CHECKPOINT_FOUND

    request_id: str
    directory: str
    format: CheckpointFormat
    path: str | None = None
    step: int | None = None
    skipped: tuple[str, ...] = ()
    reason: str = ""
    written_at: datetime | None = None
    last_step: int | None = None
    sight: Sight | None = None


@dataclass(frozen=True)
class Found:
    """The result of a search for a checkpoint. No path: none is complete, or that is not known; `reason` says why."""

    directory: str
    format: CheckpointFormat
    path: str | None = None
    step: int | None = None
    skipped: tuple[str, ...] = ()  # newer checkpoints, each with its defect
    reason: str = ""
    written_at: datetime | None = None
    last_step: int | None = None  # the last step that the previous run reported on this node
    sight: Sight | None = None  # where only this was requested


@dataclass(frozen=True)
class Saved:
    """The result of saving evidence. No object_key: it is not in the bucket, and `reason` says why."""

    object_key: str | None = None
    size_bytes: int = 0
    items: int = 0
    failed: tuple[str, ...] = ()
    reason: str = ""


class Header(TypedDict):
    """The fields of a NodeFact that an EventFactory fills in."""

    event_id: str
    node_id: str
    cluster: str
    pool: str
    provider: Provider
    instance_id: str
    boot_id: str
    observed_at: datetime
    scheduler: SchedulerKind


@dataclass(frozen=True)
class EventFactory:
    """Creates the events of one boot of this node. The same fact always gets the same event id."""

    identity: Identity
    boot_id: str

    def found(
        self, finding: Finding, *, source: str, position: str, at: datetime, evidence: str, count: int = 1
    ) -> HealthEvent:
        """Create the event of a fault. `position` is its place in the source; together with the evidence it makes the
        id stable.
        """
        return HealthEvent(
            **self.header(source, position, evidence, at=at),
            source=source,
            family=finding.family,
            code=word(finding.code),
            subcode=finding.subcode and word(finding.subcode),
            component=finding.component and word(finding.component),
            verdict=verdict_of(finding),
            count=count,
            product=self.identity.product,
            labels=self.identity.labels,
            evidence=clip(evidence),
        )

    def over(self, finding: Finding, *, source: str, position: str, at: datetime) -> HealthEvent:
        """Create the event that the fault of `found` at this position is over."""
        event = self.found(finding, source=source, position=f"{position} over", at=at, evidence="it is over")
        return replace(event, verdict=Verdict.OK)

    def alive(self, at: datetime) -> HealthEvent:
        """Create a heartbeat event."""
        return HealthEvent(
            **self.header("heartbeat", at.isoformat(), at=at),
            source="heartbeat",
            family=Family.heartbeat,
            code="alive",
            verdict=Verdict.OK,
        )

    def booted(self, booted_at: datetime, address: str, accelerators: int, at: datetime) -> NodeBooted:
        """Create the boot event. All agent starts of one boot give the same event id."""
        return NodeBooted(
            **self.header("booted", at=at),
            booted_at=booted_at,
            address=address if re.fullmatch(ADDRESS, address) else "",
            accelerators=accelerators,
        )

    def hardware(self, machine: str | None, accelerators: Sequence[Accelerator], at: datetime) -> NodeHardwareReported:
        """Create the event of what the node is made of."""
        return NodeHardwareReported(
            **self.header("hardware", at.isoformat(), at=at),
            machine=machine and word(machine),
            accelerators=tuple(_in_words(accelerator) for accelerator in accelerators[:ACCELERATORS_TOLD]),
        )

    def diagnosed(
        self, request_id: str, report: ToolReport, checks: tuple[DiagnosticResult, ...], evidence: str, at: datetime
    ) -> DiagnosticsFinished:
        """Create the answer to a diagnostics request; a second run of the command gets the same id."""
        return DiagnosticsFinished(
            **self.header("diagnostics", request_id, at=at),
            request_id=request_id,
            verdict=report.verdict,
            failed_tests=tuple(clip(test, CHECK_CHARACTERS) for test in report.failed_tests[:FAILED_TESTS]),
            undone_tests=tuple(clip(test, CHECK_CHARACTERS) for test in report.undone_tests[:FAILED_TESTS]),
            checks=tuple(replace(check, reason=clip(check.reason, CHECK_CHARACTERS)) for check in checks),
            measured={word(name): value for name, value in sorted(report.measured.items())[:MEASURES]},
            evidence=clip(evidence),
        )

    def froze(self, request_id: str, saved: Saved, confirmed: Confirmed, at: datetime) -> EvidenceFrozen:
        """Create the answer to an evidence request; a second run of the command gets the same id."""
        failed = tuple(word(item) for item in saved.failed[:EVIDENCE_ITEMS])
        bounded = replace(saved, failed=failed, reason=clip(saved.reason, REASON_CHARACTERS))
        answer = replace(confirmed, confirmed_by=clip(confirmed.confirmed_by, CHECK_CHARACTERS))
        header = self.header("evidence", request_id, at=at)
        return EvidenceFrozen(**header, request_id=request_id, **asdict(bounded), **asdict(answer))

    def found_checkpoint(self, request_id: str, answer: Found, at: datetime) -> CheckpointFound:
        """Create the answer to a checkpoint request; a second run of the command gets the same id."""
        skipped = tuple(clip(note, CHECK_CHARACTERS) for note in answer.skipped[:SKIPPED])
        bounded = replace(answer, skipped=skipped, reason=clip(answer.reason, REASON_CHARACTERS))
        header = self.header("checkpoint", request_id, at=at)
        return CheckpointFound(**header, request_id=request_id, **{**asdict(bounded), "sight": answer.sight})

    def header(self, *fact: str, at: datetime) -> Header:
        """Create the common fields. `fact` determines the id; its first element names the kind of event."""
        who = self.identity
        return {
            "event_id": _stable_id(who.node_id, self.boot_id, *fact),
            "node_id": who.node_id,
            "cluster": who.cluster,
            "pool": who.pool,
            "provider": who.provider,
            "instance_id": who.node_id,
            "boot_id": self.boot_id,
            "observed_at": at,
            "scheduler": who.scheduler,
        }


def verdict_of(finding: Finding) -> Verdict:
    """Return the finding's own verdict, else the catalog's. A fault with neither is UNKNOWN."""
    return finding.verdict or verdict(finding.family, finding.code, finding.subcode) or Verdict.UNKNOWN


def _in_words(part: Accelerator) -> Accelerator:
    model, serial, uuid = (text and word(text) for text in (part.model, part.serial, part.uuid))
    return replace(part, component=word(part.component), model=model, serial=serial, uuid=uuid)


def clip(text: str, limit: int = EVIDENCE_CHARACTERS) -> str:
    """Shorten a text to `limit` characters; a cut is marked."""
    return text if len(text) <= limit else text[: limit - len(CUT_MARK)] + CUT_MARK


def _stable_id(*parts: str) -> str:
    # JSON, so that ("a", "bc") and ("ab", "c") differ.
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Entry:
    """One event in the spool."""

    event_id: str
    detail_type: str
    detail: str
    observed_at: float
    boot_id: str = ""  # when the described fact happened
    zero: float | None = None  # when this boot began, by the clock that dated the event; None: not known
