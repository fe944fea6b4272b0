"""Edges of what services do for jobs and recoveries, each by the case that tells it apart."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import Sight
from nodeheal.contract.job_spec import Checkpoints, JobSpec
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.results import Refused, StepResult
from nodeheal.contract.steps import DecideRequest, Decision, StepRequest
from nodeheal.contract.vocabulary import (
    Action,
    Awaited,
    IncidentState,
    JobState,
    JobStep,
    Next,
    NodeState,
    Outcome,
    Provider,
    Refusal,
    Step,
    VerbName,
)
from nodeheal.domain.errors import NotFound, PlacementRefused
from nodeheal.domain.fleet.machine import Machine
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.jobs.job import FoundCheckpoint, GangTask, Job, Run
from nodeheal.domain.operation import incident_owner
from nodeheal.domain.recovery.incident import History, Incident, TimelineEntry, Turn
from nodeheal.domain.recovery.progress import Progress, TriedStep
from nodeheal.operations.gang import GangRecord
from nodeheal.operations.wait import operation_id_of
from nodeheal.ports import Ports
from nodeheal.services.jobs import (
    ask_after_ranks,
    attribute_failure,
    find_checkpoint,
    job_nodes,
    job_replacement_node,
    job_steps,
    prepare_job,
    runs,
    see_directory,
    start_gang,
)
from nodeheal.services.operators import close_incident
from nodeheal.services.operators.inject_fault import inject_fault
from nodeheal.services.recovery import (
    build_decision_context,
    decide_next_step,
    end_incident,
    new_machine,
    new_node_places,
    reserve_attempt,
    return_to_service,
    wait_for_news,
)
from nodeheal.services.saving import change_job, node_of
from nodeheal.services.steps import token_of, where_to_look
from tests.support.builders import (
    ACT,
    NOW,
    FrozenClock,
    gang_under_way,
    job_under_way,
    memory_ports,
    node,
    scheduler_in,
    started_job,
    stored_job,
    stored_run,
    under_way,
    xid,
)
from tests.support.incident_steps import LLAMA, A, B, C
from tests.support.incident_steps import Incident as Recovery
from tests.support.observed_operations import ended, saved, unwanted
from tests.support.recovery_story import Story

WITH_CHECKPOINTS = replace(LLAMA, checkpoints=Checkpoints(directory="/mnt/llama"))


@pytest.fixture
def ports() -> Ports:
    made = memory_ports(FrozenClock())
    for name in (A, B, C):
        made.nodes.save(node(name))
    return made


def run_of(ports: Ports, job: Job = LLAMA) -> Run:
    started_job(job, [node_of(A, ports), node_of(B, ports)], ports)
    return stored_run(ports, "llama", 1)


def asking(step: Step = Step.RESTART_WORKLOAD, node_id: str = A, **changes: Any) -> StepRequest:
    decision = Decision(step=step, reason="so", node_id=node_id, job_id="llama")
    return StepRequest(incident_id="inc-1", turn=1, decision=decision.model_copy(update=changes), task_token="token")


# Ranks


def unstarted(ports: Ports) -> Run:
    """A run of which one rank has no task, an hour after its launch."""
    run = run_of(ports)
    run = saved(ports, run.with_task(replace(run.tasks[1], task_id="")))
    ports.clock.advance(3_600)  # type: ignore[attr-defined]
    return run


def test_a_run_is_left_unstarted_where_nobody_launches_it_any_more(ports: Ports) -> None:
    run = unstarted(ports)
    job_under_way(ports, VerbName.FAN_OUT, data_json='{"parts": []}')  # whose record says nothing of runs
    gang_under_way(ports, VerbName.LAUNCH_GANG, replace(run, number=2), data_json=GangRecord(run=2).model_dump_json())

    assert ask_after_ranks._is_left_unstarted(run, ports)
    gang_under_way(ports, VerbName.LAUNCH_GANG, run, operation_id="another")
    assert not ask_after_ranks._is_left_unstarted(run, ports)


def test_a_rank_that_is_over_is_not_found_again(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(ports)
    gone = replace(run.tasks[0], task_id="", status="STOPPED")
    saved(ports, run.with_task(gone).with_task(replace(run.tasks[1], task_id="")))
    found = {task.placement: f"task-{task.rank}" for task in run.tasks}
    monkeypatch.setattr(scheduler_in(ports), "find_ranks", lambda *_: found)

    after = start_gang.find_unnoted(LLAMA, run, ports)

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
    ports: Ports, known: dict[str, Any], is_refused: bool, status: str
) -> None:
    run = run_of(ports)
    saved(ports, run.with_task(replace(run.tasks[0], **known)))

    if is_refused:
        with pytest.raises(PlacementRefused, match="was given up"):
            start_gang._note_task_id(run, 0, "task-9", ports)
    else:
        start_gang._note_task_id(run, 0, "task-9", ports)

    assert (stored_run(ports, "llama", 1).tasks[0].task_id, stored_run(ports, "llama", 1).tasks[0].status) == (
        "task-9",
        status,
    )


def test_the_nodes_of_a_gang_are_those_of_a_job_that_goes_on(ports: Ports) -> None:
    assert runs.nodes_of_gang("llama", ports) == frozenset()
    run_of(ports)

    assert runs.nodes_of_gang("llama", ports) == {A, B}
    job_steps.save_job(ports, "llama", state=JobState.COMPLETED)
    assert runs.nodes_of_gang("llama", ports) == frozenset()


# Jobs


def test_what_is_said_of_a_run_is_over_with_the_next_summary(ports: Ports) -> None:
    run_of(ports)
    job_steps.save_job(ports, "llama", summary="run 1 is under way", run_said_to_run=1)

    assert job_steps.save_job(ports, "llama", held_at=NOW).run_said_to_run == 1
    assert job_steps.save_job(ports, "llama", summary="another").run_said_to_run == 0


def test_a_step_without_a_token_is_an_error(ports: Ports) -> None:
    with pytest.raises(ValueError, match="without a task token"):
        job_steps.job_token(JobRequest(job_id="llama", submission=1, round=0))
    with pytest.raises(ValueError, match="without a task token"):
        token_of(asking().model_copy(update={"task_token": None}))
    with pytest.raises(NotFound, match="no job gpt"):
        change_job("gpt", ports, lambda job: job)
    assert where_to_look(None) is None


def test_a_job_does_not_stand_before_itself(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submitted again with less priority, it has its old place until it stands in line again."""
    monkeypatch.setattr(job_nodes, "jobs_in_line", lambda *_: {"llama": "000", "gpt": "001", "bert": "999"})

    assert job_nodes.jobs_before(LLAMA, ports) == ["gpt"]


