"""Manifests of Kubernetes jobs: what is refused before any cluster is asked, and pods that are kept to chosen nodes."""

from typing import Any

import pytest

from nodeheal.adapters.kubernetes.manifests import kept_to, warnings_of
from nodeheal.adapters.kubernetes.notes import AUTO_RESUME

POD: dict[str, Any] = {"containers": [{"name": "rank", "image": "trainer:1"}]}
JOB: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "tiny"}}


def terms_of(spec: dict[str, Any]) -> Any:
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return affinity["nodeSelectorTerms"]


def named(name: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [name]}


def test_every_pod_of_a_job_is_kept_to_the_chosen_nodes() -> None:
    replicas = {role: {"replicas": 1, "template": {"spec": POD}} for role in ("Master", "Worker")}
    job = {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": replicas}}

    kept = kept_to(job, ["gpu-1", "gpu-2"])

    for replica in kept["spec"]["pytorchReplicaSpecs"].values():
        assert terms_of(replica["template"]["spec"]) == [
            {"matchFields": [named("gpu-1")]},
            {"matchFields": [named("gpu-2")]},
        ]
    assert "affinity" not in POD


def test_what_a_manifest_itself_asks_of_nodes_still_holds() -> None:
    rack = {"key": "rack", "operator": "In", "values": ["r1"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}

    kept = kept_to({"spec": {"template": {"spec": {**POD, "affinity": affinity}}}}, ["gpu-1"])

    assert terms_of(kept["spec"]["template"]["spec"]) == [{"matchExpressions": [rack], "matchFields": [named("gpu-1")]}]


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ([], "a mapping"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, "v1 Pod is no training job"),
        ({**JOB, "metadata": {"generateName": "tiny-"}}, "metadata.name"),
        ({**JOB, "metadata": {"name": "../secrets"}}, "metadata.name"),
        ({**JOB, "metadata": {"name": "tiny", "namespace": "kube-system/x"}}, "metadata.namespace"),
    ],
)
def test_what_is_no_manifest_of_a_job_is_refused_by_its_field(manifest: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        warnings_of(manifest)


def test_a_job_that_would_not_be_restarted_is_warned_of() -> None:
    assert AUTO_RESUME in " ".join(warnings_of(JOB))
    assert warnings_of({**JOB, "metadata": {"name": "tiny", "annotations": {AUTO_RESUME: "true"}}}) == []
