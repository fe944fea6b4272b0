"""What keeps hands off a node while its recovery is under way: modes, pauses, yes and no, limits, and who asked for it.

Each is one history, and says what is wrong with the next decision, which is nothing. `Story` takes only steps that the
core itself has decided.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.contract.names import OPERATOR_REQUEST
from nodeheal.contract.vocabulary import (
    Action,
    Ending,
    Escalation,
    NodeState,
    Outcome,
    Provider,
    Step,
    Verdict,
)
from nodeheal.domain.fleet.node import PastRecovery
from nodeheal.domain.recovery.guardrails import keep_machine_reason
from nodeheal.services.recovery.retire_broken import retire_broken
from tests.unit.builders import NOW, xid
from tests.unit.test_decide import OBSERVE, Story
from tests.unit.test_decide_among_others import with_policy
from tests.unit.test_guardrails import APPROVE, FULL, OPEN, waited
from tests.unit.test_replacement import A, Pool
from tests.unit.test_stop_start import of
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN
from tests.workflows.scenarios.turns import opened

LATER = NOW + timedelta(minutes=10)
STOPS = with_policy(default_pool={"mode": "act", "stop_start": True})


def _asked(action: Action = Action.REBOOT, **policy: Any) -> Story:
    """A human has asked for it."""
    return Story(xid(0, family="host", code=OPERATOR_REQUEST, subcode=action.value, event_id="asked"), **policy)


def _next(story: Story, *steps: Step) -> list[str]:
    decided = story.next()
    return [] if decided.step in steps else [f"{decided.step.value} {decided.action or ''} is next: {decided.reason}"]


def _ends(story: Story, ending: Ending, *why: Escalation) -> list[str]:
    decided = story.next()
    is_right = decided.ending is ending and (not why or decided.escalation in why)
    return [] if is_right else [f"it goes on with {decided.step}, {decided.ending}: {decided.reason}"]


# In the middle of a recovery


def its_next_step_is_only_observed() -> list[str]:
    policy = with_policy(default_pool={"mode": "act", "modes": {"REPLACE": "observe"}})
    return _next(Story(xid(79), policy=policy).isolated().rebooted().failed(), Step.ESCALATE)


def the_breaker_opens_when_it_is_isolated() -> list[str]:
    return _next(Story(xid(79)).isolated().amid(pool=OPEN), Step.WAIT)


def its_reboot_was_approved_and_did_not_help() -> list[str]:
    story = waited(Story(xid(79), policy=APPROVE), Outcome.DONE).isolated().rebooted().failed()
    return _next(story, Step.WAIT)


def nobody_resets_the_breaker_in_time() -> list[str]:
    story = Story(xid(79)).amid(pool=OPEN)
    return _ends(waited(story, Outcome.TIMED_OUT), Ending.HANDED_TO_A_HUMAN)


def its_pool_is_paused_when_its_job_fails_again() -> list[str]:
    """Its job was restarted already: whoever waits for it has to hear that nothing more is done."""
    story = Story(xid(31)).then(Outcome.DONE, "llama runs again")
    story.now = LATER
    again = xid(79, event_id="again", observed_at=LATER)
    paused = replace(story.history.context.pool, paused_until=LATER + timedelta(days=1), paused_why="ours")
    return _ends(story.reports(again).amid(pool=paused), Ending.HANDED_TO_A_HUMAN)


def it_is_given_back_when_it_is_isolated() -> list[str]:
    return _ends(Story(xid(79), job=None).isolated().amid(is_released_or_retired=True), Ending.OBSERVED_ONLY)


def its_job_runs_again_when_it_is_given_back() -> list[str]:
    story = Story(xid(79)).isolated().amid(is_released_or_retired=True, job_is_running=True)
    return _ends(story, Ending.OBSERVED_ONLY)


def it_fails_again_when_it_is_back() -> list[str]:
    story = Story(xid(79), job=None).isolated().rebooted().passed().then(Outcome.DONE)
    return _ends(story.reports(xid(79, event_id="again", boot_id="boot-2")), Ending.HANDED_TO_A_HUMAN)


# What is old by the time that its turn has come


def it_has_passed_while_it_stood_in_line() -> list[str]:
    return _ends(_in_line().amid(healthy_since=LATER), Ending.OBSERVED_ONLY)


def it_has_passed_and_said_so_while_it_stood_in_line() -> list[str]:
    well = xid(79, event_id="well", verdict=Verdict.OK, observed_at=LATER + timedelta(minutes=1))
    return _ends(_in_line().reports(well).amid(healthy_since=LATER), Ending.OBSERVED_ONLY)


def _in_line() -> Story:
    story = Story(xid(79)).then(Outcome.REFUSED, "the disruption budget is full", facts=FULL)
    story = waited(story, Outcome.DONE)
    story.now = LATER + timedelta(minutes=5)
    return story


# What was asked for by hand


def a_request_is_withdrawn_when_it_is_isolated() -> list[str]:
    """Its job was stopped for it, and is down."""
    return _ends(_asked().isolated().amid(is_released_or_retired=True), Ending.HANDED_TO_A_HUMAN)


def a_request_is_withdrawn_and_the_node_has_failed() -> list[str]:
    story = _asked().reports(xid(79)).amid(is_released_or_retired=True)
    return _ends(story, Ending.HANDED_TO_A_HUMAN)


def a_request_is_withdrawn_and_something_harmless_was_seen() -> list[str]:
    story = _asked().reports(xid(92, verdict=Verdict.DEGRADED)).amid(is_released_or_retired=True)
    return _ends(story, Ending.OBSERVED_ONLY)


def a_request_is_carried_out_in_a_pool_that_is_observed() -> list[str]:
    incident = _asked(Action.REPLACE).history.incident
    why = keep_machine_reason(incident, "", OBSERVE, NOW)
    return [f"what a human has asked to replace stays: {why}"] if why else []


def a_reboot_by_hand_has_not_helped() -> list[str]:
    story = _asked(policy=STOPS).amid(provider=Provider.ec2).isolated().rebooted().failed()
    return [] if story.next().action is not Action.STOP_START else ["he has asked for a reboot, and it is stopped"]


# The ladder


def a_hybrid_node_cannot_be_stopped() -> list[str]:
    return _is_not(Action.STOP_START, Story(xid(79), policy=STOPS).isolated().rebooted().failed())


def its_ladder_has_no_reboot() -> list[str]:
    return _is_not(Action.STOP_START, Story(xid(74), policy=STOPS).amid(provider=Provider.ec2).isolated())


def it_was_replaced_in_this_window() -> list[str]:
    story = Story(xid(79)).isolated()
    scope = f"node#{story.history.incident.node_id}"
    return _is_not(Action.REBOOT, story.amid(spent={(scope, Action.REPLACE): 1}))


def it_was_recovered_twice_this_week() -> list[str]:
    return _is_not(Action.REBOOT, recovered("inc-1", "inc-2").isolated())


def it_was_recovered_long_ago() -> list[str]:
    return _next(recovered("inc-1", "inc-2", days=30).isolated(), Step.REBOOT)


def it_was_recovered_once_and_is_in_its_second_recovery() -> list[str]:
    story = Story(xid(79))
    return _next(recovered("inc-1", story.history.incident.incident_id).isolated(), Step.REBOOT)


def it_was_recovered_once() -> list[str]:
    return _next(recovered("inc-1").isolated(), Step.REBOOT)


def recovered(*names: str, days: int = 1) -> Story:
    """A node with such recoveries to its name."""
    past = tuple(PastRecovery(name, NOW - timedelta(days=days)) for name in names)
    return Story(xid(79)).amid(recoveries=past)


def _is_not(action: Action, story: Story) -> list[str]:
    decided = story.next()
    return [f"{action.value} is next: {decided.reason}"] if decided.action is action else []


# Machines


def it_has_its_root_on_a_local_disk() -> list[str]:
    return _is_stopped(root_device="instance-store")


def it_was_bought_on_the_spot_market() -> list[str]:
    return _is_stopped(lifecycle="spot")


def it_is_tied_to_its_host() -> list[str]:
    return _is_stopped(tenancy="host")


def somebody_else_is_stopping_it() -> list[str]:
    return _is_stopped(state="stopping")


def _is_stopped(**machine: Any) -> list[str]:
    it = of(**machine)
    it.calls()
    return [f"{what.value} was asked of {name}" for name, what in it.ordered]


def a_replacement_is_asked_for_without_a_slot() -> list[str]:
    it = Pool()
    it.ports.pools.release("demo", A)
    it.replaces()
    return [f"{name} was given up" for name, _ in it.given_back]


def a_hybrid_node_has_its_successor() -> list[str]:
    """Nobody can give it back: it holds its slot until a human has seen to it."""
    it, mine = opened()
    it.is_written(state=NodeState.ISOLATED)
    it.does(lambda: retire_broken(BROKEN, mine, it.ports, ACTS))
    broken = it.plain.nodes.get(BROKEN)
    return [] if broken is not None and broken.state is NodeState.ISOLATED else ["it is retired, and stands there"]
