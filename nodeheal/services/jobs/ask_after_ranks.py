"""Queries the scheduler about ranks without events, so that a lost or late event strands no job.

An answer has the same effect as the event, so the event may come later, or twice. A machine that the scheduler cannot
reach proves nothing: its ranks keep their last known status.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from zlib import crc32

from nodeheal.contract.vocabulary import VerbName
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.jobs.gang import broke_up_long_ago, overdue
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.operation import job_owner
from nodeheal.operations.gang import record_of
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import RankStatus, TaskChange
from nodeheal.services.intake.wakeup import on_task_change, tell_ends_again
from nodeheal.services.jobs.start_gang import find_unnoted

# A task that is asked to end has two minutes at most, unless its agent is set to more, and events come within seconds.
# Asked earlier, the answer would be as true, and mostly nothing new.
PATIENCE = timedelta(seconds=180)
# A run of which nothing is overdue is asked after all the same, once in so many minutes: where the end of its only
# rank was lost, or of all of them, nothing will ever be.
ROUND_MINUTES = 10
# Three calls of DescribeTasks, each of at most ten seconds. What is left over has its turn in another minute.
RANKS_A_RUN = 300
SECONDS_A_RUN = 10  # for taking what was answered; the sweep has 25 left when its looks have taken longest
# A launcher shows a task for an hour or longer after its end: one that was started later cannot be forgotten yet.
KEPT = timedelta(hours=1)
# A launch that broke is tried again for a quarter of an hour, and its operation says how long it may take beyond that.
LAUNCH_IS_OVER = timedelta(hours=1)
FORGOTTEN = "nobody has told of its end, and the scheduler does not know it any more"


_LAUNCHES = (VerbName.LAUNCH_GANG, VerbName.LAUNCH_JOB)


@dataclass(frozen=True)
class _Asked:
    """A rank that is asked after, as it was recorded."""

    cluster: Cluster
    run: Run
    task: GangTask


def ask_after_ranks(pools: Sequence[str], ports: Ports) -> list[str]:
    """Returns the tasks whose state has changed. Safe to repeat, and to break off anywhere."""
    task_ids: list[str] = []
    try:
        due = list(_due(pools, ports))
        known = {status.task_id: status for status in _see(_some_of(due, ports), ports)}
        stop_at = ports.clock() + timedelta(seconds=SECONDS_A_RUN)
        for rank in due:
            change = _change(rank, known.get(rank.task.task_id), ports)
            if change is not None and ports.clock() <= stop_at:
                on_task_change(change, ports)
                task_ids.append(change.task_id)
    except NotAccepted:
        pass  # "not now" from a service: the next run asks again
    return task_ids


def note_ends(job: Job, run: Run, ports: Ports) -> None:
    """Record how the ranks of a run are now that nobody starts any more."""
    run = find_unnoted(job, run, ports)
    asked = [_Asked(job.cluster, run, task) for task in run.tasks if task.task_id and not task.has_stopped]
    known = {status.task_id: status for status in _see(asked, ports)}
    for rank in asked:
        change = _change(rank, known.get(rank.task.task_id), ports)
        if change is not None:
            on_task_change(change, ports)


def _due(pools: Sequence[str], ports: Ports) -> Iterator[_Asked]:
    for pool in pools:
        for job in ports.job_notes.in_pool(pool, live_only=True):
            run = ports.jobs.get_run(job.job_id, job.current_run) if job.current_run and not job.is_over else None
            if run is None:
                continue
            run = find_unnoted(job, run, ports) if _is_left_unstarted(run, ports) else run
            if broke_up_long_ago(run, PATIENCE, ports.clock()):
                tell_ends_again(job, run, ports)
            yield from (_Asked(job.cluster, run, task) for task in _tasks_due(job, run, ports))


def _is_left_unstarted(run: Run, ports: Ports) -> bool:
    """Whether some of its ranks have no task yet, and no operation will start them."""
    if run.started_at + LAUNCH_IS_OVER > ports.clock() or all(task.task_id or task.has_stopped for task in run.tasks):
        return False
    launches = [
        operation for operation in ports.operations.open_of(job_owner(run.job_id)) if operation.verb in _LAUNCHES
    ]
    mine = [operation for operation in launches if record_of(operation).run == run.number]
    return all(operation.deadline_at <= ports.clock() for operation in mine)


def _tasks_due(job: Job, run: Run, ports: Ports) -> Sequence[GangTask]:
    now = ports.clock()
    if int(now.timestamp() // 60) % ROUND_MINUTES == crc32(job.job_id.encode()) % ROUND_MINUTES:
        return [task for task in run.tasks if task.task_id and not task.has_stopped]
    return overdue(run, PATIENCE, now)


def _some_of(due: Sequence[_Asked], ports: Ports) -> Sequence[_Asked]:
    """As many as one run may ask after; of too many, others in every minute."""
    if len(due) <= RANKS_A_RUN:
        return due
    first = int(ports.clock().timestamp() // 60) * RANKS_A_RUN % len(due)
    return [*due[first:], *due[:first]][:RANKS_A_RUN]


def _see(asked: Sequence[_Asked], ports: Ports) -> Iterator[RankStatus]:
    for cluster in sorted({rank.cluster for rank in asked}):
        if (launcher := ports.launcher_in(cluster)) is not None:
            yield from launcher.rank_statuses(cluster, [rank.task for rank in asked if rank.cluster == cluster])


def _change(rank: _Asked, status: RankStatus | None, ports: Ports) -> TaskChange | None:
    """Returns the change that the answer makes to the rank's record. None: no change, or it is not known."""
    if status is None or status.status == rank.task.status:
        return None
    is_forgotten = status.status == "MISSING"
    if status.status != "STOPPED" and not status.is_connected:
        return None
    if is_forgotten and not _may_be_forgotten(rank, ports):
        return None
    return TaskChange(
        rank.run.job_id,
        rank.run.number,
        rank.task.task_id,
        rank.task.placement,
        "STOPPED" if is_forgotten else status.status,
        status.exit_code,
        FORGOTTEN if is_forgotten else status.stop_reason,
        status.stopped_at,
        status.started_at,
        status.end_causes,
    )


def _may_be_forgotten(rank: _Asked, ports: Ports) -> bool:
    """Whether a task that is not known any more is one that has ended: it was started long enough ago, and what is
    heard of its node is of the boot on which it was started, or of a later one.
    """
    node = ports.nodes.get(rank.task.node_id)
    is_of_its_boot = node is not None and rank.task.boot_id in (node.boot_id, *node.past_boots)
    return is_of_its_boot and (rank.task.asked_at or rank.run.started_at) + KEPT <= ports.clock()
