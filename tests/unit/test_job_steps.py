"""Steps of a job that come twice, late, or at a bad moment."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import DiagnosticsFinished
from nodeheal.contract.job_spec import Preflight
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.vocabulary import (
    Ending,
    IncidentState,
    JobState,
    JobStep,
    Next,
    NodeState,
    Outcome,
    Trouble,
    Verdict,
)
from nodeheal.domain.errors import NotAccepted, NotFound, Superseded
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import CheckAnswer, GangTask, Run
from nodeheal.domain.operation import job_owner
from nodeheal.domain.policy.policy_models import Fabric
from nodeheal.operations.engine import reconcile_all
from nodeheal.operations.steps import await_nodes, check_nodes, launch_job, stop_job, watch_gang
from nodeheal.operations.watch_gang import _why_held as why_held
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs import job_steps, runs
from nodeheal.services.jobs.attribute_failure import attribute_failure
from nodeheal.services.jobs.choose_nodes import choose_nodes
from nodeheal.services.jobs.end_job import end_job
from nodeheal.services.jobs.job_steps import job_of_request, network_test_or_launch, save_job
from nodeheal.services.jobs.judge_checks import ROUNDS, judge_checks
from nodeheal.services.jobs.runs import recovery_of
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool
from nodeheal.services.saving import change_job
from nodeheal.services.steps import save_node, token_of, where_to_look
from tests.support.builders import (
    ACT,
    CHECK,
    NOW,
    SHARED_FACTS,
    FrozenClock,
    commands_in,
    memory_ports,
    named,
    scheduler_in,
    stored_job,
    stored_run,
    waiting,
    xid,
)
from tests.support.incident_steps import A, B, C
from tests.support.job_steps import becomes, launched, ports, request, resumed, run_of, stored
from tests.support.jobs import ecs_job
from tests.support.steps import asking
from tests.support.three_nodes import started_run

__all__ = ["ports"]  # fixtures


def finished(name: str, verdict: Verdict = Verdict.OK, boot_id: str = "boot-1", request_id: str = "llama-1-1") -> Any:
    """A node's answer."""
    shared = xid().model_dump(include=SHARED_FACTS | {"observed_at"})
    return DiagnosticsFinished(
        **shared,
        event_id=f"done-{name}",
        node_id=name,
        instance_id=name,
        boot_id=boot_id,
        request_id=request_id,
        verdict=verdict,
    )


def answers(ports: Ports, name: str, verdict: Verdict = Verdict.OK, **changes: str) -> None:
    """The node answers what it was asked, or something else."""
    asked = {"request_id": named(CHECK, changes.pop("request_id", "llama-1-1-check"), ports, name)}
    wakeup.on_answer(finished(name, verdict, **changes, **asked), ports)


@pytest.mark.parametrize("change", [{"boot_id": "boot-0"}, {"request_id": "llama-1-0-check"}])
def test_an_answer_of_another_boot_or_round_is_none(ports: Ports, change: dict[str, str]) -> None:
    check_nodes(request(), ports, ACT)

    answers(ports, A, Verdict.OK, **change)

    assert ports.job_notes.answers("llama") == []
    assert stored(ports, A).passed_at is None


def test_a_pass_of_a_boot_that_is_over_is_an_answer_but_proves_nothing_of_this_one(ports: Ports) -> None:
    check_nodes(request(), ports, ACT)
    save_node(ports, stored(ports, A), boot_id="boot-2")

    answers(ports, A)

    assert len(ports.job_notes.answers("llama")) == 1
    assert stored(ports, A).passed_at is None


def test_the_first_answer_to_a_request_holds(ports: Ports) -> None:
    check_nodes(request(), ports, ACT)

    answers(ports, A, Verdict.FAILED)
    answers(ports, A)

    assert [answer.outcome for answer in ports.job_notes.answers("llama")] == [Outcome.FAILED]


def test_a_throttled_command_is_sent_by_the_repeated_call(ports: Ports) -> None:
    send = ports.commands.send

    def throttled(*given: Any, **named: Any) -> str:
        if given[0].node_id == B:
            raise NotAccepted("SendCommand was throttled")
        return send(*given, **named)

    ports.commands.send = throttled  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        check_nodes(request(), ports, ACT)
    ports.commands.send = send  # type: ignore[method-assign]

    check_nodes(request(task_token="token-2"), ports, ACT)

    assert [sent.node_id for sent in commands_in(ports).sent] == [A, B]


