"""What a node says: the events that agents put on the bus, version 1.

The agent does not import this module (pydantic costs it 10 MiB); it builds the same shape as a frozen dataclass, which
a test holds against the JSON Schema generated from here. Ingest validates with these models, once, at the edge.
"""

from datetime import UTC, datetime
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from nodeheal.contract import names, words
from nodeheal.contract.measures import MEASURES
from nodeheal.contract.names import OUTSIDE_SOURCES, SILENCES
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

# instance id, managed-instance id, or a scheduler's own id with its Region and account in front.
NODE_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{1,127}$"
LABELS = 16
ACCELERATORS = 4_096  # of one node
EVIDENCE_ITEMS = 64
REASON_CHARACTERS = 300
PATH_CHARACTERS = 2_048
SOURCE_CHARACTERS = 300
FAILED_TESTS = 64  # a tool has some twenty
SKIPPED = 16  # checkpoints, each with its reason
MOST = 10**9  # of whatever is counted. Far beyond anything real, and DynamoDB takes it: 38 digits, from 1e-130 to 1e125
MOST_MEASURED, DECIMALS = 1e12, 6
EVIDENCE_BYTES = 8192  # a kernel line is at most 1 KiB; a finding in JSON a few; an event may hold 256 KiB in all


_YEARS = range(2000, 2100)  # beyond, a clock is broken, and the arithmetic of windows with it


def _utc(moment: datetime) -> datetime:
    if moment.year not in _YEARS:
        raise ValueError(f"the year {moment.year} is not one of 2000 to 2099")
    return moment.astimezone(UTC)


def _rounded(value: float) -> float:
    return round(value, DECIMALS) + 0.0  # no -0.0


UtcTime = Annotated[AwareDatetime, AfterValidator(_utc)]
NodeId = Annotated[str, Field(pattern=NODE_ID_PATTERN, description="i-… or mi-…; never the hostname")]
Word = Annotated[str, Field(pattern=words.WORD)]
Line = Annotated[str, Field(min_length=1, max_length=128)]  # of an operator
ClusterName = Annotated[str, Field(pattern=words.CLUSTER)]
PoolName = Annotated[str, Field(pattern=words.POOL)]
BootId = Annotated[str, Field(pattern=words.BOOT_ID)]
Path = Annotated[str, Field(max_length=PATH_CHARACTERS, pattern=words.PATH)]
Measured = Annotated[float, Field(ge=-MOST_MEASURED, le=MOST_MEASURED), AfterValidator(_rounded)]


class Frozen(BaseModel):
    """A value: immutable, and unknown fields are refused."""

    # What is refused is named and not shown: it may hold a task token, or a link that approves, and ends up in a log.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


class NodeFact(Frozen):
    """What every event of a node carries: who says it, about which boot."""

    schema_version: Literal[1]
    event_id: Word = Field(description="stable: sending the same fact again sends the same id")
    node_id: NodeId
    cluster: ClusterName = Field(description="the scheduler's cluster: an ECS cluster name")
    pool: PoolName = Field(description="nodes that may stand in for one another and share a disruption budget")
    provider: Provider
    instance_id: NodeId = Field(description="the same as node_id")
    boot_id: BootId = Field(description="the boot that the fact is about: /proc/sys/kernel/random/boot_id")
    observed_at: UtcTime = Field(description="when the node saw it, UTC")
    agent_version: Word
    scheduler: SchedulerKind = Field(default=SchedulerKind.ECS, description="which one places work on the node")

    @model_validator(mode="after")
    def _is_about_one_machine(self) -> "NodeFact":
        """Two ids in one event would let a node have another machine treated."""
        if self.instance_id != self.node_id:
            raise ValueError("instance_id must be node_id")
        return self


class HealthEvent(NodeFact):
    """One finding of one check, or a heartbeat (family heartbeat, verdict OK)."""

    source: Word = Field(description="the check that found it, e.g. kernel_log")
    family: Family
    code: Word = Field(description="as the family spells it: 79, DCGM_FR_VOLATILE_DBE_DETECTED, alive")
    subcode: Word | None = Field(
        default=None, description="what the line says beyond its code: RLW_RXPIPE/0x00000004, fatal, NODE_REBOOT"
    )
    component: Word | None = Field(
        default=None, description="GPU uuid, PCI address (0000:b9:00.0), NVSwitch, Neuron device or NIC"
    )
    component_serial: Word | None = None
    verdict: Verdict
    suggested_action: Action | None = None
    count: int = Field(default=1, ge=1, le=MOST, description="how many identical findings this event stands for")
    product: Word | None = Field(default=None, description="the accelerator's product name, e.g. NVIDIA H100 80GB HBM3")
    labels: Annotated[dict[Word, Word], Field(max_length=LABELS)] = Field(
        default_factory=dict, description="what the node shares with others: rack, switch, fabric, driver_version"
    )
    evidence: Annotated[str, Field(max_length=EVIDENCE_BYTES)] = Field(
        default="", description="the raw line, or JSON; at most 8 KiB"
    )

    is_history: bool = Field(
        default=False, description="it was said in this boot before the node had an agent: kept, and acted on by nobody"
    )

    @property
    def is_from_node(self) -> bool:
        """Whether the node's own agent says it. What others say about a node is no sign of its life."""
        return not self.source.startswith(OUTSIDE_SOURCES)

    @property
    def is_heartbeat(self) -> bool:
        """Whether it is a regular heartbeat. That there is none is a finding, of the same family."""
        return self.family is Family.heartbeat and self.code not in SILENCES


