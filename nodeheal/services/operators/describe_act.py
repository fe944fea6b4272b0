"""What an act by hand will do, told before it is asked for: whose work stops, what it spends, what comes next."""

from nodeheal.contract.check_seconds import HEALTHY_SECONDS
from nodeheal.contract.job_spec import JobSpec
from nodeheal.contract.names import DIAGNOSE, DRAIN, pool_line
from nodeheal.contract.vocabulary import Action, Awaited, NodeState, Provider
from nodeheal.domain.errors import Conflict
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.humanize import all_of, counted, lasting
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.domain.recovery.decision_builder import seconds_to_diagnose
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.review.review import status_text
from nodeheal.domain.verbs import VERBS
from nodeheal.ports import Ports
from nodeheal.services.jobs.prepare_job import placement_of, prepare_job
from nodeheal.services.jobs.submit_job import refuse_known
from nodeheal.services.operators.check_act import attempts_left
from nodeheal.services.operators.describe_answer import ON_HYPERPOD
from nodeheal.services.operators.foretell import Foretold
from nodeheal.services.operators.look_at_job import find_job
from nodeheal.services.operators.operator_guardrails import check_reset
from nodeheal.services.recovery.pool_size import size_of, slots_of
from nodeheal.services.recovery.spares import next_spare
from nodeheal.services.scheduling import restarts_stopped, why_work_unknown

Fact = tuple[str, str]  # a word for what it is about, and the fact
_THEN = {
    DIAGNOSE: "it is diagnosed, and back in service if it passes; where it does not, it stays out and you are told",
    Action.ISOLATE: "it stays out of service until `nodeheal nodes release {node} --why …` or"
    " `nodeheal nodes retire {node} --why …`",
    Action.REBOOT: "it is rebooted, diagnosed, and back in service if it passes; where it does not, you are told",
}


def describe_act(
    node: Node, action: Action, kind: str, ports: Ports, policy: RecoveryPolicy, level: int | None = None
) -> list[Fact]:
    """The facts, each under a word, for the node as it is now. `kind`: DRAIN, DIAGNOSE, or empty for the action itself.
    `level`: of the diagnostics; None: the policy's.
    """
    pauses = ports.pauses.read()
    is_replaced = action is Action.REPLACE
    return [
        _node(node),
        ("work", _work(node, pauses, ports, after_job=kind == DRAIN)),
        ("budget", _budget(node, ports, policy)),
        *_breaker(node, ports),
        *_attempts(node, action, ports, policy),
        *([("checks", how_long_checks_take(node.pool, level, policy))] if kind == DIAGNOSE else []),
        *_asks(node, action, policy),
        ("then", _replaced_by(node, pauses, ports, policy) if is_replaced else _then(node, action, kind)),
    ]


def _node(node: Node) -> Fact:
    return "node", f"{node.node_id} (pool {node.pool}), {node.state}"


def _then(node: Node, action: Action, kind: str) -> str:
    then = _THEN.get(kind, _THEN[action])
    if action is Action.REBOOT and node.provider is Provider.hyperpod:
        then = f"it is rebooted; {ON_HYPERPOD[action]}"
    return then.format(node=node.node_id)


def _asks(node: Node, action: Action, policy: RecoveryPolicy) -> list[Fact]:
    """Whether anybody is asked: who acts by hand has decided, in every mode."""
    mode = policy.pool(node.pool).mode_of(action)
    return (
        []
        if mode is Mode.act
        else [("asks", f"nobody: you decide, though pool {node.pool} is in mode {mode} by itself")]
    )


def _replaced_by(node: Node, pauses: Pauses, ports: Ports, policy: RecoveryPolicy) -> str:
    """Which node takes the place, and how many the pool has then."""
    size, knobs = size_of(ports.pools.get(node.pool), ports), policy.pool(node.pool).replacement
    is_hybrid = node.provider is Provider.hybrid
    spare = next_spare(node, pauses, ports, policy) if is_hybrid or knobs.prefer_spare else None
    if node.provider is Provider.hyperpod:
        return f"{ON_HYPERPOD[Action.REPLACE].format(node=node.node_id)}; the pool keeps its {size} nodes"
    if spare is None:
        return f"a new machine takes its place once it has passed its diagnostics; the pool keeps its {size} nodes"
    kept = "kept as a spare" if spare.is_spare else "a free node, not kept as a spare"
    back = f"{node.node_id} stays out until it is repaired and released, or retired"
    return (
        f"{spare.node_id} ({kept}) takes its place once it has passed its diagnostics; {back}."
        f" Until then {counted(size - 1, 'node')} of pool {node.pool} can serve, of {size}"
    )


