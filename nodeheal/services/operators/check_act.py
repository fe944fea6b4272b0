"""What stands against an act now, before it is begun."""

from typing import assert_never

from nodeheal.contract import names
from nodeheal.contract.acts import Diagnose, Drain, Isolate, NodeRequest, Reboot, Replace
from nodeheal.contract.vocabulary import Action
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.decision_context import node_scope
from nodeheal.domain.verbs import VERBS
from nodeheal.ports import Ports
from nodeheal.services.operators.request_action import check_action
from nodeheal.services.scheduling import why_work_unknown


def action_of(act: NodeRequest) -> tuple[Action, str]:
    """The action that a request begins with, and the kind of an isolation that is a part of something else."""
    match act:
        case Isolate():
            return Action.ISOLATE, ""
        case Drain():
            return Action.ISOLATE, names.DRAIN
        case Diagnose():
            return Action.ISOLATE, names.DIAGNOSE
        case Reboot():
            return Action.REBOOT, ""
        case Replace():
            return Action.REPLACE, ""
    assert_never(act)


def check_request(act: NodeRequest, node: Node, ports: Ports, policy: RecoveryPolicy) -> None:
    """Raises ValueError where the request would end without what it asks for, or stop a job that it may not stop."""
    check_action(node, action_of(act)[0], ports)
    if isinstance(act, Drain) and (how := ports.scheduler_of(node).own_tools.drain):
        raise ValueError(f"{node.node_id}: {how}")
    if isinstance(act, Diagnose) and node.job_id and not act.may_stop_job:
        reason = f"{node.node_id} runs job {node.job_id}: give --anyway to stop it, or wait until it has ended"
        raise ValueError(reason)
    if why := why_not_now(node, action_of(act)[0], ports, policy):
        raise ValueError(why)


def why_pool_not_now(name: str, ports: Ports) -> str:
    """Why nothing in the pool would be touched now, and the command that changes it. Empty: it may be touched."""
    if paused := ports.pauses.read().why_pool_is_paused(name, ports.clock()):
        return f"{paused}: `nodeheal unpause {name}` first"
    pool = ports.pools.get(name)
    if pool.is_tripped:
        return f"the breaker of pool {name} is open ({pool.breaker_why}): `nodeheal breaker reset {name} --why …` first"
    return ""


def why_not_now(node: Node, action: Action, ports: Ports, policy: RecoveryPolicy) -> str:
    """Why the request would end without what it asks for. Empty: nothing that is known now stands against it."""
    now, pauses = ports.clock(), ports.pauses.read()
    if pause := pauses.of_node(node.node_id, now):
        return f"{node.node_id} is paused ({pause.why}): `nodeheal unpause {node.node_id}` first"
    if paused := pauses.why_pool_is_paused(node.pool, now):
        return f"{paused}: `nodeheal unpause {node.pool}` first"
    if policy.why_opted_out(node.node_id):
        return f"{node.node_id} is opted out in the policy: {policy.why_opted_out(node.node_id)}"
    only = f"it would only be isolated. `nodeheal nodes isolate {node.node_id} --why …` does that"
    if action is not Action.ISOLATE and (unknown := why_work_unknown(ports.scheduler_of(node))):
        return f"{unknown}; {only}"
    if attempts_left(node, action, ports, policy) == 0:
        limit, verb = policy.limits[action], VERBS[action]
        hours = f"{limit.window_seconds / 3_600:g} h"
        return f"no {verb.noun} is left for {node.node_id}: {limit.limit} in {hours}; {only}"
    return ""


def attempts_left(node: Node, action: Action, ports: Ports, policy: RecoveryPolicy) -> int | None:
    """How often the action may still be taken on the node. None: it has no limit."""
    limit = policy.limits.get(action)
    if limit is None:
        return None
    return max(0, limit.limit - ports.attempts.spent(node_scope(node.node_id), limit)[limit.group])
