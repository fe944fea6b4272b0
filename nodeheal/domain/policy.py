"""The policy document: every knob that an operator may turn, with its unit, default and meaning.

Pure data. What is decided from it lives in `decide.py`.
"""

import hashlib
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from nodeheal.contract.health_event import Frozen
from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import Action

_DAY = 86_400


class Mode(StrEnum):
    """How far nodeheal may go by itself."""

    observe = "observe"
    act = "act"


class Ladder(Frozen):
    """The destructive rungs, in order, for a fault that asks for this action first."""

    rungs: tuple[Action, ...] = Field(description="REBOOT and REPLACE, in the order they are tried")

    @model_validator(mode="after")
    def _only_rungs(self) -> Self:
        wrong = [rung for rung in self.rungs if rung not in (Action.REBOOT, Action.REPLACE)]
        if wrong:
            raise ValueError(f"{wrong[0]} is not a rung; a ladder holds REBOOT and REPLACE")
        return self


class Budget(Frozen):
    """How much of a pool may be out of service by our hand at once. The stricter of the two wins."""

    max_nodes: int = Field(default=1, ge=0, description="nodes")
    max_percent: float = Field(default=10.0, ge=0, le=100, description="percent of the pool's nodes")
    floor_nodes: int = Field(default=1, ge=0, description="nodes that percent never goes below: small pools still work")

    def slots(self, pool_nodes: int) -> int:
        """How many nodes of a pool of this size may be disrupted."""
        return min(self.max_nodes, max(self.floor_nodes, int(pool_nodes * self.max_percent / 100)))


class Deadlines(Frozen):
    """How long the workflow waits for each step before it looks for itself. Seconds."""

    isolate_seconds: int = Field(default=180, gt=0, description="drain, and the gang's tasks stopped with their grace")
    reboot_seconds: int = Field(default=1_200, gt=0, description="a GPU node boots in minutes; firmware can take 15")
    diagnose_seconds: int = Field(default=1_200, gt=0, description="dcgmi diag -r 2 takes minutes on eight GPUs")
    replace_seconds: int = Field(default=900, gt=0, description="a swap to a warm spare takes seconds")
    restart_seconds: int = Field(default=600, gt=0, description="image pull included")
    quick_seconds: int = Field(default=60, gt=0, description="a step that waits for nothing")


class PoolPolicy(Frozen):
    """What holds for one pool."""

    mode: Mode = Field(default=Mode.observe, description="observe: decide and tell, touch nothing; act: recover")
    budget: Budget = Field(default_factory=Budget)


class RecoveryPolicy(Frozen):
    """The whole document. Unknown keys are refused."""

    default_pool: PoolPolicy = Field(default_factory=PoolPolicy, description="for every pool not named in pools")
    pools: dict[str, PoolPolicy] = Field(default_factory=dict, description="by pool name; replaces default_pool whole")
    ladders: dict[Action, Ladder] = Field(
        default_factory=lambda: {
            Action.RESET_GPU: Ladder(rungs=(Action.REBOOT, Action.REPLACE)),
            Action.REBOOT: Ladder(rungs=(Action.REBOOT, Action.REPLACE)),
            Action.REPLACE: Ladder(rungs=(Action.REPLACE,)),
        },
        description="by the action that the catalog asks for; a reset is off by default, and a reboot covers it",
    )
    limits: dict[Action, AttemptLimit] = Field(
        default_factory=lambda: {
            Action.REBOOT: AttemptLimit(group=Action.REBOOT, limit=1, window_seconds=_DAY),
            Action.REPLACE: AttemptLimit(group=Action.REPLACE, limit=1, window_seconds=_DAY),
            Action.RESTART_WORKLOAD: AttemptLimit(group=Action.RESTART_WORKLOAD, limit=10, window_seconds=_DAY),
        },
        description="attempts per node (restarts: per job) in a sliding window of seconds",
    )
    diagnostics_level: int = Field(default=2, ge=1, le=4, description="dcgmi diag -r: 1 seconds, 2 minutes, 4 hours")
    probation_seconds: int = Field(default=3_600, ge=0, description="no new gang on a returned node for this long")
    max_turns: int = Field(default=24, gt=3, description="decisions in one incident before a human is asked")
    deadlines: Deadlines = Field(default_factory=Deadlines)

    @model_validator(mode="after")
    def _limits_are_complete(self) -> Self:
        for action in (Action.REBOOT, Action.REPLACE, Action.RESTART_WORKLOAD):
            limit = self.limits.get(action)
            if limit is None:
                raise ValueError(f"limits: {action} is missing; without a limit there is no attempt to reserve")
            if limit.group is not action:
                raise ValueError(f"limits: {action} counts in group {limit.group}; it must count in its own")
        return self

    def pool(self, name: str) -> PoolPolicy:
        """What holds for this pool."""
        return self.pools.get(name, self.default_pool)

    def rungs(self, action: Action) -> tuple[Action, ...]:
        """The destructive steps to try, in order, for what the catalog asks."""
        ladder = self.ladders.get(action)
        return ladder.rungs if ladder else ()

    @property
    def version(self) -> str:
        """A content hash: two documents that say the same have the same version."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]
