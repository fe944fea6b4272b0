"""Every guard has a test that fails without it: who may act, on what, and what becomes of a write that is lost."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.steps import DecideRequest
from nodeheal.contract.vocabulary import Action, Ending, NodeState, Outcome, Provider, Step
from nodeheal.domain.errors import Conflict, NotAccepted, NotFound
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.policy.policy_models import Override
from nodeheal.operations.steps import launch_gang, stop_gang
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs.submit_job import submit_job
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.reserve_attempt import why_no_attempt
from nodeheal.services.recovery.return_to_service import return_to_service
from tests.support.builders import ACT, NOW, scheduler_in, stored_job, stored_run, xid
from tests.support.incident_steps import LLAMA, A, C, Incident, healed
from tests.support.lost_writes import lost
from tests.support.recovery_story import OBSERVE, SPARE, Story
from tests.support.step_functions import isolate_node, reboot_node, replace_node, run_diagnostics

# Decide -------------------------------------------------------------------------------------------------------------


def test_a_fault_that_is_only_to_be_observed_touches_nothing_in_act_mode_either() -> None:
    assert Story(xid(92)).next().ending is Ending.OBSERVED_ONLY


def test_an_application_fault_without_a_job_of_ours_has_nothing_to_restart() -> None:
    assert Story(xid(31), job=None).next().ending is Ending.OBSERVED_ONLY


def test_an_application_fault_whose_restart_failed_goes_to_a_human() -> None:
    assert Story(xid(31)).then(Outcome.FAILED, "rank 1 died").next().ending is Ending.HANDED_TO_A_HUMAN


def test_a_pool_set_to_observe_after_a_restart_is_left_to_a_human() -> None:
    story = Story(xid(31)).then(Outcome.FAILED)
    story.policy = OBSERVE

    assert story.next().step is Step.ESCALATE


def test_a_ladder_without_a_step_ends_with_a_human_and_an_isolated_node() -> None:
    isolate = Override(fault="xid/79", ladder=(Action.ISOLATE,), why="we look at these ourselves")
    policy = ACT.model_copy(update={"overrides": (isolate,)})

    assert Story(xid(79), policy=policy).isolated().next().step is Step.ESCALATE


def test_a_fault_on_the_new_boot_is_not_even_diagnosed() -> None:
    again = xid(79, event_id="again", boot_id="boot-2")

    assert Story(xid(79)).isolated().rebooted().reports(again).next().step is Step.REPLACE


def test_a_new_machine_takes_the_broken_ones_place_and_only_a_spare_leaves_one_to_a_human() -> None:
    spare = Story(xid(74), job=None).isolated().swapped().passed()
    new = Story(xid(74), job=None).isolated().renewed().passed()

    assert spare.next().ending is Ending.HANDED_TO_A_HUMAN
    assert (new.next().step, new.next().node_id) == (Step.RETURN, SPARE)
    assert new.then(Outcome.DONE, "it serves").next().ending is Ending.RECOVERED


def test_a_new_machine_that_cannot_serve_is_for_a_human() -> None:
    new = Story(xid(74), job=None).isolated().renewed().passed().then(Outcome.REFUSED, "it belongs to nobody")

    assert new.next().ending is Ending.HANDED_TO_A_HUMAN


def test_a_diagnosis_carries_the_level_of_the_policy_and_no_other_step_does() -> None:
    story = Story(xid(79)).isolated()

    assert (story.next().diagnostics_level, story.rebooted().next().diagnostics_level) == (None, ACT.diagnostics_level)


def test_a_turn_that_somebody_else_has_taken_is_asked_for_again() -> None:
    it = Incident()
    it.ports.incidents.advance = lost  # type: ignore[method-assign]

    with pytest.raises(NotAccepted, match="decided elsewhere"):
        decide_next_step(DecideRequest(incident_id=it.id, turn=0), it.ports, ACT)


# Who may act ----------------------------------------------------------------------------------------------------------


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


def test_a_full_window_refuses_the_attempt_and_restarts_count_for_the_job() -> None:
    it = Incident(31)
    request = it.request()
    limit = request.decision.reserve[0].limit

    refused = [why_no_attempt(request.model_copy(update={"turn": n}), it.ports) for n in range(limit.limit + 1)]

    assert [bool(why) for why in refused] == [False] * limit.limit + [True]
    assert it.ports.attempts.spent("job#llama", limit) == {limit.group: limit.limit}


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


# Lost writes ----------------------------------------------------------------------------------------------------------


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
