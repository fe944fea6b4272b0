"""What is looked at, at a deadline, is forgotten then: nobody waits for it any more. Found by the simulation."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Action, NodeState, Step, VerbName
from nodeheal.domain.operation import job_owner
from nodeheal.domain.recovery.incident import Incident
from nodeheal.operations.engine import conclude
from nodeheal.ports import Ports
from tests.support.builders import NOW, gang_under_way, memory_ports, node, started_job, stored_run, xid
from tests.support.jobs import ecs_job


def request(step: Step, action: Action | None = None, job_id: str | None = None) -> StepRequest:
    decision = Decision(step=step, reason="because", node_id=xid().node_id, action=action, job_id=job_id)
    return StepRequest(incident_id="inc-1", turn=1, decision=decision)


LATER = NOW + timedelta(minutes=3)


@pytest.fixture
def ports() -> Ports:
    made = memory_ports()
    broken = node(state=NodeState.RECOVERING, open_incident="inc-1", job_id="llama")
    incident = Incident("inc-1", broken.node_id, "demo", xid(), NOW, "v", job_id="llama")
    made.nodes.save(node())
    made.incidents.open(incident, replace(broken, version=1))
    started_job(ecs_job("llama", "demo", "training", "trainer:1", "trainer", 1), [broken], made)
    return made


@pytest.mark.parametrize(
    ("step", "verb"), [(Step.ISOLATE, VerbName.ISOLATE), (Step.RESTART_WORKLOAD, VerbName.LAUNCH_GANG)]
)
def test_a_gang_that_was_not_in_time_is_not_waited_for_any_more(step: Step, verb: VerbName, ports: Ports) -> None:
    run = stored_run(ports, "llama", 1)
    gang_under_way(ports, verb, run)
    other = gang_under_way(ports, VerbName.STOP_GANG, run, incident_id="inc-2")

    conclude(request(step, job_id="llama"), ports)

    assert ports.operations.open_of(job_owner("llama")) == [other]
