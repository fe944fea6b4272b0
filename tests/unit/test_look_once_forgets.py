"""What is looked at, at a deadline, is forgotten then: nobody waits for it any more. Found by the simulation."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Action, IncidentState, NodeState, Step
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.recovery.incident import Incident
from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait
from nodeheal.services.jobs.launch_gang import GANG_RUNNING
from nodeheal.services.jobs.stop_gang import GANG_STOPPED, run_key, stop_key
from nodeheal.services.operators.close_incident import close_incident
from nodeheal.services.recovery.look_once import look_once
from tests.unit.builders import NOW, memory_ports, node, started_job, xid


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
    started_job(Job("llama", "demo", "training", "trainer:1", "trainer", 1), [broken], made)
    return made


@pytest.mark.parametrize("step", [Step.ISOLATE, Step.RESTART_WORKLOAD])
def test_a_gang_that_did_not_stop_in_time_is_not_waited_for_any_more(step: Step, ports: Ports) -> None:
    ports.waits.save(Wait(GANG_STOPPED, stop_key("llama", 1, "inc-1"), "token", "inc-1", LATER))
    ports.waits.save(Wait(GANG_STOPPED, stop_key("llama", 1, "inc-2"), "another's", "inc-2", LATER))
    ports.waits.save(Wait(GANG_RUNNING, run_key("llama", 1), "token", "inc-1", LATER))

    look_once(request(step, job_id="llama"), ports)

    assert ports.waits.get(GANG_STOPPED, stop_key("llama", 1, "inc-1")) is None
    assert ports.waits.get(GANG_RUNNING, run_key("llama", 1)) is None
    assert ports.waits.get(GANG_STOPPED, stop_key("llama", 1, "inc-2")) is not None


def test_nor_is_a_gang_whose_job_was_submitted_again_meanwhile(ports: Ports) -> None:
    ports.waits.save(Wait(GANG_STOPPED, stop_key("llama", 1, "inc-1"), "token", "inc-1", LATER))
    job = ports.jobs.get("llama")
    assert job is not None
    ports.jobs.save_run(Run("llama", 2, LATER, "people", ()))
    ports.jobs.save(replace(job, current_run=2))

    look_once(request(Step.RESTART_WORKLOAD, job_id="llama"), ports)

    assert ports.waits.get(GANG_STOPPED, stop_key("llama", 1, "inc-1")) is None


def test_who_closes_an_incident_by_hand_frees_the_slot_that_its_broken_workflow_took(ports: Ports) -> None:
    known = ports.nodes.get(xid().node_id)
    assert known is not None
    ports.nodes.save(replace(known, state=NodeState.HEALTHY))
    ports.pools.claim("demo", known.node_id, 1)
    ports.incidents.finish(replace(ports.incidents.history("inc-1").incident, state=IncidentState.ESCALATED))

    close_incident("inc-1", "seen", ports)

    assert ports.pools.holders("demo") == []
