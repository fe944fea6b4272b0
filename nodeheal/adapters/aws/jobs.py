"""Stores training jobs, their runs, their nodes' answers to checks, and the leases on checkpoint directories in
DynamoDB.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from nodeheal.adapters.aws.items import Item, Table, behind, fields_of, from_item, plain, to_item, versioned
from nodeheal.contract import names
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.jobs.directory_lease import lease_ancestors, lease_path
from nodeheal.domain.jobs.job import CheckAnswer, Hang, Job, Run
from nodeheal.domain.jobs.job_findings import NotedFinding

ANSWER_DAYS = 90  # kept to explain later why a node was not chosen, or a job was slow
HANG_DAYS = 1  # all nodes of a gang report a hang within minutes
_HOLD_TRIES = 3  # The conflicting job may have released the directory before it was looked up.
logger = logging.getLogger(__name__)
_VALUES = re.compile(r":\w+")

# Index keys: finished jobs are kept for long, and the sweep reads the others every minute.
_JOBS, _LIVE, _OVER = "job#", "job#live#", "job#over#"


class DynamoJobStore:
    """Implements JobStore."""

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

    def after(self, pool: str, job_id: str, *, is_over: bool, page_size: int | None = None) -> Iterator[Job]:
        bounds = behind(_OVER if is_over else _LIVE, job_id)
        partition, kind = names.pool_pk(pool), names.job_pk("")
        items = self._table.between(names.INDEX, partition, bounds, kind=kind, page_size=page_size)
        return filter(None, map(_readable, items))


class DynamoJobNotes:
    """Implements JobNotes."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def in_pool(self, pool: str, *, live_only: bool = False) -> Sequence[Job]:
        items = self._table.query_index(
            names.INDEX, names.pool_pk(pool), _LIVE if live_only else _JOBS, kind=names.job_pk("")
        )
        return sorted(filter(None, map(_readable, items)), key=lambda job: job.job_id)

    def note_answer(self, job_id: str, answer: CheckAnswer) -> None:
        keys = {"pk": names.job_pk(job_id), "sk": f"{names.CHECK_PREFIX}{answer.request_id}#{answer.node_id}"}
        expires = answer.at + timedelta(days=ANSWER_DAYS)
        item = to_item({**keys, **fields_of(answer), names.TTL_ATTRIBUTE: int(expires.timestamp())})
        self._table.put(item, "attribute_not_exists(pk)")

    def answers(self, job_id: str) -> Sequence[CheckAnswer]:
        items = self._table.query(names.job_pk(job_id), names.CHECK_PREFIX)
        return [from_item(CheckAnswer, item) for item in items]

    def note_hang(self, hang: Hang) -> None:
        keys = {"pk": names.hang_pk(hang.run), "sk": names.HANG_SK}
        expires = hang.at + timedelta(days=HANG_DAYS)
        self._table.put(to_item({**keys, **fields_of(hang), names.TTL_ATTRIBUTE: int(expires.timestamp())}))

    def hang_of(self, run: str) -> Hang | None:
        item = self._table.get(names.hang_pk(run), names.HANG_SK)
        return from_item(Hang, item) if item else None

    def hold(self, directory: str, job_id: str) -> str:
        path, above = lease_path(directory), lease_ancestors(directory)
        mine: dict[str, Any] = {":job": job_id, ":jobs": {job_id}}
        # The directory itself: no other job has it, or one below it.
        is_free = "(attribute_not_exists(job_id) OR job_id = :job) AND (attribute_not_exists(below) OR below = :jobs)"
        writes = [self._lease(path, "SET job_id = :job", is_free, mine)]
        writes += [
            self._lease(each, "ADD below :jobs", "attribute_not_exists(job_id) OR job_id = :job", mine)
            for each in above
        ]
        for _ in range(_HOLD_TRIES):
            if self._table.transact(writes):
                return job_id
            if holder := self._holder(path, above, job_id):
                return holder
        raise NotAccepted(f"{path} is being released and taken by other jobs; retried later")

    def release_directory(self, directory: str, job_id: str) -> None:
        path, above = lease_path(directory), lease_ancestors(directory)
        writes = [self._lease(path, "REMOVE job_id", "job_id = :job", {":job": job_id})]
        writes += [self._lease(each, "DELETE below :jobs", "", {":jobs": {job_id}}) for each in above]
        self._table.transact(writes)
        # A crash leaves an item that names no job, and excludes none.
        for each in (path, *above):
            nobody = "attribute_not_exists(job_id) AND attribute_not_exists(below)"
            self._table.delete(names.lease_pk(each), names.LEASE_SK, nobody, {})

    def _lease(self, path: str, update: str, condition: str, values: dict[str, Any]) -> dict[str, Any]:
        used = {name: value for name, value in values.items() if name in _VALUES.findall(f"{update} {condition}")}
        written: dict[str, Any] = {
            "TableName": self._table.name,
            "Key": to_item({"pk": names.lease_pk(path), "sk": names.LEASE_SK}),
            "UpdateExpression": update,
            "ExpressionAttributeValues": to_item(used),
        }
        return {"Update": {**written, "ConditionExpression": condition} if condition else written}

    def _holder(self, path: str, above: Sequence[str], job_id: str) -> str:
        """Return another job that has the directory, one above it or one below it; empty: none any more."""
        for each in (path, *above):
            lease = plain(self._table.get(names.lease_pk(each), names.LEASE_SK) or {})
            below: set[str] = lease.get("below", set()) if each == path else set()
            others = sorted({str(lease.get("job_id", job_id)), *below} - {job_id})
            if others:
                return others[0]
        return ""


def _readable(item: Item) -> Job | None:
    """Parse a job; None, and a log line, for an invalid item, which must not block the sweep for all other jobs."""
    try:
        return from_item(Job, item)
    except ValidationError as error:
        wrong = sorted({str(each["loc"][0]) for each in error.errors() if each["loc"]})
        logger.error("an item that is not a valid job was skipped", extra={"item": item["pk"], "wrong": wrong})
        return None


class DynamoJobFindings:
    """Implements JobFindings."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def note(self, finding: NotedFinding) -> None:
        sort_key = f"{names.findings_prefix(finding.finding.run)}{finding.finding.kind}"
        expires = finding.since + timedelta(days=ANSWER_DAYS)
        keys = {"pk": names.job_pk(finding.finding.job_id), "sk": sort_key}
        self._table.put(to_item({**keys, **fields_of(finding), names.TTL_ATTRIBUTE: int(expires.timestamp())}))

    def of(self, job_id: str, run: int) -> Sequence[NotedFinding]:
        items = self._table.query(names.job_pk(job_id), names.findings_prefix(run))
        return [from_item(NotedFinding, item) for item in items]
