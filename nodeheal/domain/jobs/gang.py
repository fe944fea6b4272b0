"""The status of a run, from what is known of its ranks. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

from nodeheal.contract.vocabulary import EndCause
from nodeheal.domain.jobs.job import GangTask, Run

OUR_STOP = "nodeheal:"  # begins every reason that nodeheal gives for a stop
_NEVER = datetime.max.replace(tzinfo=UTC)
COMMAND_NOT_RUN = (126, 127)  # the shell's own: what it was to run is not there, or is no program
KNOWN_CODES = (1, 134, 137, 139)


class RunStatus(Enum):
    """The status of a run."""

    UNDER_WAY = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    STOPPED_BY_US = auto()
    STOPPED_BY_A_PERSON = auto()


@dataclass(frozen=True)
class RankFailure:
    """The rank that failed first. `code`: its code in the catalog's family task."""

    task: GangTask
    code: str
    words: str
    is_clear: bool  # the program's own doing, as far as an exit code can say so
    never_ran: bool = False  # its definition cannot run anywhere


def run_status(run: Run) -> RunStatus:
    """Returns the status of the run, by the first rank that ended badly."""
    if run.has_succeeded:
        return RunStatus.SUCCEEDED
    first = first_end(run)
    if first is None:
        return RunStatus.UNDER_WAY
    if not first.was_stopped:
        return RunStatus.FAILED
    return RunStatus.STOPPED_BY_US if OUR_STOP in first.stop_reason else RunStatus.STOPPED_BY_A_PERSON


def overdue(run: Run, patience: timedelta, now: datetime) -> list[GangTask]:
    """Returns the ranks whose end or start should have been reported by now.

    These are the other ranks of a run that has ended, those that were asked to end, and those that never started.
    """
    alive = [task for task in run.tasks if task.task_id and not task.has_stopped]
    if run.end_awaited_by or broke_up_long_ago(run, patience, now):
        return alive
    return [task for task in alive if task.status == "PENDING" and (task.asked_at or run.started_at) + patience <= now]


def broke_up_long_ago(run: Run, patience: timedelta, now: datetime) -> bool:
    """Tells whether its first rank stopped at least `patience` ago, or was never started."""
    return any(task.has_stopped for task in run.tasks) and (run.ended_at or run.started_at) + patience <= now


def ending_text(run: Run) -> str:
    """Returns how a run ended, for the job's summary, before the cause is known."""
    if run.has_succeeded:
        return f"every rank of run {run.number} has ended with exit code 0"
    broke = first_failure(run)
    return f"run {run.number} has ended: {broke.words}" if broke is not None else f"run {run.number} was stopped"


def first_end(run: Run) -> GangTask | None:
    """Returns the rank that ended badly first. None: there is none.

    A rank that failed by itself comes before one that was stopped at the same moment, because that stop follows from
    it.
    """
    ended = [task for task in run.tasks if task.has_stopped and (task.was_stopped or task.exit_code != 0)]
    return min(ended, key=lambda t: (t.stopped_at or _NEVER, t.was_stopped, t.rank)) if ended else None


def first_failure(run: Run) -> RankFailure | None:
    """Returns the first rank that failed by itself. None: none has."""
    broke = [task for task in run.tasks if task.has_stopped and not task.was_stopped and task.exit_code != 0]
    if not broke:
        return None
    task = min(broke, key=lambda t: (t.stopped_at or _NEVER, t.rank))
    where = f"rank {task.rank} on {task.node_id}"
    after_it = f"; {len(broke) - 1} more after it" if len(broke) > 1 else ""
    reason = f" ({task.stop_reason[:200]})" if task.stop_reason else ""
    code, words, is_clear = _read(task)
    never_ran = EndCause.CANNOT_START in task.end_causes or task.exit_code in COMMAND_NOT_RUN
    return RankFailure(task, code, f"{where} {words}{reason}{after_it}", is_clear, never_ran)


def _read(task: GangTask) -> tuple[str, str, bool]:
    """Returns the catalog's code, a text, and whether the program itself is the cause."""
    if EndCause.NODE_LOST in task.end_causes:
        return "host_lost", "has lost its machine", True
    if task.exit_code is None:
        return "no_exit_code", "ended without an exit code", False
    if task.exit_code == 137 and EndCause.OUT_OF_MEMORY in task.end_causes:
        return "exit_137", "was killed: its container was out of memory", True
    code = task.exit_code if task.exit_code in KNOWN_CODES else 1
    # 1 is what programs use for errors of their own; a signal may come from what happens around them.
    return f"exit_{code}", f"ended with exit code {task.exit_code}", code == 1


def stopped_by_a_person(run: Run) -> str:
    """Which rank was stopped, in words. It is a wish, against which nothing is started."""
    task = first_end(run)
    assert task is not None
    return f"rank {task.rank} on {task.node_id} was stopped by somebody else ({task.stop_reason[:200]})"