def test_rounds_of_checking_end_with_a_human(ports: Ports) -> None:
    asked = request(round=ROUNDS - 1)
    check_nodes(asked, ports, ACT)
    for name in (A, B):
        answers(ports, name, Verdict.FAILED, request_id=f"llama-1-{ROUNDS - 1}-check")

    judged = judge_checks(asked, ports, ACT)

    assert (judged.then, judged.ending) == (Next.END, JobState.FAILED)
    assert "10 times nodes were chosen" in judged.reason


@pytest.mark.parametrize(
    ("verdict", "told"),
    [(Verdict.OK, "every node has passed its diagnostics"), (Verdict.FAILED, f"1 node did not pass: {A}: diagnostics")],
)
def test_what_the_checks_have_found_is_told(ports: Ports, verdict: Verdict, told: str) -> None:
    check_nodes(request(), ports, ACT)
    answers(ports, A, verdict)
    answers(ports, B)

    assert judge_checks(request(), ports, ACT).reason.startswith(told)


@pytest.mark.parametrize(("rack", "where"), [("", "chosen: "), ("r7", "chosen in r7: ")])
def test_where_its_nodes_stand_is_told_where_somebody_has_said_it(ports: Ports, rack: str, where: str) -> None:
    for name in (A, B, C):
        save_node(ports, stored(ports, name), rack=rack)

    assert choose_nodes(request(), ports, ACT).reason.startswith(where)


def test_judging_twice_opens_one_incident(ports: Ports) -> None:
    check_nodes(request(), ports, ACT)
    answers(ports, A, Verdict.FAILED)
    answers(ports, B)

    first, second = (judge_checks(request(), ports, ACT) for _ in range(2))

    assert first.then is second.then is Next.CHOOSE
    assert len(ports.workflows.started) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "changes",
    [
        {"claimed_by": "other"},
        {"claimed_by": "llama", "open_incident": "inc-1"},
        {"claimed_by": "llama", "state": NodeState.QUARANTINED},
    ],
)
def test_a_node_that_is_not_what_it_was_is_not_launched_on(ports: Ports, changes: dict[str, Any]) -> None:
    save_node(ports, stored(ports, A), claimed_by="llama")
    save_node(ports, stored(ports, B), **changes)

    launch_job(request(), ports, ACT)

    assert (resumed(ports).then, resumed(ports).nodes) == (Next.CHOOSE, ())
    assert ports.jobs.runs("llama") == []
    assert stored(ports, A).claimed_by is None


def test_a_launch_that_is_asked_twice_starts_one_run(ports: Ports) -> None:
    run = launched(ports)

    launch_job(request(task_token="token-2"), ports, ACT)

    assert [known.number for known in ports.jobs.runs("llama")] == [1]
    assert {task.task_id for task in run_of(ports).tasks} == {task.task_id for task in run.tasks}
    assert ports.workflows.resumed["token-2"].then is Next.WATCH  # type: ignore[attr-defined]


def test_a_launch_that_is_refused_leaves_no_rank_that_looks_alive(ports: Ports) -> None:
    for name in (A, B):
        save_node(ports, stored(ports, name), claimed_by="llama")
    scheduler_in(ports).start_rank = _refuses

    launch_job(request(), ports, ACT)

    assert resumed(ports).then is Next.CHOOSE
    assert all(task.has_stopped for task in run_of(ports).tasks)
    assert {stored(ports, name).job_id for name in (A, B)} == {None}
    assert waiting(ports) == []


def _refuses(*_: object) -> str:
    raise NotFound("no such container instance")


def test_who_waits_for_the_job_to_end_does_not_bring_it_back(ports: Ports) -> None:
    run = launched(ports)
    job = stored_job(ports, "llama")
    ingest(xid(79, node_id=B, instance_id=B, observed_at=ports.clock()), ports, ACT)

    mine = recovery_of(job, run, ports)
    others = recovery_of(replace(job, job_id="other"), run, ports)

    assert (mine, others) == (stored(ports, B).open_incident, None)


