"""A job in a queue of Kueue's is restarted once by its Workload, queues again, and is left to Kueue and to people."""

from typing import Any

import pytest

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.kubernetes.notes import MAX_RETRIES, RESTARTED_FOR, RESTARTS, SUSPENDED_FOR
from nodeheal.domain.errors import NotAccepted, PlacementRefused
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from tests.kubernetes.cluster import Cluster, Object
from tests.kubernetes.job_controllers import (
    JOB_SETS,
    KUEUE,
    PYTORCH_JOBS,
    job_set,
    pytorch_job,
    queue_of,
    true_conditions,
)
from tests.kubernetes.node_records import record_of
from tests.kubernetes.workloads import CONSENT, REASON, Place

WORKLOADS = f"{KUEUE}/namespaces/default/workloads"
pytestmark = pytest.mark.usefixtures("plane_with_kueue")


class Queued(Place):
    """A gang of two pods on the first node, which Kueue has admitted there."""

    def __init__(self, cluster: Cluster, clusters: EksClusters) -> None:
        super().__init__(cluster, clusters)
        self.queue = queue_of(cluster)
        self.job = self.label = self.workload = ""

    def starts(self, kind: str = "jobset", script: str = "", **notes: str) -> None:
        name = self.cluster.name(kind)
        if kind == "pytorch":
            path, body, self.label = PYTORCH_JOBS, pytorch_job(name), f"training.kubeflow.org/job-name={name}"
        else:
            path, body, self.label = JOB_SETS, job_set(name), f"jobset.sigs.k8s.io/jobset-name={name}"
        if script:
            body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["command"] = [
                "sh",
                "-c",
                script,
            ]
        body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": self.queue}
        self.job = self.runs(path, body, self.label, 2, **notes)
        uid = self.cluster.api.get(self.job)["metadata"]["uid"]
        [found] = self.cluster.api.get(WORKLOADS, labelSelector=f"kueue.x-k8s.io/job-uid={uid}")["items"]
        self.workload = f"{WORKLOADS}/{found['metadata']['name']}"

    def is_active(self) -> bool:
        return bool(self.cluster.api.get(self.workload)["spec"]["active"])

    def waits(self, condition: str) -> None:
        self.cluster.wait(lambda: condition in true_conditions(self.cluster, self.workload), f"it is {condition}")


@pytest.fixture
def queued(cluster: Cluster, clusters: EksClusters) -> Queued:
    return Queued(cluster, clusters)


@pytest.mark.parametrize("kind", ["pytorch", "jobset"])
def test_a_job_of_a_queue_is_evicted_whole_and_queues_again_once(queued: Queued, kind: str) -> None:
    queued.starts(kind, **CONSENT, **{MAX_RETRIES: "1"})
    task = queued.isolates()
    uids = {pod["metadata"]["uid"] for pod in queued.cluster.pods(queued.label)}

    answers = [queued.stops(task) for _ in range(2)]

    queued.cluster.wait(lambda: queued.running(queued.label, queued.other) == 2, "both ranks run on the other node")
    again = {pod["metadata"]["uid"] for pod in queued.cluster.pods(queued.label)}
    notes = queued.notes(queued.job)
    assert (task.may_be_stopped, answers, uids & again) == (True, [True, True], set())
    assert task.name.endswith(", which queues again at Kueue")
    assert (notes[RESTARTED_FOR], notes[RESTARTS], SUSPENDED_FOR in notes) == (REASON, "1", False)
    assert (queued.is_active(), SUSPENDED_FOR in queued.notes(queued.workload)) == (True, False)
    assert "Requeued" in true_conditions(queued.cluster, queued.workload)
    queued.node = record_of(queued.other)
    assert not queued.task().may_be_stopped  # its one restart is spent


def test_what_died_between_the_two_last_writes_is_completed_and_no_second_restart(queued: Queued) -> None:
    """The count is on the job, and its Workload is still stopped by us."""
    queued.starts(**CONSENT)
    task = queued.isolates()
    held = UnmanagedTask(**{**vars(task), "is_held": True})
    assert queued.stops(held)
    queued.cluster.api.patch(queued.job, {"metadata": {"annotations": {RESTARTED_FOR: REASON, RESTARTS: "1"}}})

    assert queued.stops(task)

    queued.cluster.wait(lambda: queued.running(queued.label, queued.other) == 2, "both ranks run on the other node")
    assert queued.notes(queued.job)[RESTARTS] == "1"


def test_one_whose_pods_have_ended_late_queues_again_afterwards(queued: Queued) -> None:
    queued.starts(**CONSENT)
    task = queued.isolates()
    with pytest.raises(NotAccepted, match="Kueue is evicting JobSet"):
        queued.workloads.stop_unmanaged_task(queued.node, task, REASON)
    queued.cluster.wait(lambda: not queued.cluster.pods(queued.label), "nothing of it is left")

    assert queued.workloads.restart_unmanaged_task(queued.node, task) == task.task_id

    queued.cluster.wait(lambda: queued.running(queued.label, queued.other) == 2, "both ranks run on the other node")
    with pytest.raises(PlacementRefused, match="is not stopped by nodeheal"):
        queued.workloads.restart_unmanaged_task(queued.node, task)
    assert queued.notes(queued.job)[RESTARTS] == "1"


