"""What this node says on the bus: the contract's events as frozen dataclasses.

A test holds the shape to `nodeheal.contract.health_event`, which is not imported: pydantic alone costs 10 MiB a node.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import ClassVar, TypedDict

from nodeheal import __version__
from nodeheal.agent.identity import Identity as Identity
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
from nodeheal.parsers.finding import Finding, Report

SCHEMA_VERSION = 1
EVIDENCE_CHARACTERS = 8192
REASON_CHARACTERS = 1000
CHECK_CHARACTERS = 300  # health_event.REASON_CHARACTERS
FAILED_TESTS = 64  # a tool has some twenty
EVIDENCE_ITEMS = 64  # health_event.EVIDENCE_ITEMS
SKIPPED = 16  # health_event.SKIPPED
SOURCE_CHARACTERS, PATH_CHARACTERS = 300, 2_048  # likewise
CUT_MARK = " … [cut]"


@dataclass(frozen=True, kw_only=True)
class NodeFact:
    """What every event carries."""

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
    scheduler: SchedulerKind = SchedulerKind.ECS

    def to_json(self) -> str:
        """The event as the bus gets it. A tool's JSON and the name of a file may hold what is no character: it becomes
        `?`, since neither the disk nor the bus takes it.
        """
        told = asdict(self)
        if self.scheduler is SchedulerKind.ECS:  # the control plane of the version before refuses the field
            del told["scheduler"]
        text = json.dumps(told, ensure_ascii=False, separators=(",", ":"), default=datetime.isoformat)
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
    """A node has come up."""

    detail_type: ClassVar[str] = names.NODE_BOOTED

    booted_at: datetime
    address: str
    accelerators: int


@dataclass(frozen=True)
class DiagnosticResult:
    """One part of a diagnosis, and how it went."""

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
    checks: tuple[DiagnosticResult, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class EvidenceFrozen(NodeFact):
    """What was saved before anything was done to the node, and where it is."""

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
    """Whether this node shows the fault that a command names, and where, or why it cannot tell."""

    confirmation: Confirmation = Confirmation.UNKNOWN
    confirmed_by: str = ""


@dataclass(frozen=True)
class Sight:
    """Of a path, or of the nearest folder above it that exists. Two nodes that see one folder say the same."""

    file_system: str  # its type, as mountinfo spells it
    source: str  # what is mounted: a device or an export
    inode: int
    device: int
    missing: str = ""  # the part of the path that is not there yet
    machine: str = ""  # the running kernel's own id: a disk of the node's own is seen on that machine alone


@dataclass(frozen=True, kw_only=True)
class CheckpointFound(NodeFact):
    """Where a job can go on."""

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
    """What a search for a checkpoint has found. No path: none is whole, or nobody can tell, and `reason` says why."""

    directory: str
    format: CheckpointFormat
    path: str | None = None
    step: int | None = None
    skipped: tuple[str, ...] = ()  # newer ones, each with what is wrong with it
    reason: str = ""
    written_at: datetime | None = None
    last_step: int | None = None  # that the run before has shown on this node
    sight: Sight | None = None  # where only this was asked for


@dataclass(frozen=True)
class Saved:
    """What became of the evidence that was asked for. No object_key: it is not in the bucket, and `reason` says why."""

    object_key: str | None = None
    size_bytes: int = 0
    items: int = 0
    failed: tuple[str, ...] = ()
    reason: str = ""


class Header(TypedDict):
    """The fields of a NodeFact that an EventFactory knows."""

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
    """Words facts about one boot of this node. The same fact always gets the same event id."""

    identity: Identity
    boot_id: str

    def found(
        self, finding: Finding, *, source: str, position: str, at: datetime, evidence: str, count: int = 1
    ) -> HealthEvent:
        """A fault. `position` says where in the source it stands, and with the evidence makes the id stable."""
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
        """That a fault which `found` has told of at this position is over."""
        told = self.found(finding, source=source, position=f"{position} over", at=at, evidence="it is over")
        return replace(told, verdict=Verdict.OK)

    def alive(self, at: datetime) -> HealthEvent:
        """A heartbeat."""
        return HealthEvent(
            **self.header("heartbeat", at.isoformat(), at=at),
            source="heartbeat",
            family=Family.heartbeat,
            code="alive",
            verdict=Verdict.OK,
        )

    def booted(self, booted_at: datetime, address: str, accelerators: int, at: datetime) -> NodeBooted:
        """The node is up. However often the agent restarts, one boot is one event id."""
        return NodeBooted(
            **self.header("booted", at=at),
            booted_at=booted_at,
            address=address if re.fullmatch(ADDRESS, address) else "",
            accelerators=accelerators,
        )

    def diagnosed(
        self, request_id: str, report: Report, checks: tuple[DiagnosticResult, ...], evidence: str, at: datetime
    ) -> DiagnosticsFinished:
        """The answer to the request; running the command again answers it again under the same id."""
        return DiagnosticsFinished(
            **self.header("diagnostics", request_id, at=at),
            request_id=request_id,
            verdict=report.verdict,
            failed_tests=tuple(clip(test, CHECK_CHARACTERS) for test in report.failed_tests[:FAILED_TESTS]),
            checks=tuple(replace(one, reason=clip(one.reason, CHECK_CHARACTERS)) for one in checks),
            measured={word(name): value for name, value in sorted(report.measured.items())[:MEASURES]},
            evidence=clip(evidence),
        )

    def froze(self, request_id: str, saved: Saved, confirmed: Confirmed, at: datetime) -> EvidenceFrozen:
        """What became of the evidence. Collecting it again answers the same request under the same id."""
        failed = tuple(word(one) for one in saved.failed[:EVIDENCE_ITEMS])
        bounded = replace(saved, failed=failed, reason=clip(saved.reason, REASON_CHARACTERS))
        answer = replace(confirmed, confirmed_by=clip(confirmed.confirmed_by, CHECK_CHARACTERS))
        header = self.header("evidence", request_id, at=at)
        return EvidenceFrozen(**header, request_id=request_id, **asdict(bounded), **asdict(answer))

    def found_checkpoint(self, request_id: str, found: Found, at: datetime) -> CheckpointFound:
        """Where the job can go on. Looking again answers the same request under the same id."""
        skipped = tuple(clip(one, CHECK_CHARACTERS) for one in found.skipped[:SKIPPED])
        bounded = replace(found, skipped=skipped, reason=clip(found.reason, REASON_CHARACTERS))
        header = self.header("checkpoint", request_id, at=at)
        return CheckpointFound(**header, request_id=request_id, **{**asdict(bounded), "sight": found.sight})

    def header(self, *fact: str, at: datetime) -> Header:
        """What every event of this boot begins with. `fact` makes the id: its first word names the kind of event."""
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
    """How grave the catalog calls it. Of a fault that it does not know only a check of the operator's own can tell."""
    return verdict(finding.family, finding.code, finding.subcode) or finding.verdict or Verdict.UNKNOWN


def clip(text: str, limit: int = EVIDENCE_CHARACTERS) -> str:
    """The text, at most `limit` characters of it; a cut is marked."""
    return text if len(text) <= limit else text[: limit - len(CUT_MARK)] + CUT_MARK


def _stable_id(*parts: str) -> str:
    # JSON, so that ("a", "bc") and ("ab", "c") differ.
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Entry:
    """One event as it waits for the bus."""

    event_id: str
    detail_type: str
    detail: str
    observed_at: float
    boot_id: str = ""  # that it is about
    zero: float | None = None  # when this boot began, by the clock that dated it; None: nobody knows