@pytest.mark.parametrize(("nodes", "is_doubted"), [(1, False), (2, True)])
def test_one_node_needs_no_network(nodes: int, is_doubted: bool) -> None:
    spec = JobSpec(name="llama", pool="demo", nodes=nodes, image="trainer:1", accelerators=8, owner="ada@example.com")

    assert bool(prepare_job._doubts_of_network(spec)) is is_doubted


def told_of(ports: Ports, **changes: Any) -> JobResult:
    known: dict[str, Any] = {"step": JobStep.WATCH, "job_id": "llama", "outcome": Outcome.FAILED, "finished_at": NOW}
    last = JobResult(**known, then=Next.ATTRIBUTE, reason="so", nodes=(C,))
    request = JobRequest(job_id="llama", submission=1, round=0, last=last)
    return attribute_failure.attribute_failure(request, ports, ACT)


def test_only_a_job_that_ends_gives_back_what_was_chosen_for_it(ports: Ports) -> None:
    run_of(ports, replace(LLAMA, submission=1))

    assert told_of(ports).nodes == (A, B)  # it goes on
    saved(ports, ended(stored_run(ports, "llama", 1), exit_code=0))
    assert told_of(ports).nodes == (A, B, C)


@pytest.mark.parametrize(("turn", "is_started"), [(0, True), (1, False)])
def test_an_incident_whose_workflow_was_lost_is_started(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, turn: int, is_started: bool
) -> None:
    run_of(ports, replace(LLAMA, submission=1))
    started: list[str] = []
    root = xid(79, node_id=A)
    incident = Incident("inc-1", A, "demo", root, NOW, "1", job_id="llama", turn=turn)
    monkeypatch.setattr(attribute_failure, "recovery_of", lambda *_: "inc-1")
    monkeypatch.setattr(ports.incidents, "incident", lambda _: incident)
    monkeypatch.setattr(ports.workflows, "start", lambda name, _: started.append(name))

    assert told_of(ports).incident_id == "inc-1"
    assert bool(started) is is_started