def test_one_that_is_held_stays_out_of_the_queue_for_a_person(queued: Queued) -> None:
    queued.starts(**CONSENT)
    task = queued.isolates()

    assert queued.stops(UnmanagedTask(**{**vars(task), "is_held": True}))

    assert (queued.is_active(), queued.cluster.pods(queued.label)) == (False, [])
    assert RESTARTS not in queued.notes(queued.job)


def test_what_kueue_evicts_by_itself_is_left_to_it_and_said(queued: Queued) -> None:
    queued.starts(script="trap '' TERM; sleep 60 & wait; wait", **CONSENT)
    before = queued.isolates()
    queued.cluster.api.patch(f"{KUEUE}/clusterqueues/{queued.queue}", {"spec": {"stopPolicy": "HoldAndDrain"}})
    queued.waits("Evicted")

    task = queued.task()

    assert (task.before, task.name) == ("was evicted by Kueue, and queues there again", before.name.partition(",")[0])
    assert not queued.stops(before)
    assert (queued.is_active(), SUSPENDED_FOR in queued.notes(queued.job)) == (True, False)


def test_what_a_person_has_stopped_stays_so(queued: Queued) -> None:
    queued.starts(script="trap '' TERM; sleep 60 & wait; wait", **CONSENT)
    before = queued.isolates()
    queued.cluster.api.patch(queued.workload, {"spec": {"active": False}})
    queued.waits("Evicted")

    task = queued.task()

    assert (task.may_be_stopped, task.before, queued.stops(before)) == (False, "", False)
    assert not queued.is_active()


def test_what_a_person_has_started_again_meanwhile_is_not_stopped_again(queued: Queued) -> None:
    queued.starts(**CONSENT)
    task = queued.isolates()
    with pytest.raises(NotAccepted, match="Kueue is evicting JobSet"):
        queued.workloads.stop_unmanaged_task(queued.node, task, REASON)
    queued.cluster.api.patch(queued.workload, {"spec": {"active": True}})

    assert not queued.workloads.stop_unmanaged_task(queued.node, task, REASON)

    assert queued.is_active()


def test_without_the_owners_consent_the_workload_is_not_touched(queued: Queued) -> None:
    queued.starts()
    task = queued.isolates()

    with pytest.raises(NotAccepted, match="does not consent to restarts"):
        queued.workloads.stop_unmanaged_task(queued.node, task, REASON)

    assert not task.may_be_stopped
    assert (queued.is_active(), queued.running(queued.label, queued.broken)) == (True, 2)


def test_a_workload_of_another_job_is_none_of_this_one(queued: Queued) -> None:
    """Whoever may create Workloads can label them as they like."""
    queued.starts(**CONSENT)
    found = queued.cluster.api.get(queued.workload)
    name = queued.cluster.name("forged")
    metadata = {"name": name, "labels": found["metadata"]["labels"]}
    spec = {"queueName": "none", "podSets": found["spec"]["podSets"]}
    queued.cluster.create(WORKLOADS, {**found, "metadata": metadata, "spec": spec, "status": {}})

    assert queued.stops(queued.isolates())

    assert SUSPENDED_FOR not in queued.notes(f"{WORKLOADS}/{name}")
    assert queued.notes(queued.job)[RESTARTS] == "1"


def test_of_a_workload_the_functions_change_whether_it_is_active_with_a_note(queued: Queued) -> None:
    queued.starts(**CONSENT)
    ours: Object = {"annotations": {SUSPENDED_FOR: REASON}}
    refused: list[dict[str, Any]] = [
        {"spec": {"active": False}},
        {"spec": {"active": False, "priority": 9}, "metadata": ours},
        {"spec": {"priority": 9}},
        {"metadata": {"annotations": {"kueue.x-k8s.io/mine": "yes"}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"finalizers": []}},
    ]

    for change in refused:
        assert refusal(queued, queued.workload, change) == 403, change
    assert refusal(queued, f"{queued.workload}/status", {"status": {"conditions": []}}) == 403
    queued.api.patch(queued.workload, {"spec": {"active": False}, "metadata": ours})
    queued.api.patch(queued.workload, {"metadata": {"annotations": {SUSPENDED_FOR: None}}})
    assert refusal(queued, queued.workload, {"spec": {"active": True}, "metadata": ours}) == 403


def refusal(queued: Queued, path: str, change: dict[str, Any]) -> int:
    with pytest.raises(ApiError) as refused:
        queued.api.patch(path, change)
    return refused.value.status
