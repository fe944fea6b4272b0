"""Training jobs, their runs, what their nodes answered to checks, and who writes which checkpoints, in DynamoDB."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from nodeheal.adapters.aws.items import Table, fields_of, from_item, to_item, versioned
from nodeheal.contract import names
from nodeheal.domain.job import CheckAnswer, Job, Run

ANSWER_DAYS = 90  # what a check has found is for whoever asks later why a node was not taken

# In the index: what is over is kept for long, and the sweep reads the others every minute.
_JOBS, _LIVE, _OVER = "job#", "job#live#", "job#over#"


class DynamoJobStore:
    """JobStore."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def get(self, job_id: str) -> Job | None:
        item = self._table.get(names.job_pk(job_id), names.JOB_SK)
        return from_item(Job, item) if item else None

    def save(self, job: Job) -> bool:
        keys = {
            "pk": names.job_pk(job.job_id),
            "sk": names.JOB_SK,
            names.INDEX_PARTITION_KEY: names.pool_pk(job.pool),
            names.INDEX_SORT_KEY: f"{_OVER if job.is_over else _LIVE}{job.job_id}",
        }
        condition, values = versioned(job.version)
        item = to_item({**keys, **fields_of(replace(job, version=job.version + 1))})
        return self._table.put(item, condition, values)

    def get_run(self, job_id: str, number: int) -> Run | None:
        item = self._table.get(names.job_pk(job_id), names.run_sk(number))
        return from_item(Run, item) if item else None

    def save_run(self, run: Run) -> bool:
        keys = {"pk": names.job_pk(run.job_id), "sk": names.run_sk(run.number)}
        condition, values = versioned(run.version)
        item = to_item({**keys, **fields_of(replace(run, version=run.version + 1))})
        return self._table.put(item, condition, values)

    def runs(self, job_id: str) -> Sequence[Run]:
        return [from_item(Run, item) for item in self._table.query(names.job_pk(job_id), names.RUN_PREFIX)]


class DynamoJobNotes:
    """JobNotes."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def in_pool(self, pool: str, *, live_only: bool = False) -> Sequence[Job]:
        items = self._table.query_index(
            names.INDEX, names.pool_pk(pool), _LIVE if live_only else _JOBS, kind=names.job_pk("")
        )
        return sorted((from_item(Job, item) for item in items), key=lambda job: job.job_id)

    def note_answer(self, job_id: str, answer: CheckAnswer) -> None:
        keys = {"pk": names.job_pk(job_id), "sk": f"{names.CHECK_PREFIX}{answer.request_id}#{answer.node_id}"}
        expires = answer.at + timedelta(days=ANSWER_DAYS)
        item = to_item({**keys, **fields_of(answer), names.TTL_ATTRIBUTE: int(expires.timestamp())})
        self._table.put(item, "attribute_not_exists(pk)")

    def answers(self, job_id: str) -> Sequence[CheckAnswer]:
        items = self._table.query(names.job_pk(job_id), names.CHECK_PREFIX)
        return [from_item(CheckAnswer, item) for item in items]

    def hold(self, directory: str, job_id: str) -> str:
        keys = {"pk": names.lease_pk(directory), "sk": names.LEASE_SK}
        if self._table.put(to_item({**keys, "job_id": job_id}), "attribute_not_exists(pk)"):
            return job_id
        stored = self._table.get(keys["pk"], keys["sk"])
        return str(stored["job_id"]["S"]) if stored else self.hold(directory, job_id)

    def let_go(self, directory: str, job_id: str) -> None:
        self._table.delete(names.lease_pk(directory), names.LEASE_SK, "job_id = :job_id", {":job_id": job_id})