def how_long_checks_take(pool: str, level: int | None, policy: RecoveryPolicy, nodes: int = 1) -> str:
    """Which level the diagnostics have, and what they take at most, and about where that is less. `nodes`: in a row."""
    level = level or policy.diagnostics_level_of(pool)
    longest = seconds_to_diagnose(level, policy)
    about = min(HEALTHY_SECONDS[level], longest)
    of_all = f", so about {lasting(nodes * about)} for all" if nodes > 1 else ""
    expected = f"about {lasting(about)} on a healthy node, " if about < longest else ""
    return f"level {level}: {expected}{lasting(longest)} at most{of_all}"


def describe_drill(node: Node, fault: str, foretold: Foretold, ports: Ports) -> list[Fact]:
    """The same for a fault that the node is to report."""
    work = "it has no job of nodeheal"
    if node.job_id is not None:
        work = _work_of_drill(node, foretold, ports)
    then = [("" if number else "then", line) for number, line in enumerate(foretold.lines)]
    return [_node(node), ("drill", fault), ("work", work), *then]


def _work_of_drill(node: Node, foretold: Foretold, ports: Ports) -> str:
    if foretold.keeps_nodes:
        return f"job {node.job_id} stops, and starts again on the same nodes"
    if foretold.stops_work:
        return _work(node, ports.pauses.read(), ports, after_job=False)
    return f"job {node.job_id} goes on"


def describe_retirement(node: Node, ports: Ports) -> list[Fact]:
    """The same for a node that is given up."""
    work = _work(node, ports.pauses.read(), ports, after_job=False) if node.job_id else "it has no job of nodeheal"
    return [
        _node(node),
        ("work", work),
        (
            "then",
            "for good, there is no way back: nodeheal may not act on it any more, and its slot of the disruption"
            f" budget is free. `nodeheal nodes enroll` refuses {node.node_id} then: the machine comes back only under"
            " another id, registered again (an EC2 instance not at all)",
        ),
    ]


def describe_release(node: Node, withdrawn: Incident | None) -> list[Fact]:
    """The same for a node that is given back. `withdrawn`: what was asked for by hand, and only waits."""
    then = f"it serves again at once, and nothing checks it; `nodeheal nodes diagnose {node.node_id} --why …` does"
    if withdrawn is not None:
        then = f"{withdrawn.incident_id}, which was asked for by hand, is withdrawn; the node is not touched"
    label, text = _node(node)
    return [(label, f"{text}: {node.state_reason or 'no reason on record'}"), ("then", then)]


def describe_enrolment(node: Node) -> list[Fact]:
    """The same for a node that is enrolled."""
    return [_node(node), ("then", "nodeheal may act on it as the policy of the pool says")]


def describe_close(incident: Incident) -> list[Fact]:
    """What the close of an incident does."""
    return [
        ("incident", f"{incident.incident_id} on {incident.node_id} (pool {incident.pool}): {status_text(incident)}"),
        ("then", "it is closed, and its node takes new incidents"),
    ]


def describe_reset(name: str, ports: Ports) -> list[Fact]:
    """What the reset of a pool's breaker does. Raises ValueError where there is nothing to reset."""
    pool, waiting = ports.pools.get(name), ports.operations.queued(pool_line(Awaited.BREAKER, name))
    check_reset(pool, is_waited_for=bool(waiting))
    is_open = f"its breaker is open ({pool.breaker_why})" if pool.is_tripped else "its breaker is closed"
    return [
        ("pool", f"{name}: {is_open}"),
        ("then", f"{counted(len(waiting), 'incident decides', 'incidents decide')} again; what is stale is dropped"),
    ]


