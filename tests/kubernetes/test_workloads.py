"""A gang is restarted whole, once, where its owner consents; pods of services are evicted within their budgets."""

import json
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.adapters.kubernetes.access import EksClusters
from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.kubernetes.notes import AUTO_RESUME, MAX_RETRIES, RESTARTED_FOR, RESTARTS, SUSPENDED_FOR
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.errors import NotAccepted, PlacementRefused
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from tests.kubernetes.cluster import Cluster, Object, is_on, shell
from tests.kubernetes.job_controllers import JOB_SETS, JOBS, PYTORCH_JOBS, job_set, pytorch_job
from tests.kubernetes.node_records import record_of
from tests.kubernetes.workloads import CONSENT, REASON, Place

PODS = "/api/v1/namespaces/default/pods"
pytestmark = pytest.mark.usefixtures("plane_with_jobs")


@pytest.fixture
def place(cluster: Cluster, clusters: EksClusters) -> Place:
    return Place(cluster, clusters)


def training(place: Place, kind: str, **notes: str) -> tuple[str, str]:
    """A gang of two pods on the first node: where it is, and the label of its pods."""
    name = place.cluster.name(kind)
    if kind == "pytorch":
        label = f"training.kubeflow.org/job-name={name}"
        return place.runs(PYTORCH_JOBS, pytorch_job(name), label, 2, **notes), label
    label = f"jobset.sigs.k8s.io/jobset-name={name}"
    return place.runs(JOB_SETS, job_set(name), label, 2, **notes), label


def job_of(name: str, **spec: Any) -> Object:
    pods = {"spec": {"restartPolicy": "Never", "containers": [shell("sleep 60")]}}
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": pods, **spec}}


@pytest.mark.parametrize("kind", ["pytorch", "jobset"])
def test_a_gang_is_restarted_whole_and_once_on_other_nodes(place: Place, kind: str) -> None:
    path, label = training(place, kind, **CONSENT)
    task = place.isolates()
    uids = {pod["metadata"]["uid"] for pod in place.cluster.pods(label)}

    answers = [place.stops(task) for _ in range(2)]

    place.cluster.wait(lambda: place.running(label, place.other) == 2, "both ranks run on the other node")
    again = {pod["metadata"]["uid"] for pod in place.cluster.pods(label)}
    notes = place.notes(path)
    assert (task.may_be_stopped, answers, uids & again) == (True, [True, True], set())
    assert (notes[RESTARTED_FOR], notes[RESTARTS], SUSPENDED_FOR in notes) == (REASON, "1", False)
    assert place.tasks() == []


BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
AUTO_RESTART = {
    "metadata": {"name": "job-auto-restart"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "job-auto-restart"},
    "subjects": [
        {"kind": "User", "name": "hyperpod-service-linked-role", "apiGroup": "rbac.authorization.k8s.io"},
    ],
}


def test_what_hyperpod_restarts_by_itself_is_left_to_it_on_its_nodes(place: Place) -> None:
    training(place, "pytorch", **CONSENT)
    place.node = replace(place.node, provider=Provider.hyperpod)
    assert place.isolates().may_be_stopped

    place.cluster.create(BINDINGS, AUTO_RESTART)

    task = place.task()
    assert (task.may_be_stopped, "which HyperPod restarts by itself" in task.name) == (False, True)
    place.node = replace(place.node, provider=Provider.ec2)
    assert place.task().may_be_stopped


def test_a_pod_of_hyperpods_own_job_is_moved_off_the_node_and_its_job_is_left_alone(place: Place) -> None:
    place.name = name = place.cluster.name("hyperpod")
    owner = {"apiVersion": "sagemaker.amazonaws.com/v1", "kind": "HyperPodPyTorchJob", "name": name, "uid": "0000"}
    metadata = {"name": name, "ownerReferences": [{**owner, "controller": True}]}
    spec = {"nodeName": place.broken.name, "containers": [shell("sleep 60")], "terminationGracePeriodSeconds": 1}
    place.cluster.create(PODS, {"metadata": metadata, "spec": spec})
    task = place.isolates()

    assert (task.may_be_stopped, f"of HyperPodPyTorchJob {name}" in task.name) == (True, True)
    assert place.stops(task)
    place.cluster.wait(lambda: not place.cluster.pod(name), "the pod has gone")


