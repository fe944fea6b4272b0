"""What each verb makes of its facts, and what it writes when it ends."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import CheckpointFound
from nodeheal.contract.job_spec import Checkpoints, Preflight
from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.results import CheckpointSearch, StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import (
    Action,
    Awaited,
    Check,
    CheckpointFormat,
    EndCause,
    JobState,
    JobStep,
    Next,
    Outcome,
    Step,
    Trouble,
    VerbName,
    Verdict,
)
from nodeheal.domain.jobs.job import FoundCheckpoint, Job, Run
from nodeheal.domain.operation import Operation, OperationState, job_owner
from nodeheal.domain.recovery.approval_links import Question
from nodeheal.operations import (
    await_nodes,
    check_node,
    diagnose,
    fan_out,
    find_checkpoint,
    freeze_evidence,
    launch_gang,
    launch_job,
    look_at_directory,
    stop_gang,
    stop_job,
    verbs,
    wait,
    watch_gang,
)
from nodeheal.operations.gang import GangFacts, GangRecord, record_of, refresh_ranks
from nodeheal.operations.handler import Handler, NextActDue, OperationFacts, VerbContext
from nodeheal.operations.questions import find_question
from nodeheal.operations.record import send
from nodeheal.operations.verbs import conclude
from nodeheal.ports import Ports
from nodeheal.ports.commands import CommandStatus
from nodeheal.services.jobs.job_steps import QUICK_SECONDS
from nodeheal.services.operators.operator_guardrails import trip_breaker
from nodeheal.services.saving import change_node
from tests.support.builders import (
    ACT,
    NOW,
    SHARED_FACTS,
    commands_in,
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
from tests.support.incident_steps import LLAMA, A, B, Incident
from tests.support.job_cluster import SHARED
from tests.support.observed_operations import ended, ports, saved, unwanted

__all__ = ["ports"]  # fixtures

SPEED = {"h2d_gib_s": 50.0}
SLOW = {"h2d_gib_s": 25.0}


def observed(handler: Handler, operation: Operation, facts: OperationFacts) -> Any:
    return handler.observe(operation, facts)


# Diagnostics


def answer_of(verdict: Verdict = Verdict.OK, measured: dict[str, float] | None = None) -> str:
    return diagnose.DiagnosisAnswer(verdict=verdict, measured=measured or {}).model_dump_json()


def diagnosing(ports: Ports, **changes: Any) -> Operation:
    record = diagnose._Record(tolerated_percent=10.0).model_dump_json()
    return under_way(ports, VerbName.DIAGNOSE, node_id=A, data_json=record, reference="command-1", **changes)


def test_a_node_that_refuses_its_diagnostics_has_failed_them_at_once(ports: Ports) -> None:
    operation = diagnosing(ports, has_command_failed=True)

    result = observed(diagnose.HANDLER, operation, OperationFacts(NOW, node=node(A)))

    assert (result.outcome, result.reason) == (Outcome.FAILED, diagnose.REFUSED)


def test_diagnostics_that_failed_stay_failed_however_slow_the_node_was(ports: Ports) -> None:
    operation = diagnosing(ports, answer_json=answer_of(Verdict.FAILED, SLOW))

    result = observed(diagnose.HANDLER, operation, OperationFacts(NOW, node=node(A, diagnostic_baseline=SPEED)))

    assert result.outcome is Outcome.FAILED


def test_a_command_that_failed_has_proven_nothing_whatever_it_printed(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = diagnosing(ports)
    printed = '{"verdict": "OK", "failed_tests": []}'
    monkeypatch.setattr(ports.commands, "look", lambda *_: CommandStatus("FAILED", printed))

    refreshed = diagnose.HANDLER.refresh(operation, ports)

    assert (refreshed.answer_json, refreshed.command_state) == ("", "FAILED")


def test_a_run_that_measured_nothing_leaves_the_last_good_run_as_it_is(ports: Ports) -> None:
    ports.nodes.save(replace(node(A), diagnostic_baseline=SPEED, version=1))

    diagnose.note_good_run(A, diagnose.DiagnosisAnswer(verdict=Verdict.OK), ports)

    kept = ports.nodes.get(A)
    assert kept is not None and kept.diagnostic_baseline == SPEED


def checking(ports: Ports, answer: str) -> Operation:
    record = check_node._Record(level=1, checks=(Check.dcgm,), tolerated_percent=10.0).model_dump_json()
    return job_under_way(ports, VerbName.CHECK_NODE, node_id=A, boot_id="boot-1", data_json=record, answer_json=answer)


def test_before_a_job_too_a_node_is_held_against_its_last_good_run(ports: Ports) -> None:
    operation = checking(ports, answer_of(measured=SLOW))

    result = observed(check_node.HANDLER, operation, OperationFacts(NOW, node=node(A, diagnostic_baseline=SPEED)))

    assert result.outcome is Outcome.UNKNOWN
    assert "diagnostics passed, but" in result.reason


@pytest.mark.parametrize(("verdict", "is_kept"), [(Verdict.OK, True), (Verdict.FAILED, False)])
def test_a_check_that_passed_before_a_job_is_the_last_good_run(ports: Ports, verdict: Verdict, is_kept: bool) -> None:
    operation = checking(ports, answer_of(verdict, SPEED))
    result = observed(check_node.HANDLER, operation, OperationFacts(NOW, node=node(A)))

    check_node.HANDLER.settle(operation, result, ports)

    kept = ports.nodes.get(A)
    assert kept is not None and (kept.diagnostic_baseline == SPEED) is is_kept
    assert (kept.passed_at == NOW) is is_kept


def test_a_pass_of_an_earlier_boot_does_not_spare_the_node_its_next_check(ports: Ports) -> None:
    operation = checking(ports, answer_of())
    result = observed(check_node.HANDLER, operation, OperationFacts(NOW, node=node(A)))
    ports.nodes.save(replace(node(A), boot_id="boot-2", version=1))

    check_node.HANDLER.settle(operation, result, ports)

    kept = ports.nodes.get(A)
    assert kept is not None and kept.passed_at is None


# Questions and lines


def test_a_wait_of_the_same_turn_is_no_question(ports: Ports) -> None:
    under_way(ports, VerbName.WAIT)

    assert find_question(Question("inc-1", 1), ports) is None


def test_a_job_stands_in_line_once_and_its_other_operations_go_on(ports: Ports) -> None:
    assert ports.jobs.save(replace(LLAMA, submission=1, state=JobState.SUBMITTED))
    earlier = job_under_way(ports, VerbName.AWAIT_NODES, operation_id="llama-1-0-nodes")
    other = job_under_way(ports, VerbName.FAN_OUT, operation_id="llama-1-0-check")
    operation = await_nodes.plan(JobRequest(job_id="llama", submission=1, round=1, task_token="token"), ports)

    for _ in range(2):  # a call that broke off is made again
        await_nodes.HANDLER.start(operation, VerbContext(ports, ACT))

    still_open = {one.operation_id: one.token for one in ports.operations.open_of(operation.owner)}
    assert still_open == {operation.operation_id: "token", other.operation_id: "token"}
    found = ports.operations.get(earlier.owner, earlier.operation_id)
    assert found is not None and found.state is OperationState.DELIVERED


# Gangs


def run_of(ports: Ports, job: Job = LLAMA) -> Run:
    return started_job(job, [node(A), node(B)], ports)


def test_a_rank_whose_node_has_rebooted_is_not_waited_for(ports: Ports) -> None:
    run = run_of(ports)
    operation = gang_under_way(ports, VerbName.STOP_GANG, run, node_id=A)
    change_node(A, ports, lambda one: replace(one, boot_id="boot-2", booted_at=NOW + timedelta(minutes=1)))
    running = replace(run, tasks=tuple(replace(task, status="RUNNING", started_at=NOW) for task in run.tasks))
    saved(ports, running)

    refreshed = refresh_ranks(operation, ports)

    assert record_of(refreshed).outstanding == (running.tasks[1].placement,)


@pytest.mark.parametrize("verb", [VerbName.ISOLATE, VerbName.LAUNCH_GANG])
def test_the_end_of_a_step_that_was_never_begun_leaves_no_record(ports: Ports, verb: VerbName) -> None:
    run = run_of(ports)
    asked = gang_under_way(memory_ports(), verb, run).step

    assert isinstance(conclude(asked, ports), StepResult)
    assert ports.operations.get(job_owner("llama"), "inc-1-1") is None


def test_the_deadline_of_a_restart_ends_the_stop_while_that_is_under_way(ports: Ports) -> None:
    operation = gang_under_way(ports, VerbName.STOP_GANG, run_of(ports))

    result = conclude(operation.step, ports)

    assert (result.outcome, result.reason.startswith("not all ranks stopped")) == (Outcome.TIMED_OUT, True)


def test_after_the_stop_the_deadline_of_a_restart_ends_the_launch(ports: Ports) -> None:
    operation = gang_under_way(ports, VerbName.STOP_GANG, run_of(ports), state=OperationState.DELIVERED)

    assert conclude(operation.step, ports).reason.startswith("not all ranks run")


def test_who_was_asked_to_stop_is_not_asked_by_the_end_of_the_record(ports: Ports) -> None:
    """Before the ranks are asked, none is outstanding, and the gang runs."""
    run = run_of(ports)
    record = GangRecord(run=run.number).model_dump_json()
    operation = gang_under_way(ports, VerbName.STOP_GANG, run, data_json=record)

    assert observed(stop_gang.HANDLER, operation, GangFacts(NOW, job=LLAMA, run=run)) is None
    late = observed(stop_gang.HANDLER, operation, GangFacts(NOW, is_final=True, job=LLAMA, run=run))
    assert (late.outcome, "they were not asked to stop" in late.reason) == (Outcome.TIMED_OUT, True)


def stop_gang_result(ports: Ports, job: Job, *, after_run: int) -> StepResult:
    run = ended(run_of(ports, job), exit_code=143)
    operation = gang_under_way(ports, VerbName.STOP_GANG, run)
    found = FoundCheckpoint("/mnt/llama/9", 9, NOW, after_run=after_run)
    result = observed(stop_gang.HANDLER, operation, GangFacts(NOW, job=replace(job, found=found), run=run))
    assert isinstance(result, StepResult)
    return result


@pytest.mark.parametrize(("after_run", "is_searched"), [(1, False), (0, True)])
def test_a_checkpoint_is_searched_where_none_is_known_since_the_last_run(
    ports: Ports, after_run: int, is_searched: bool
) -> None:
    job = replace(LLAMA, checkpoints=Checkpoints(directory="/mnt/llama"), current_run=1)

    result = stop_gang_result(ports, job, after_run=after_run)

    assert result.outcome is Outcome.DONE
    assert (result.facts == CheckpointSearch(directory="/mnt/llama")) is is_searched


def stop_request(**of_last: Any) -> str:
    known: dict[str, Any] = {"step": JobStep.WATCH, "job_id": "llama", "outcome": Outcome.DONE, "finished_at": NOW}
    last = JobResult(**known, then=Next.STOP, reason="so", **of_last) if of_last else None
    return JobRequest(job_id="llama", submission=1, round=0, last=last).model_dump_json(exclude={"task_token"})


def stopping(ports: Ports, run: Run | None, record: GangRecord, **changes: Any) -> Operation:
    known = {"request_json": stop_request(), "data_json": record.model_dump_json(), **changes}
    return job_under_way(ports, VerbName.STOP_JOB, **known)


def test_a_job_is_not_stopped_before_its_ranks_are_asked_and_all_have_ended(ports: Ports) -> None:
    run = run_of(ports)
    places = tuple(task.placement for task in run.tasks)
    one_left = saved(ports, run.with_task(ended(run).tasks[0]))

    for record in (GangRecord(run=1), GangRecord(run=1, is_asked=True, outstanding=places)):
        operation = stopping(ports, run, record, operation_id=f"asked-{record.is_asked}")
        assert observed(stop_job.HANDLER, operation, GangFacts(NOW, job=LLAMA, run=one_left)) is None


def test_the_nodes_that_a_stopped_job_has_run_on_are_checked_for_as_long_as_the_job_says(ports: Ports) -> None:
    run = ended(run_of(ports))
    job = replace(LLAMA, preflight=Preflight(timeout_seconds=1_234))
    operation = stopping(ports, run, GangRecord(run=1, is_asked=True))

    result = observed(stop_job.HANDLER, operation, GangFacts(NOW, job=job, run=run))

    assert (result.then, result.run, result.nodes, result.deadline_seconds) == (Next.CHECK, 1, (A, B), 1_234)


def test_a_job_that_never_ran_is_stopped_with_the_nodes_that_were_chosen(ports: Ports) -> None:
    """The facts hold its newest run, which may be one of an earlier submission."""
    run = ended(run_of(ports))
    operation = stopping(ports, run, GangRecord(is_asked=True), request_json=stop_request(nodes=(B,)))

    result = observed(stop_job.HANDLER, operation, GangFacts(NOW, job=LLAMA, run=run))

    assert (result.run, result.nodes) == (None, (B,))


def test_the_end_of_a_job_is_told_why_it_ends(ports: Ports) -> None:
    run = ended(run_of(ports))
    asked = stop_request(ending=JobState.FAILED, trouble=Trouble.RANKS_LEFT, incident_id="inc-7")
    operation = stopping(ports, run, GangRecord(run=1, is_asked=True), request_json=asked)

    result = observed(stop_job.HANDLER, operation, GangFacts(NOW, job=LLAMA, run=run))

    assert (result.then, result.ending, result.trouble) == (Next.END, JobState.FAILED, Trouble.RANKS_LEFT)
    assert (result.incident_id, result.deadline_seconds) == ("inc-7", QUICK_SECONDS)


def test_of_a_job_that_has_stopped_already_no_rank_is_asked_to_stop(ports: Ports) -> None:
    run = run_of(ports, replace(LLAMA, submission=1))
    saved(ports, ended(run))
    operation = job_under_way(ports, VerbName.STOP_JOB, state=OperationState.PLANNED)

    stop_job.HANDLER.start(operation, VerbContext(ports))

    after = ports.jobs.get_run("llama", 1)
    assert after is not None and after.end_awaited_by == ()
    assert scheduler_in(ports).stopped == {}


# The watch over a job


def watched(ports: Ports, facts: watch_gang.WatchFacts) -> JobResult | NextActDue | None:
    found = observed(watch_gang.HANDLER, job_under_way(ports, VerbName.WATCH_GANG), facts)
    assert found is None or isinstance(found, JobResult | NextActDue)
    return found


def test_a_job_without_a_record_or_a_run_is_watched_on(ports: Ports) -> None:
    assert watched(ports, watch_gang.WatchFacts(NOW)) is None


def test_a_job_that_is_to_stop_before_its_first_run_has_no_nodes_to_stop_on(ports: Ports) -> None:
    result = watched(ports, watch_gang.WatchFacts(NOW, job=replace(LLAMA, stop_wanted="by ada")))

    assert isinstance(result, JobResult)
    assert (result.then, result.ending, result.run, result.nodes) == (Next.STOP, JobState.CANCELLED, None, ())


def test_a_run_that_a_person_has_stopped_is_not_brought_back(ports: Ports) -> None:
    run = ended(run_of(ports), 143, [EndCause.ON_REQUEST], "Task stopped by ada")

    result = watched(ports, watch_gang.WatchFacts(NOW, job=LLAMA, run=run))

    assert isinstance(result, JobResult)
    assert (result.then, result.ending) == (Next.STOP, JobState.CANCELLED)


def test_incidents_and_pauses_are_read_only_where_a_run_may_be_brought_back(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(ports)
    operation = job_under_way(ports, VerbName.WATCH_GANG)
    monkeypatch.setattr(ports.incidents, "incident", unwanted)
    monkeypatch.setattr(ports.pools, "get", unwanted)

    for wanted, now in (("", run), ("by ada", ended(run)), ("", ended(run, 143, [EndCause.ON_REQUEST], "by ada"))):
        saved(ports, now)
        stored = ports.jobs.get("llama")
        assert stored is not None and ports.jobs.save(replace(stored, stop_wanted=wanted))
        facts = watch_gang.HANDLER.read(operation, ports)
        assert (facts.run.tasks, facts.held, facts.is_recovering) == (now.tasks, "", False)


def test_a_pause_that_is_over_leaves_the_jobs_summary_as_it_is(ports: Ports) -> None:
    run_of(ports)
    job = ports.jobs.get("llama")
    assert job is not None and ports.jobs.save(replace(job, summary="run 1 is under way"))

    watch_gang.HANDLER.start(job_under_way(ports, VerbName.WATCH_GANG), VerbContext(ports))

    kept = ports.jobs.get("llama")
    assert kept is not None and (kept.summary, kept.held_at) == ("run 1 is under way", None)


@pytest.mark.parametrize("step", [Step.REBOOT, Step.DIAGNOSE])
def test_only_a_reboot_has_the_checkpoint_searched_meanwhile(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    searched: list[Step] = []
    monkeypatch.setattr(verbs, "begin", lambda planned, world: None)
    monkeypatch.setattr(verbs, "search_ahead", lambda request, ports: searched.append(request.decision.step))
    decision = Decision(step=step, action=Action(step.value) if step is Step.REBOOT else None, reason="so", node_id=A)

    verbs.run_step(StepRequest(incident_id="inc-1", turn=1, decision=decision, task_token="token"), ports, ACT)

    assert searched == [step] * (step is Step.REBOOT)


# Searches, evidence, launches and waits

WITH_CHECKPOINTS = replace(LLAMA, checkpoints=Checkpoints(directory="/mnt/llama"), submission=1)
SEARCH = JobRequest(job_id="llama", submission=1, round=0)


def searching(ports: Ports, job: Job = WITH_CHECKPOINTS) -> Operation:
    run_of(ports, job)
    stored = stored_job(ports, "llama")
    return find_checkpoint.plan(SEARCH, node(A), stored, ports)


@pytest.mark.parametrize(("is_over", "after_run"), [(True, 1), (False, 0)])
def test_what_is_found_while_the_last_run_may_write_is_not_the_last_word(
    ports: Ports, is_over: bool, after_run: int
) -> None:
    searching(ports)
    run, job = stored_run(ports, "llama", 1), stored_job(ports, "llama")
    saved(ports, ended(run) if is_over else run)

    operation = find_checkpoint.plan(SEARCH, node(A), job, ports)

    assert f'"after_run":{after_run}' in operation.data_json


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_job_that_is_gone_or_has_no_checkpoints_any_more_needs_no_search(ports: Ports, is_gone: bool) -> None:
    operation = searching(ports)
    job = ports.jobs.get("llama")
    assert job is not None and ports.jobs.save(replace(job, checkpoints=None))
    here = replace(ports, jobs=memory_ports().jobs) if is_gone else ports

    result = find_checkpoint.HANDLER.start(operation, VerbContext(here, ACT))

    assert isinstance(result, JobResult)
    assert (result.outcome, result.facts) == (Outcome.DONE, None)
    find_checkpoint.HANDLER.settle(operation, result, ports)
    kept = ports.jobs.get("llama")
    assert kept is not None and (kept.summary, kept.found) == ("there is no checkpoint to look for", None)


@pytest.mark.parametrize(("seconds", "file"), [(None, "llama.1.steps"), (900, "llama.1.900.json")])
def test_a_node_is_asked_for_the_last_step_by_the_file_of_the_run_before(
    ports: Ports, seconds: int | None, file: str
) -> None:
    operation = searching(ports, replace(WITH_CHECKPOINTS, hang_seconds=seconds))

    find_checkpoint.HANDLER.start(operation, VerbContext(ports, ACT))

    [sent] = commands_in(ports).sent
    assert sent.parameters["Progress"] == file


def test_a_search_that_is_not_answered_ends_at_its_deadline(ports: Ports) -> None:
    operation = searching(ports)

    assert observed(find_checkpoint.HANDLER, operation, OperationFacts(NOW)) is None
    late = observed(find_checkpoint.HANDLER, operation, OperationFacts(NOW, is_final=True))
    assert (late.outcome, late.facts.node_id) == (Outcome.UNKNOWN, A)


def test_a_search_for_a_job_writes_no_incidents_timeline(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = searching(ports)
    result = observed(find_checkpoint.HANDLER, operation, OperationFacts(NOW, is_final=True))
    monkeypatch.setattr(ports.incidents, "append", unwanted)

    find_checkpoint.HANDLER.settle(operation, result, ports)


def test_a_command_whose_id_is_not_known_is_not_looked_at(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = under_way(ports, VerbName.FREEZE_EVIDENCE, node_id=A)
    monkeypatch.setattr(ports.commands, "look", unwanted)

    assert freeze_evidence.HANDLER.refresh(operation, ports) == operation


def test_a_launch_that_is_repeated_after_a_rank_has_died_starts_nothing(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = gang_under_way(ports, VerbName.LAUNCH_GANG, run_of(ports), state=OperationState.SENDING)
    run = stored_run(ports, "llama", 1)
    saved(ports, replace(run.with_task(ended(run).tasks[0]), why=launch_gang.launch_id(operation.step)))
    monkeypatch.setattr(launch_gang, "is_newer_than_fault", lambda *_: False)
    monkeypatch.setattr(launch_gang, "start_ranks", unwanted)

    assert isinstance(launch_gang.HANDLER.start(operation, VerbContext(ports, ACT)), Operation)


def test_a_run_of_another_launch_is_not_the_one_that_was_waited_for(ports: Ports) -> None:
    run = run_of(ports)
    running = replace(run, tasks=tuple(replace(task, status="RUNNING") for task in run.tasks))
    operation = job_under_way(ports, VerbName.LAUNCH_JOB)

    def seen(why: str) -> Any:
        return observed(launch_job.HANDLER, operation, GangFacts(NOW, job=LLAMA, run=replace(running, why=why)))

    assert seen("another") is None
    assert seen("run_job llama-1-0").then is Next.WATCH


def test_a_node_that_says_what_it_sees_has_answered(ports: Ports) -> None:
    fact = xid().model_dump(include=SHARED_FACTS | {"observed_at"})
    fact |= {"event_id": "e", "node_id": A, "instance_id": A, "boot_id": "boot-1", "request_id": "llama-1-0-look0"}
    answer = CheckpointFound(**fact, directory="/mnt/llama", format=CheckpointFormat.megatron, sight=SHARED)
    operation = job_under_way(
        ports, VerbName.LOOK_AT_DIRECTORY, node_id=A, answer_json=answer.model_dump_json(), data_json="{}"
    )

    assert observed(look_at_directory.HANDLER, operation, OperationFacts(NOW)).outcome is Outcome.DONE


@pytest.mark.parametrize("state", [OperationState.SENDING, OperationState.STARTED, OperationState.DONE])
def test_what_was_sent_is_not_sent_again(ports: Ports, state: OperationState) -> None:
    operation = under_way(ports, VerbName.DIAGNOSE, state=state, nonce="0" * 32)

    assert send(operation, unwanted, ports) == operation


def test_a_part_that_has_its_result_is_not_ended_again(ports: Ports) -> None:
    """A pass that is written again would be younger than it is."""
    question = job_under_way(ports, VerbName.FAN_OUT)
    record = check_node._Record(level=1, checks=(Check.dcgm,), tolerated_percent=10.0)
    part = fan_out.plan_part(question, VerbName.CHECK_NODE, A, record)
    result = fan_out.part_result(part, NOW, Outcome.DONE, "passed").model_dump_json()
    over = replace(
        part, version=0, state=OperationState.DONE, boot_id="boot-1", answer_json=answer_of(), result_json=result
    )
    assert ports.operations.save(over)

    assert fan_out.close_part(question, A, ports) is not None
    kept = ports.nodes.get(A)
    assert kept is not None and kept.passed_at is None


@pytest.mark.parametrize("awaited", [Awaited.JOB_END, Awaited.BREAKER, Awaited.BUDGET])
def test_only_a_wait_for_a_slot_or_a_breaker_stands_in_the_pools_line(awaited: Awaited) -> None:
    it = Incident()
    operation = wait_of(it, awaited)

    started = wait.HANDLER.start(operation, VerbContext(it.ports))

    assert isinstance(started, Operation)
    assert (started.line is not None) is (awaited is not Awaited.JOB_END)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_breaker_that_was_reset_before_the_wait_was_stored_ends_it(is_open: bool) -> None:
    it = Incident()
    if is_open:
        trip_breaker("demo", "so many nodes", it.ports)

    started = wait.HANDLER.start(wait_of(it, Awaited.BREAKER), VerbContext(it.ports))

    assert isinstance(started, Operation)
    assert started.answer_json == ("" if is_open else wait.NEWS)


def wait_of(it: Incident, awaited: Awaited) -> Operation:
    """A wait that has seen all that was reported."""
    seen = it.ports.incidents.history(it.id).event_count
    decision = Decision(step=Step.WAIT, reason="so", node_id=A, awaits=awaited, job_id="llama", events_seen=seen)
    return wait.plan(StepRequest(incident_id=it.id, turn=1, decision=decision, task_token="token"), it.ports)


@pytest.mark.parametrize("first", ["", "gpt"])
def test_nodes_that_are_free_are_for_the_first_in_line(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    assert ports.jobs.save(replace(LLAMA, submission=1, state=JobState.SUBMITTED))
    monkeypatch.setattr(await_nodes, "waits_before", lambda *_: first)
    operation = await_nodes.plan(JobRequest(job_id="llama", submission=1, round=1, task_token="token"), ports)

    started = await_nodes.HANDLER.start(operation, VerbContext(ports, ACT))

    assert isinstance(started, Operation)
    assert bool(started.answer_json) is not bool(first)
