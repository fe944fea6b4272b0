"""Views: what a screen shows, as values that are written as JSON. Times are UTC, to the second."""

from enum import StrEnum

from nodeheal.api.base_view import Time, View
from nodeheal.contract.health_event import Accelerator
from nodeheal.contract.vocabulary import (
    Action,
    ActKind,
    Availability,
    Awaited,
    Ending,
    IncidentState,
    JobState,
    NodeState,
    Provider,
    SchedulerKind,
    Step,
    Trouble,
    Verdict,
)
from nodeheal.domain.review.review import StateWord


class PoolRow(View):
    """A pool. `nodes`, `availability` and `jobs` count nodes and live jobs by their states; `size` leaves out nodes
    that are not in the pool any more, or not yet.

    `counted_at`: when the sweep counted the nodes of a large pool; None: they were counted now. Where it has not yet,
    `size` and `slots` are None.
    """

    pool: str
    mode: str
    size: int | None
    counted_at: Time | None
    nodes: dict[NodeState, int]
    availability: dict[Availability, int]
    spares: int
    slots_held: int
    slots: int | None
    extra: int  # of the slots: for as long as nodes are quarantined
    in_line: int  # incidents that wait for a slot
    breaker_opened_at: Time | None
    breaker_why: str | None
    paused_until: Time | None
    paused_why: str | None
    jobs: dict[JobState, int]


class FleetGoodRow(View):
    """How good the pools are, in percent, and the parts: `in_service` of all accelerators, times `as_usual` of those
    that running jobs take. None: it is not known, or there are none.

    `accelerators_not_shown`: of the jobs that count as usual and show no steps.
    """

    percent: float | None
    in_service: float | None
    as_usual: float | None
    accelerators: int | None
    accelerators_in_service: int | None
    accelerators_of_jobs: int | None
    accelerators_as_usual: int | None
    accelerators_not_shown: int | None


class IncidentRow(View):
    """An incident. `word`: how it stands, as lists print and take it. `doing`: the step that runs, or what it waits
    for, in words; empty: it has ended. `summary`: None before its end.
    """

    incident: str
    opened_at: Time
    closed_at: Time | None
    node: str
    pool: str
    job: str | None
    state: IncidentState
    word: StateWord
    ending: Ending | None
    step: Step | None
    step_at: Time | None
    waits_for: Awaited | None
    doing: str
    fault: str
    began_as_drill: bool  # an operator injected its first fault
    summary: str | None


class AskedRow(IncidentRow):
    """An incident that waits for a person's answer, and until when."""

    answer_by: Time


class JobRow(View):
    """A job. `summary`: how it stands, or ended, in words."""

    job: str
    state: JobState
    pool: str
    nodes: int
    submitted_at: Time | None
    summary: str | None


class JobListRow(JobRow):
    """A job with how far its run has come, as its nodes' heartbeats say: None where none of them shows a step.

    `run`: 0 before the first. `steps`: how many its file says that it takes; `share`: of these, 0 to 1. `step_seconds`:
    of the last ten minutes; `usual_step_seconds`: of the run before.
    """

    scheduler: SchedulerKind
    priority: int
    run: int
    step: int | None
    steps: int | None
    step_at: Time | None
    steps_per_second: float | None
    share: float | None
    seconds_left: float | None
    step_seconds: float | None
    usual_step_seconds: float | None
    loss: float | None
    submission: int
    owner: str | None


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
    acts: tuple[ActKind, ...]


class LastDay(View):
    """What ended within the last 24 hours: how many incidents, by the word of lists.

    `lost_accelerator_hours`: None where there were too many incidents to read them all.
    """

    ended: dict[str, int]
    lost_accelerator_hours: float | None


