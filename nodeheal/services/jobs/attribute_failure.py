"""Finds why a run failed: the first cause, not its secondary faults. A failure without an incident gets one.

Every restart belongs to an incident: that of the node that broke, or one of the job's own that is opened here.
"""

from datetime import timedelta
from hashlib import sha256

from nodeheal.contract.health_event import EVIDENCE_BYTES, HealthEvent
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.names import JOB_SOURCE
from nodeheal.contract.vocabulary import (
    Ending,
    Family,
    IncidentState,
    JobState,
    JobStep,
    Next,
    Outcome,
    Trouble,
    Verdict,
)
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.attribution import NEAR, failed_at, findings_on_nodes, rank_endings
from nodeheal.domain.jobs.gang import RankFailure, RunStatus, first_failure, run_status, stopped_by_a_person
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.restarts import limit_of_application
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import History, Incident, fingerprint
from nodeheal.domain.recovery.job_move import has_let_run_end
from nodeheal.domain.recovery.situation import Situation
from nodeheal.ports import Ports
from nodeheal.services.intake.finding_about import finding_about
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.jobs.job_steps import job_of_request, job_result, save_job, stop_if_wanted
from nodeheal.services.jobs.job_troubles import NOT_APPROVED
from nodeheal.services.jobs.runs import current_run, recovery_of
from nodeheal.services.notify.notify_job_owner import notify_owner_of_wait
from nodeheal.services.saving import node_of

_OPENED = (Ingested.OPENED, Ingested.JOINED)


def attribute_failure(request: JobRequest, ports: Ports, policy: RecoveryPolicy) -> JobResult:
    """Goes to WATCH where an incident brings the job back, to SETTLE for a second look, to STOP where it ends.

    Where exit codes say nothing clear, to STOP first and then CHECK: all nodes of the gang are diagnosed, and not
    only the one that was the first to fall.
    """
    job = job_of_request(request, ports)
    _, run = current_run(job.job_id, ports)
    result = stop_if_wanted(request, JobStep.ATTRIBUTE, job, ports)
    if result is None:
        result = (
            _attribute(request, job, run, ports, policy)
            if run
            else _over(request, Trouble.NOT_LAUNCHED, "it has no run", ports)
        )
    nodes = [task.node_id for task in run.tasks] if run else []
    if result.then is Next.END:  # a launch that crashed may have left claims, and the pool's list lags
        nodes += [name for name in request.nodes if name not in nodes]
    save_job(ports, job.job_id, summary=result.reason)
    return result.model_copy(update={"run": run.number if run else None, "nodes": tuple(nodes)})


def _attribute(request: JobRequest, job: Job, run: Run, ports: Ports, policy: RecoveryPolicy) -> JobResult:
    incident_id = recovery_of(job, run, ports)
    if incident_id is not None:
        incident = ports.incidents.incident(incident_id)
        if incident.turn == 0:  # a crash may have come between its opening and its start; starting twice is harmless
            ports.workflows.start(incident_id, incident.node_id)
        elif incident.state is IncidentState.WAITING:
            _notify_of_wait(ports.incidents.history(incident_id), ports, policy)
        reason = f"run {run.number} is brought back by {incident_id}"
        return _watch(request, reason, ports).model_copy(update={"incident_id": incident_id})
    match run_status(run):
        case RunStatus.SUCCEEDED:
            done = job_result(request, JobStep.ATTRIBUTE, Next.END, f"run {run.number} has ended well", ports)
            return done.model_copy(update={"ending": JobState.COMPLETED})
        case RunStatus.STOPPED_BY_A_PERSON:
            return _ends(request, stopped_by_a_person(run), ports, JobState.CANCELLED)
        case RunStatus.UNDER_WAY if run.is_running:
            return _watch(request, f"run {run.number} is under way", ports)
        case RunStatus.UNDER_WAY:
            late = [f"rank {task.rank} on {task.node_id}" for task in run.tasks if task.status == "PENDING"]
            reason = f"{', '.join(late)} of run {run.number} did not start in time"
            return _over(request, Trouble.RANK_LATE, reason, ports)
    return _explain(request, job, run, ports, policy)


def _notify_of_wait(history: History, ports: Ports, policy: RecoveryPolicy) -> None:
    last = history.turns[-1]
    since = last.decided_at or history.incident.opened_at
    due = since + timedelta(seconds=last.decision.deadline_seconds)
    notify_owner_of_wait(Situation(history, policy), last.decision, due, ports)


def _explain(request: JobRequest, job: Job, run: Run, ports: Ports, policy: RecoveryPolicy) -> JobResult:
    """Explains a failure that no incident is working on."""
    given_up, broke = _handed_over(job, run, ports), first_failure(run)
    if given_up is not None:
        history = ports.incidents.history(given_up.incident_id)
        if broke is not None and has_let_run_end(history, run, policy):
            reason = f"{broke.words}, before {given_up.incident_id} took {given_up.node_id} out of service"
            return _over(request, Trouble.PROGRAM_FAILS, reason, ports)
        reason = f"{given_up.incident_id} was handed to a human: {given_up.summary}"
        is_own = Situation(history, policy).is_fault_of_program
        is_refused = history.turns[-1].decision.escalation in NOT_APPROVED if history.turns else False
        own = Trouble.NOT_APPROVED if is_refused else Trouble.PROGRAM_FAILS
        result = _over(request, own if is_own else Trouble.RECOVERY_ENDED, reason, ports)
        return result.model_copy(update={"incident_id": given_up.incident_id})
    if broke is not None and broke.never_ran:
        reason = f"{broke.words}: it cannot start as it is defined; nothing is tried again"
        return _over(request, Trouble.CANNOT_START, reason, ports)
    if request.looks == 0:
        return job_result(request, JobStep.ATTRIBUTE, Next.SETTLE, "findings that are under way are waited for", ports)
    if broke is None:
        reason = f"run {run.number} was stopped for a recovery that did not bring it back"
        return _over(request, Trouble.RECOVERY_ENDED, reason, ports)
    if not broke.is_clear and not request.is_failure:
        why = f"{broke.words}, which does not say why: all nodes of the gang are diagnosed"
        return job_result(request, JobStep.ATTRIBUTE, Next.STOP, why, ports, Outcome.UNKNOWN)  # then CHECK
    return _open_incident(request, job, run, broke, ports, policy)


