"""What people have said: hands off, no, not any more.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Action, Step
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Answer, LinkRefused, Question
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.close_incident import close_incident
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool, reset_breaker, trip_breaker
from nodeheal.services.operators.request_action import request_action
from nodeheal.services.operators.withdraw_request import withdraw_request
from tests.unit.builders import NOW, xid
from tests.workflows.breaking_world import ACTS, QUIET, BreakingWorld
from tests.workflows.fake_cluster import BROKEN, LINKS, SPARE
from tests.workflows.fuse import Fuse
from tests.workflows.scenarios.setup import (
    HANDED_OVER,
    RECOVERED,
    answers,
    changes,
    ends_as,
    steps_of,
    world,
    wrong_with,
)
from tests.workflows.stories import STORIES, TEMPLATE, pool


def the_pool_is_observed() -> list[str]:
    it = world(RecoveryPolicy().model_copy(update=QUIET))
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, "Observed only"))


def the_node_is_opted_out() -> list[str]:
    it = world(ACTS.model_copy(update={"opted_out": {BROKEN: "ours"}}))
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, "Observed only"))


def the_node_is_paused() -> list[str]:
    it = world()
    pause_node(BROKEN, 10**6, "hands off", it.plain)
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, "Observed only"))


def the_pool_is_paused() -> list[str]:
    it = world()
    pause_pool("demo", 10**6, "hands off", it.plain)
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, "Observed only"))


def it_is_paused_in_the_middle() -> list[str]:
    it = world()
    it.fuse.meanwhile["wakeup.on_task_change", "jobs.save"] = lambda: pause_pool("demo", 10**6, "hands off", it.plain)
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *HANDED_OVER))


def a_human_says_no() -> list[str]:
    return _is_answered(lambda it: Answer.refuse)


def a_human_answers_too_late() -> list[str]:
    def late(it: BreakingWorld) -> Answer:
        it.clock.advance(10**6)
        return Answer.approve

    return _is_answered(late)


def _is_answered(say: Callable[[BreakingWorld], Answer]) -> list[str]:
    it = world(pool(mode="approve"))
    it.on_question = lambda request: answers(it, Question(request.incident_id, request.turn), say(it))
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *HANDED_OVER), (it.commands == [], "it was touched without a yes"))


def a_human_resets_the_breaker_meanwhile() -> list[str]:
    it = world()

    def trips_and_is_reset() -> None:
        trip_breaker("demo", "the same", it.plain)
        it.clock.advance(1)
        reset_breaker("demo", "looked at", it.plain)

    it.fuse.meanwhile["decide_next_step", "pools.save"] = trips_and_is_reset
    it._ingest(xid(79))
    for name in ("mi-crowd-1", "mi-crowd-2"):
        ingest(xid(79, node_id=name, instance_id=name, event_id=f"of-{name}"), it.plain, it.policy)
    it._decide({"Payload": {"incident_id": incident_id_of(xid(79)), "turn": 0}})
    is_open = it.plain.pools.get("demo").is_tripped
    return ["the breaker opened again for what a human had looked at"] if is_open else []


def a_link_is_forged() -> list[str]:
    return _is_read(lambda query: {**query, "answer": "approve"}, 60)


def a_link_is_old() -> list[str]:
    return _is_read(lambda query: query, -60)


def _is_read(change: Callable[[dict[str, str]], dict[str, str]], seconds: int) -> list[str]:
    now = world().clock()
    link = LINKS.link(Question("inc-1", 3), Answer.refuse, now + timedelta(seconds=seconds))
    query = dict(part.split("=") for part in link.partition("?")[2].split("&"))
    try:
        LINKS.read(change(query), now)
    except LinkRefused:
        return []
    return ["a link was taken that must be refused"]


def many_fail_for_one_cause() -> list[str]:
    it = world()
    crowd = [f"mi-crowd-{n}" for n in range(3)]
    it.before_walk = [xid(79, event_id=f"of-{n}", node_id=n, instance_id=n) for n in crowd]
    it.on_wait = lambda: None
    it.reports(xid(79))
    return [] if it.commands == [] else ["nodes are touched one by one, though the cause is not in them"]


def a_human_closes_what_is_at_work() -> list[str]:
    it = world()
    it.fuse.meanwhile["isolate_node", "nodes.save"] = lambda: _refused(
        lambda: close_incident(it.incident_id, "seen to", it.plain)
    )
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_human_closes_what_keeps_a_node_out() -> list[str]:
    it = STORIES[2].make(Fuse(writes_only=True))
    it.reports(xid(79))
    _refused(lambda: close_incident(it.incident_id, "seen to", it.plain))
    return it.faults()


def _refused(command: Callable[[], object]) -> None:
    """A command that may be refused; who has given it reads why."""
    with suppress(ValueError):
        command()


def a_request_is_withdrawn_while_it_is_carried_out() -> list[str]:
    it = world()
    it.fuse.meanwhile["isolate_node", "nodes.save"] = lambda: withdraw_request(BROKEN, "the wrong node", it.plain)
    it.reports(_asked_for(it))
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_request_is_withdrawn_that_has_isolated_its_node() -> list[str]:
    """It waits for the breaker, with the node out of service."""
    it = world()
    it.fuse.meanwhile["wakeup.on_task_change", "jobs.save"] = lambda: trip_breaker("demo", "6 fail", it.plain)

    def withdraws() -> None:
        withdraw_request(BROKEN, "the wrong node", it.plain)
        reset_breaker("demo", "looked at", it.plain)

    it.on_wait = withdraws
    it.reports(_asked_for(it))
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_request_is_withdrawn_after_a_fault() -> list[str]:
    it = STORIES[5].make(Fuse(writes_only=True))
    a_slot_is_free = it.on_wait

    def fails_and_is_withdrawn() -> None:
        ingest(xid(79), it.plain, it.policy)
        _refused(lambda: withdraw_request(BROKEN, "the wrong node", it.plain))
        it.on_wait = a_slot_is_free

    it.on_wait = fails_and_is_withdrawn
    it.reports(_asked_for(it))
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_request_is_withdrawn_while_its_node_is_written() -> list[str]:
    """He is told that it is withdrawn: then it is."""
    it = STORIES[5].make(Fuse(writes_only=True))
    a_slot_is_free = it.on_wait
    heard = changes(it, last_seen=NOW)
    it.fuse.meanwhile["withdraw_request", "incidents.finish"] = heard

    def withdraws() -> None:
        it.on_wait = a_slot_is_free
        it.does("withdraw_request", lambda: withdraw_request(BROKEN, "the wrong node", it.ports))

    it.on_wait = withdraws
    it.reports(_asked_for(it))
    return wrong_with(it, ends_as(it, "Observed only"), (it.commands == [], "it was touched, although withdrawn"))


def _asked_for(it: BreakingWorld) -> HealthEvent:
    """What an operator asks for by hand: a reboot."""
    return request_action(BROKEN, Action.REBOOT, "ada: it smells", it.plain)


def it_is_paused_before_the_broken_machine_goes() -> list[str]:
    """Its successor is proven, and meanwhile somebody works in the rack."""
    it = world(pool(), spare=False, machine=TEMPLATE)
    it.meanwhile["return_to_service"] = [lambda: pause_pool("demo", 10**6, "in the rack", it.plain)]
    it.reports(xid(74, **it.fault))
    return wrong_with(it, ends_as(it, *HANDED_OVER))


def a_replacement_is_asked_for_and_it_boots() -> list[str]:
    """It comes up by itself before its place is taken: whoever asked does not want it back for that."""
    it = world()
    asked = request_action(BROKEN, Action.REPLACE, "ada: it is a lemon", it.plain)
    it.meanwhile["isolate_node"] = [lambda: it._goes_down_and_comes_up(BROKEN)]
    it.reports(asked)
    return wrong_with(it, (Step.REPLACE in steps_of(it), "a replacement that was asked for was forgotten over a boot"))


def an_isolation_is_asked_for_and_its_program_fails_on_another_boot() -> list[str]:
    it = world()
    asked = request_action(BROKEN, Action.ISOLATE, "ada: I look at its cables", it.plain)

    def fails() -> None:
        it._goes_down_and_comes_up(BROKEN)
        it._ingest(xid(31, event_id="later", boot_id="boot-2", observed_at=it.clock()))

    it.meanwhile["decide_next_step"] = [fails]
    it.reports(asked)
    return wrong_with(it, (Step.ISOLATE in steps_of(it), "an isolation that was asked for was forgotten over a boot"))


def an_isolation_of_an_idle_node_is_asked_for_and_it_boots() -> list[str]:
    it = world()
    asked = request_action(SPARE, Action.ISOLATE, "ada: I look at its cables", it.plain)
    it.meanwhile["decide_next_step"] = [lambda: it._goes_down_and_comes_up(SPARE)]
    it.reports(asked)
    return wrong_with(it, (Step.ISOLATE in steps_of(it), "an isolation that was asked for was forgotten over a boot"))


def an_isolation_is_asked_for_and_it_fails() -> list[str]:
    """Whoever asked may have their hands in the machine."""
    it = world()
    asked = request_action(BROKEN, Action.ISOLATE, "ada: I look at its cables", it.plain)
    it.meanwhile["isolate_node"] = [lambda: it._ingest(xid(79))]
    it.reports(asked)
    return wrong_with(it, ends_as(it, *HANDED_OVER), (Step.REBOOT not in steps_of(it), "it was rebooted under them"))