SEEN = Sight(file_system="nfs4", source="fs-1:/", inode=64, device=50)


@pytest.mark.parametrize(
    ("second", "first", "told"),
    [
        (None, SEEN, SEEN),
        ("it hangs", SEEN, SEEN),
        ("it hangs", "too old", "it hangs"),
        (None, None, see_directory._SILENT),
    ],
)
def test_the_last_time_that_a_node_could_see_the_directory_counts(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, second: Any, first: Any, told: Any
) -> None:
    known: dict[str, Any] = {"step": JobStep.CHOOSE, "job_id": "llama", "outcome": Outcome.DONE, "finished_at": NOW}
    last = JobResult(**known, then=Next.LAUNCH, reason="so", nodes=(A,))
    request = JobRequest(job_id="llama", submission=1, round=0, searches=2, last=last)
    answers = iter([second, first])
    monkeypatch.setattr(see_directory, "_look", lambda *_: None)
    monkeypatch.setattr(see_directory, "sight_of", lambda *_: next(answers))

    assert see_directory._sights(request, ports) == {A: told}


# Searches ahead


def searched(ports: Ports, monkeypatch: pytest.MonkeyPatch, request: StepRequest) -> list[str]:
    """The nodes that are asked while a node is away."""
    asked: list[str] = []
    incident = Incident("inc-1", A, "demo", xid(79, node_id=A), NOW, "1", job_id="llama")
    monkeypatch.setattr(ports.incidents, "incident", lambda _: incident)
    monkeypatch.setattr(find_checkpoint, "is_newer_than_fault", lambda *_: False)
    monkeypatch.setattr(find_checkpoint, "begin", lambda planned, _: asked.append(planned.node_id))
    find_checkpoint.search_ahead(request, ports)
    return asked


