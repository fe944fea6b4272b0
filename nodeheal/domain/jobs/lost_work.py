"""Where a job goes on after a restart, and the work that it loses: in steps, in minutes, or unknown. Pure."""

from nodeheal.domain.humanize import counted, lasting
from nodeheal.domain.jobs.job import Job, Run

UNSAVED = "what it had computed and not saved in a checkpoint"


def steps_lost(run: Run, following: Run) -> int | None:
    """Returns the steps that the next run takes again. None: the last step is not known."""
    if run.last_step is None or following.resumed_step is None:
        return None
    return max(0, run.last_step - following.resumed_step)


def start_text(job: Job | None, run: Run) -> str:
    """Returns where the run begins, in words: at the checkpoint that was found for it, or at the job's beginning.

    nodeheal searches no checkpoint of a job that names no directory.
    """
    if run.resumed_from:
        step = "" if run.resumed_step is None else f" (step {run.resumed_step})"
        return f"from checkpoint {run.resumed_from}{step}"
    if job is None or job.checkpoints is None:
        return "from its beginning unless its program finds a checkpoint"
    return "from its beginning, as no checkpoint was found"


def lost_work_text(job: Job, run: Run | None, following: Run) -> str:
    """Returns the lost work in words, from the steps, the checkpoint's time, or the job's file."""
    if run is None:
        return UNSAVED
    steps = steps_lost(run, following)
    if steps is not None:
        where = f"it had taken step {run.last_step}, and goes on from step {following.resumed_step}"
        return f"{counted(steps, 'step')}: {where}"
    written_at = following.resumed_written_at
    if written_at is not None and run.ended_at is not None and written_at <= following.started_at:
        if written_at < run.started_at:
            return f"all that its run {run.number} had computed: no checkpoint of that run is whole"
        if written_at > run.ended_at:  # when its first rank ended: one that was left has written it, as it was asked to
            return "probably little: that checkpoint was written while it was being stopped"
        return f"what it had computed in {lasting(run.ended_at - written_at)}, since that checkpoint was written"
    every = job.checkpoints.every_seconds if job.checkpoints is not None else None
    if every is None:
        return UNSAVED
    most = lasting(every)
    return f"{UNSAVED}: {most} of it at most, if it writes one as often as its file says"
