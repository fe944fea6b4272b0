"""Queries about one job with what surrounds it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from nodeheal.api.job_list import job_row
from nodeheal.api.job_views import (
    AdviceView,
    CheckpointRow,
    JobFindingRow,
    JobIncidentRow,
    JobView,
    LinkedJob,
    LinkedJobIncident,
    RankRow,
    RestartsView,
    RunRow,
    StandingRow,
)
from nodeheal.contract.names import started_by
from nodeheal.contract.vocabulary import Action, ActKind, IncidentState
from nodeheal.domain.humanize import in_hours
from nodeheal.domain.jobs.checkpoint_advice import advice_of
from nodeheal.domain.jobs.gang import first_failure
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.job_findings import NotedFinding
from nodeheal.domain.jobs.lost_work import lost_work_text, start_text
from nodeheal.domain.jobs.restarts import limit_of_application
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Question
from nodeheal.domain.recovery.decision_context import job_scope
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.review import AWAITED, status_text, title_of
from nodeheal.operations.questions import find_question
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_line import Standing, line_in_words, stands_before
from nodeheal.services.jobs.job_troubles import needed
from nodeheal.services.jobs.pool_failures import lived_beside
from nodeheal.services.operators.look_at_job import find_job, progress_of
from nodeheal.services.operators.review_incidents import list_incidents

RUNS_SHOWN = 5
_SKEW = timedelta(minutes=5)


def job(
    job_id: str,
    ports: Ports,
    policy: Callable[[], RecoveryPolicy],
    if_allowed: Callable[[Callable[[], str]], str] = lambda read: read(),
) -> JobView:
    """Return one job. Raises NotFound.

    `if_allowed` reads what not every caller may: what the policy limits, and what an incident asks. Empty: not allowed.
    """
    record = find_job(job_id, ports)
    known, now = ports.jobs.runs(job_id), ports.clock()
    since = record.submitted_at or (known[0].started_at if known else now)
    opened = list_incidents(ports, [record.pool], list(IncidentState), since - _SKEW)
    incidents = [incident for incident in opened if incident.job_id == job_id]
    working = next((incident for incident in incidents if incident.is_under_way), None)
    newest = next((run for run in known[-RUNS_SHOWN:] if run.number == record.current_run), None)
    ahead = stands_before(record, ports)
    need, acts = _needed(record)
    checkpoint = record.found
    return JobView(
        **dict(job_row(record, progress_of([record], ports).get(job_id))),
        cluster=record.cluster.name,
        accelerators=record.accelerators,
        spares=record.spares,
        task_definition=record.task_definition,
        container=record.container,
        checkpoints=record.checkpoints,
        checkpoint=CheckpointRow(path=checkpoint.path, step=checkpoint.step, looked_at=checkpoint.looked_at)
        if checkpoint
        else None,
        directory_seen=record.directory_seen or None,
        submitted_by=record.submitted_by,
        stop_wanted=record.stop_wanted or None,
        trouble=record.trouble,
        need=need,
        acts=acts,
        waits_for=_waits_for(record, newest, working, if_allowed(lambda: _awaited_by(working, ports))),
        in_line=line_in_words(ahead) if ahead else "",
        in_line_before=standing(ahead),
        restarts=_restarts(record, known, since, ports, policy, if_allowed),
        advice=AdviceView.model_validate(
            advice_of(record, known, incidents, now, lived_beside(record, ports)), from_attributes=True
        ),
        findings=tuple(map(_finding, ports.job_findings.of(job_id, record.current_run))),
        runs=tuple(_runs(record, known[-RUNS_SHOWN:])),
        incidents=tuple(map(_incident, incidents)),
    )


def linked(
    view: JobView, execution: str, execution_of: Callable[[str], str], *, owner_confirmed: bool | None
) -> LinkedJob:
    """Return the job with the addresses of its workflow and, by `execution_of`, of its incidents'; empty: nowhere."""
    incidents = tuple(LinkedJobIncident(**dict(row), execution=execution_of(row.incident)) for row in view.incidents)
    fields = {**dict(view), "incidents": incidents}
    return LinkedJob(**fields, owner_confirmed=owner_confirmed, execution=execution or None)


def standing(ahead: Sequence[Standing]) -> tuple[StandingRow, ...]:
    """Return the rows of jobs that get nodes before another."""
    return tuple(
        StandingRow(job=other.job_id, since=other.since, priority=other.priority, nodes=other.nodes) for other in ahead
    )


def _finding(noted: NotedFinding) -> JobFindingRow:
    finding = noted.finding
    return JobFindingRow(
        kind=finding.kind,
        text=finding.text,
        since=noted.since,
        over_at=noted.over_at,
        nodes=tuple(suspect.node_id for suspect in finding.suspects),
    )