def test_a_watch_that_begins_when_all_is_over_ends_at_once(ports: Ports) -> None:
    launched(ports)
    for rank in (0, 1):
        becomes(ports, rank, "STOPPED", 0)
    ports.workflows.resumed.clear()  # type: ignore[attr-defined]

    watch_gang(request(), ports)

    assert (resumed(ports).then, resumed(ports).ending) == (Next.END, JobState.COMPLETED)


def test_another_jobs_incident_that_a_human_has_does_not_end_this_one(ports: Ports) -> None:
    launched(ports)
    ingest(xid(79, node_id=C, instance_id=C, observed_at=ports.clock()), ports, ACT)
    incident = ports.incidents.history(str(stored(ports, C).open_incident)).incident
    ended = replace(incident, state=IncidentState.ESCALATED, ending=Ending.HANDED_TO_A_HUMAN, job_id="other")
    ports.incidents.finish(ended)
    becomes(ports, 0, "STOPPED", 1)

    found = attribute_failure(request(looks=1), ports, ACT)

    assert found.then is Next.WATCH


def test_attributing_twice_opens_one_incident_and_spends_one_attempt(ports: Ports) -> None:
    launched(ports)
    becomes(ports, 0, "STOPPED", 1)

    first = attribute_failure(request(looks=1), ports, ACT)
    second = attribute_failure(request(looks=1), ports, ACT)

    assert first.then is second.then is Next.WATCH
    assert first.incident_id == second.incident_id
    assert len(ports.workflows.started) == 1  # type: ignore[attr-defined]


def test_a_step_of_an_older_submission_does_nothing(ports: Ports) -> None:
    job = stored_job(ports, "llama")
    ports.jobs.save(replace(job, submission=2))
    before = [stored(ports, name) for name in (A, B, C)]

    for act in (choose_nodes, judge_checks, attribute_failure):
        with pytest.raises(Superseded, match="submitted again"):
            act(request(), ports, ACT)
    assert [stored(ports, name) for name in (A, B, C)] == before


def test_a_job_that_nobody_knows_is_named() -> None:
    with pytest.raises(NotFound, match="no job llama"):
        job_of_request(request(), memory_ports(FrozenClock()))


@pytest.mark.parametrize("asked", [request(), request().model_copy(update={"last": None})])
def test_a_request_to_end_must_say_how(ports: Ports, asked: JobRequest) -> None:
    with pytest.raises(ValueError, match="does not say how"):
        end_job(asked, ports)


def test_an_end_keeps_nothing_for_a_run_that_was_recorded_and_never_begun(ports: Ports) -> None:
    launched(ports)
    for rank in (0, 1):
        becomes(ports, rank, "STOPPED", 0)
    first = stored_run(ports, "llama", 1)
    again = tuple(replace(task, task_id="", status="PENDING") for task in first.tasks)
    ports.jobs.save_run(replace(first, number=2, tasks=again, version=0))  # and its launch died

    end_job(request(ending=JobState.COMPLETED), ports)

    assert (stored(ports, A).job_id, stored(ports, B).job_id) == (None, None)
    assert [task.has_stopped for run in ports.jobs.runs("llama") for task in run.tasks] == [True] * 4


def test_an_end_keeps_what_a_rank_may_still_write_to(ports: Ports) -> None:
    launched(ports)
    becomes(ports, 0, "STOPPED", 1)

    end_job(request(ending=JobState.FAILED, trouble=Trouble.PROGRAM_FAILS), ports)
    before = (stored(ports, A).job_id, stored(ports, B).job_id)
    becomes(ports, 1, "STOPPED", 143)

    assert before == (None, "llama")
    assert stored(ports, B).job_id is None
    assert stored_job(ports, "llama").trouble is Trouble.PROGRAM_FAILS


def test_a_pass_after_a_failed_check_makes_a_node_fit_again(ports: Ports, clock: FrozenClock) -> None:
    for name in (A, B):
        ports.job_notes.note_answer("llama", CheckAnswer("llama-1-0", name, "boot-1", Outcome.FAILED, "bad", NOW))
    clock.advance(60)
    save_node(ports, stored(ports, A), passed_at=NOW + timedelta(seconds=30))

    chosen = choose_nodes(request(), ports, ACT)

    assert chosen.nodes == (A, C)


