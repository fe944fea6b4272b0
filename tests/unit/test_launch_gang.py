"""A gang is launched again: with which ranks, by which launch, and what a refused or lost one leaves."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import EndCause, JobState, NodeState, Outcome, Step
from nodeheal.domain.errors import Conflict, NotAccepted, PlacementRefused
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.recovery.incident import fingerprint, incident_id_of
from nodeheal.operations.steps import launch_gang, stop_gang
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs import start_gang
from nodeheal.services.jobs.runs import may_write
from nodeheal.services.jobs.submit_job import submit_job
from tests.support.builders import (
    ACT,
    NOW,
    scheduler_in,
    stored_job,
    stored_run,
    xid,
)
from tests.support.crashes import lost
from tests.support.fake_cluster import BROKEN, PEER, FakeCluster
from tests.support.incident_steps import LLAMA, A, B, C, Incident, healed, take
from tests.support.observed_operations import saved
from tests.support.replays import HOUR
from tests.support.three_nodes import started_run


def test_a_launch_is_told_with_its_ranks() -> None:
    it = healed()

    it.relaunch()

    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline]
    assert f"launching llama as run 2: rank 0 on {A}, rank 1 on {B}" in told


def test_no_rank_is_placed_on_a_node_that_is_out_of_service_whoever_took_it_out() -> None:
    it = healed()
    request = it.request()
    it.ports.nodes.save(replace(it.node(B), state=NodeState.QUARANTINED))

    launch_gang(request, it.ports, ACT)

    assert it.resumed().reason == f"{B} is QUARANTINED"


def test_a_rank_that_a_broken_launch_has_started_is_not_started_again() -> None:
    it = healed()
    request = it.request()
    first = stored_run(it.ports, "llama", 1)
    tasks = tuple(replace(task, task_id="", status="PENDING", exit_code=None) for task in first.tasks)
    started = (replace(tasks[0], task_id="task-llama-2-0"), tasks[1])
    it.ports.jobs.save_run(Run("llama", 2, it.clock(), f"{it.id}/{it.turn}", started))
    ranks: list[int] = []
    start = scheduler_in(it.ports).start_rank

    def watched(job: Any, run: Any, task: Any, environment: Any) -> str:
        ranks.append(task.rank)
        return str(start(job, run, task, environment))

    scheduler_in(it.ports).start_rank = watched
    launch_gang(request, it.ports, ACT)

    assert ranks == [1]


def test_a_launch_settles_the_last_runs_faults_for_the_last_run_only() -> None:
    it = healed()
    of_the_job, of_the_node = xid(31, node_id=B), xid(74, node_id=B)
    settled = {fingerprint(event): "inc-1" for event in (of_the_job, of_the_node)}
    it.ports.nodes.save(replace(it.node(B), resolved_faults=settled))

    it.relaunch()

    assert it.node(B).resolved_faults == {fingerprint(of_the_node): "inc-1"}


def test_of_a_refused_launch_what_was_started_is_stopped_and_may_still_write() -> None:
    it = healed()
    request = it.request()
    first = stored_run(it.ports, "llama", 1)
    tasks = tuple(replace(task, task_id="", status="PENDING", exit_code=None) for task in first.tasks)
    started = (replace(tasks[0], task_id="task-llama-2-0"), tasks[1])
    it.ports.jobs.save_run(Run("llama", 2, it.clock(), f"{it.id}/{it.turn}", started))

    def refused(*_: object) -> str:
        raise PlacementRefused("no room")

    no_room: Any = refused
    scheduler_in(it.ports).start_rank = no_room
    launch_gang(request, it.ports, ACT)

    run = stored_run(it.ports, "llama", 2)
    assert [(task.status, task.stop_reason) for task in run.tasks] == [("PENDING", ""), ("STOPPED", "never started")]
    assert "task-llama-2-0" in scheduler_in(it.ports).stopped


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


def test_a_job_is_submitted_once() -> None:
    it = Incident()

    with pytest.raises(Conflict, match="exists already"):
        submit_job(LLAMA, it.ports)


@pytest.mark.parametrize(("store", "method"), [("jobs", "save_run"), ("jobs", "save"), ("nodes", "save")])
def test_a_launch_that_loses_its_writes_starts_nothing(store: str, method: str) -> None:
    it = healed()
    request = it.request()
    it.ports.nodes.save(replace(it.node(), job_id=None))  # else there is nothing to write of the node
    setattr(getattr(it.ports, store), method, lost)

    with pytest.raises(NotAccepted):
        launch_gang(request, it.ports, ACT)

    assert "task-llama-2-0" not in scheduler_in(it.ports).tasks


@pytest.mark.parametrize("why", ["of another launch", "of this launch"])
def test_a_run_that_is_on_record_is_only_taken_over_by_the_launch_that_wrote_it(why: str) -> None:
    it = healed()
    request = it.request()
    first = stored_run(it.ports, "llama", 1)
    ours = f"{it.id}/{it.turn}"
    tasks = tuple(replace(task, task_id="", status="PENDING", exit_code=None) for task in first.tasks)
    it.ports.jobs.save_run(Run("llama", 2, NOW, ours if why == "of this launch" else "inc-other/5", tasks))

    launch_gang(request, it.ports, ACT)

    job, second = stored_job(it.ports, "llama"), stored_run(it.ports, "llama", 2)
    assert job.current_run == (2 if why == "of this launch" else 3)
    assert all(task.has_stopped for task in second.tasks) == (why == "of another launch")


def test_of_two_launches_that_record_their_runs_in_one_moment_the_first_to_point_the_job_at_its_own_wins() -> None:
    it = healed()
    request, save = it.request(), it.ports.jobs.save

    def another_is_quicker(job: Job) -> bool:
        it.ports.jobs.save = save  # type: ignore[method-assign]
        it.ports.jobs.save(replace(job, current_run=2))
        return save(job)

    it.ports.jobs.save = another_is_quicker  # type: ignore[method-assign]

    with pytest.raises(NotAccepted):
        launch_gang(request, it.ports, ACT)

    assert "task-llama-2-0" not in scheduler_in(it.ports).tasks


REMAP = 63


def test_a_fault_of_the_next_run_on_another_node_is_another_restart() -> None:
    cluster = FakeCluster()
    cluster.clock.advance(1)
    cluster.reports(xid(31))
    cluster.clock.advance(120)
    cluster._gang_becomes("STOPPED", exit_code=1)

    cluster.reports(xid(31, event_id="peer", node_id=PEER, instance_id=PEER, observed_at=cluster.clock()))

    assert cluster.ports.jobs.get("llama").current_run == 3  # type: ignore[union-attr]
    assert cluster.job_nodes == [BROKEN, PEER]


def test_a_later_fault_of_an_incident_is_not_taken_for_one_before_the_relaunch() -> None:
    it = Incident(31)
    first = it.request()
    run = it.ports.jobs.get_run("llama", 1)
    job = it.ports.jobs.get("llama")
    assert run is not None
    assert job is not None
    it.clock.advance(60)  # another node's incident has relaunched the job meanwhile
    relaunched = replace(run, number=2, started_at=it.clock(), why="inc-of-b/1", version=0)
    it.ports.jobs.save_run(relaunched)
    it.ports.jobs.save(replace(job, current_run=2))
    launch_gang(first, it.ports, ACT)
    assert "relaunched since, as run 2" in it.resumed().reason
    take(it, xid(REMAP, observed_at=it.clock()))
    it.request()  # it waits for the job's end, because of the remap
    it.clock.advance(HOUR)
    take(it, xid(31, event_id="again", observed_at=it.clock()))

    again = it.request()
    assert again.decision.step is Step.RESTART_WORKLOAD
    stop_gang(again, it.ports, ACT)

    assert it.is_waiting()  # for the ranks of run 2 to stop


def test_a_rank_that_is_over_is_not_found_again(three_nodes: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    run = started_run(three_nodes)
    gone = replace(run.tasks[0], task_id="", status="STOPPED")
    saved(three_nodes, run.with_task(gone).with_task(replace(run.tasks[1], task_id="")))
    found = {task.placement: f"task-{task.rank}" for task in run.tasks}
    monkeypatch.setattr(scheduler_in(three_nodes), "find_ranks", lambda *_: found)

    after = start_gang.find_unnoted(LLAMA, run, three_nodes)

    assert [task.task_id for task in after.tasks] == ["", "task-1"]


@pytest.mark.parametrize(
    ("known", "is_refused", "status"),
    [
        ({"task_id": "task-9", "status": "RUNNING"}, False, "RUNNING"),  # its own event was quicker
        ({"task_id": "task-9", "status": "STOPPED"}, False, "STOPPED"),
        ({"task_id": "", "status": "PENDING"}, False, "PENDING"),
        ({"task_id": "", "status": "STOPPED"}, True, "PENDING"),
    ],
)
def test_a_rank_that_was_given_up_while_it_was_started_is_refused(
    three_nodes: Ports, known: dict[str, Any], is_refused: bool, status: str
) -> None:
    run = started_run(three_nodes)
    saved(three_nodes, run.with_task(replace(run.tasks[0], **known)))

    if is_refused:
        with pytest.raises(PlacementRefused, match="was given up"):
            start_gang._note_task_id(run, 0, "task-9", three_nodes)
    else:
        start_gang._note_task_id(run, 0, "task-9", three_nodes)

    assert (
        stored_run(three_nodes, "llama", 1).tasks[0].task_id,
        stored_run(three_nodes, "llama", 1).tasks[0].status,
    ) == (
        "task-9",
        status,
    )