def test_a_node_that_works_is_asked_while_the_broken_one_is_away(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(ports, WITH_CHECKPOINTS)
    assert searched(ports, monkeypatch, asking()) == []  # the gang still writes
    saved(ports, ended(run))

    assert searched(ports, monkeypatch, asking()) == [B]
    assert searched(ports, monkeypatch, asking(node_id=C)) == []  # the gang has left that node
    job_steps.save_job(ports, "llama", found=FoundCheckpoint("/mnt/llama/9", 9, NOW, after_run=1))
    assert searched(ports, monkeypatch, asking()) == []


def test_the_broken_node_is_asked_last_and_not_as_one_of_its_gang(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(ports, ended(run_of(ports, WITH_CHECKPOINTS)))
    incident = Incident("inc-1", A, "demo", xid(79, node_id=A), NOW, "1", job_id="llama")
    monkeypatch.setattr(ports.incidents, "incident", lambda _: incident)
    monkeypatch.setattr(find_checkpoint, "is_newer_than_fault", lambda *_: False)

    _, asked = find_checkpoint._whom_to_ask(asking(node_id=C), ports)

    assert [one.node_id for one in asked] == [B, C]


# Replacement nodes of a job


def moving(step: Step, ports: Ports) -> History:
    """An incident of A in which a step of a move was about B."""
    decision = Decision(step=step, reason="so", node_id=A, is_move=True)
    incident = Incident("inc-1", A, "demo", xid(79, node_id=A), NOW, "1", job_id="llama")
    return History(incident, (incident.root,), (Turn(decision),))


@pytest.mark.parametrize(("step", "is_released"), [(Step.DIAGNOSE, True), (Step.RESTART_WORKLOAD, False)])
def test_only_a_node_that_was_to_be_proven_for_a_move_is_released(ports: Ports, step: Step, is_released: bool) -> None:
    assert ports.nodes.save(replace(node_of(A, ports), open_incident="inc-1"))

    job_replacement_node.release_replacement_nodes(moving(step, ports), ports, ACT)

    assert (node_of(A, ports).open_incident is None) is is_released


@pytest.mark.parametrize(
    ("step", "state", "is_released"),
    [
        (Step.RESTART_WORKLOAD, JobState.STOPPED, True),
        (Step.RESTART_WORKLOAD, JobState.SUBMITTED, False),
        (Step.DIAGNOSE, JobState.STOPPED, False),
    ],
)
def test_what_a_move_that_broke_off_has_claimed_is_let_go_of(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, step: Step, state: JobState, is_released: bool
) -> None:
    released: list[str] = []
    monkeypatch.setattr(job_replacement_node, "release_claims", lambda job, _: released.append(job.job_id))
    assert ports.jobs.save(replace(LLAMA, state=state))

    job_replacement_node.release_claims_of_move(moving(step, ports), ports)

    assert bool(released) is is_released


# Decisions


def test_a_decision_sees_the_job_and_its_run() -> None:
    it = Recovery()
    job_steps.save_job(it.ports, "llama", submission=1)
    history = it.ports.incidents.history(it.id)

    seen = build_decision_context.build_decision_context(history, it.ports, ACT).context

    assert seen.run_started_at == stored_run(it.ports, "llama", 1).started_at
    assert seen.job_limits != ()


def turn(step: Step, outcome: Outcome, **changes: Any) -> Turn:
    decision = Decision(step=step, reason="so", node_id=A, **changes)
    return Turn(decision, StepResult(step=step, node_id=A, outcome=outcome, reason="so", finished_at=NOW))


@pytest.mark.parametrize(
    ("step", "may_move"),
    [
        (Step.DIAGNOSE, True),  # another node was proven for it, and its own has failed since
        (Step.RESTART_WORKLOAD, False),  # it goes on elsewhere already
    ],
)
def test_a_job_moves_once(step: Step, may_move: bool) -> None:
    turns = (
        turn(Step.ISOLATE, Outcome.DONE),
        turn(step, Outcome.DONE, is_move=True),
        turn(Step.REBOOT, Outcome.TIMED_OUT),
    )

    assert build_decision_context._may_move(replace(Story(xid(79)).history, turns=turns)) is may_move


@pytest.mark.parametrize(("places", "free"), [(1, 1), (2, 0)])
def test_free_nodes_count_where_there_are_enough_of_them(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, places: int, free: int
) -> None:
    run = saved(ports, ended(run_of(ports)))
    for name in (A, B)[:places]:
        assert ports.nodes.save(replace(node_of(name, ports), state=NodeState.ISOLATED))
    monkeypatch.setattr(build_decision_context, "replacement_nodes", lambda *_: [node_of(C, ports)])
    history = replace(Story(xid(79)).history, turns=(turn(Step.ISOLATE, Outcome.DONE),))

    found = build_decision_context._ways_out(history, stored_job(ports, "llama"), run, NO_PAUSES, ports, ACT)

    assert found["free_nodes"] == free


def rank(where: str, **changes: Any) -> GangTask:
    return replace(GangTask(where, 0, "boot-1", "placement", asked_at=NOW, task_id="t", status="RUNNING"), **changes)


REBOOTED = node(A, boot_id="boot-2", booted_at=NOW + timedelta(minutes=1))


@pytest.mark.parametrize(
    ("task", "state", "is_broken"),
    [
        (rank(A), JobState.RUNNING, True),  # it cannot have outlived its boot
        (rank(A), JobState.COMPLETED, False),
        (rank(B), JobState.RUNNING, False),  # of another node nothing is known
        (rank(B, status="STOPPED", exit_code=1), JobState.RUNNING, True),
        (rank(B, status="STOPPED", exit_code=0), JobState.RUNNING, False),
    ],
)
def test_a_job_is_broken_where_it_is_short_of_a_rank(task: GangTask, state: JobState, is_broken: bool) -> None:
    run = Run("llama", 1, NOW, "submitted", (task,))

    assert build_decision_context._is_broken(replace(LLAMA, state=state), run, REBOOTED) is is_broken
    assert not build_decision_context._is_broken(LLAMA, None, REBOOTED)


@pytest.mark.parametrize("state", [IncidentState.OPEN, IncidentState.ESCALATED])
def test_who_ends_a_step_decides_for_a_workflow_that_lives(state: IncidentState) -> None:
    it = Recovery()
    history = it.ports.incidents.history(it.id)
    if state is IncidentState.ESCALATED:
        it.ports.incidents.finish(replace(history.incident, state=state))

    decided = decide_next_step.decide_at_once(DecideRequest(incident_id=it.id, turn=0), it.ports, ACT)

    assert (decided is not None) is (state is IncidentState.OPEN)


def test_a_decision_lets_go_of_a_replacement_node_only_where_that_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Recovery()
    monkeypatch.setattr(decide_next_step, "release_replacement_nodes", unwanted)

    assert it.request().decision.step is Step.ISOLATE


@pytest.mark.parametrize(
    ("step", "outcome", "is_asked"),
    [(Step.REBOOT, Outcome.DONE, False), (Step.FREEZE_EVIDENCE, Outcome.TIMED_OUT, True)],
)
def test_who_else_reports_a_node_down_is_asked_where_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, step: Step, outcome: Outcome, is_asked: bool
) -> None:
    """Where nobody does, the reason stays as it is."""
    it = Recovery()
    asked: list[str] = []

    def ask(one: Any) -> list[Any]:
        asked.append(one.node_id)
        return []

    monkeypatch.setattr(it.ports.liveness_probes, "ask", ask)
    monkeypatch.setattr(decide_next_step, "is_unclear", lambda *_: is_asked)
    known = turn(step, outcome)
    history = replace(it.ports.incidents.history(it.id), turns=(known,))
    request = DecideRequest(incident_id=it.id, turn=1, result=known.result)

    assert decide_next_step._witnessed(request, history, it.ports) == request
    assert bool(asked) is is_asked


def test_how_long_a_step_took_is_read_off_its_decision() -> None:
    begun, later = NOW - timedelta(seconds=90), NOW - timedelta(seconds=5)
    timeline = (
        TimelineEntry(begun, "decision", "decision-0000", "so"),
        TimelineEntry(later, "progress", "asked-0000", "another line of the same turn"),
    )
    history = replace(Story(xid(79)).history, turns=(turn(Step.ISOLATE, Outcome.DONE),), timeline=timeline)

    assert [seconds for _, seconds in end_incident._times(history)] == [90.0]


# Machines and places


def test_a_node_that_one_replacement_may_not_have_is_offered_to_the_next(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (under_way(memory_ports(), VerbName.REPLACE, incident_id=name) for name in ("inc-1", "inc-2"))
    offered: list[str] = []
    monkeypatch.setattr(ports.machines, "describe", lambda _: Machine("i-1", group="trainers"))
    monkeypatch.setattr(ports.operations, "queued", lambda line: [first, second] if "trainers" in line else [])
    monkeypatch.setattr(new_machine, "is_made_for", lambda *_: True)
    monkeypatch.setattr(new_machine, "has_taken", lambda operation, _: operation is second)
    monkeypatch.setattr(new_machine, "reconcile", lambda *_: None)

    def take(operation: Any, *_: Any) -> Any:
        offered.append(operation.incident_id)
        return operation

    monkeypatch.setattr(new_machine, "take_new_node", take)

    new_machine.on_machine_booted(node("i-1", provider=Provider.ec2), ports)

    assert offered == ["inc-1", "inc-2"]


def test_a_place_that_nobody_needs_any_more_goes_to_the_next(ports: Ports) -> None:
    assert new_node_places.claim_place(node_of(A, ports), 1, ports)
    assert new_node_places.claim_place(node_of(B, ports), 1, ports)  # A has no incident that would hold it
    assert not new_node_places.has_place(node_of(A, ports), ports)


# Waits


def test_a_question_of_the_same_turn_is_no_wait_for_news() -> None:
    it = Recovery()
    turn_now = it.ports.incidents.incident(it.id).turn
    name, owner = operation_id_of(it.id, turn_now), incident_owner(it.id)
    asked = under_way(memory_ports(), VerbName.WAIT, incident_id=it.id, operation_id=name, owner=owner)
    assert it.ports.operations.save(replace(asked, verb=VerbName.APPROVE, version=0))

    assert wait_for_news.waiting_for_news(it.id, it.ports) is None


def test_the_slots_of_the_last_refusal_for_the_budget_count(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[str] = []
    refused = turn(Step.ISOLATE, Outcome.REFUSED)
    assert refused.result is not None
    full = refused.result.model_copy(update={"facts": Refused(code=Refusal.BUDGET_FULL, slots=3)})
    turns = (replace(refused, result=full), turn(Step.WAIT, Outcome.DONE))
    history = replace(Story(xid(79, node_id=A)).history, turns=turns)
    monkeypatch.setattr(ports.incidents, "history", lambda _: history)
    monkeypatch.setattr(wait_for_news, "wake_queue", lambda pool, _: woken.append(pool))

    wait_for_news._call_for_a_free_slot(asking(Step.WAIT, awaits=Awaited.BUDGET), ports)

    assert woken == ["demo"]


def test_a_token_ends_one_wait_once(ports: Ports) -> None:
    result = turn(Step.WAIT, Outcome.DONE).result
    assert result is not None

    assert [ports.workflows.resume("token", result) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(("state", "is_told"), [(IncidentState.ESCALATED, True), (IncidentState.OPEN, False)])
def test_what_stays_down_is_told_where_no_workflow_starts_it_again(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, state: IncidentState, is_told: bool
) -> None:
    incident = Incident("inc-1", A, "demo", xid(79, node_id=A), NOW, "1", state=state)
    monkeypatch.setattr(close_incident, "tasks_not_restarted", lambda _: ["eval:3"])
    monkeypatch.setattr(ports.incidents, "history", lambda _: History(incident, (incident.root,), ()))

    assert ("eval:3" in close_incident._what_stays_down(incident, ports)) is is_told


@pytest.mark.parametrize("tried", [True, False])
def test_a_node_that_had_a_fault_comes_back_on_probation(monkeypatch: pytest.MonkeyPatch, tried: bool) -> None:
    it = Recovery()
    it.isolate()
    proof = turn(Step.DIAGNOSE, Outcome.DONE).result
    assert proof is not None
    proven = Progress(proof=proof.model_copy(update={"boot_id": it.node().boot_id}))
    monkeypatch.setattr(Progress, "is_proven", True)
    proven.tried = [TriedStep(Action.REBOOT, proof)] if tried else []
    monkeypatch.setattr(return_to_service, "read_progress", lambda *_: proven)
    decision = Decision(step=Step.RETURN, reason="so", node_id=A)

    returned = return_to_service.return_to_service(
        StepRequest(incident_id=it.id, turn=2, decision=decision), it.ports, ACT
    )

    assert (returned.outcome, it.node().state) == (Outcome.DONE, NodeState.PROBATION)


def test_a_drill_for_a_node_that_nobody_enrolled_says_how_to_enroll_it(ports: Ports) -> None:
    assert ports.nodes.save(replace(node_of(A, ports), state=NodeState.UNENROLLED))

    with pytest.raises(ValueError, match="is not enrolled"):
        inject_fault(A, "NVRM: Xid", "a drill", ports, ACT)


@pytest.mark.parametrize("has_place", [True, False])
def test_a_new_node_that_has_a_place_needs_no_slot_to_be_repaired(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, has_place: bool
) -> None:
    assert ports.nodes.save(replace(node_of(A, ports), state=NodeState.ISOLATED, open_incident="inc-1"))
    monkeypatch.setattr(reserve_attempt, "has_place", lambda *_: has_place)
    monkeypatch.setattr(reserve_attempt, "why_no_attempt", lambda *_: "")

    why_not = reserve_attempt.why_not_act(node_of(A, ports), asking(Step.REBOOT), ports)

    assert ("holds no slot" in why_not) is not has_place
