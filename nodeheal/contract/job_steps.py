"""What run_job and its functions say to one another."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from nodeheal.contract.health_event import MOST, Frozen, NodeId, UtcTime
from nodeheal.contract.results import CheckpointSearch, Reason
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome, Trouble

GANG_AT_MOST = 256  # nodes of one job: their names fit a state's input


class JobResult(Frozen):
    """How a step of a job went, where it goes from there, and what shows it."""

    step: JobStep
    job_id: str
    outcome: Outcome
    then: Next
    reason: Reason
    finished_at: UtcTime
    nodes: tuple[NodeId, ...] = Field(default=(), max_length=GANG_AT_MOST)
    run: int | None = Field(default=None, ge=0, le=MOST, description="the run that it is about")
    ending: JobState | None = Field(default=None, description="where it goes to the end: how the job ended")
    trouble: Trouble | None = Field(default=None, description="where it ends as FAILED: why a human has it")
    incident_id: str | None = Field(default=None, description="the incident that brings the job back")
    deadline_seconds: int = Field(default=60, gt=0, le=MOST, description="how long the next step may take")
    pairs: bool = Field(default=False, description="the check tests the network between the nodes, in pairs")
    facts: CheckpointSearch | None = Field(
        default=None, description="to LAUNCH: where its newest checkpoint is looked for"
    )
    summary: str = Field(default="", description="the same in one line, for the console; state machines write it")

    @model_validator(mode="before")
    @classmethod
    def _read_version_0_1(cls, given: Any) -> Any:
        """Before 0.2 the directory was a text in `evidence`. A running workflow hands such results on."""
        if not isinstance(given, Mapping) or "evidence" not in given:
            return given
        known = {name: value for name, value in given.items() if name != "evidence"}
        directory = given["evidence"].get("checkpoints")
        return known if directory is None else {**known, "facts": {"kind": "CHECKPOINT_SEARCH", "directory": directory}}


class JobRequest(Frozen):
    """The input of every function of run_job."""

    job_id: str = Field(min_length=1)
    submission: int = Field(ge=1, le=MOST, description="which submission of this name it is; names the execution")
    round: int = Field(
        ge=0, le=MOST, description="how often nodes were chosen or a failure looked at; makes ids repeatable"
    )
    looks: int = Field(default=0, ge=0, le=MOST, description="how often this failure has been looked at")
    is_failure: bool = Field(default=False, description="the nodes are looked at because a run has failed on them")
    searches: int = Field(
        default=0, ge=0, le=MOST, description="how many nodes were asked for the job's newest checkpoint"
    )
    last: JobResult | None = Field(default=None, description="what the step before answered")
    task_token: str | None = Field(default=None, description="of a wait: an event resumes the workflow with it")

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it is about, in order of rank."""
        return self.last.nodes if self.last else ()

    @property
    def is_of_pairs(self) -> bool:
        """Whether the check tests the network between the nodes."""
        return self.last is not None and self.last.pairs

    @property
    def ending(self) -> JobState | None:
        """How the job is to end, where it is to."""
        return self.last.ending if self.last else None

    @property
    def reason(self) -> str:
        """Why it is asked for."""
        return self.last.reason if self.last else ""


class JobStopRequested(Frozen):
    """An operator wants a job stopped. That it is so stands in the job's record; this only wakes its workflow."""

    job_id: str = Field(min_length=1)
