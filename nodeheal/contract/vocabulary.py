"""The closed vocabularies of the product, spelled once.

Standard library only: the agent imports this module on nodes. Every value equals its name, so that
a value in a log, a table item or an event is found by searching the code for it.
"""

from enum import StrEnum

from nodeheal.contract.old_words import ESCALATIONS


class _Word(StrEnum):
    """A string that equals its value."""

    __hash__ = str.__hash__  # Enum's own is ten times slower, and words are keys everywhere


class Family(_Word):
    """Who says it: the kind of evidence a health event rests on."""

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
    """What a node answers when it is asked whether it has the fault that was reported of it."""

    CONFIRMED = "CONFIRMED"  # its own log or counters show it
    DENIED = "DENIED"  # they do not, and they would
    UNKNOWN = "UNKNOWN"  # it cannot tell


class Check(_Word):
    """What a diagnosis is made of."""

    dcgm = "dcgm"
    neuron = "neuron"
    efa = "efa"
    stress = "stress"


class CheckpointFormat(_Word):
    """How a checkpoint lies on disk."""

    auto = "auto"  # whichever of the others is found
    megatron = "megatron"  # latest_checkpointed_iteration.txt and iter_*
    torch_distributed = "torch_distributed"  # a folder with .metadata and *.distcp
    torch_save = "torch_save"  # single files
    hugging_face = "hugging_face"  # checkpoint-* of the Trainer
    nemo = "nemo"
    neuronx = "neuronx"
    numpy = "numpy"  # step-*.npz with its checksum beside it


class FabricRole(_Word):
    """What a node does in a test that takes two."""

    SERVE = "SERVE"
    CONNECT = "CONNECT"


class Provider(_Word):
    """Who can reboot and replace a node."""

    ec2 = "ec2"
    hybrid = "hybrid"


class SchedulerKind(_Word):
    """Which scheduler places work on a node. Which cloud repairs the node is its Provider."""

    ECS = "ECS"
    SLURM = "SLURM"


class EndCause(_Word):
    """Why a task ended, where its scheduler says more than an exit code does. Each adapter reads it from the words of
    its scheduler."""

    ON_REQUEST = "ON_REQUEST"  # somebody asked for it, nodeheal included
    NODE_LOST = "NODE_LOST"  # its machine was stopped or terminated
    OUT_OF_MEMORY = "OUT_OF_MEMORY"  # its container exceeded its memory
    CANNOT_START = "CANNOT_START"  # its definition is wrong: no restart helps


class Action(_Word):
    """What is to be done about a fault."""

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
    repeated = "repeated"  # the same fault came again on the same accelerator, as often as policy says
    other_job = "other_job"  # the same fault came on the same accelerator under another job
    job_end = "job_end"  # the job that runs there has ended


class Step(_Word):
    """What Decide answers: the next thing the workflow does."""

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
    """What an operation does. Each has one file in nodeheal/operations, of this name in small letters."""

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
    """What a WAIT waits for."""

    JOB_END = "JOB_END"  # until the job that runs there has ended
    SETTLED = "SETTLED"  # until the node has had time to come up
    STABLE = "STABLE"  # until the node has run long enough since its reboot
    APPROVAL = "APPROVAL"  # until a human has said yes or no
    BUDGET = "BUDGET"  # until a slot of the pool's disruption budget is free
    CAPACITY = "CAPACITY"  # until there may be a machine to be had
    REPLACEMENT = "REPLACEMENT"  # until fewer nodes of the pool are being replaced
    BREAKER = "BREAKER"  # until a human has reset the pool's breaker


class Outcome(_Word):
    """How a step went. UNKNOWN: it may have acted; look before doing anything else."""

    DONE = "DONE"
    REFUSED = "REFUSED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    TIMED_OUT = "TIMED_OUT"