class FleetView(View):
    """All pools. `handed_over`: incidents that a person has and has not closed.

    One that has only left a job in `failed_jobs` down is left out, for the job says so, and one about a failure
    of a job's own that was started again or given up since.
    """

    at: Time
    records_lost_since: Time | None  # the table was restored to then, and nodeheal does nothing
    good: FleetGoodRow
    pools: tuple[PoolRow, ...]
    todo: tuple[Todo, ...]
    asked: tuple[AskedRow, ...]
    handed_over: tuple[IncidentRow, ...]
    open: tuple[IncidentRow, ...]
    failed_jobs: tuple[FailedJobRow, ...]
    last_24_hours: LastDay
    jobs: tuple[JobRow, ...]


class StateChangeRow(View):
    """A state that a node was in, and since when."""

    at: Time
    state: NodeState
    reason: str


class RecoveryRow(View):
    """An incident that took a node out of service, and how it ended."""

    incident: str
    opened_at: Time
    fault: str
    is_drill: bool
    state: str  # in words of lists
    summary: str


class HardwareView(View):
    """What a node is made of, as its agent has reported."""

    at: Time
    machine: str | None
    accelerators: tuple[Accelerator, ...]


class DiagnosisView(View):
    """The diagnosis that a node reported last."""

    at: Time
    verdict: Verdict
    reason: str


class NodeView(View):
    """A node with what surrounds it. `availability`: whether a job can start on it; `since`: None where nobody has
    written down when the state began.

    `orders`: what is ordered by its mark at the scheduler and waits, with the reason.

    `handed_over`: recent incidents that a person has and has not closed. `recoveries`: the newest first, while they are
    kept. `good_run`: what its last good diagnosis measured. What an agent reports is None before it has reported.
    """

    node: str
    pool: str
    provider: Provider
    cluster: str
    spare: bool
    rack: str | None
    state: NodeState
    availability: Availability
    reason: str
    since: Time | None
    job: str | None
    incident: str | None
    handed_over: tuple[str, ...]
    attempts_left: dict[Action, int]
    has_slot: bool
    slots_held: int
    slots: int
    extra: int
    drained_by_us: bool
    pool_paused_until: Time | None
    pool_paused_why: str
    hardware: HardwareView | None
    recoveries: tuple[RecoveryRow, ...]
    boot: str | None
    booted_at: Time | None
    agent: str
    last_seen: Time | None
    accelerators: int
    probation_until: Time | None
    paused_until: Time | None
    paused_why: str
    orders: dict[Action, str]
    good_since: Time | None
    passed_at: Time | None
    last_diagnosis: DiagnosisView | None
    good_run: dict[str, float]
    states: tuple[StateChangeRow, ...]


class UnenrolledRow(View):
    """A node that reports and is not enrolled. Its pool is what its agent says."""

    node: str
    pool: str
    cluster: str
    agent: str
    last_seen: Time


class BreakerView(View):
    """The breaker of a pool. `opened_at`: None: it is closed. `waiting`: the incidents that wait for its reset, in
    order; `nodes`: the node of each of them.
    """

    pool: str
    opened_at: Time | None
    why: str
    waiting: tuple[str, ...]
    nodes: dict[str, str]


class NodeRow(View):
    """A node in a list. `reason` is the node's own; `held` says who or what keeps it from new work, and since when."""

    node: str
    pool: str
    state: NodeState
    availability: Availability
    spare: bool
    job: str | None
    incident: str | None
    held: str | None
    held_since: Time | None
    last_seen: Time | None
    silent: bool
    rack: str | None
    machine: str | None
    paused_until: Time | None
    paused_why: str | None
    reason: str


class SchedulerJobRow(View):
    """A job that a scheduler runs by itself, or the cluster whose jobs are not known."""

    job: str | None
    scheduler: SchedulerKind
    cluster: str
    state: str
    nodes: int | None
    owner: str | None
    submitted_at: Time | None
    summary: str


class AccountFinding(View):
    """What a check of the account and its deployment has found. `todo`: what to do about it; empty: nothing."""

    what: str
    state: str
    detail: str
    todo: str


class Fact(View):
    """One fact of what an act will do, under a word: `work`, `budget`, `then`."""

    label: str
    text: str


class Consequences(View):
    """What an act will do as things are now."""

    facts: tuple[Fact, ...]
