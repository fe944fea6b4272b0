"""Every hand-over to a human carries one closed word, and every word is one that really happens."""

import ast
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from nodeheal import domain
from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.results import Isolated, Refused
from nodeheal.contract.vocabulary import (
    Action,
    Confirmation,
    Ending,
    Escalation,
    Family,
    Outcome,
    Provider,
    Refusal,
    Verdict,
)
from nodeheal.domain.fleet.node import PastRecovery
from nodeheal.domain.recovery.decision_context import node_scope
from tests.support.builders import ACT, NOW, xid
from tests.support.guardrails import APPROVE, FULL, OPEN, no_capacity, waited
from tests.support.pauses import pause_of_pool
from tests.support.policies import with_policy
from tests.support.recovery_story import SPARE, Story
from tests.support.stop_start_incident import POOL

# Told by services, by the workflow's own tail and by rules; tests of the emails have them.
NOT_ENDINGS = {
    Escalation.APPROVAL_WANTED,
    Escalation.BREAKER_OPEN,
    Escalation.NODES_SILENT,
    Escalation.RECORDS_RESTORED,
    Escalation.RECOVERY_BROKE,
    Escalation.JOB_BROKE,
    Escalation.JOB_HANDED_OVER,
}
NODE = xid().node_id


def gone_in_circles() -> Story:
    story = Story(xid(79))
    turn = story.isolated().history.turns[0]
    story.history = replace(story.history, turns=(turn,) * ACT.max_turns)
    return story


def under_changed_rules() -> Story:
    story = Story(xid(79)).isolated()
    milder = {"fault": "xid/79", "ladder": ["RESTART_WORKLOAD"], "why": "a bad driver, and known"}
    story.policy = with_policy(overrides=[milder])
    return story


def never_settled() -> Story:
    no_gpus = xid(0, family=Family.nvml, code="NO_DEVICES", component=None, verdict=Verdict.FAILED)
    story = Story(no_gpus).amid(booted_at=NOW).then(Outcome.TIMED_OUT)
    story.now = NOW + timedelta(seconds=ACT.settle_seconds)
    return story


def paused_in_the_middle() -> Story:
    return Story(xid(79)).isolated().amid(pauses=pause_of_pool())


def without_capacity() -> Story:
    story = Story(xid(74)).isolated()
    for _ in range(ACT.capacity.tries - 1):
        story = waited(no_capacity(story), Outcome.TIMED_OUT)
    return no_capacity(story)


def a_lemon() -> Story:
    past = tuple(PastRecovery(f"inc-{n}", NOW - timedelta(days=n)) for n in range(1, ACT.lemon.incidents))
    story = Story(xid(79), policy=with_policy(lemon={"action": "ISOLATE"}))
    return story.amid(recoveries=past).isolated()


def a_lemon_that_was_asked_for() -> Story:
    by_hand = xid(0, family=Family.host, code=OPERATOR_REQUEST, subcode=Action.ISOLATE)
    return Story(by_hand).amid(recoveries=a_lemon().history.context.recoveries).isolated()


def a_lemon_that_could_not_be_replaced() -> Story:
    past = a_lemon().history.context.recoveries
    return Story(xid(79)).amid(recoveries=past).isolated().then(Outcome.REFUSED, "no spare")


def without_capacity_to_start() -> Story:
    """It was stopped, to be started on another host, and a replacement is no escalation step of its ladder."""
    rebooted = {"fault": "xid/79", "ladder": ["REBOOT"], "why": "we have no spare machines"}
    story = Story(xid(79), policy=with_policy(default_pool=POOL, overrides=[rebooted])).amid(provider=Provider.ec2)
    short = Refused(code=Refusal.NO_CAPACITY, missing="p5.48xlarge")
    return story.isolated().rebooted().failed().then(Outcome.FAILED, "it is stopped", facts=short)


def failed_again_as_a_spare() -> Story:
    again = xid(74, event_id="again", boot_id="boot-9", node_id=SPARE, instance_id=SPARE)
    return Story(xid(74)).isolated().swapped().passed().reports(again)


def of_which_the_policy_knows() -> Story:
    asks = {"fault": "xid/999", "ladder": ["ESCALATE"], "why": "our vendor wants to see it"}
    return Story(xid(999), policy=with_policy(overrides=[asks]))


def spent_before() -> Story:
    return Story(xid(74)).amid(spent={(node_scope(NODE), Action.REPLACE): 1}).isolated()


def silent_after_the_swap() -> Story:
    return Story(xid(74)).isolated().then(Outcome.TIMED_OUT, "no new machine came up")


def failed_in_service() -> Story:
    story = Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE)
    return story.reports(xid(79, event_id="again", boot_id="boot-2"))


def refused_return() -> Story:
    return Story(xid(79)).isolated().rebooted().passed().then(Outcome.REFUSED, "boot-3 has passed no diagnostics")


def new_machine_out_of_service() -> Story:
    return Story(xid(74)).isolated().renewed().passed().then(Outcome.FAILED, "it is not in the cluster")


def swapped() -> Story:
    return Story(xid(74)).isolated().swapped().passed().then(Outcome.DONE, "llama runs again")


