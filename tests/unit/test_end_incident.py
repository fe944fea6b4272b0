"""What the end of an incident leaves on record, and what its email says of the job."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Action, Ending, JobState, Outcome, Step, Verdict
from nodeheal.domain.fleet.node import PastRecovery
from nodeheal.domain.recovery.incident import History, Incident, Turn, decision_entry
from nodeheal.domain.recovery.progress import read_progress
from nodeheal.services.recovery import end_incident
from tests.support.builders import ACT, NOW, memory_ports, stored_job, xid
from tests.support.fake_cluster import BROKEN, FakeCluster, without_job
from tests.support.queues import left_to_an_incident_that_asks

STEPS = (
    (Step.ISOLATE, Outcome.DONE, 10),
    (Step.DIAGNOSE, Outcome.DONE, 30),
    (Step.DIAGNOSE, Outcome.FAILED, 90),
    (Step.REBOOT, Outcome.DONE, 60),
)


def lasted(*steps: tuple[Step, Outcome, int]) -> History:
    """A recovery whose steps took so many seconds, one after another."""
    at, turns, timeline = NOW, [], []
    for number, (step, outcome, seconds) in enumerate(steps):
        decision = Decision(step=step, reason="it is next", node_id=BROKEN)
        timeline.append(decision_entry(number, decision, at))
        at += timedelta(seconds=seconds)
        turns.append(Turn(decision, StepResult(step=step, node_id=BROKEN, outcome=outcome, reason="", finished_at=at)))
    return History(Incident("inc-1", BROKEN, "demo", xid(79), NOW, "1"), (xid(79),), tuple(turns), tuple(timeline))


@pytest.mark.parametrize(("ending", "seconds"), [(Ending.RECOVERED, 180.0), (Ending.HANDED_TO_A_HUMAN, None)])
def test_what_a_recovery_took_is_kept_of_one_that_recovered(ending: Ending, seconds: float | None) -> None:
    history, ports = lasted(*STEPS), memory_ports()
    ports.clock.advance(190)  # type: ignore[attr-defined]
    decided = Decision(step=Step.CLOSE, reason="it is over", node_id=BROKEN, ending=ending)

    past = end_incident._past(history, read_progress(history, ACT), decided, ports)

    assert past == PastRecovery("inc-1", NOW, seconds, rung=Action.REBOOT, proof_seconds=30.0)


def test_a_job_that_runs_again_on_a_spare_is_not_said_to_be_down() -> None:
    cluster = FakeCluster()
    cluster.diagnoses[BROKEN] = Verdict.FAILED

    cluster.reports(xid(79))

    assert cluster.told[-1].startswith(f"[nodeheal] needs a human: {BROKEN}, llama runs again: XID 79")


def test_a_job_that_another_incident_has_brought_back_and_that_is_done_is_not_said_to_be_down() -> None:
    it, _ = left_to_an_incident_that_asks()
    it.resumed()
    closes = it.request()
    job = stored_job(it.ports, "llama")
    it.ports.jobs.save(replace(job, state=JobState.COMPLETED))

    end_incident.end_incident(StepRequest(incident_id=it.id, turn=9, decision=closes.decision), it.ports, ACT)

    [(_, mail)] = it.ports.notifier.announced  # type: ignore[attr-defined]
    assert mail.subject.startswith(f"[nodeheal] recovered: {it.node().node_id}, llama: XID 79")


def test_a_drill_on_a_node_without_a_job_can_wait_until_morning() -> None:
    cluster = without_job(FakeCluster())

    cluster.reports(xid(999, evidence=f"NVRM: Xid (PCI:0000:b9:00): 999 {DRILL_MARK}"))

    [(_, mail)] = cluster.ports.notifier.announced  # type: ignore[attr-defined]
    assert (mail.severity, mail.subject.split(":")[0]) == ("INFO", "[nodeheal] drill")
