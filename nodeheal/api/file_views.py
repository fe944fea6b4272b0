"""Views of commands that read files, and ask no deployment: job files, checkpoints, logs, replays, simulations."""

from datetime import datetime
from typing import Annotated

from pydantic import Field, PlainSerializer

from nodeheal.api.base_view import View
from nodeheal.contract.vocabulary import Action, CheckpointFormat, Family, NextStepCondition, Scope, Step, Verdict

Number = int | float  # a whole one stays one


class JobFileError(View):
    """What is wrong in a line of a job file. `field`: empty: the whole file."""

    line: int
    field: str
    message: str


class JobFileCheck(View):
    """A job file with all that is wrong in it, and what is probably not meant."""

    file: str
    is_valid: bool
    errors: tuple[JobFileError, ...]
    warnings: tuple[str, ...]


class CheckpointFile(View):
    """A checkpoint. `problem`: empty: it is whole; `written_at`: seconds since the epoch."""

    path: str
    step: int | None
    problem: str
    remark: str
    written_at: Number | None


class CheckpointListing(View):
    """The checkpoints of a directory, the newest first. `left_out`: older ones, which were not looked at."""

    directory: str
    format: CheckpointFormat
    checkpoints: tuple[CheckpointFile, ...]
    problem: str
    left_out: int
    newest_valid: str | None


class ClassifiedFault(View):
    """A fault in a kernel log, and what the catalog says about it. `name`: None: the catalog does not know it."""

    line_number: int
    family: Family
    code: int | str
    subcode: str | None
    component: str | None
    pid: int | None
    verdict: Verdict
    action: Action
    reason: str
    name: str | None
    message: str


class ToolFault(View):
    """A fault in the output of a tool, and what would be done about it."""

    family: Family
    code: str
    subcode: str | None
    component: str | None
    verdict: Verdict
    action: Action
    reason: str
    message: str
    pid: int | None = Field(exclude_if=lambda pid: pid is None)


class ToolOutput(View):
    """What the output of a tool says."""

    verdict: Verdict
    failed_tests: tuple[str, ...]
    undone_tests: tuple[str, ...]
    failed_components: tuple[str, ...]
    findings: tuple[ToolFault, ...]
    reason: str


class NextStep(View):
    """The step that a decision takes, and why."""

    next_step: Step
    reason: str


class FaultExplanation(View):
    """A fault, and what would be done about it in a pool. `after`: what was tried without success.

    `policy`: `built-in`, `deployed` or a file. What is None or empty of the catalog's own, the catalog does not know.
    """

    fault: str
    is_known: bool
    family: Family
    code: str
    subcode: str | None
    meaning: str | None
    scope: Scope
    verdict: Verdict
    action: Action
    ladder: tuple[Action, ...]
    next_rung: NextStepCondition
    why: str
    keep: tuple[str, ...]
    products: tuple[str, ...]
    drivers: str
    source: str | None
    pool: str
    pool_is_named: bool
    mode: str
    policy_version: str
    after: tuple[Action, ...]
    next_step: Step
    reason: str
    in_act_mode: NextStep
    policy: str


class ReplayedDecision(View):
    """A decision of a replay."""

    at: Annotated[datetime, PlainSerializer(datetime.isoformat, when_used="json")]
    incident_id: str
    node_id: str
    fault: str
    step: str
    reason: str
    outcome: str


class ReplayView(View):
    """What came of past events. `still_waiting`: incidents whose news the record does not hold."""

    events: int
    policy_version: str
    ingested: dict[str, int]
    actions: dict[str, int]
    endings: dict[str, int]
    nodes_touched: tuple[str, ...]
    budget_refused: tuple[ReplayedDecision, ...]
    attempts_refused: tuple[ReplayedDecision, ...]
    still_waiting: tuple[str, ...]
    decisions: tuple[ReplayedDecision, ...]


class DecidedOtherwise(View):
    """An incident that two policies take another way. `before`, `after`: empty: no decision was taken."""

    at: Annotated[datetime, PlainSerializer(datetime.isoformat, when_used="json")]
    incident_id: str
    node_id: str
    fault: str
    before: tuple[ReplayedDecision, ...]
    after: tuple[ReplayedDecision, ...]


class ReplayComparison(View):
    """What came of past events by one policy and by another one."""

    before: ReplayView
    after: ReplayView
    otherwise: tuple[DecidedOtherwise, ...]


class BrokenInvariant(View):
    """A violated invariant. `at`: seconds of virtual time; `replay`: the command that shows it again."""

    pool: str
    at: Number
    invariant: str
    about: str
    text: str
    replay: str


class SimulationResults(View):
    """The results of a simulation, in total. `violations`: how many there are in `broken`."""

    nodes: int
    days: Number
    digests: dict[str, str]
    faults: int
    incidents: int
    endings: dict[str, int]
    still_open: int
    actions: dict[str, int]
    pages: int
    emails: int
    dead_letters: int
    struck: int
    throttled: dict[str, int]
    surprises: dict[str, int]
    counted: dict[str, Number]
    lost_node_hours: Number
    jobs: dict[str, int]
    job_seconds: dict[str, Number]
    ettr: float | None
    dollars: dict[str, Number]
    violations: int
    broken: tuple[BrokenInvariant, ...]
    isolated_after_seconds: dict[str, Number]
    isolated_at_once_seconds: dict[str, Number]
    isolated_after_wait_seconds: dict[str, Number]


class UsedLatency(View):
    """The latency that a simulation was made with, by its name."""

    latency: str


class SimulationView(SimulationResults, UsedLatency):  # the fields of the last base come first
    """The results of a simulation, and the latency that it was made with."""


class MassFailureView(View):
    """What a mass failure comes to with each breaker, or with the one that was wanted."""

    failed: int
    latency: str
    breaker_raised: SimulationResults | None = Field(exclude_if=lambda results: results is None)
    breaker_as_it_ships: SimulationResults | None = Field(exclude_if=lambda results: results is None)
