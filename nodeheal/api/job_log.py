"""What the ranks of a job have written, in the order in which it was written."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodeheal.domain.errors import NotFound
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.jobs.job_log import LogLine, LogLocation
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import JobLogs
from nodeheal.services.operators.look_at_job import find_job

STREAMS_NAMED = 3


@dataclass
class RunLog:
    """One run's output, read on from where it was left."""

    job: Job
    run: Run
    logs: JobLogs
    location: LogLocation
    ranks: tuple[int, ...]
    tokens: dict[int, str] = field(default_factory=dict)

    def read(self) -> list[tuple[int, LogLine]]:
        """The new lines of all ranks, with their ranks, in the order of their times."""
        pairs: list[tuple[int, LogLine]] = []
        for task in self._started():
            stream = self.logs.stream(self.location, self.job, task)
            page = self.logs.read(self.location, stream, self.tokens.get(task.rank, ""))
            self.tokens[task.rank] = page.token
            pairs += [(task.rank, line) for line in page.lines]
        return sorted(pairs, key=lambda pair: (pair[1].at, pair[0]))

    def newest(self, lines: int) -> list[tuple[int, LogLine]]:
        """The newest lines of each rank, at most so many, with their ranks, in the order of their times."""
        pairs: list[tuple[int, LogLine]] = []
        for task in self._started():
            stream = self.logs.stream(self.location, self.job, task)
            pairs += [(task.rank, line) for line in self.logs.last(self.location, stream, lines)]
        return sorted(pairs, key=lambda pair: (pair[1].at, pair[0]))

    def where(self) -> str:
        """In which streams it is read, in words, for somebody who has found nothing there."""
        started = self._started()
        if not started:
            return f"no rank of run {self.run.number} has a task yet"
        streams = [self.logs.stream(self.location, self.job, task) for task in started]
        more = f" and {len(streams) - STREAMS_NAMED} more" if streams[STREAMS_NAMED:] else ""
        return f"log group {self.location.group}, streams {', '.join(streams[:STREAMS_NAMED])}{more}"

    def look_again(self, ports: Ports) -> None:
        """A rank's task has its name only once it was started."""
        self.run = ports.jobs.get_run(self.job.job_id, self.run.number) or self.run
        self.job = find_job(self.job.job_id, ports)

    def _started(self) -> Sequence[GangTask]:
        return [task for task in self.run.tasks if task.task_id and task.rank in self.ranks]


def last_words(job: Job, run: Run, rank: int, logs: JobLogs, lines: int) -> list[str]:
    """The newest lines of one rank, at most so many. Raises NotFound where its log cannot be read."""
    location = logs.locate(job)
    [task] = [task for task in run.tasks if task.rank == rank]
    return [line.text for line in logs.last(location, logs.stream(location, job, task), lines)]


def open_log(job_id: str, ports: Ports, logs: JobLogs, number: int | None, rank: int | None) -> RunLog:
    """The log of a run (None: the newest), of one rank or all. Raises NotFound where there is none, and says why."""
    job = find_job(job_id, ports)
    wanted = job.current_run if number is None else number
    run = ports.jobs.get_run(job_id, wanted)
    if run is None:
        has = (
            f"its newest is {job.current_run}"
            if job.current_run
            else f"none has begun yet ({job.summary or job.state})"
        )
        raise NotFound(f"{job_id} has no run {wanted}; {has}" if wanted else f"{job_id} has no run: {has}")
    ranks = tuple(task.rank for task in run.tasks)
    if rank is not None and rank not in ranks:
        raise NotFound(f"run {wanted} of {job_id} has no rank {rank}, but {ranks[0]} to {ranks[-1]}")
    return RunLog(job, run, logs, logs.locate(job), ranks if rank is None else (rank,))
