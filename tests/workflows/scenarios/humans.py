"""What people have said: hands off, no, not any more.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from contextlib import suppress

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.vocabulary import Action, Step
from nodeheal.services.operators.operator_guardrails import reset_breaker, trip_breaker
from nodeheal.services.operators.withdraw_request import withdraw_request
from tests.support.acts import requested
from tests.support.builders import NOW, xid
from tests.support.fake_cluster import BROKEN, SPARE
from tests.support.fuse import Fuse
from tests.workflows.breaking_world import BreakingWorld
from tests.workflows.scenarios.setup import (
    HANDED_OVER,
    RECOVERED,
    changes,
    ends_as,
    steps_of,
    world,
    wrong_with,
)
from tests.workflows.stories import STORIES


def _refused(command: Callable[[], object]) -> None:
    """A command that may be refused; who has given it reads why."""
    with suppress(ValueError):
        command()


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
    return requested(BROKEN, Action.REBOOT, "ada: it smells", it.plain)


def a_replacement_is_asked_for_and_it_boots() -> list[str]:
    """It comes up by itself before its place is taken: whoever asked does not want it back for that."""
    it = world()
    asked = requested(BROKEN, Action.REPLACE, "ada: it is a lemon", it.plain)
    it.meanwhile["isolate_node"] = [lambda: it._goes_down_and_comes_up(BROKEN)]
    it.reports(asked)
    return wrong_with(it, (Step.REPLACE in steps_of(it), "a replacement that was asked for was forgotten over a boot"))


def an_isolation_is_asked_for_and_its_program_fails_on_another_boot() -> list[str]:
    it = world()
    asked = requested(BROKEN, Action.ISOLATE, "ada: I look at its cables", it.plain)

    def fails() -> None:
        it._goes_down_and_comes_up(BROKEN)
        it._ingest(xid(31, event_id="later", boot_id="boot-2", observed_at=it.clock()))

    it.meanwhile["decide_next_step"] = [fails]
    it.reports(asked)
    return wrong_with(it, (Step.ISOLATE in steps_of(it), "an isolation that was asked for was forgotten over a boot"))


def an_isolation_of_an_idle_node_is_asked_for_and_it_boots() -> list[str]:
    it = world()
    asked = requested(SPARE, Action.ISOLATE, "ada: I look at its cables", it.plain)
    it.meanwhile["decide_next_step"] = [lambda: it._goes_down_and_comes_up(SPARE)]
    it.reports(asked)
    return wrong_with(it, (Step.ISOLATE in steps_of(it), "an isolation that was asked for was forgotten over a boot"))


def an_isolation_is_asked_for_and_it_fails() -> list[str]:
    """Whoever asked may have their hands in the machine."""
    it = world()
    asked = requested(BROKEN, Action.ISOLATE, "ada: I look at its cables", it.plain)
    it.meanwhile["isolate_node"] = [lambda: it._ingest(xid(79))]
    it.reports(asked)
    return wrong_with(it, ends_as(it, *HANDED_OVER), (Step.REBOOT not in steps_of(it), "it was rebooted under them"))
