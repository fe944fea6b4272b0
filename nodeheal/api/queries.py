"""Queries: how everything stands, read from the records. Each returns a view."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodeheal.api.incident_list import row, row_fields
from nodeheal.api.views import (
    AskedRow,
    BreakerView,
    FailedJobRow,
    FleetGoodRow,
    FleetView,
    JobRow,
    LastDay,
    PoolRow,
    Todo,
    TodoKind,
)
from nodeheal.contract.names import pool_line
from nodeheal.contract.vocabulary import ActKind, Awaited, IncidentState
from nodeheal.domain.fleet.node import OUT_OF_SERVICE
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.fleet.pool import Census, Pool
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Question
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.fleet_good import FleetGood
from nodeheal.domain.review.review import is_job_seen_to, state_word, title_of
from nodeheal.operations.questions import find_question
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_troubles import needed_of_operators
from nodeheal.services.operators.review_incidents import list_incidents, review_incident
from nodeheal.services.recovery.pool_size import last_census, last_running_jobs, slots_of

LOOKED_BACK = timedelta(days=30)
FAILED_LOOKED_BACK = timedelta(days=7)  # by their submission
LAST_DAY = timedelta(days=1)
LONGEST_INCIDENT = timedelta(days=7)  # of those that ended within the last day; older ones are not counted
REVIEWED_AT_MOST = 50  # incidents of the last day whose lost hours are summed up: each is a query of its own
UNENDED = (IncidentState.OPEN, IncidentState.WAITING)


@dataclass(frozen=True)
class _Counted:
    """A pool's record, and its nodes as they were counted, now or at `counted_at`."""

    record: Pool
    census: Census | None
    counted_at: datetime | None


def _counted(name: str, ports: Ports) -> _Counted:
    record = ports.pools.get(name)
    return _Counted(record, *last_census(record, ports))


def pool(name: str, pauses: Pauses, ports: Ports, policy: RecoveryPolicy, jobs: Sequence[Job] = ()) -> PoolRow:
    """Return one pool, measured by this policy. `jobs`: those to count, of any pool."""
    return _pool_row(_counted(name, ports), pauses, ports, policy, jobs)


def _pool_row(counted: _Counted, pauses: Pauses, ports: Ports, policy: RecoveryPolicy, jobs: Sequence[Job]) -> PoolRow:
    now, name, record, census = ports.clock(), counted.record.name, counted.record, counted.census
    slots = slots_of(name, ports, policy, census.size) if census is not None else None
    nodes, pause = census or Census(), pauses.of_pool(name, now)
    return PoolRow(
        pool=name,
        mode=policy.pool(name).mode.value,
        size=census.size if census is not None else None,
        counted_at=counted.counted_at,
        nodes=dict(nodes.states),
        availability=dict(nodes.availability),
        spares=nodes.spares,
        slots_held=len(ports.pools.holders(name)),
        slots=slots.total if slots is not None else None,
        extra=slots.extra if slots is not None else 0,
        in_line=len(ports.operations.queued(pool_line(Awaited.BUDGET, name))),
        breaker_opened_at=record.breaker_opened_at if record.is_tripped else None,
        breaker_why=record.breaker_why or None,
        paused_until=pause.until if pause is not None else None,
        paused_why=pause.why if pause is not None else None,
        jobs=dict(Counter(sorted(job.state for job in jobs if job.pool == name and not job.is_over))),
    )


def breaker(name: str, ports: Ports) -> BreakerView:
    """Return a pool's breaker and what waits for its reset."""
    record, line = ports.pools.get(name), ports.operations.queued(pool_line(Awaited.BREAKER, name))
    return BreakerView(
        pool=name,
        opened_at=record.breaker_opened_at,
        why=record.breaker_why,
        waiting=tuple(wait.incident_id for wait in line),
        nodes={wait.incident_id: wait.step.decision.node_id for wait in line},
    )


def fleet(names: Sequence[str], ports: Ports, policy: RecoveryPolicy) -> FleetView:
    """Return these pools with their open incidents, their live jobs, what waits for a person, and what ended within a
    day.
    """
    now = ports.clock()
    known = [job for name in names for job in ports.job_notes.in_pool(name)]
    jobs, since = [job for job in known if not job.is_over], now - FAILED_LOOKED_BACK
    failed = [job for job in known if job.waits_for_a_human and (job.submitted_at or now) >= since]
    incidents = list_incidents(ports, names, [*UNENDED, IncidentState.ESCALATED], now - LOOKED_BACK)
    under_way = [incident for incident in incidents if incident.is_under_way]
    handed_over = [
        incident
        for incident in incidents
        if not (incident.is_under_way or _is_about_jobs(failed, known, incident, ports))
    ]
    deadlines = dict(_deadlines(under_way, ports))
    asked = [incident for incident in under_way if incident.incident_id in deadlines]
    pauses = ports.pauses.read()
    counted = [_counted(name, ports) for name in names]
    pools = tuple(_pool_row(each, pauses, ports, policy, jobs) for each in counted)
    return FleetView(
        at=now,
        records_lost_since=ports.epoch.read().lost_since,
        good=_good(counted, ports),
        pools=pools,
        todo=(
            *(_answer(incident, deadlines[incident.incident_id]) for incident in asked),
            *(_reset(row) for row in pools if row.breaker_opened_at is not None),
            *(_take_over(incident, ports) for incident in handed_over),
            *(_bring_back(job, ports) for job in failed),
        ),
        asked=tuple(AskedRow(**row_fields(incident), answer_by=deadlines[incident.incident_id]) for incident in asked),
        handed_over=tuple(map(row, handed_over)),
        open=tuple(map(row, under_way)),
        failed_jobs=tuple(
            FailedJobRow(job=job.job_id, pool=job.pool, trouble=job.trouble, summary=job.summary) for job in failed
        ),
        last_24_hours=_last_day(names, ports),
        jobs=tuple(
            JobRow(
                job=job.job_id,
                state=job.state,
                pool=job.pool,
                nodes=job.nodes,
                submitted_at=job.submitted_at,
                summary=job.summary,
            )
            for job in jobs
        ),
    )


