"""What the end of an incident leaves on record, and what its email says of the job."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Action, Ending, IncidentState, JobState, NodeState, Outcome, Step, Verdict
from nodeheal.domain.fleet.node import PastRecovery
from nodeheal.domain.recovery.ending import past_recovery
from nodeheal.domain.recovery.incident import History, Incident, Turn
from nodeheal.domain.recovery.situation import Situation
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.steps import save_node
from tests.support.builders import ACT, NOW, memory_ports, stored_job, xid
from tests.support.fake_cluster import BROKEN, PEER, FakeCluster, without_job
from tests.support.guardrails import APPROVE
from tests.support.incident_steps import A, B, C, healed
from tests.support.observations import later
from tests.support.queues import left_to_an_incident_that_asks

STEPS = (
    (Step.ISOLATE, Outcome.DONE, 10),
    (Step.DIAGNOSE, Outcome.DONE, 30),
    (Step.DIAGNOSE, Outcome.FAILED, 90),
    (Step.REBOOT, Outcome.DONE, 60),
)


def lasted(*steps: tuple[Step, Outcome, int]) -> History:
    """A recovery whose steps took so many seconds, one after another."""
    at, turns = NOW, []
    for step, outcome, seconds in steps:
        decision = Decision(step=step, reason="it is next", node_id=BROKEN)
        decided_at, at = at, at + timedelta(seconds=seconds)
        result = StepResult(step=step, node_id=BROKEN, outcome=outcome, reason="", finished_at=at)
        turns.append(Turn(decision, result, decided_at))
    return History(Incident("inc-1", BROKEN, "demo", xid(79), NOW, "1"), (xid(79),), tuple(turns))


@pytest.mark.parametrize(("ending", "seconds"), [(Ending.RECOVERED, 180.0), (Ending.HANDED_TO_A_HUMAN, None)])
def test_what_a_recovery_took_is_kept_of_one_that_recovered(ending: Ending, seconds: float | None) -> None:
    history, ports = lasted(*STEPS), memory_ports()
    ports.clock.advance(190)  # type: ignore[attr-defined]
    decided = Decision(step=Step.CLOSE, reason="it is over", node_id=BROKEN, ending=ending)

    past = past_recovery(Situation(history, ACT), decided, ports.clock())

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

    end_incident(StepRequest(incident_id=it.id, turn=9, decision=closes.decision), it.ports, ACT)

    [(_, mail)] = it.ports.notifier.announced  # type: ignore[attr-defined]
    assert mail.subject.startswith(f"[nodeheal] recovered: {it.node().node_id}, llama: XID 79")


def test_a_drill_on_a_node_without_a_job_can_wait_until_morning() -> None:
    cluster = without_job(FakeCluster())

    cluster.reports(xid(999, evidence=f"NVRM: Xid (PCI:0000:b9:00): 999 {DRILL_MARK}"))

    [(_, mail)] = cluster.ports.notifier.announced  # type: ignore[attr-defined]
    assert (mail.severity, mail.subject.split(":")[0]) == ("INFO", "[nodeheal] drill")


def test_a_swap_counts_as_a_recovery_of_the_broken_node_and_leaves_its_proven_spare_healthy() -> None:
    cluster = FakeCluster()
    cluster.reports(xid(74))

    spare = cluster.node(C)

    assert (spare.state, spare.open_incident, spare.recoveries) == (NodeState.HEALTHY, None, ())
    assert len(cluster.node(A).recoveries) == 1


def test_a_spare_without_a_proof_is_suspect_and_says_why() -> None:
    cluster = FakeCluster()
    cluster.diagnoses = {C: Verdict.FAILED}

    cluster.reports(xid(74))

    assert (cluster.node(C).state, cluster.node(C).state_reason) == (NodeState.SUSPECT, "no proof as a spare")


def test_everything_that_the_last_decision_knew_is_settled_and_its_summary_is_kept() -> None:
    cluster = FakeCluster()
    cluster.before_walk = [xid(92, event_id="beside", observed_at=later(1))]
    cluster.reports(xid(999))

    incident = cluster.ports.incidents.history(cluster.incident_id).incident

    assert "The catalog does not know this fault" in incident.summary
    again = xid(92, event_id="again", observed_at=later(60))
    assert ingest(again, cluster.ports, ACT) is Ingested.REPEATED


def test_an_application_fault_whose_job_could_not_be_restarted_is_settled() -> None:
    cluster = FakeCluster()
    cluster.deaf = {PEER}
    assert cluster.reports(xid(31)).end == "Escalated"

    assert ingest(xid(31, event_id="again", observed_at=later(60)), cluster.ports, ACT) is Ingested.REPEATED


def test_a_relapse_after_the_return_is_told_and_its_repeat_is_news() -> None:
    it = healed()
    it.clock.advance(5)
    relapse = xid(79, event_id="relapse", boot_id="boot-2", observed_at=it.clock())
    assert ingest(relapse, it.ports, ACT) is Ingested.JOINED

    ending = it.request()
    end_incident(ending, it.ports, ACT)

    assert ending.decision.ending is Ending.HANDED_TO_A_HUMAN
    again = xid(79, event_id="again", boot_id="boot-2", observed_at=it.clock())
    assert ingest(again, it.ports, ACT) is Ingested.OPENED


def test_an_incident_that_never_brings_back_the_job_that_was_left_to_it_says_so() -> None:
    it, answered = left_to_an_incident_that_asks()
    it.ports.incidents.finish(
        replace(it.ports.incidents.history(it.id).incident, state=IncidentState.CLOSED, ending=Ending.RECOVERED)
    )
    decision = decide_next_step(answered, it.ports, APPROVE)
    assert decision.ending is Ending.HANDED_TO_A_HUMAN

    end_incident(StepRequest(incident_id=answered.incident_id, turn=2, decision=decision), it.ports, APPROVE)

    [(_, mail)] = it.ports.notifier.announced  # type: ignore[attr-defined]
    assert "\nNeeded:\n1. llama is stopped." in mail.body


def test_an_incident_that_is_dropped_does_not_forget_the_job_that_was_left_to_it() -> None:
    it, answered = left_to_an_incident_that_asks()
    it.ports.incidents.finish(
        replace(it.ports.incidents.history(it.id).incident, state=IncidentState.CLOSED, ending=Ending.RECOVERED)
    )
    assert answered.result is not None
    approved = answered.model_copy(update={"result": answered.result.model_copy(update={"outcome": Outcome.DONE})})
    save_node(it.ports, it.node(B), boot_id="boot-2")  # somebody has rebooted it in the meantime

    decision = decide_next_step(approved, it.ports, APPROVE)

    assert decision.step in (Step.RESTART_WORKLOAD, Step.ESCALATE)