def test_while_its_pods_are_ending_a_gang_is_not_resumed(place: Place) -> None:
    path, _ = training(place, "pytorch", **CONSENT)
    task = place.isolates()

    with pytest.raises(NotAccepted, match="is suspended, and 2 pods are ending"):
        place.workloads.stop_unmanaged_task(place.node, task, REASON)

    assert place.notes(path)[SUSPENDED_FOR] == REASON
    assert place.stops(task)


def test_a_gang_that_a_person_has_resumed_meanwhile_is_not_suspended_again(place: Place) -> None:
    path, _ = training(place, "jobset", **CONSENT)
    task = place.isolates()
    with pytest.raises(NotAccepted, match="2 pods are ending"):
        place.workloads.stop_unmanaged_task(place.node, task, REASON)
    place.cluster.api.patch(path, {"spec": {"suspend": False}})

    assert not place.workloads.stop_unmanaged_task(place.node, task, REASON)

    assert place.cluster.api.get(path)["spec"]["suspend"] is False


def test_a_gang_whose_pods_have_ended_late_is_resumed_afterwards_and_once(place: Place) -> None:
    """The step's deadline was over before the node came back."""
    path, label = training(place, "pytorch", **CONSENT)
    task = place.isolates()
    with pytest.raises(PlacementRefused, match="is not stopped by nodeheal"):
        place.workloads.restart_unmanaged_task(place.node, task)
    place.broken.power_off()
    place.cluster.wait(lambda: place.cluster.condition(place.broken.name) == "Unknown", "the node is Unknown")
    with pytest.raises(NotAccepted, match="2 pods are ending"):
        place.workloads.stop_unmanaged_task(place.node, task, REASON)
    with pytest.raises(PlacementRefused, match="2 pods are ending"):
        place.workloads.restart_unmanaged_task(place.node, task)
    place.cluster.plane.kubectl("delete", "pods", "-l", label, "--force", "--wait=false")
    place.cluster.wait(lambda: not place.cluster.pods(label), "nothing of it is left")

    assert place.workloads.restart_unmanaged_task(place.node, task) == task.task_id

    place.cluster.wait(lambda: place.running(label, place.other) == 2, "both ranks run on the other node")
    with pytest.raises(PlacementRefused, match="is not stopped by nodeheal"):
        place.workloads.restart_unmanaged_task(place.node, task)
    assert (place.notes(path)[RESTARTED_FOR], place.notes(path)[RESTARTS]) == (REASON, "1")


OUT_OF_SERVICE = ("node.kubernetes.io/out-of-service", "NoExecute")


def without_power(place: Place) -> tuple[UnmanagedTask, str]:
    """A gang that was suspended on a node without power, whose pods never end; and the label of its pods."""
    _, label = training(place, "pytorch", **CONSENT)
    task = place.isolates()
    place.broken.power_off()
    place.cluster.wait(lambda: place.cluster.condition(place.broken.name) == "Unknown", "the node is Unknown")
    return task, label


# Up to 20 s: so often a controller of Kubernetes looks for such pods.
@pytest.mark.parametrize("state", ["stopped", "terminated"])
def test_pods_of_a_machine_that_is_proven_off_are_forgotten_and_the_gang_goes_on(place: Place, state: str) -> None:
    task, label = without_power(place)
    place.machines[place.node.instance_id] = state

    assert place.stops(task)

    place.cluster.wait(lambda: place.running(label, place.other) == 2, "both ranks run on the other node")
    assert OUT_OF_SERVICE in place.cluster.taints(place.broken.name)
    place.gate.undrain(place.node, place.gate.placement_of(place.node))
    left = {key for key, _ in place.cluster.taints(place.broken.name)}
    assert {key for key in left if key.startswith("nodeheal.io/") or key == OUT_OF_SERVICE[0]} == set()