class Refusal(_Word):
    """Why a step was not carried out, where the next decision depends on it."""

    NEW_BOOT = "NEW_BOOT"  # the node has booted since that was decided, and not by our hand
    EXTERNAL_REMEDIATOR = "EXTERNAL_REMEDIATOR"  # somebody else repairs the node as well
    BUDGET_FULL = "BUDGET_FULL"  # the pool's disruption budget has no free slot
    REPLACEMENTS_FULL = "REPLACEMENTS_FULL"  # as many replacements as may be are under way in the pool
    NO_CAPACITY = "NO_CAPACITY"  # the provider has no machine to give
    RESERVATION_FULL = "RESERVATION_FULL"  # the capacity reservation is full with the broken machine in it
    INSTANCE_GONE = "INSTANCE_GONE"  # there is no machine any more that could be replaced
    LEFT_TO_INCIDENT = "LEFT_TO_INCIDENT"  # another incident brings the job back


class NodeState(_Word):
    """Where a node is in its life."""

    UNENROLLED = "UNENROLLED"  # its agent reports, and no operator has enrolled it: it counts for nothing
    ENROLLED = "ENROLLED"  # an operator has announced it; its agent has never been heard
    HEALTHY = "HEALTHY"
    SUSPECT = "SUSPECT"
    ISOLATED = "ISOLATED"
    RECOVERING = "RECOVERING"
    PROBATION = "PROBATION"
    QUARANTINED = "QUARANTINED"
    RETIRED = "RETIRED"


class IncidentState(_Word):
    """Where an incident is in its life."""

    OPEN = "OPEN"
    WAITING = "WAITING"
    CLOSED = "CLOSED"
    ESCALATED = "ESCALATED"


class Ending(_Word):
    """How an incident ended; the workflow's last state says the same in words."""

    RECOVERED = "RECOVERED"
    OBSERVED_ONLY = "OBSERVED_ONLY"
    HANDED_TO_A_HUMAN = "HANDED_TO_A_HUMAN"


class Phase(_Word):
    """What an email is about: whoever subscribes may choose."""

    ASKS = "ASKS"  # a human must answer
    WAITS = "WAITS"  # the incident waits for something that people can hasten
    ENDED = "ENDED"  # the incident is over
    NEWS = "NEWS"  # of many nodes, and no one incident's
    # To the owner of one job
    STARTED = "STARTED"  # the job runs for the first time since it was submitted
    FINISHED = "FINISHED"  # every rank has ended well
    CANCELLED = "CANCELLED"  # a person has stopped it
    STOPPED = "STOPPED"  # the job was stopped for a recovery
    RUNS_AGAIN = "RUNS_AGAIN"  # the job was started again
    HANDED_OVER = "HANDED_OVER"  # the job is down, and a human must bring it back


class ChannelKind(_Word):
    """How a channel takes a notification. Each kind has a row in services/notify/channel_kinds.py."""

    email = "email"
    chat = "chat"  # Slack and Microsoft Teams, by Amazon Q Developer in chat applications
    pagerduty = "pagerduty"  # Events API v2
    webhook = "webhook"  # any HTTPS endpoint that takes JSON


