"""Defines the events that agents put on the bus, version 1.

The agent does not import this module (pydantic costs it 10 MiB). It builds the same shape as a frozen dataclass, and a
test compares that with the JSON Schema of this module. Ingest validates with these models, once, at the edge.
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
ACCELERATORS_TOLD = 64  # with their values
EVIDENCE_ITEMS = 64
REASON_CHARACTERS = 300
PATH_CHARACTERS = 2_048
SOURCE_CHARACTERS = 300
FAILED_TESTS = 64  # a tool has about twenty
SKIPPED = 16  # checkpoints, each with its reason
MOST = 10**9  # of any counter. Far beyond any real value, and within DynamoDB's range: 38 digits, from 1e-130 to 1e125
MOST_MEASURED, DECIMALS = 1e12, 6
EVIDENCE_BYTES = 8192  # a kernel line is at most 1 KiB; a finding in JSON a few; an event may hold 256 KiB in all


YEARS = range(2000, 2100)  # beyond these years, a clock is broken, and arithmetic with it would overflow


def _utc(moment: datetime) -> datetime:
    if moment.year not in YEARS:
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

    # A refused value is named and not shown: it may contain a task token or an approval link, and ends up in a log.
    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False, defer_build=True
    )


class NodeFact(Frozen):
    """The fields of every event of a node: who reports, about which boot."""

    schema_version: Literal[1]
    event_id: Word = Field(description="stable: the same fact has the same id each time it is sent")
    node_id: NodeId
    cluster: ClusterName = Field(description="the scheduler's cluster")
    pool: PoolName = Field(description="nodes that can replace one another and share a disruption budget")
    provider: Provider
    instance_id: NodeId = Field(description="equal to node_id")
    boot_id: BootId = Field(description="the boot that the fact is about: /proc/sys/kernel/random/boot_id")
    observed_at: UtcTime = Field(description="when the node saw it, UTC")
    agent_version: Word
    scheduler: SchedulerKind = Field(description="the scheduler of the node")

    @model_validator(mode="after")
    def _is_about_one_machine(self) -> "NodeFact":
        """Refuse two different ids in one event: a node could otherwise have another machine treated."""
        if self.instance_id != self.node_id:
            raise ValueError("instance_id must be node_id")
        return self


class HealthEvent(NodeFact):
    """One finding of one check, or a heartbeat (family heartbeat, verdict OK)."""

    source: Word = Field(description="the check that found it, e.g. kernel_log")
    family: Family
    code: Word = Field(description="as the family spells it: 79, DCGM_FR_VOLATILE_DBE_DETECTED, alive")
    subcode: Word | None = Field(
        default=None, description="the detail beyond the code: RLW_RXPIPE/0x00000004, fatal, NODE_REBOOT"
    )
    component: Word | None = Field(
        default=None, description="GPU uuid, PCI address (0000:b9:00.0), NVSwitch, Neuron device or NIC"
    )
    component_serial: Word | None = None
    verdict: Verdict
    suggested_action: Action | None = None
    count: int = Field(default=1, ge=1, le=MOST, description="how many identical findings this event represents")
    product: Word | None = Field(default=None, description="the accelerator's product name, e.g. NVIDIA H100 80GB HBM3")
    labels: Annotated[dict[Word, Word], Field(max_length=LABELS)] = Field(
        default_factory=dict, description="what the node shares with other nodes: rack, switch, fabric, driver_version"
    )
    evidence: Annotated[str, Field(max_length=EVIDENCE_BYTES)] = Field(
        default="", description="the raw line, or JSON; at most 8 KiB"
    )

    is_history: bool = Field(
        default=False,
        description="it happened in this boot before the node had an agent: stored, and no action follows",
    )

    @property
    def is_from_node(self) -> bool:
        """Whether the node's own agent reports it. Reports of others about a node do not show that it is alive."""
        return not self.source.startswith(OUTSIDE_SOURCES)

    @property
    def is_heartbeat(self) -> bool:
        """Whether it is a regular heartbeat. A missing heartbeat is a finding of the same family."""
        return self.family is Family.heartbeat and self.code not in SILENCES


class NodeBooted(NodeFact):
    """A node has booted. Only this (a new boot id) proves that a reboot happened."""

    booted_at: UtcTime
    address: Annotated[str, Field(pattern=words.ADDRESS)] = Field(
        description="the address of this node for other gang members"
    )
    accelerators: int = Field(ge=0, le=ACCELERATORS, description="how many accelerators the node reports")


class Accelerator(Frozen):
    """One accelerator, as its driver describes it. None: the driver or the product does not give it."""

    index: int = Field(ge=0, lt=ACCELERATORS)
    component: Word = Field(description="as faults name it: its PCI address, or its device")
    model: Word | None = None
    serial: Word | None = Field(default=None, description="of its board")
    uuid: Word | None = None
    memory_mib: int | None = Field(default=None, ge=0, le=MOST)
    ecc_uncorrected: int | None = Field(default=None, ge=0, lt=2**63, description="over its whole life")
    rows_remapped: int | None = Field(default=None, ge=0, le=MOST, description="memory rows that spare ones replace")
    links: int | None = Field(default=None, ge=0, le=ACCELERATORS, description="NVLinks that it has")
    links_up: int | None = Field(default=None, ge=0, le=ACCELERATORS)
    temperature_celsius: Measured | None = Field(default=None, description="when this was reported")


