"""Records an event, and resumes the workflow that waits for it. Late and repeated events change nothing."""

import logging
from contextlib import suppress
from dataclasses import replace

from nodeheal.contract.health_event import DiagnosticsFinished, NodeAnswer, NodeBooted, NodeHardwareReported
from nodeheal.contract.vocabulary import Awaited, JobState, Verdict
from nodeheal.domain.errors import NotAccepted, NotFound
from nodeheal.domain.fleet.node import BootView, ReportedDiagnosis
from nodeheal.domain.jobs.gang import ending_text
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.operation import job_owner
from nodeheal.operations.engine import answered, command_failed, reconcile_all
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.node_rates import limited
from nodeheal.services.intake.upsert_node import enrolled_node
from nodeheal.services.jobs.job_nodes import free_nodes, leave
from nodeheal.services.jobs.job_steps import save_job
from nodeheal.services.recovery.new_machine import on_machine_booted
from nodeheal.services.recovery.wait_for_news import bring_news, tell_of_boot
from nodeheal.services.saving import SAVE_TRIES, change_job, change_node, change_run

REASON_CHARACTERS = 300  # of a diagnosis, as people read it
logger = logging.getLogger(__name__)
_ORDER = {"PENDING": 0, "RUNNING": 1, "STOPPED": 2}


@limited
def on_node_booted(event: NodeBooted, ports: Ports) -> None:
    """Record the boot; if a reboot of an earlier boot was waited for, it is proven now."""
    for _ in range(SAVE_TRIES):
        node = enrolled_node(event, ports)
        if node is None or node.view(event.boot_id, event.observed_at) is BootView.PAST:
            return
        now = ports.clock()  # a clock that is ahead, or says so, would have its node never missed
        booted = node.booted(event.boot_id, min(event.booted_at, now), event.address, event.accelerators)
        booted = booted.seen(min(event.observed_at, now)).with_agent_version(event.agent_version, event.observed_at)
        if ports.nodes.save(booted):
            break
    else:
        raise NotAccepted(f"{event.node_id} is being written by others; its boot is recorded later")
    tell_of_boot(booted, ports)
    on_machine_booted(booted, ports)


@limited
def on_hardware_reported(event: NodeHardwareReported, ports: Ports) -> None:
    """Keep what an enrolled node is made of, for people: nothing is decided by it."""
    node = ports.nodes.get(event.node_id)
    if node is not None and node.has_reported and node.view(event.boot_id, event.observed_at) is not BootView.PAST:
        # From a clock that is ahead, no later report would be the newer one.
        ports.hardware.save(event.model_copy(update={"observed_at": min(event.observed_at, ports.clock())}))
        change_node(event.node_id, ports, lambda known: replace(known, machine=event.machine or ""))


@limited
def on_answer(event: NodeAnswer, ports: Ports) -> None:
    """Resume the operation that asked, if it is this node's, of the boot that was asked.

    A diagnosis that proves nothing is recorded with the node, for people to read.
    """
    is_asked_for = answered(event, ports)
    if not is_asked_for:
        fields = {"node": event.node_id, "request_id": event.request_id, "kind": event.detail_type}
        logger.info("no operation waits for this answer: by hand, late, or told twice", extra=fields)
    # A pass that nodeheal asked for has a record of its own (`passed_at`).
    if isinstance(event, DiagnosticsFinished) and (event.verdict is not Verdict.OK or not is_asked_for):
        _record_diagnosis(event, ports)


def _record_diagnosis(event: DiagnosticsFinished, ports: Ports) -> None:
    """Keep it with the node. Lost to another writer it is only not shown: nothing is decided by it."""
    node = ports.nodes.get(event.node_id) if event.checks else None  # without checks: a test between two nodes
    if node is None or not node.has_reported or node.view(event.boot_id, event.observed_at) is not BootView.CURRENT:
        return
    failed = ", ".join(event.failed_tests)
    unproven = [
        f"{check.check}: {check.reason or check.verdict}" for check in event.checks if check.verdict is not Verdict.OK
    ]
    reason = "; ".join(filter(None, [*unproven, failed]))[:REASON_CHARACTERS]
    diagnosis = ReportedDiagnosis(min(event.observed_at, ports.clock()), event.verdict, reason)
    if diagnosis != node.last_diagnosis:
        ports.nodes.save(replace(node, last_diagnosis=diagnosis))


def on_command_failed(node_id: str, command_id: str, ports: Ports) -> None:
    """A command that the node refused or could not run brings no answer: its operation ends now, not at the deadline.

    SSM reports a command that a power loss cut off a minute after the next boot, or never: then the deadline decides.
    """
    command_failed(node_id, command_id, ports)