def _open_incident(
    request: JobRequest, job: Job, run: Run, broke: RankFailure, ports: Ports, policy: RecoveryPolicy
) -> JobResult:
    """The program's own failure: an incident of the job, on the node where it began, which is not touched."""
    if not node_of(broke.task.node_id, ports).has_rank_of(job.job_id, run.number):
        reason = f"{broke.words}; but {broke.task.node_id} is not on record as a node of run {run.number}"
        return _over(request, Trouble.RECOVERY_ENDED, reason, ports)
    allowed = limit_of_application(job)
    granted, spent = ports.attempts.reserve(allowed.scope, f"run-{run.number}", allowed.limit)
    if not granted:
        often = counted(spent, "failure of the program's own was", "failures of the program's own were")
        often += f" restarted within {allowed.limit.window_seconds / 3600:g} h"
        reason = f"{broke.words}; {often}, and no more are allowed (restarts.of_application)"
        return _over(request, Trouble.PROGRAM_FAILS, reason, ports)
    event = _event(request, job, run, broke, ports, policy)
    taken = ingest(event, ports, policy)
    incident_id = node_of(broke.task.node_id, ports).open_incident
    if taken not in _OPENED and incident_id is None:
        return _not_brought_back(request, event, broke, ports)
    reason = f"{broke.words}: taken for the program's own failure"
    return _watch(request, reason, ports).model_copy(update={"incident_id": incident_id})


def _not_brought_back(request: JobRequest, event: HealthEvent, broke: RankFailure, ports: Ports) -> JobResult:
    """The incident of this very failure has ended, and left the job where it is: its pool is only observed, mostly."""
    settled = node_of(event.node_id, ports).resolved_faults.get(fingerprint(event))
    incident = ports.incidents.incident(settled) if settled else None
    ended = f"{settled} did not bring it back: {incident.summary}" if incident else "no incident was opened for it"
    is_observed = incident is not None and incident.ending is Ending.OBSERVED_ONLY
    left = "; so the job is left to its owner" if is_observed else ""
    trouble = Trouble.ONLY_OBSERVED if is_observed else Trouble.RECOVERY_ENDED
    result = _over(request, trouble, f"{broke.words}; {ended}{left}", ports)
    return result.model_copy(update={"incident_id": settled})


def _evidence(job: Job, run: Run, broke: RankFailure, node: Node, ports: Ports, policy: RecoveryPolicy) -> str:
    """Returns the evidence for this cause, and findings near it that may point to another."""
    since = (failed_at(run) or ports.clock()) - NEAR
    observations = ports.nodes.observations(node.node_id, since, node.pool, since)
    return " ".join(
        filter(
            None,
            [
                f"{job.job_id}, run {run.number}: {broke.words}.",
                rank_endings(run),
                findings_on_nodes(run, observations, policy),
            ],
        )
    )


def _event(
    request: JobRequest, job: Job, run: Run, broke: RankFailure, ports: Ports, policy: RecoveryPolicy
) -> HealthEvent:
    node = node_of(broke.task.node_id, ports)
    held = f"|{job.held_at.isoformat()}" if job.held_at is not None else ""  # news, when the pause that held it is over
    checked = " All nodes of the gang have passed their diagnostics since." if request.is_failure else ""
    return finding_about(
        node,
        sha256(f"{job.job_id}|{run.number}|{broke.task.rank}{held}".encode()).hexdigest()[:32],
        ports.clock(),
        source=JOB_SOURCE,
        family=Family.task,
        code=broke.code,
        component=f"{job.job_id}/{run.number}",
        verdict=Verdict.FAILED,
        evidence=f"{_evidence(job, run, broke, node, ports, policy)}{checked}"[: EVIDENCE_BYTES // 4],
    )


def _handed_over(job: Job, run: Run, ports: Ports) -> Incident | None:
    """The incident that was to bring this run back, and was handed to a human instead."""
    since, until = run.started_at - timedelta(seconds=1), ports.clock() + timedelta(seconds=1)
    ended = ports.fleet_index.incidents(job.pool, IncidentState.ESCALATED, since, until)
    mine = [i for i in ended if i.job_id == job.job_id and i.ending is Ending.HANDED_TO_A_HUMAN]
    return mine[-1] if mine else None


def _watch(request: JobRequest, reason: str, ports: Ports) -> JobResult:
    return job_result(request, JobStep.ATTRIBUTE, Next.WATCH, reason, ports)


def _over(request: JobRequest, trouble: Trouble, why: str, ports: Ports) -> JobResult:
    """Hands the job to a human. Nothing is started any more."""
    return _ends(request, why, ports, JobState.FAILED).model_copy(update={"trouble": trouble})


def _ends(request: JobRequest, why: str, ports: Ports, ending: JobState) -> JobResult:
    """Stops the ranks that still run, and ends the job."""
    ended = job_result(request, JobStep.ATTRIBUTE, Next.STOP, why, ports, Outcome.REFUSED)
    return ended.model_copy(update={"ending": ending})
