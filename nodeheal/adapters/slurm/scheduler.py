"""What Slurm can do: a node is drained with a reason, and a job on it is requeued, so that Slurm restarts it.

Every query goes to the controller by SSM and takes seconds, so each method makes one.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from nodeheal.adapters.slurm.controller import SlurmController
from nodeheal.contract.vocabulary import Provider, SchedulerKind
from nodeheal.domain.errors import PlacementRefused
from nodeheal.domain.fleet.holder import HeldByNodeheal, HeldByPerson, HeldBySystem, Holder
from nodeheal.domain.fleet.machine import ClusterReplacement
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.ports.clock import Clock
from nodeheal.ports.compute import Machines
from nodeheal.ports.scheduler import Drained, NodePlacement, OwnTools, Scheduler, SchedulerTraits

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")  # the owner chooses a job's name, and it gets into emails
_NAME_CHARACTERS = 40
_REASON_CHARACTERS = 100
# The outcome of a job from before nodeheal's turn, by the agent's word for it.
_BEFORE = {
    "lost": "had failed here already, and its owner does not allow a requeue: its owner must submit it again",
    "requeued": "had been requeued already, perhaps by its own script; Slurm does not record where it ran",
}
OWN_TOOLS = OwnTools(
    drain="Slurm drains it itself: scontrol update NodeName=… State=DRAIN Reason=…",
    submit="Slurm starts the jobs of its nodes itself: submit with sbatch (docs/slurm.md)",
    logs="Slurm stores a job's output in the file that its owner has named (sbatch --output)",
)

TRAITS = SchedulerTraits(
    restarts_stopped=True,
    owner_consents_alone=True,
    fills_idle_nodes=True,
    checks_new_nodes=True,  # by its prolog
    records_holder=True,
    drain_keeps_holder=True,
    is_behind_a_machine=True,
    drains_at_once=4,  # the SSM agent of its machine works on five commands at a time
)


class SlurmScheduler:
    """Implements NodeGate, Workloads and MachineMaker. Slurm starts its jobs itself."""

    def __init__(self, controller: SlurmController) -> None:
        self._controller = controller

    def placement_of(self, node: Node) -> NodePlacement:
        slurm_node = self._controller.about(node, "nodes")
        return NodePlacement(str(slurm_node["name"]), bool(slurm_node["is_in_service"]), _holder(slurm_node))

    def drain_all(self, nodes: Sequence[Node], placements: Sequence[str]) -> Mapping[str, Drained]:
        known = {node.node_id: where for node in nodes if (where := self._controller.address_of(node))}
        incidents = {known[node.node_id]: node.open_incident or "none" for node in nodes if node.node_id in known}
        if nodes[0].node_id not in known:
            raise self._controller.not_at(nodes[0], "")
        entries = self._controller.ask(
            nodes[0].cluster.name, "drain", ",".join(incidents), Incident=",".join(incidents.values())
        )["nodes"]
        if known[nodes[0].node_id] not in entries:
            raise self._controller.not_at(nodes[0], known[nodes[0].node_id])
        out = {name: (where, entries[where]) for name, where in known.items() if where in entries}
        return {name: _drained(entry, where) for name, (where, entry) in out.items() if not entry["is_in_service"]}

    def undrain(self, node: Node, placement: NodePlacement) -> None:
        self._controller.about(node, "resume", **({"Incident": node.open_incident} if node.open_incident else {}))

    def have_replaced(self, node: Node, how: ClusterReplacement, others: Collection[str]) -> None:
        if how is not ClusterReplacement.power_down:
            raise PlacementRefused(f"replacement.by_cluster is {how}, which Slurm does not know")
        address = self._controller.address_of(node)  # once: a second lookup may give another one
        # Root on a hybrid node can make SSM report another node's address, whose machine would be replaced.
        if node.provider is Provider.hybrid and address in others:
            problem = (
                f"SSM reports {address} as the address of {node.instance_id}, and another node's agent reports the same"
            )
            raise PlacementRefused(problem)
        answer = self._controller.about_address(node, address, "replace", How=how.value)
        if answer["why_not"]:
            raise PlacementRefused(str(answer["why_not"]))

    def unmanaged_tasks(self, node: Node, placement: NodePlacement) -> Sequence[UnmanagedTask]:
        address = self._controller.address_of(node)
        incident = {"Incident": node.open_incident} if node.open_incident else {}
        jobs = self._controller.ask(node.cluster.name, "jobs", address, **incident)["jobs"] if address else ()
        return [_task(job, address) for job in jobs]

    def stop_unmanaged_task(self, node: Node, task: UnmanagedTask, reason: str) -> bool:
        known = json.loads(task.scheduler_json)
        options = {"Job": task.task_id, "Restarts": str(known["restarts"])} | ({"Hold": "yes"} if task.is_held else {})
        return bool(self._controller.ask(node.cluster.name, "requeue", known["address"], **options)["requeued"])


def slurm_by_ssm(
    make: Callable[[str], Any], controllers_once: Callable[[str], Any], hyperpod: Machines, clock: Clock
) -> Scheduler:
    """Return what Slurm can do; clients are created when first needed."""
    return slurm_scheduler(
        SlurmController(lambda: make("ssm"), lambda: controllers_once("ssm"), lambda: make("ec2"), hyperpod, clock)
    )


def slurm_scheduler(controller: SlurmController) -> Scheduler:
    """Return what Slurm can do. It starts and restarts its jobs itself."""
    slurm = SlurmScheduler(controller)
    return Scheduler(SchedulerKind.SLURM, TRAITS, slurm, workloads=slurm, machines=slurm, own_tools=OWN_TOOLS)


def _drained(slurm_node: Mapping[str, Any], address: str) -> Drained:
    jobs = slurm_node["jobs"]
    tasks = None if jobs is None else tuple(_task(job, address) for job in jobs)
    return Drained(str(slurm_node["name"]), tasks is None or bool(tasks), tasks, _holder(slurm_node))


def _holder(slurm_node: Mapping[str, Any]) -> Holder | None:
    """Return who keeps it out of service; None: it is in service."""
    if slurm_node["is_in_service"]:
        return None
    reason, by = str(slurm_node["reason"])[:_REASON_CHARACTERS], str(slurm_node["reason_by"])[:_NAME_CHARACTERS]
    if slurm_node["is_by_person"]:
        return HeldByPerson(by, reason, str(slurm_node["state"])[:_NAME_CHARACTERS])
    return HeldByNodeheal(str(slurm_node["incident"])) if slurm_node["incident"] else HeldBySystem("Slurm", reason)


def _task(job: Mapping[str, Any], address: str) -> UnmanagedTask:
    parts = f"{job['nodes']} node{'s' if job['nodes'] != 1 else ''}"
    word = "failed job" if job["has_failed"] else "job"
    name = _UNSAFE.sub("_", str(job["name"]))[:_NAME_CHARACTERS]
    return UnmanagedTask(
        task_id=str(job["job_id"]),
        name=f"{word} {name} of {parts} in {job['partition']}",
        started_by=str(job["user"]),
        may_be_stopped=bool(job["may_requeue"]),  # `--requeue` is the consent
        scheduler_json=json.dumps({"address": address, "restarts": job["restarts"]}),
        before=_BEFORE.get(str(job.get("before")), ""),
    )