def job_down_after_the_reboot() -> Story:
    return Story(xid(79)).isolated().rebooted().passed().then(Outcome.DONE).then(Outcome.REFUSED, "10 of 10 are spent")


ISOLATED = Isolated(is_drained=True)
STORIES: dict[Callable[[], Story], Escalation] = {
    lambda: Story(xid(999)): Escalation.UNKNOWN_FAULT,
    lambda: Story(xid(61)): Escalation.MANUAL_REVIEW_REQUIRED,
    of_which_the_policy_knows: Escalation.MANUAL_REVIEW_REQUIRED,
    lambda: Story(xid(31)).reports(xid(999)).then(Outcome.DONE): Escalation.UNKNOWN_FAULT,
    under_changed_rules: Escalation.POLICY_CHANGED,
    lambda: Story(xid(63)).amid(job_is_running=True).then(Outcome.TIMED_OUT): Escalation.JOB_END_TIMEOUT,
    never_settled: Escalation.STARTUP_UNCONFIRMED,
    lambda: Story(xid(79)).then(
        Outcome.REFUSED, facts=Refused(code=Refusal.EXTERNAL_REMEDIATOR)
    ): Escalation.EXTERNAL_REMEDIATOR,
    lambda: Story(xid(79)).then(Outcome.REFUSED): Escalation.NOT_ISOLATED,
    lambda: (
        Story(xid(79)).isolated().then(Outcome.REFUSED, "in service again", facts=Refused(code=Refusal.TAKEN_OVER))
    ): Escalation.TAKEN_OVER,
    lambda: waited(Story(xid(79)).then(Outcome.REFUSED, facts=FULL), Outcome.TIMED_OUT): Escalation.BUDGET_FULL,
    paused_in_the_middle: Escalation.RECOVERY_BLOCKED,
    lambda: waited(Story(xid(79), policy=APPROVE), Outcome.REFUSED): Escalation.APPROVAL_REFUSED,
    lambda: waited(Story(xid(79), policy=APPROVE), Outcome.TIMED_OUT): Escalation.APPROVAL_IGNORED,
    lambda: waited(Story(xid(79)).amid(pool=OPEN), Outcome.TIMED_OUT): Escalation.BREAKER_OVERDUE,
    silent_after_the_swap: Escalation.NEVER_RETURNED,
    lambda: Story(xid(74)).isolated().swapped().failed(): Escalation.DIAGNOSTICS_FAILED,
    lambda: Story(xid(79)).isolated().rebooted().then(Outcome.UNKNOWN): Escalation.DIAGNOSTICS_UNCLEAR,
    lambda: Story(xid(74)).then(Outcome.DONE, facts=ISOLATED).answers(Confirmation.UNKNOWN): Escalation.NOT_CONFIRMED,
    spent_before: Escalation.ATTEMPTS_SPENT,
    lambda: Story(xid(74)).isolated().then(Outcome.REFUSED, "no spare"): Escalation.LADDER_ENDED,
    failed_again_as_a_spare: Escalation.LADDER_ENDED,
    a_lemon: Escalation.LEMON,
    a_lemon_that_was_asked_for: Escalation.ISOLATED_ON_REQUEST,
    a_lemon_that_could_not_be_replaced: Escalation.LADDER_ENDED,
    lambda: Story(xid(54)).isolated(): Escalation.ISOLATED_ON_REQUEST,
    without_capacity: Escalation.NO_CAPACITY,
    without_capacity_to_start: Escalation.NO_CAPACITY,
    failed_in_service: Escalation.FAILED_AFTER_RETURN,
    refused_return: Escalation.NOT_BACK_IN_SERVICE,
    new_machine_out_of_service: Escalation.NOT_BACK_IN_SERVICE,
    swapped: Escalation.REPAIR_PENDING,
    job_down_after_the_reboot: Escalation.JOB_NOT_RESTARTED,
    lambda: Story(xid(31)).then(Outcome.FAILED): Escalation.JOB_NOT_RESTARTED,
    gone_in_circles: Escalation.DECISION_LIMIT,
}


@pytest.mark.parametrize(("tell", "code"), STORIES.items(), ids=[code.value for code in STORIES.values()])
def test_a_story_that_ends_with_a_human_says_why_in_one_word(tell: Callable[[], Story], code: Escalation) -> None:
    decision = tell().next()

    assert (decision.ending, decision.escalation) == (Ending.HANDED_TO_A_HUMAN, code), decision.reason


def test_every_word_that_an_incident_may_end_with_has_its_story() -> None:
    assert set(STORIES.values()) == set(Escalation) - NOT_ENDINGS


def test_every_hand_over_of_the_core_says_its_word() -> None:
    said = [
        ast.unparse(call.args[0])
        for path in Path(domain.__path__[0]).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "builder.escalate"
    ]

    assert len(said) > 20
    assert {word.split("(")[0] for word in said if not word.startswith("Escalation.")} == {
        "escalation_of_fault",
        "escalation_of_ladder",
        "code",
    }


def test_what_needs_no_human_has_no_such_word() -> None:
    assert Story(xid(92)).next().escalation is None
    assert Story(xid(79)).next().escalation is None
