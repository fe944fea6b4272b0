"""Query a node of the gang where the job can go on: at its newest checkpoint that is whole.

The answer is only a hint. If one node cannot tell, another is asked; if none can, the job starts without the hint.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import JobStep, Next, Outcome
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import ABSENT, OUT_OF_SERVICE, Node
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.operation import node_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.operations import find_checkpoint as verb
from nodeheal.operations.engine import begin
from nodeheal.operations.handler import VerbContext
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import replacement_nodes
from nodeheal.services.jobs.job_steps import job_of_request, job_result, job_token, save_job
from nodeheal.services.jobs.runs import current_run, is_elsewhere, is_newer_than_fault
from nodeheal.services.jobs.see_directory import looks_before, see_directory
from nodeheal.services.steps import result_of, token_of

if TYPE_CHECKING:
    from nodeheal.contract.results import StepResult

NODES_ASKED = 3
_NO_WORK = OUT_OF_SERVICE | ABSENT


def find_checkpoint(request: StepRequest | JobRequest, ports: Ports, policy: RecoveryPolicy) -> None:
    """Ask the next node, once. Resumes with DONE when there is an answer or nobody to ask, else with UNKNOWN.

    Before the first start of a job all its nodes are asked whether they see one directory: see_directory.
    """
    job, nodes = _whom_to_ask(request, ports)
    if job is None or job.checkpoints is None:
        _resume_at_once(request, "there is no checkpoint to look for", ports)
        return
    if request.searches == 0 and job.found is not None:
        job = save_job(ports, job.job_id, found=None)  # what was the newest then need not be now
    if isinstance(request, JobRequest) and see_directory(request, job, ports, policy):
        return
    before = looks_before(request, ports) if isinstance(request, JobRequest) else 0
    node = next(islice(nodes, request.searches - before, NODES_ASKED), None)
    if node is None:
        _resume_at_once(request, f"no other node can be asked where {job.job_id} goes on: it starts without", ports)
        return
    begin(verb.plan(request, node, job, ports), VerbContext(ports))


def search_ahead(request: StepRequest, ports: Ports) -> None:
    """While a node is away, ask one that works where its job goes on: the restart need not ask then.

    Only once the whole gang has stopped, for what is the newest then stays so. A search that comes to nothing is made
    again by the restart.
    """
    _, run = current_run(request.decision.job_id, ports)
    if run is None or not run.has_ended or is_elsewhere(run, request):
        return
    job, nodes = _whom_to_ask(request, ports)
    node = next(nodes, None)
    if job is None or job.checkpoints is None or job.knows_where_to_go_on or node is None:
        return
    planned = verb.plan(request, node, job, ports)
    waits = node_owner(request.decision.node_id), f"{request.incident_id}-{request.operation_turn}"
    with suppress(NotAccepted):
        begin(replace(planned, token="", parent=waits), VerbContext(ports))


def _whom_to_ask(request: StepRequest | JobRequest, ports: Ports) -> tuple[Job | None, Iterator[Node]]:
    """The job, and the nodes that may know, the likeliest first. No job: there is nothing to look for."""
    if isinstance(request, JobRequest):
        return job_of_request(request, ports), _in_service(request.nodes, ports)
    job, run = current_run(request.decision.job_id, ports)
    if job is None or run is None or job.is_over or is_newer_than_fault(run, request, ports):
        return None, iter(())
    broken = ports.incidents.incident(request.incident_id).node_id
    peers = [task.node_id for task in run.tasks if task.node_id != broken]
    # The spare in the broken node's place, or that node itself, which is healed then; at last any that has room.
    spares = replacement_nodes(job, ports.pauses.read(), ports)[:1]
    others = [request.decision.node_id, *(node.node_id for node in spares)]
    return job, _in_service(tuple(dict.fromkeys([*peers, *others])), ports)


def _in_service(names: tuple[str, ...], ports: Ports) -> Iterator[Node]:
    for name in names:
        node = ports.nodes.get(name)
        if node is not None and node.state not in _NO_WORK:
            yield node


def _resume_at_once(request: StepRequest | JobRequest, reason: str, ports: Ports) -> None:
    result: StepResult | JobResult
    if isinstance(request, JobRequest):
        result = job_result(request, JobStep.FIND_CHECKPOINT, Next.LAUNCH, reason, ports, Outcome.DONE)
        ports.workflows.resume(job_token(request), result)
    else:
        result = result_of(request, ports, Outcome.DONE, reason)
        ports.workflows.resume(token_of(request), result)
