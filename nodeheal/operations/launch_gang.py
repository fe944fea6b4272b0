"""LAUNCH_GANG: a job's next run is started, and ends the operation when all of its ranks run, or one has died."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from nodeheal.contract.results import Refused, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NextStepCondition, Outcome, Refusal, VerbName
from nodeheal.domain.errors import NotFound, PlacementRefused
from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.fleet.node import ABSENT, OUT_OF_SERVICE, Node
from nodeheal.domain.jobs.early_end import early_end, ended_early, was_refused
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.lost_work import start_text
from nodeheal.domain.jobs.restarts import no_progress_reason, nowhere_to_go_back_reason
from nodeheal.domain.operation import Operation
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.recovery.timeline import JobLeft, TimelineEntry
from nodeheal.operations.gang import GangFacts, has_started, note, owner_of, read_gang, where_they_are
from nodeheal.operations.handler import Handler, VerbContext, step_result
from nodeheal.operations.record import plan_step, start_waiting
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import claim_replacement_nodes, free_nodes, release_claims
from nodeheal.services.jobs.job_replacement_node import release_candidates
from nodeheal.services.jobs.runs import current_run, is_newer_than_fault, left_of
from nodeheal.services.jobs.start_gang import abandon, job_of_others, record_run, start_ranks
from nodeheal.services.recovery.reserve_attempt import reserve_or_why_not
from nodeheal.services.saving import node_of
from nodeheal.services.steps import add_timeline_entry


def plan(request: StepRequest, ports: Ports) -> Operation:
    """The operation of this turn."""
    return plan_step(request, ports, VerbName.LAUNCH_GANG, owner_of(request))


def _start(operation: Operation, world: VerbContext) -> Operation | StepResult:
    """Start the job's next run, the broken node's place taken by its spare.

    Nothing starts while a rank of the last run may still be writing checkpoints.
    """
    ports, policy, request, now = world.ports, world.policy, operation.step, world.ports.clock()
    job, last = current_run(request.decision.job_id, ports)
    if job is None or last is None:
        return _refused(operation, now, f"no record of job {request.decision.job_id}")
    if job.why_no_restart:
        nothing = f"{job.job_id} {job.why_no_restart}; there is nothing to restart"
        return step_result(operation, now, Outcome.DONE, nothing)
    if is_newer_than_fault(last, request, ports):
        why = f"{job.job_id} was relaunched since, as run {last.number}"
        return step_result(operation, now, Outcome.DONE, why)
    if last.why != launch_id(request):  # else this very step has launched it before: carry on with that run
        nodes, refused = _places(operation, job, last, world)
        if refused is not None:
            return refused
        last = record_run(job, nodes, launch_id(request), ports)
        job = replace(job, current_run=last.number)
    operation = note(operation, ports, run=last.number)
    if ended_early(last) and not was_refused(last):  # else the others are to be taken down first
        return start_waiting(operation, ports)
    add_timeline_entry(
        request, ports, "launched", f"launching {job.job_id} as run {last.number}: {where_they_are(last.tasks)}"
    )
    try:
        start_ranks(job, last, ports, policy)
    except (PlacementRefused, NotFound) as refusal:
        abandon(job, last.number, ports)
        return _refused(operation, ports.clock(), str(refusal))
    _release_nodes_left(request, job, last, ports)
    return start_waiting(operation, ports)


def _places(operation: Operation, job: Job, last: Run, world: VerbContext) -> tuple[list[Node], StepResult | None]:
    """The nodes of the next run, with its attempt reserved; or why they are not available."""
    ports, policy, request, now = world.ports, world.policy, operation.step, world.ports.clock()
    alive = left_of(job, last, ports)
    if alive:
        why = f"{where_they_are(alive)} of run {last.number} may still be writing checkpoints"
        return [], _refused(operation, now, why)
    stuck = no_progress_reason(job, ports.jobs.runs(job.job_id)) or nowhere_to_go_back_reason(job)
    if stuck:
        return [], _refused(operation, now, stuck)
    nodes = _nodes_for(request, last, ports, policy)
    nodes = _without_the_unfit(request, job, nodes, ports, policy) if request.decision.is_move else nodes
    unfit = [(node, why) for node in nodes if (why := _why_unfit(node, request, ports, policy))]
    if unfit:
        left_to = _left_to(request, [node for node, _ in unfit], ports)
        return [], _refused(operation, now, "; ".join(why for _, why in unfit), left_to)
    spent = reserve_or_why_not(request, ports)
    return nodes, _refused(operation, now, spent) if spent else None


def _observe(operation: Operation, facts: GangFacts) -> StepResult | None:
    run = facts.run if facts.run is not None and facts.run.why == launch_id(operation.step) else None
    dead = ended_early(run) if run is not None else []
    if run is not None and dead:
        return step_result(operation, facts.now, *early_end(facts.job, run, dead[0]))
    if run is not None and has_started(run):
        why = f"{run.job_id} restarted as run {run.number}, {start_text(facts.job, run)}"
        return step_result(operation, facts.now, Outcome.DONE, why)
    if not facts.is_final:
        return None
    tasks = facts.run.tasks if facts.run is not None else ()
    ranks = ", ".join(f"rank {task.rank} is {task.status}" for task in tasks) or "no run is recorded"
    why = f"not all ranks run after {operation.step.decision.deadline_seconds} s: {ranks}"
    return step_result(operation, facts.now, Outcome.TIMED_OUT, why)


def launch_id(request: StepRequest) -> str:
    """Names the launch of this turn: the run that it made is known by it."""
    return f"{request.incident_id}/{request.operation_turn}"


def _refused(operation: Operation, now: datetime, why: str, facts: Refused | None = None) -> StepResult:
    return step_result(operation, now, Outcome.REFUSED, why, facts=facts)


def _left_to(request: StepRequest, unfit: Sequence[Node], ports: Ports) -> Refused | None:
    """Leaves the job to the incident of the last node to be healed. None: one of the nodes has no incident for it."""
    incidents = [node.open_incident for node in unfit]
    heads = [ports.incidents.incident(name) for name in incidents if name is not None]
    if len(heads) < len(unfit) or any(not head.is_under_way or head.job_id is None for head in heads):
        return None
    next_incident, job = heads[-1].incident_id, request.decision.job_id
    text = f"{job} is left to this incident by {request.incident_id}: it is down until this one brings it back"
    left = TimelineEntry(ports.clock(), f"job-left-{request.incident_id}", text, JobLeft(request.incident_id))
    ports.incidents.append(next_incident, left)
    return Refused(code=Refusal.LEFT_TO_INCIDENT, incident_id=next_incident)


def _why_unfit(node: Node, request: StepRequest, ports: Ports, policy: RecoveryPolicy) -> str:
    """Returns why no rank may be placed here: the node is out of service, or its own fault must be healed first."""
    if node.state in OUT_OF_SERVICE | ABSENT:
        return f"{node.node_id} is {node.state}"
    other = job_of_others(node, str(request.decision.job_id), ports)
    if other:
        return f"{node.node_id} has {other}"
    if node.open_incident in (None, request.incident_id):
        return ""
    fault = assess_faults(ports.incidents.history(str(node.open_incident)), policy).fault
    if node.healthy_since is not None and node.healthy_since >= fault.alike[-1].observed_at:
        return ""  # it has passed its diagnostics since, and is back already
    # What lets a job finish first lets it start again first, too.
    is_in_the_way = fault.touches_the_node and fault.next_rung is not NextStepCondition.job_end
    return f"{node.node_id} has {fault.title}" if is_in_the_way else ""


def _nodes_for(request: StepRequest, last: Run, ports: Ports, policy: RecoveryPolicy) -> list[Node]:
    """The nodes of the last run, in rank order, with the spare in the broken node's place."""
    situation = Situation(ports.incidents.history(request.incident_id), policy)
    spare, broken = situation.progress.replacement, situation.history.incident.node_id
    names = [spare if spare and task.node_id == broken else task.node_id for task in last.tasks]
    return [node_of(name, ports) for name in names]