class Escalation(_Word):
    """Why a human is needed. Each word has a runbook of its name, in docs/runbooks."""

    # What an incident ends with
    UNKNOWN_FAULT = "UNKNOWN_FAULT"  # the catalog does not know the fault
    MANUAL_REVIEW_REQUIRED = "MANUAL_REVIEW_REQUIRED"  # catalog, policy or doubt want a human for it
    POLICY_CHANGED = "POLICY_CHANGED"  # catalog or policy changed while the node was isolated
    JOB_END_TIMEOUT = "JOB_END_TIMEOUT"  # what was to be done after the job is still to be done
    STARTUP_UNCONFIRMED = "STARTUP_UNCONFIRMED"  # a node that came up says nothing any more
    EXTERNAL_REMEDIATOR = "EXTERNAL_REMEDIATOR"  # somebody else repairs the node by himself
    NOT_ISOLATED = "NOT_ISOLATED"  # the node could not be taken out of service
    BUDGET_FULL = "BUDGET_FULL"  # no slot became free in time
    RECOVERY_BLOCKED = "RECOVERY_BLOCKED"  # a pause, a mode or maintenance stopped a recovery under way
    APPROVAL_REFUSED = "APPROVAL_REFUSED"
    APPROVAL_IGNORED = "APPROVAL_IGNORED"  # nobody answered in time
    BREAKER_OVERDUE = "BREAKER_OVERDUE"  # nobody reset the breaker in time
    NEVER_RETURNED = "NEVER_RETURNED"  # not seen to come back from its reboot, or in its place
    NOT_CONFIRMED = "NOT_CONFIRMED"  # neither the node nor a witness confirms the fault
    DIAGNOSTICS_FAILED = "DIAGNOSTICS_FAILED"
    DIAGNOSTICS_UNCLEAR = "DIAGNOSTICS_UNCLEAR"  # they prove nothing either way
    ATTEMPTS_SPENT = "ATTEMPTS_SPENT"  # the ledger allows no further attempt
    LADDER_ENDED = "LADDER_ENDED"  # all was tried, and the fault is still there
    LEMON = "LEMON"  # recovered too often
    ISOLATED_ON_REQUEST = "ISOLATED_ON_REQUEST"  # an isolation is all that was asked for
    NO_CAPACITY = "NO_CAPACITY"  # no other node could be had
    FAILED_AFTER_RETURN = "FAILED_AFTER_RETURN"  # the fault came again when it was back already
    NOT_BACK_IN_SERVICE = "NOT_BACK_IN_SERVICE"  # healed, and it takes no work
    REPAIR_PENDING = "REPAIR_PENDING"  # a spare has its job; the broken node waits for repair
    JOB_NOT_RESTARTED = "JOB_NOT_RESTARTED"
    DECISION_LIMIT = "DECISION_LIMIT"  # the recovery went round in circles
    # What people are told before an end, or outside of incidents
    APPROVAL_WANTED = "APPROVAL_WANTED"
    BREAKER_OPEN = "BREAKER_OPEN"
    NODES_SILENT = "NODES_SILENT"  # so many at once that none is touched for it
    RECOVERY_BROKE = "RECOVERY_BROKE"  # the workflow itself broke
    JOB_BROKE = "JOB_BROKE"  # the workflow of a job broke
    JOB_HANDED_OVER = "JOB_HANDED_OVER"  # a job is down, and no incident of a node has said so

    @classmethod
    def _missing_(cls, value: object) -> "Escalation | None":
        """Reads a word of version 0.1."""
        new = ESCALATIONS.get(value) if isinstance(value, str) else None
        return cls(new) if new else None


class JobState(_Word):
    """Where a training job is in its life."""

    SUBMITTED = "SUBMITTED"  # its nodes are being chosen or checked; nothing of it has run since it was submitted
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"  # no rank runs; it is being brought back
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"  # a person has stopped it
    FAILED = "FAILED"  # it is down, and a human must bring it back


class JobStep(_Word):
    """What a state of run_job does."""

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
    """Where run_job goes from here."""

    CHOOSE = "CHOOSE"  # choose nodes
    AWAIT_NODES = "AWAIT_NODES"  # there are too few; one may become free
    CHECK = "CHECK"  # prove the nodes by diagnostics
    LAUNCH = "LAUNCH"
    WATCH = "WATCH"  # wait until something becomes of the gang
    ATTRIBUTE = "ATTRIBUTE"  # a run has failed: find out why
    SETTLE = "SETTLE"  # give findings that are under way a moment, then look again
    STOP = "STOP"  # stop what still runs
    END = "END"


class Trouble(_Word):
    """Why a job is a human's: who is to do what differs."""

    POOL_TOO_SMALL = "POOL_TOO_SMALL"  # its pool can never hold it
    DIRECTORY_TAKEN = "DIRECTORY_TAKEN"  # another job writes to its checkpoint directory
    DIRECTORY_NOT_SHARED = "DIRECTORY_NOT_SHARED"  # its nodes do not see one directory there
    NODES_FAIL = "NODES_FAIL"  # nodes were chosen again and again, and did not pass
    RANKS_LEFT = "RANKS_LEFT"  # ranks of an earlier run may still write
    RANK_LATE = "RANK_LATE"  # a rank did not start in time
    NOT_LAUNCHED = "NOT_LAUNCHED"  # the launch itself came to nothing
    CANNOT_START = "CANNOT_START"  # what it is defined as cannot run anywhere
    PROGRAM_FAILS = "PROGRAM_FAILS"  # the program's own failures are more than are restarted
    RECOVERY_ENDED = "RECOVERY_ENDED"  # what was to bring it back did not
    ONLY_OBSERVED = "ONLY_OBSERVED"  # its pool is one in which nodeheal only says what it would do
