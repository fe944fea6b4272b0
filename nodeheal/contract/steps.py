"""Defines the messages between the workflow and its functions."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from nodeheal.contract.health_event import MOST, Frozen, NodeId, UtcTime
from nodeheal.contract.results import FaultTitle, Reason, StepResult
from nodeheal.contract.vocabulary import Action, Awaited, Check, Ending, Escalation, Family, Step


class AttemptLimit(Frozen):
    """A limit: at most `limit` attempts of `group` in any `window_seconds`."""

    group: Action
    limit: int = Field(ge=0, le=MOST)
    window_seconds: int = Field(gt=0, le=90 * 86_400)


class Reservation(Frozen):
    """One attempt that a step must reserve before it acts, and for whom it is counted."""

    scope: str = Field(min_length=1, description="node#…, accelerator#… (its serial) or job#…")
    limit: AttemptLimit


class Accusation(Frozen):
    """A fault that a node has reported, for the question to the node whether it shows it."""

    family: Family
    code: str
    subcode: str | None = None
    component: str | None = None
    boot_id: str = Field(description="the boot on which it was reported")
    source: str = Field(description="the check that reported it")

    @property
    def about(self) -> str:
        """Return what it is about. Two accusations about the same thing are equal."""
        which = "/".join(filter(None, (self.family.value, self.code, self.subcode)))
        return f"{which} on {self.component}" if self.component else which


class StandingDiagnosis(Frozen):
    """The diagnostics that a reboot command leaves on the node: it runs them by itself after its boot."""

    level: int = Field(ge=1, le=4)
    checks: tuple[Check, ...] = Field(min_length=1)
    tolerated_percent: float = Field(
        ge=1e-6, le=100, description="how much worse than in its last good run the node may be"
    )
    seconds: int = Field(gt=0, le=MOST, description="how long they may take, from the boot on")


class Decision(Frozen):
    """The next step of an incident, and why. The reason is shown in the log, the incident and the email."""

    step: Step
    reason: Reason = Field(min_length=1)
    node_id: NodeId = Field(description="the node that the step is about: the broken one, or its spare")
    action: Action | None = Field(
        default=None, description="the escalation step of the ladder that this step carries out"
    )
    job_id: str | None = None
    deadline_seconds: int = Field(default=60, gt=0, le=MOST, description="how long the workflow waits for the step")
    reserve: tuple[Reservation, ...] = Field(
        default=(), description="what a destructive step must reserve first: all of it"
    )
    fault: FaultTitle = Field(default="", description="the fault that it is about, in words")
    why: Reason = Field(default="", description="what the catalog or the policy says about that fault")
    policy_version: str = Field(default="", description="content hash of the policy of the decision")
    fault_at: UtcTime | None = Field(default=None, description="when that fault was last seen")
    boot_id: str = Field(
        default="",
        description="for ISOLATE, REBOOT, REPLACE: the only boot that it is about; empty: any",
    )
    component: str = Field(default="", description="for a verb: the accelerator that the fault names; empty: none")
    is_of_new_node: bool = Field(
        default=False, description="for ISOLATE: of a node that has never served; it takes no slot of the budget"
    )
    is_of_idle_node: bool = Field(
        default=False, description="for ISOLATE: of a free node, to be diagnosed; it is given back where work has begun"
    )
    is_held_back: bool = Field(
        default=False, description="a guardrail kept nodeheal from acting: a repetition of the fault is reported again"
    )
    is_move: bool = Field(
        default=False,
        description="for RESTART_WORKLOAD: on free nodes, before this one is healed; for DIAGNOSE: of such a node",
    )
    continues: int | None = Field(
        default=None,
        ge=0,
        le=MOST,
        description="the turn whose operation this continues: nothing is reserved or sent twice for it",
    )
    accused: Accusation | None = Field(
        default=None, description="for FREEZE_EVIDENCE, ISOLATE: the fault that the node is asked to confirm"
    )
    evidence_seconds: int = Field(
        default=0,
        ge=0,
        le=MOST,
        description="for ISOLATE: save the node's evidence while the gang stops, within these seconds. 0: do not",
    )
    leaves: StandingDiagnosis | None = Field(
        default=None, description="for REBOOT: what the node runs by itself after the boot, where SSM reboots it"
    )
    awaits: Awaited | None = Field(default=None, description="for WAIT: the condition")
    due_at: UtcTime | None = Field(
        default=None, description="for WAIT: the latest end, even if something wakes it in between"
    )
    checkpoint_seconds: int = Field(
        default=0,
        ge=0,
        le=MOST,
        description="for WAIT: request a checkpoint of the job now, which stays valid for these seconds. 0: do not",
    )
    page_key: str | None = Field(default=None, description="pages with the same key are one page")
    diagnostics_level: int | None = Field(default=None, ge=1, le=4)
    ending: Ending | None = Field(default=None, description="for CLOSE and ESCALATE")
    escalation: Escalation | None = Field(default=None, description="for ESCALATE: why a human is needed")
    pool: str = Field(default="", description="the pool of the incident")
    events_seen: int = Field(default=0, ge=0, le=MOST, description="how many events of the incident the decision used")


class StepRequest(Frozen):
    """The input of every step function."""

    incident_id: str
    turn: int = Field(
        ge=0, le=MOST, description="which decision of the incident this carries out; makes ids repeatable"
    )
    decision: Decision
    task_token: str | None = Field(
        default=None, description="task token of a wait: an event resumes the workflow with it"
    )
    searches: int = Field(
        default=0, ge=0, le=MOST, description="how many nodes were asked for the job's newest checkpoint"
    )

    @property
    def operation_turn(self) -> int:
        """Return the turn that names the operation and its attempt."""
        return self.turn if self.decision.continues is None else self.decision.continues


class DecidedResult(StepResult):
    """The result of a step with the next decision, which the workflow need not ask for."""

    next: Decision


class DecideRequest(Frozen):
    """The input of decide_next_step: the result of the last turn. None after a turn: its deadline passed.

    `turn`: how many decisions the incident has had.
    """

    incident_id: str
    turn: int = Field(ge=0, le=MOST)
    result: StepResult | None = None

    @field_validator("result", mode="before")
    @classmethod
    def _without_next(cls, given: Any) -> Any:
        """Drop the decision: an execution of an older definition asks nevertheless, and gets the stored decision."""
        return {k: v for k, v in given.items() if k != "next"} if isinstance(given, Mapping) else given
