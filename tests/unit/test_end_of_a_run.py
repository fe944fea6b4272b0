"""What a job says of itself in the moment in which the last rank of its run has ended."""

from dataclasses import replace

from nodeheal.adapters.ecs.rank_change import task_change
from nodeheal.adapters.ecs.task import EcsTaskDetail
from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.jobs.job import Job
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs.job_steps import save_job
from tests.support.builders import as_rank, stored_job, stored_run
from tests.support.incident_steps import Incident

UNDER_WAY = "run 1 is under way"


def ended(it: Incident, *codes: int, summary: str = UNDER_WAY) -> Job:
    """The job, right after its ranks have ended so: before its workflow has looked."""
    run = stored_run(it.ports, "llama", 1)
    save_job(it.ports, "llama", summary=summary, run_said_to_run=int(summary == UNDER_WAY))
    for task, code in zip(run.tasks, codes, strict=True):
        on_task_change(TaskChange("llama", 1, task.task_id, task.placement, "STOPPED", code, "Exited"), it.ports)
    return stored_job(it.ports, "llama")


def test_a_job_that_is_done_does_not_say_that_it_is_under_way() -> None:
    job = ended(Incident(), 0, 0)

    assert (job.state, job.summary) == (JobState.COMPLETED, "every rank of run 1 has ended with exit code 0")


def test_a_job_that_has_failed_says_which_rank_broke() -> None:
    job = ended(Incident(), 139, 1)

    assert job.state is JobState.STOPPED
    assert job.summary.startswith("run 1 has ended: rank 0 on ")
    assert "exit code 139" in job.summary


def test_what_is_known_better_already_is_not_written_over() -> None:
    assert ended(Incident(), 139, 1, summary="2 nodes run diagnostics").summary == "2 nodes run diagnostics"


def test_when_a_rank_began_is_kept_as_ecs_tells_it() -> None:
    it = Incident()
    run = stored_run(it.ports, "llama", 1)
    [first, *_] = run.tasks
    assert it.ports.jobs.save_run(run.with_task(replace(first, status="PENDING")))
    known = {**as_rank("llama", 1), "containerInstanceArn": first.placement, "taskArn": first.task_id}
    for status, more in (("RUNNING", {"startedAt": "2026-03-01T03:00:07Z"}), ("STOPPED", {})):
        change = task_change(EcsTaskDetail.model_validate({**known, "lastStatus": status, **more}))
        assert change is not None
        on_task_change(change, it.ports)

    told = stored_run(it.ports, "llama", 1)
    assert [str(task.started_at) for task in told.tasks if task.task_id == first.task_id] == [
        "2026-03-01 03:00:07+00:00"
    ]