def test_an_incident_that_ended_by_itself_says_nothing_of_a_node_that_did_not_pass(
    ports: Ports, clock: FrozenClock
) -> None:
    ports.job_notes.note_answer("llama", CheckAnswer("llama-1-0", A, "boot-1", Outcome.FAILED, "bad", NOW))
    ingest(xid(79, node_id=A, instance_id=A), ports, ACT)
    incident = ports.incidents.history(str(stored(ports, A).open_incident)).incident
    save_node(ports, stored(ports, A), open_incident=None)
    clock.advance(60)
    over = replace(incident, state=IncidentState.CLOSED, closed_at=clock())
    chosen = []
    for ending in (Ending.OBSERVED_ONLY, Ending.HANDED_TO_A_HUMAN):
        ports.incidents.finish(replace(over, ending=ending))
        chosen.append(choose_nodes(request(), ports, ACT).nodes)

    assert chosen == [(B, C), (A, B)]


def test_where_a_rank_may_still_write_it_is_told_of_which_run(ports: Ports) -> None:
    launched(ports)
    job = stored_job(ports, "llama")
    ports.jobs.save(replace(job, state=JobState.SUBMITTED, submission=2))

    launch_job(request(submission=2, nodes=(C,), task_token="token-2"), ports, ACT)

    told = ports.workflows.resumed["token-2"]  # type: ignore[attr-defined]
    assert (told.then, told.run) == (Next.STOP, 1)


def test_a_step_that_waits_is_never_without_a_token(ports: Ports) -> None:
    with pytest.raises(ValueError, match="without a task token"):
        launch_job(request(task_token=None), ports, ACT)
    with pytest.raises(ValueError, match="without a task token"):
        watch_gang(request(task_token=None), ports)


@pytest.mark.parametrize("has_sent", [True, False])
def test_a_check_that_broke_off_is_held_against_no_node(ports: Ports, has_sent: bool) -> None:
    """Its function died, or failed, right after it had begun: everyone but the first would look silent."""
    if has_sent:
        check_nodes(request(), ports, ACT)
        answers(ports, A)

    judged = judge_checks(request(), ports, ACT)

    assert judged.then is Next.CHOOSE
    assert ports.workflows.started == []  # type: ignore[attr-defined]
    assert stored(ports, B).open_incident is None


def test_who_did_not_answer_is_not_chosen_again_even_when_its_incident_is_over(
    ports: Ports, clock: FrozenClock
) -> None:
    check_nodes(request(), ports, ACT)
    answers(ports, B)
    clock.advance(900)
    judge_checks(request(), ports, ACT)
    save_node(ports, stored(ports, A), open_incident=None)

    assert choose_nodes(request(round=2), ports, ACT).nodes == (B, C)


def test_the_nodes_of_earlier_runs_that_have_ended_are_free_for_the_job_itself(ports: Ports) -> None:
    launched(ports)
    for rank in (0, 1):
        becomes(ports, rank, "STOPPED", 143, "UserInitiated: nodeheal: over")
    for name in (A, B):
        save_node(ports, stored(ports, name), job_id="llama")
    save_node(ports, stored(ports, C), job_id="other")

    assert choose_nodes(request(round=2), ports, ACT).nodes == (A, B)


def in_line(ports: Ports, name: str, nodes: int, token: str) -> None:
    """Another job that stands in line for nodes."""
    job = ecs_job(name, "demo", "training", "trainer:1", "trainer", nodes, submission=1, submitted_at=NOW)
    ports.jobs.save(job)
    await_nodes(request(job_id=name, task_token=token), ports, ACT)


def test_the_next_in_line_is_called_when_a_job_has_chosen(ports: Ports) -> None:
    for name in (A, B, C):
        save_node(ports, stored(ports, name), claimed_by="somebody")
    in_line(ports, "zebra", 1, "token-z")
    for name in (A, B, C):
        save_node(ports, stored(ports, name), claimed_by=None)

    choose_nodes(request(), ports, ACT)

    assert ports.workflows.resumed["token-z"].then is Next.CHOOSE  # type: ignore[attr-defined]


def test_the_next_in_line_is_called_when_a_job_has_ended(ports: Ports) -> None:
    launched(ports)
    save_node(ports, stored(ports, C), claimed_by="somebody")
    in_line(ports, "zebra", 1, "token-z")
    for rank in (0, 1):
        becomes(ports, rank, "STOPPED", 0)

    end_job(request(ending=JobState.COMPLETED), ports)

    assert ports.workflows.resumed["token-z"].then is Next.CHOOSE  # type: ignore[attr-defined]


