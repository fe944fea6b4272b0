"""A training job, its runs and its ranks."""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from pathlib import PurePosixPath

from nodeheal.contract.job_spec import Checkpoints, JobSpec, Preflight, RestartLimits
from nodeheal.contract.vocabulary import EndCause, JobState, Outcome, Trouble
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.jobs.owner import Owner, parse_owner

ENDED = frozenset({JobState.COMPLETED, JobState.CANCELLED, JobState.FAILED})
_NO_RESTART = {
    JobState.COMPLETED: "has finished",
    JobState.CANCELLED: "was stopped by a person",
    JobState.FAILED: "is in a human's hands",
    JobState.SUBMITTED: "was submitted again, and its own workflow starts it",
}


@dataclass(frozen=True)
class GangTask:
    """One rank of a run, on one node."""

    node_id: str
    rank: int
    boot_id: str  # of the node at launch: what runs does not outlive its node's boot
    placement: str  # the scheduler's name of the node
    task_id: str = ""  # the scheduler's name of the task; empty until it has said so
    status: str = "PENDING"  # PENDING, RUNNING or STOPPED
    exit_code: int | None = None
    stop_reason: str = ""
    stopped_at: datetime | None = None  # as the scheduler has it; None: it has not stopped, or was never started
    asked_at: datetime | None = None  # when the scheduler was to start it; None: it was not yet
    started_at: datetime | None = None  # when it began to run, as the scheduler has it; None: nobody has said so
    end_causes: tuple[EndCause, ...] = ()  # why it ended, as far as the scheduler says

    @property
    def has_stopped(self) -> bool:
        """Whether the scheduler has reported its end."""
        return self.status == "STOPPED"

    @property
    def was_stopped(self) -> bool:
        """Whether it ended because nodeheal or a person asked for it."""
        return EndCause.ON_REQUEST in self.end_causes

    @property
    def has_succeeded(self) -> bool:
        """Whether it ended by itself with exit code 0. A stopped task may exit with 0 and is not done."""
        return self.has_stopped and self.exit_code == 0 and not self.was_stopped


@dataclass(frozen=True)
class Run:
    """One launch of the whole gang."""

    job_id: str
    number: int
    started_at: datetime
    why: str  # which launch it is: of a job's workflow, or of a turn of an incident (`<incident>/<turn>`)
    tasks: tuple[GangTask, ...]
    end_awaited_by: tuple[str, ...] = ()  # incidents whose workflows wait until every rank has stopped
    resumed_from: str = ""  # the checkpoint that it was told to resume from; empty: its own search, or the beginning
    resumed_step: int | None = None
    resumed_written_at: datetime | None = None  # when that checkpoint was written
    last_step: int | None = None  # the last one that it has said to have taken
    running_since: datetime | None = None  # when the last of its ranks was seen running
    ended_at: datetime | None = None  # when the first of its ranks was seen to stop
    submission: int = 0  # of the job, that it belongs to; 0: it is of a release that did not write that down
    version: int = 0

    @property
    def incident_id(self) -> str:
        """The incident that has launched it; empty: the job's own workflow has."""
        return self.why.rpartition("/")[0]

    @property
    def is_running(self) -> bool:
        """Whether every rank was seen running and none has stopped."""
        return all(task.status == "RUNNING" for task in self.tasks)

    @property
    def has_ended(self) -> bool:
        """Whether every rank has stopped."""
        return all(task.has_stopped for task in self.tasks)

    @property
    def has_succeeded(self) -> bool:
        """Whether every rank is done."""
        return all(task.has_succeeded for task in self.tasks)

    def with_task(self, changed: GangTask) -> "Run":
        """Returns the run with one rank's task replaced."""
        return replace(self, tasks=tuple(changed if t.rank == changed.rank else t for t in self.tasks))


@dataclass(frozen=True)
class CheckAnswer:
    """The result of one node's diagnosis before (or after) a run."""

    request_id: str
    node_id: str
    boot_id: str
    outcome: Outcome  # DONE: it has passed
    reason: str
    at: datetime


@dataclass(frozen=True)
class Hang:
    """The incident of a run that hangs, and the node whose report has opened it."""

    run: str  # job/number, as agents report it
    node_id: str
    incident_id: str
    at: datetime


@dataclass(frozen=True)
class FoundCheckpoint:
    """The newest valid checkpoint of a job, as one of its nodes has found it."""

    path: str
    step: int | None
    looked_at: datetime
    skipped: tuple[str, ...] = ()  # newer ones that are torn or partial, each with its reason
    written_at: datetime | None = None  # by the clock of its file system
    after_run: int = 0  # the run that had ended, whole, before anybody looked; 0: one may have written since


@dataclass(frozen=True)
class Divergence:
    """A run whose loss was not a number. From this step on, none of the checkpoints is resumed from that were written
    before the next run.
    """

    run: int
    step: int


