"""Defines the closed vocabularies of the product, once.

Standard library only: the agent imports this module on nodes. Every value equals its name, so that a value in a log, a
table item or an event is found by searching the code for it.
"""

from enum import StrEnum


class _Word(StrEnum):
    """A string that equals its value."""

    __hash__ = str.__hash__  # Enum's own is ten times slower, and words are keys everywhere


class Family(_Word):
    """The kind of evidence that a health event is based on."""

    xid = "xid"
    sxid = "sxid"
    dcgm = "dcgm"
    nvml = "nvml"
    neuron = "neuron"
    efa = "efa"
    ib = "ib"
    pcie_aer = "pcie_aer"
    mce = "mce"
    oom = "oom"
    nvrm_other = "nvrm_other"
    host = "host"
    heartbeat = "heartbeat"
    task = "task"
    own = "own"  # a check of the operator's own: the catalog has no row of this family


class Verdict(_Word):
    """What a check concluded. UNKNOWN is never healthy."""

    OK = "OK"
    DEGRADED = "DEGRADED"
    UNKNOWN = "UNKNOWN"
    FAILED = "FAILED"


class Confirmation(_Word):
    """A node's answer whether it shows the fault that was reported of it."""

    CONFIRMED = "CONFIRMED"  # its own log or counters show it
    DENIED = "DENIED"  # they do not, although they would
    UNKNOWN = "UNKNOWN"  # it is not known


class Check(_Word):
    """The parts of a diagnosis."""

    dcgm = "dcgm"
    neuron = "neuron"
    efa = "efa"
    stress = "stress"


class CheckpointFormat(_Word):
    """The format of a checkpoint on disk."""

    auto = "auto"  # detected
    megatron = "megatron"  # latest_checkpointed_iteration.txt and iter_*
    torch_distributed = "torch_distributed"  # a folder with .metadata and *.distcp
    torch_save = "torch_save"  # single files
    hugging_face = "hugging_face"  # checkpoint-* of the Trainer
    nemo = "nemo"
    neuronx = "neuronx"
    numpy = "numpy"  # step-*.npz with its checksum beside it


class FabricRole(_Word):
    """The role of a node in a test of two."""

    SERVE = "SERVE"
    CONNECT = "CONNECT"


class Provider(_Word):
    """Who can reboot and replace a node."""

    ec2 = "ec2"
    hybrid = "hybrid"
    hyperpod = "hyperpod"  # an instance in an account of AWS's, which only SageMaker can reach


class SchedulerKind(_Word):
    """Which scheduler places work on a node. Which cloud repairs the node is its Provider."""

    ECS = "ECS"
    SLURM = "SLURM"
    KUBERNETES = "KUBERNETES"


class EndCause(_Word):
    """Why a task ended, where its scheduler gives more than an exit code. Each adapter derives it from its scheduler's
    texts.
    """

    ON_REQUEST = "ON_REQUEST"  # somebody requested it, nodeheal included
    NODE_LOST = "NODE_LOST"  # its machine was stopped or terminated
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  # its container exceeded its memory
    CANNOT_START = "CANNOT_START"  # its definition is wrong: no restart helps


class Action(_Word):
    """The action for a fault."""

    OBSERVE = "OBSERVE"
    RESTART_WORKLOAD = "RESTART_WORKLOAD"
    RESET_GPU = "RESET_GPU"  # one GPU; the node stays on its boot
    REBOOT = "REBOOT"
    STOP_START = "STOP_START"  # EC2: stop the machine and start it again, on another host
    REPLACE = "REPLACE"
    ISOLATE = "ISOLATE"
    ESCALATE = "ESCALATE"


class Scope(_Word):
    """How far a fault reaches."""

    application = "application"
    accelerator = "accelerator"
    link = "link"
    node = "node"
    fabric = "fabric"