def test_without_proof_that_the_machine_is_off_no_pod_is_forgotten(place: Place) -> None:
    """A node that does not answer may compute on, and so may a machine that EC2 does not know."""
    task, _ = without_power(place)
    elsewhere = replace(place.node, provider=Provider.hyperpod)
    cases = [(place.node, {place.node.instance_id: state}) for state in ("running", "stopping", "shutting-down")]

    for node, machines in [*cases, (place.node, {}), (elsewhere, {elsewhere.instance_id: "stopped"})]:
        place.machines = machines
        with pytest.raises(NotAccepted, match="2 pods are ending"):
            place.workloads.stop_unmanaged_task(node, task, REASON)

        assert OUT_OF_SERVICE not in place.cluster.taints(place.broken.name), machines


def test_pods_of_another_node_are_not_forgotten_for_a_machine_that_is_off(place: Place) -> None:
    task, _ = without_power(place)
    place.machines[place.node.instance_id] = "stopped"
    elsewhere = replace(place.node, instance_id=record_of(place.other).instance_id)
    place.machines[elsewhere.instance_id] = "stopped"
    place.gate.drain_all([elsewhere], [elsewhere.node_id])

    with pytest.raises(NotAccepted, match="2 pods are ending"):
        place.workloads.stop_unmanaged_task(elsewhere, task, REASON)

    for kubelet in (place.broken, place.other):
        assert OUT_OF_SERVICE not in place.cluster.taints(kubelet.name)


def test_an_out_of_service_taint_of_a_person_stays(place: Place) -> None:
    place.gate.drain_all([place.node], [place.node.node_id])
    place.cluster.plane.kubectl(
        "taint", "node", place.broken.name, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    )
    place.gate.take_out_of_service(place.node, [place.broken.name])

    place.gate.undrain(place.node, place.gate.placement_of(place.node))

    assert OUT_OF_SERVICE in place.cluster.taints(place.broken.name)


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {AUTO_RESUME: "yes"},
        {**CONSENT, MAX_RETRIES: "0"},
        {**CONSENT, MAX_RETRIES: "2", RESTARTS: "2"},
        {**CONSENT, MAX_RETRIES: "many"},
    ],
    ids=json.dumps,
)
def test_a_gang_whose_owner_does_not_consent_is_named_and_left(place: Place, notes: dict[str, str]) -> None:
    path, label = training(place, "pytorch", **notes)
    task = place.isolates()

    assert (task.may_be_stopped, "PyTorchJob default/pytorch-" in task.name) == (False, True)
    assert place.running(label, place.broken) == 2
    assert not place.workloads.stop_unmanaged_task(place.node, task, REASON)  # it may have been listed before
    if AUTO_RESUME not in notes:  # and the API server would refuse it, whatever our code believes
        with pytest.raises(ApiError, match="does not consent to restarts"):
            place.api.patch(path, {"spec": {"runPolicy": {"suspend": True}}})
    assert SUSPENDED_FOR not in place.notes(path)


def test_one_that_is_held_stays_suspended_for_a_person(place: Place) -> None:
    path, label = training(place, "jobset", **CONSENT)
    task = place.isolates()
    held = UnmanagedTask(**{**vars(task), "is_held": True})

    assert place.stops(held)

    place.cluster.wait(lambda: place.cluster.pods(label) == [], "the pods, which have ended, are gone")
    assert place.cluster.api.get(path)["spec"]["suspend"] is True