class NodeHardwareReported(NodeFact):
    """What a node is made of: told after each boot, when it changes, and once a day."""

    machine: Word | None = Field(default=None, description="the firmware's product name; on EC2 the instance type")
    accelerators: tuple[Accelerator, ...] = Field(max_length=ACCELERATORS_TOLD)


class CheckResult(Frozen):
    """The result of one part of a diagnosis."""

    check: Check
    verdict: Verdict
    reason: Annotated[str, Field(max_length=REASON_CHARACTERS)] = ""
    seconds: Measured = Field(default=0.0, ge=0)


class NodeAnswer(NodeFact):
    """The answer to a command. The event type of each kind is its class name in words."""

    detail_type: ClassVar[str]

    request_id: Word = Field(description="echoed from the command: it names the wait that this resumes")


class DiagnosticsFinished(NodeAnswer):
    """The answer to a diagnostics command."""

    detail_type: ClassVar[str] = names.DIAGNOSTICS_FINISHED

    verdict: Verdict
    failed_tests: tuple[Annotated[str, Field(max_length=REASON_CHARACTERS)], ...] = Field(
        default=(), max_length=FAILED_TESTS
    )
    undone_tests: tuple[Annotated[str, Field(max_length=REASON_CHARACTERS)], ...] = Field(
        default=(), max_length=FAILED_TESTS, description="neither passed nor failed"
    )
    checks: tuple[CheckResult, ...] = Field(default=(), max_length=8, description="the result of each part")
    measured: Annotated[dict[Word, Measured], Field(max_length=MEASURES)] = Field(
        default_factory=dict, description="numbers to compare with the last good run: bandwidths, temperatures"
    )
    evidence: Annotated[str, Field(max_length=EVIDENCE_BYTES)] = ""


class EvidenceFrozen(NodeAnswer):
    """Which evidence a node has saved before any action on it, and where."""

    detail_type: ClassVar[str] = names.EVIDENCE_FROZEN

    object_key: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="its key in the evidence bucket; none: it could not be uploaded"
    )
    size_bytes: int = Field(default=0, ge=0, le=2**50, description="of the archive that was uploaded")
    items: int = Field(default=0, ge=0, le=MOST, description="how many files of evidence it holds")
    failed: tuple[Word, ...] = Field(
        default=(), max_length=EVIDENCE_ITEMS, description="what is incomplete: hung, cut off, left out"
    )
    reason: Annotated[str, Field(max_length=1000)] = Field(default="", description="why it was not uploaded")
    confirmation: Confirmation = Field(
        default=Confirmation.UNKNOWN, description="whether the node itself shows the fault that the command names"
    )
    confirmed_by: Annotated[str, Field(max_length=REASON_CHARACTERS)] = Field(
        default="", description="where the node shows it, or why that is not known"
    )


class Sight(Frozen):
    """What a node sees at a path, or at the nearest existing folder above it. It reads no content and writes
    nothing.
    """

    file_system: Annotated[str, Field(max_length=64)] = Field(description="its type; empty: not known")
    source: Annotated[str, Field(max_length=SOURCE_CHARACTERS)] = Field(
        description="what is mounted there: a device or an export"
    )
    inode: int = Field(ge=0, lt=2**64)
    device: int = Field(ge=0, lt=2**64, description="the file system's number on this machine")
    missing: Path = Field(default="", description="the part of the path that does not exist yet")
    machine: Annotated[str, Field(max_length=64)] = Field(
        default="", description="the kernel's boot id: nodes that share a machine's local disk run on it"
    )


class CheckpointFound(NodeAnswer):
    """The checkpoint that a job can resume from: the newest whole one, as one of its nodes sees the directory."""

    detail_type: ClassVar[str] = names.CHECKPOINT_FOUND

    directory: Path
    format: CheckpointFormat = Field(description="as requested, or as detected")
    path: Path | None = Field(default=None, description="none: no checkpoint there is whole, or that is not known")
    step: int | None = Field(default=None, ge=0, le=2**63 - 1)
    skipped: tuple[Annotated[str, Field(max_length=REASON_CHARACTERS)], ...] = Field(
        default=(), max_length=SKIPPED, description="newer checkpoints that are torn or partial, each with its reason"
    )
    reason: Annotated[str, Field(max_length=1000)] = Field(default="", description="why the result is not known")
    written_at: UtcTime | None = Field(default=None, description="when that checkpoint was last written")
    last_step: int | None = Field(
        default=None, ge=0, le=2**63 - 1, description="the last step that the previous run reported on this node"
    )
    sight: Sight | None = Field(
        default=None, description="what it sees at the directory, where only this was requested: nothing was searched"
    )
