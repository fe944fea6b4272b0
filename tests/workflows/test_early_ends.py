"""A rank that ends while the others of its run still start: a failure like any other, counted and attributed."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from nodeheal.contract.vocabulary import EndCause, Ending, Outcome
from nodeheal.domain.jobs.early_end import NEVER_STARTED, early_end
from nodeheal.domain.jobs.job import GangTask, Run
from tests.support.builders import NOW, xid
from tests.support.job_cluster import NODES, JobCluster, fails, finishes, is_recovered
from tests.support.jobs import ecs_job

A, B, C, D = NODES
EXITED = "EssentialContainerExited"
Start = Callable[[JobCluster], None]


def job(*restarts: Start, **spec: Any) -> JobCluster:
    """A job whose restarts begin so, one after another; those after them begin well."""
    it = JobCluster(**spec)
    plainly, left = it._gang_becomes, list(restarts)

    def becomes(status: str, exit_code: int = 143) -> None:
        if status == "RUNNING" and left:
            left.pop(0)(it)
        else:
            plainly(status, exit_code)

    it._gang_becomes = becomes  # type: ignore[method-assign]
    return it


def exits(rank: int, exit_code: int | None, reason: str = EXITED) -> Start:
    return lambda it: it.becomes(rank, "STOPPED", exit_code, reason)


def loses_its_host(rank: int) -> Start:
    """The node breaks while the rank starts there: its agent reports it, and the rank is gone."""

    def start(it: JobCluster) -> None:
        name = it.run.tasks[rank].node_id
        it._ingest(xid(79, node_id=name, instance_id=name, event_id=f"fault-{it.run.number}", observed_at=it.clock()))
        it.becomes(rank, "STOPPED", None, "Host EC2 (instance i-1) terminated.")

    return start


def both(*starts: Start) -> Start:
    def start(it: JobCluster) -> None:
        for one in starts:
            one(it)

    return start


def endings(it: JobCluster) -> list[tuple[str, Ending | None]]:
    heads = [it.ports.incidents.history(name).incident for name in it.ports.workflows.started]  # type: ignore[attr-defined]
    return [(head.root.code, head.ending) for head in heads]


def letters(it: JobCluster) -> list[str]:
    return [told.key for _, told in it.ports.notifier.announced if told.owner]  # type: ignore[attr-defined]


def test_a_program_that_exits_while_a_restart_starts_it_is_restarted_once_more() -> None:
    it = job(exits(1, 1))
    it.happenings = [fails(), is_recovered, is_recovered, finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    assert it.run.number == 3
    assert endings(it) == [("exit_1", Ending.RECOVERED)] * 2
    assert it.is_clean


def test_its_owner_is_not_told_of_a_start_that_was_none() -> None:
    it = job(exits(1, 1))
    it.happenings = [fails(), is_recovered, is_recovered, finishes]

    it.submit()

    again = [key for key in letters(it) if key.endswith("RUNS_AGAIN")]
    assert again == ["owner/llama/3/RUNS_AGAIN"]


@pytest.mark.parametrize("limits", [{"in_window": 1}, {"total": 1}, {"of_application": 1}])
def test_it_counts_against_every_limit(limits: dict[str, int]) -> None:
    it = job(exits(1, 1), restarts=limits)
    it.happenings = [fails(), is_recovered, is_recovered]

    seen = it.submit()

    assert seen.end == "Escalated"
    assert f"restarts.{next(iter(limits))}" in it.job.summary
    assert it.run.number == 2
    assert it.is_clean


def test_starts_in_vain_from_one_checkpoint_are_no_progress() -> None:
    it = job(exits(1, 1), exits(1, 1), exits(1, 1), restarts={"without_progress": 2}, checkpoints={"directory": "/f"})
    it.checkpoints = [("/f/iter_0000005", 5)]
    it.happenings = [fails(), is_recovered, is_recovered, is_recovered]

    seen = it.submit()

    assert seen.end == "Escalated"
    assert "the last 2 runs have begun at /f/iter_0000005 (step 5)" in it.job.summary
    assert it.run.number == 2


def test_an_exit_code_that_does_not_say_why_has_all_nodes_diagnosed() -> None:
    it = job(exits(1, 139))
    it.happenings = [fails(), is_recovered, is_recovered, finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    assert seen.path.count("Check nodes") == 2
    assert endings(it)[-1] == ("exit_139", Ending.RECOVERED)


def test_a_definition_that_cannot_run_on_the_new_node_is_not_tried_again() -> None:
    it = job(exits(1, None, "CannotPullContainerError: no such image"))
    it.happenings = [fails(), is_recovered]

    seen = it.submit()

    assert seen.end == "Escalated"
    assert "it cannot start as it is defined" in it.job.summary
    assert it.is_clean


@pytest.mark.parametrize(
    "start", [loses_its_host(0), both(exits(1, 1), loses_its_host(0))], ids=["the host alone", "the program, too"]
)
def test_a_host_that_is_lost_while_a_restart_starts_is_healed_and_brings_the_job_back(start: Start) -> None:
    it = job(start)
    it.happenings = [fails(), is_recovered, is_recovered, finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    assert it.run.number == 3
    assert endings(it) == [("exit_1", Ending.RECOVERED), ("79", Ending.RECOVERED)]
    assert it.is_clean


def test_a_host_that_is_lost_under_the_incident_that_restarts_is_healed_by_that_one() -> None:
    it = job(loses_its_host(1))
    it.happenings = [fails(), is_recovered, finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    assert it.run.number == 3
    assert endings(it) == [("exit_1", Ending.RECOVERED)]
    assert it.is_clean


def test_who_is_stopped_by_a_person_while_it_starts_stays_stopped() -> None:
    it = job(exits(1, 143, "UserInitiated: ada"))
    it.happenings = [fails(), is_recovered]

    assert it.submit().end == "Stopped"
    assert it.is_clean


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rank_that_is_done_before_the_others_have_started_is_no_failure(restarts: bool) -> None:
    def is_quickly_done(it: JobCluster) -> None:
        it.becomes(1, "STOPPED", 0)
        it.becomes(0, "RUNNING")

    it = job(is_quickly_done)
    if restarts:
        it.happenings = [fails(), is_recovered, finishes]
    else:
        it._ranks_start = lambda request: is_quickly_done(it)  # type: ignore[method-assign]
        it.happenings = [finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    assert "Attribute failure" not in seen.path or restarts
    assert it.run.number == (2 if restarts else 1)


def test_where_the_event_woke_nobody_the_look_at_the_deadline_says_the_same() -> None:
    it = job(exits(1, 1))
    seen: list[Any] = []

    def only_written(cluster: JobCluster) -> None:
        with patch("nodeheal.services.intake.wakeup.reconcile_all"):
            cluster.becomes(1, "STOPPED", 1, EXITED)
        seen.append(cluster)

    it = job(only_written)
    it.happenings = [fails(), is_recovered, is_recovered, finishes]

    assert it.submit().end == "Completed"
    assert len(seen) == 1
    assert it.run.number == 3


def test_a_rank_that_the_scheduler_refused_is_no_early_end() -> None:
    tasks = (
        GangTask(A, 0, "boot-1", A, "task-0", "STOPPED", 143, "nodeheal: refused", end_causes=(EndCause.ON_REQUEST,)),
        GangTask(B, 1, "boot-1", B, "", "STOPPED", None, NEVER_STARTED),
    )
    run, record = Run("llama", 2, NOW, "inc-1/3", tasks), ecs_job("llama", "demo", "c", "d", "e", 2, submission=1)

    assert early_end(record, run, tasks[0])[0] is Outcome.FAILED
