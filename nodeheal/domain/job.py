"""A training job and its runs: who works on what, and how it ended."""

from dataclasses import dataclass, field, replace
from datetime import datetime

from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.owner import Owner

# How a stop reason begins when a task was asked to end; translators of foreign events spell it so.
STOPPED_BY_REQUEST = "UserInitiated"


@dataclass(frozen=True)
class GangTask:
    """One rank of a run, on one node."""

    node_id: str
    rank: int
    boot_id: str  # of the node at launch: a task cannot outlive its node's boot
    placement: str  # the scheduler's name of the node: an ECS container-instance ARN
    task_id: str = ""  # the scheduler's name of the task; empty until it has said so
    status: str = "PENDING"  # PENDING, RUNNING or STOPPED
    exit_code: int | None = None
    stop_reason: str = ""

    @property
    def has_stopped(self) -> bool:
        """Whether the scheduler has told that this task is over."""
        return self.status == "STOPPED"

    @property
    def was_stopped(self) -> bool:
        """Whether it ended because somebody asked for it, us included."""
        return self.stop_reason.startswith(STOPPED_BY_REQUEST)


@dataclass(frozen=True)
class Run:
    """One launch of the whole gang."""

    job_id: str
    number: int
    started_at: datetime
    why: str
    tasks: tuple[GangTask, ...]
    end_awaited_by: tuple[str, ...] = ()  # incidents whose workflows wait until every rank has stopped
    version: int = 0

    @property
    def is_running(self) -> bool:
        """Whether every rank has been seen running and none has stopped."""
        return all(task.status == "RUNNING" for task in self.tasks)

    @property
    def has_ended(self) -> bool:
        """Whether every rank has stopped."""
        return all(task.has_stopped for task in self.tasks)

    @property
    def has_succeeded(self) -> bool:
        """Whether every rank ended by itself with exit code 0. One that was stopped may say 0, and is not done."""
        return self.has_ended and all(task.exit_code == 0 and not task.was_stopped for task in self.tasks)

    def with_task(self, changed: GangTask) -> "Run":
        """The run with one rank's task replaced."""
        return replace(self, tasks=tuple(changed if t.rank == changed.rank else t for t in self.tasks))


@dataclass(frozen=True)
class Job:
    """What to run, on how many nodes, and where it is now."""

    job_id: str
    pool: str
    cluster: str
    task_definition: str
    container: str
    nodes: int
    environment: dict[str, str] = field(default_factory=dict)
    master_port: int = 29500
    state: JobState = JobState.RUNNING
    current_run: int = 0
    owner: Owner | None = None  # who is told what becomes of it, beside the operators
    version: int = 0
