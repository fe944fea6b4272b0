"""Views of one job, with its runs and what its time went into."""

from nodeheal.api.base_view import Time, View
from nodeheal.api.views import JobListRow
from nodeheal.contract.job_spec import Checkpoints, RestartLimits
from nodeheal.contract.vocabulary import ActKind, Ending, IncidentState, JobFindingKind, Trouble


class StandingRow(View):
    """A job that gets nodes first, and since when it waits for them."""

    job: str
    since: Time | None
    priority: int
    nodes: int


class CheckpointRow(View):
    """The newest valid checkpoint, as it was looked for before the job's last start."""

    path: str
    step: int | None
    looked_at: Time


class RestartsView(View):
    """How often a job was restarted since it was submitted, in its window, and there for its program's own failures.

    `next_limit`: how many are left by the limit that is reached first; None: the caller may not read the policy.
    """

    total: int
    in_window: int
    of_application: int
    limits: RestartLimits
    next_limit: str | None


class RankRow(View):
    """A rank of a run."""

    rank: int
    node: str
    task: str | None  # the scheduler's name of it
    status: str
    exit_code: int | None
    stop_reason: str | None
    stopped_at: Time | None


class RunRow(View):
    """A run of a job. `started_by`: the mark of its tasks at the scheduler.

    In words: `begins`, where it goes on from; `broke`, which rank failed first by itself; `lost`, the work that the
    next run had to do again.
    """

    run: int
    started_by: str
    started_at: Time
    running_since: Time | None
    ended_at: Time | None
    why: str
    begins: str
    resumed_from: str | None
    resumed_step: int | None
    last_step: int | None
    has_succeeded: bool
    broke: str | None
    lost: str | None
    ranks: tuple[RankRow, ...]


class JobIncidentRow(View):
    """An incident of a job. `status`: how it stands, in words."""

    incident: str
    node: str
    state: IncidentState
    status: str
    ending: Ending | None
    fault: str
    summary: str


class MtbfView(View):
    """Mean time between failures of the whole gang, with its 90 % confidence interval.

    `seconds`: None before the first failure; `high_seconds`: None: without bound.
    """

    failures: int
    running_seconds: float
    seconds: float | None
    low_seconds: float
    high_seconds: float | None


class LossesView(View):
    """Seconds without training, by cause."""

    waiting_seconds: float
    preflight_seconds: float
    restart_seconds: float
    recomputed_seconds: float
    down_seconds: float


class RunTimesRow(View):
    """The time of one run, and after it until the next one."""

    number: int
    productive_seconds: float
    restart_seconds: float
    recomputed_seconds: float
    down_seconds: float
    has_failed: bool
    incident_id: str
    fault: str


class AccountView(View):
    """All of a job's time since its submission, by use. `words`: the same in a sentence; empty: no time has passed."""

    wall_seconds: float
    productive_seconds: float
    losses: LossesView
    runs: tuple[RunTimesRow, ...]
    ettr: float | None
    goodput: float | None
    failures: int
    words: str


class AdviceView(View):
    """How often a job should write a checkpoint, by its measured times. `lines`: the same for people.

    `says_enough`: it rests on enough to be followed.
    """

    mtbf: MtbfView | None
    write_seconds: float | None
    restart_seconds: float | None
    current_seconds: float | None
    young_seconds: float | None
    daly_seconds: float | None
    current_loss_share: float | None
    daly_loss_share: float | None
    saved_node_hours_a_day: float | None
    lines: tuple[str, ...]
    says_enough: bool
    account: AccountView


class JobFindingRow(View):
    """What is, or was, wrong with how the job trains. `nodes`: those with a rank that is a suspect."""

    kind: JobFindingKind
    text: str
    since: Time
    over_at: Time | None
    nodes: tuple[str, ...]


class JobView(JobListRow):
    """A job with what surrounds it. `waits_for`: what has to happen before it goes on; `-`: nothing.

    `need`: what its owner is to do about a job that is down, and `acts`: what answers it; empty: nobody has to act.
    `in_line`: `in_line_before` in words. `runs`: the newest, oldest first. `incidents`: those of this submission, the
    newest first. `findings`: what is wrong with how its newest run trains.
    """

    cluster: str
    accelerators: int
    spares: int
    task_definition: str
    container: str
    checkpoints: Checkpoints | None
    checkpoint: CheckpointRow | None
    directory_seen: str | None
    submitted_by: str | None
    stop_wanted: str | None
    trouble: Trouble | None
    need: str
    acts: tuple[ActKind, ...]
    waits_for: str
    in_line: str
    in_line_before: tuple[StandingRow, ...]
    restarts: RestartsView
    advice: AdviceView
    findings: tuple[JobFindingRow, ...]
    runs: tuple[RunRow, ...]
    incidents: tuple[JobIncidentRow, ...]


class LinkedJobIncident(JobIncidentRow):
    """An incident of a job, with the address of its workflow in the console."""

    execution: str


class LinkedJob(JobView):
    """A job with what nodeheal does not know itself: whether its owner gets emails (None: it has none), and the
    addresses of workflows in the console.
    """

    incidents: tuple[LinkedJobIncident, ...]
    owner_confirmed: bool | None
    execution: str | None
