"""The free node that is diagnosed so that a job can continue there. Its incident holds and releases it."""

from functools import partial

from nodeheal.contract.results import StepResult
from nodeheal.contract.vocabulary import JobState, NodeState, Step
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import History
from nodeheal.ports import Ports
from nodeheal.services.jobs.job_nodes import release_claims
from nodeheal.services.steps import clear_if_owner


def release_candidates(history: History, passed: StepResult | None, ports: Ports) -> None:
    """Releases the nodes that the incident has diagnosed for its job. Safe to repeat.

    `passed`: the proof of the one that passed, and is free and proven. One that did not, or broke since, gets no job.
    """
    for turn in history.turns:
        if turn.decision.step is not Step.DIAGNOSE or not turn.decision.is_move:
            continue
        proven = partial(_proven, passed=passed)
        clear_if_owner(ports, turn.decision.node_id, also=proven, open_incident=history.incident.incident_id)


def release_claims_of_move(history: History, ports: Ports) -> None:
    """Releases the nodes that a broken-off move claimed. A job that is being submitted claims its own."""
    job = ports.jobs.get(str(history.incident.job_id))
    has_moved = any(t.decision.is_move and t.decision.step is Step.RESTART_WORKLOAD for t in history.turns)
    if has_moved and job is not None and job.state is not JobState.SUBMITTED:
        release_claims(job, ports)


def _proven(node: Node, passed: StepResult | None) -> dict[str, object]:
    if passed is not None and (passed.node_id, passed.boot_id) == (node.node_id, node.boot_id):
        return {"passed_at": passed.finished_at}
    if node.state not in (NodeState.HEALTHY, NodeState.PROBATION):
        return {}
    return {"state": NodeState.SUSPECT, "state_reason": "no proof as a replacement node"}
