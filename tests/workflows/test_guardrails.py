"""The guardrails as the whole workflow feels them: asked and answered, queued and woken, tripped and reset, paused."""

from datetime import timedelta

import pytest

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import IncidentState, NodeState
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.answer_approval import answer_approval
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool, reset_breaker
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.sweep import sweep
from tests.support.builders import NOW, node, xid
from tests.support.fake_cluster import BROKEN, PEER, FakeCluster, crowd
from tests.support.policies import with_policy
from tests.support.walker import Walk

APPROVE = with_policy(default_pool={"mode": "approve", "budget": {"max_nodes": 1, "max_percent": 100}})


def steps(walked: Walk) -> list[str]:
    """The path without the loop's own states."""
    return [state for state in walked.path[1:] if state not in ("Decide next step", "Which step?")]


def asked(policy: RecoveryPolicy, *answers: Answer) -> tuple[FakeCluster, Walk]:
    """A fault in a pool that asks, with these answers to what is asked, in order; then silence."""
    cluster, left = FakeCluster(policy), list(answers)

    def answer(request: StepRequest) -> None:
        if left:
            question = Question(request.incident_id, request.turn)
            answer_approval(question, left.pop(0), "ada", "", cluster.ports)

    cluster.on_question = answer
    return cluster, cluster.reports(xid(79))


def test_approved_it_recovers_as_if_nobody_had_been_asked() -> None:
    cluster, walked = asked(APPROVE, Answer.approve, Answer.approve)

    assert steps(walked)[:3] == ["Wait for approval", "Isolate node", "Reboot node"]
    assert walked.end == "Recovered"
    assert cluster.job_nodes == [BROKEN, PEER]


@pytest.mark.parametrize("answers", [[Answer.refuse], []], ids=["refused", "ignored"])
def test_refused_or_ignored_nothing_is_touched_and_a_human_has_it(answers: list[Answer]) -> None:
    cluster, walked = asked(APPROVE, *answers)

    assert steps(walked) == ["Wait for approval", "End incident", "How did it end?", "Escalated"]
    assert cluster.commands == []
    assert cluster.job_nodes == [BROKEN, PEER]
    assert cluster.node().state is NodeState.HEALTHY


def test_an_incident_that_waits_for_an_answer_is_listed_as_waiting() -> None:
    cluster = FakeCluster(APPROVE)
    states: list[IncidentState] = []

    def look(request: StepRequest) -> None:
        states.append(cluster.ports.incidents.history(request.incident_id).incident.state)

    cluster.on_question = look
    cluster.reports(xid(79))

    assert states == [IncidentState.WAITING]


def test_an_incident_that_waits_for_a_slot_is_not_woken_because_its_job_has_ended() -> None:
    """The sweep tells an end again every minute: each wake-up would cost a decision, and the last one hands over."""
    cluster = FakeCluster()
    quarantined = node("mi-0dddddddddddddddd", state=NodeState.QUARANTINED)
    cluster.ports.nodes.save(quarantined)
    cluster.ports.pools.claim("demo", quarantined.node_id, 1)

    def time_passes() -> None:
        cluster._gang_becomes("STOPPED", exit_code=1)
        for _ in range(10):
            cluster.clock.advance(120)
            sweep(cluster.ports, cluster.policy)
        release_node(quarantined.node_id, "a new riser card", cluster.ports)

    cluster.on_wait = time_passes

    walked = cluster.reports(xid(79))

    assert steps(walked)[:4] == ["Isolate node", "Wait for condition", "Isolate node", "Reboot node"]
    (waited,) = [t.result for t in cluster.ports.incidents.history(cluster.incident_id).turns if t.decision.awaits]
    assert waited is not None
    assert waited.finished_at >= NOW + timedelta(minutes=20)


