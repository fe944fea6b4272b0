"""Defines the messages between run_job and its functions."""

from pydantic import Field

from nodeheal.contract.health_event import MOST, Frozen, NodeId, UtcTime
from nodeheal.contract.results import CheckpointSearch, Reason
from nodeheal.contract.vocabulary import JobState, JobStep, Next, Outcome, Trouble

GANG_AT_MOST = 256  # nodes of one job: their names fit into a state's input


class JobResult(Frozen):
    """The result of a step of a job, the next step, and the facts behind it."""

    step: JobStep
    job_id: str
    outcome: Outcome
    then: Next
    reason: Reason
    finished_at: UtcTime
    nodes: tuple[NodeId, ...] = Field(default=(), max_length=GANG_AT_MOST)
    run: int | None = Field(default=None, ge=0, le=MOST, description="the run that it is about")
    ending: JobState | None = Field(default=None, description="how the job ended, where the next step is its end")
    trouble: Trouble | None = Field(default=None, description="why a human must act, where it ends as FAILED")
    incident_id: str | None = Field(default=None, description="the incident that brings the job back")
    deadline_seconds: int = Field(default=60, gt=0, le=MOST, description="how long the next step may take")
    pairs: bool = Field(default=False, description="the check tests the network between the nodes, in pairs")
    facts: CheckpointSearch | None = Field(default=None, description="where LAUNCH looks for its newest checkpoint")
    summary: str = Field(default="", description="a summary in one line, for the console; state machines write it")


class JobRequest(Frozen):
    """The input of every function of run_job."""

    job_id: str = Field(min_length=1)
    submission: int = Field(ge=1, le=MOST, description="which submission of this name it is; names the execution")
    round: int = Field(
        ge=0, le=MOST, description="how often nodes were chosen or a failure was examined; makes ids repeatable"
    )
    looks: int = Field(default=0, ge=0, le=MOST, description="how often this failure has been examined")
    is_failure: bool = Field(default=False, description="the nodes are checked because a run has failed on them")
    searches: int = Field(
        default=0, ge=0, le=MOST, description="how many nodes were asked for the job's newest checkpoint"
    )
    last: JobResult | None = Field(default=None, description="the result of the previous step")
    task_token: str | None = Field(
        default=None, description="task token of a wait: an event resumes the workflow with it"
    )

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that it is about, in order of rank."""
        return self.last.nodes if self.last else ()

    @property
    def is_of_pairs(self) -> bool:
        """Whether the check tests the network between the nodes."""
        return self.last is not None and self.last.pairs

    @property
    def ending(self) -> JobState | None:
        """Return how the job is to end, where it is to."""
        return self.last.ending if self.last else None

    @property
    def reason(self) -> str:
        """Return the reason for the step."""
        return self.last.reason if self.last else ""
