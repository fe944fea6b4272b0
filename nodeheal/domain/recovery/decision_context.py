"""The context of a decision: other nodes, other jobs, the pool, and the node's own past."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.steps import Reservation
from nodeheal.contract.vocabulary import Action, Family, Provider
from nodeheal.domain.fleet.node import PastRecovery
from nodeheal.domain.fleet.pause import NO_PAUSES, Pauses
from nodeheal.domain.fleet.pool import Pool


@dataclass(frozen=True)
class Observation:
    """One fault that was seen somewhere in the pool, and the job that ran there."""

    event_id: str
    node_id: str
    at: datetime
    family: Family
    code: str
    subcode: str | None = None
    component: str | None = None
    boot_id: str = ""
    job_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    note: str = ""  # why it led to no incident, where it did not
    is_drill: bool = False  # an operator has injected it


@dataclass(frozen=True)
class DecisionContext:
    """Everything that a decision needs beside the incident's own history. The defaults describe an unknown node."""

    provider: Provider = Provider.hybrid
    takes_commands: bool = True  # diagnostics among them
    pool_nodes: int = 0
    boot_id: str = ""  # the boot that the node runs now; empty: as when the incident began
    booted_at: datetime | None = None
    agent_since: datetime | None = None  # when the agent's current version was first heard
    healthy_since: datetime | None = None  # when the node last passed its diagnostics
    job_is_running: bool = False
    is_job_broken: bool = False  # a rank of its run has failed, or was on an earlier boot of this node
    why_no_restart: str = ""  # why there is nothing to restart, after the job's name; empty: there is
    run_started_at: datetime | None = None  # of the job's newest run
    recoveries: tuple[PastRecovery, ...] = ()
    spent: Mapping[tuple[str, Action], int] = field(default_factory=dict)  # by (scope, group), in the policy's windows
    observations: tuple[Observation, ...] = ()  # of the whole pool, this node included
    # The node's machine runs on capacity that was bought ahead; known once it is isolated.
    has_reserved_capacity: bool = False
    is_released_or_retired: bool = False  # the node is no longer this incident's: a human has given it back, or up
    pool: Pool = field(default_factory=lambda: Pool(""))  # its breaker
    job_limits: tuple[Reservation, ...] = ()  # what the job itself allows: reserved beside what the policy does
    free_nodes: int = 0  # on which the job could go on at once; asked for only where it was stopped
    replacement_node: str = (
        ""  # where there are none: a free node on which it could, once it has passed its diagnostics
    )
    # What recoveries of the pool's nodes took, by what brought them back, and what their diagnoses took: the newest.
    recovery_seconds: Mapping[Action, tuple[float, ...]] = field(default_factory=dict)
    proof_seconds: tuple[float, ...] = ()
    pauses: Pauses = NO_PAUSES


def observation_of(event: HealthEvent, job_id: str | None, note: str = "") -> Observation:
    """Returns what other incidents need to know of an event."""
    return Observation(
        event_id=event.event_id,
        node_id=event.node_id,
        at=event.observed_at,
        family=event.family,
        code=event.code,
        subcode=event.subcode,
        component=event.component,
        boot_id=event.boot_id,
        job_id=job_id,
        labels=dict(event.labels),
        note=note,
        is_drill=DRILL_MARK in event.evidence,
    )


def node_scope(node_id: str) -> str:
    """The scope of the attempts ledger for a node."""
    return f"node#{node_id}"


def accelerator_scope(serial: str) -> str:
    """The scope for an accelerator, in whatever node it is."""
    return f"accelerator#{serial}"


def job_scope(job_id: str) -> str:
    """The scope for a training job."""
    return f"job#{job_id}"
