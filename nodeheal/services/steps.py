"""What every step does the same way: build its result, add timeline entries, save nodes."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from nodeheal.contract.results import CheckpointSearch, Facts, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome
from nodeheal.domain.errors import NotFound
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.recovery.timeline import Payload, TimelineEntry
from nodeheal.ports import Ports
from nodeheal.services.saving import change_node


def result_of(
    request: StepRequest,
    ports: Ports,
    outcome: Outcome,
    reason: str,
    *,
    boot_id: str | None = None,
    replacement_node_id: str | None = None,
    facts: Facts | None = None,
) -> StepResult:
    """How the requested step went."""
    return StepResult(
        step=request.decision.step,
        node_id=request.decision.node_id,
        outcome=outcome,
        reason=reason,
        finished_at=ports.clock(),
        boot_id=boot_id,
        replacement_node_id=replacement_node_id,
        facts=facts,
    )


def add_timeline_entry(
    request: StepRequest, ports: Ports, what: str, text: str, payload: Payload | None = None
) -> None:
    """Adds a progress entry to the incident's timeline. `what` names it; a turn has at most one of a name."""
    entry_id, turn = f"{what}-{request.operation_turn:04d}", request.operation_turn - 1
    entry = TimelineEntry(ports.clock(), entry_id, text, payload, turn)
    ports.incidents.append(request.incident_id, entry)


def save_node(ports: Ports, node: Node, **changes: object) -> Node:
    """Write changes to a node over whatever version is stored now. For fields that one writer owns."""
    return change_node(node.node_id, ports, lambda current: replace(current, **changes))  # type: ignore[arg-type]


def enter_state(ports: Ports, node: Node, state: NodeState, reason: str) -> Node:
    """Write a node's new state over whatever version is stored now."""
    return change_node(node.node_id, ports, lambda current: current.entered(state, reason, ports.clock()))


def clear_if_owner(
    ports: Ports, node_id: str, also: Callable[[Node], Mapping[str, object]] = lambda _: {}, **held: str | None
) -> None:
    """Clears `open_incident`, `claimed_by` or `job_id` of a node if it still has the given value.

    The caller may have read the owner from an index that lags: a node that has another owner is not changed.
    `also` returns further changes of the same write. Raises NotAccepted when every try lost a race.
    """

    def cleared(node: Node) -> Node:
        if any(getattr(node, name) != whose for name, whose in held.items()):
            return node
        changes = {**dict.fromkeys(held), **also(node)}
        return replace(node, **changes)  # type: ignore[arg-type]

    with suppress(NotFound):
        change_node(node_id, ports, cleared)


def where_to_look(job: Job | None) -> CheckpointSearch | None:
    """Of a result after which the job starts: where its checkpoints are, if it has said so."""
    if job is None or job.checkpoints is None:
        return None
    return CheckpointSearch(directory=job.checkpoints.directory)


def token_of(request: StepRequest) -> str:
    """The task token. Raises ValueError: a step that waits was called by a state that does not."""
    if not request.task_token:
        raise ValueError(f"{request.decision.step} of {request.incident_id} was called without a task token")
    return request.task_token
