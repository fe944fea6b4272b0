"""Defines the result of a step: its outcome in one word, and typed facts for later decisions.

A decision, a state machine or an email reads `outcome` and `facts`. It never reads `reason`, which is for people.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from nodeheal.contract.health_event import MOST, Frozen, NodeId, UtcTime
from nodeheal.contract.vocabulary import Confirmation, Outcome, Refusal, Step

# What crosses a state machine stays small enough for its console: these texts are shortened, and end with dots. All of
# a state's input or output is then at most 32 KiB (AWS's limit is 256), in any alphabet.
REASON_CHARACTERS, FAULT_CHARACTERS, EVIDENCE_CHARACTERS = 1_500, 300, 1_000


def _at_most(characters: int) -> AfterValidator:
    return AfterValidator(lambda text: text if len(text) <= characters else f"{text[: characters - 4]} ...")


Reason = Annotated[str, _at_most(REASON_CHARACTERS)]
FaultTitle = Annotated[str, _at_most(FAULT_CHARACTERS)]
Shown = Annotated[str, _at_most(EVIDENCE_CHARACTERS)]
TestName = Annotated[str, _at_most(64)]
TESTS_NAMED = 16  # of one diagnosis; the first of them run again after a repair


class Isolated(Frozen):
    """Of ISOLATE. A drained node takes no new work, whether or not its gang has stopped in time."""

    kind: Literal["ISOLATED"] = "ISOLATED"
    is_drained: bool
    has_reserved_capacity: bool = Field(default=False, description="its machine runs on capacity that was bought ahead")


class Diagnosed(Frozen):
    """Of DIAGNOSE: which tests failed, what each check took, and what the tools printed."""

    kind: Literal["DIAGNOSED"] = "DIAGNOSED"
    failed_tests: tuple[TestName, ...] = Field(default=(), max_length=TESTS_NAMED)
    checks: Shown = ""
    output: Shown = ""
    tolerated_percent: float | None = Field(
        default=None, ge=1e-6, le=100, description="how much worse than the last good run it may be"
    )


class EvidenceSaved(Frozen):
    """Of FREEZE_EVIDENCE: where the evidence is, or should be, and whether the node shows the fault."""

    kind: Literal["EVIDENCE"] = "EVIDENCE"
    link: Shown = ""
    console: Shown = ""
    size_bytes: int | None = Field(default=None, ge=0, le=2**50, description="None: its arrival is not confirmed")
    accused: Shown = Field(default="", description="the fault that the node was asked to confirm")
    confirmation: Confirmation | None = Field(default=None, description="None: it gave no answer about a fault")
    confirmed_by: Shown = ""


class Replaced(Frozen):
    """Of REPLACE: whether the node in its place is a new machine, or which launched machine has not reported.

    `serves_at_once`: its scheduler gives the new machine work by itself, so nodeheal neither diagnoses nor returns it.
    """

    kind: Literal["REPLACED"] = "REPLACED"
    is_new_machine: bool = False
    serves_at_once: bool = False
    launched: str = ""


class Returned(Frozen):
    """Of RETURN: whether the broken machine could not be given back, where a new one serves; and who else keeps the
    node out of service, and why.
    """

    kind: Literal["RETURNED"] = "RETURNED"
    is_broken_left: bool
    kept_out: Shown = ""


class CheckpointSearch(Frozen):
    """Of a step after which the job's newest checkpoint is searched in `directory`."""

    kind: Literal["CHECKPOINT_SEARCH"] = "CHECKPOINT_SEARCH"
    directory: Shown
    node_id: str = Field(default="", description="the node that was asked")
    job_id: str = ""


class Answered(Frozen):
    """Of WAIT for an approval: a human's answer."""

    kind: Literal["ANSWERED"] = "ANSWERED"
    answer: str


class CallAgain(Frozen):
    """The step continues with another call of the same function."""

    kind: Literal["CALL_AGAIN"] = "CALL_AGAIN"


class Refused(Frozen):
    """Of any step that was not carried out for a reason that later decisions use."""

    kind: Literal["REFUSED"] = "REFUSED"
    code: Refusal
    missing: Shown = Field(default="", description="of NO_CAPACITY and RESERVATION_FULL: what has no capacity")
    slots: int | None = Field(default=None, ge=0, le=MOST, description="of BUDGET_FULL: the number of slots")
    boot_id: str = Field(default="", description="of NEW_BOOT: the present boot of the node")
    incident_id: str = Field(default="", description="of LEFT_TO_INCIDENT: the incident that brings the job back")
    is_in_charge: bool = Field(
        default=False, description="of EXTERNAL_REMEDIATOR: that one repairs every fault, within minutes and unasked"
    )


Facts = Annotated[
    Isolated | Diagnosed | EvidenceSaved | Replaced | Returned | CheckpointSearch | Answered | CallAgain | Refused,
    Field(discriminator="kind"),
]


class StepResult(Frozen):
    """The result of a step, with the facts behind it."""

    step: Step
    node_id: NodeId
    outcome: Outcome
    reason: Reason
    finished_at: UtcTime
    boot_id: str | None = Field(default=None, description="the boot that a reboot or a diagnosis is about")
    replacement_node_id: str | None = None
    facts: Facts | None = None
    down_reported_by: Shown = Field(
        default="", description="who else reports that the node is down, where it is silent"
    )
    summary: str = Field(default="", description="a summary in one line, for the console; state machines write it")

    def refused_for(self, code: Refusal) -> Refused | None:
        """Return the refusal, if it is this one."""
        return self.facts if isinstance(self.facts, Refused) and self.facts.code is code else None
