"""News of an older run, boot or submission, of a machine that is gone, or of another topic.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from typing import Any

from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.names import INSTANCE_GONE, TRAINING_HANG
from nodeheal.contract.vocabulary import JobState, Step
from nodeheal.domain.fleet.liveness import TERMINATED
from nodeheal.operations.engine import begin
from nodeheal.operations.find_checkpoint import plan
from nodeheal.operations.handler import VerbContext
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.take_signal import take_draft
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs import prepare_job
from tests.support.builders import commands_in, node, started_job, stored_run, xid
from tests.support.fake_cluster import BROKEN
from tests.support.recovery_story import Story
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.news import draft_of
from tests.workflows.scenarios.races import JOB, Moment

# Runs


def an_older_run_is_said_to_run() -> list[str]:
    return _is_said_to_run(current_run=2, summary="run 2 is under way")


def a_run_is_said_to_run_that_a_person_has_stopped() -> list[str]:
    return _is_said_to_run(state=JobState.CANCELLED, summary="stopped by ada")


def _is_said_to_run(**known: Any) -> list[str]:
    it = Moment()
    started_job(JOB, [node(BROKEN, version=1)], it.plain)
    it.job_is_written(**known)
    _tells(it, "RUNNING")
    job = it.plain.jobs.get("llama")
    return [] if job is not None and job.summary == known["summary"] else ["people read that an older run is under way"]


def _tells(it: Moment, status: str) -> None:
    run = stored_run(it.plain, "llama", 1)
    task = run.tasks[0]
    it.does(lambda: on_task_change(TaskChange("llama", 1, task.task_id, task.placement, status, 1, ""), it.ports))


# What others say


_GONE: dict[str, Any] = {"code": INSTANCE_GONE, "subcode": TERMINATED, "takes_node_away": True}


def _said(it: Moment, **said: Any) -> Any:
    return it.does(lambda: take_draft(draft_of(**said), it.ports, ACTS))


# Checkpoints

_SAVES = Checkpoints(directory="/fsx/llama")


def _is_asked(**before: str) -> list[str]:
    """After a call that has left such a wait."""
    it = Moment()
    job = replace(JOB, checkpoints=_SAVES)
    request = JobRequest(job_id="llama", submission=1, round=0, task_token="token")
    it.plain.jobs.save(job)
    planned = plan(request, node(BROKEN), job, it.plain)
    it.plain.operations.save(replace(planned, **before))  # type: ignore[arg-type]
    it.does(lambda: begin(planned, VerbContext(it.ports)))
    asked = commands_in(it.plain).sent
    return [] if asked else ["nobody was asked, and an answer is waited for"]


def a_job_that_is_over_has_saved_there() -> list[str]:
    told = _is_refused(JobState.COMPLETED)
    return [f"nobody writes there any more: {told}"] if told else []


def _is_refused(state: JobState) -> str | None:
    """What is said of a new job that is to write where a job of this state has written."""
    it = Moment()
    it.plain.jobs.save(replace(JOB, job_id="other", checkpoints=_SAVES, state=state))
    it.plain.jobs.listed_as_over.clear()  # type: ignore[attr-defined]  # the index lags
    told: str | None = it.does(lambda: prepare_job._refuse_taken_directory(replace(JOB, checkpoints=_SAVES), it.ports))
    return told


# Evidence


def no_stacks_are_wanted() -> list[str]:
    hang = xid(0, family="host", code=TRAINING_HANG, component="llama/1", event_id="hang")
    decided = Story(hang).next()
    return ["what nobody wants is collected first"] if decided.step is Step.FREEZE_EVIDENCE else []
