"""Lists the training jobs of a cluster by their root owners, as the caller may read them. Only operators use it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError, KubernetesApi, Object
from nodeheal.adapters.kubernetes.gangs import GANG_KINDS, OF_OTHERS, GangKind, controller_of, ending_of, field_at
from nodeheal.adapters.kubernetes.notes import consents_to_restarts, owner_address, restarts_of

_LEADER_WORKER_SET = GangKind(  # it cannot be suspended
    "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets", (), "leaderworkerset.sigs.k8s.io/name"
)


@dataclass(frozen=True)
class KubernetesJob:
    """A job by its root owner. `state`: PENDING, RUNNING, SUSPENDED, COMPLETED or FAILED.

    `nodes`: where its pods run now, a node for each pod. `restarts`: those by nodeheal. `owner`: empty: nobody says.
    """

    kind: str
    namespace: str
    name: str
    state: str
    created_at: datetime
    nodes: tuple[str, ...] = ()
    restarts: int = 0
    owner: str = ""
    consents: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs again by itself."""
        return self.state in ("COMPLETED", "FAILED")


class KubernetesJobs:
    """Lists jobs of clusters."""

    def __init__(self, clusters: EksClusters) -> None:
        self._clusters = clusters

    def all(self, cluster: str) -> Sequence[KubernetesJob]:
        """Return the jobs of a cluster, of each kind that it serves; an object that another one controls is left out.

        Raises NotFound, NotAccepted; ApiError where the caller may not list them.
        """
        api = self._clusters.api(cluster)
        try:
            jobs = [job for kind in (*GANG_KINDS, _LEADER_WORKER_SET) for job in _jobs_of(kind, api)]
        except ApiError as error:
            if error.status != 401:  # of a 403 the server says what is lacking
                raise
            raise ApiError(401, error.reason, "the caller's role has no access entry there") from error
        return sorted(jobs, key=lambda job: job.created_at)


def _jobs_of(kind: GangKind, api: KubernetesApi) -> Iterator[KubernetesJob]:
    try:
        owners = [
            owner for owner in api.pages(kind.collection, fieldSelector=OF_OTHERS) if controller_of(owner) is None
        ]
    except ApiError as error:
        if error.status != 404:
            raise
        return  # the cluster does not serve this kind
    jobs = [_job(owner, kind) for owner in owners]
    running = _running(kind, api) if any(job.state == "PENDING" for job in jobs) else {}
    for job in jobs:
        nodes = running.get((job.namespace, job.name), ())
        yield replace(job, state="RUNNING", nodes=tuple(nodes)) if nodes and job.state == "PENDING" else job


def _job(owner: Object, kind: GangKind) -> KubernetesJob:
    """Return a job before its pods are known."""
    metadata = owner["metadata"]
    is_suspended = bool(kind.suspend and field_at(owner, kind.suspend))
    return KubernetesJob(
        kind=kind.kind,
        namespace=metadata["namespace"],
        name=metadata["name"],
        state=ending_of(owner) or ("SUSPENDED" if is_suspended else "PENDING"),
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        restarts=restarts_of(owner),
        owner=owner_address(owner),
        consents=consents_to_restarts(owner),
    )


def _running(kind: GangKind, api: KubernetesApi) -> Mapping[tuple[str, str], Sequence[str]]:
    """Return the nodes of the running pods of all jobs of a kind, by the job's namespace and name."""
    running = defaultdict[tuple[str, str], list[str]](list)
    for pod in api.pages("/api/v1/pods", labelSelector=kind.job_label, fieldSelector="status.phase=Running"):
        job = (pod["metadata"]["namespace"], pod["metadata"]["labels"][kind.job_label])
        running[job].append(pod["spec"]["nodeName"])
    return running