def on_task_change(change: TaskChange, ports: Ports) -> None:
    """Record where a rank is; resume what waits for the gang to run or to stop."""
    run = _record(change, ports)
    if run is None:
        return
    # The record decides, not the event: it may be late, or of a task that is not the rank's.
    if change.status == "RUNNING":
        _note_that_it_runs(run, ports)
    if change.status == "STOPPED":
        _settle_job(run, ports)
        _tell_who_waits_for_the_end(run, ports)
    reconcile_all(job_owner(change.job_id), ports)


def tell_ends_again(job: Job, run: Run, ports: Ports) -> None:
    """Repeats what follows the end of a rank, in case a crash came right after its record. Safe to repeat."""
    if job.state is JobState.RUNNING:  # else it is settled, or was submitted again
        _settle_job(run, ports)
    _tell_who_waits_for_the_end(run, ports)
    reconcile_all(job_owner(job.job_id), ports)


def _record(change: TaskChange, ports: Ports) -> Run | None:
    """Write the rank's new state, never an older one over a newer. None for a task of no run that is known."""
    run = ports.jobs.get_run(change.job_id, change.run)
    if run is None or all(task.placement != change.placement for task in run.tasks):
        return None

    def advanced(stored: Run) -> Run:
        task = next(t for t in stored.tasks if t.placement == change.placement)
        changed = _advanced(task, change, ports)
        return stored if changed == task else _dated(stored.with_task(changed), ports)

    return change_run(run, ports, advanced)


def _dated(run: Run, ports: Ports) -> Run:
    """The run with when all of it began to run, and when the first of it stopped."""
    if run.is_running:
        run = replace(run, running_since=ports.clock())
    if run.ended_at is None and any(task.has_stopped for task in run.tasks):
        run = replace(run, ended_at=ports.clock())
    return run


def _advanced(task: GangTask, change: TaskChange, ports: Ports) -> GangTask:
    if task.task_id not in ("", change.task_id) or _ORDER[change.status] <= _ORDER[task.status]:
        return task
    return replace(
        task,
        task_id=change.task_id,
        status=change.status,
        exit_code=change.exit_code,
        stop_reason=change.stop_reason,
        stopped_at=(change.stopped_at or ports.clock()) if change.status == "STOPPED" else None,
        started_at=change.started_at or task.started_at,
        end_causes=change.end_causes,
    )


def _note_that_it_runs(run: Run, ports: Ports) -> None:
    """Records that the job runs again. After a restart nothing else does: the job's workflow waits for its end."""
    job = ports.jobs.get(run.job_id) if run.is_running else None
    if job is None or job.state is not JobState.RUNNING or job.current_run != run.number:
        return
    if job.run_said_to_run != run.number:
        save_job(ports, job.job_id, summary=f"run {run.number} is under way", run_said_to_run=run.number)


def _tell_who_waits_for_the_end(run: Run, ports: Ports) -> None:
    """Wake the incidents on the gang's nodes that wait for the job's end. This is repeated every minute, so it must
    wake no other wait: each wake-up costs a decision.
    """
    for task in run.tasks if run.has_ended else ():
        node = ports.nodes.get(task.node_id)
        if node is not None and node.open_incident is not None:
            bring_news(node.open_incident, ports, Awaited.JOB_END)


def _settle_job(run: Run, ports: Ports) -> None:
    """When the last rank has stopped: a finished job gives its nodes back, a stopped one keeps them for its restart."""

    def settled(job: Job) -> Job:
        if job.is_over:
            leave(job, ports)
            return job
        # Submitted again since: of this submission nothing has run yet, and what an older run comes to ends no job.
        if job.current_run != run.number or job.state is JobState.SUBMITTED:
            free_nodes(job, [task.node_id for task in run.tasks], ports)
            return job
        if not run.has_ended:
            return job
        after = _settled(job, run)
        if run.has_succeeded:  # before it is written: from then on no sweep looks after what is left
            leave(after, ports)
            reconcile_all(job_owner(run.job_id), ports)
        return after

    with suppress(NotFound):
        change_job(run.job_id, ports, settled)


def _settled(job: Job, run: Run) -> Job:
    """Returns the job after its run. Keeps a summary that says more than that the run starts or is under way."""
    says_it_runs = run.number in (job.run_said_to_start, job.run_said_to_run)
    summary = ending_text(run) if run.has_succeeded or says_it_runs else job.summary
    state = JobState.COMPLETED if run.has_succeeded else JobState.STOPPED
    return replace(job, state=state, summary=summary, run_said_to_start=0, run_said_to_run=0)
