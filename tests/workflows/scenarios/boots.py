"""What was seen, sent or proven on another boot of the node.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from typing import Any

from nodeheal.contract.vocabulary import Step
from tests.support.builders import xid
from tests.support.fake_cluster import BROKEN
from tests.support.fuse import throttled
from tests.workflows.breaking_world import BreakingWorld
from tests.workflows.scenarios.setup import (
    HANDED_OVER,
    RECOVERED,
    ends_as,
    steps_of,
    world,
    wrong_with,
)
from tests.workflows.stories import TEMPLATE, pool


def it_fails_again_on_a_boot_of_its_own() -> list[str]:
    """Only its job was to be restarted; it boots by itself meanwhile, and falls off the bus."""
    it = world()
    again = xid(79, event_id="again", boot_id="boot-2")

    def fails() -> None:
        it._goes_down_and_comes_up(BROKEN)
        it._ingest(again.model_copy(update={"observed_at": it.clock()}))

    it.meanwhile["launch_gang"] = [fails]
    it.reports(xid(31))
    is_seen_to = it.node().healthy_since is not None or it.node().open_incident is not None
    return wrong_with(it, (is_seen_to, "what it showed on its new boot was lost"))


def its_call_breaks_and_it_comes_up_again(call: str, nth: int = 1, **said: Any) -> BreakingWorld:
    """It was being replaced."""
    it = world(pool(), **said)
    it.fuse.throttles("replace_node", call, nth)
    it.meanwhile["replace_node"] = [lambda: None, lambda: it._goes_down_and_comes_up(BROKEN)]
    it.reports(xid(74, **it.fault))
    return it


def it_comes_up_again_when_its_spare_is_claimed() -> list[str]:
    it = its_call_breaks_and_it_comes_up_again("operations.save")
    return wrong_with(it, ends_as(it, *HANDED_OVER), (Step.REPLACE in steps_of(it), "it was not replaced"))


def it_comes_up_again_when_its_successor_is_asked_for() -> list[str]:
    it = its_call_breaks_and_it_comes_up_again("machines.launch", spare=False, machine=TEMPLATE)
    given_up = it.plain.machines.given_back  # type: ignore[attr-defined]
    return wrong_with(it, ends_as(it, *RECOVERED), (len(given_up) == 1, "the new machine was forgotten"))


def it_comes_up_again_once_it_is_isolated() -> list[str]:
    """The call broke, and comes again: what was begun is brought to its end."""
    it = world()
    it.fuse.meanwhile["isolate_node", "scheduler.stop_rank"] = throttled
    it.meanwhile["isolate_node"] = [lambda: None, lambda: it._goes_down_and_comes_up(BROKEN)]
    it.reports(xid(79))
    refused = [turn for turn in it.plain.incidents.history(it.incident_id).turns if turn.is_refused]
    return wrong_with(it, ends_as(it, *RECOVERED), (refused == [], "it was isolated, and told that it was not"))