class NextStepCondition(_Word):
    """When the second step of a fault's ladder comes. Each later step comes when the one before did not help."""

    unproven = "unproven"  # the first did not help
    repeated = "repeated"  # the fault has recurred on the same accelerator, as often as the policy says
    other_job = "other_job"  # the fault has recurred on the same accelerator under another job
    job_end = "job_end"  # the job that runs there has ended


class Step(_Word):
    """Decide's answer: the next step of the workflow."""

    ISOLATE = "ISOLATE"
    FREEZE_EVIDENCE = "FREEZE_EVIDENCE"
    REBOOT = "REBOOT"
    DIAGNOSE = "DIAGNOSE"
    REPLACE = "REPLACE"
    RETURN = "RETURN"
    RESTART_WORKLOAD = "RESTART_WORKLOAD"
    WAIT = "WAIT"
    CLOSE = "CLOSE"
    ESCALATE = "ESCALATE"


class VerbName(_Word):
    """What an operation does. Each has one file in nodeheal/operations, named in lower case."""

    ISOLATE = "ISOLATE"
    STOP_GANG = "STOP_GANG"
    LAUNCH_GANG = "LAUNCH_GANG"
    STOP_JOB = "STOP_JOB"
    LAUNCH_JOB = "LAUNCH_JOB"
    DIAGNOSE = "DIAGNOSE"
    FREEZE_EVIDENCE = "FREEZE_EVIDENCE"
    FIND_CHECKPOINT = "FIND_CHECKPOINT"
    FAN_OUT = "FAN_OUT"
    CHECK_NODE = "CHECK_NODE"
    NETWORK_TEST = "NETWORK_TEST"
    LOOK_AT_DIRECTORY = "LOOK_AT_DIRECTORY"
    RESET_GPU = "RESET_GPU"
    REBOOT = "REBOOT"
    STOP_START = "STOP_START"
    REPLACE = "REPLACE"
    AWAIT_NODES = "AWAIT_NODES"
    WATCH_GANG = "WATCH_GANG"
    WAIT = "WAIT"
    APPROVE = "APPROVE"
    NEW_NODE = "NEW_NODE"


class Awaited(_Word):
    """The condition of a WAIT."""

    JOB_END = "JOB_END"  # until the job that runs there has ended
    SETTLED = "SETTLED"  # until the node has had time to boot
    STABLE = "STABLE"  # until the node has run long enough since its reboot
    APPROVAL = "APPROVAL"  # until a human has answered
    BUDGET = "BUDGET"  # until a slot of the pool's disruption budget is free
    CAPACITY = "CAPACITY"  # until capacity may be available
    REPLACEMENT = "REPLACEMENT"  # until fewer nodes of the pool are being replaced
    BREAKER = "BREAKER"  # until a human has reset the pool's breaker
    EXTERNAL_REPAIR = "EXTERNAL_REPAIR"  # until the service that is in charge of the node has repaired it


class Outcome(_Word):
    """How a step ended. UNKNOWN: it may have acted; observe before anything else is done."""

    DONE = "DONE"
    REFUSED = "REFUSED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    TIMED_OUT = "TIMED_OUT"


class Refusal(_Word):
    """Why a step was not carried out, where the next decision depends on it."""

    NEW_BOOT = "NEW_BOOT"  # the node has booted since the decision, and nodeheal did not cause it
    EXTERNAL_REMEDIATOR = "EXTERNAL_REMEDIATOR"  # an external remediator repairs the node
    BUDGET_FULL = "BUDGET_FULL"  # the pool's disruption budget has no free slot
    REPLACEMENTS_FULL = "REPLACEMENTS_FULL"  # the limit of simultaneous replacements in the pool is reached
    NO_CAPACITY = "NO_CAPACITY"  # the provider has no capacity
    RESERVATION_FULL = "RESERVATION_FULL"  # the capacity reservation is full, the broken machine included
    INSTANCE_GONE = "INSTANCE_GONE"  # the machine to replace no longer exists
    TAKEN_OVER = "TAKEN_OVER"  # a person has put the node back into service, or holds it
    WORK_UNKNOWN = "WORK_UNKNOWN"  # the scheduler does not say what runs on the node
    LEFT_TO_INCIDENT = "LEFT_TO_INCIDENT"  # another incident brings the job back