class NodeBooted(NodeFact):
    """A node has come up. Only this (a new boot id) proves that a reboot happened."""

    booted_at: UtcTime
    address: Annotated[str, Field(pattern=words.ADDRESS)] = Field(description="where gang members reach this node")
    accelerators: int = Field(ge=0, le=ACCELERATORS, description="how many accelerators the node reports")


class CheckResult(Frozen):
    """One part of a diagnosis."""

    check: Check
    verdict: Verdict
    reason: Annotated[str, Field(max_length=REASON_CHARACTERS)] = ""
    seconds: Measured = Field(default=0.0, ge=0)


class NodeAnswer(NodeFact):
    """The answer to a command. Each kind has the name that it has on the bus."""

    detail_type: ClassVar[str]

    request_id: Word = Field(description="echoed from the command: it names the wait that this resumes")


class DiagnosticsFinished(NodeAnswer):
    """The answer to a diagnostics command."""

    detail_type: ClassVar[str] = names.DIAGNOSTICS_FINISHED

    verdict: Verdict
    failed_tests: tuple[Annotated[str, Field(max_length=REASON_CHARACTERS)], ...] = Field(
        default=(), max_length=FAILED_TESTS
    )
    checks: tuple[CheckResult, ...] = Field(default=(), max_length=8, description="its parts, and how each went")
    measured: Annotated[dict[Word, Measured], Field(max_length=MEASURES)] = Field(
        default_factory=dict, description="numbers to compare with the last good run: bandwidths, temperatures"
    )
    evidence: Annotated[str, Field(max_length=EVIDENCE_BYTES)] = ""


class EvidenceFrozen(NodeAnswer):
    """What a node could save of its state before anything was done to it, and where it has put that."""

    detail_type: ClassVar[str] = names.EVIDENCE_FROZEN

    object_key: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="where in the evidence bucket it is; none: it could not be uploaded"
    )
    size_bytes: int = Field(default=0, ge=0, le=2**50, description="of the archive that was uploaded")
    items: int = Field(default=0, ge=0, le=MOST, description="how many files of evidence it holds")
    failed: tuple[Word, ...] = Field(
        default=(), max_length=EVIDENCE_ITEMS, description="what could not be had whole: hung, cut off, left out"
    )
    reason: Annotated[str, Field(max_length=1000)] = Field(default="", description="why it was not uploaded")
    confirmation: Confirmation = Field(
        default=Confirmation.UNKNOWN, description="whether the node itself shows the fault that the command named"
    )
    confirmed_by: Annotated[str, Field(max_length=REASON_CHARACTERS)] = Field(
        default="", description="where the node shows it, or why it cannot tell"
    )


class Sight(Frozen):
    """What a node sees at a path, or at the nearest folder above it that exists. No content, nothing written."""

    file_system: Annotated[str, Field(max_length=64)] = Field(description="its type; empty: not known")
    source: Annotated[str, Field(max_length=SOURCE_CHARACTERS)] = Field(
        description="what is mounted there: a device or an export"
    )
    inode: int = Field(ge=0, lt=2**64)
    device: int = Field(ge=0, lt=2**64, description="the file system's number on this machine")
    missing: Path = Field(default="", description="the part of the path that is not there yet")
    machine: Annotated[str, Field(max_length=64)] = Field(
        default="", description="the running kernel's own id: who shares a disk of a machine runs on it"
    )


class CheckpointFound(NodeAnswer):
    """Where a job can go on: the newest checkpoint that is whole, as one of its nodes sees the directory."""

    detail_type: ClassVar[str] = names.CHECKPOINT_FOUND

    directory: Path
    format: CheckpointFormat = Field(description="as it was asked for, or found out")
    path: Path | None = Field(default=None, description="none: no checkpoint there is whole, or the node cannot tell")
    step: int | None = Field(default=None, ge=0, le=2**63 - 1)
    skipped: tuple[Annotated[str, Field(max_length=REASON_CHARACTERS)], ...] = Field(
        default=(), max_length=SKIPPED, description="newer ones that are torn or partial, each with its reason"
    )
    reason: Annotated[str, Field(max_length=1000)] = Field(default="", description="why the node cannot tell")
    written_at: UtcTime | None = Field(default=None, description="when that checkpoint was written last")
    last_step: int | None = Field(
        default=None, ge=0, le=2**63 - 1, description="the last step that the run before has shown on this node"
    )
    sight: Sight | None = Field(
        default=None, description="what it sees at the directory, where only this was asked for: nothing was searched"
    )
