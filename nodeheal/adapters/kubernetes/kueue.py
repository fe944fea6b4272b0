"""Kueue's Workloads: a job in a queue is stopped and started by its Workload, and Kueue undoes a suspend of the job."""

from dataclasses import dataclass

from nodeheal.adapters.kubernetes.api import KubernetesApi, Object
from nodeheal.adapters.kubernetes.gangs import controller_of

_QUEUE = "kueue.x-k8s.io/queue-name"
_JOB_UID = "kueue.x-k8s.io/job-uid"


@dataclass(frozen=True)
class Workload:
    """A job's Workload as it was read, and where the API has it."""

    path: str
    resource: Object

    @property
    def is_active(self) -> bool:
        """Whether it may be in the queue; false: somebody has stopped it."""
        return bool(self.resource["spec"].get("active", True))

    @property
    def is_evicted(self) -> bool:
        """Whether Kueue has stopped its job, and not admitted it again."""
        conditions = self.resource.get("status", {}).get("conditions") or ()
        return any(each["type"] == "Evicted" and each["status"] == "True" for each in conditions)


def is_queued(owner: Object) -> bool:
    """Whether its people have put the job into a queue."""
    return _QUEUE in (owner["metadata"].get("labels") or {})


def workload_of(api: KubernetesApi, owner: Object) -> Workload | None:
    """Return the Workload of a job, in the API version that the server prefers; None: it does not have just one."""
    group = api.find("/apis/kueue.x-k8s.io")
    if group is None:
        return None
    metadata, version = owner["metadata"], group["preferredVersion"]["groupVersion"]
    path = f"/apis/{version}/namespaces/{metadata['namespace']}/workloads"
    labelled = api.pages(path, labelSelector=f"{_JOB_UID}={metadata['uid']}")
    owned = [resource for resource in labelled if (controller_of(resource) or {}).get("uid") == metadata["uid"]]
    return Workload(f"{path}/{owned[0]['metadata']['name']}", owned[0]) if len(owned) == 1 else None
