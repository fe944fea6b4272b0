"""Implements the checks of `nodeheal doctor` for Slurm clusters."""

from collections.abc import Callable, Iterator, Sequence

from nodeheal.adapters.aws.account import Account, Look, some
from nodeheal.adapters.aws.finding import BAD, GOOD, UNKNOWN, WARNING, DoctorFinding
from nodeheal.adapters.slurm.controller import SlurmController
from nodeheal.contract import names
from nodeheal.contract.vocabulary import NodeState, SchedulerKind
from nodeheal.domain.errors import NodehealError, NotEnrolled


def slurm_look(controller: Callable[[], SlurmController]) -> Look:
    """Check every cluster with nodes: its controller has the tag, SSM reaches it, and it answers."""

    def findings(account: Account) -> Iterator[DoctorFinding]:
        nodes = [node for in_pool in account.pools.values() for node in in_pool if node.state is not NodeState.RETIRED]
        on_slurm = [node for node in nodes if node.cluster.kind is SchedulerKind.SLURM]
        for cluster in sorted({node.cluster.name for node in on_slurm}):
            addresses = [node.address for node in on_slurm if node.cluster.name == cluster and node.address]
            yield _about(controller(), cluster, addresses)

    return Look("Slurm", findings, reads_nodes=True)


def _about(controller: SlurmController, cluster: str, addresses: Sequence[str]) -> DoctorFinding:
    """Check one of them by a query for the first of its nodes, and for other nodes that are out of service."""
    what = f"Slurm cluster {cluster}"
    controllers = controller.machines(cluster)
    if not controllers:
        detail = f"SSM knows no machine with the tag {names.SLURM_CONTROLLER_TAG} = {cluster}"
        return DoctorFinding(what, BAD, detail, "tag the machine that has slurmctld: docs/slurm.md, Set it up")
    if not any(controllers.values()):
        detail = f"SSM does not reach its controller: {some(sorted(controllers))}"
        return DoctorFinding(what, BAD, detail, "on that machine: systemctl status amazon-ssm-agent")
    if not addresses:
        detail = "its controller was not queried: no node of it has reported its address"
        return DoctorFinding(what, UNKNOWN, detail, "docs/agent.md, Put it on a node")
    try:
        node = controller.node_at(cluster, addresses[0])
        out = controller.report(cluster).nodes
    except NotEnrolled:
        todo = "use the managed policy nodeheal-operator-REGION; nodeheal-doctor-REGION may send no command"
        return DoctorFinding(what, UNKNOWN, f"you may not query its controller: {some(sorted(controllers))}", todo)
    except NodehealError as error:
        return DoctorFinding(what, BAD, str(error), "on the controller: sinfo; nodeheal-agent slurm doctor")
    if node is None:
        detail = f"its controller answers, but has no node at {addresses[0]}, or more than one"
        todo = "compare `nodeheal-agent slurm nodes` there with the nodes; in slurm.conf: NodeAddr"
        return DoctorFinding(what, WARNING, detail, todo)
    unknown = [node.name for node in out if not set(node.addresses) & set(addresses)]
    if unknown:
        detail = f"Slurm has nodes out of service that nodeheal does not know, and repairs none of: {some(unknown)}"
        todo = "enroll them, or have another repair them: docs/slurm.md, ParallelCluster"
        return DoctorFinding(what, WARNING, detail, todo)
    return DoctorFinding(what, GOOD, f"its controller answers: {some(sorted(controllers))}")
