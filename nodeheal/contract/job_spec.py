"""job.yaml: a team's description of a training job. Its JSON Schema is published, so that editors complete it."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from nodeheal.contract import names
from nodeheal.contract.check_seconds import HEALTHY_SECONDS, diagnosis_seconds
from nodeheal.contract.health_event import Frozen, NodeId
from nodeheal.contract.job_steps import GANG_AT_MOST
from nodeheal.contract.vocabulary import Check, CheckpointFormat

DAY = 86_400
LEAST_LEVEL = 1  # of a diagnosis after a failure, whatever the job's preflight is
LONGEST = 90 * DAY
MEMORY_MIB = 64 * 1024**2  # of one node, with a margin
NAME = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# launch_gang sets these for every rank: a job that sets them itself would mislead its own launcher.
RESERVED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "NPROC_PER_NODE")
RESERVED_PREFIX = "NODEHEAL_"


def _absolute(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError("give an absolute path without '..'")
    # One spelling of each folder: two jobs with one directory are found by comparing the texts.
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


Directory = Annotated[str, Field(min_length=1, max_length=1_024), AfterValidator(_absolute)]
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_.-]{0,254}$"
Variable = Annotated[str, Field(pattern=VARIABLE)]
# AWS accepts 8,192 characters of overrides for a task; run_job's own variables and the JSON around them need some.
OVERRIDES_AT_MOST = 6_000


class Mount(Frozen):
    """A directory of the node that the container sees."""

    source: Directory = Field(description="on the node")
    target: Directory = Field(description="in the container")
    read_only: bool = Field(default=False, description="the container cannot write there")


# What nodeheal mounts into the container of an image, by the name of the volume. The program notices the request for a
# checkpoint, and writes the checkpoint to its own directory, not here.
MOUNTS = {
    "nodeheal": Mount(source=names.CHECKPOINT_REQUESTS, target=names.CHECKPOINT_REQUESTS, read_only=True),
    "progress": Mount(source=names.PROGRESS_DIR, target=names.PROGRESS_DIR),
}
# It goes into a command on nodes, so only plain characters are allowed; as in checkpoints.place and the SSM document.
PLAIN = r"^/[A-Za-z0-9._/@+=,:-]{0,999}$"
# Each directory above it is an item of one transaction, and DynamoDB's limit is a hundred.
PARTS_AT_MOST = 24


def _leasable(path: str) -> str:
    parts = path.strip("/").split("/")
    if parts == [""]:
        raise ValueError("give a directory below the root: the root contains all others")
    if len(parts) > PARTS_AT_MOST:
        raise ValueError(f"has {len(parts)} parts; give a directory with at most {PARTS_AT_MOST}")
    return path


CheckpointDirectory = Annotated[Directory, Field(pattern=PLAIN), AfterValidator(_leasable)]


# Docker would accept `/dev/x:/dev/y:rwm`, and a scheduler a path: one spelling, without blanks and colons.
DEVICE = r"^/dev/[A-Za-z0-9._/-]{1,250}$"
Device = Annotated[Directory, Field(pattern=DEVICE)]


class Checkpoints(Frozen):
    """The directory and the format of the job's checkpoints."""

    directory: CheckpointDirectory = Field(
        description="as nodes see it, on a file system that all of them share; letters, digits and . _ / @ + = , : -"
    )
    format: CheckpointFormat = Field(default=CheckpointFormat.auto, description="auto: detected from the files")
    every_seconds: int | None = Field(
        default=None, gt=0, le=LONGEST, description="seconds between checkpoints; for advice"
    )
    write_seconds: float | None = Field(
        default=None, ge=0.001, le=DAY, description="seconds that one stops training; for advice"
    )


class Preflight(Frozen):
    """The checks of nodes before the job starts on them."""

    level: int = Field(default=2, ge=0, le=4, description="dcgmi diag -r; 0: nodes are not checked")
    checks: tuple[Check, ...] = Field(default=(), description="empty: those of the pool's policy")
    fabric: bool = Field(
        default=True, description="test the network between the nodes, too, where the pool's policy has that test"
    )
    recent_seconds: int = Field(
        default=DAY, ge=0, le=LONGEST, description="a pass on this boot that is younger than this is not repeated"
    )
    timeout_seconds: int | None = Field(
        default=None,
        gt=0,
        le=4 * 3_600,
        description="a node without an answer by then has failed; empty: the limit of this level's checks",
    )

    @property
    def seconds(self) -> int:
        """Return how long nodes have to answer. The pool's own checks may be of any kind: GPUs or Trainium, EFA, the
        host.
        """
        checks = self.checks or (Check.dcgm, Check.efa, Check.stress)
        return self.timeout_seconds or diagnosis_seconds(max(self.level, LEAST_LEVEL), checks)


class RestartLimits(Frozen):
    """How often the job is restarted before a human must look."""

    total: int = Field(default=100, ge=0, le=10_000, description="in total, since it was submitted")
    in_window: int = Field(default=10, ge=0, le=1_000, description="within window_seconds")
    window_seconds: int = Field(default=DAY, gt=0, le=LONGEST, description="the window in which restarts are counted")
    of_application: int = Field(default=3, ge=0, le=1_000, description="in the window, for the program's own failures")
    without_progress: int = Field(default=3, ge=1, le=1_000, description="in a row, from the same checkpoint")


