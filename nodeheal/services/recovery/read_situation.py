"""Reads what a decision, and what follows from it, is made from: the incident's own records, and what is around it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.contract.results import Isolated
from nodeheal.contract.steps import Reservation
from nodeheal.contract.vocabulary import Action, JobState, Outcome, Step
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node, PastRecovery
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.jobs.restarts import is_limit_of_lone_hangs, own_limits
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import DecisionContext, accelerator_scope, job_scope, node_scope
from nodeheal.domain.recovery.incident import History, Incident
from nodeheal.domain.recovery.job_move import needs_no_restart
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.verbs import ESCALATION_STEPS, VERBS
from nodeheal.ports import Ports
from nodeheal.services.intake.hangs import seen_hanging_by
from nodeheal.services.jobs.job_nodes import replacement_nodes, unproven_replacement_nodes
from nodeheal.services.jobs.runs import current_run, has_rebooted_since
from nodeheal.services.recovery.pool_size import size_of
from nodeheal.services.saving import node_of
from nodeheal.services.scheduling import takes_commands

TIMES_USED = 5  # of the newest: what took long last year says little of today


def read_situation(history: History, ports: Ports, policy: RecoveryPolicy) -> Situation:
    """Returns the incident with what a decision needs to know around it. Raises NotFound for an unknown node."""
    node = node_of(history.incident.node_id, ports)
    job, run = current_run(history.incident.job_id, ports)
    return _situation(history, node, job, run, _context_of(history, node, job, run, ports, policy), policy)


def read_ending(history: History, ports: Ports, policy: RecoveryPolicy) -> Situation:
    """Returns the incident with what its end needs to know: its node, and how its job stands; of the rest of the
    context nothing is read. Raises NotFound.
    """
    node = node_of(history.incident.node_id, ports)
    job, run = current_run(history.incident.job_id, ports)
    context = replace(history.context, job_is_running=is_running(job, run, history.incident, ports))
    return _situation(history, node, job, run, context, policy)


def _situation(
    history: History, node: Node, job: Job | None, run: Run | None, context: DecisionContext, policy: RecoveryPolicy
) -> Situation:
    is_over = job is not None and needs_no_restart(history, job, run, policy)
    is_down = job is not None and not is_over and not context.job_is_running
    return Situation(replace(history, context=context), policy, node, job, run, is_over, is_down)


def _context_of(
    history: History, node: Node, job: Job | None, run: Run | None, ports: Ports, policy: RecoveryPolicy
) -> DecisionContext:
    incident = history.incident
    rules, at = policy.correlation, incident.root.observed_at
    own = timedelta(seconds=max(rules.repeat_window_seconds, rules.other_job_window_seconds))
    others = timedelta(seconds=max(rules.window_seconds, policy.breaker.window_seconds))
    observations = tuple(ports.nodes.observations(node.node_id, at - own, node.pool, at - others))
    is_crowd = len({observation.node_id for observation in observations}) >= policy.breaker.min_nodes
    pool, pauses = ports.pools.get(node.pool), ports.pauses.read()
    limits = own_limits(job, seen_hanging_by(history)) if job else ()
    return DecisionContext(
        provider=node.provider,
        takes_commands=takes_commands(node, ports.scheduler_of(node)),
        # Read only where it can matter: without a recent count, listing 10,000 nodes takes a second.
        pool_nodes=size_of(pool, ports) if is_crowd else 0,
        boot_id=node.boot_id,
        booted_at=node.booted_at,
        agent_since=node.agent_since,
        healthy_since=node.healthy_since,
        job_is_running=is_running(job, run, incident, ports),
        is_job_broken=_is_broken(job, run, node),
        why_no_restart=job.why_no_restart if job else "",
        run_started_at=run.started_at if run else None,
        recoveries=node.recoveries,
        spent=_spent(history, node, limits, ports, policy),
        observations=observations,
        has_reserved_capacity=_has_reserved_capacity(history),
        is_released_or_retired=node.open_incident != incident.incident_id,
        pool=pool,
        job_limits=limits,
        **_ways_out(history, job, run, pauses, ports, policy),
        pauses=pauses,
    )


def _ways_out(
    history: History, job: Job | None, run: Run | None, pauses: Pauses, ports: Ports, policy: RecoveryPolicy
) -> dict[str, Any]:
    """Where the job could go on, and how long recoveries take here. Asked when its gang has stopped, and again only
    when an escalation step has not helped: in a large pool the answer takes a while."""
    if job is None or job.is_over or run is None or not run.has_ended or not _may_move(history):
        return {}
    known, gang = list(ports.nodes.in_pool(job.pool)), {task.node_id for task in run.tasks}
    # Every place of a broken node is to be filled: one node is proven for that, and not several.
    places = max(1, sum(node.node_id in gang and node.state in OUT_OF_SERVICE for node in known))
    ready = len(replacement_nodes(job, pauses, ports))
    is_one_short = ready + 1 == places
    free = unproven_replacement_nodes(job, pauses, ports) if is_one_short else []
    # The list lags: it may show the node just claimed as the replacement as a free one.
    own = {turn.result.replacement_node_id for turn in history.turns if turn.result is not None}
    free = [node for node in free if node.node_id not in own and not policy.why_opted_out(node.node_id)]
    return {
        "free_nodes": ready if ready >= places else 0,
        "replacement_node": free[0].node_id if free else "",
        **_times([recovery for node in known for recovery in node.recoveries]),
    }


def _times(past: Sequence[PastRecovery]) -> dict[str, Any]:
    """What the newest recoveries took, by what brought the node back, and their diagnoses."""
    newest = sorted(past, key=lambda recovery: recovery.opened_at, reverse=True)
    took = {
        action: [recovery.seconds for recovery in newest if recovery.rung is action and recovery.seconds is not None]
        for action in ESCALATION_STEPS
    }
    proofs = [recovery.proof_seconds for recovery in newest if recovery.proof_seconds is not None]
    return {
        "recovery_seconds": {action: tuple(seconds[:TIMES_USED]) for action, seconds in took.items()},
        "proof_seconds": tuple(proofs[:TIMES_USED]),
    }


def _has_reserved_capacity(history: History) -> bool:
    """Whether the isolation has found that the node's machine runs on capacity that was bought ahead."""
    facts = [turn.result.facts for turn in history.turns if turn.result is not None]
    return any(isinstance(each, Isolated) and each.has_reserved_capacity for each in facts)


