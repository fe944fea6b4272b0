"""Defines what a person may have the control plane do, and what its functions answer.

An act goes to the route of its kind, and AWS names who asks for it. It is hostile until it is parsed.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from nodeheal.contract.health_event import ACCELERATORS, MOST, ClusterName, Frozen, Line, NodeId, PoolName, UtcTime
from nodeheal.contract.job_spec import NAME, JobSpec
from nodeheal.contract.vocabulary import ActKind, ActRefusal, NodeState, Provider, SchedulerKind

# A scheduler takes less for what a task starts from (64 KiB), and a job's item must fit into DynamoDB's 400 KiB.
ACT_BYTES = 262_144
WHY_CHARACTERS = 500
TURNS = 10_000  # beyond what any policy allows

JobName = Annotated[str, Field(pattern=f"^{NAME}$")]
Why = Annotated[str, Field(max_length=WHY_CHARACTERS, pattern=r"\S")]
IncidentId = Annotated[str, Field(pattern=r"^inc-[A-Za-z0-9-]{1,80}$")]
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]  # sent again with the same one, an act is done once
KEY_HEADER = "Idempotency-Key"


class ActModel(Frozen):
    """What every act has: why."""

    why: Why


class Approve(ActModel):
    """Approve what an incident proposes. `turn`: of the question that was read, so that no later one is answered."""

    kind: Literal[ActKind.APPROVE] = ActKind.APPROVE
    incident: IncidentId
    turn: int = Field(ge=0, le=TURNS)


class Refuse(ActModel):
    """Refuse what an incident proposes: it is handed to a human. `turn`: as of Approve."""

    kind: Literal[ActKind.REFUSE] = ActKind.REFUSE
    incident: IncidentId
    turn: int = Field(ge=0, le=TURNS)


class Isolate(ActModel):
    """Take a node out of service now."""

    kind: Literal[ActKind.ISOLATE] = ActKind.ISOLATE
    node: NodeId


class Drain(ActModel):
    """Give a node no new work, and isolate it when its job has ended."""

    kind: Literal[ActKind.DRAIN] = ActKind.DRAIN
    node: NodeId


class Diagnose(ActModel):
    """Isolate a node and diagnose it. `level`: dcgmi's; None: the policy's. `may_stop_job`: even while a job runs."""

    kind: Literal[ActKind.DIAGNOSE] = ActKind.DIAGNOSE
    node: NodeId
    level: int | None = Field(default=None, ge=1, le=4)
    may_stop_job: bool = False


class Reboot(ActModel):
    """Isolate a node, reboot it, diagnose it and return it to service."""

    kind: Literal[ActKind.REBOOT] = ActKind.REBOOT
    node: NodeId


class Replace(ActModel):
    """Isolate a node and put another one in its place."""

    kind: Literal[ActKind.REPLACE] = ActKind.REPLACE
    node: NodeId


class Release(ActModel):
    """Return a node to service that nodeheal took out; withdraw a request by hand that only waits."""

    kind: Literal[ActKind.RELEASE] = ActKind.RELEASE
    node: NodeId


class Enroll(ActModel):
    """Record a node whose tags the operator has set, or change what is recorded. None: not stated.

    `has_no_job`: what the record says of a job is over. `accelerators`: where the agent cannot count them.
    """

    kind: Literal[ActKind.ENROLL] = ActKind.ENROLL
    node: NodeId
    pool: PoolName
    provider: Provider | None = None
    is_spare: bool = False
    accelerators: int | None = Field(default=None, ge=0, le=ACCELERATORS)
    has_no_job: bool = False
    rack: Line | None = None
    cluster: ClusterName | None = None
    scheduler: SchedulerKind | None = None


class Retire(ActModel):
    """Give a node up for good. Its tags are the operator's to remove, afterwards."""

    kind: Literal[ActKind.RETIRE] = ActKind.RETIRE
    node: NodeId


class CloseIncident(ActModel):
    """Close an incident that was handed to a human."""

    kind: Literal[ActKind.CLOSE_INCIDENT] = ActKind.CLOSE_INCIDENT
    incident: IncidentId


class ResetBreaker(ActModel):
    """Close the breaker of a pool; what waits for it decides again."""

    kind: Literal[ActKind.RESET_BREAKER] = ActKind.RESET_BREAKER
    pool: PoolName


class SubmitJob(Frozen):
    """Record a job and start it. `is_idempotent`: one of this name is left as it is, and no error."""

    kind: Literal[ActKind.SUBMIT_JOB] = ActKind.SUBMIT_JOB
    spec: JobSpec
    is_idempotent: bool = False


class StopJob(ActModel):
    """Stop a job, or give up one that has failed."""

    kind: Literal[ActKind.STOP_JOB] = ActKind.STOP_JOB
    job: JobName


class RestartJob(Frozen):
    """Submit a job that is over once more, as it was."""

    kind: Literal[ActKind.RESTART_JOB] = ActKind.RESTART_JOB
    job: JobName