@dataclass(frozen=True)
class Job:
    """What to run, on how many nodes, and its present state."""

    job_id: str
    pool: str
    cluster: Cluster  # that of its pool's nodes
    task_definition: str
    container: str
    nodes: int
    environment: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()  # instead of the definition's own; empty: as it is there
    master_port: int = 29500
    state: JobState = JobState.RUNNING
    current_run: int = 0
    owner: Owner | None = None  # gets emails about the job, beside the operators
    accelerators: int = 0  # that its task needs on each node
    checkpoints: Checkpoints | None = None
    checkpoints_inside: str = ""  # their directory as the container sees it; empty: as nodes do
    preflight: Preflight = field(default_factory=Preflight)
    restarts: RestartLimits = field(default_factory=RestartLimits)
    hang_seconds: int | None = None
    steps: int | None = None  # that it takes in all, by its file
    only_nodes: tuple[str, ...] = ()  # that it may run on; empty: any of the pool
    exclude_nodes: tuple[str, ...] = ()  # that it never runs on
    spares: int = 0
    priority: int = 0
    submission: int = 0  # how often it has been submitted; each has an execution of run_job of its own
    submitted_at: datetime | None = None
    chosen_at: datetime | None = None  # when its nodes were last chosen; after that they are checked, and it starts
    made_of: dict[str, str] = field(default_factory=dict)  # its file: of each field what tells it from another value
    held_at: datetime | None = None  # since when a failure of its run waits for the end of a pause
    submitted_by: str | None = None  # as AWS has named who submitted it last
    act_key: str | None = None  # of that act: a repeat of it finds its own submission
    stop_wanted: str = ""  # who wants it stopped, and why; of a failed one: who has given it up
    trouble: Trouble | None = None  # why a human must handle it, where it has failed and that is known
    left_down_by: str | None = None  # the incident that was to bring it back and did not; None: none was
    summary: str = ""  # how it stands, or ended, in words
    run_said_to_start: int = 0  # the run that `summary` says is starting; 0: it says something else
    run_said_to_run: int = 0  # the run that `summary` says is under way; 0: it says something else
    found: FoundCheckpoint | None = None  # what its next run resumes from
    diverged: Divergence | None = None  # the last; None: its loss was always a number, or nobody went back for it
    directory_seen: str = ""  # whether its nodes share the checkpoint directory, in words
    directory_in_doubt: bool = False  # they were asked, and it could not be decided
    version: int = 0

    def may_run_on(self, node_id: str) -> bool:
        """Whether its file lets it run on this node."""
        return node_id not in self.exclude_nodes and (not self.only_nodes or node_id in self.only_nodes)

    @property
    def knows_where_to_go_on(self) -> bool:
        """Whether the newest checkpoint is known: it was looked for after the last run's end, and nothing ran since."""
        return self.found is not None and self.found.after_run == self.current_run > 0

    def was_submitted_after(self, run: Run) -> bool:
        """Whether the run is of an earlier submission."""
        return 0 < run.submission < self.submission

    @property
    def waits_for_a_human(self) -> bool:
        """Whether it has failed, and nobody has said that it stays so."""
        return self.state is JobState.FAILED and not self.stop_wanted

    @property
    def why_no_restart(self) -> str:
        """Why a recovery has nothing to restart, after the job's name. Empty: it has."""
        return (
            "is being stopped by a person" if self.stop_wanted and not self.is_over else _NO_RESTART.get(self.state, "")
        )

    def ended_at(self, last: Run | None) -> datetime | None:
        """When its last run ended. None: it has not, or it is of an earlier submission."""
        ended = last.ended_at if last is not None else None
        return ended if ended is not None and (self.submitted_at is None or ended >= self.submitted_at) else None

    @property
    def is_over(self) -> bool:
        """Whether nodeheal will not start it again by itself."""
        return self.state in ENDED


def _inside(spec: JobSpec) -> str:
    """Returns the checkpoint directory as the container sees it, by the innermost mount that contains it.

    The mounts of a user's own task definition are not known here.
    """
    if spec.checkpoints is None:
        return ""
    directory = PurePosixPath(spec.checkpoints.directory)
    having = [mount for mount in spec.mounts if directory.is_relative_to(mount.source)]
    innermost = max(having, key=lambda mount: len(PurePosixPath(mount.source).parts), default=None)
    return str(PurePosixPath(innermost.target) / directory.relative_to(innermost.source)) if innermost else ""


def job_of(spec: JobSpec, cluster: Cluster, task_definition: str, at: datetime) -> Job:
    """Returns the job of a file, submitted for the first time. Raises ValueError for an invalid owner."""
    # A definition that is made of the file has its command and environment already: a scheduler takes little beside it.
    is_made_of_it = spec.image is not None
    return Job(
        job_id=spec.name,
        pool=spec.pool,
        cluster=cluster,
        task_definition=task_definition,
        container=spec.container,
        nodes=spec.nodes,
        environment={} if is_made_of_it else dict(spec.environment),
        command=() if is_made_of_it else spec.command,
        master_port=spec.master_port,
        state=JobState.SUBMITTED,
        owner=parse_owner(spec.owner) if spec.owner else None,
        accelerators=spec.accelerators,
        checkpoints=spec.checkpoints,
        checkpoints_inside=_inside(spec),
        preflight=spec.preflight,
        restarts=spec.restarts,
        hang_seconds=spec.hang_seconds,
        steps=spec.steps,
        only_nodes=spec.only_nodes,
        exclude_nodes=spec.exclude_nodes,
        spares=spec.spares,
        priority=spec.priority,
        submission=1,
        submitted_at=at,
        made_of=_digests(spec),
    )


def _digests(spec: JobSpec) -> dict[str, str]:
    """Returns a digest of each field's value, spelled in one way: with all defaults, and keys in order."""
    values = {name: json.dumps(value, sort_keys=True) for name, value in spec.model_dump(mode="json").items()}
    return {name: sha256(value.encode()).hexdigest()[:16] for name, value in values.items()}
