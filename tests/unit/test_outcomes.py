"""What is concluded when no answer came, and how an incident and a gang end."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.names import INCIDENT_CLOSED, INCIDENT_ESCALATED
from nodeheal.contract.results import Isolated, StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Action, JobState, NodeState, Outcome, Step, VerbName, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.operation import job_owner
from nodeheal.domain.recovery import incident as incidents
from nodeheal.domain.recovery.incident import fingerprint, incident_id_of
from nodeheal.operations.diagnose import DiagnosisAnswer, judge
from nodeheal.operations.steps import launch_gang, stop_gang
from nodeheal.operations.verbs import conclude
from nodeheal.ports import Ports
from nodeheal.ports.commands import CommandStatus
from nodeheal.services.jobs.runs import may_write
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.saving import node_of
from nodeheal.services.steps import save_node
from tests.support.builders import (
    ACT,
    NOW,
    gang_under_way,
    memory_ports,
    node,
    scheduler_in,
    started_job,
    stored_run,
    xid,
)
from tests.support.crashes import lost
from tests.support.incident_steps import A, B, C, Incident, healed
from tests.support.jobs import ecs_job
from tests.support.step_functions import isolate_node, run_diagnostics

# Looking -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "stopped", "outcome", "evidence"),
    [
        ({}, (0, 1), Outcome.DONE, "true"),
        ({}, (0,), Outcome.TIMED_OUT, "true"),
        ({"state": NodeState.HEALTHY}, (), Outcome.FAILED, "false"),
        ({"open_incident": "inc-other"}, (), Outcome.FAILED, "false"),
    ],
)
def test_at_the_deadline_of_an_isolation_drain_and_gang_decide(
    changes: dict[str, Any], stopped: tuple[int, ...], outcome: Outcome, evidence: str
) -> None:
    it = Incident()
    request = it.request()
    isolate_node(request, it.ports, ACT)
    for rank in stopped:
        it.task_is("STOPPED", rank, exit_code=143)
    it.ports.nodes.save(replace(it.node(), **changes))

    seen = conclude(request, it.ports)

    assert (seen.outcome, seen.facts) == (outcome, Isolated(is_drained=evidence == "true"))
    assert (f"rank 1 on {B}" in seen.reason) is (outcome is Outcome.TIMED_OUT)


def test_a_swap_that_claimed_no_spare_has_failed() -> None:
    it = Incident(74)
    it.isolate()

    assert conclude(it.request(), it.ports).outcome is Outcome.FAILED


@pytest.mark.parametrize("lost_record", ["jobs", "kept_runs"])
def test_a_job_that_nobody_knows_is_neither_launched_nor_seen_to_run(lost_record: str) -> None:
    it = healed()
    getattr(it.ports.jobs, lost_record).clear()
    request = it.request()

    launch_gang(request, it.ports, ACT)

    assert it.resumed().outcome is Outcome.REFUSED
    assert conclude(request, it.ports).outcome is Outcome.TIMED_OUT


def test_a_step_that_leaves_nothing_to_look_at_is_unknown() -> None:
    it = Incident()
    request = it.request()
    closing = request.decision.model_copy(update={"step": Step.CLOSE})

    assert conclude(request.model_copy(update={"decision": closing}), it.ports).outcome is Outcome.UNKNOWN


# Endings -------------------------------------------------------------------------------------------------------------


def test_an_ending_keeps_its_first_time_and_says_of_which_kind_it_is() -> None:
    escalated, closed = Incident(999), Incident(92)
    asked = escalated.request()
    end_incident(asked, escalated.ports, ACT)
    escalated.clock.advance(60)

    end_incident(asked, escalated.ports, ACT)
    end_incident(closed.request(), closed.ports, ACT)

    assert escalated.ports.incidents.history(escalated.id).incident.closed_at == NOW
    assert {kind for kind, _ in escalated.ports.notifier.announced} == {INCIDENT_ESCALATED}  # type: ignore[attr-defined]
    assert [kind for kind, _ in closed.ports.notifier.announced] == [INCIDENT_CLOSED]  # type: ignore[attr-defined]


def test_an_ending_lets_go_of_nothing_that_another_incident_holds() -> None:
    it = Incident(999)
    it.ports.nodes.save(replace(it.node(), open_incident="inc-other"))

    end_incident(it.request(), it.ports, ACT)

    assert it.node().open_incident == "inc-other"


def test_a_fault_is_settled_for_the_node_that_had_it_and_for_no_other() -> None:
    it = Incident(74)
    it.isolate(), it.swap(), it.diagnose(boot_id="boot-1", name=C), it.relaunch()
    end_incident(it.request(), it.ports, ACT)

    assert it.node(C).resolved_faults == {}


def test_an_ending_that_cannot_be_written_or_is_none_is_an_error() -> None:
    it = Incident(999)
    request = it.request()
    endless = request.decision.model_copy(update={"ending": None})
    with pytest.raises(ValueError, match="does not say how it ends"):
        end_incident(request.model_copy(update={"decision": endless}), it.ports, ACT)
    it.ports.nodes.save = lost  # type: ignore[method-assign]

    with pytest.raises(NotAccepted):
        end_incident(request, it.ports, ACT)

    assert it.ports.notifier.announced == []  # type: ignore[attr-defined]


def test_a_fault_on_another_component_is_another_trouble() -> None:
    assert fingerprint(xid(79)) != fingerprint(xid(79, component="0000:ba:00.0"))
    assert incident_id_of(xid(79, node_id="arn:aws/n1")).replace("-", "").isalnum()


# Gangs ---------------------------------------------------------------------------------------------------------------


def test_a_rank_that_ran_before_the_retry_stored_its_wait_is_counted() -> None:
    it = healed()
    request = it.request()
    launch_gang(request, it.ports, ACT)
    for rank in (0, 1):
        it.task_is("RUNNING", rank, run=2)

    launch_gang(request.model_copy(update={"task_token": "of-the-retry"}), it.ports, ACT)

    assert it.ports.workflows.resumed["of-the-retry"].outcome is Outcome.DONE  # type: ignore[attr-defined]


def test_a_rank_on_a_node_that_nobody_knows_may_still_write_and_one_without_a_task_is_not_stopped() -> None:
    it = Incident()
    run = stored_run(it.ports, "llama", 1)
    it.ports.jobs.save_run(run.with_task(replace(run.tasks[0], task_id="")))
    del scheduler_in(it.ports).tasks["task-llama-1-0"]
    stop_gang(it.request(), it.ports, ACT)
    it.ports.nodes.nodes.clear()  # type: ignore[attr-defined]

    assert may_write(run.tasks[0], it.ports)
    assert set(scheduler_in(it.ports).stopped) == {"task-llama-1-1"}


@pytest.mark.parametrize(("booted_after_seconds", "is_alive"), [(-1, True), (0, False), (60, False)])
def test_a_rank_that_was_launched_on_a_boot_that_is_heard_of_late_is_alive(
    booted_after_seconds: int, is_alive: bool
) -> None:
    it = Incident()
    run = stored_run(it.ports, "llama", 1)
    [task] = [task for task in run.tasks if task.rank == 0]
    assert task.asked_at is not None
    booted_at = task.asked_at + timedelta(seconds=booted_after_seconds)

    save_node(it.ports, node_of(task.node_id, it.ports), boot_id="boot-2", booted_at=booted_at)

    assert may_write(task, it.ports) is is_alive
    assert not may_write(replace(task, asked_at=None), it.ports)  # of a version that did not note it


@pytest.mark.parametrize(
    ("exits", "state", "job_of_b"),
    [((0,), JobState.RUNNING, "llama"), ((0, 1), JobState.STOPPED, "llama"), ((0, 0), JobState.COMPLETED, None)],
)
def test_a_job_is_completed_when_its_last_rank_has_ended_well(
    exits: tuple[int, ...], state: JobState, job_of_b: str | None
) -> None:
    it = Incident()
    it.ports.nodes.save(replace(it.node(A), job_id="another"))
    for rank, exit_code in enumerate(exits):
        it.task_is("STOPPED", rank, exit_code=exit_code)
        it.task_is("STOPPED", rank, exit_code=7)  # told again, and wrong

    job = it.ports.jobs.get("llama")
    assert isinstance(job, Job)
    assert (job.state, it.node(A).job_id, it.node(B).job_id) == (state, "another", job_of_b)


def test_an_isolation_that_broke_before_the_drain_says_so() -> None:
    it = Incident()
    request = it.request()
    it.ports.nodes.save(replace(it.node(), state=NodeState.ISOLATED))

    result = conclude(request, it.ports)

    assert (result.outcome, result.reason) == (Outcome.FAILED, "it could not be drained")


def _diagnosing(status: CommandStatus) -> StepResult:
    """What is concluded of a diagnosis whose command went so."""
    it = Incident()
    it.isolate(), it.reboot()
    request = it.request()
    run_diagnostics(request, it.ports, ACT)
    statuses = it.ports.commands.statuses  # type: ignore[attr-defined]
    statuses.update(dict.fromkeys(statuses, status))
    return conclude(request, it.ports)


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        (CommandStatus("FAILED"), Outcome.TIMED_OUT, "the command is FAILED"),
        (CommandStatus("SUCCEEDED", '{"verdict": "OK"}'), Outcome.UNKNOWN, "cannot be read"),
        (CommandStatus("SUCCEEDED", "null"), Outcome.UNKNOWN, "cannot be read"),
        (CommandStatus("SUCCEEDED", '{"verdict": "OK", "failed_tests": []}'), Outcome.DONE, "diagnostics passed"),
    ],
    ids=["failed", "without tests", "no document", "passed"],
)
def test_a_look_at_a_diagnosis_names_the_boot_that_it_is_about(
    status: CommandStatus, outcome: Outcome, reason: str
) -> None:
    result = _diagnosing(status)

    assert (result.outcome, result.boot_id) == (outcome, "boot-2")
    assert reason in result.reason


@pytest.mark.parametrize(("undone", "told"), [("pcie", "no result (pcie)"), ("", "no result")])
def test_a_diagnosis_without_a_result_names_the_tests_that_it_knows_of(undone: str, told: str) -> None:
    answer = DiagnosisAnswer(verdict=Verdict.UNKNOWN, undone_tests=(undone,) if undone else ())

    assert judge(answer, {}, 20)[1] == f"diagnostics gave {told}"
    failed = answer.model_copy(update={"verdict": Verdict.FAILED, "failed_tests": ("memory",)})
    assert judge(failed, {}, 20)[1] == "diagnostics failed: memory"


def test_a_restart_that_was_not_seen_says_where_its_ranks_are() -> None:
    it = healed()

    result = conclude(it.request(), it.ports)

    assert result.outcome is Outcome.TIMED_OUT
    assert result.reason.endswith("rank 0 is STOPPED, rank 1 is STOPPED")


def test_a_swap_that_the_look_finds_is_finished_there() -> None:
    it = Incident(74)
    it.isolate()
    request = it.request()
    it.ports.nodes.save(replace(it.node(C), open_incident=it.id))  # then the function died

    assert conclude(request, it.ports).replacement_node_id == C
    assert (it.node(A).state, it.node(A).job_id) == (NodeState.QUARANTINED, None)


def request(step: Step, action: Action | None = None, job_id: str | None = None) -> StepRequest:
    decision = Decision(step=step, reason="because", node_id=xid().node_id, action=action, job_id=job_id)
    return StepRequest(incident_id="inc-1", turn=1, decision=decision)


@pytest.fixture
def ports() -> Ports:
    made = memory_ports()
    broken = node(state=NodeState.RECOVERING, open_incident="inc-1", job_id="llama")
    incident = incidents.Incident("inc-1", broken.node_id, "demo", xid(), NOW, "v", job_id="llama")
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
