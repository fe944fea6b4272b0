"""Defines what the invariants check, and what they find."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.cluster_jobs import SimulatedJobs
from nodeheal.simulation.stores import SimIncidents, SimNodes, SimOperations

LIVE = (IncidentState.OPEN, IncidentState.WAITING)


@dataclass(frozen=True)
class Violation:
    """One violated invariant."""

    at: float
    invariant: str
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.about}: {self.text}"


@dataclass(frozen=True)
class NodeAction:
    """One action on a node."""

    at: float
    verb: str
    node_id: str
    incident_id: str
    boot_id: str
    serial: str = ""  # of the only accelerator of its incident; empty: of none, or of several


@dataclass(frozen=True)
class Requeue:
    """A job of Slurm that was requeued from a node, or a gang of Kubernetes, and for which incident."""

    job_id: str
    node_id: str
    incident_id: str


@dataclass
class Seen:
    """The state that the checks read."""

    agenda: Agenda
    ports: Ports
    nodes: SimNodes
    incidents: SimIncidents
    operations: SimOperations
    policy: RecoveryPolicy
    outage_seconds: float = 0.0  # of all outages of the run: meanwhile an incident's end cannot be written
    in_force_since: float = float("-inf")  # of this policy
    # unmanaged tasks that were stopped for this reason, and not started again
    missing_unmanaged_tasks: Callable[[str], Sequence[UnmanagedTask]] = lambda reason: ()
    unmanaged_tasks_on: Callable[[str], Sequence[UnmanagedTask]] = lambda node_id: ()
    drained: Collection[str] = ()  # nodes that people have drained
    cluster: SimulatedJobs[Any] | None = None  # what runs on nodes of Slurm or Kubernetes
    broken_off: Collection[str] = ()  # nodes whose release was interrupted, and will be repeated
    struck_at: list[float] = field(default_factory=list)  # when a function died, or one of its calls failed
    runs_since: float = 0.0  # the function that others may be interleaved with
    boots_heard_at: dict[str, float] = field(default_factory=dict)  # by node, the newest
