"""Scheduler on Slurm: a node is drained with a reason, and a job on it is requeued, so that Slurm starts it anew.

Whatever is asked goes to the controller by SSM, and takes seconds. So each method asks once.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nodeheal.adapters.slurm.controller import SlurmController
from nodeheal.contract import names
from nodeheal.domain.errors import NotFound, PlacementRefused
from nodeheal.domain.fleet.liveness import ProbeAnswer
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_tasks import UnmanagedTask
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.ports.scheduler import Drained, NodePlacement, RankStatus

SUBMIT = "Slurm starts the jobs of its nodes itself: submit with sbatch (docs/slurm.md)"


class SlurmScheduler:
    """Scheduler."""

    requeues = True

    def __init__(self, controller: SlurmController) -> None:
        self._controller = controller

    def placement_of(self, node: Node) -> NodePlacement:
        return self.placements_of([node])[node.node_id]

    def placements_of(self, nodes: Sequence[Node]) -> Mapping[str, NodePlacement]:
        found = self._nodes("nodes", nodes)
        for node in nodes:
            if node.node_id not in found:
                raise NotFound(_not_there(node))
        return {name: NodePlacement(str(seen["name"]), _may_be_drained(seen)) for name, seen in found.items()}

    def names_in_service(self, nodes: Sequence[Node]) -> Sequence[str]:
        return ()  # nodes are never drained together: each one's reason names its own incident

    def drain_all(self, nodes: Sequence[Node], placements: Sequence[str]) -> Mapping[str, Drained]:
        drained = {}
        for node in nodes:
            seen = self._nodes("drain", [node], Incident=node.open_incident or "unknown").get(node.node_id)
            if seen is not None and not seen["is_in_service"]:
                drained[node.node_id] = Drained(str(seen["name"]), bool(seen["has_jobs"]))
        if not drained:
            raise NotFound(_not_there(nodes[0]))
        return drained

    def show_isolation(self, node: Node, placement: NodePlacement, incident_id: str) -> None:
        """The reason shows it."""

    def undrain(self, node: Node, placement: NodePlacement) -> None:
        if node.node_id not in self._nodes("resume", [node]):
            raise NotFound(_not_there(node))

    def liveness(self, node: Node) -> ProbeAnswer:
        return ProbeAnswer(node.scheduler, None, "not asked: SSM and the machine's cloud are asked themselves")

    def start_rank(self, job: Job, run: Run, task: GangTask, environment: dict[str, str]) -> str:
        raise PlacementRefused(SUBMIT)

    def find_ranks(self, job: Job, run: Run) -> Mapping[str, str]:
        return {}

    def stop_rank(self, cluster: str, task_id: str, reason: str) -> None:
        """There is none to stop."""

    def rank_statuses(self, cluster: str, ranks: Sequence[GangTask]) -> Sequence[RankStatus]:
        return []

    def unmanaged_tasks(self, node: Node, placement: NodePlacement) -> Sequence[UnmanagedTask]:
        where = self._controller.addresses([node])
        if not where:
            return []
        answer = self._controller.ask(node.cluster, "jobs", where.values())
        return [_task(job, where[node.node_id]) for job in answer["jobs"]]

    def stop_unmanaged_task(self, node: Node, task: UnmanagedTask, reason: str) -> bool:
        known = json.loads(task.overrides)
        options = {"Job": task.task_id, "Restarts": str(known["restarts"])}
        return bool(self._controller.ask(node.cluster, "requeue", [known["address"]], **options)["requeued"])

    def restart_unmanaged_task(self, node: Node, task: UnmanagedTask) -> str:
        return task.task_id

    def _nodes(self, verb: str, nodes: Sequence[Node], **options: str) -> dict[str, Mapping[str, Any]]:
        """What Slurm says of these nodes of one cluster, by node id. One that it does not know is left out."""
        where = self._controller.addresses(nodes)
        if not where:
            return {}
        seen = self._controller.ask(nodes[0].cluster, verb, where.values(), **options)["nodes"]
        return {node_id: seen[address] for node_id, address in where.items() if address in seen}


def _not_there(node: Node) -> str:
    return f"Slurm cluster {node.cluster} has no node at the address of {node.instance_id}, or more than one"


def _may_be_drained(seen: Mapping[str, Any]) -> bool:
    """Whether it takes work, or fails to only because Slurm itself has found something wrong: that is ours to undo."""
    return not seen["is_by_person"] and not seen["is_ours"]


def _task(job: Mapping[str, Any], address: str) -> UnmanagedTask:
    parts = f"{job['nodes']} node{'s' if job['nodes'] != 1 else ''}"
    return UnmanagedTask(
        task_id=str(job["job_id"]),
        definition=f"job of {parts} in {job['partition']}",
        started_by=str(job["user"]),
        overrides=json.dumps({"address": address, "restarts": job["restarts"]}),
        tags={names.MANAGED_TAG: names.MANAGED_TAG_VALUE} if job["may_requeue"] else {},  # `--requeue` is the consent
    )