class NodeState(_Word):
    """The state of a node."""

    UNENROLLED = "UNENROLLED"  # its agent reports, and it is not enrolled: it counts for nothing
    ENROLLED = "ENROLLED"  # an operator has announced it, and its agent has not reported yet
    HEALTHY = "HEALTHY"
    SUSPECT = "SUSPECT"
    ISOLATED = "ISOLATED"
    RECOVERING = "RECOVERING"
    PROBATION = "PROBATION"
    QUARANTINED = "QUARANTINED"
    RETIRED = "RETIRED"


class Availability(_Word):
    """Whether a job can start on a node, in one word. A node that is no part of its pool keeps its state's word."""

    FREE = "FREE"
    UP = "UP"  # in service; only its scheduler knows whether a job runs there
    BUSY = "BUSY"  # a job runs, or is about to start
    SUSPECT = "SUSPECT"  # in service with an open incident, so it gets no new job
    DRAINING = "DRAINING"  # a person wants it out once its job has ended
    PROBATION = "PROBATION"  # healed, and not yet trusted with a new job
    DRAINED = "DRAINED"  # out of service because a person wants it
    ISOLATED = "ISOLATED"
    RECOVERING = "RECOVERING"
    QUARANTINED = "QUARANTINED"
    RETIRED = "RETIRED"
    ENROLLED = "ENROLLED"
    UNENROLLED = "UNENROLLED"


class IncidentState(_Word):
    """The state of an incident."""

    OPEN = "OPEN"
    WAITING = "WAITING"
    CLOSED = "CLOSED"
    ESCALATED = "ESCALATED"


class Ending(_Word):
    """How an incident ended; the workflow's last state has the same meaning in words."""

    RECOVERED = "RECOVERED"
    OBSERVED_ONLY = "OBSERVED_ONLY"
    HANDED_TO_A_HUMAN = "HANDED_TO_A_HUMAN"


class Phase(_Word):
    """The subject of an email, for the filters of subscriptions."""

    ASKS = "ASKS"  # a human must answer
    WAITS = "WAITS"  # the incident waits for something that people can speed up
    ENDED = "ENDED"  # the incident is over
    NEWS = "NEWS"  # about many nodes, and no single incident
    # To the owner of one job
    STARTED = "STARTED"  # the job runs for the first time since it was submitted
    FINISHED = "FINISHED"  # every rank has ended successfully
    CANCELLED = "CANCELLED"  # a person has stopped it
    STOPPED = "STOPPED"  # the job was stopped for a recovery
    RUNS_AGAIN = "RUNS_AGAIN"  # the job was started again
    HANDED_OVER = "HANDED_OVER"  # the job is down, and a human must bring it back
    TRAINS_BADLY = "TRAINS_BADLY"  # the job runs, and trains slowly, wrongly or not at all


class JobFindingKind(_Word):
    """What is wrong with how a job trains."""

    HUNG = "HUNG"  # no rank takes a step
    NO_FIRST_STEP = "NO_FIRST_STEP"  # its ranks run, and have not taken one yet
    NO_CHECKPOINT = "NO_CHECKPOINT"  # it has written none for several of its intervals
    SLOWER = "SLOWER"  # its steps take longer than they usually do
    SLOW_RANK = "SLOW_RANK"  # the own work of a rank takes longer than that of the others
    LOSS_NOT_FINITE = "LOSS_NOT_FINITE"  # its loss is not a number
    LOSS_ROSE = "LOSS_ROSE"  # its loss is far above its median


class ChannelKind(_Word):
    """How a channel accepts a notification. Each kind has a row in services/notify/channel_kinds.py."""

    email = "email"
    chat = "chat"  # Slack and Microsoft Teams, by Amazon Q Developer in chat applications
    pagerduty = "pagerduty"  # Events API v2
    webhook = "webhook"  # any HTTPS endpoint that accepts JSON