def _needed(record: Job) -> tuple[str, tuple[ActKind, ...]]:
    """What its owner is to do about a job that has failed, as their email says."""
    if not record.waits_for_a_human:
        return "", ()
    need, can_restart = needed(record.trouble)
    return need, (ActKind.RESTART_JOB, ActKind.STOP_JOB) if can_restart else (ActKind.STOP_JOB,)


def _waits_for(record: Job, newest: Run | None, working: Incident | None, awaits: str) -> str:
    if record.is_over:
        return "-"
    if working is not None:
        what = f" for {awaits}" if awaits else ""
        return f"incident {working.incident_id} on {working.node_id}: {status_text(working)}{what}"
    if newest is not None and newest.is_running:
        return "-"
    tasks = newest.tasks if newest else ()
    late = [f"rank {task.rank} on {task.node_id}" for task in tasks if task.status == "PENDING"]
    if late:
        return f"the start of {', '.join(late)}"
    return record.summary or "its workflow, which starts within a minute"


def _awaited_by(incident: Incident | None, ports: Ports) -> str:
    """What the incident waits for, and until when it may be answered. Empty: it waits for nothing."""
    if incident is None or incident.state is not IncidentState.WAITING or incident.awaits is None:
        return ""
    question = find_question(Question(incident.incident_id, incident.turn), ports)
    until = f" until {question.deadline_at:%Y-%m-%d %H:%M:%S} UTC" if question is not None else ""
    return f"{AWAITED[incident.awaits]}{until}"


def _restarts(
    record: Job,
    known: Sequence[Run],
    since: datetime,
    ports: Ports,
    policy: Callable[[], RecoveryPolicy],
    if_allowed: Callable[[Callable[[], str]], str],
) -> RestartsView:
    own = record.restarts
    began = [run.started_at for run in known if run.started_at >= since and run.incident_id]
    window = ports.clock() - timedelta(seconds=own.window_seconds)
    in_window, program = sum(at > window for at in began), limit_of_application(record)
    spent = ports.attempts.spent(program.scope, program.limit)[program.limit.group]
    left = {
        f"{in_hours(own.window_seconds)} (its own restarts.in_window)": own.in_window - in_window,
        "since it was submitted (its own restarts.total)": own.total - len(began),
    }
    return RestartsView(
        total=len(began),
        in_window=in_window,
        of_application=spent,
        limits=own,
        next_limit=if_allowed(lambda: _next_limit(record.job_id, left, ports, policy())) or None,
    )


def _next_limit(job_id: str, own: Mapping[str, int], ports: Ports, policy: RecoveryPolicy) -> str:
    """How many restarts are left by the limit that is reached first, and where that limit is set.

    The policy's limit counts those of earlier submissions, too, so that it is named where another is as near.
    """
    theirs = policy.limits[Action.RESTART_WORKLOAD]
    spent = ports.attempts.spent(job_scope(job_id), theirs)[theirs.group]
    of_policy = f"{in_hours(theirs.window_seconds)} (the policy's limits.RESTART_WORKLOAD)"
    left = {of_policy: theirs.limit - spent, **own}
    where = min(left, key=left.__getitem__)
    return f"{left[where] if left[where] > 0 else 'no'} more {where}"


def _runs(record: Job, runs: Sequence[Run]) -> Iterator[RunRow]:
    following = {run.number: after for run, after in pairwise(runs)}
    for run in runs:
        broke, after = first_failure(run), following.get(run.number)
        yield RunRow(
            run=run.number,
            started_by=started_by(run.job_id, run.number),
            started_at=run.started_at,
            running_since=run.running_since,
            ended_at=run.ended_at,
            why=run.why,
            begins=start_text(record, run),
            resumed_from=run.resumed_from or None,
            resumed_step=run.resumed_step,
            last_step=run.last_step,
            has_succeeded=run.has_succeeded,
            broke=broke.words if broke else None,
            lost=lost_work_text(record, run, after) if after else None,
            ranks=tuple(
                RankRow(
                    rank=task.rank,
                    node=task.node_id,
                    task=task.task_id or None,
                    status=task.status,
                    exit_code=task.exit_code,
                    stop_reason=task.stop_reason or None,
                    stopped_at=task.stopped_at,
                )
                for task in run.tasks
            ),
        )


def _incident(incident: Incident) -> JobIncidentRow:
    return JobIncidentRow(
        incident=incident.incident_id,
        node=incident.node_id,
        state=incident.state,
        status=status_text(incident),
        ending=incident.ending,
        fault=title_of(incident.root),
        summary=incident.summary,
    )
