"""The parts of the policy document, each with unit, default and meaning."""

from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from nodeheal.contract.health_event import Frozen, Line, Word
from nodeheal.contract.vocabulary import Action, Check, Family, JobFindingKind, NextStepCondition
from nodeheal.domain.fleet.machine import ClusterReplacement, Remediator
from nodeheal.domain.verbs import DISRUPTIVENESS, VERBS, VerbSpec

HOUR = 3_600
DAY = 24 * HOUR
WEEK = 7 * DAY
# Faults are kept this long; and a knob beyond it is a slip of the finger that would break the arithmetic of times.
LONGEST = 90 * DAY
MEBIBYTE = 1024 * 1024
# A node that is about to be rebooted is given minutes for its last words, not hours.
LONGEST_EVIDENCE_SECONDS = 1_800
LONGEST_DIGEST_HOURS = 168
FAULT = rf"^({'|'.join(family.value for family in Family)})/([^\s/]+(/[^\s/]+)*)$"

Fault = Annotated[str, Field(pattern=FAULT)]


class Mode(StrEnum):
    """How far nodeheal may go by itself."""

    observe = "observe"
    approve = "approve"
    act = "act"


class Severity(StrEnum):
    """How much a notification asks of people."""

    PAGE = "PAGE"
    INFO = "INFO"


class Channel(Frozen):
    """What one channel is told. Which channels there are, and of which kind, is the deployment's."""

    severities: tuple[Severity, ...] = Field(
        default=(Severity.PAGE, Severity.INFO),
        description="what it gets at once, each in a message of its own; PAGE: somebody is needed, INFO: to know",
    )
    digest_hours: int = Field(
        default=0,
        ge=0,
        le=LONGEST_DIGEST_HOURS,
        description="one message every so many hours, counted from midnight UTC on 1970-01-01, with the incidents that"
        " were opened in them: 24 is once a day; 0: none",
    )


class Weekday(StrEnum):
    """Days of a maintenance window, UTC."""

    monday = "monday"
    tuesday = "tuesday"
    wednesday = "wednesday"
    thursday = "thursday"
    friday = "friday"
    saturday = "saturday"
    sunday = "sunday"


class Budget(Frozen):
    """How much of a pool nodeheal may take out of service at once. The stricter of the two wins."""

    max_nodes: int = Field(default=1, ge=0, description="nodes that may be out of service by our hand at once")
    max_percent: float = Field(
        default=10.0, ge=0, le=100, description="percent of the pool's nodes; the stricter of the two wins"
    )
    floor_nodes: int = Field(default=1, ge=0, description="nodes that percent never goes below: small pools still work")
    quarantine_percent: float = Field(
        default=50.0,
        ge=0,
        le=100,
        description="percent of the slots, rounded down, that quarantined nodes may hold until as many nodes are "
        "quarantined as there are slots; each one more holds a slot. 100: every quarantined node holds one",
    )

    def slots(self, pool_nodes: int) -> int:
        """How many nodes of a pool of this size may be disrupted."""
        return min(self.max_nodes, max(self.floor_nodes, int(pool_nodes * self.max_percent / 100)))

    def uncounted(self, slots: int, quarantined: int) -> int:
        """How many of so many quarantined nodes count for no slot, so that the others can still be healed."""
        held = int(slots * self.quarantine_percent / 100)
        return min(max(0, quarantined - held), slots - held)

    def most_out(self, slots: int) -> int:
        """How many nodes may be out of service at the very most, quarantined ones included."""
        return slots + self.uncounted(slots, slots)