def test_what_others_have_suspended_or_finished_or_made_anew_is_left_alone(place: Place) -> None:
    path, label = training(place, "jobset", **CONSENT)
    task = place.isolates()
    place.cluster.api.patch(path, {"spec": {"suspend": True}})

    suspended = place.workloads.stop_unmanaged_task(place.node, task, REASON)
    another = UnmanagedTask(**{**vars(task), "scheduler_json": task.scheduler_json.replace('"uid": "', '"uid": "0')})
    made_anew = place.workloads.stop_unmanaged_task(place.node, another, REASON)
    place.cluster.wait(lambda: not place.cluster.pods(label), "its pods are gone")
    place.cluster.forget(path)
    gone = place.workloads.stop_unmanaged_task(place.node, task, REASON)

    assert (suspended, made_anew, gone) == (False, False, False)
    with pytest.raises(PlacementRefused, match="is not stopped by nodeheal"):
        place.workloads.restart_unmanaged_task(place.node, task)


def test_a_job_without_a_backoff_loses_no_pod(place: Place) -> None:
    """One evicted pod would end it for good."""
    name = place.cluster.name("job")
    path = place.runs(JOBS, job_of(name), f"batch.kubernetes.io/job-name={name}", 1)
    task = place.isolates()

    assert not task.may_be_stopped
    assert not place.workloads.stop_unmanaged_task(place.node, task, REASON)
    assert place.cluster.api.get(path)["status"].get("failed", 0) == 0
    assert place.running(f"batch.kubernetes.io/job-name={name}", place.broken) == 1


def test_of_a_job_the_functions_change_its_suspension_only(place: Place) -> None:
    path, _ = training(place, "pytorch", **CONSENT)

    for change in (
        {"spec": {"runPolicy": {"backoffLimit": 9}}},
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}},
        {"metadata": {"annotations": {MAX_RETRIES: "99"}}},
        {"metadata": {"labels": {"a": "b"}}},
    ):
        with pytest.raises(ApiError) as refused:
            place.api.patch(path, change)
        assert refused.value.status == 403, change


def test_pods_of_daemons_and_those_that_have_ended_are_no_work(place: Place) -> None:
    cluster, name = place.cluster, place.cluster.name("daemon")
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [shell("sleep 60")]}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    cluster.create("/apis/apps/v1/namespaces/default/daemonsets", {"metadata": {"name": name}, "spec": spec})
    ended = cluster.run(place.broken.name, "true")
    cluster.wait(lambda: place.running(f"app={name}", place.broken) == 1, "the daemon runs")
    cluster.wait(lambda: cluster.phase(ended) == "Succeeded", "the pod has ended")

    found = place.workloads.unmanaged_tasks(place.node, place.gate.placement_of(place.node))
    assert [task for task in found if name in task.name or ended in task.name] == []


def test_nodeheals_own_commands_on_a_node_are_no_work(place: Place) -> None:
    name = place.name = place.cluster.name("command")
    own = f"/api/v1/namespaces/{names.KUBERNETES_NAMESPACE}/pods"
    body = {"nodeName": place.broken.name, "containers": [shell("sleep 60")]}
    place.cluster.create(own, {"metadata": {"name": name}, "spec": body})
    place.cluster.wait(
        lambda: place.cluster.api.get(f"{own}/{name}")["status"].get("phase") == "Running", "the command runs"
    )

    assert place.tasks() == []


def service(place: Place, replicas: int = 1) -> str:
    """A service with a pod on the first node; its name."""
    name = place.name = place.cluster.name("service")
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [shell("sleep 60")], "nodeSelector": is_on(place.broken.name)},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    place.cluster.create("/apis/apps/v1/namespaces/default/replicasets", {"metadata": {"name": name}, "spec": spec})
    place.cluster.wait(lambda: place.running(f"app={name}", place.broken) == replicas, "the service runs")
    return name


def test_a_services_pod_is_evicted_and_one_of_the_same_name_is_not(place: Place) -> None:
    name = service(place)
    task = place.isolates()
    other = UnmanagedTask(**{**vars(task), "scheduler_json": task.scheduler_json.replace('"uid": "', '"uid": "0')})

    assert (task.may_be_stopped, f"of ReplicaSet {name}" in task.name) == (True, True)
    assert not place.workloads.stop_unmanaged_task(place.node, other, REASON)
    assert place.workloads.stop_unmanaged_task(place.node, task, REASON)
    [pod] = [pod for pod in place.cluster.pods(f"app={name}") if pod["metadata"]["uid"] == task.task_id]
    assert "deletionTimestamp" in pod["metadata"]


BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def budget(place: Place, name: str, *, app: str, at_least: int) -> str:
    """A disruption budget that Kubernetes has counted; its path."""
    path = f"{BUDGETS}/{name}"
    spec = {"minAvailable": at_least, "selector": {"matchLabels": {"app": app}}}
    place.cluster.create(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    place.cluster.wait(
        lambda: place.cluster.api.get(path).get("status", {}).get("currentHealthy") == 1, "the budget is counted"
    )
    return path


def test_a_disruption_budget_is_waited_for(place: Place) -> None:
    name = service(place)
    path = budget(place, name, app=name, at_least=1)
    task = place.isolates()

    with pytest.raises(NotAccepted, match="a disruption budget keeps pod default/"):
        place.workloads.stop_unmanaged_task(place.node, task, REASON)

    place.cluster.forget(path)
    assert place.stops(task)


def past_its_deadline(task: UnmanagedTask) -> UnmanagedTask:
    """As the step asks at its deadline, where the pool's policy has deletes_blocked_pods."""
    return replace(task, may_be_deleted=True)


def deleted_on(place: Place, name: str) -> set[str]:
    """The uids of a service's pods on the broken node that are ending, or gone."""
    left = [pod for pod in place.cluster.pods(f"app={name}") if "deletionTimestamp" not in pod["metadata"]]
    return {task.task_id for task in place.tasks()} - {pod["metadata"]["uid"] for pod in left}


@pytest.mark.parametrize("budgets", [1, 2])
def test_what_budgets_keep_is_deleted_at_the_deadline_where_the_policy_says_so(place: Place, budgets: int) -> None:
    name = service(place)
    for number in range(budgets):
        budget(place, f"{name}-{number}", app=name, at_least=1)
    task = place.isolates()
    other = replace(
        task, task_id=f"0{task.task_id}", scheduler_json=task.scheduler_json.replace('"uid": "', '"uid": "0')
    )
    with pytest.raises(NotAccepted):
        place.workloads.stop_unmanaged_task(place.node, task, REASON)
    another = place.workloads.stop_unmanaged_task(place.node, past_its_deadline(other), REASON)
    before = deleted_on(place, name)

    assert place.workloads.stop_unmanaged_task(place.node, past_its_deadline(task), REASON)

    assert (another, before, deleted_on(place, name)) == (False, set(), {task.task_id})


def test_a_pod_that_may_be_evicted_is_evicted_though_it_might_be_deleted(place: Place) -> None:
    name = service(place)
    task = past_its_deadline(place.isolates())
    asked: list[str] = []
    place.api.delete = lambda path, uid: asked.append(path)  # type: ignore[method-assign]

    assert place.workloads.stop_unmanaged_task(place.node, task, REASON)

    assert (asked, deleted_on(place, name)) == ([], {task.task_id})


def test_the_functions_delete_pods_of_services_only_and_with_their_grace(place: Place) -> None:
    name, job = service(place), place.cluster.name("job")
    of_service = json.loads(place.task().scheduler_json)["name"]
    bare, job_label = place.cluster.run(place.broken.name, "sleep 60"), f"batch.kubernetes.io/job-name={job}"
    place.runs(JOBS, job_of(job), job_label, 1, **CONSENT)
    [of_job] = [pod["metadata"]["name"] for pod in place.cluster.pods(job_label)]
    system = "/api/v1/namespaces/kube-system/pods"
    place.cluster.create(system, {"metadata": {"name": name}, "spec": {"containers": [shell("sleep 60")]}})

    def refused(path: str, **options: object) -> str:
        uid = place.cluster.api.get(path)["metadata"]["uid"]
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}, **options}
        with pytest.raises(ApiError) as error:
            place.api._call("DELETE", path, body)
        assert error.value.status == 403
        return error.value.message

    assert "deletes pods of services only" in refused(f"{PODS}/{bare}")
    assert "deletes pods of services only" in refused(f"{PODS}/{of_job}")
    assert "no pod of the cluster's own" in refused(f"{system}/{name}")
    assert "with the pod's own grace" in refused(f"{PODS}/{of_service}", gracePeriodSeconds=0)
    assert "the very pod that it has read" in refused(f"{PODS}/{of_service}", preconditions=None)
    place.cluster.api.patch(f"{PODS}/{of_service}", {"metadata": {"labels": {"leaderworkerset.sigs.k8s.io/name": "a"}}})
    assert "no pod of a LeaderWorkerSet" in refused(f"{PODS}/{of_service}")


