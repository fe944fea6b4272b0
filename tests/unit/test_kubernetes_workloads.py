"""Whose gang may be restarted, as far as its own object says it; tests/kubernetes asks a real API server the rest."""

import json
from typing import Any

import pytest

from nodeheal.adapters.kubernetes.gangs import ending_of, gang_kind
from nodeheal.adapters.kubernetes.notes import AUTO_RESUME, OWNER_EMAIL, SUSPENDED_FOR, may_restart, owner_address

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
    ids=[
        "consent",
        "its own operator",
        "managed elsewhere",
        "suspended by Kueue",
        "suspended",
        "suspended by nodeheal",
    ],
)
def test_a_gang_that_another_system_suspends_and_resumes_is_left_to_it(found: dict[str, Any], is_ours: bool) -> None:
    assert may_restart(found, PYTORCH_JOB) is is_ours


def test_a_train_job_names_its_own_controller_unasked() -> None:
    found = job()
    found["spec"] = {"managedBy": "trainer.kubeflow.org/trainjob-controller"}

    assert may_restart(found, gang_kind("trainer.kubeflow.org/v1alpha1", "TrainJob"))


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ({}, ""),
        ({"conditions": [{"type": "Failed", "status": "False"}]}, ""),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, "COMPLETED"),
        ({"conditions": [{"type": "Succeeded", "status": "True"}]}, "COMPLETED"),
        ({"conditions": [{"type": "Running", "status": "False"}, {"type": "Failed", "status": "True"}]}, "FAILED"),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, "COMPLETED"),
        ({"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}, ""),
    ],
    ids=json.dumps,
)
def test_each_kind_says_in_its_own_words_that_it_has_ended(status: dict[str, Any], ending: str) -> None:
    assert ending_of({"status": status}) == ending


@pytest.mark.parametrize(
    ("email", "owner"),
    [
        ("Ada <Ada@example.com>", "ada@example.com"),
        ("ada@example.com\nBcc: eve@example.com", ""),
        ("ada", ""),
        ("", ""),
    ],
)
def test_a_job_belongs_to_the_address_that_it_bears(email: str, owner: str) -> None:
    assert owner_address(job(notes={OWNER_EMAIL: email})) == owner