class Reconcile(ActModel):
    """Set restored records right. Unless `is_to_apply`, the answer says what would be done."""

    kind: Literal[ActKind.RECONCILE] = ActKind.RECONCILE
    is_to_apply: bool = False


NodeRequest = Isolate | Drain | Diagnose | Reboot | Replace
OperatorAct = Approve | Refuse | NodeRequest | Release | Enroll | Retire | CloseIncident | ResetBreaker
JobAct = SubmitJob | StopJob | RestartJob
Act = OperatorAct | JobAct | Reconcile
ACTS: Mapping[ActKind, type[Act]] = {
    ActKind(kind.model_fields["kind"].default): kind
    for kind in (
        Approve,
        Refuse,
        Isolate,
        Drain,
        Diagnose,
        Reboot,
        Replace,
        Release,
        Enroll,
        Retire,
        CloseIncident,
        ResetBreaker,
        SubmitJob,
        StopJob,
        RestartJob,
        Reconcile,
    )
}


class Actor(Frozen):
    """Who acts. `id`: the ARN that AWS has authenticated; `name`: the same for people, `ada` or `role/session`."""

    id: str
    name: str

    def reason(self, why: str) -> str:
        """The reason on one line, with who gives it."""
        return f"{self.name}: {' '.join(why.split())}"


class AnswerTaken(Frozen):
    """An answer to a question was the first and counts."""

    kind: Literal["ANSWER_TAKEN"] = "ANSWER_TAKEN"
    text: str


class RecoveryRequested(Frozen):
    """The incident that does it. Not `is_own`: it was open already, and takes the request as a part of it."""

    kind: Literal["RECOVERY_REQUESTED"] = "RECOVERY_REQUESTED"
    incident: str
    is_own: bool


class NodeRecorded(Frozen):
    """A node as recorded. `changes`: what was written down. `withdrawn`: the incident whose request was taken back."""

    kind: Literal["NODE_RECORDED"] = "NODE_RECORDED"
    node: NodeId
    state: NodeState
    is_spare: bool
    has_reported: bool
    changes: tuple[str, ...] = ()
    withdrawn: str | None = None


class IncidentClosed(Frozen):
    """An incident is closed. Not `is_new`: it was already."""

    kind: Literal["INCIDENT_CLOSED"] = "INCIDENT_CLOSED"
    incident: str
    is_new: bool


class BreakerReset(Frozen):
    """A breaker is closed. `woken`: how many incidents decide again."""

    kind: Literal["BREAKER_RESET"] = "BREAKER_RESET"
    pool: PoolName
    woken: int = Field(ge=0, le=MOST)


class JobPlacement(Frozen):
    """Where a job would run now. `nodes` is empty where it would wait; `why` says for what."""

    pool: str
    cluster: str
    nodes: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    why: str = ""


class JobRecorded(Frozen):
    """The record of a job stands in the table, which the caller may read.

    The fields after `submission` are of SUBMIT_JOB: whether it is a new job, in which fields the recorded one differs
    from the file, what is probably a mistake, and where it would run.
    """

    kind: Literal["JOB_RECORDED"] = "JOB_RECORDED"
    job: JobName
    submission: int = Field(ge=0, le=MOST)
    is_new: bool = False
    differs_in: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    placement: JobPlacement | None = None


class CorrectionMade(Frozen):
    """One correction of the records: what it is about, and what is done."""

    about: str
    text: str


class RecordsReconciled(Frozen):
    """What was set right, or would be. `lost_since` until `lost_until`: what the records do not know; none: nothing.

    `is_over`: nodeheal acts again. `waits_for`: the ranks that must end before.
    """

    kind: Literal["RECORDS_RECONCILED"] = "RECORDS_RECONCILED"
    lost_since: UtcTime | None = None
    lost_until: UtcTime | None = None
    corrections: tuple[CorrectionMade, ...] = ()
    waits_for: tuple[str, ...] = ()
    is_over: bool = False


class ActRefused(Frozen):
    """Nothing was done, and why."""

    kind: Literal["REFUSED"] = "REFUSED"
    code: ActRefusal
    text: str


ActDone = (
    AnswerTaken | RecoveryRequested | NodeRecorded | IncidentClosed | BreakerReset | JobRecorded | RecordsReconciled
)
ActResult = ActDone | ActRefused
ACT_RESULT: TypeAdapter[ActResult] = TypeAdapter(Annotated[ActResult, Field(discriminator="kind")])


def parse_act(kind: ActKind, body: str) -> Act:
    """Return the act of a route from the JSON that was sent. Raises ValueError where it is too large or none."""
    if len(body.encode("utf-8", "surrogatepass")) > ACT_BYTES:
        raise ValueError(f"the request has more than {ACT_BYTES} bytes")
    # Strictly, like the job file: "8" is text, and no number.
    return ACTS[kind].model_validate_json(body, strict=True)