def test_who_stands_in_line_before_goes_first_by_priority_then_by_age(ports: Ports) -> None:
    for name in (A, B, C):
        save_node(ports, stored(ports, name), claimed_by="somebody")
    in_line(ports, "aardvark", 3, "token-a")
    for name in (A, B):
        save_node(ports, stored(ports, name), claimed_by=None)

    waits = choose_nodes(request(), ports, ACT)
    job = stored_job(ports, "llama")
    ports.jobs.save(replace(job, priority=1))
    goes = choose_nodes(request(), ports, ACT)

    assert (waits.then, waits.reason) == (Next.AWAIT_NODES, "aardvark stands in line before llama")
    assert goes.nodes == (A, B)


def test_who_waits_for_nodes_and_is_to_stop_looks_at_once(ports: Ports) -> None:
    job = stored_job(ports, "llama")
    for name in (A, B, C):
        save_node(ports, stored(ports, name), claimed_by="somebody")
    ports.jobs.save(replace(job, stop_wanted="ada: enough"))

    await_nodes(request(), ports, ACT)

    assert resumed(ports).then is Next.CHOOSE


def test_a_rank_of_an_older_run_that_ends_late_frees_its_node(ports: Ports) -> None:
    old = launched(ports)
    job = stored_job(ports, "llama")
    ports.jobs.save_run(replace(old, number=2, tasks=(replace(old.tasks[0], node_id=C),), version=0))
    ports.jobs.save(replace(job, current_run=2))

    for task in old.tasks:
        change = TaskChange("llama", 1, task.task_id, task.placement, "STOPPED", 143, "", ports.clock())
        wakeup.on_task_change(change, ports)

    assert (stored(ports, A).job_id, stored(ports, B).job_id) == (None, None)


# Watched


def test_a_watch_that_begins_after_the_end_does_not_say_that_it_runs(ports: Ports) -> None:
    launched(ports)
    becomes(ports, 1, "STOPPED", 1)
    becomes(ports, 0, "STOPPED", 143)
    before = ports.jobs.get("llama")

    watch_gang(request(), ports)

    after = ports.jobs.get("llama")
    assert before is not None
    assert after is not None
    assert (after.state, after.summary) == (JobState.STOPPED, before.summary)


def test_what_has_become_of_a_job_names_its_run_and_nodes(ports: Ports) -> None:
    launched(ports)
    watch_gang(request(nodes=()), ports)
    ports.workflows.resumed.clear()  # type: ignore[attr-defined]

    becomes(ports, 1, "STOPPED", 1)

    assert (resumed(ports).then, resumed(ports).run, resumed(ports).nodes) == (Next.ATTRIBUTE, 1, (A, B))


def test_a_run_that_we_have_stopped_is_looked_at_in_a_pause_too(ports: Ports) -> None:
    """Another rank broke while it was stopped."""
    launched(ports)
    pause_pool("demo", 3_600, "new switch", ports)
    becomes(ports, 0, "STOPPED", 143, "UserInitiated: nodeheal: recovery inc-1")
    ports.clock.advance(1)  # type: ignore[attr-defined]
    becomes(ports, 1, "STOPPED", 1)
    job = stored_job(ports, "llama")

    assert why_held(job, run_of(ports), ports) == ""


def test_a_pause_of_the_pool_is_named_before_one_of_the_node_and_noted_once_and_when_it_changes(
    ports: Ports, clock: FrozenClock
) -> None:
    launched(ports)
    watch_gang(request(), ports)
    ports.workflows.resumed.clear()  # type: ignore[attr-defined]
    pause_node(B, 7_200, "hands off", ports)
    pause_pool("demo", 3_600, "new switch", ports)

    becomes(ports, 1, "STOPPED", 1)
    held = ports.jobs.get("llama")
    clock.advance(60)
    reconcile_all(job_owner("llama"), ports)
    again = ports.jobs.get("llama")
    pause_pool("demo", 0, "done", ports)
    reconcile_all(job_owner("llama"), ports)
    then = ports.jobs.get("llama")

    assert held is not None
    assert "new switch" in held.summary
    assert "hands off" not in held.summary
    assert again == held
    assert then is not None
    assert "hands off" in then.summary
    assert ports.workflows.resumed == {}  # type: ignore[attr-defined]


