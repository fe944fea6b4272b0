"""Ask a job that goes on training on a node with an early warning for a checkpoint now: the node may not last."""

from datetime import timedelta

from nodeheal.contract.steps import StepRequest
from nodeheal.domain.recovery.timeline import TimelineEntry
from nodeheal.ports import Ports
from nodeheal.services.jobs.ask_for_checkpoint import command
from nodeheal.services.jobs.runs import current_run

WARNED = "checkpoint-early"


def warn_job(request: StepRequest, ports: Ports) -> None:
    """Where the decision says so: once for this fault and this run, however often it is waited. Never raises.

    No workflow waits for it. The timeline entry is written first, so a crash loses one early checkpoint at most.
    """
    decided = request.decision
    job, run = current_run(decided.job_id, ports)
    if not decided.checkpoint_seconds or job is None or run is None or not run.is_running:
        return
    now = ports.clock()
    text = f"{job.job_id} is asked for a checkpoint now: {decided.fault}"
    entry = TimelineEntry(now, f"{WARNED}-{run.number}-{decided.fault[:80]}", text)
    if not ports.incidents.append(request.incident_id, entry):
        return
    known = (ports.nodes.get(task.node_id) for task in run.tasks)
    nodes = [node for node in known if node is not None]
    try:
        ports.commands.send_to_all(nodes, command(job), now + timedelta(seconds=decided.checkpoint_seconds))
    except Exception as error:  # the job goes on as it is; only some steps of training are at stake
        lost = f"{job.job_id} could not be asked for a checkpoint: {error}"[:500]
        entry_id = f"{WARNED}-lost-{run.number}-{request.turn:04d}"
        ports.incidents.append(request.incident_id, TimelineEntry(now, entry_id, lost, turn=request.turn - 1))