class JobSpec(Frozen):
    """One training job. Unknown fields are refused."""

    name: str = Field(pattern=f"^{NAME}$", description="lower-case letters, digits and '-'; at most 63")
    pool: str = Field(min_length=1, max_length=128, description="the pool whose nodes it runs on")
    nodes: int = Field(ge=1, le=GANG_AT_MOST, description="how many; each runs one rank's task")
    accelerators: int = Field(default=0, ge=0, le=128, description="that each task needs; 0: any number")
    image: str | None = Field(default=None, min_length=1, max_length=512, description="or a task_definition")
    task_definition: str | None = Field(default=None, min_length=1, max_length=512, description="family:revision")
    container: str = Field(
        default="trainer", min_length=1, max_length=255, description="its name in the task definition"
    )
    command: tuple[str, ...] = Field(default=(), max_length=256, description="empty: the image's own")
    environment: dict[Variable, str] = Field(
        default_factory=dict, max_length=256, description="environment variables of the program"
    )
    mounts: tuple[Mount, ...] = Field(default=(), max_length=32, description="with image only")
    devices: tuple[Device, ...] = Field(
        default=(),
        max_length=64,
        description="devices of the node, or folders of them: /dev/infiniband for EFA and InfiniBand; with image only",
    )
    memory_mib: int = Field(
        default=1_024, ge=4, le=MEMORY_MIB, description="what the task reserves on each node; with image only"
    )
    shared_memory_mib: int = Field(
        default=1_024, ge=64, le=MEMORY_MIB, description="the container's /dev/shm; with image only"
    )
    stop_seconds: int = Field(default=30, ge=2, le=600, description="from SIGTERM to SIGKILL; with image only")
    task_role: str | None = Field(default=None, description="the ARN of an IAM role; with image only")
    master_port: int = Field(default=29_500, ge=1_024, le=65_535, description="where rank 0 listens, on its node")
    checkpoints: Checkpoints | None = None
    preflight: Preflight = Field(default_factory=Preflight)
    restarts: RestartLimits = Field(default_factory=RestartLimits)
    hang_seconds: int | None = Field(
        default=None,
        ge=10,
        le=DAY,
        description="no step within this is a hang; the program touches $NODEHEAL_PROGRESS_FILE at every step",
    )
    only_nodes: tuple[NodeId, ...] = Field(
        default=(), max_length=4 * GANG_AT_MOST, description="nodes that it may run on; empty: any of the pool"
    )
    exclude_nodes: tuple[NodeId, ...] = Field(
        default=(), max_length=4 * GANG_AT_MOST, description="nodes that it never runs on"
    )
    steps: int | None = Field(
        default=None, ge=1, le=2**53, description="how many it takes in all: shown with the percentage and time left"
    )
    spares: int = Field(default=0, ge=0, le=GANG_AT_MOST, description="nodes of the pool left free when it starts")
    priority: int = Field(
        default=0, ge=-100, le=100, description="jobs that wait for nodes are served in this order, then by time"
    )
    owner: str | None = Field(default=None, description="who is notified: ada@example.com, or Ada <ada@example.com>")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.image is None) == (self.task_definition is None):
            raise ValueError("image: give either image or task_definition")
        needed, given = HEALTHY_SECONDS.get(self.preflight.level, 0), self.preflight.timeout_seconds
        if given is not None and given < needed:
            level = f"level {self.preflight.level} takes {needed} s on healthy GPUs"
            raise ValueError(f"preflight.timeout_seconds: {given} s is too short: {level}; remove the key")
        for name in self.environment:
            if name in RESERVED or name.startswith(RESERVED_PREFIX):
                raise ValueError(f"environment: {name} is set by nodeheal for every rank; remove it")
        if self.task_definition is not None and (self.mounts or self.task_role or self.devices):
            raise ValueError("task_definition: mounts, devices and task_role belong into the task definition itself")
        texts = [*self.command, *(text for pair in self.environment.items() for text in pair)]
        if self.task_definition is not None and sum(map(len, texts)) > OVERRIDES_AT_MOST:
            problem = f"command and environment have more than {OVERRIDES_AT_MOST} characters together, too many"
            raise ValueError(f"environment: {problem} with a task_definition; put them into it, or give an image")
        return self

    @model_validator(mode="after")
    def _may_run_somewhere(self) -> Self:
        """A node that is named in both lists is a slip, and a list that is too short never fits."""
        both = next((name for name in self.only_nodes if name in self.exclude_nodes), None)
        if both is not None:
            raise ValueError(f"exclude_nodes: {both} is named in only_nodes, too")
        if self.only_nodes and len({*self.only_nodes}) < self.nodes + self.spares:
            wanted = f"{self.nodes} and {self.spares} spares" if self.spares else str(self.nodes)
            raise ValueError(f"only_nodes: it names {len({*self.only_nodes})}, and the job wants {wanted}")
        return self

    @model_validator(mode="after")
    def _names_each_device_once(self) -> Self:
        """Refuse a path that is mapped twice; each path is normalized already."""
        twice = next((device for device in self.devices if self.devices.count(device) > 1), None)
        if twice is not None:
            raise ValueError(f"devices: {twice} is listed twice")
        return self

    @model_validator(mode="after")
    def _has_one_mount_at_a_path(self) -> Self:
        """Refuse two mounts at one path: such a container cannot be created."""
        targets = [mount.target for mount in self.mounts]
        twice = next((target for target in targets if targets.count(target) > 1), None)
        if twice is not None:
            raise ValueError(f"mounts: {twice} is the target of two mounts")
        ours = {mount.target: mount for mount in MOUNTS.values()}
        other = next((mount.target for mount in self.mounts if ours.get(mount.target, mount) != mount), None)
        if other is not None:
            raise ValueError(f"mounts: {other} is mounted by nodeheal; remove it")
        return self
