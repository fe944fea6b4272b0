"""What once went wrong, or would have: one test a bug."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.adapters.ecs.rank_change import task_change
from nodeheal.adapters.ecs.task import EcsTaskDetail
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import EndCause, Ending, JobState, NodeState, Outcome, Step, Verdict
from nodeheal.domain.errors import NotAccepted, PlacementRefused
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.operations.engine import conclude
from nodeheal.operations.steps import launch_gang, stop_gang
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.jobs.runs import may_write
from nodeheal.services.recovery.end_incident import end_incident
from tests.support.builders import ACT, as_rank, scheduler_in, stored_job, stored_run, xid
from tests.support.incident_steps import A, B, C, Incident, healed


def test_the_gravest_fault_decides_whichever_came_first() -> None:
    it = Incident(63)
    ingest(xid(79), it.ports, ACT)

    assert it.request().decision.step is Step.ISOLATE


@pytest.mark.parametrize("verdict", [Verdict.DEGRADED, Verdict.UNKNOWN])
def test_an_event_that_is_not_failed_takes_no_node_out_of_service(verdict: Verdict) -> None:
    it = Incident()
    event = xid(79, node_id=C, instance_id=C, event_id="doubtful", verdict=verdict)
    ingest(event, it.ports, ACT)
    it.id = incident_id_of(event)

    decision = it.request().decision

    assert decision.step is Step.ESCALATE
    assert verdict.value in decision.reason


def test_a_relapse_after_the_return_is_told_and_its_repeat_is_news() -> None:
    it = healed()
    it.clock.advance(5)
    relapse = xid(79, event_id="relapse", boot_id="boot-2", observed_at=it.clock())
    assert ingest(relapse, it.ports, ACT) is Ingested.JOINED

    ending = it.request()
    end_incident(ending, it.ports, ACT)

    assert ending.decision.ending is Ending.HANDED_TO_A_HUMAN
    again = xid(79, event_id="again", boot_id="boot-2", observed_at=it.clock())
    assert ingest(again, it.ports, ACT) is Ingested.OPENED


def test_one_application_fault_on_two_nodes_is_one_restart() -> None:
    it = Incident(31)
    on_b = xid(31, node_id=B, instance_id=B, event_id="on-b")
    ingest(on_b, it.ports, ACT)
    request = it.request()
    stop_gang(request, it.ports, ACT)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    it.clock.advance(1)
    launch_gang(request.model_copy(update={"task_token": "launch"}), it.ports, ACT)

    of_b = StepRequest(incident_id=incident_id_of(on_b), turn=1, decision=request.decision, task_token="b")
    stop_gang(of_b, it.ports, ACT)
    launch_gang(of_b.model_copy(update={"task_token": "b2"}), it.ports, ACT)

    assert "task-llama-2-0" not in scheduler_in(it.ports).stopped
    assert it.ports.workflows.resumed["b2"].outcome is Outcome.DONE  # type: ignore[attr-defined]
    assert it.ports.jobs.get_run("llama", 3) is None


def _throttled(*_: object) -> Any:
    raise NotAccepted("ThrottlingException")


def test_a_spare_is_marked_with_its_job_before_a_rank_starts_there() -> None:
    it = Incident(74)
    it.isolate(), it.swap(), it.diagnose(boot_id="boot-1", name=C)
    seen: list[str | None] = []
    scheduler_in(it.ports).start_rank = lambda *_: seen.append(it.node(C).job_id) or f"task-{len(seen)}"  # type: ignore

    launch_gang(it.request(), it.ports, ACT)

    assert seen == ["llama", "llama"]


def test_a_refused_launch_leaves_nothing_that_looks_alive() -> None:
    it = healed()
    scheduler_in(it.ports).start_rank = _refused

    launch_gang(it.request(), it.ports, ACT)

    run, job = stored_run(it.ports, "llama", 2), stored_job(it.ports, "llama")
    assert not any(may_write(task, it.ports) for task in run.tasks)
    assert job.state is JobState.STOPPED


def _refused(*_: object) -> str:
    raise PlacementRefused("RESOURCE:GPU")


def test_a_repeated_launch_starts_no_rank_that_has_died_since() -> None:
    it = healed()
    request = it.request()
    launch_gang(request, it.ports, ACT)
    it.task_is("STOPPED", 1, run=2, exit_code=1)
    it.ports.workflows.resumed.clear()  # type: ignore[attr-defined]

    launch_gang(request, it.ports, ACT)

    assert stored_run(it.ports, "llama", 2).tasks[1].has_stopped
    assert "that failure is handled next" in it.resumed().reason


def test_a_rank_that_answers_our_stop_with_0_has_not_finished_the_job() -> None:
    it = Incident()
    run = stored_run(it.ports, "llama", 1)
    for task in run.tasks:
        told = (0, "nodeheal: recovery", None, None, (EndCause.ON_REQUEST,))
        stop = TaskChange("llama", 1, task.task_id, task.placement, "STOPPED", *told)
        wakeup.on_task_change(stop, it.ports)

    job = stored_job(it.ports, "llama")
    assert job.state is JobState.STOPPED
    assert it.node(B).job_id == "llama"


def test_a_job_that_has_finished_is_not_launched_again() -> None:
    it = healed()
    job = stored_job(it.ports, "llama")
    it.ports.jobs.save(replace(job, state=JobState.COMPLETED))

    launch_gang(it.request(), it.ports, ACT)

    assert it.resumed().outcome is Outcome.DONE
    assert it.ports.jobs.get_run("llama", 2) is None


def test_a_sidecar_that_ended_well_does_not_speak_for_the_trainer() -> None:
    detail = {
        "taskArn": "t",
        "containerInstanceArn": "c",
        "lastStatus": "STOPPED",
        **as_rank("llama", 1),
        "containers": [{"exitCode": 0}, {"exitCode": 1}],
    }

    change = task_change(EcsTaskDetail.model_validate(detail))

    assert change is not None
    assert change.exit_code == 1


def test_a_swap_that_the_look_finds_is_finished_there() -> None:
    it = Incident(74)
    it.isolate()
    request = it.request()
    it.ports.nodes.save(replace(it.node(C), open_incident=it.id))  # then the function died

    assert conclude(request, it.ports).replacement_node_id == C
    assert (it.node(A).state, it.node(A).job_id) == (NodeState.QUARANTINED, None)