def _may_move(history: History) -> bool:
    """Whether its node has just been isolated, or what was tried for it has not helped; never after a move."""
    last = history.turns[-1] if history.turns else None
    if last is None or last.decision.step is Step.ISOLATE:
        return last is not None
    has_moved = any(t.decision.is_move for t in history.turns if t.decision.step is Step.RESTART_WORKLOAD)
    if last.decision.step is Step.FREEZE_EVIDENCE:
        return not has_moved  # nothing was tried yet
    has_failed = last.result is not None and last.result.outcome is not Outcome.DONE
    tries = {Step.DIAGNOSE, *(VERBS[action].step for action in ESCALATION_STEPS)}
    return not has_moved and last.decision.step in tries and (has_failed or last.decision.is_move)


def _is_broken(job: Job | None, run: Run | None, node: Node) -> bool:
    """Whether the run is short of a rank: one has failed, or cannot have outlived its boot of this node."""
    if job is None or run is None or job.is_over:
        return False
    lost = (task for task in run.tasks if task.node_id == node.node_id and has_rebooted_since(task, node))
    failed = (task for task in run.tasks if task.has_stopped)
    return any(not task.has_succeeded for task in (*lost, *failed))


def is_running(job: Job | None, run: Run | None, incident: Incident, ports: Ports) -> bool:
    """Whether the incident's job runs, or is about to run again: a recovery of another of its nodes has stopped it."""
    if job is None or run is None or job.state is JobState.COMPLETED:
        return False
    if not run.has_ended:
        return True
    gang = (ports.nodes.get(task.node_id) for task in run.tasks)
    others = {node.open_incident for node in gang if node is not None} - {None, incident.incident_id}
    return any(_may_relaunch(other, ports) for other in sorted(map(str, others)))


def _may_relaunch(incident_id: str, ports: Ports) -> bool:
    """Whether an open incident may still bring its job back: it has not ended, and does not itself wait for the job."""
    history = ports.incidents.history(incident_id)
    last = history.turns[-1].decision if history.turns else None
    return history.incident.is_under_way and (last is None or last.step is not Step.WAIT)


def _spent(
    history: History, node: Node, own: tuple[Reservation, ...], ports: Ports, policy: RecoveryPolicy
) -> dict[tuple[str, Action], int]:
    """What the ledger holds for the node, for each accelerator that was named, for the job, and for lone hangs."""
    serials = sorted({event.component_serial for event in history.events if event.component_serial})
    pool = policy.pool(node.pool)
    actions = [action for action in ESCALATION_STEPS if VERBS[action].is_on(pool)]
    limits = {node_scope(node.node_id): [policy.limits[action] for action in actions]}
    of_accelerators = [
        policy.accelerator_limits[action] for action in ESCALATION_STEPS if action in policy.accelerator_limits
    ]
    if of_accelerators:
        limits |= {accelerator_scope(serial): of_accelerators for serial in serials}
    if history.incident.job_id:
        limits[job_scope(history.incident.job_id)] = [policy.limits[Action.RESTART_WORKLOAD]]
    limits |= {reservation.scope: [reservation.limit] for reservation in own if is_limit_of_lone_hangs(reservation)}
    spent = {scope: ports.attempts.spent(scope, *which) for scope, which in limits.items()}
    return {(scope, group): count for scope, counts in spent.items() for group, count in counts.items()}
