"""The nodes that a job's move has taken are let go of where it broke off."""

from dataclasses import replace

import pytest

from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import JobState, Step
from nodeheal.domain.recovery.incident import History, Incident, Turn
from nodeheal.ports import Ports
from nodeheal.services.jobs import job_replacement_node
from nodeheal.services.saving import node_of
from tests.support.builders import NOW, xid
from tests.support.incident_steps import LLAMA, A
from tests.support.three_nodes import three_nodes

__all__ = ["three_nodes"]  # a fixture


def moving(step: Step, ports: Ports) -> History:
    """An incident of A in which a step of a move was about B."""
    decision = Decision(step=step, reason="so", node_id=A, is_move=True)
    incident = Incident("inc-1", A, "demo", xid(79, node_id=A), NOW, "1", job_id="llama")
    return History(incident, (incident.root,), (Turn(decision),))


@pytest.mark.parametrize(("step", "is_released"), [(Step.DIAGNOSE, True), (Step.RESTART_WORKLOAD, False)])
def test_only_a_node_that_was_to_be_proven_for_a_move_is_released(
    three_nodes: Ports, step: Step, is_released: bool
) -> None:
    assert three_nodes.nodes.save(replace(node_of(A, three_nodes), open_incident="inc-1"))

    job_replacement_node.release_candidates(moving(step, three_nodes), None, three_nodes)

    assert (node_of(A, three_nodes).open_incident is None) is is_released


@pytest.mark.parametrize(
    ("step", "state", "is_released"),
    [
        (Step.RESTART_WORKLOAD, JobState.STOPPED, True),
        (Step.RESTART_WORKLOAD, JobState.SUBMITTED, False),
        (Step.DIAGNOSE, JobState.STOPPED, False),
    ],
)
def test_what_a_move_that_broke_off_has_claimed_is_let_go_of(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch, step: Step, state: JobState, is_released: bool
) -> None:
    released: list[str] = []
    monkeypatch.setattr(job_replacement_node, "release_claims", lambda job, _: released.append(job.job_id))
    assert three_nodes.jobs.save(replace(LLAMA, state=state))

    job_replacement_node.release_claims_of_move(moving(step, three_nodes), three_nodes)

    assert bool(released) is is_released
