"""Defines what a person may have the control plane do with a job, and what the function request_job answers."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from nodeheal.contract.health_event import MOST, Frozen
from nodeheal.contract.job_spec import NAME, JobSpec
from nodeheal.contract.vocabulary import JobRefusal

# A scheduler takes less for what a task starts from (64 KiB), and a job's item must fit into DynamoDB's 400 KiB.
ACT_BYTES = 262_144
ACT_DEPTH = 8  # a job file has five levels
WHY_CHARACTERS = 500

JobName = Annotated[str, Field(pattern=f"^{NAME}$")]


class SubmitJob(Frozen):
    """Record the job and start it. `is_idempotent`: one of this name is left as it is, and no error."""

    act: Literal["SUBMIT"] = "SUBMIT"
    spec: JobSpec
    is_idempotent: bool = False


class StopJob(Frozen):
    """Stop the job, or give up one that has failed. `why`: who wants it, and the reason, for the record."""

    act: Literal["STOP"] = "STOP"
    name: JobName
    why: str = Field(min_length=1, max_length=WHY_CHARACTERS)


class RestartJob(Frozen):
    """Submit a job that is over once more, as it was."""

    act: Literal["RESTART"] = "RESTART"
    name: JobName


JobAct = Annotated[SubmitJob | StopJob | RestartJob, Field(discriminator="act")]
_JOB_ACT: TypeAdapter[JobAct] = TypeAdapter(JobAct)


class JobPlacement(Frozen):
    """Where a job would run now. `nodes` is empty where it would wait; `why` says for what."""

    pool: str
    cluster: str
    nodes: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    why: str = ""


class JobRecorded(Frozen):
    """The act is done. The job's record stands in the table, which the caller may read.

    The fields after `submission` are of SUBMIT: whether it is a new job, in which fields the recorded one differs from
    the file, what is probably a mistake, and where it would run.
    """

    kind: Literal["RECORDED"] = "RECORDED"
    name: JobName
    submission: int = Field(ge=0, le=MOST)
    is_new: bool = False
    differs_in: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    placement: JobPlacement | None = None


class JobRefused(Frozen):
    """Nothing was done, and why."""

    kind: Literal["REFUSED"] = "REFUSED"
    code: JobRefusal
    text: str


JobAnswer = JobRecorded | JobRefused
JOB_ANSWER: TypeAdapter[JobAnswer] = TypeAdapter(Annotated[JobAnswer, Field(discriminator="kind")])


def parse_job_act(given: Any) -> JobAct:
    """Return the act that a caller has sent as JSON. Raises ValueError where it is too deep, too large or none."""
    if _depth(given) > ACT_DEPTH:
        raise ValueError(f"the request is nested deeper than {ACT_DEPTH} levels")
    sent = json.dumps(given)
    if len(sent) > ACT_BYTES:
        raise ValueError(f"the request has more than {ACT_BYTES} bytes")
    # As JSON, and strictly, like the job file: "8" is text, and no number.
    return _JOB_ACT.validate_json(sent, strict=True)


def _depth(given: Any) -> int:
    """Return how deep it is nested, at most one level beyond the limit."""
    level: list[Any] = [given]
    for depth in range(ACT_DEPTH + 1):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return depth
    return ACT_DEPTH + 1


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
