"""Views of one incident and of many: their stories, what they add up to, and the record of one part."""

from datetime import date

from nodeheal.api.base_view import Time, View
from nodeheal.contract.vocabulary import Ending, IncidentState, Step, Verdict


class DecisionRow(View):
    """A decision, the version of the policy that it followed, and its result.

    No `outcome`: it is under way, or was the last one.
    """

    at: Time
    step: str
    reason: str
    policy_version: str
    ended_at: Time | None
    outcome: str
    result: str
    phase: str


class TimelineRow(View):
    """A line of the timeline. `seconds`: after the fault; `actor`: the ARN of the person who has acted, if one has."""

    seconds: float
    kind: str
    text: str
    actor: str | None


class TimelineView(View):
    """The timeline, sorted by a reviewer's questions.

    `confirmed`: what the node answered when it was asked about its fault; `evidence`: where it lies.
    """

    answers: tuple[str, ...]
    attempts: tuple[str, ...]
    confirmed: tuple[str, ...]
    evidence: tuple[str, ...]
    timeline: tuple[TimelineRow, ...]


class IncidentReview(View):
    """The whole story of one incident.

    `job`: its job in words; of a node without one, the tasks of others that ran there. `asked_by_hand`: by whom, and
    why; empty: a fault was found. `seconds_to_recover`: None where a person had to answer, or it did not recover.
    """

    incident_id: str
    subject: str
    state: IncidentState
    status: str  # in words
    ending: Ending | None
    summary: str
    node_id: str
    pool: str
    job_id: str | None
    job: str
    fault: str
    fault_page: str
    component: str | None
    serial: str | None
    rack: str | None
    is_drill: bool  # every fault was injected
    asked_by_hand: str
    is_found: bool
    is_of_program: bool
    fault_at: Time
    opened_at: Time
    closed_at: Time | None
    decisions: tuple[DecisionRow, ...]
    phase_seconds: dict[str, float]
    seconds_to_recover: float | None
    lost_accelerator_hours: float
    told: TimelineView


class AnswerMeanings(View):
    """What each answer to a question does."""

    approve: str
    refuse: str


class QuestionView(View):
    """What an incident asks, until when, and what each answer does. `turn`: by which an answer names this question."""

    turn: int
    asks: str
    deadline_at: Time
    means: AnswerMeanings


class NeededRow(View):
    """What a person has to do, and the commands to paste for it."""

    text: str
    commands: tuple[str, ...]


class IncidentView(IncidentReview):
    """An incident with what it asks now, and what a person has to do about it as things stand."""

    asked: QuestionView | None
    needed: tuple[NeededRow, ...]


class RecoveryTimes(View):
    """Times to recovery, in seconds. `p90`: so many took this long or less."""

    incidents: int
    mean: float
    median: float
    p90: float


class DayRow(View):
    """What was opened on one day (UTC): faults, how many of them recovered, and accelerator-hours lost by all."""

    day: date
    incidents: int
    recovered: int
    lost_accelerator_hours: float


class IncidentTally(View):
    """What many incidents add up to. Drills are counted apart, and are in none of the other numbers.

    `asked`: what operators asked for, and new nodes: of them only the lost hours count.
    """

    incidents: int
    drills: int
    asked: int
    time_to_recover: RecoveryTimes | None
    by_cause: dict[str, int]
    by_ending: dict[str, int]
    accelerators_again: dict[str, int]
    nodes_again: dict[str, int]
    by_rack: dict[str, int]
    days: tuple[DayRow, ...]
    lost_accelerator_hours: float


class LinkedIncident(IncidentView):
    """An incident with the address of its workflow in the console."""

    execution: str


class IncidentReport(View):
    """All incidents of a time (`30d`), the newest first, and what they add up to. `pool`: None: of all pools."""

    since: str
    pool: str | None
    tally: IncidentTally
    incidents: tuple[IncidentReview, ...]


class PartFaultRow(View):
    """A fault that the part reported. `times`: how many equal reports it stands for."""

    at: Time
    node_id: str
    component: str
    fault: str
    verdict: Verdict
    times: int
    line: str
    incident_id: str


class PartRepairRow(View):
    """A repair or a diagnosis of the node that had the part, and its result."""

    at: Time
    node_id: str
    step: Step
    outcome: str
    result: str
    incident_id: str


class PartView(View):
    """The record of one part by its serial within a time (`90d`), oldest first. Drills are left out.

    `labels`: of the newest report. `places`: each node and address where it was. `evidence`: where the saved state of
    its node lies.
    """

    since: str
    serial: str
    product: str
    labels: dict[str, str]
    places: tuple[str, ...]
    faults: tuple[PartFaultRow, ...]
    repairs: tuple[PartRepairRow, ...]
    incidents: tuple[str, ...]
    evidence: tuple[str, ...]
