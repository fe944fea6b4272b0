"""How everything stands, read together: the pools, what is under way in them, and what waits for a human."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from nodeheal.contract.names import JOB_SOURCE, pool_line
from nodeheal.contract.vocabulary import Availability, Awaited, IncidentState, JobState, NodeState
from nodeheal.domain.fleet.node import ABSENT
from nodeheal.domain.fleet.pool import Pool
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Question
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.review import state_word
from nodeheal.operations.approve import find_question
from nodeheal.ports import Ports
from nodeheal.services.operators.node_availability import availability_of
from nodeheal.services.operators.review_incidents import list_incidents, review_incident
from nodeheal.services.recovery.pool_size import Slots, slots_of

LOOKED_BACK = timedelta(days=30)
FAILED_LOOKED_BACK = timedelta(days=7)  # by their submission
LAST_DAY = timedelta(days=1)
LONGEST_INCIDENT = timedelta(days=7)  # of those that ended within the last day; older ones are not counted
REVIEWED_AT_MOST = 50  # incidents of the last day whose lost hours are summed up: each is a query of its own
State = TypeVar("State", NodeState, JobState, Availability)
UNENDED = (IncidentState.OPEN, IncidentState.WAITING)


@dataclass(frozen=True)
class PoolView:
    """One pool. `by_state`, `by_availability` and `jobs`: how many there are of each; ended jobs are left out."""

    pool: Pool
    mode: str
    by_state: dict[NodeState, int]
    by_availability: dict[Availability, int]
    spares: int
    slots_held: int
    slots: Slots
    in_line: int  # incidents that wait for a slot
    jobs: dict[JobState, int]

    @property
    def size(self) -> int:
        """Its nodes, without those that are not in it any more, or not yet."""
        return sum(count for state, count in self.by_state.items() if state not in ABSENT)


@dataclass(frozen=True)
class Asked:
    """An incident that waits for a human's answer, and until when."""

    incident: Incident
    deadline_at: datetime


@dataclass(frozen=True)
class LastDay:
    """What ended within the last 24 hours.

    `ended`: how many incidents ended so, by the word of lists. `lost_hours`: accelerator-hours; None: there were too
    many incidents to read them all.
    """

    ended: dict[str, int]
    lost_hours: float | None


@dataclass(frozen=True)
class FleetView:
    """All pools. `handed_over`: incidents that a human has and has not closed.

    One that is only about a job in `failed` is left out, for the job's summary names it, and one about a failure of a
    job's own that was started again or given up since.
    """

    at: datetime
    pools: tuple[PoolView, ...]
    open: tuple[Incident, ...]
    asked: tuple[Asked, ...]
    handed_over: tuple[Incident, ...]
    jobs: tuple[Job, ...]  # that are not over
    failed: tuple[Job, ...]  # that are down, and that a human must bring back
    last_day: LastDay
    down_since: Mapping[str, datetime]  # when the last run of each of these ended; its submission, where none began
    records_lost_since: datetime | None = None  # the table was restored to then, and nodeheal does nothing


def look_at_pool(name: str, ports: Ports, policy: RecoveryPolicy, jobs: Sequence[Job] = ()) -> PoolView:
    """One pool, measured by this policy."""
    now = ports.clock()
    nodes = [node.as_shown(now) for node in ports.nodes.in_pool(name)]
    live = [job for job in jobs if job.pool == name and not job.is_over]
    return PoolView(
        ports.pools.get(name),
        policy.pool(name).mode.value,
        _counted([node.state for node in nodes]),
        _counted([available for _, available in availability_of(nodes, ports)]),
        sum(node.is_spare and node.state not in ABSENT for node in nodes),
        len(ports.pools.holders(name)),
        slots_of(name, ports, policy),
        len(ports.operations.queued(pool_line(Awaited.BUDGET, name))),
        _counted([job.state for job in live]),
    )


def look_at_fleet(names: Sequence[str], ports: Ports, policy: RecoveryPolicy) -> FleetView:
    """These pools with their open incidents, their live jobs, and what ended within a day."""
    now = ports.clock()
    known = [job for name in names for job in ports.job_notes.in_pool(name)]
    jobs, since = [job for job in known if not job.is_over], now - FAILED_LOOKED_BACK
    failed = [job for job in known if job.waits_for_a_human and (job.submitted_at or now) >= since]
    found = list_incidents(ports, names, [*UNENDED, IncidentState.ESCALATED], now - LOOKED_BACK)
    under_way = [one for one in found if one.is_under_way]
    questions = ((one, find_question(Question(one.incident_id, one.turn), ports)) for one in under_way)
    return FleetView(
        now,
        tuple(look_at_pool(name, ports, policy, jobs) for name in names),
        tuple(under_way),
        tuple(Asked(one, question.deadline_at) for one, question in questions if question is not None),
        tuple(one for one in found if not (one.is_under_way or _is_about_jobs(failed, known, one, ports))),
        tuple(jobs),
        tuple(failed),
        _last_day(names, ports),
        {job.job_id: at for job in failed if (at := _down_since(job, ports)) is not None},
        ports.epoch.read().lost_since,
    )


def _last_day(names: Sequence[str], ports: Ports) -> LastDay:
    since = ports.clock() - LAST_DAY
    known = list_incidents(ports, names, list(IncidentState), since - LONGEST_INCIDENT)
    ended = [one for one in known if one.closed_at is not None and one.closed_at >= since]
    is_read = len(ended) <= REVIEWED_AT_MOST
    lost = sum(review_incident(one.incident_id, ports).lost_accelerator_hours for one in ended) if is_read else None
    return LastDay(dict(Counter(sorted(state_word(one).value for one in ended))), lost)


def _down_since(job: Job, ports: Ports) -> datetime | None:
    return job.ended_at(ports.jobs.get_run(job.job_id, job.current_run)) or job.submitted_at


def _is_about_jobs(failed: Sequence[Job], known: Sequence[Job], incident: Incident, ports: Ports) -> bool:
    """Whether a failed job names the incident as what has left it down, or its job was seen to since; and no node waits
    for its close."""
    is_named = any(incident.incident_id in job.summary for job in failed)
    if not is_named and not any(job.job_id == incident.job_id and is_job_seen_to(job, incident) for job in known):
        return False
    node = ports.nodes.get(incident.node_id)
    return node is None or node.open_incident != incident.incident_id


def _counted(states: Sequence[State]) -> dict[State, int]:
    return dict(Counter(sorted(states)))


def is_job_seen_to(job: Job, incident: Incident) -> bool:
    """Whether the incident is only about a failure of the job's own, to which a person has seen since."""
    return incident.root.source == JOB_SOURCE and is_seen_to(job, incident)


def is_seen_to(job: Job, incident: Incident) -> bool:
    """Whether the job is over, was given up, or was submitted again since: what is wrong with it now is not this."""
    submitted, ended = job.submitted_at, incident.closed_at
    is_later = submitted is not None and ended is not None and submitted > ended
    return is_later or (job.is_over and not job.waits_for_a_human)
