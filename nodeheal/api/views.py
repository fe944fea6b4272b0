"""Views: what a screen shows, as values that are written as JSON. Times are UTC, to the second."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

from nodeheal.contract.vocabulary import Availability, Awaited, IncidentState, JobState, NodeState, Step, Trouble

Time = Annotated[datetime, PlainSerializer(lambda at: at.isoformat(timespec="seconds"), when_used="json")]


class View(BaseModel):
    """A value that is shown."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class PoolRow(View):
    """A pool. `nodes`, `availability` and `jobs` count nodes and live jobs by their states; `size` leaves out nodes
    that are not in the pool any more, or not yet.
    """

    pool: str
    mode: str
    size: int
    nodes: dict[NodeState, int]
    availability: dict[Availability, int]
    spares: int
    slots_held: int
    slots: int
    extra: int  # of the slots: for as long as nodes are quarantined
    in_line: int  # incidents that wait for a slot
    breaker_opened_at: Time | None
    breaker_why: str | None
    paused_until: Time | None
    paused_why: str | None
    jobs: dict[JobState, int]


class IncidentRow(View):
    """An incident. `doing`: the step that runs, or what it waits for, in words; empty: it has ended."""

    incident: str
    opened_at: Time
    node: str
    pool: str
    job: str | None
    state: IncidentState
    step: Step | None
    step_at: Time | None
    waits_for: Awaited | None
    doing: str
    fault: str
    is_drill: bool
    summary: str | None


class AskedRow(IncidentRow):
    """An incident that waits for a person's answer, and until when."""

    answer_by: Time


class JobRow(View):
    """A job that is not over."""

    job: str
    state: JobState
    pool: str
    nodes: int
    submitted_at: Time | None
    summary: str | None


class FailedJobRow(View):
    """A job that is down, and that a person must bring back."""

    job: str
    pool: str
    trouble: Trouble | None
    summary: str | None


class TodoKind(StrEnum):
    """What a person has to do."""

    ANSWER = "ANSWER"  # an incident asks for approval
    RESET_BREAKER = "RESET_BREAKER"  # so much failed that nodeheal acts no more in a pool
    TAKE_OVER = "TAKE_OVER"  # an incident was handed over and is not closed
    BRING_BACK_JOB = "BRING_BACK_JOB"  # a job is down


class Act(StrEnum):
    """What a person may do about it."""

    APPROVE = "APPROVE"
    REFUSE = "REFUSE"
    RESET_BREAKER = "RESET_BREAKER"
    CLOSE_INCIDENT = "CLOSE_INCIDENT"
    RESTART_JOB = "RESTART_JOB"
    STOP_JOB = "STOP_JOB"


class Todo(View):
    """Something that waits for a person. `subject`: the id of an incident or a job, or a pool's name.

    `why`: what happened; `need`: what is to be done about it, where the acts alone do not say so.
    """

    kind: TodoKind
    subject: str
    pool: str
    node: str | None = None
    since: Time | None
    deadline_at: Time | None = None
    is_drill: bool = False
    why: str
    need: str = ""
    acts: tuple[Act, ...]


class LastDay(View):
    """What ended within the last 24 hours: how many incidents, by the word of lists.

    `lost_accelerator_hours`: None where there were too many incidents to read them all.
    """

    ended: dict[str, int]
    lost_accelerator_hours: float | None


class FleetView(View):
    """All pools. `handed_over`: incidents that a person has and has not closed.

    One that is only about a job in `failed_jobs` is left out, for the job's summary names it, and one about a failure
    of a job's own that was started again or given up since.
    """

    at: Time
    records_lost_since: Time | None  # the table was restored to then, and nodeheal does nothing
    pools: tuple[PoolRow, ...]
    todo: tuple[Todo, ...]
    asked: tuple[AskedRow, ...]
    handed_over: tuple[IncidentRow, ...]
    open: tuple[IncidentRow, ...]
    failed_jobs: tuple[FailedJobRow, ...]
    last_24_hours: LastDay
    jobs: tuple[JobRow, ...]