def describe_submission(spec: JobSpec, ports: Ports, policy: RecoveryPolicy, *, is_idempotent: bool) -> list[Fact]:
    """What a submission does. Raises NotFound, Conflict and ValueError where it would be refused."""
    if (known := ports.jobs.get(spec.name)) is not None and not is_idempotent:
        refuse_known(known)
    plan = prepare_job(spec, ports, policy)
    place = placement_of(plan)
    return [
        ("job", f"{plan.job.job_id}: {counted(plan.job.nodes, 'node')} of pool {place.pool} (cluster {place.cluster})"),
        *(("doubt", doubt) for doubt in plan.doubts),
        ("then", f"it starts on {', '.join(place.nodes)}" if place.nodes else f"it waits: {place.why}"),
    ]


def describe_stop(job_id: str, ports: Ports) -> list[Fact]:
    """What the stop of a job does. Raises NotFound."""
    job = find_job(job_id, ports)
    ends = "each rank gets SIGTERM and its grace period" if not job.is_over else "it is over: it is given up"
    return [("job", f"{job.job_id} (pool {job.pool}), {job.state}"), ("then", ends)]


def describe_restart(job_id: str, ports: Ports) -> list[Fact]:
    """What another submission of a job does. Raises NotFound, and Conflict for a job that is not over."""
    job = find_job(job_id, ports)
    if not job.is_over:
        raise Conflict(f"{job_id} is {job.state}: stop it first")
    then = f"submission {job.submission + 1} starts, from the newest complete checkpoint that is found"
    return [("job", f"{job.job_id} (pool {job.pool}), {job.state}"), ("then", then)]


def _work(node: Node, pauses: Pauses, ports: Ports, *, after_job: bool) -> str:
    scheduler = ports.scheduler_of(node)
    if unknown := why_work_unknown(scheduler):
        return f"{unknown}: it gets no new work, and the rest is left to you"
    if restarts_stopped(scheduler):
        return "its scheduler gives it no new work, and starts its jobs elsewhere where they may be requeued"
    if node.job_id is None:
        return "it has no job of nodeheal; other tasks on it are stopped as the policy says"
    if after_job:
        left = "where its program fails meanwhile, it is not started again by itself"
        return f"job {node.job_id} ends first; until then the node gets no new work; {left}"
    job = ports.jobs.get(node.job_id)
    ranks = f"job {node.job_id} stops"
    if job is not None and job.nodes > 1:
        ranks = f"{all_of(job.nodes)} ranks of job {job.job_id} stop"
    now, pool = ports.clock(), list(ports.nodes.in_pool(node.pool))
    free = sum(other.is_available(now, pauses) for other in pool)
    if free:
        are = "is" if free == 1 else "are"
        return f"{ranks}; it starts again; {counted(free, 'node')} of the pool {are} free for it"
    proving = [o.node_id for o in pool if o.as_shown(now).state is NodeState.PROBATION and o.job_id is None]
    proves = f"`nodeheal nodes diagnose {proving[0]} --why …` proves one now" if proving else ""
    soon = f" ({len(proving)} on probation: {proves})" if proving else ""
    return f"{ranks}; no other node is free now{soon}, so it may stay down until one is"


def _budget(node: Node, ports: Ports, policy: RecoveryPolicy) -> str:
    held, slots = len(ports.pools.holders(node.pool)), slots_of(node.pool, ports, policy)
    waits = "" if held < slots.total else "; it waits in line for one"
    return f"{slots.taken(held)}{waits}"


def _breaker(node: Node, ports: Ports) -> list[Fact]:
    pool = ports.pools.get(node.pool)
    if not pool.is_tripped:
        return []
    waits = f"this waits for `nodeheal breaker reset {pool.name} --why …` before anything is touched"
    ends = f"no reset drops it; `nodeheal nodes release {node.node_id} --why …` withdraws it"
    return [("breaker", f"it is open ({pool.breaker_why}): {waits}; {ends}")]


def _attempts(node: Node, action: Action, ports: Ports, policy: RecoveryPolicy) -> list[Fact]:
    left, verb = attempts_left(node, action, ports, policy), VERBS[action]
    return [] if left is None else [("spends", f"1 {verb.noun}; this node has {left} left")]
