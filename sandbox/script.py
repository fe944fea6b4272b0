"""Defines what happens in a story, and how it should end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from nodeheal.contract.vocabulary import (
    Action,
    CheckpointFormat,
    Ending,
    Family,
    NextStepCondition,
    SchedulerKind,
)
from nodeheal.domain.faults.catalog import find

if TYPE_CHECKING:
    from sandbox.story import Story

JOB = "llama-pretrain"
GANG_NODES = 2

# The beginning of the email of each ending.
SUBJECTS = {
    Ending.RECOVERED: "[nodeheal] recovered",
    Ending.HANDED_TO_A_HUMAN: "[nodeheal] needs a human",
    Ending.OBSERVED_ONLY: "[nodeheal] observed only",
}


@dataclass(frozen=True)
class Expected:
    """How a story should end. `mails`: the beginnings of the subjects, in order."""

    ending: Ending
    finishes: bool  # the job
    restarts: bool  # the job, for this incident
    mails: tuple[str, ...]


class Move(Protocol):
    """An action of a person or the world during a story."""

    def __call__(self, story: "Story") -> str:
        """Do it if its time has come; returns what was done, in words. Empty: not yet."""


@dataclass(frozen=True)
class Script:
    """The plan of a story."""

    fault_line: str
    family: Family
    code: str
    persists: bool = False
    nodes: int = 3
    boot_seconds: float = 3.0
    steps: int = 200
    step_seconds: float = 0.08
    checkpoint_every: int = 20
    subcode: str | None = None
    pool: str = "demo"
    job: str = JOB
    scheduler: SchedulerKind = SchedulerKind.ECS
    # or "group" (EC2 in an Auto Scaling group), "template" (EC2 from a launch template), "hyperpod" (on Slurm)
    provider: str = "hybrid"
    expects: Expected | None = None  # where the catalog alone does not determine it
    checks: tuple[str, ...] = ()  # those of the nodes' agents
    dcgm_value: tuple[int, int] | None = None  # a field and its value, injected into DCGM instead of the kernel line
    breaks: int = 1  # this many nodes show the fault line, beginning with the gang's second
    kills: bool | None = None  # whether ranks die of it; None: by the catalog's action
    freezes: bool = False  # instead of a fault, the rank on the gang's second node stands still within its own work
    overflows: int = 0  # instead of a fault, the update of this step overflows: the loss is not a number from then on
    of_host: bool = False  # a persistent fault of the host: on another one it is gone
    example: str = "numpy-trainer"  # the folder of examples/ with this job
    format: CheckpointFormat = CheckpointFormat.numpy  # of its checkpoints
    environment: Mapping[str, str] = field(default_factory=dict)  # for its program
    prepares: tuple[Move, ...] = ()  # before the fault
    moves: tuple[Move, ...] = ()  # after it, each once, in order

    @property
    def kind_of_nodes(self) -> str:
        """Return the name of its kind of nodes."""
        if self.scheduler is SchedulerKind.SLURM:
            return "Slurm nodes"
        if self.scheduler is SchedulerKind.KUBERNETES:
            return f"{'HyperPod' if self.provider == 'hyperpod' else 'EC2'} nodes of an EKS cluster"
        return "ECS Anywhere nodes" if self.provider == "hybrid" else f"EC2 nodes ({self.provider})"

    @property
    def is_in_kernel_log(self) -> bool:
        """Whether the fault line is one of the kernel's."""
        return not (self.dcgm_value or self.freezes or self.overflows)

    @property
    def action(self) -> Action:
        """Return the catalog's action; an unknown fault goes to a human."""
        row = find(self.family, self.code, self.subcode)
        return row.action if row else Action.ESCALATE

    @property
    def waits_for_job(self) -> bool:
        """Whether the node is repaired only when the job has ended by itself."""
        row = find(self.family, self.code, self.subcode)
        return row is not None and row.next_rung is NextStepCondition.job_end

    @property
    def is_the_nodes(self) -> bool:
        """Whether the node is to be repaired or replaced."""
        return self.action in (Action.RESET_GPU, Action.REBOOT, Action.REPLACE) or self.waits_for_job

    @property
    def kills_rank(self) -> bool:
        """Whether a process that uses this GPU dies of the fault."""
        if self.kills is not None:
            return self.kills
        return self.action not in (Action.OBSERVE, Action.ESCALATE)

    @property
    def expected(self) -> Expected:
        """Return how it should end."""
        if self.expects is not None:
            return self.expects
        ending, finishes, restarts = self._by_the_catalog
        subject = "[nodeheal] restarted" if self.action is Action.RESTART_WORKLOAD else SUBJECTS[ending]
        return Expected(ending, finishes, restarts, (subject,))

    @property
    def _by_the_catalog(self) -> tuple[Ending, bool, bool]:
        """Return (how the incident ends, whether the job finishes, whether it is restarted for it)."""
        has_spare = self.nodes > GANG_NODES
        if self.waits_for_job:
            return (Ending.HANDED_TO_A_HUMAN if self.persists else Ending.RECOVERED), True, False
        match self.action:
            case Action.OBSERVE:
                return Ending.OBSERVED_ONLY, True, False
            case Action.RESTART_WORKLOAD:
                return Ending.RECOVERED, True, True
            case Action.REBOOT | Action.RESET_GPU if not self.persists:
                return Ending.RECOVERED, True, True
            case Action.REBOOT | Action.RESET_GPU | Action.REPLACE:
                return Ending.HANDED_TO_A_HUMAN, has_spare, has_spare
            case _:
                return Ending.HANDED_TO_A_HUMAN, self.action is Action.ESCALATE, False