# Of its ranks' news


def test_when_all_ranks_run_and_when_the_first_one_ended_is_kept(ports: Ports, clock: FrozenClock) -> None:
    for name in (A, B):
        save_node(ports, stored(ports, name), claimed_by="llama")
    launch_job(request(), ports, ACT)
    seen = []
    for rank, status in ((0, "RUNNING"), (1, "RUNNING"), (0, "STOPPED"), (1, "STOPPED")):
        clock.advance(60)
        becomes(ports, rank, status, 0)
        run = run_of(ports)
        minutes = [(at - NOW).total_seconds() / 60 if at else None for at in (run.running_since, run.ended_at)]
        seen.append((*minutes, run.tasks[0].stopped_at is not None))

    assert seen == [(None, None, False), (2, None, False), (2, 3, True), (2, 3, True)]


def test_a_run_is_said_to_be_under_way_when_all_of_it_runs_and_no_word_after_that_is_lost(ports: Ports) -> None:
    for name in (A, B):
        save_node(ports, stored(ports, name), claimed_by="llama")
    launch_job(request(), ports, ACT)
    summaries = []
    for rank in (0, 1):
        becomes(ports, rank, "RUNNING")
        job = stored_job(ports, "llama")
        summaries.append(job.summary)
    save_job(ports, "llama", summary="run 1 is under way; and nobody could be told", run_said_to_run=1)
    becomes(ports, 1, "RUNNING")

    told = ports.jobs.get("llama")
    assert summaries == [f"run 1 is starting on {A}, {B}", "run 1 is under way"]
    assert told is not None
    assert told.summary == "run 1 is under way; and nobody could be told"


def test_a_rank_that_dies_while_the_others_start_is_looked_at_at_once(ports: Ports) -> None:
    for name in (A, B):
        save_node(ports, stored(ports, name), claimed_by="llama")
    launch_job(request(), ports, ACT)

    becomes(ports, 1, "STOPPED", 1)

    assert (resumed(ports).outcome, resumed(ports).then) == (Outcome.FAILED, Next.ATTRIBUTE)


# Stopped


def test_nodes_that_are_looked_at_after_a_stop_are_given_the_jobs_own_time(ports: Ports) -> None:
    launched(ports)
    job = stored_job(ports, "llama")
    ports.jobs.save(replace(job, preflight=Preflight(timeout_seconds=1_234)))
    for rank in (0, 1):
        becomes(ports, rank, "STOPPED", 1)
    ports.workflows.resumed.clear()  # type: ignore[attr-defined]

    stop_job(request(nodes=()), ports)

    told = resumed(ports)
    assert (told.then, told.deadline_seconds, told.run, told.nodes) == (Next.CHECK, 1_234, 1, (A, B))


def test_one_node_has_no_way_to_test(ports: Ports) -> None:
    job = stored_job(ports, "llama")
    fabric = ACT.default_pool.model_copy(update={"fabric": Fabric(tests=True)})
    tested = ACT.model_copy(update={"default_pool": fabric})

    alone = network_test_or_launch(request(), JobStep.JUDGE, replace(job, nodes=1), "proven", ports, tested)
    both = network_test_or_launch(request(), JobStep.JUDGE, job, "proven", ports, tested)

    assert [(told.then, told.pairs) for told in (alone, both)] == [(Next.LAUNCH, False), (Next.CHECK, True)]


# Records that name a node of another job ------------------------------------------------------------------------------


@pytest.fixture
def others(ports: Ports) -> Node:
    """A node that trains for another job."""
    ports.jobs.save(
        ecs_job("other", "demo", "training", "trainer:1", "trainer", 1, state=JobState.RUNNING, current_run=3)
    )
    save_node(ports, stored(ports, C), job_id="other", job_run=3)
    return stored(ports, C)


def forged_run(ports: Ports, why: str = "run_job llama-1-1", **rank: Any) -> None:
    """A run of llama that names the other job's node, and that llama points at."""
    task = GangTask(C, 0, "boot-1", C, **rank)
    ports.jobs.save_run(Run("llama", 1, NOW, why, (task,)))
    save_job(ports, "llama", current_run=1, state=JobState.RUNNING)


