"""Groups of a LeaderWorkerSet: a leader pod owns its workers, so that with it the group goes, and is made again."""

from dataclasses import dataclass

from nodeheal.adapters.kubernetes.api import KubernetesApi, Object
from nodeheal.adapters.kubernetes.gangs import controller_of, is_name, is_object

_SET_LABEL = "leaderworkerset.sigs.k8s.io/name"
_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
_PLACES = {
    ("v1", "Pod"): "/api/v1/namespaces/{}/pods/{}",
    ("apps/v1", "StatefulSet"): "/apis/apps/v1/namespaces/{}/statefulsets/{}",
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): (
        "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets/{}"
    ),
}


@dataclass(frozen=True)
class Group:
    """The leader pod of a group, and the LeaderWorkerSet that has it."""

    leader: Object
    owner: Object

    @property
    def index(self) -> str:
        """Which group of its set it is."""
        return str((self.leader["metadata"].get("labels") or {}).get(_INDEX_LABEL, ""))


def group_of(pod: Object, api: KubernetesApi) -> Group | None:
    """Return the group that a pod is in, by the owners of each; None: it is in none, or in one that is ending."""
    if _SET_LABEL not in (pod["metadata"].get("labels") or {}):
        return None
    leader, owner = pod, _owner_of(pod, "StatefulSet", api)
    above = _owner_of(owner, "Pod", api)
    if above is not None:
        leader, owner = above, _owner_of(above, "StatefulSet", api)
    owner_set = _owner_of(owner, "LeaderWorkerSet", api)
    return Group(leader, owner_set) if owner_set is not None else None


def _owner_of(owned: Object | None, kind: str, api: KubernetesApi) -> Object | None:
    """Return the object of this kind that controls another one; None: none does."""
    reference = (controller_of(owned) if owned is not None else None) or {}
    path = _PLACES.get((str(reference.get("apiVersion")), str(reference.get("kind"))))
    if owned is None or path is None or reference["kind"] != kind:
        return None
    namespace, name = str(owned["metadata"]["namespace"]), str(reference["name"])
    owner = api.find(path.format(namespace, name)) if is_name(name) else None
    return owner if is_object(owner, namespace, name, str(reference["uid"])) else None
