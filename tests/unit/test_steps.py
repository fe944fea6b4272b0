"""The steps of a recovery, each against a world in memory."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodeheal.adapters.aws.translate.ssm_command import SsmInvocationDetail
from nodeheal.contract.health_event import DiagnosticsFinished
from nodeheal.contract.results import Isolated, StepResult
from nodeheal.contract.steps import DecideRequest, Decision, StepRequest
from nodeheal.contract.vocabulary import (
    Action,
    Ending,
    IncidentState,
    JobState,
    NodeState,
    Outcome,
    Provider,
    Step,
    Verdict,
)
from nodeheal.domain.errors import NotAccepted, NotFound, PlacementRefused
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import GangTask, Job, Run
from nodeheal.domain.operation import Operation
from nodeheal.domain.recovery.progress import Progress, TriedStep
from nodeheal.domain.recovery.situation import Situation
from nodeheal.operations.gang import record_of
from nodeheal.operations.steps import launch_gang, stop_gang
from nodeheal.operations.verbs import conclude
from nodeheal.ports.commands import Command, CommandStatus
from nodeheal.ports.messaging import Message
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.notify.deliver_notification import notify
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.recovery.return_to_service import return_to_service
from tests.support.builders import (
    ACT,
    DIAGNOSTICS,
    NOW,
    named,
    scheduler_in,
    stored_job,
    stored_run,
    waiting,
    xid,
)
from tests.support.crashes import lost
from tests.support.incident_steps import A, B, C, Incident, claimed_by
from tests.support.incident_steps import Incident as Recovery
from tests.support.step_functions import isolate_node, reboot_node, replace_node, run_diagnostics
from tests.support.steps import turn


def test_the_whole_recovery_by_reboot() -> None:
    it = Incident()

    outcomes = [it.isolate(), it.reboot(), it.diagnose(), it.give_back(), it.relaunch()]
    end_incident(it.request(), it.ports, ACT)

    assert [result.outcome for result in outcomes] == [Outcome.DONE] * 5
    assert waiting(it.ports) == []
    assert it.node().state is NodeState.PROBATION
    assert it.node().open_incident is None
    assert list(it.ports.pools.holders("demo")) == []
    assert it.ports.incidents.history(it.id).incident.ending is Ending.RECOVERED
    assert scheduler_in(it.ports).draining == set()
    assert [told.subject for _, told in it.ports.notifier.announced] == [  # type: ignore[attr-defined]
        f"[nodeheal] recovered: {A}, llama: XID 79 (GPU has fallen off the bus)"
    ]


def test_what_was_sent_is_told_and_an_answer_says_no_more_than_its_node_did() -> None:
    it = Incident()
    it.isolate(), it.reboot()

    passed = it.diagnose()

    lines = [line.text for line in it.ports.incidents.history(it.id).timeline]
    assert f"reboot sent to {A}, for boot boot-1 only (SSM command command-1)" in lines
    assert any(line.startswith("diagnostics at level") and f"started on {A}" in line for line in lines)
    assert passed.facts is None


def test_the_whole_recovery_by_swap() -> None:
    it = Incident(74)

    outcomes = [it.isolate(), it.swap(), it.diagnose(boot_id="boot-1", name=C), it.relaunch()]
    end_incident(it.request(), it.ports, ACT)

    assert [result.outcome for result in outcomes] == [Outcome.DONE] * 4
    run = stored_run(it.ports, "llama", 2)
    assert [task.node_id for task in run.tasks] == [C, B]
    assert it.node().state is NodeState.QUARANTINED
    assert it.node().open_incident == it.id
    assert (it.node(C).open_incident, it.node(C).job_id) == (None, "llama")
    assert list(it.ports.pools.holders("demo")) == [A]
    assert "Repair it and give it back to work (release)" in it.ports.notifier.announced[0][1].body  # type: ignore[attr-defined]


def test_a_turn_that_is_asked_twice_answers_the_same() -> None:
    it = Incident()
    first = it.request().decision
    again = decide_next_step(DecideRequest(incident_id=it.id, turn=0), it.ports, ACT)

    assert again == first
    assert len(it.ports.incidents.history(it.id).turns) == 1


# Isolation ----------------------------------------------------------------------------------------------------------


def test_isolation_waits_for_the_last_rank_to_stop() -> None:
    it = Incident()
    isolate_node(it.request(), it.ports, ACT)

    it.task_is("STOPPED", 0, exit_code=143)
    assert it.is_waiting()
    it.task_is("STOPPED", 0, exit_code=143)
    assert it.is_waiting()
    it.task_is("STOPPED", 1, exit_code=134)

    assert it.resumed().outcome is Outcome.DONE
    assert set(scheduler_in(it.ports).stopped) == {"task-llama-1-0", "task-llama-1-1"}


def test_a_rank_that_stops_while_the_operation_is_being_stored_is_not_waited_for() -> None:
    it = Incident()
    store, save = it.ports.operations, it.ports.operations.save

    def save_late(operation: Operation) -> bool:
        if record_of(operation).is_asked:
            store.save = save  # type: ignore[method-assign]
            for rank in (0, 1):
                it.task_is("STOPPED", rank, exit_code=143)
        return save(operation)

    store.save = save_late  # type: ignore[method-assign]
    isolate_node(it.request(), it.ports, ACT)

    assert it.resumed().outcome is Outcome.DONE


def test_a_full_budget_refuses_and_touches_nothing() -> None:
    it = Incident()
    it.ports.pools.claim("demo", B, 1)

    isolate_node(it.request(), it.ports, ACT)

    assert it.resumed().outcome is Outcome.REFUSED
    assert "1 of 1" in it.resumed().reason
    assert it.node().state is NodeState.HEALTHY
    assert scheduler_in(it.ports).draining == set()
    assert scheduler_in(it.ports).stopped == {}


def test_a_node_of_another_incident_is_not_isolated() -> None:
    it = Incident()
    request = it.request()
    it.ports.nodes.save(replace(it.node(), open_incident="inc-other"))

    isolate_node(request, it.ports, ACT)

    assert it.resumed().outcome is Outcome.REFUSED
    assert scheduler_in(it.ports).draining == set()


def test_a_node_that_the_scheduler_does_not_know_is_not_left_isolated() -> None:
    it = Incident()
    scheduler_in(it.ports).unknown_nodes.add(A)

    isolate_node(it.request(), it.ports, ACT)

    assert it.resumed().outcome is Outcome.FAILED
    assert "not in cluster training" in it.resumed().reason
    assert it.node().state is NodeState.HEALTHY
    assert list(it.ports.pools.holders("demo")) == []


def test_what_an_operator_drained_stays_drained() -> None:
    it = Incident()
    scheduler_in(it.ports).draining.add(A)

    it.isolate(), it.reboot(), it.diagnose(), it.give_back()

    assert scheduler_in(it.ports).draining == {A}


# Reboot -------------------------------------------------------------------------------------------------------------


def test_a_reboot_is_proven_by_another_boot_id_and_by_nothing_else() -> None:
    it = Incident()
    it.isolate()
    request = it.request()
    reboot_node(request, it.ports)

    it.boots("boot-1")
    assert it.is_waiting()
    it.boots("boot-2")

    assert it.resumed().outcome is Outcome.DONE
    assert it.resumed().boot_id == "boot-2"


def throttled(*_: object, **__: object) -> str:
    raise NotAccepted("SendCommand: ThrottlingException")


def test_the_token_is_stored_before_the_reboot_is_sent() -> None:
    it = Incident()
    it.isolate()
    seen: list[bool] = []
    it.ports.commands.send = lambda *_, **__: seen.append(bool(waiting(it.ports))) or "c"  # type: ignore

    reboot_node(it.request(), it.ports)

    assert seen == [True]


@pytest.mark.parametrize("missing", ["isolation", "slot", "attempt"])
def test_without_isolation_slot_and_attempt_nothing_is_rebooted(missing: str) -> None:
    it = Incident()
    it.isolate()
    request = it.request()
    if missing == "isolation":
        it.ports.nodes.save(replace(it.node(), state=NodeState.HEALTHY))
    if missing == "slot":
        it.ports.pools.release("demo", A)
    if missing == "attempt":
        it.ports.attempts.reserve(f"node#{A}", "of another incident", ACT.limits[Action.REBOOT])

    reboot_node(request, it.ports)

    assert it.resumed().outcome is Outcome.REFUSED
    assert it.ports.commands.sent == []  # type: ignore[attr-defined]


def test_a_command_that_the_node_refuses_ends_the_wait_at_once() -> None:
    it = Incident()
    it.isolate()
    reboot_node(it.request(), it.ports)
    it.ports.commands.statuses["command-1"] = CommandStatus("FAILED", exit_code=3)  # type: ignore[attr-defined]

    wakeup.on_command_failed(A, "command-1", it.ports)

    assert it.resumed().outcome is Outcome.FAILED
    assert waiting(it.ports) == []


@pytest.mark.parametrize("code", [None, -1, 1, 137])
def test_a_failed_reboot_command_that_its_script_did_not_fail_is_waited_for_until_the_boot(code: int | None) -> None:
    """The reboot itself has cut it off, or it was killed after it had armed the reboot."""
    it = Incident()
    it.isolate()
    reboot_node(it.request(), it.ports)
    it.ports.commands.statuses["command-1"] = CommandStatus("FAILED", exit_code=code)  # type: ignore[attr-defined]

    wakeup.on_command_failed(A, "command-1", it.ports)
    assert it.is_waiting()
    it.boots("boot-2")

    assert (it.resumed().outcome, it.resumed().boot_id) == (Outcome.DONE, "boot-2")
    assert waiting(it.ports) == []


def test_a_command_that_fails_a_minute_after_the_boot_changes_nothing() -> None:
    it = Incident()
    it.isolate()
    assert it.reboot().outcome is Outcome.DONE
    run_diagnostics(it.request(), it.ports, ACT)
    it.ports.commands.statuses["command-1"] = CommandStatus("FAILED", exit_code=1)  # type: ignore[attr-defined]

    wakeup.on_command_failed(A, "command-1", it.ports)
    assert it.is_waiting()
    it.diagnosed(Verdict.OK, "boot-2")

    assert it.resumed().outcome is Outcome.DONE


def test_a_reboot_command_that_has_succeeded_ends_no_wait_before_the_boot() -> None:
    it = Incident()
    it.isolate()
    request = it.request()
    reboot_node(request, it.ports)
    it.ports.commands.statuses["command-1"] = CommandStatus("SUCCEEDED", exit_code=0)  # type: ignore[attr-defined]
    succeeded = {"command-id": "command-1", "instance-id": A, "status": "Success"}

    assert not SsmInvocationDetail.model_validate(succeeded).has_failed
    assert it.is_waiting()
    it.clock.advance(request.decision.deadline_seconds)
    assert conclude(request, it.ports).outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize(
    ("boot_id", "state", "outcome"),
    [
        ("boot-2", "SUCCEEDED", Outcome.DONE),
        ("boot-1", "PENDING", Outcome.TIMED_OUT),
        ("boot-1", "FAILED", Outcome.FAILED),
    ],
)
def test_at_the_deadline_of_a_reboot_the_boot_id_decides(boot_id: str, state: str, outcome: Outcome) -> None:
    it = Incident()
    it.isolate()
    request = it.request()
    reboot_node(request, it.ports)
    it.ports.nodes.save(replace(it.node(), boot_id=boot_id))
    it.ports.commands.statuses["command-1"] = CommandStatus(state)  # type: ignore[attr-defined]
    it.clock.advance(request.decision.deadline_seconds)

    assert conclude(request, it.ports).outcome is outcome


def test_a_reboot_that_was_never_sent_is_a_failure_and_not_a_timeout() -> None:
    it = Incident()
    it.isolate()

    assert conclude(it.request(), it.ports).outcome is Outcome.FAILED


def test_a_reboot_that_may_have_been_sent_is_unknown() -> None:
    it = Incident()
    it.isolate()
    request = it.request()
    it.ports.commands.send = lambda *_, **__: (_ for _ in ()).throw(TimeoutError("read timed out"))  # type: ignore
    with pytest.raises(TimeoutError):
        reboot_node(request, it.ports)

    assert conclude(request, it.ports).outcome is Outcome.UNKNOWN


# Diagnostics --------------------------------------------------------------------------------------------------------


def test_a_diagnosis_of_an_older_boot_or_of_another_node_is_no_answer() -> None:
    it = Incident()
    it.isolate(), it.reboot()
    run_diagnostics(it.request(), it.ports, ACT)

    it.diagnosed(Verdict.OK, boot_id="boot-1")
    it.diagnosed(Verdict.OK, boot_id="boot-2", name=B)
    assert it.is_waiting()
    it.diagnosed(Verdict.OK, boot_id="boot-2")

    assert it.resumed().outcome is Outcome.DONE


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (Verdict.OK, Outcome.DONE),
        (Verdict.FAILED, Outcome.FAILED),
        (Verdict.DEGRADED, Outcome.UNKNOWN),
        (Verdict.UNKNOWN, Outcome.UNKNOWN),
    ],
)
def test_only_ok_is_a_proof(verdict: Verdict, outcome: Outcome) -> None:
    it = Incident()
    it.isolate(), it.reboot()

    assert it.diagnose(verdict).outcome is outcome


@pytest.mark.parametrize(
    ("state", "output", "outcome"),
    [
        ("SUCCEEDED", 'noise\n{"verdict": "OK", "failed_tests": []}\n', Outcome.DONE),
        ("SUCCEEDED", '{"verdict": "FAILED", "failed_tests": ["pcie"]}', Outcome.FAILED),
        ("SUCCEEDED", "", Outcome.UNKNOWN),
        ("SUCCEEDED", '{"verdict": "FINE", "failed_tests": []}', Outcome.UNKNOWN),
        ("PENDING", "", Outcome.TIMED_OUT),
        ("UNKNOWN", "", Outcome.TIMED_OUT),
    ],
)
def test_at_the_deadline_of_a_diagnosis_its_output_decides(state: str, output: str, outcome: Outcome) -> None:
    it = Incident()
    it.isolate(), it.reboot()
    request = it.request()
    run_diagnostics(request, it.ports, ACT)
    it.ports.commands.statuses["command-2"] = CommandStatus(state, output)  # type: ignore[attr-defined]

    assert conclude(request, it.ports).outcome is outcome


def test_a_node_that_is_not_ours_is_not_diagnosed() -> None:
    it = Incident()
    it.isolate(), it.reboot()
    request = it.request()
    it.ports.nodes.save(replace(it.node(), open_incident=None))

    run_diagnostics(request, it.ports, ACT)

    assert it.resumed().outcome is Outcome.REFUSED


# Return -------------------------------------------------------------------------------------------------------------


def test_without_proof_nothing_returns_to_service() -> None:
    it = Incident()
    it.isolate(), it.reboot()
    request = it.request()

    assert return_to_service(request, it.ports, ACT).outcome is Outcome.REFUSED
    assert it.node().state is NodeState.RECOVERING


def test_a_proof_of_another_boot_is_no_proof() -> None:
    it = Incident()
    it.isolate(), it.reboot(), it.diagnose()
    request = it.request()
    it.ports.nodes.save(replace(it.node(), boot_id="boot-3"))

    assert return_to_service(request, it.ports, ACT).outcome is Outcome.REFUSED


def test_a_node_takes_work_only_when_it_is_written_that_it_is_in_service() -> None:
    it = Incident()
    it.isolate(), it.reboot(), it.diagnose()
    request = it.request()
    scheduler: Any = scheduler_in(it.ports)
    undrain = scheduler.undrain

    def dies(*_: Any, **__: Any) -> None:
        scheduler.undrain = undrain
        raise TimeoutError("it died here")

    scheduler.undrain = dies
    with pytest.raises(TimeoutError):
        return_to_service(request, it.ports, ACT)
    written = it.node()
    done = return_to_service(request, it.ports, ACT)

    assert (written.state, written.drained_by_us) == (NodeState.PROBATION, True)
    assert (done.outcome, it.node().drained_by_us) == (Outcome.DONE, False)
    assert scheduler.placement_of(it.node()).is_schedulable


# Replacement --------------------------------------------------------------------------------------------------------


def test_without_a_spare_nothing_is_spent() -> None:
    it = Incident(74, spare=False)
    it.isolate()

    refused = it.swap()

    assert (refused.outcome, refused.reason) == (Outcome.REFUSED, "pool demo has no healthy spare without a job")
    assert it.ports.attempts.spent(f"node#{A}", ACT.limits[Action.REPLACE]) == {Action.REPLACE: 0}


def test_a_spare_that_the_job_excludes_does_not_take_its_rank() -> None:
    it = Incident(74)
    job = it.ports.jobs.get("llama")
    assert job is not None
    spares = [node.node_id for node in it.ports.nodes.in_pool("demo") if node.job_id is None]
    it.ports.jobs.save(replace(job, exclude_nodes=tuple(spares)))
    it.isolate()

    assert it.swap().reason == "pool demo has no healthy spare without a job"


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": "other"},
        {"open_incident": "inc-other"},
        {"state": NodeState.QUARANTINED},
        {"state": NodeState.PROBATION, "probation_until": NOW + timedelta(hours=1)},
    ],
)
def test_a_node_that_is_busy_or_unproven_is_no_spare(changes: dict[str, Any]) -> None:
    it = Incident(74)
    it.ports.nodes.save(replace(it.node(C), **changes))
    it.isolate()

    assert it.swap().outcome is Outcome.REFUSED


def test_a_node_whose_probation_is_over_is_a_spare() -> None:
    it = Incident(74)
    it.ports.nodes.save(replace(it.node(C), state=NodeState.PROBATION, probation_until=NOW))
    it.isolate()

    assert it.swap().replacement_node_id == C


# Restart ------------------------------------------------------------------------------------------------------------


def test_no_rank_starts_while_one_of_the_last_run_may_still_write() -> None:
    it = Incident(74)
    isolate_node(it.request(), it.ports, ACT)
    it.task_is("STOPPED", 0, exit_code=143)  # rank 1 is never seen to stop
    it.last = StepResult(
        step=Step.ISOLATE,
        node_id=A,
        outcome=Outcome.TIMED_OUT,
        reason="late",
        finished_at=NOW,
        facts=Isolated(is_drained=True),
    )
    it.swap(), it.diagnose(boot_id="boot-1", name=C)

    launch_gang(it.request(), it.ports, ACT)

    assert it.resumed().outcome is Outcome.REFUSED
    assert f"rank 1 on {B}" in it.resumed().reason
    assert it.ports.jobs.get_run("llama", 2) is None


def test_a_rank_whose_node_has_rebooted_since_cannot_write_any_more() -> None:
    it = Incident()
    isolate_node(it.request(), it.ports, ACT)
    it.task_is("STOPPED", 1, exit_code=143)  # the broken node's rank 0 is never seen to stop
    it.last = StepResult(
        step=Step.ISOLATE,
        node_id=A,
        outcome=Outcome.TIMED_OUT,
        reason="late",
        finished_at=NOW,
        facts=Isolated(is_drained=True),
    )

    it.reboot(), it.diagnose(), it.give_back()

    assert it.relaunch().outcome is Outcome.DONE


@pytest.mark.parametrize("code", [79, 54])  # to be rebooted, and to be isolated only
def test_a_gang_is_not_launched_on_a_node_with_an_incident_of_its_own(code: int) -> None:
    it = Incident()
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    ingest(xid(code, node_id=B, instance_id=B, event_id="on-b"), it.ports, ACT)

    launch_gang(it.request(), it.ports, ACT)

    assert it.resumed().outcome is Outcome.REFUSED
    assert B in it.resumed().reason
    assert it.ports.jobs.get_run("llama", 2) is None


def test_a_repeated_launch_starts_no_second_gang() -> None:
    it = Incident()
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    request = it.request()
    launch_gang(request, it.ports, ACT)
    launch_gang(request, it.ports, ACT)

    assert it.is_waiting()
    assert it.ports.jobs.get_run("llama", 3) is None
    assert len(scheduler_in(it.ports).tasks) == 4


def test_a_rank_that_is_refused_takes_the_others_down_again() -> None:
    it = Incident()
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    start = scheduler_in(it.ports).start_rank

    def refuse_rank_1(job: Job, run: Run, task: GangTask, environment: dict[str, str]) -> str:
        if task.rank == 1:
            raise PlacementRefused("RESOURCE:GPU")
        return str(start(job, run, task, environment))

    scheduler_in(it.ports).start_rank = refuse_rank_1
    launch_gang(it.request(), it.ports, ACT)

    assert it.resumed().outcome is Outcome.REFUSED
    assert "task-llama-2-0" in scheduler_in(it.ports).stopped


def test_ranks_know_who_they_are_and_where_rank_0_is() -> None:
    it = Incident()

    environment = scheduler_in(it.ports).environments["task-llama-1-1"]

    assert environment == {
        "NODEHEAL_JOB": "llama",
        "NODEHEAL_RUN": "1",
        "NODEHEAL_PROGRESS_FILE": "/run/nodeheal/progress/llama.1.steps",
        "RANK": "1",
        "NODE_RANK": "1",
        "WORLD_SIZE": "2",
        "NNODES": "2",
        "NPROC_PER_NODE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }


def test_a_finished_job_gives_its_nodes_back() -> None:
    it = Incident()
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=0)

    job = stored_job(it.ports, "llama")
    assert job.state is JobState.COMPLETED
    assert it.node(B).job_id is None


def test_a_late_running_event_does_not_bring_a_stopped_rank_back() -> None:
    it = Incident()
    it.task_is("STOPPED", 0, exit_code=134)
    it.task_is("RUNNING", 0)

    run = stored_run(it.ports, "llama", 1)
    assert (run.tasks[0].status, run.tasks[0].exit_code) == ("STOPPED", 134)


# Endings ------------------------------------------------------------------------------------------------------------


def test_a_node_that_was_not_touched_stays_in_service_after_a_human_is_told() -> None:
    it = Incident(999)

    end_incident(it.request(), it.ports, ACT)

    assert it.node().state is NodeState.HEALTHY
    assert it.node().open_incident is None
    assert ingest(xid(999, event_id="again"), it.ports, ACT).value == "REPEATED"
    assert ingest(xid(79, event_id="other"), it.ports, ACT).value == "OPENED"


def test_an_email_is_sent_once() -> None:
    it = Incident(999)
    end_incident(it.request(), it.ports, ACT)
    told = it.ports.notifier.announced[0][1]  # type: ignore[attr-defined]

    assert [notify(told, it.ports, ACT), notify(told, it.ports, ACT)] == [True, False]
    assert it.ports.notifier.sent == [Message(told)]  # type: ignore[attr-defined]


def test_a_page_that_somebody_else_is_sending_now_is_left_to_them() -> None:
    it = Incident(999)
    end_incident(it.request(), it.ports, ACT)
    told = it.ports.notifier.announced[0][1]  # type: ignore[attr-defined]
    it.ports.notifier.send(Message(told), 1)

    assert not notify(told, it.ports, ACT)
    assert not it.ports.notifier.was_sent(told.key)


# Under which name a node is asked


def asked_as(it: Incident) -> str:
    return named(DIAGNOSTICS, f"{it.id}-{it.turn}", it.ports)


def test_nobody_can_derive_the_request_id_from_the_incident_and_its_turn() -> None:
    """An answer under a name that anybody can make up resumes nothing."""
    it = Incident()
    it.isolate(), it.reboot()
    run_diagnostics(it.request(), it.ports, ACT)
    passed = {**it._fact("boot-2", A), "request_id": f"{it.id}-{it.turn}", "verdict": Verdict.OK}

    wakeup.on_answer(DiagnosticsFinished(**passed), it.ports)

    assert it.is_waiting()


def test_the_node_is_given_the_request_id_that_is_stored() -> None:
    it = Incident()
    it.isolate(), it.reboot()
    given: list[str] = []
    send = it.ports.commands.send

    def sends(node: Node, command: Command, expires_at: datetime) -> str:
        given.extend((command.parameters["RequestId"], asked_as(it)))
        return send(node, command, expires_at)

    it.ports.commands.send = sends  # type: ignore[method-assign]
    run_diagnostics(it.request(), it.ports, ACT)

    assert given == [asked_as(it)] * 2


def test_a_turn_without_a_result_is_looked_at_before_the_next_one_is_decided() -> None:
    it = Incident()
    it.request()

    decide_next_step(DecideRequest(incident_id=it.id, turn=1), it.ports, ACT)

    [result] = [turn.result for turn in it.ports.incidents.history(it.id).turns if turn.result]
    assert (result.step, result.outcome, result.reason) == (Step.ISOLATE, Outcome.FAILED, "it could not be drained")


def test_a_result_that_belongs_to_no_turn_is_not_recorded() -> None:
    it = Incident()
    stray = StepResult(step=Step.WAIT, node_id=A, outcome=Outcome.DONE, reason="stray", finished_at=NOW)

    decide_next_step(DecideRequest(incident_id=it.id, turn=0, result=stray), it.ports, ACT)

    assert [entry.kind for entry in it.ports.incidents.history(it.id).timeline] == ["event", "decision"]


def test_a_node_that_is_given_back_says_since_when_and_until_when_and_why() -> None:
    it = Incident()
    it.isolate(), it.reboot()
    proven_at = it.diagnose().finished_at
    it.clock.advance(5)

    result = it.give_back()

    back, until = it.node(), it.clock() + timedelta(seconds=ACT.probation_seconds)
    assert (back.probation_until, back.healthy_since, back.passed_at, back.drained_by_us) == (
        until,
        proven_at,
        proven_at,
        False,
    )
    assert "back to service" in back.state_reason
    assert result.boot_id == "boot-2"
    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline]
    assert f"{A} is back in service, on probation until {until:%H:%M:%S} UTC" in told


def test_a_turn_that_somebody_else_has_taken_is_asked_for_again() -> None:
    it = Incident()
    it.ports.incidents.advance = lost  # type: ignore[method-assign]

    with pytest.raises(NotAccepted, match="decided already"):
        decide_next_step(DecideRequest(incident_id=it.id, turn=0), it.ports, ACT)


@pytest.mark.parametrize("missing", ["incident", "isolation", "slot", "attempt", "provider"])
def test_without_incident_isolation_slot_and_attempt_nothing_is_replaced(missing: str) -> None:
    it = Incident(74)
    it.isolate()
    request = it.request()
    changes: dict[str, dict[str, Any]] = {
        "incident": {"open_incident": "inc-other"},
        "isolation": {"state": NodeState.HEALTHY},
        "provider": {"provider": Provider.ec2},
    }
    it.ports.nodes.save(replace(it.node(), **changes.get(missing, {})))
    if missing == "slot":
        it.ports.pools.release("demo", A)
    if missing == "attempt":
        it.ports.attempts.reserve(f"node#{A}", "of another incident", ACT.limits[Action.REPLACE])
    before = it.node()

    replace_node(request, it.ports, ACT)

    assert it.resumed().outcome is Outcome.REFUSED

    assert (it.node(), it.node(C).open_incident) == (before, None)


def test_a_node_of_another_incident_is_neither_rebooted_nor_diagnosed_nor_returned() -> None:
    it = Incident()
    it.isolate()
    request = it.request()
    it.ports.nodes.save(replace(it.node(), open_incident="inc-other"))

    reboot_node(request, it.ports)
    run_diagnostics(request, it.ports, ACT)

    assert return_to_service(request, it.ports, ACT).reason == "it belongs to incident inc-other"
    assert it.ports.commands.sent == []  # type: ignore[attr-defined]


def test_a_node_that_failed_again_after_its_diagnosis_is_not_returned() -> None:
    it = Incident()
    it.isolate(), it.reboot(), it.diagnose()
    request = it.request()
    ingest(xid(79, event_id="again", boot_id="boot-2"), it.ports, ACT)

    assert return_to_service(request, it.ports, ACT).outcome is Outcome.REFUSED


@pytest.mark.parametrize("step", [isolate_node, reboot_node, run_diagnostics, launch_gang, stop_gang])
def test_a_step_that_waits_is_never_without_a_token(step: Callable[..., None]) -> None:
    it = Incident()
    more = [] if step is reboot_node else [ACT]
    if step is not isolate_node:
        it.isolate()

    with pytest.raises(ValueError, match="without a task token"):
        step(it.request(task_token=None), it.ports, *more)


def test_a_destructive_step_without_a_limit_or_for_an_unknown_node_is_an_error() -> None:
    it = Incident()
    it.isolate()
    request = it.request()
    unlimited = request.model_copy(update={"decision": request.decision.model_copy(update={"reserve": ()})})
    unknown = request.model_copy(update={"decision": request.decision.model_copy(update={"node_id": "mi-gone"})})

    with pytest.raises(ValueError, match="carries no attempt limit"):
        reboot_node(unlimited, it.ports)
    with pytest.raises(NotFound, match="mi-gone"):
        reboot_node(unknown, it.ports)


@pytest.mark.parametrize("tried", [True, False])
def test_a_node_that_had_a_fault_comes_back_on_probation(monkeypatch: pytest.MonkeyPatch, tried: bool) -> None:
    it = Recovery()
    it.isolate()
    proof = turn(Step.DIAGNOSE, Outcome.DONE).result
    assert proof is not None
    proof = proof.model_copy(update={"boot_id": it.node().boot_id})
    proven = Progress(proof=proof, tried=(TriedStep(Action.REBOOT, proof),) if tried else ())
    monkeypatch.setattr(Situation, "progress", proven)
    decision = Decision(step=Step.RETURN, reason="so", node_id=A)

    returned = return_to_service(StepRequest(incident_id=it.id, turn=2, decision=decision), it.ports, ACT)

    assert (returned.outcome, it.node().state) == (Outcome.DONE, NodeState.PROBATION)


class Deaf:
    """A node store whose saves always lose their race."""

    def __init__(self, nodes: Any) -> None:
        self._nodes = nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes, name)

    def save(self, *_: object) -> bool:
        return False


def test_a_node_takes_no_work_before_it_is_written_that_it_is_in_service() -> None:
    it = claimed_by(IncidentState.ESCALATED)
    scheduler: Any = scheduler_in(it.ports)
    lost = replace(it.ports, nodes=Deaf(it.ports.nodes))

    with pytest.raises(NotAccepted):
        release_node(A, "repaired", lost)

    assert scheduler.draining == {A}
