"""A node that did not answer a check before a job: when the job may have it again."""

from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import DiagnosticsFinished
from nodeheal.contract.vocabulary import IncidentState, NodeState, Outcome, Verdict
from nodeheal.domain.jobs.job import CheckAnswer
from nodeheal.domain.recovery.incident import Incident
from nodeheal.services.intake import wakeup
from nodeheal.services.jobs.job_nodes import ASKED_AGAIN_SECONDS, unfit_of
from nodeheal.services.operators.close_incident import close_incident
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.steps import save_node
from tests.support.builders import CHECK, named
from tests.support.job_cluster import NODES, JobCluster, finishes, is_recovered

A, _, C, _ = NODES


def did_not_answer(**changes: Any) -> JobCluster:
    """The job runs on two others, and a human has the incident of node A."""
    it = JobCluster(**changes)
    it.hangs.add(A)
    it.happenings = [is_recovered]
    it.submit()
    assert incident_of(it).state is IncidentState.ESCALATED
    return it


def incident_of(it: JobCluster) -> Incident:
    found: list[Incident] = list(it.ports.incidents.incidents.values())  # type: ignore[attr-defined]
    return next(one for one in found if one.node_id == A)


def answers_late(it: JobCluster, verdict: Verdict = Verdict.OK, boot_id: str = "boot-1") -> None:
    event = DiagnosticsFinished(
        **it._fact(A, boot_id), request_id=named(CHECK, "llama-1-1-check", it.ports, A), verdict=verdict
    )
    wakeup.on_answer(event, it.ports)


def is_unfit(it: JobCluster) -> bool:
    return A in unfit_of(it.job, it.ports.nodes.in_pool("demo"), it.ports)


def test_a_node_that_answers_late_and_has_passed_comes_back_by_itself() -> None:
    it = did_not_answer()
    it.clock.advance(60)

    answers_late(it)

    assert not is_unfit(it)


@pytest.mark.parametrize("late", [{"verdict": Verdict.FAILED}, {"boot_id": "boot-0"}])
def test_a_late_answer_that_is_no_pass_of_this_boot_changes_nothing(late: dict[str, Any]) -> None:
    it = did_not_answer()
    it.clock.advance(60)

    answers_late(it, **late)

    assert is_unfit(it)


def test_a_human_who_closes_its_incident_gives_the_node_to_the_job_again() -> None:
    it = did_not_answer()
    it.clock.advance(60)

    close_incident(incident_of(it).incident_id, "ada: seen", it.ports)

    assert not is_unfit(it)


def test_a_human_who_releases_a_node_that_failed_its_check_gives_it_to_the_job_again() -> None:
    it = did_not_answer()
    save_node(it.ports, it.node(A), state=NodeState.QUARANTINED)
    it.clock.advance(60)

    release_node(A, "ada: repaired", it.ports)

    assert not is_unfit(it)


@pytest.mark.parametrize(
    ("name", "outcome", "times", "after", "unfit"),
    [
        (C, Outcome.UNKNOWN, 1, ASKED_AGAIN_SECONDS + 1, False),
        (C, Outcome.UNKNOWN, 1, ASKED_AGAIN_SECONDS - 1, True),
        (C, Outcome.UNKNOWN, 2, ASKED_AGAIN_SECONDS + 1, True),
        (C, Outcome.FAILED, 1, ASKED_AGAIN_SECONDS + 1, True),
        (A, Outcome.UNKNOWN, 1, ASKED_AGAIN_SECONDS + 1, True),
    ],
    ids=["once, an hour ago", "a moment ago", "twice", "it has failed", "it would not be checked: it passed before"],
)
def test_a_node_that_did_not_answer_is_asked_once_more_after_an_hour(
    name: str, outcome: Outcome, times: int, after: float, unfit: bool
) -> None:
    it = JobCluster()
    it.happenings = [finishes]
    it.submit()
    for number in range(times):
        said = CheckAnswer(
            f"llama-1-{number + 5}", name, "boot-1", outcome, "silent", it.clock() + timedelta(seconds=1)
        )
        it.ports.job_notes.note_answer("llama", said)

    it.clock.advance(after + 1)

    assert (name in unfit_of(it.job, it.ports.nodes.in_pool("demo"), it.ports)) is unfit
