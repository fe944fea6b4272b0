"""The closed vocabularies of the product, spelled once.

Standard library only and Python 3.10: the agent imports this module on nodes. Every value equals its name, so that
a value in a log, a table item or an event is found by searching the code for it.
"""

from enum import Enum


class _Word(str, Enum):
    """A string enum whose str() is its value (``enum.StrEnum`` needs Python 3.11; nodes may have 3.10)."""

    __hash__ = str.__hash__  # as it equals its value; Enum's own is ten times slower, and words are keys everywhere

    def __str__(self) -> str:
        return str(self.value)


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


class Verdict(_Word):
    """What a check concluded. UNKNOWN is never healthy."""

    OK = "OK"
    DEGRADED = "DEGRADED"
    UNKNOWN = "UNKNOWN"
    FAILED = "FAILED"


class Check(_Word):
    """What a diagnosis is made of."""

    dcgm = "dcgm"
    neuron = "neuron"
    efa = "efa"
    stress = "stress"


class Provider(_Word):
    """Who can reboot and replace a node."""

    ec2 = "ec2"
    hybrid = "hybrid"


class Action(_Word):
    """What is to be done about a fault."""

    OBSERVE = "OBSERVE"
    RESTART_WORKLOAD = "RESTART_WORKLOAD"
    RESET_GPU = "RESET_GPU"
    REBOOT = "REBOOT"
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


class NextRung(_Word):
    """What makes the second rung of a fault's ladder come; those after it come when the one before did not help."""

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


class Awaited(_Word):
    """What a WAIT waits for."""

    JOB_END = "JOB_END"  # until the job that runs there has ended
    SETTLED = "SETTLED"  # until the node has had time to come up
    STABLE = "STABLE"  # until the node has run long enough since its reboot
    APPROVAL = "APPROVAL"  # until a human has said yes or no
    BUDGET = "BUDGET"  # until a slot of the pool's disruption budget is free
    CAPACITY = "CAPACITY"  # until a replacement may be tried again
    BREAKER = "BREAKER"  # until a human has reset the pool's breaker


class Outcome(_Word):
    """How a step went. UNKNOWN: it may have acted; look before doing anything else."""

    DONE = "DONE"
    REFUSED = "REFUSED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    TIMED_OUT = "TIMED_OUT"


class NodeState(_Word):
    """Where a node is in its life."""

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


class JobState(_Word):
    """Where a training job is in its life."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
