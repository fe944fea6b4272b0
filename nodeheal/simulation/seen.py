"""What the invariants look at, and what they find."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from nodeheal.contract.vocabulary import IncidentState
from nodeheal.domain.fleet.unmanaged_tasks import UnmanagedTask
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.slurm import SlurmCluster
from nodeheal.simulation.stores import SimIncidents, SimNodes, SimOperations

LIVE = (IncidentState.OPEN, IncidentState.WAITING)


@dataclass(frozen=True)
class Violation:
    """One broken promise."""

    at: float
    invariant: str
    about: str
    text: str


@dataclass(frozen=True)
class Act:
    """Something that was done to a node."""

    at: float
    verb: str
    node_id: str
    incident_id: str
    boot_id: str
    serial: str = ""  # of the one accelerator that its incident is about; empty: of none, or of several


@dataclass(frozen=True)
class Requeue:
    """A job of Slurm that was requeued from a node, and for which incident."""

    job_id: str
    node_id: str
    incident_id: str


@dataclass
class Seen:
    """What the checks look at."""

    agenda: Agenda
    ports: Ports
    nodes: SimNodes
    incidents: SimIncidents
    operations: SimOperations
    policy: RecoveryPolicy
    in_force_since: float = float("-inf")  # of this policy
    # tasks of others that were stopped for this reason, and not started again
    missing_unmanaged_tasks: Callable[[str], Sequence[UnmanagedTask]] = lambda reason: ()
    unmanaged_tasks_on: Callable[[str], Sequence[UnmanagedTask]] = lambda node_id: ()
    drained: Collection[str] = ()  # nodes that people have drained
    slurm: SlurmCluster | None = None  # what runs on the nodes, where they are Slurm's
    broken_off: Collection[str] = ()  # nodes that people were giving back, and will by the same command once more
    struck_at: list[float] = field(default_factory=list)  # when a function died, or a call of one was broken
    runs_since: float = 0.0  # the function that others may be let in beside
    boots_heard_at: dict[str, float] = field(default_factory=dict)  # by node, the newest
