"""What stands on the object of a job: what its owner allows, and what nodeheal has done to it."""

from collections.abc import Mapping
from typing import Any

from nodeheal.adapters.kubernetes.api import Object
from nodeheal.adapters.kubernetes.gangs import GangKind, field_at
from nodeheal.adapters.kubernetes.kueue import is_queued
from nodeheal.domain.jobs.owner import parse_owner

# An owner's consent to a restart of the whole job, and how many restarts it may have: HyperPod's annotations.
AUTO_RESUME = "sagemaker.amazonaws.com/enable-job-auto-resume"
MAX_RETRIES = "sagemaker.amazonaws.com/job-max-retry-count"
OWNER_EMAIL = "nodeheal.io/owner-email"  # whom the job belongs to: the API keeps no creator
# Our own notes on an owner: why it is suspended, why it was last restarted, and how often in all. The first one is on a
# Workload as well, for as long as it is we who have stopped it.
SUSPENDED_FOR, RESTARTED_FOR, RESTARTS = (
    "nodeheal.io/suspended-for",
    "nodeheal.io/restarted-for",
    "nodeheal.io/restarts",
)
_MANAGED_BY = (("spec", "managedBy"), ("spec", "runPolicy", "managedBy"))
_OWN_CONTROLLERS = {
    None,
    "kubernetes.io/job-controller",
    "jobset.sigs.k8s.io/jobset-controller",
    "kubeflow.org/training-operator",
    "kubeflow.org/mpi-operator",
    "trainer.kubeflow.org/trainjob-controller",  # the API server's default for a TrainJob
    "ray.io/kuberay-operator",
}


def notes_of(owner: Object) -> Mapping[str, Any]:
    """Return an object's annotations."""
    return owner["metadata"].get("annotations") or {}


def consents_to_restarts(owner: Object) -> bool:
    """Whether the owner has the job restarted when a node breaks."""
    return notes_of(owner).get(AUTO_RESUME) == "true"


def restarts_of(owner: Object) -> int:
    """Return how often nodeheal has restarted the job."""
    return _count(notes_of(owner).get(RESTARTS))


def owner_address(owner: Object) -> str:
    """Return whom the object says that the job belongs to; empty: nobody, or no email address."""
    try:
        return parse_owner(str(notes_of(owner).get(OWNER_EMAIL, ""))).address
    except ValueError:
        return ""


def may_restart(owner: Object, kind: GangKind) -> bool:
    """Whether the owner consents to one more restart, and nobody else has suspended or manages the object.

    Of a job in a queue its suspension says nothing: it is Kueue's.
    """
    notes = notes_of(owner)
    if not consents_to_restarts(owner) or not {field_at(owner, path) for path in _MANAGED_BY} <= _OWN_CONTROLLERS:
        return False
    if field_at(owner, kind.suspend) and SUSPENDED_FOR not in notes and not is_queued(owner):
        return False
    return MAX_RETRIES not in notes or restarts_of(owner) < _count(notes[MAX_RETRIES])


def _count(text: object) -> int:
    """Return a count that somebody has written; 0 where it is none."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else 0
