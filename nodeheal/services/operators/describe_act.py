"""What an act by hand will do, told before it is asked for: whose work stops, what it spends, what comes next."""

from nodeheal.contract.names import DIAGNOSE, DRAIN
from nodeheal.contract.vocabulary import Action
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.domain.verbs import VERBS
from nodeheal.ports import Ports
from nodeheal.services.recovery.pool_size import slots_of

_THEN = {
    DIAGNOSE: "it is diagnosed, and back in service if it passes; where it does not, it stays out and you are told",
    Action.ISOLATE: "it stays out of service until `nodeheal nodes release` or `nodeheal nodes retire`",
    Action.REBOOT: "it is rebooted, diagnosed, and back in service if it passes; where it does not, you are told",
    Action.REPLACE: "another node takes its place once that has passed its diagnostics",
}


def describe_act(node: Node, action: Action, kind: str, ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """The lines, a fact each, for the node as it is now. `kind`: DRAIN, DIAGNOSE, or empty for the action itself."""
    return [
        f"node    {node.node_id} (pool {node.pool}), {node.state}",
        f"work    {_work(node, ports, after_job=kind == DRAIN)}",
        f"budget  {_budget(node, ports, policy)}",
        *_attempts(node, action, ports, policy),
        f"then    {_THEN.get(kind, _THEN[action])}",
    ]


def describe_retirement(node: Node, ports: Ports) -> list[str]:
    """The same for a node that is given up."""
    return [
        f"node    {node.node_id} (pool {node.pool}), {node.state}",
        f"work    {_work(node, ports, after_job=False) if node.job_id else 'it has no job of nodeheal'}",
        "then    nodeheal may not act on it any more, and its slot of the disruption budget is free."
        " `nodeheal nodes enroll` takes it in again",
    ]


def _work(node: Node, ports: Ports, *, after_job: bool) -> str:
    if ports.scheduler_of(node).requeues:
        return "its scheduler gives it no new work, and starts its jobs elsewhere where they may be requeued"
    if node.job_id is None:
        return "it has no job of nodeheal; other tasks on it are stopped as the policy says"
    if after_job:
        return f"job {node.job_id} ends first; until then the node gets no new work"
    job = ports.jobs.get(node.job_id)
    ranks = f"all {counted(job.nodes, 'rank')} of job {job.job_id} stop" if job else f"job {node.job_id} stops"
    free = sum(other.is_available(ports.clock()) for other in ports.nodes.in_pool(node.pool))
    where = f"{counted(free, 'node')} of the pool {'is' if free == 1 else 'are'} free for it"
    back = f"it starts again from its last checkpoint; {where}"
    return f"{ranks}; {back}" if free else f"{ranks}; no other node is free, so it may stay down until this one is back"


def _budget(node: Node, ports: Ports, policy: RecoveryPolicy) -> str:
    held, slots = len(ports.pools.holders(node.pool)), slots_of(node.pool, ports, policy)
    waits = "" if held < slots else "; it waits in line for one"
    return f"{held} of {slots} slots of the pool are taken{waits}"


def _attempts(node: Node, action: Action, ports: Ports, policy: RecoveryPolicy) -> list[str]:
    limit = policy.limits.get(action)
    if limit is None:
        return []
    spent = ports.attempts.spent(node_scope(node.node_id), limit)[limit.group]
    left, verb = max(0, limit.limit - spent), VERBS[action]
    return [f"spends  one of {counted(left, verb.noun, verb.plural)} that this node has left"]