def test_of_a_pod_with_two_budgets_the_reason_is_said_until_a_person_takes_one_away(place: Place) -> None:
    """Kubernetes evicts none such, whatever the budgets allow. It answers 500, and the step's end says why."""
    name = service(place)
    budget(place, name, app=name, at_least=0)
    path = budget(place, f"{name}-more", app=name, at_least=0)
    task = place.isolates()

    with pytest.raises(NotAccepted, match=r"500 .*more than one PodDisruptionBudget"):
        place.workloads.stop_unmanaged_task(place.node, task, REASON)

    place.cluster.forget(path)
    assert place.stops(task)


def test_a_pod_that_nobody_would_make_again_is_named_and_left(place: Place) -> None:
    name = place.name = place.cluster.run(place.broken.name, "sleep 60")
    place.cluster.wait(lambda: place.cluster.phase(name) == "Running", "the pod runs")

    task = place.task()

    assert (task.may_be_stopped, task.name) == (
        False,
        f"pod default/{name}, which no controller makes again",
    )


def _pod_with_owner(place: Place, **reference: str) -> UnmanagedTask:
    """The task of a pod on the first node whose owner its author has made up."""
    api = {"apiVersion": "batch/v1", "kind": "Job", "uid": "0", "controller": True, **reference}
    place.name = place.cluster.name("forged")
    body = {
        "metadata": {"name": place.name, "ownerReferences": [api]},
        "spec": {"nodeName": place.broken.name, "containers": [shell("sleep 60")]},
    }
    place.cluster.create(PODS, body)
    return place.task()


@pytest.mark.parametrize("far", ["../../kube-system/jobs/{}", "../jobs/{}", "{}/status"])
def test_a_pod_leads_to_no_job_that_its_author_has_named_by_a_path(place: Place, far: str) -> None:
    victim = place.cluster.name("victim")
    job = place.cluster.create(JOBS, {**job_of(victim), "metadata": {"name": victim, "annotations": CONSENT}})

    task = _pod_with_owner(place, name=far.format(victim), uid=job["metadata"]["uid"])

    assert task.may_be_stopped is False
    assert not place.cluster.api.get(f"{JOBS}/{victim}")["spec"].get("suspend")


@pytest.mark.parametrize(
    "reference",
    [
        {"name": "../../../../../../version"},
        {"name": "x" * 400_000, "kind": "Widget"},
        {"name": "approve at https://example.com/", "kind": "<b>Widget"},
    ],
    ids=["path", "long", "words"],
)
def test_what_a_pod_names_as_its_owner_breaks_no_look_and_stands_in_no_email(
    place: Place, reference: dict[str, str]
) -> None:
    task = _pod_with_owner(place, **reference)

    assert (task.may_be_stopped, len(task.name) < 400) == (False, True)
    assert not any(word in task.name for word in ("https:", "<b>", ".."))


def test_a_gang_that_tolerates_every_taint_is_left_to_run(place: Place) -> None:
    name = place.cluster.name("stubborn")
    label = f"batch.kubernetes.io/job-name={name}"
    job = job_of(name)
    job["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    place.runs(JOBS, job, label, 1, **CONSENT)

    task = place.isolates()

    assert (task.may_be_stopped, "tolerate every taint" in task.name) == (False, True)
