"""Scheduler on Slurm: a node is drained with a reason, and a job on it is requeued, so that Slurm restarts it.

Whatever is asked goes to the controller by SSM, and takes seconds. So each method asks once.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nodeheal.adapters.slurm.controller import SlurmController
from nodeheal.contract import names
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.errors import PlacementRefused
from nodeheal.domain.fleet.liveness import ProbeAnswer
from nodeheal.domain.fleet.machine import ClusterReplacement
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_tasks import UnmanagedTask
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.ports.scheduler import Drained, NodePlacement, RankStatus

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")  # a job's name is its owner's word, and gets into emails
_NAME_CHARACTERS = 40
_REASON_CHARACTERS = 160
# What had become of a job before nodeheal came, by the agent's word for it.
_BEFORE = {
    "lost": "had failed here already, and its owner does not let it be requeued: its owner must start it again",
    "requeued": "had been requeued already, by its own script for example; Slurm forgets where it ran, perhaps here",
}
SUBMIT = "Slurm starts the jobs of its nodes itself: submit with sbatch (docs/slurm.md)"


class SlurmScheduler:
    """Scheduler."""

    requeues = True

    def __init__(self, controller: SlurmController) -> None:
        self._controller = controller

    def placement_of(self, node: Node) -> NodePlacement:
        seen = self._controller.about(node, "nodes")
        return NodePlacement(str(seen["name"]), _may_be_drained(seen), _kept_out(seen))

    def placements_of(self, nodes: Sequence[Node]) -> Mapping[str, NodePlacement]:
        return {node.node_id: self.placement_of(node) for node in nodes}

    def names_in_service(self, nodes: Sequence[Node]) -> Sequence[str]:
        return ()  # nodes are never drained together: each one's reason names its own incident

    def drain_all(self, nodes: Sequence[Node], placements: Sequence[str]) -> Mapping[str, Drained]:
        seen = {
            node.node_id: self._controller.about(node, "drain", Incident=node.open_incident or "none") for node in nodes
        }
        out = {name: one for name, one in seen.items() if not one["is_in_service"]}
        return {name: Drained(str(one["name"]), bool(one["has_jobs"])) for name, one in out.items()}

    def show_isolation(self, node: Node, placement: NodePlacement, incident_id: str) -> None:
        """The reason shows it."""

    def undrain(self, node: Node, placement: NodePlacement) -> None:
        self._controller.about(node, "resume", **({"Incident": node.open_incident} if node.open_incident else {}))

    def have_replaced(self, node: Node, how: ClusterReplacement, others: Collection[str]) -> None:
        address = self._controller.address_of(node)  # once: it may be another one when it is looked up again
        # Root on a hybrid node can have SSM say another node's address, whose machine would be replaced.
        if node.provider is Provider.hybrid and address in others:
            told = f"SSM says that {node.instance_id} is at {address}, and another node's agent says so of its own"
            raise PlacementRefused(told)
        seen = self._controller.about_address(node, address, "replace", How=how.value)
        if seen["why_not"]:
            raise PlacementRefused(str(seen["why_not"]))

    def liveness(self, node: Node) -> ProbeAnswer:
        return ProbeAnswer(node.scheduler, None, "not asked: SSM and the machine's cloud are asked themselves")

    def start_rank(self, job: Job, run: Run, task: GangTask, environment: dict[str, str]) -> str:
        raise PlacementRefused(SUBMIT)

    def find_ranks(self, job: Job, run: Run) -> Mapping[str, str]:
        return {}

    def stop_rank(self, cluster: str, task_id: str, reason: str) -> None:
        """nodeheal has started no rank here."""

    def rank_statuses(self, cluster: str, ranks: Sequence[GangTask]) -> Sequence[RankStatus]:
        return []

    def unmanaged_tasks(self, node: Node, placement: NodePlacement) -> Sequence[UnmanagedTask]:
        address = self._controller.address_of(node)
        incident = {"Incident": node.open_incident} if node.open_incident else {}
        jobs = self._controller.ask(node.cluster, "jobs", address, **incident)["jobs"] if address else ()
        return [_task(job, address) for job in jobs]

    def stop_unmanaged_task(self, node: Node, task: UnmanagedTask, reason: str) -> bool:
        known = json.loads(task.overrides)
        options = {"Job": task.task_id, "Restarts": str(known["restarts"])} | ({"Hold": "yes"} if task.is_held else {})
        return bool(self._controller.ask(node.cluster, "requeue", known["address"], **options)["requeued"])

    def restart_unmanaged_task(self, node: Node, task: UnmanagedTask) -> str:
        return task.task_id


def _kept_out(seen: Mapping[str, Any]) -> str:
    """Who has taken it out of service, and why; empty: it was nodeheal or Slurm, or it serves."""
    if not seen["is_by_person"]:
        return ""
    return f"{seen['state']} by {seen['reason_by']}: {seen['reason']}"[:_REASON_CHARACTERS]


def _may_be_drained(seen: Mapping[str, Any]) -> bool:
    """Whether it takes work, or fails to only because Slurm itself has found something wrong: that is ours to undo."""
    return not seen["is_by_person"] and not seen["is_ours"]


def _task(job: Mapping[str, Any], address: str) -> UnmanagedTask:
    parts = f"{job['nodes']} node{'s' if job['nodes'] != 1 else ''}"
    word = "failed job" if job["has_failed"] else "job"
    name = _UNSAFE.sub("_", str(job["name"]))[:_NAME_CHARACTERS]
    return UnmanagedTask(
        task_id=str(job["job_id"]),
        definition=f"{word} {name} of {parts} in {job['partition']}",
        started_by=str(job["user"]),
        overrides=json.dumps({"address": address, "restarts": job["restarts"]}),
        tags={names.MANAGED_TAG: names.MANAGED_TAG_VALUE} if job["may_requeue"] else {},  # `--requeue` is the consent
        before=_BEFORE.get(str(job.get("before")), ""),
    )