class Escalation(_Word):
    """Why a human is needed. Each word has a runbook of its name, in docs/runbooks."""

    # Ends of an incident
    UNKNOWN_FAULT = "UNKNOWN_FAULT"  # the catalog does not contain the fault
    MANUAL_REVIEW_REQUIRED = "MANUAL_REVIEW_REQUIRED"  # catalog, policy or uncertainty requires a human for it
    POLICY_CHANGED = "POLICY_CHANGED"  # catalog or policy changed while the node was isolated
    JOB_END_TIMEOUT = "JOB_END_TIMEOUT"  # the action after the job's end is still to be done
    STARTUP_UNCONFIRMED = "STARTUP_UNCONFIRMED"  # a node that booted no longer reports
    EXTERNAL_REMEDIATOR = "EXTERNAL_REMEDIATOR"  # an external remediator repairs the node
    NOT_ISOLATED = "NOT_ISOLATED"  # the node could not be taken out of service
    TAKEN_OVER = "TAKEN_OVER"  # a person has put the isolated node back into service, or holds it
    BUDGET_FULL = "BUDGET_FULL"  # no slot became free in time
    RECOVERY_BLOCKED = "RECOVERY_BLOCKED"  # a pause, a mode or maintenance stopped a recovery in progress
    APPROVAL_REFUSED = "APPROVAL_REFUSED"
    APPROVAL_IGNORED = "APPROVAL_IGNORED"  # nobody answered in time
    BREAKER_OVERDUE = "BREAKER_OVERDUE"  # nobody reset the breaker in time
    NEVER_RETURNED = "NEVER_RETURNED"  # no sign that it came back from its reboot, or that its replacement came
    NOT_CONFIRMED = "NOT_CONFIRMED"  # neither the node nor another source confirms the fault
    DIAGNOSTICS_FAILED = "DIAGNOSTICS_FAILED"
    DIAGNOSTICS_UNCLEAR = "DIAGNOSTICS_UNCLEAR"  # the diagnostics prove nothing either way
    ATTEMPTS_SPENT = "ATTEMPTS_SPENT"  # the ledger allows no further attempt
    LADDER_ENDED = "LADDER_ENDED"  # all steps were tried, and the fault persists
    LEMON = "LEMON"  # recovered too often
    ISOLATED_ON_REQUEST = "ISOLATED_ON_REQUEST"  # an isolation is all that was requested
    NO_CAPACITY = "NO_CAPACITY"  # there is no capacity for another node
    FAILED_AFTER_RETURN = "FAILED_AFTER_RETURN"  # the fault recurred when the node was already back
    NOT_BACK_IN_SERVICE = "NOT_BACK_IN_SERVICE"  # healed, but it takes no work
    REPAIR_PENDING = "REPAIR_PENDING"  # a spare has its job; the broken node waits for repair
    JOB_NOT_RESTARTED = "JOB_NOT_RESTARTED"
    DECISION_LIMIT = "DECISION_LIMIT"  # the recovery repeated itself
    # Messages before an end, or without an incident
    APPROVAL_WANTED = "APPROVAL_WANTED"
    BREAKER_OPEN = "BREAKER_OPEN"
    RECORDS_RESTORED = "RECORDS_RESTORED"  # the table is an older copy of itself: nobody acts
    NODES_SILENT = "NODES_SILENT"  # so many simultaneous failures that none is acted on
    RECOVERY_BROKE = "RECOVERY_BROKE"  # the workflow itself failed
    JOB_BROKE = "JOB_BROKE"  # the workflow of a job failed
    JOB_HANDED_OVER = "JOB_HANDED_OVER"  # a job is down without an incident of a node


class JobState(_Word):
    """The state of a training job."""

    SUBMITTED = "SUBMITTED"  # its nodes are being chosen or checked; it has not run since it was submitted
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"  # no rank runs; it is being restarted
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"  # a person has stopped it
    FAILED = "FAILED"  # it is down, and a human must bring it back


