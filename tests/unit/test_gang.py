"""How a run stands, from its ranks."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.adapters.ecs.rank_change import task_change
from nodeheal.adapters.ecs.stop_reasons import causes_of
from nodeheal.adapters.ecs.task import EcsTaskDetail
from nodeheal.contract.vocabulary import EndCause
from nodeheal.domain.jobs.gang import RunStatus, ending_text, first_end, first_failure, overdue, run_status
from nodeheal.domain.jobs.job import GangTask, Run
from tests.support.builders import NOW, as_rank
from tests.support.incident_steps import A


def task(
    rank: int, status: str = "RUNNING", exit_code: int | None = None, after: float = 0, **changes: Any
) -> GangTask:
    """One rank; `after`: seconds until it stopped."""
    stopped_at = NOW + timedelta(seconds=after) if status == "STOPPED" else None
    known = GangTask(f"mi-{rank}", rank, "boot", f"place-{rank}", f"task-{rank}", status, exit_code)
    known = replace(known, stopped_at=stopped_at, **changes)
    return replace(known, end_causes=causes_of(known.stop_reason))


def run(*tasks: GangTask) -> Run:
    """A run of these ranks."""
    return Run("llama", 1, NOW, "submitted", tasks)


OURS = {"stop_reason": "UserInitiated: nodeheal: recovery inc-1"}
THEIRS = {"stop_reason": "UserInitiated: Task stopped by user"}


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([task(0), task(1)], RunStatus.UNDER_WAY),
        ([task(0, "PENDING"), task(1)], RunStatus.UNDER_WAY),
        ([task(0, exit_code=0), task(1, exit_code=0)], RunStatus.UNDER_WAY),  # on their way down: they may write
        ([task(0, "STOPPED", 0), task(1)], RunStatus.UNDER_WAY),
        ([task(0, "STOPPED", 0), task(1, "STOPPED", 0)], RunStatus.SUCCEEDED),
        ([task(0), task(1, "STOPPED", 1)], RunStatus.FAILED),
        ([task(0), task(1, "STOPPED", None)], RunStatus.FAILED),
        ([task(0, "STOPPED", 143, 9, **OURS), task(1, "STOPPED", 1, 3)], RunStatus.FAILED),
        ([task(0, "STOPPED", 143, 3, **OURS), task(1, "STOPPED", 1, 9)], RunStatus.STOPPED_BY_US),
        ([task(0, "STOPPED", 143, 3, **OURS), task(1, "STOPPED", 1, 3)], RunStatus.FAILED),
        ([task(0), task(1, "STOPPED", 143, 3, **THEIRS)], RunStatus.STOPPED_BY_A_PERSON),
        ([task(0, "STOPPED", 0, 3, **THEIRS), task(1)], RunStatus.STOPPED_BY_A_PERSON),
        ([task(0, "STOPPED", 0, 3, **OURS), task(1, "STOPPED", 0, 4, **OURS)], RunStatus.STOPPED_BY_US),
    ],
)
def test_a_run_is_what_its_first_end_makes_of_it(ranks: list[GangTask], expected: RunStatus) -> None:
    assert run_status(run(*ranks)) is expected


def test_the_first_to_end_is_the_cause_and_an_unknown_time_is_the_last() -> None:
    late, early, unknown = task(0, "STOPPED", 1, 9), task(1, "STOPPED", 139, 2), task(2, "STOPPED", 134)

    assert first_end(run(late, early, replace(unknown, stopped_at=None))) == early
    assert first_end(run(late, replace(unknown, stopped_at=None))) == late
    assert first_end(run(task(0))) is None


@pytest.mark.parametrize(
    ("exit_code", "reason", "code", "is_clear", "never_ran"),
    [
        (1, "", "exit_1", True, False),
        (2, "", "exit_1", True, False),
        (134, "", "exit_134", False, False),
        (137, "", "exit_137", False, False),
        (137, "EssentialContainerExited: OutOfMemoryError: killed", "exit_137", True, False),
        (139, "", "exit_139", False, False),
        (1, "EssentialContainerExited: OutOfMemoryError: raised", "exit_1", True, False),
        (None, "", "no_exit_code", False, False),
        (None, "Host EC2 (instance i-0a1b2c3d) terminated.", "host_lost", True, False),
        (None, "TaskFailedToStart: CannotPullContainerError: no such image", "no_exit_code", False, True),
        (126, "", "exit_1", True, True),
        (127, "", "exit_1", True, True),
        (128, "exec format error", "exit_1", True, True),
    ],
)
def test_every_end_is_understood(
    exit_code: int | None, reason: str, code: str, is_clear: bool, never_ran: bool
) -> None:
    found = first_failure(run(task(0), task(1, "STOPPED", exit_code, 1, stop_reason=reason)))

    assert found is not None
    assert (found.code, found.is_clear, found.never_ran) == (code, is_clear, never_ran)
    assert found.words.startswith("rank 1 on mi-1 ")
    assert reason in found.words


def test_secondary_faults_are_counted_and_who_was_stopped_has_not_broken() -> None:
    broke = first_failure(
        run(
            task(0, "STOPPED", 1, 5),
            task(1, "STOPPED", 139, 1),
            task(2, "STOPPED", 143, 0, **OURS),
            task(3, "STOPPED", 0, 0),
        )
    )

    assert broke is not None
    assert broke.words == "rank 1 on mi-1 ended with exit code 139; 1 more after it"
    assert first_failure(run(task(0), task(1, "STOPPED", 143, 0, **OURS))) is None


def test_a_rank_that_was_asked_to_start_a_moment_ago_is_not_overdue() -> None:
    young, old = task(0, "PENDING", asked_at=NOW), task(1, "PENDING", asked_at=NOW - timedelta(minutes=3))

    assert overdue(run(young, old), timedelta(minutes=3), NOW) == [old]


def test_the_end_of_a_run_is_told_as_it_was() -> None:
    assert ending_text(run(task(0, "STOPPED", 0))) == "every rank of run 1 has ended with exit code 0"
    assert ending_text(run(task(0, "STOPPED", 1))) == "run 1 has ended: rank 0 on mi-0 ended with exit code 1"
    assert ending_text(run(task(0, "STOPPED", 143, 0, **OURS))) == "run 1 was stopped"


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


def bare_task(**changes: Any) -> GangTask:
    return replace(GangTask(A, 0, "boot-1", "placement"), **changes)


def test_a_rank_that_runs_has_not_succeeded_whatever_its_exit_code() -> None:
    assert not bare_task(status="RUNNING", exit_code=0).has_succeeded
    assert bare_task(status="STOPPED", exit_code=0).has_succeeded


@pytest.mark.parametrize(("exit_code", "code"), [(137, "exit_137"), (1, "exit_1")])
def test_a_container_beside_the_rank_that_was_out_of_memory_is_not_the_rank(exit_code: int, code: str) -> None:
    dead = bare_task(status="STOPPED", exit_code=exit_code, end_causes=(EndCause.OUT_OF_MEMORY,))

    failure = first_failure(Run("llama", 1, NOW, "submitted", (dead,)))

    assert failure is not None and failure.code == code


@pytest.mark.parametrize(
    ("last_status", "status"),
    [("PROVISIONING", "PENDING"), ("ACTIVATING", "PENDING"), ("STOPPING", "RUNNING"), ("STOPPED", "STOPPED")],
)
def test_a_rank_on_its_way_up_does_not_run_and_one_on_its_way_down_has_not_stopped(
    last_status: str, status: str
) -> None:
    mark = {"taskArn": "task", "containerInstanceArn": "placement", **as_rank("llama", 1)}

    change = task_change(EcsTaskDetail.model_validate({**mark, "lastStatus": last_status}))

    assert change is not None
    assert (change.status, change.job_id, change.run) == (status, "llama", 1)
