"""The kinds of objects that own training pods: how each is suspended, and how its pods are found."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeheal.adapters.kubernetes.api import KubernetesApi, Object
from nodeheal.contract import names


@dataclass(frozen=True)
class GangKind:
    """A kind whose objects run pods that start and end together.

    `suspend`: the field that stops all its pods, from the root of the object. `job_label`: on its pods, with its name.
    """

    api_version: str
    kind: str
    plural: str
    suspend: tuple[str, ...]
    job_label: str

    @property
    def collection(self) -> str:
        """Where the API lists the kind's objects of all namespaces."""
        return f"/apis/{self.api_version}/{self.plural}"

    def collection_in(self, namespace: str) -> str:
        """Return where the API lists and creates the kind's objects of a namespace."""
        return f"/apis/{self.api_version}/namespaces/{namespace}/{self.plural}"

    def path(self, namespace: str, name: str) -> str:
        """Return where the API has the object."""
        return f"{self.collection_in(namespace)}/{name}"


# nodeheal's own Jobs are nobody's training: its commands on nodes run in its namespace.
OF_OTHERS = f"metadata.namespace!={names.KUBERNETES_NAMESPACE}"
_TRAINING_LABEL = "training.kubeflow.org/job-name"
GANG_KINDS = (
    GangKind("batch/v1", "Job", "jobs", ("spec", "suspend"), "batch.kubernetes.io/job-name"),
    GangKind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", ("spec", "suspend"), "jobset.sigs.k8s.io/jobset-name"),
    GangKind("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", ("spec", "runPolicy", "suspend"), _TRAINING_LABEL),
    GangKind("kubeflow.org/v2beta1", "MPIJob", "mpijobs", ("spec", "runPolicy", "suspend"), _TRAINING_LABEL),
    # Its pods are those of a JobSet of its name.
    GangKind(
        "trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs", ("spec", "suspend"), "jobset.sigs.k8s.io/jobset-name"
    ),
    GangKind("ray.io/v1", "RayJob", "rayjobs", ("spec", "suspend"), "ray.io/originated-from-cr-name"),
)
_BY_KIND = {(kind.api_version, kind.kind): kind for kind in GANG_KINDS}
# What an object's conditions call its end, and a RayJob's status its jobDeploymentStatus.
_ENDINGS = {"Complete": "COMPLETED", "Completed": "COMPLETED", "Succeeded": "COMPLETED", "Failed": "FAILED"}
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_OWNERS_AT_MOST = 5  # a chain that is longer is a circle
# Between a gang and its pods there may be one of these.
_BETWEEN = {("ray.io/v1", "RayCluster"): "rayclusters"}


@dataclass(frozen=True)
class RootOwner:
    """The owner at the root of a pod. `kind` None: one that nodeheal cannot suspend; `resource` None: not read."""

    api_version: str
    kind_name: str
    name: str
    uid: str
    kind: GangKind | None
    resource: Object | None = None


def gang_kind(api_version: str, kind: str) -> GangKind:
    """Return a kind by its names. Raises KeyError."""
    return _BY_KIND[api_version, kind]


def controller_of(resource: Object) -> Mapping[str, Any] | None:
    """Return the reference to the object that controls this one; None: nothing does."""
    return next((ref for ref in resource["metadata"].get("ownerReferences") or () if ref.get("controller")), None)


def root_of(pod: Object, api: KubernetesApi) -> RootOwner | None:
    """Return the owner at the root of a pod, read as far as its kinds are known; None: it has none."""
    namespace, reference, owner = pod["metadata"]["namespace"], controller_of(pod), None
    for _ in range(_OWNERS_AT_MOST):
        if reference is None:
            return owner
        place = (str(reference["apiVersion"]), str(reference["kind"]))
        kind, between = _BY_KIND.get(place), _BETWEEN.get(place)
        owner = RootOwner(*place, str(reference["name"]), str(reference["uid"]), kind)
        if (kind is None and between is None) or not is_name(owner.name):
            return owner
        path = (
            kind.path(namespace, owner.name)
            if kind is not None
            else f"/apis/{place[0]}/namespaces/{namespace}/{between}/{owner.name}"
        )
        resource = api.find(path)
        if resource is None or not is_object(resource, namespace, owner.name, owner.uid):
            return owner
        owner = RootOwner(*place, owner.name, owner.uid, kind, resource)
        reference = controller_of(resource)
    return owner


def is_name(text: str) -> bool:
    """Whether an object can have this name, which anybody may write into a reference."""
    return _NAME.fullmatch(text) is not None


def is_object(resource: Object | None, namespace: str, name: str, uid: str) -> bool:
    """Whether this is the very object that a reference, which anybody may write, names."""
    metadata = (resource or {}).get("metadata")
    named = {"namespace": namespace, "name": name, "uid": uid}
    return isinstance(metadata, dict) and all(metadata.get(key) == value for key, value in named.items())


def ending_of(resource: Object) -> str:
    """Return COMPLETED or FAILED; empty: the object has not ended."""
    status = resource.get("status") or {}
    conditions = [each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"]
    return next((_ENDINGS[word] for word in (*conditions, status.get("jobDeploymentStatus")) if word in _ENDINGS), "")


def field_at(resource: Object, path: tuple[str, ...]) -> Any:
    """Return a field of an object; None where it, or what it is in, is absent."""
    value: Any = resource
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def patch_at(path: tuple[str, ...], value: object) -> dict[str, Any]:
    """Return the patch that sets one field."""
    patch: Any = value
    for name in reversed(path):
        patch = {name: patch}
    result: dict[str, Any] = patch
    return result