class JobStep(_Word):
    """The work of a state of run_job."""

    CHOOSE = "CHOOSE"
    CHECK = "CHECK"
    FIND_CHECKPOINT = "FIND_CHECKPOINT"
    JUDGE = "JUDGE"
    LAUNCH = "LAUNCH"
    WATCH = "WATCH"
    ATTRIBUTE = "ATTRIBUTE"
    STOP = "STOP"
    END = "END"


class Next(_Word):
    """Where run_job continues."""

    CHOOSE = "CHOOSE"  # choose nodes
    AWAIT_NODES = "AWAIT_NODES"  # there are too few; one may become free
    CHECK = "CHECK"  # check the nodes by diagnostics
    LAUNCH = "LAUNCH"
    WATCH = "WATCH"  # wait until the gang's state changes
    ATTRIBUTE = "ATTRIBUTE"  # a run has failed: find out why
    SETTLE = "SETTLE"  # wait a moment for findings that are on their way, then examine again
    STOP = "STOP"  # stop what still runs
    END = "END"


class ActKind(_Word):
    """What a person may ask for; each is a route, which IAM permits by itself."""

    APPROVE = "APPROVE"
    REFUSE = "REFUSE"
    ISOLATE = "ISOLATE"
    DRAIN = "DRAIN"
    DIAGNOSE = "DIAGNOSE"
    REBOOT = "REBOOT"
    REPLACE = "REPLACE"
    RELEASE = "RELEASE"
    ENROLL = "ENROLL"
    RETIRE = "RETIRE"
    CLOSE_INCIDENT = "CLOSE_INCIDENT"
    RESET_BREAKER = "RESET_BREAKER"
    SUBMIT_JOB = "SUBMIT_JOB"
    STOP_JOB = "STOP_JOB"
    RESTART_JOB = "RESTART_JOB"
    RECONCILE = "RECONCILE"

    @property
    def path(self) -> str:
        """The path of its route: /acts/close-incident."""
        return f"/acts/{self.value.lower().replace('_', '-')}"


class ActRefusal(_Word):
    """Why the control plane did not do what a person asked for."""

    INVALID = "INVALID"  # the request cannot be read
    NOT_FOUND = "NOT_FOUND"  # it names something that does not exist
    CONFLICT = "CONFLICT"  # what is on record does not permit it
    UNFIT = "UNFIT"  # it cannot be done as it is asked for
    IN_PROGRESS = "IN_PROGRESS"  # the same act is being done; asked again with its key, it answers when it is done
    NOT_NOW = "NOT_NOW"  # a service is busy, or others write the record; nothing was done, try again
    HALF_DONE = "HALF_DONE"  # a part of it is done; asked again, it goes on from there


class Trouble(_Word):
    """Why a human must handle a job: it determines who."""

    POOL_TOO_SMALL = "POOL_TOO_SMALL"  # its pool can never provide its nodes
    DIRECTORY_TAKEN = "DIRECTORY_TAKEN"  # another job writes to its checkpoint directory
    DIRECTORY_NOT_SHARED = "DIRECTORY_NOT_SHARED"  # its nodes do not see one shared directory
    NODES_FAIL = "NODES_FAIL"  # nodes were chosen repeatedly, and failed their checks
    RANKS_LEFT = "RANKS_LEFT"  # ranks of an earlier run may still write
    RANK_LATE = "RANK_LATE"  # a rank did not start in time
    NOT_LAUNCHED = "NOT_LAUNCHED"  # the launch itself failed
    CANNOT_START = "CANNOT_START"  # its definition cannot run anywhere
    PROGRAM_FAILS = "PROGRAM_FAILS"  # the program's own failures exceed its restart limit
    NOT_APPROVED = "NOT_APPROVED"  # its program failed, and operators refused its restart or did not answer in time
    RECOVERY_ENDED = "RECOVERY_ENDED"  # its recovery failed
    ONLY_OBSERVED = "ONLY_OBSERVED"  # its pool is in observe mode
