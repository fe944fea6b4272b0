"""Choose the nodes of a job and claim them, all or none."""

from collections.abc import Sequence
from dataclasses import replace

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome, Trouble
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.placement import Placement
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations.gang import where_they_are
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import (
    call_next_job,
    claim,
    directory_taken,
    free_nodes,
    job_checks_due,
    waits_before,
)
from nodeheal.services.jobs.job_steps import (
    end_of_job,
    job_of_request,
    job_result,
    network_test_or_launch,
    save_job,
    stop_if_wanted,
)
from nodeheal.services.jobs.runs import may_write


def choose_nodes(request: JobRequest, ports: Ports, policy: RecoveryPolicy) -> JobResult:
    """Goes to CHECK (or LAUNCH, where nothing is to be checked) with nodes that are claimed, to AWAIT_NODES, STOP or
    END. Safe to repeat: what it has claimed before it finds claimed."""
    job = job_of_request(request, ports)
    stopped = stop_if_wanted(request, JobStep.CHOOSE, job, ports)
    if stopped is not None:
        return stopped
    left = _left_by_earlier_submission(job, ports)
    if left:
        return job_result(request, JobStep.CHOOSE, Next.STOP, f"{left} of an earlier submission still runs", ports)
    held = _hold_directory(job, ports)
    if held:
        return end_of_job(request, JobStep.CHOOSE, JobState.FAILED, held, ports, Trouble.DIRECTORY_TAKEN)
    # A job that is submitted again is no more on the nodes of its earlier runs, where these have ended.
    been_on = [task.node_id for run in ports.jobs.runs(job.job_id) for task in run.tasks]
    free_nodes(replace(job, current_run=0), been_on, ports)
    before = waits_before(job, ports)
    placement = Placement(why=before) if before else claim(job, ports, policy)
    if not placement.may_change:
        return end_of_job(request, JobStep.CHOOSE, JobState.FAILED, placement.why, ports, Trouble.POOL_TOO_SMALL)
    if not placement.nodes:
        save_job(ports, job.job_id, summary=f"waits for nodes: {placement.why}")
        later = job_result(request, JobStep.CHOOSE, Next.AWAIT_NODES, placement.why, ports, Outcome.REFUSED)
        return later.model_copy(update={"nodes": ()})
    call_next_job(job.pool, ports)  # there may be enough for the next in line, too
    return _chosen(request, job, placement.nodes, ports, policy)


def _left_by_earlier_submission(job: Job, ports: Ports) -> str:
    """The ranks that a workflow which broke has left running, in words: the job would wait for its own nodes."""
    run = ports.jobs.get_run(job.job_id, job.current_run) if job.current_run else None
    if run is None or not job.was_submitted_after(run):
        return ""
    return where_they_are([task for task in run.tasks if may_write(task, ports)])


def _chosen(request: JobRequest, job: Job, nodes: Sequence[Node], ports: Ports, policy: RecoveryPolicy) -> JobResult:
    names = tuple(node.node_id for node in nodes)
    due = job_checks_due(job, nodes, ports.clock())
    racks = sorted({node.rack for node in nodes if node.rack})
    where = f" in {', '.join(racks)}" if racks else ""
    text = f"chosen{where}: {', '.join(names)}"
    save_job(ports, job.job_id, summary=text, chosen_at=ports.clock())
    if not due:
        proven = "nodes are not checked (preflight level 0)" if job.preflight.level == 0 else "all passed lately"
        ready = network_test_or_launch(request, JobStep.CHOOSE, job, f"{text}; {proven}", ports, policy)
        return ready.model_copy(update={"nodes": names})
    chosen = job_result(request, JobStep.CHOOSE, Next.CHECK, f"{text}; {len(due)} of them to be checked", ports)
    return chosen.model_copy(update={"nodes": names, "deadline_seconds": job.preflight.seconds})


def _hold_directory(job: Job, ports: Ports) -> str:
    """Take the job's checkpoint directory; why not, in words: two jobs would write over one another."""
    if job.checkpoints is None:
        return ""
    holder = ports.job_notes.hold(job.checkpoints.directory, job.job_id)
    return "" if holder == job.job_id else directory_taken(job, holder, ports)
