"""Creates a training job from a person's manifest, as `kubectl create` does, with the caller's own credentials."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import Object
from nodeheal.adapters.kubernetes.gangs import GANG_KINDS, gang_kind, is_name
from nodeheal.adapters.kubernetes.node_words import KubernetesNodeWords
from nodeheal.adapters.kubernetes.notes import AUTO_RESUME, consents_to_restarts
from nodeheal.domain.fleet.node import Node

_DEFAULT_NAMESPACE = "default"


class KubernetesManifests:
    """Creates jobs in clusters."""

    def __init__(self, clusters: EksClusters) -> None:
        self._clusters, self._words = clusters, KubernetesNodeWords(clusters)

    def create(self, cluster: str, manifest: object, nodes: Sequence[Node], *, is_trial: bool) -> str:
        """Create the job of the manifest and return its kind, namespace and name. `nodes`: its pods go only to these;
        empty: the scheduler chooses. `is_trial`: the API server checks it, and nothing is created.

        Raises ValueError for what is no manifest of a job; ApiError, NotFound and NotAccepted.
        """
        job = _checked(manifest)
        if nodes:
            job = kept_to(job, [self._words.of(node).name for node in nodes])
        kind, metadata = gang_kind(job["apiVersion"], job["kind"]), job["metadata"]
        namespace = metadata.get("namespace", _DEFAULT_NAMESPACE)
        trial = "?dryRun=All" if is_trial else ""
        created = self._clusters.api(cluster).post(f"{kind.collection_in(namespace)}{trial}", job)["metadata"]
        return f"{job['kind']} {created['namespace']}/{created['name']}"


def warnings_of(manifest: object) -> list[str]:
    """Return what a person should know before they create the job. Raises ValueError as `create` does."""
    if consents_to_restarts(_checked(manifest)):
        return []
    return [f'nodeheal will not restart it when a node breaks: that takes the annotation {AUTO_RESUME}: "true"']


def kept_to(job: Object, names: Sequence[str]) -> dict[str, Any]:
    """Return the job with every pod kept to the nodes of these names, beside what the manifest itself asks of nodes."""
    kept: dict[str, Any] = json.loads(json.dumps(job))  # a YAML alias may stand for one mapping in two places
    for spec in _pod_specs(kept):
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
        # One term for each node: a node's name is matched against a single value.
        required["nodeSelectorTerms"] = [
            {**term, "matchFields": [*term.get("matchFields", ()), _is_named(name)]}
            for term in required.get("nodeSelectorTerms") or [{}]
            for name in names
        ]
    return kept


def _is_named(name: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [name]}


def _pod_specs(value: object) -> Iterator[dict[str, Any]]:
    """Yield the specification of every pod template within."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        else:
            for inner in value.values():
                yield from _pod_specs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _pod_specs(inner)


def _checked(manifest: object) -> dict[str, Any]:
    known = {(kind.api_version, kind.kind) for kind in GANG_KINDS}
    if not isinstance(manifest, dict):
        raise ValueError("a manifest is a mapping with apiVersion, kind, metadata and spec")
    place = (manifest.get("apiVersion"), manifest.get("kind"))
    if place not in known:
        kinds = ", ".join(f"{version} {kind}" for version, kind in sorted(known))
        raise ValueError(f"kind: {place[0]} {place[1]} is no training job; known: {kinds}. Use kubectl for others")
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or not is_name(str(metadata.get("name", ""))):
        raise ValueError("metadata.name: give lower-case letters, digits, '-' and '.': by it the job is created once")
    if not is_name(str(metadata.get("namespace", _DEFAULT_NAMESPACE))):
        raise ValueError("metadata.namespace: it is no name of a namespace")
    return manifest