@pytest.mark.parametrize("exit_code", [1, 137, None])
@pytest.mark.parametrize("is_failure", [False, True])
def test_a_run_that_names_another_jobs_node_opens_no_incident_of_it(
    ports: Ports, others: Node, exit_code: int | None, is_failure: bool
) -> None:
    forged_run(ports, task_id="task/1", status="STOPPED", exit_code=exit_code, stop_reason="Host EC2 terminated")

    attribute_failure(request(looks=1, nodes=(C,), is_failure=is_failure), ports, ACT)

    assert stored(ports, C) == others


def test_a_run_of_another_number_than_the_node_has_on_record_opens_no_incident(ports: Ports) -> None:
    launched(ports)
    becomes(ports, 1, "STOPPED", 1)
    save_node(ports, stored(ports, B), job_run=7)

    found = attribute_failure(request(looks=1), ports, ACT)

    assert (found.trouble, stored(ports, B).open_incident) == (Trouble.RECOVERY_ENDED, None)
    assert "not on record as a node of run 1" in found.reason


@pytest.mark.parametrize("asked", [(A, B), (A, B, C)])
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNKNOWN])
def test_an_answer_about_another_jobs_node_opens_no_incident_of_it(
    ports: Ports, others: Node, outcome: Outcome, asked: tuple[str, ...]
) -> None:
    ports.job_notes.note_answer("llama", CheckAnswer("llama-1-1", C, "boot-1", outcome, "broken", NOW))

    judge_checks(request(nodes=asked), ports, ACT)

    assert stored(ports, C) == others


def test_a_launch_that_is_recorded_already_starts_nothing_on_another_jobs_node(ports: Ports, others: Node) -> None:
    forged_run(ports)

    launch_job(request(nodes=(C,)), ports, ACT)

    assert stored(ports, C) == others
    assert scheduler_in(ports).tasks == {}


@pytest.mark.parametrize("is_failure", [False, True])
def test_another_jobs_node_is_not_diagnosed_for_this_job(ports: Ports, others: Node, is_failure: bool) -> None:
    check_nodes(request(nodes=(C,), is_failure=is_failure), ports, ACT)

    assert not commands_in(ports).sent


def test_a_task_of_another_run_is_not_stopped_for_this_job(ports: Ports) -> None:
    launched(ports)
    scheduler, theirs = scheduler_in(ports), GangTask(C, 0, "boot-1", C)
    other = ecs_job("other", "demo", "training", "trainer:1", "trainer", 1)
    foreign = scheduler.start_rank(other, Run("other", 3, NOW, "so", (theirs,)), theirs, {})
    forged = replace(run_of(ports).tasks[1], task_id=foreign)
    ports.jobs.save_run(run_of(ports).with_task(forged))

    stop_job(request(JobStep.ATTRIBUTE), ports)

    assert set(scheduler.stopped) == {run_of(ports).tasks[0].task_id}


def test_the_nodes_of_a_gang_are_those_of_a_job_that_goes_on(three_nodes: Ports) -> None:
    assert runs.nodes_of_gang("llama", three_nodes) == frozenset()
    started_run(three_nodes)

    assert runs.nodes_of_gang("llama", three_nodes) == {A, B}
    job_steps.save_job(three_nodes, "llama", state=JobState.COMPLETED)
    assert runs.nodes_of_gang("llama", three_nodes) == frozenset()


def test_what_is_said_of_a_run_is_over_with_the_next_summary(three_nodes: Ports) -> None:
    started_run(three_nodes)
    job_steps.save_job(three_nodes, "llama", summary="run 1 is under way", run_said_to_run=1)

    assert job_steps.save_job(three_nodes, "llama", held_at=NOW).run_said_to_run == 1
    assert job_steps.save_job(three_nodes, "llama", summary="another").run_said_to_run == 0


def test_a_step_without_a_token_is_an_error(three_nodes: Ports) -> None:
    with pytest.raises(ValueError, match="without a task token"):
        job_steps.job_token(JobRequest(job_id="llama", submission=1, round=0))
    with pytest.raises(ValueError, match="without a task token"):
        token_of(asking().model_copy(update={"task_token": None}))
    with pytest.raises(NotFound, match="no job gpt"):
        change_job("gpt", three_nodes, lambda job: job)
    assert where_to_look(None) is None
