"""How often a job is restarted: its own limits beside the policy's, and no run that would get no further."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.job_spec import RestartLimits
from nodeheal.contract.steps import Reservation
from nodeheal.contract.vocabulary import Action, Outcome
from nodeheal.domain.faults.assessment import assess_faults
from nodeheal.domain.jobs.job import FoundCheckpoint, Job, Run
from nodeheal.domain.jobs.restarts import is_limit_of_lone_hangs, no_progress_reason, own_limits
from nodeheal.domain.recovery.attempt_budget import attempts_text
from nodeheal.domain.recovery.decide import _escalate_repeated_lone_hangs
from nodeheal.domain.recovery.decision_builder import DecisionBuilder
from nodeheal.operations.steps import launch_gang
from nodeheal.services.recovery.reserve_attempt import reserve_or_why_not
from tests.support.builders import ACT, NOW, stored_job, stored_run, xid
from tests.support.incident_steps import LLAMA, A, Incident
from tests.support.jobs import ecs_job
from tests.support.recovery_story import Story

JOB = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, submission=2, submitted_at=NOW)
HERE = "/fsx/llama/step-100"


def stopped_at(path: str, **limits: int) -> Job:
    return replace(JOB, restarts=RestartLimits(**limits), found=FoundCheckpoint(path, 100, NOW))


def begun_at(*paths: str, since: timedelta = timedelta(minutes=1)) -> list[Run]:
    return [Run("llama", n, NOW + n * since, "why", (), resumed_from=path) for n, path in enumerate(paths, 1)]


# The core


def test_a_jobs_own_limits_count_by_submission() -> None:
    window, total = own_limits(replace(JOB, restarts=RestartLimits(total=7, in_window=2, window_seconds=3_600)))

    assert (window.scope, window.limit.limit, window.limit.window_seconds) == ("job#llama/2/window", 2, 3_600)
    assert (total.scope, total.limit.limit, total.limit.window_seconds) == ("job#llama/2/total", 7, 90 * 86_400)


@pytest.mark.parametrize("submission", [0, 1, 2])
def test_every_record_of_a_job_has_the_limits_of_its_own_and_one_of_lone_hangs(submission: int) -> None:
    limits = own_limits(replace(JOB, submission=submission), hang_seen_by=["mi-a"])

    assert [one.scope.rpartition(f"/{submission}/")[2] for one in limits] == ["window", "total", "hangs/mi-a"]


def test_whose_limit_it_is_is_told() -> None:
    window, total = own_limits(JOB)
    policys = Reservation(scope="job#llama", limit=ACT.limits[Action.RESTART_WORKLOAD])

    assert attempts_text(policys, 10) == "10 of 10 job restarts in 24 h"
    assert attempts_text(window, 10) == "10 of 10 job restarts of llama in 24 h (the job's own restarts.in_window)"
    assert (
        attempts_text(total, 3)
        == "3 of 100 job restarts of llama since it was submitted (the job's own restarts.total)"
    )


def test_runs_that_begin_at_one_checkpoint_again_and_again_are_stuck() -> None:
    told = no_progress_reason(stopped_at(HERE, without_progress=3), begun_at("", HERE, HERE, HERE))

    assert told == (
        f"llama gets no further: the last 3 runs have begun at {HERE} (step 100) and written no newer checkpoint; "
        "no more are started (restarts.without_progress: 3)"
    )


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        (["/fsx/llama/step-50", HERE, HERE], "there is one more try"),
        ([HERE, HERE, "", HERE], "nobody knows where one of them began"),
        (["/old", "/old", "/old"], "a newer checkpoint was written since"),
        ([], "it has never run"),
    ],
)
def test_who_may_get_further_is_not_stuck(paths: list[str], why: str) -> None:
    assert no_progress_reason(stopped_at(HERE, without_progress=3), begun_at(*paths)) == "", why


def test_where_nobody_knows_its_checkpoints_nobody_calls_it_stuck() -> None:
    runs = begun_at("", "", "", "")

    assert no_progress_reason(replace(JOB, found=None), runs) == ""
    assert no_progress_reason(stopped_at("", without_progress=1), runs) == ""


def test_runs_of_an_earlier_submission_do_not_count() -> None:
    before = begun_at(HERE, HERE, HERE, since=-timedelta(minutes=1))

    assert no_progress_reason(stopped_at(HERE, without_progress=3), before) == ""


# In a recovery


def submitted(**limits: int) -> Incident:
    """The recovery of a node whose job was submitted with these limits, up to its restart."""
    it = Incident()
    job = stored_job(it.ports, "llama")
    it.ports.jobs.save(replace(job, submission=1, restarts=RestartLimits(**limits)))
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    return it


def test_a_restart_is_reserved_in_the_jobs_own_limits_beside_the_policys() -> None:
    it = submitted()

    request = it.request()
    refused = reserve_or_why_not(request, it.ports)

    assert [r.scope for r in request.decision.reserve] == ["job#llama", "job#llama/1/window", "job#llama/1/total"]
    assert refused == ""


@pytest.mark.parametrize(
    ("limits", "setting"), [({"in_window": 0}, "restarts.in_window"), ({"total": 0}, "restarts.total")]
)
def test_the_jobs_own_limit_refuses_and_gives_the_policys_back(limits: dict[str, int], setting: str) -> None:
    it = submitted(**limits)

    refused = reserve_or_why_not(it.request(), it.ports)

    assert f"(the job's own {setting}) are spent" in refused
    for scope in ("job#llama", "job#llama/1/window", "job#llama/1/total"):
        spent = it.ports.attempts.spent(scope, ACT.limits[Action.RESTART_WORKLOAD])
        assert spent[Action.RESTART_WORKLOAD] == 0, scope


def test_a_job_that_gets_no_further_is_not_launched_and_its_attempt_is_given_back() -> None:
    it = submitted(without_progress=1)
    job, run = stored_job(it.ports, "llama"), stored_run(it.ports, "llama", 1)
    it.ports.jobs.save(replace(job, found=FoundCheckpoint(HERE, 100, NOW)))
    it.ports.jobs.save_run(replace(run, resumed_from=HERE))
    request = it.request()

    launch_gang(request, it.ports, ACT)

    assert it.resumed().outcome is Outcome.REFUSED
    assert "gets no further" in it.resumed().reason
    assert it.ports.jobs.get_run("llama", 2) is None
    for reservation in request.decision.reserve:
        assert it.ports.attempts.spent(reservation.scope, reservation.limit)[Action.RESTART_WORKLOAD] == 0


def test_of_a_jobs_limits_one_is_of_hangs_that_one_node_reports() -> None:
    limits = own_limits(replace(LLAMA, submission=1), [A])

    assert [is_limit_of_lone_hangs(one) for one in limits] == [False, False, True]


@pytest.mark.parametrize("is_lone", [True, False])
def test_only_hangs_that_one_node_reports_are_handed_over_before_the_gang_is_stopped(is_lone: bool) -> None:
    limits = own_limits(replace(LLAMA, submission=1), [A])
    held = next(one for one in limits if is_limit_of_lone_hangs(one) is is_lone)
    spent = {(held.scope, held.limit.group): held.limit.limit}
    history = Story(xid(31)).amid(job_limits=limits, spent=spent).history
    assessment = assess_faults(history, ACT)

    decision = _escalate_repeated_lone_hangs(DecisionBuilder(history, ACT, assessment, NOW), assessment.fault)

    assert (decision is not None) is is_lone