class MaintenanceWindow(Frozen):
    """A weekly time in which people work on the pool: nodeheal records and tells, and touches nothing."""

    days: tuple[Weekday, ...] = Field(min_length=1, description="days on which it begins, UTC")
    starts_at: time = Field(description="HH:MM, UTC")
    minutes: int = Field(gt=0, le=DAY // 60, description="how long it lasts, minutes; it may run past midnight")
    why: Line = Field(description="told with every decision that it holds back")

    @model_validator(mode="after")
    def _is_utc(self) -> Self:
        if self.starts_at.tzinfo is not None:
            raise ValueError("starts_at: give HH:MM without a zone; it is UTC")
        return self

    def holds(self, now: datetime) -> bool:
        """Whether `now` (UTC) lies in it. The window of the day before may still run."""
        for day in (now, now - timedelta(days=1)):
            begins = datetime.combine(day.date(), self.starts_at, tzinfo=now.tzinfo)
            is_its_day = list(Weekday)[begins.weekday()] in self.days
            if is_its_day and begins <= now < begins + timedelta(minutes=self.minutes):
                return True
        return False


class Deadlines(Frozen):
    """How long the workflow waits for each step before it looks for itself. Seconds."""

    isolate_seconds: int = Field(
        default=180, gt=0, le=LONGEST, description="drain, and the gang's tasks stopped with their grace"
    )
    reboot_seconds: int = Field(
        default=1_200, gt=0, le=LONGEST, description="a GPU node boots in minutes; firmware can take 15"
    )
    reset_gpu_seconds: int = Field(
        default=300,
        gt=0,
        le=LONGEST,
        description="to stop what monitors the GPUs, reset one, and start it again; the reset itself gets 90 at most",
    )
    stop_start_seconds: int = Field(
        default=2_400, gt=0, le=LONGEST, description="EC2: to stop, start and boot; large machines take long for each"
    )
    diagnose_seconds: int = Field(
        default=1_200, gt=0, le=LONGEST, description="dcgmi diag -r 2 takes minutes on eight GPUs"
    )
    replace_seconds: int = Field(
        default=1_800, gt=0, le=LONGEST, description="a swap takes seconds; a new GPU machine 5 to 20 minutes"
    )
    restart_seconds: int = Field(default=600, gt=0, le=LONGEST, description="image pull included")
    quick_seconds: int = Field(default=60, gt=0, le=LONGEST, description="a step that waits for nothing")
    approval_seconds: int = Field(
        default=HOUR, gt=0, le=LONGEST, description="for a human's yes or no; silence hands the incident over"
    )
    budget_seconds: int = Field(
        default=DAY, gt=0, le=LONGEST, description="in line for a slot of the disruption budget, then a human is told"
    )
    breaker_seconds: int = Field(
        default=DAY, gt=0, le=LONGEST, description="for a human to reset an open breaker, then each incident is theirs"
    )
    external_repair_seconds: int = Field(
        default=HOUR,
        gt=0,
        le=LONGEST,
        description="for HyperPod to repair a node of a cluster that repairs by itself; then a human is told",
    )
    job_end_seconds: int = Field(
        default=WEEK,
        gt=0,
        le=LONGEST,
        description="for the job to end, where a fault lets it finish; then a human is told",
    )

    def of(self, verb: VerbSpec) -> int:
        """Seconds that this verb is given."""
        seconds: int = getattr(self, verb.deadline)
        return seconds


# What a restart can mend: from the last checkpoint, or from one before the loss was no number.
RESTARTABLE = (
    JobFindingKind.HUNG,
    JobFindingKind.NO_FIRST_STEP,
    JobFindingKind.LOSS_NOT_FINITE,
    JobFindingKind.SLOW_RANK,
)


class SlowJobs(Frozen):
    """When the owner of a job is told that it trains slowly, badly or not at all, and when it is restarted for it."""

    enabled: bool = Field(default=True, description="false: nobody looks at how jobs train; nor where `silence` is off")
    restarts: tuple[JobFindingKind, ...] = Field(
        default=(),
        description="for which findings a job starts again from a checkpoint, by an incident as for any other"
        " failure: within the limits of the job and in the mode of its pool; the others are only told. SLOW_RANK: only"
        " where the node's own checks measure what slows it, and then the node is repaired",
    )
    hang_seconds: int = Field(default=30, ge=10, le=DAY, description="a run hangs that takes no step for so long")
    hang_steps: int = Field(
        default=10,
        ge=2,
        le=10_000,
        description="and for as long as so many of its steps usually take, and for twice as long as ever before",
    )
    first_step_seconds: int = Field(
        default=3_600, ge=0, le=DAY, description="its first step may take so long, where a job shows steps; 0: any time"
    )
    slower_percent: float = Field(
        default=12.0,
        gt=0,
        le=1_000,
        description="a run is slower whose steps take so much longer than they usually do in it",
    )
    deviations: float = Field(
        default=6.0,
        ge=3,
        le=100,
        description="and by so many standard deviations; a rank is slow that lies as far from its peers",
    )
    missed_checkpoints: int = Field(
        default=3,
        ge=2,
        le=1_000,
        description="intervals (checkpoints.every_seconds of its file) that may pass without a checkpoint",
    )

    @model_validator(mode="after")
    def _restarts_can_help(self) -> Self:
        wrong = [kind for kind in self.restarts if kind not in RESTARTABLE]
        if wrong:
            raise ValueError(f"restarts: no job starts again for {wrong[0]}; give {', '.join(RESTARTABLE)}")
        return self


class Fabric(Frozen):
    """What is asked of the network between the nodes of a pool, before a job of several nodes starts on them."""

    tests: bool = Field(
        default=False,
        description="test them in pairs with fi_pingpong over EFA; the security group must let the nodes speak",
    )
    min_mb_per_second: int = Field(default=0, ge=0, le=1_000_000, description="less has failed; 0: any speed will do")
    all_reduce: bool = Field(
        default=False,
        description="and then sum up over all GPUs of both with NCCL, which the nodes must have; needs `tests`",
    )
    min_all_reduce_mb_per_second: int = Field(
        default=0, ge=0, le=1_000_000, description="on the bus, as nccl-tests calculates it; 0: any speed will do"
    )

    @model_validator(mode="after")
    def _the_sum_is_part_of_the_tests(self) -> Self:
        if self.all_reduce and not self.tests:
            raise ValueError("all_reduce is a part of the network tests: it needs tests = true")
        return self


class NewNodes(Frozen):
    """What is done with a node that comes up for the first time, before it serves. Nothing but in `act` mode."""

    diagnose: bool = Field(default=True, description="isolate it, and let it serve once it has passed its diagnostics")
    max_nodes: int = Field(
        default=8, ge=1, le=1_000, description="new nodes that are diagnosed at once; they take no slot of `budget`"
    )


class InGroup(StrEnum):
    """How a machine of an Auto Scaling group is given up."""

    terminate = "terminate"
    mark_unhealthy = "mark_unhealthy"


class Replacement(Frozen):
    """How nodes of a pool are replaced. Hybrid nodes are always swapped for a warm spare."""

    max_nodes: int = Field(default=1, ge=1, description="EC2 nodes of the pool being replaced at once")
    prefer_spare: bool = Field(
        default=False, description="EC2: take a warm spare of the pool first, and launch only where there is none"
    )
    in_group: InGroup = Field(
        default=InGroup.terminate,
        description="in an Auto Scaling group: terminate now, or mark unhealthy and leave the rest to the group",
    )
    terminate_first: bool = Field(
        default=False,
        description="without a group: give the broken machine up before its successor is launched, as a full "
        "reservation or capacity block demands; there is no way back from it",
    )
    subnets: tuple[Word, ...] = Field(
        default=(),
        max_length=4,
        description="without a group: where else to launch, in order, when there is no capacity",
    )
    instance_types: tuple[Word, ...] = Field(
        default=(),
        max_length=2,
        description="without a group: what else to launch, in order, when there is no capacity",
    )
    by_cluster: ClusterReplacement | None = Field(
        default=None,
        description="have the scheduler's cluster replace the machine. power_down: ParallelCluster and others with a "
        "SuspendProgram. delete_node_claim: Karpenter. Empty: an Auto Scaling group replaces the node, or HyperPod its "
        "own",
    )
    accept_owners: tuple[Remediator, ...] = Field(
        default=(), description="others that may repair this pool's nodes beside nodeheal; by default it then keeps off"
    )


class PoolPolicy(Frozen):
    """What holds for one pool."""

    mode: Mode = Field(
        default=Mode.observe,
        description="observe: decide and tell, touch nothing; approve: a human says yes first; act: recover",
    )
    modes: dict[Action, Mode] = Field(
        default_factory=dict,
        description="by action, where it differs: RESET_GPU, REBOOT, STOP_START, REPLACE, ISOLATE or RESTART_WORKLOAD",
    )
    budget: Budget = Field(default_factory=Budget)
    new_nodes: NewNodes = Field(default_factory=NewNodes)
    idle_check_hours: int = Field(
        default=0,
        ge=0,
        le=8_760,
        description="a free node that has not been diagnosed for so long is, while no job waits for nodes and another"
        " slot of `budget` is free; in `act` mode only. 0: never",
    )
    maintenance: tuple[MaintenanceWindow, ...] = Field(default=(), description="times that belong to people")
    drills: bool = Field(
        default=False, description="`nodeheal inject` may break nodes of this pool on purpose, for a drill"
    )
    diagnostics_level: int | None = Field(
        default=None, ge=1, le=4, description="dcgmi diag -r for this pool; empty: the document's"
    )
    replacement: Replacement = Field(default_factory=Replacement)
    reset_gpu: bool = Field(
        default=False,
        description="where a fault's ladder has RESET_GPU, reset the one GPU before the node is rebooted, if nothing "
        "uses a GPU there. The agent, DCGM and the persistence daemon stop for it. false: the node is rebooted at once",
    )
    stop_start: bool = Field(
        default=False,
        description="EC2 that stands alone: where a reboot did not help, stop and start the instance before it is "
        "replaced. That moves it to another host, and loses its instance-store data and its public address",
    )
    stops_other_tasks: bool = Field(
        default=False,
        description="stop tasks of others (no service's) on a node that is isolated, where they carry the tag "
        "nodeheal:managed, and start them again when a node is back; false: they are named and left to run",
    )
    deletes_blocked_pods: bool = Field(
        default=False,
        description="at the isolation's deadline, delete the pods of services whose eviction was refused "
        "until then, past their disruption budgets; false: they are named and left",
    )
    checks: tuple[Check, ...] = Field(
        default=(Check.dcgm,), min_length=1, description="what proves a repair, in this order"
    )

    fabric: Fabric = Field(default_factory=Fabric)

    @model_validator(mode="after")
    def _modes_are_of_actions(self) -> Self:
        known = [action for action, verb in VERBS.items() if verb.has_mode]
        wrong = [action for action in self.modes if action not in known]
        if wrong:
            raise ValueError(f"modes: {wrong[0]} has no mode; give {', '.join(known)}")
        return self

    def mode_of(self, action: Action) -> Mode:
        """How far nodeheal may go with this action."""
        return self.modes.get(VERBS[action].budget_group or action, self.mode)


class Override(Frozen):
    """Treats a fault otherwise than the catalog, for a reason that every decision then gives."""

    fault: Annotated[str, Field(pattern=FAULT)] = Field(
        description="family/code, family/code/sub-code, or family/* for a whole family, e.g. xid/79"
    )
    ladder: tuple[Action, ...] = Field(min_length=1, description="what to try, in order; the first is the first action")
    next_rung: NextStepCondition = Field(
        default=NextStepCondition.unproven,
        description="what makes the second escalation step come: see docs/reference/faults.md",
    )
    pools: tuple[Line, ...] = Field(default=(), description="empty: every pool")
    why: Annotated[str, Field(min_length=1, max_length=300)] = Field(description="one sentence")

    @model_validator(mode="after")
    def _ladder_goes_up(self) -> Self:
        for verb in (VERBS[action] for action in self.ladder):
            if verb.follows is not None:
                raise ValueError(
                    f"ladder: {verb.action} stands in no ladder; a pool's {verb.pool_option} puts it after a reboot"
                )
        heights = [DISRUPTIVENESS[action] for action in self.ladder]
        if heights != sorted(set(heights)):
            raise ValueError(f"ladder: {' '.join(self.ladder)} does not go up; a later escalation step must do more")
        return self

    def exactness(self, fault: str, pool: str) -> int:
        """How exactly it names the fault `family/code/subcode`: 0 not at all, more the more exact."""
        if self.pools and pool not in self.pools:
            return 0
        given = self.fault.split("/")
        if given[1:] == ["*"]:
            return 1 if fault.split("/")[0] == given[0] else 0
        return len(given) + bool(self.pools) if fault.split("/")[: len(given)] == given else 0


class Correlation(Frozen):
    """Which findings belong together."""

    window_seconds: int = Field(
        default=300,
        gt=0,
        le=LONGEST,
        description="findings this close together have one cause: secondary faults, 154's text, link ends",
    )
    secondary_faults: tuple[Fault, ...] = Field(
        default=("xid/45",),
        description="secondary faults, as family/code: they follow from another fault and name their root",
    )
    repeats: int = Field(
        default=3, ge=2, description="the same fault so often on one accelerator climbs a ladder that says 'repeated'"
    )
    repeat_window_seconds: int = Field(
        default=DAY, gt=0, le=LONGEST, description="seconds in which repeats are counted"
    )
    other_jobs: int = Field(
        default=2, ge=2, description="an application fault on one accelerator under so many jobs is hardware"
    )
    other_job_window_seconds: int = Field(
        default=WEEK, gt=0, le=LONGEST, description="seconds in which those jobs are counted"
    )
    same_code_nodes: int = Field(
        default=3, ge=2, description="the same application fault on so many nodes of one job at once is the application"
    )


class Breaker(Frozen):
    """When so much fails at once that the cause is not in the nodes: isolate, reboot and replace no more, page once."""

    min_nodes: int = Field(default=3, ge=2, description="fewer nodes than this never trip it")
    max_nodes: int = Field(default=10, ge=2, description="so many nodes always trip it")
    percent: float = Field(default=10.0, gt=0, le=100, description="of the pool's nodes, between those two")
    window_seconds: int = Field(default=600, gt=0, le=LONGEST, description="seconds in which failing nodes are counted")
    departures: tuple[Fault, ...] = Field(
        default=(
            "host/instance_gone",
            "host/reservation_interruption",
            "host/scheduled_event",
            "host/spot_interruption",
        ),
        description="faults that never trip it: the provider takes nodes away, many at once, and says so",
    )
    stale_seconds: int = Field(
        default=600,
        ge=0,
        le=LONGEST,
        description="a fault older than this when the breaker is reset is dropped, not acted on",
    )

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.min_nodes > self.max_nodes:
            raise ValueError(f"min_nodes: {self.min_nodes} is more than max_nodes, {self.max_nodes}")
        return self

    def limit(self, pool_nodes: int) -> int:
        """How many nodes that fail together, for a common cause, trip it."""
        return min(self.max_nodes, max(self.min_nodes, int(pool_nodes * self.percent / 100)))


class Capacity(Frozen):
    """What is done when no replacement can be had: wait, try again, then tell a human. The broken node is held."""

    tries: int = Field(default=4, ge=1, le=8, description="how often a replacement is tried in one incident")
    wait_seconds: int = Field(
        default=120, gt=0, le=LONGEST, description="before the second try; each later wait is twice as long"
    )

    def wait_before(self, tried: int) -> int:
        """Seconds to wait when so many tries have found no capacity."""
        return int(min(LONGEST, self.wait_seconds * 2 ** max(0, tried - 1)))


class Lemon(Frozen):
    """A node that is recovered again and again costs more than it gives."""

    incidents: int = Field(
        default=3, ge=2, le=16, description="the incident of a node that marks it, counted in the window"
    )
    window_seconds: int = Field(
        default=WEEK, gt=0, le=LONGEST, description="seconds in which its recoveries are counted"
    )
    action: Action = Field(default=Action.REPLACE, description="REPLACE or ISOLATE; a human is told either way")

    @model_validator(mode="after")
    def _takes_it_out(self) -> Self:
        if self.action not in (Action.REPLACE, Action.ISOLATE):
            raise ValueError(f"action: {self.action} does not take a lemon out; give REPLACE or ISOLATE")
        return self


class Evidence(Frozen):
    """What a node can tell of its fault is saved before it is rebooted or replaced: afterwards it is gone."""

    enabled: bool = Field(default=True, description="save it")
    seconds: int = Field(
        default=90,
        gt=0,
        le=LONGEST_EVIDENCE_SECONDS,
        description="for all of it, upload included; then the recovery goes on",
    )
    max_mb: int = Field(default=32, gt=0, le=1_024, description="of the archive; what is biggest is left out first")
    bug_report: bool = Field(
        default=False, description="run nvidia-bug-report.sh as well: minutes, so `seconds` must allow for it"
    )

    @property
    def max_bytes(self) -> int:
        """How big an archive may be."""
        return self.max_mb * MEBIBYTE
