"""A rank that ends while the others of its run still start: the run will never be complete, and that is no answer yet.

It is a failure like any other. The job's own workflow looks at it when the recovery that has started the run is over:
it finds the first cause, counts it, and restarts the job or hands it over. The recovery itself has done its part.
"""

from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.jobs.job import GangTask, Job, Run

NEVER_STARTED = "never started"


def ended_early(run: Run) -> list[GangTask]:
    """The ranks that have ended otherwise than well. One that was quickly done is none of them."""
    return [task for task in run.tasks if task.has_stopped and not task.has_succeeded]


def early_end(job: Job | None, run: Run, task: GangTask) -> tuple[Outcome, str]:
    """What a recovery's launch comes to, and why. It has failed where nobody looks after the job any more, and where
    the scheduler has not even started all ranks.
    """
    words = words_of(task)
    if job is None or job.is_over or was_refused(run):
        return Outcome.FAILED, words
    return Outcome.DONE, f"{run.job_id} was started as run {run.number}; {words}: that failure is handled next"


def words_of(task: GangTask) -> str:
    """Which rank has ended, and how."""
    code = "without an exit code" if task.exit_code is None else f"with exit code {task.exit_code}"
    why = f" ({task.stop_reason[:200]})" if task.stop_reason else ""
    return f"rank {task.rank} on {task.node_id} ended {code} while the gang was starting{why}"


def was_refused(run: Run) -> bool:
    """Whether one of its ranks was never started, and none is started any more."""
    return any(task.has_stopped and not task.task_id for task in run.tasks)
