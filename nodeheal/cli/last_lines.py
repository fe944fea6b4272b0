"""What the rank that broke a run wrote last: the first thing that its owner looks for."""

from botocore.exceptions import BotoCoreError, ClientError

from nodeheal.api.job_log import last_words
from nodeheal.domain.errors import NodehealError
from nodeheal.domain.jobs.gang import first_failure
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.ports import Ports

LINES_SHOWN = 8


def last_lines(job: Job, run: Run | None, ports: Ports) -> list[str]:
    """What the rank wrote last that broke this run, marked, with the command that shows more. Empty: none broke."""
    broke = first_failure(run) if run is not None else None
    if run is None or broke is None or broke.never_ran:
        return []
    rank = broke.task.rank
    more = f"`nodeheal jobs logs {job.job_id} --run {run.number} --rank {rank}`"
    try:
        lines = last_words(job, run, rank, ports.logs_of(job), LINES_SHOWN)
    except (BotoCoreError, ClientError, NodehealError, ValueError) as error:
        return ["", f"What rank {rank} wrote could not be read ({error}): {more}"]
    return ["", f"Rank {rank} wrote last ({more}):", *(f"  | {line}" for line in lines)] if lines else []
