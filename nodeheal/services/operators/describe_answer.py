"""Describes what an approval and a refusal do, for the person who answers: above all which work stops."""

from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Action, Provider
from nodeheal.domain.fleet.node import OUT_OF_SERVICE
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.humanize import all_of
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.verbs import VERBS
from nodeheal.ports import Ports
from nodeheal.services.jobs.runs import current_run, may_write
from nodeheal.services.operators.request_action import has_replacement_node

NODES_NAMED = 8
ON_HYPERPOD = {
    Action.REPLACE: "HyperPod terminates {node} and destroys all its volumes, and makes a new machine in its place",
    Action.REBOOT: "HyperPod takes no diagnostics: {node} stays out of service until a human gives it back",
}
_LOST = "What it has computed and not saved in a checkpoint is lost;"


def describe_answer(asked: Decision, incident: Incident, ports: Ports) -> dict[Answer, str]:
    """Describes the effect of each answer in the present state of node and job."""
    pauses = ports.pauses.read()
    yes = f"{_held(incident, pauses, ports)}{_of_yes(asked, incident, pauses, ports)}"
    return {Answer.approve: yes, Answer.refuse: _of_no(asked, incident, ports)}


def _held(incident: Incident, pauses: Pauses, ports: Ports) -> str:
    if paused := pauses.why_paused(incident.node_id, incident.pool, ports.clock()):
        return f"Nothing while it lasts: {paused}. Else: "
    if ports.pools.get(incident.pool).is_tripped:
        return f"{why_breaker_holds(incident)}, and a fault that is too old by then is dropped. Else: "
    return ""


def why_breaker_holds(incident: Incident) -> str:
    """What a yes waits for while the breaker is open, in words."""
    return f"Nothing before a human resets the breaker of pool {incident.pool}"


def why_paused(incident: Incident, ports: Ports) -> str:
    """Which pause keeps a yes from being carried out now, in words; empty: none."""
    return ports.pauses.read().why_paused(incident.node_id, incident.pool, ports.clock())


def _of_yes(asked: Decision, incident: Incident, pauses: Pauses, ports: Ports) -> str:
    """What is done to the node, and to the gang that runs there now."""
    _, run = current_run(incident.job_id, ports)
    alive = [task.node_id for task in run.tasks if may_write(task, ports)] if run else []
    does = VERBS[asked.action].on_yes if asked.action else "healed"
    first = "" if _is_isolated(incident, ports) else "isolated, then "
    is_jobs, place = asked.action is Action.RESTART_WORKLOAD, _place(asked, incident, pauses, ports)
    node = "No node is touched." if is_jobs else f"{incident.node_id} is {first}{does}.{place}"
    if incident.job_id is None:
        return f"{node} No job of ours runs on it."
    if run is None or not alive:
        again = f" {incident.job_id} starts again at once." if is_jobs else ""
        return f"{node} No rank of {incident.job_id} is left to stop.{again}"
    return f"{node} {_gang(incident.job_id, run, alive)} {_LOST} {_then(asked)}"


def _place(asked: Decision, incident: Incident, pauses: Pauses, ports: Ports) -> str:
    """Who takes the node's place, where that must be a node which is there already. HyperPod: what is lost."""
    node = ports.nodes.get(incident.node_id)
    if node is not None and node.provider is Provider.hyperpod and asked.action in ON_HYPERPOD:
        return f" {ON_HYPERPOD[asked.action].format(node=node.node_id)}."
    if asked.action is not Action.REPLACE or node is None or node.provider is not Provider.hybrid:
        return ""
    if has_replacement_node(node, pauses, ports):
        return (
            f" A free node of pool {node.pool} takes its place. {node.node_id} stays out of service until a human acts."
        )
    return f" No node of pool {node.pool} is free to take its place now: then it only stays out of service."


def _of_no(asked: Decision, incident: Incident, ports: Ports) -> str:
    """What stays as it is."""
    if asked.action is Action.RESTART_WORKLOAD:
        return f"{incident.job_id} stays down, and the incident goes to a human."
    left = "stays isolated" if _is_isolated(incident, ports) else "stays in service, with whatever runs on it"
    return f"{incident.node_id} {left}, and the incident goes to a human."


def _is_isolated(incident: Incident, ports: Ports) -> bool:
    node = ports.nodes.get(incident.node_id)
    return node is not None and node.state in OUT_OF_SERVICE


def _gang(job_id: str, run: Run, alive: list[str]) -> str:
    """Which ranks stop, and where."""
    nodes = list(dict.fromkeys(alive))
    where = ", ".join(nodes[:NODES_NAMED]) + (f" and {len(nodes) - NODES_NAMED} more" if nodes[NODES_NAMED:] else "")
    whole = f"{job_id} (run {run.number}, since {run.started_at:%Y-%m-%d %H:%M} UTC)"
    if len(run.tasks) == 1:
        return f"The one rank of {whole} stops, on {where}."
    ranks = f"{len(alive)} of {len(run.tasks)}" if len(alive) < len(run.tasks) else all_of(len(alive)).capitalize()
    return f"{ranks} ranks of {whole} stop, on {where}."


def _then(asked: Decision) -> str:
    if asked.action is Action.ISOLATE:
        return "it goes on elsewhere where nodes are free; otherwise nobody starts it again."
    when = "at once" if asked.action is Action.RESTART_WORKLOAD else "when the node is healed, or another has its place"
    return f"it starts again {when}."