def _good(pools: Sequence[_Counted], ports: Ports) -> FleetGoodRow:
    """Nothing is read for it: the sweep has written down how jobs train with the records of the pools."""
    each = (
        FleetGood(pool.census.accelerators if pool.census else None, last_running_jobs(pool.record, ports))
        for pool in pools
    )
    good = sum(each, FleetGood())
    nodes, jobs = good.nodes, good.jobs
    return FleetGoodRow(
        percent=good.percent,
        in_service=good.in_service,
        as_usual=good.as_usual,
        accelerators=nodes.accelerators if nodes else None,
        accelerators_in_service=nodes.in_service if nodes else None,
        accelerators_of_jobs=jobs.accelerators if jobs else None,
        accelerators_as_usual=jobs.as_usual if jobs else None,
        accelerators_not_shown=jobs.not_shown if jobs else None,
    )


def _deadlines(incidents: Sequence[Incident], ports: Ports) -> Iterator[tuple[str, datetime]]:
    """Yield the incidents that ask a person for approval, and until when."""
    for incident in incidents:
        question = find_question(Question(incident.incident_id, incident.turn), ports)
        if question is not None:
            yield incident.incident_id, question.deadline_at


def _about(incident: Incident) -> dict[str, Any]:
    return {
        "subject": incident.incident_id,
        "pool": incident.pool,
        "node": incident.node_id,
        "since": incident.opened_at,
        "is_drill": incident.began_as_drill,
        "why": incident.summary or title_of(incident.root),
    }


def _answer(incident: Incident, deadline_at: datetime) -> Todo:
    acts = (ActKind.APPROVE, ActKind.REFUSE)
    return Todo(kind=TodoKind.ANSWER, deadline_at=deadline_at, acts=acts, **_about(incident))


def _reset(row: PoolRow) -> Todo:
    return Todo(
        kind=TodoKind.RESET_BREAKER,
        subject=row.pool,
        pool=row.pool,
        since=row.breaker_opened_at,
        why=row.breaker_why or "",
        acts=(ActKind.RESET_BREAKER,),
    )


def _take_over(incident: Incident, ports: Ports) -> Todo:
    """A node that the incident keeps out of service is released or retired, which closes it."""
    node = ports.nodes.get(incident.node_id)
    is_kept_out = node is not None and node.open_incident == incident.incident_id and node.state in OUT_OF_SERVICE
    acts = (ActKind.RELEASE, ActKind.RETIRE) if is_kept_out else (ActKind.CLOSE_INCIDENT,)
    return Todo(kind=TodoKind.TAKE_OVER, acts=acts, **_about(incident))


def _bring_back(job: Job, ports: Ports) -> Todo:
    """As the email to the operators says."""
    need, is_theirs = needed_of_operators(job.trouble, has_owner=job.owner is not None)
    return Todo(
        kind=TodoKind.BRING_BACK_JOB,
        subject=job.job_id,
        pool=job.pool,
        since=job.ended_at(ports.jobs.get_run(job.job_id, job.current_run)) or job.submitted_at,
        why=job.summary or "it has failed",
        need=need,
        acts=(ActKind.RESTART_JOB, ActKind.STOP_JOB) if is_theirs else (ActKind.STOP_JOB,),
    )


def _last_day(names: Sequence[str], ports: Ports) -> LastDay:
    since = ports.clock() - LAST_DAY
    known = list_incidents(ports, names, list(IncidentState), since - LONGEST_INCIDENT)
    ended = [incident for incident in known if incident.closed_at is not None and incident.closed_at >= since]
    is_read = len(ended) <= REVIEWED_AT_MOST
    hours = [review_incident(incident.incident_id, ports).lost_accelerator_hours for incident in ended if is_read]
    words = Counter(sorted(state_word(incident).value for incident in ended))
    return LastDay(ended=dict(words), lost_accelerator_hours=sum(hours) if is_read else None)


def _is_about_jobs(failed: Sequence[Job], known: Sequence[Job], incident: Incident, ports: Ports) -> bool:
    """Whether it has left a failed job down, or its job was seen to since; and no node waits for its close."""
    has_left_down = any(job.left_down_by == incident.incident_id for job in failed)
    if not has_left_down and not any(job.job_id == incident.job_id and is_job_seen_to(job, incident) for job in known):
        return False
    node = ports.nodes.get(incident.node_id)
    return node is None or node.open_incident != incident.incident_id
