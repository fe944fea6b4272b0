"""The restart limits of a job itself. Pure.

The policy's limit of restarts applies too: the stricter one wins.
"""

from collections.abc import Collection, Sequence
from itertools import takewhile

from nodeheal.contract.job_spec import LONGEST
from nodeheal.contract.steps import AttemptLimit, Reservation
from nodeheal.contract.vocabulary import Action
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.recovery.decision_context import job_scope

IN_WINDOW, IN_ALL, BY_ONE = "window", "total", "hangs"
# One rank may be the only one that shows its steps, so that one node's word restarts a job, but not without end.
HANGS_OF_ONE_NODE = 3


def own_limits(job: Job, hang_seen_by: Collection[str] = ()) -> tuple[Reservation, ...]:
    """Returns what a restart must reserve by the job's own limits.

    `hang_seen_by`: the nodes that report a hang, where the restart is for one. A single node has a limit of its own.
    Each submission starts counting again, because a person has looked.
    """
    limits = job.restarts
    allowed = {
        IN_WINDOW: AttemptLimit(
            group=Action.RESTART_WORKLOAD, limit=limits.in_window, window_seconds=limits.window_seconds
        ),
        # The ledger remembers so long at most.
        IN_ALL: AttemptLimit(group=Action.RESTART_WORKLOAD, limit=limits.total, window_seconds=LONGEST),
    }
    scope = f"{job_scope(job.job_id)}/{job.submission}"
    if len(hang_seen_by) == 1:
        allowed[f"{BY_ONE}/{next(iter(hang_seen_by))}"] = AttemptLimit(
            group=Action.RESTART_WORKLOAD, limit=HANGS_OF_ONE_NODE, window_seconds=limits.window_seconds
        )
    return tuple(Reservation(scope=f"{scope}/{which}", limit=limit) for which, limit in allowed.items())


def limit_of_application(job: Job) -> Reservation:
    """Returns what a restart after a failure of the program's own must reserve, before an incident is opened for it."""
    limits = job.restarts
    limit = AttemptLimit(
        group=Action.RESTART_WORKLOAD, limit=limits.of_application, window_seconds=limits.window_seconds
    )
    return Reservation(scope=f"{job_scope(job.job_id)}/{job.submission}/application", limit=limit)


def is_limit_of_lone_hangs(reservation: Reservation) -> bool:
    """Tells whether it is the limit of hangs that only one node reports."""
    return f"/{BY_ONE}/" in reservation.scope


def no_progress_reason(job: Job, runs: Sequence[Run]) -> str:
    """Returns why another run would make no progress: the last ones began at the same checkpoint. Empty: it may.

    A run whose beginning is not known does not count, and ends the series.
    """
    checkpoint, allowed = job.found, job.restarts.without_progress
    if checkpoint is None or not checkpoint.path:
        return ""
    since = job.submitted_at
    mine = [run for run in runs if since is None or run.started_at >= since]
    alike = list(takewhile(lambda run: run.resumed_from == checkpoint.path, reversed(mine)))
    if len(alike) < allowed:
        return ""
    last = counted(len(alike), "run has", "runs have")
    step = "" if checkpoint.step is None else f" (step {checkpoint.step})"
    text = f"the last {last} begun at {checkpoint.path}{step} and written no newer checkpoint"
    return f"{job.job_id} gets no further: {text}; no more are started (restarts.without_progress: {allowed})"


def nowhere_to_go_back_reason(job: Job) -> str:
    """Returns why a job whose loss was not a number is not started without a checkpoint to go on from: its program
    would find the newest by itself. Empty: it may start.
    """
    if job.diverged is None or job.found is not None:
        return ""
    return f"{job.job_id} has no checkpoint before step {job.diverged.step}, from where its loss was not a number"
