"""Checks a job before it is recorded, so that a mistake is reported at once, and not by an email at night."""

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from nodeheal.contract.acts import JobPlacement
from nodeheal.contract.job_spec import JobSpec
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.node import ABSENT
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.jobs.directory_lease import overlap
from nodeheal.domain.jobs.job import Job, job_of
from nodeheal.domain.jobs.placement import Placement, never_fits
from nodeheal.domain.jobs.task_definition import misfits
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import directory_taken, look_for_nodes

NOT_YET = "(registered with the job)"


@dataclass(frozen=True)
class Plan:
    """The job as it would be recorded, where it would run now, and what to think about before it does."""

    job: Job
    placement: Placement
    doubts: tuple[str, ...] = ()


def prepare_job(spec: JobSpec, ports: Ports, policy: RecoveryPolicy) -> Plan:
    """Touches nothing. Raises ValueError for what waiting does not change, NotFound for an unknown definition."""
    cluster = cluster_of_pool(spec.pool, ports)
    definitions = ports.definitions_in(cluster)
    definition = definitions.find(spec.task_definition) if spec.task_definition else None
    wrong = misfits(spec, definition) if definition else []
    if wrong:
        raise ValueError("\n".join(wrong))
    job = job_of(spec, cluster, definition.name if definition else NOT_YET, ports.clock())
    container = definition.container(spec.container) if definition else None
    if container is not None and not job.accelerators:  # what its tasks take decides where they can run
        job = replace(job, accelerators=container.accelerators)
    _refuse_taken_directory(job, ports)
    if never := never_fits(job, ports.nodes.in_pool(job.pool)):
        raise ValueError(f"nodes: {never}")
    pauses = ports.pauses.read()
    placement = look_for_nodes(job, pauses, ports, policy)
    return Plan(job, placement, tuple(_doubts(spec, job, pauses, ports)))


def placement_of(plan: Plan) -> JobPlacement:
    """Returns where the job would run now."""
    nodes = plan.placement.nodes
    return JobPlacement(
        pool=plan.job.pool,
        cluster=plan.job.cluster.name,
        nodes=tuple(node.node_id for node in nodes),
        racks=tuple(sorted({node.rack for node in nodes if node.rack})),
        why=plan.placement.why,
    )


def differences(wanted: Job, known: Job) -> list[str]:
    """In which of its settings the recorded job is another one than the file describes."""
    compared = ["pool", "nodes", "accelerators", "container", "command", "environment", "master_port", "checkpoints"]
    compared += [
        "preflight",
        "restarts",
        "hang_seconds",
        "steps",
        "only_nodes",
        "exclude_nodes",
        "spares",
        "priority",
        "owner",
    ]
    if wanted.task_definition != NOT_YET:  # one that is made of the file is not made again to compare it
        compared.insert(0, "task_definition")
    changed = [name for name in compared if getattr(wanted, name) != getattr(known, name)]
    # What its task definition was made of is in no field of the job.
    made = [name for name in wanted.made_of if name not in changed]
    return [*changed, *(name for name in made if wanted.made_of[name] != known.made_of.get(name))]


def _refuse_taken_directory(job: Job, ports: Ports) -> None:
    """Raises ValueError where another job that lives has named it. The lease on it is taken when nodes are chosen."""
    if job.checkpoints is None:
        return
    alive = (other for pool in ports.fleet_index.pools() for other in ports.job_notes.in_pool(pool, live_only=True))
    for other in alive:
        theirs = other.checkpoints.directory if other.checkpoints is not None else None
        is_another = other.job_id != job.job_id and not other.is_over
        if is_another and theirs is not None and overlap(theirs, job.checkpoints.directory):
            raise ValueError(directory_taken(job, other.job_id, ports))


def cluster_of_pool(pool: str, ports: Ports) -> Cluster:
    """Returns the cluster of the pool's nodes. Raises ValueError where there are none, or several."""
    clusters = sorted({node.cluster for node in ports.nodes.in_pool(pool) if node.state not in ABSENT})
    if len(clusters) > 1:
        named = ", ".join(f"{cluster.name} of {cluster.kind}" for cluster in clusters)
        raise ValueError(f"pool: the nodes of {pool} are in several clusters ({named}); a job runs in one")
    if not clusters:
        raise ValueError(f"pool: {pool} has no node that its agent has reported")
    return clusters[0]


def _doubts(spec: JobSpec, job: Job, pauses: Pauses, ports: Ports) -> list[str]:
    return [*(file_doubts(spec)), *_doubts_of_nodes(job, pauses, ports)]


def file_doubts(spec: JobSpec) -> list[str]:
    """Returns what is probably a mistake in a job file, judged from the file alone."""
    return [*_doubts_of_checkpoints(spec), *_doubts_of_network(spec)]


def _doubts_of_checkpoints(spec: JobSpec) -> list[str]:
    if spec.checkpoints is None:
        return [
            "checkpoints: without a directory, nodeheal cannot tell a run where to resume; it finds out, or restarts"
        ]
    directory = PurePosixPath(spec.checkpoints.directory)
    writable = [PurePosixPath(mount.source) for mount in spec.mounts if not mount.read_only]
    if spec.image is not None and not any(directory.is_relative_to(source) for source in writable):
        return [
            f"checkpoints.directory: no mount lets the container write to {directory}; what it saves is lost with it"
        ]
    return []


def _doubts_of_network(spec: JobSpec) -> list[str]:
    """NCCL takes TCP where it sees no fabric, and reports no error."""
    if spec.image is None or spec.devices or spec.nodes == 1 or not spec.accelerators:
        return []
    return [
        "devices: the container sees no EFA or InfiniBand adapter, so NCCL uses TCP between the nodes; "
        "where they have one, give devices: [/dev/infiniband]"
    ]


def _doubts_of_nodes(job: Job, pauses: Pauses, ports: Ports) -> list[str]:
    known = [node for node in ports.nodes.in_pool(job.pool) if node.state not in ABSENT]
    paused = pauses.why_pool_is_paused(job.pool, ports.clock())
    notes = [f"pool: {paused}: the job waits until it is not"] if paused else []
    if len(known) == job.nodes:  # a job that spares were needed for never fits
        notes.append(
            f"nodes: it takes every node of {job.pool}: when one breaks, the job waits until that one is healed"
        )
    return notes
