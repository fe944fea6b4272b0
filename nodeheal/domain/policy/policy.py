"""The policy document: every setting of an operator, with its unit, default and meaning.

Pure data. `decide.py` decides from it. docs/reference/policy.md is generated from it.
"""

import hashlib
import json
from datetime import datetime
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from nodeheal.contract.health_event import Frozen, Line, NodeId
from nodeheal.contract.json_text import read_json
from nodeheal.contract.names import CHANNEL_NAME, EMAIL_CHANNEL
from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import Action
from nodeheal.domain.complaints import complaints_of
from nodeheal.domain.fleet.liveness import Silence
from nodeheal.domain.policy.policy_models import (
    LONGEST,
    Breaker,
    Capacity,
    Channel,
    Correlation,
    Deadlines,
    Evidence,
    Fault,
    Lemon,
    Mode,
    Override,
    PoolPolicy,
    Severity,
    SlowJobs,
)
from nodeheal.domain.verbs import VERBS, Attempts


def _limit(action: Action, default: Attempts) -> AttemptLimit:
    return AttemptLimit(group=action, limit=default.limit, window_seconds=default.window_seconds)


class RecoveryPolicy(Frozen):
    """The whole document. Unknown keys are refused."""

    default_pool: PoolPolicy = Field(default_factory=PoolPolicy, description="for every pool not named in pools")
    pools: dict[str, PoolPolicy] = Field(default_factory=dict, description="by pool name; replaces default_pool whole")
    opted_out: dict[NodeId, Line] = Field(
        default_factory=dict, description="nodes that nodeheal only observes, each with the reason"
    )
    overrides: tuple[Override, ...] = Field(default=(), description="faults treated otherwise than by the catalog")
    limits: dict[Action, AttemptLimit] = Field(
        default_factory=lambda: {action: _limit(action, verb.limit) for action, verb in VERBS.items() if verb.limit},
        description="attempts per node (restarts: per job) in a sliding window of seconds",
    )
    accelerator_limits: dict[Action, AttemptLimit] = Field(
        default_factory=lambda: {
            action: _limit(action, verb.accelerator_limit) for action, verb in VERBS.items() if verb.accelerator_limit
        },
        description="attempts per accelerator serial, which outlives the node's name; REBOOT and REPLACE",
    )
    correlation: Correlation = Field(default_factory=Correlation)
    breaker: Breaker = Field(default_factory=Breaker)
    capacity: Capacity = Field(default_factory=Capacity)
    lemon: Lemon = Field(default_factory=Lemon)
    silence: Silence = Field(default_factory=Silence)
    slow_jobs: SlowJobs = Field(default_factory=SlowJobs)
    settling: tuple[Fault, ...] = Field(
        default=(
            "efa/DEVICE_MISSING",
            "host/efa_count_mismatch",
            "host/gpu_count_mismatch",
            "host/neuron_count_mismatch",
            "neuron/DEVICE_COUNT_MISMATCH",
            "nvml/GPU_COUNT_MISMATCH",
            "nvml/GPU_MISSING",
            "nvml/NO_DEVICES",
        ),
        description="faults that are normal while a node comes up, as family/code",
    )
    settle_seconds: int = Field(
        default=300, ge=0, le=LONGEST, description="seconds that such a fault is given after a boot or an agent upgrade"
    )
    diagnostics_level: int = Field(default=2, ge=1, le=4, description="dcgmi diag -r: 1 seconds, 2 minutes, 4 hours")
    stable_seconds: int = Field(
        default=120,
        ge=0,
        le=LONGEST,
        description="a rebooted node must run this long without a fault before it is back in service",
    )
    regression_percent: float = Field(
        default=20.0,
        gt=0,
        le=100,
        description="a bandwidth or temperature that is so much worse than in the node's last good run needs a human",
    )
    probation_seconds: int = Field(
        default=3_600, ge=0, le=LONGEST, description="no new gang on a returned node for this long"
    )
    move_job_seconds: int = Field(
        default=120,
        ge=0,
        le=LONGEST,
        description="a job goes on elsewhere where that saves it more than this, on free nodes that have passed their"
        " diagnostics lately, or on one that passes them now; calculated with the medians of the pool's last recoveries"
        " and diagnoses, or with the deadlines where there were none",
    )
    max_turns: int = Field(default=24, gt=3, le=1_000, description="decisions in one incident before a human is asked")
    deadlines: Deadlines = Field(default_factory=Deadlines)
    evidence: Evidence = Field(default_factory=Evidence)
    checkpoint_seconds: int = Field(
        default=60,
        ge=0,
        le=LONGEST,
        description="how long a request for a checkpoint holds, sent right before a gang is stopped; 0: none is sent."
        " Nobody waits for it: the wait is the task's own grace, stopTimeout",
    )
    early_warnings: tuple[Fault, ...] = Field(
        default=(
            "dcgm/DCGM_FR_PENDING_PAGE_RETIREMENTS",
            "dcgm/DCGM_FR_PENDING_ROW_REMAP",
            "host/instance_store_degraded",
            "host/scheduled_event",
            "nvml/CHANNEL_REPAIR_PENDING",
            "nvml/REMAP_PENDING",
            "nvml/RETIRED_PAGES_PENDING",
            "nvml/TPC_REPAIR_PENDING",
            "xid/63",
        ),
        description="faults that let the job finish, on which it is asked for a checkpoint at once, as family/code;"
        " once a fault and run. Empty: none. Others are named here in vain: they stop the job, or ask for nothing",
    )

    channels: dict[Annotated[str, Field(pattern=CHANNEL_NAME)], Channel] = Field(
        default_factory=lambda: {EMAIL_CHANNEL: Channel()},
        description="what each channel is told: `email`, and those of the setting `channels`, by name; one that is not"
        " named is told nothing",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if not any(Severity.PAGE in channel.severities for channel in self.channels.values()):
            raise ValueError("channels: none of them takes PAGE; somebody must be told when a human is needed")
        for action in self.limited_actions():
            if action not in self.limits:
                raise ValueError(f"limits: {action} is missing; without a limit there is no attempt to reserve")
        for name, limits in (("limits", self.limits), ("accelerator_limits", self.accelerator_limits)):
            for action, limit in limits.items():
                if limit.group is not action:
                    raise ValueError(f"{name}: {action} counts in group {limit.group}; it must count in its own")
        counted = [action for action, verb in VERBS.items() if verb.accelerator_limit]
        wrong = [action for action in self.accelerator_limits if action not in counted]
        if wrong:
            given = " and ".join(counted)
            raise ValueError(f"accelerator_limits: {wrong[0]} is not counted by accelerator; give {given}")
        if "" in self.pools:
            raise ValueError("pools: a pool has no name")
        keys_before: set[tuple[str, str]] = set()
        for override in self.overrides:
            keys = {(override.fault, pool) for pool in override.pools or ("",)}
            if keys & keys_before:
                raise ValueError(f"overrides: {override.fault} stands twice for the same pool")
            keys_before |= keys
        return self

    def limited_actions(self) -> list[Action]:
        """Returns the actions that need a limit. An optional one needs it where a pool has switched it on."""
        pools = (self.default_pool, *self.pools.values())
        return [action for action, verb in VERBS.items() if verb.limit and any(verb.is_on(pool) for pool in pools)]

    def pool(self, name: str) -> PoolPolicy:
        """Returns the policy of this pool."""
        return self.pools.get(name, self.default_pool)

    def override(self, fault: str, pool: str) -> Override | None:
        """Returns the override that names the fault (`family/code/subcode`) most exactly, or None."""
        overrides = [(exact, o) for o in self.overrides if (exact := o.exactness(fault, pool))]
        return max(overrides, key=lambda pair: pair[0])[1] if overrides else None

    def diagnostics_level_of(self, pool: str) -> int:
        """Returns the level of the pool's diagnostics."""
        return self.pool(pool).diagnostics_level or self.diagnostics_level

    def why_opted_out(self, node_id: str) -> str:
        """Returns why the node is always only observed. Empty: it is not opted out."""
        return f"{node_id} is opted out ({self.opted_out[node_id]})" if node_id in self.opted_out else ""

    def why_only_observe(self, node_id: str, pool: str, now: datetime) -> str:
        """Returns why this node must not be touched now, whatever the fault is. Empty: it may be touched."""
        opted_out = self.why_opted_out(node_id)
        if opted_out:
            return opted_out
        for window in self.pool(pool).maintenance:
            if window.holds(now):
                return f"pool {pool} is in maintenance ({window.why})"
        return ""

    def acting(self) -> "RecoveryPolicy":
        """Returns the document with every pool in act mode at all times: what it would do if it were allowed."""
        freed = {"mode": Mode.act, "modes": {}, "maintenance": ()}
        pools = {name: pool.model_copy(update=freed) for name, pool in self.pools.items()}
        default = self.default_pool.model_copy(update=freed)
        return self.model_copy(update={"default_pool": default, "pools": pools, "opted_out": {}})

    def __hash__(self) -> int:
        return hash(self.version)

    @cached_property
    def version(self) -> str:
        """A content hash: equal documents have equal versions."""
        document = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(document.encode()).hexdigest()[:12]


class PolicyRefused(ValueError):
    """The document is invalid. `complaints`: one for each wrong field, the field first."""

    def __init__(self, complaints: tuple[str, ...]) -> None:
        super().__init__("; ".join(complaints))
        self.complaints = complaints


def parse_policy(text: str) -> RecoveryPolicy:
    """Reads the document. Raises PolicyRefused for an invalid one."""
    try:
        read_json(text, object_pairs_hook=_each_once)
        policy = RecoveryPolicy.model_validate_json(text)
    except json.JSONDecodeError as error:
        raise PolicyRefused((f"it is not JSON: {error}",)) from None
    except ValidationError as error:
        complaints = complaints_of(error, RecoveryPolicy, shows_values=True)
        raise PolicyRefused(tuple(map(str, complaints))) from None
    except ValueError as error:
        raise PolicyRefused((f"document: {error}",)) from None
    return policy


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = [key for key, _ in pairs]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"the key {twice!r} stands twice; only one of them would hold")
    return dict(pairs)
