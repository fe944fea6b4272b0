"""Shared by the verbs that wait for the ranks of a run to stop, or to run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nodeheal.contract.health_event import Frozen
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.steps import StepRequest
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.operation import Operation, OperationState, incident_owner, job_owner
from nodeheal.operations.handler import OperationFacts
from nodeheal.operations.record import update
from nodeheal.ports import Ports
from nodeheal.services.jobs.runs import may_write


class GangRecord(Frozen):
    """Which run the operation waits for, and how far it is.

    `outstanding`: placements of the ranks that were to stop. `is_asked`: they were, or there was none. The others are
    of an isolation: since when the node takes no new work, whether by our hand, under which name, and whether tasks
    were on it then, and which, where they were listed; what else it has to report; and whether its machine's capacity
    was bought ahead.
    """

    run: int = 0
    outstanding: tuple[str, ...] = ()
    is_asked: bool = False
    drained_at: datetime | None = None
    by_us: bool = False
    placement: str = ""
    has_tasks: bool = True
    tasks: tuple[UnmanagedTask, ...] | None = None
    aside: str = ""
    has_reserved_capacity: bool = False


@dataclass(frozen=True)
class GangFacts(OperationFacts):
    """The job, and the run that the operation waits for; the job's newest one while it waits for none."""

    job: Job | None = None
    run: Run | None = None


def owner_of(request: StepRequest | JobRequest) -> str:
    """Returns the owner of the operation: the job, because its ranks are the facts; without a job the incident."""
    if isinstance(request, JobRequest):
        return job_owner(request.job_id)
    job_id = request.decision.job_id
    return job_owner(job_id) if job_id else incident_owner(request.incident_id)


def read_gang(operation: Operation, ports: Ports) -> GangFacts:
    """The facts of a verb that waits for ranks. The node is read only where the record has one."""
    request = operation.request
    job_id = request.job_id if isinstance(request, JobRequest) else request.decision.job_id
    job = ports.jobs.get(job_id) if job_id else None
    number = record_of(operation).run or (job.current_run if job else 0)
    run = ports.jobs.get_run(job.job_id, number) if job else None
    node = ports.nodes.get(operation.node_id) if operation.node_id else None
    return GangFacts(ports.clock(), node=node, job=job, run=run)


def record_of(operation: Operation) -> GangRecord:
    """The verb's own record."""
    return GangRecord.model_validate_json(operation.data_json) if operation.data_json else GangRecord()


def note(operation: Operation, ports: Ports, **changes: Any) -> Operation:
    """Writes the record over the stored one, before the next call to another service."""

    def noted(operation: Operation) -> Operation:
        known = record_of(operation).model_copy(update=changes).model_dump_json()
        return replace(
            operation, state=operation.state if operation.is_over else OperationState.SENDING, data_json=known
        )

    return update(operation, ports, noted)


def ranks_left(record: GangRecord, run: Run | None) -> list[GangTask]:
    """Returns the ranks that were asked to stop and are not known to have stopped."""
    return [task for task in run.tasks if task.placement in record.outstanding and not task.has_stopped] if run else []


def refresh_ranks(operation: Operation, ports: Ports) -> Operation:
    """A rank whose node has rebooted since, or is gone, writes nothing any more, even if no event reports its end."""
    facts, record = read_gang(operation, ports), record_of(operation)
    left = tuple(task.placement for task in ranks_left(record, facts.run) if may_write(task, ports))
    if not operation.version:
        return operation
    kept = record.model_copy(update={"outstanding": left}).model_dump_json()
    return update(operation, ports, lambda operation: replace(operation, data_json=kept))


def has_started(run: Run) -> bool:
    """Whether each rank runs, or has run and was quickly done."""
    return all(task.status == "RUNNING" or task.has_succeeded for task in run.tasks)


def where_they_are(tasks: Sequence[GangTask]) -> str:
    """The ranks, in words."""
    return ", ".join(f"rank {task.rank} on {task.node_id}" for task in tasks)