def _without_the_unfit(
    request: StepRequest, job: Job, nodes: list[Node], ports: Ports, policy: RecoveryPolicy
) -> list[Node]:
    """The same ranks, with free nodes in the places of those that cannot run one now. Too few: as they were."""
    unfit = [node.node_id for node in nodes if _why_unfit(node, request, ports, policy)]
    situation = Situation(ports.incidents.history(request.incident_id), policy)
    release_candidates(situation.history, situation.progress.replacement_node, ports)
    others = claim_replacement_nodes(job, len(unfit), ports)
    if others is None:
        return nodes
    places = dict(zip(unfit, others, strict=True))
    text = ", ".join(f"{other.node_id} takes the place of {name}" for name, other in places.items())
    add_timeline_entry(request, ports, "moved", f"{job.job_id}: {text}")
    return [places.get(node.node_id, node) for node in nodes]


def _release_nodes_left(request: StepRequest, job: Job, run: Run, ports: Ports) -> None:
    """Releases the nodes that the job has left, after a move: the claimed nodes run it now."""
    if not request.decision.is_move:
        return
    release_claims(job, ports, also=[task.node_id for task in run.tasks])
    # Not only of the run before: that may be one that was recorded by a launch that broke off.
    earlier = [task.node_id for known in ports.jobs.runs(job.job_id) for task in known.tasks]
    free_nodes(job, earlier, ports)


HANDLER = Handler(_start, _observe, read_gang, may_repeat=True)