def test_a_full_budget_is_waited_for_and_the_recovery_goes_on_when_a_slot_is_free() -> None:
    cluster = FakeCluster()
    quarantined = node("mi-0dddddddddddddddd", state=NodeState.QUARANTINED)
    cluster.ports.nodes.save(quarantined)
    cluster.ports.pools.claim("demo", quarantined.node_id, 1)
    cluster.on_wait = lambda: release_node(quarantined.node_id, "a new riser card", cluster.ports)

    walked = cluster.reports(xid(79))

    assert steps(walked)[:4] == ["Isolate node", "Wait for condition", "Isolate node", "Reboot node"]
    assert walked.end == "Recovered"
    assert cluster.ports.pools.holders("demo") == []


def test_the_breaker_opens_before_anything_is_touched_and_what_is_fresh_goes_on_after_the_reset() -> None:
    cluster = FakeCluster()
    cluster.before_walk = crowd(3)
    cluster.on_wait = lambda: reset_breaker("demo", "the switch is new", cluster.ports)

    walked = cluster.reports(xid(79))

    assert steps(walked)[:3] == ["Wait for condition", "Isolate node", "Reboot node"]
    assert walked.end == "Recovered"


def test_the_breaker_that_is_reset_late_drops_what_is_old() -> None:
    cluster = FakeCluster()
    cluster.before_walk = crowd(3)

    def late() -> None:
        cluster.clock.advance(3_600)
        reset_breaker("demo", "the switch is new", cluster.ports)

    cluster.on_wait = late
    walked = cluster.reports(xid(79))

    assert steps(walked) == ["Wait for condition", "End incident", "How did it end?", "Observed only"]
    assert "it is dropped" in walked.output["summary"]
    assert cluster.commands == []


def test_all_that_fails_together_is_one_page() -> None:
    cluster = FakeCluster()
    cluster.before_walk = crowd(3)
    cluster.on_wait = lambda: None

    cluster.reports(xid(79))

    keys = [told.key for _, told in cluster.ports.notifier.announced]  # type: ignore[attr-defined]
    # Said by whoever opened it, and by the wait that follows: the same key is one email.
    assert keys[0].startswith("breaker/demo/")
    assert keys[1:] == [keys[0], f"{keys[0]}/overdue"]


def test_who_finds_the_breaker_open_has_nothing_to_say_but_that_it_waits() -> None:
    cluster = FakeCluster()
    pool = cluster.ports.pools.get("demo")
    cluster.ports.pools.save(pool.tripped("a storm", cluster.clock()))
    cluster.on_wait = lambda: None

    cluster.reports(xid(79))

    keys = [told.key for _, told in cluster.ports.notifier.announced]  # type: ignore[attr-defined]
    assert len([key for key in keys if not key.endswith("/overdue")]) == 1


def test_a_paused_pool_is_only_observed_and_its_fault_is_news_again_when_the_pause_is_over() -> None:
    cluster = FakeCluster()
    pause_pool("demo", 600, "new driver", cluster.ports)

    walked = cluster.reports(xid(79))

    assert walked.end == "Observed only"
    again = xid(79, event_id="again", observed_at=cluster.clock())
    assert ingest(again, cluster.ports, cluster.policy) == "REPEATED"
    cluster.clock.advance(601)
    later = xid(79, event_id="later", observed_at=cluster.clock())
    assert ingest(later, cluster.ports, cluster.policy) == "OPENED"


def test_a_paused_node_is_only_observed() -> None:
    cluster = FakeCluster()
    pause_node(BROKEN, 600, "in the hands of the vendor", cluster.ports)

    assert cluster.reports(xid(79)).end == "Observed only"


def test_a_pause_is_ended_by_one_of_no_length() -> None:
    cluster = FakeCluster()
    pause_pool("demo", 600, "new driver", cluster.ports)
    pause_pool("demo", 0, "", cluster.ports)

    assert cluster.reports(xid(79)).end == "Recovered"


def test_a_breaker_that_is_not_open_cannot_be_reset() -> None:
    with pytest.raises(ValueError, match="the breaker of pool demo is not open"):
        reset_breaker("demo", "", FakeCluster().ports)
