"""Whose gang may be restarted, as far as its own object says it; tests/kubernetes asks a real API server the rest."""

from typing import Any

import pytest

from nodeheal.adapters.kubernetes.gangs import gang_kind
from nodeheal.adapters.kubernetes.workloads import AUTO_RESUME, SUSPENDED_FOR, _may_restart

PYTORCH_JOB = gang_kind("kubeflow.org/v1", "PyTorchJob")


def job(*, notes: dict[str, str] | None = None, labels: dict[str, str] | None = None, **policy: Any) -> dict[str, Any]:
    """One whose owner consents."""
    metadata = {"annotations": {AUTO_RESUME: "true", **(notes or {})}, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"runPolicy": policy}}


@pytest.mark.parametrize(
    ("found", "is_ours"),
    [
        (job(), True),
        (job(managedBy="kubeflow.org/training-operator"), True),
        (job(managedBy="kueue.x-k8s.io/multikueue"), False),
        (job(labels={"kueue.x-k8s.io/queue-name": "gpus"}, suspend=True), True),
        (job(suspend=True), False),
        (job(suspend=True, notes={SUSPENDED_FOR: "nodeheal: recovery inc-1"}), True),
    ],
    ids=["consent", "its own operator", "managed elsewhere", "suspended by Kueue", "suspended", "suspended by nodeheal"],
)
def test_a_gang_that_another_system_suspends_and_resumes_is_left_to_it(found: dict[str, Any], is_ours: bool) -> None:
    assert _may_restart(found, PYTORCH_JOB) is is_ours
