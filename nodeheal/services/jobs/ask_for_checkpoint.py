"""Ask a gang that is about to be stopped for a checkpoint: what it has done since its last one is then not lost."""

from collections.abc import Sequence
from datetime import timedelta

from nodeheal.contract.steps import StepRequest
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import GangTask, Job
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.timeline import CheckpointRequested
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.steps import add_timeline_entry


def ask_for_checkpoint(
    job: Job, alive: Sequence[GangTask], request: StepRequest, ports: Ports, policy: RecoveryPolicy
) -> None:
    """Ask every node that still runs a rank, and go on: the task's own grace is the wait. Never raises.

    Not where only the broken node is left: what it would write is not to be trusted more than its last checkpoint.
    """
    known = (ports.nodes.get(task.node_id) for task in alive)
    nodes = [node for node in known if node is not None]
    peers = [node for node in nodes if node.node_id != request.decision.node_id]
    if not policy.checkpoint_seconds or not peers:
        return
    try:
        _ask(nodes, peers, job, ports, policy)
    except Exception as error:  # a surprise here costs some steps of training; stopping here would cost the recovery
        add_timeline_entry(
            request, ports, "checkpoint-not-asked", f"{job.job_id} could not be asked for a checkpoint: {error}"[:500]
        )
        return
    text = f"{job.job_id} is asked for a checkpoint before it is stopped"
    add_timeline_entry(request, ports, "checkpoint-asked", text, CheckpointRequested())


def command(job: Job) -> Command:
    """Have the job's tasks on a node write a checkpoint now. Nobody answers."""
    return Command("checkpoint-now", {"Job": job.job_id})


def _ask(nodes: Sequence[Node], peers: Sequence[Node], job: Job, ports: Ports, policy: RecoveryPolicy) -> None:
    expires_at = ports.clock() + timedelta(seconds=policy.checkpoint_seconds)
    try:
        ports.commands.send_to_all(nodes, command(job), expires_at)
    except NotFound:
        # One node that is gone makes the whole command a refused one: the broken one, most likely.
        ports.commands.send_to_all(peers, command(job), expires_at)
