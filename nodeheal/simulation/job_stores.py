"""The memory stores of jobs, like those in nodeheal/simulation/stores.py."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from nodeheal.adapters.memory.stores import MemoryJobNotes, MemoryJobStore
from nodeheal.domain.jobs.job import CheckAnswer, Job, Run
from nodeheal.simulation.index import Index


class SimJobs(MemoryJobStore):
    """Implements JobStore, with an index of a job's runs. `on_save` receives each write of a job."""

    def __init__(self, index: Index) -> None:
        super().__init__()
        self.index = index
        self._runs: defaultdict[str, dict[int, None]] = defaultdict(dict)
        self.alive: dict[str, None] = {}
        self.on_save: Callable[[Job], None] = lambda job: None

    def save(self, job: Job) -> bool:
        before = self.jobs.get(job.job_id)
        if not super().save(job):
            return False
        self.index.wrote(("job", job.job_id), before)
        if job.is_over:
            self.alive.pop(job.job_id, None)
        else:
            self.alive[job.job_id] = None
        if before is None or before.is_over != job.is_over:
            self.on_save(self.jobs[job.job_id])
        return True

    def save_run(self, run: Run) -> bool:
        is_saved = super().save_run(run)
        if is_saved:
            self._runs[run.job_id][run.number] = None
        return is_saved

    def runs(self, job_id: str) -> Sequence[Run]:
        return [self.kept_runs[job_id, number] for number in sorted(self._runs.get(job_id, ()))]


class SimJobNotes(MemoryJobNotes):
    """Implements JobNotes, with an index."""

    def __init__(self, jobs: SimJobs) -> None:
        super().__init__(jobs)
        self._sim_jobs = jobs
        self._of: defaultdict[str, dict[tuple[str, str, str], None]] = defaultdict(dict)

    def in_pool(self, pool: str, *, live_only: bool = False) -> Sequence[Job]:
        jobs, index = self._sim_jobs.jobs, self._sim_jobs.index
        over = self._sim_jobs.listed_as_over
        behind = {job_id for _, job_id in index.behind("job")}
        listed = {*self._sim_jobs.alive, *(set(jobs) - over), *behind} if live_only else set(jobs)
        shown = [(name, index.shown(("job", name), jobs[name])) for name in sorted(listed)]
        here = [(name, job) for name, job in shown if job is not None and job.pool == pool]
        return [j for name, j in here if not live_only or not (j.is_over if name in behind else name in over)]

    def note_answer(self, job_id: str, answer: CheckAnswer) -> None:
        super().note_answer(job_id, answer)
        self._of[job_id][job_id, answer.request_id, answer.node_id] = None

    def answers(self, job_id: str) -> Sequence[CheckAnswer]:
        return [self.kept_answers[key] for key in sorted(self._of.get(job_id, ()))]
