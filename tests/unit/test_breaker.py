"""The breaker of a pool: what opens it, what waits for its reset, and what a reset drops."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.vocabulary import Awaited, Ending, Outcome, Step, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.faults.correlation import breaker_key, is_dropped_by_reset, reset_key
from nodeheal.domain.fleet.pool import Pool as PoolGuardrails
from nodeheal.domain.recovery.guardrails import breaker_cause
from nodeheal.domain.recovery.situation import Situation
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.operators.operator_guardrails import reset_breaker, trip_breaker
from nodeheal.services.recovery.wait_for_news import wait_for_news
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, NOW, xid
from tests.support.command_lines import must_parse
from tests.support.fake_cluster import FakeCluster
from tests.support.guardrails import OPEN, waited
from tests.support.incident_steps import A, Incident
from tests.support.observations import crowd
from tests.support.policies import with_policy
from tests.support.recovery_story import Story

LATER = NOW + timedelta(hours=1)


def dropped_by_a_reset(by: str = "ada", **event: Any) -> FakeCluster:
    """A fault has waited for the breaker for an hour, and was too old when a human reset it."""
    cluster = FakeCluster()
    trip_breaker("demo", "6 nodes of the pool fail together", cluster.ports)

    def an_hour_later() -> None:
        cluster.clock.advance(3_600)
        reset_breaker("demo", "the switch was replaced: port 7", cluster.ports, by)

    cluster.on_wait = an_hour_later
    cluster.reports(xid(79, **event))
    return cluster


def test_what_a_reset_drops_is_told_once_and_as_a_thing_of_the_pool() -> None:
    cluster = dropped_by_a_reset()

    [_, dropped] = [told for _, told in cluster.ports.notifier.announced]  # type: ignore[attr-defined]
    assert cluster.node().state_reason.startswith("in service unproven: XID 79 (GPU has fallen off the bus): it came")
    words = " ".join(dropped.body.split())

    assert dropped.subject == "[nodeheal] breaker reset: pool demo: what was stale by then is dropped"
    assert dropped.severity == "INFO"
    assert "\nBy: ada\nWhy: the switch was replaced: port 7\n" in dropped.body
    assert "XID 79 (GPU has fallen off the bus): it came more than 600 s before the breaker was reset; it" in words
    assert "Reset: 2026-03-01 04:00:00 UTC" in words
    assert "nothing was done to their nodes, and nobody has proven them" in words
    assert f"One of them: {A} (llama): XID 79" in words
    assert dropped.needed == ("nothing. A node that shows its fault again is recovered as usual.",)
    for line in ("incidents list demo --since 1d", "nodes reboot NODE --why ..."):
        assert f"nodeheal {line}" in dropped.body
        must_parse(line.split())


def test_drills_that_a_reset_drops_are_told_as_drills_and_apart_from_real_faults() -> None:
    drill, real = (
        cluster.ports.notifier.announced[-1][1]  # type: ignore[attr-defined]
        for cluster in (dropped_by_a_reset(evidence=f"NVRM: Xid 79 {DRILL_MARK}"), dropped_by_a_reset())
    )

    assert drill.subject == "[nodeheal] drill: breaker reset: pool demo: what was stale by then is dropped"
    assert "\nDrill: every fault that this is about was injected. The open breaker was real.\n" in drill.body
    assert "Drill" not in real.body
    assert drill.key != real.key


def test_a_reset_that_names_nobody_is_told_without_a_name() -> None:
    assert "\nBy:" not in dropped_by_a_reset(by="").ports.notifier.announced[1][1].body  # type: ignore[attr-defined]


def test_where_nothing_older_than_the_reset_is_kept_the_reason_does_not_count_to_zero() -> None:
    keeps_nothing = with_policy(breaker={"stale_seconds": 0})
    story = waited(Story(xid(79), policy=keeps_nothing).amid(pool=OPEN), Outcome.DONE)

    dropped = story.amid(pool=OPEN.reset("", LATER)).next()

    assert dropped.reason.endswith("bus): it came before the breaker was reset; it is dropped")


def test_another_reset_drops_under_another_key() -> None:
    first, later = (OPEN.reset("", at) for at in (NOW, LATER))

    assert reset_key(first) == reset_key(OPEN.reset("for another reason", NOW)) != reset_key(later)
    assert is_dropped_by_reset(reset_key(first))
    assert not is_dropped_by_reset(breaker_key(OPEN))


def test_a_fault_that_was_dropped_as_old_is_news_when_the_node_shows_it_again() -> None:
    cluster = dropped_by_a_reset()
    assert cluster.ports.incidents.history(cluster.incident_id).incident.ending is Ending.OBSERVED_ONLY

    again = xid(79, event_id="again", observed_at=cluster.clock())

    assert ingest(again, cluster.ports, cluster.policy) is Ingested.OPENED


def test_what_else_is_well_on_the_node_makes_an_old_fault_no_fresher() -> None:
    story = waited(Story(xid(79)).amid(pool=OPEN), Outcome.DONE)
    story.reports(xid(63, event_id="well", verdict=Verdict.OK, observed_at=LATER))

    decision = story.amid(pool=PoolGuardrails("demo", breaker_reset_at=LATER)).next()

    assert decision.ending is Ending.OBSERVED_ONLY
    assert "it came more than 600 s before" in decision.reason


def test_a_fault_that_came_again_shortly_before_the_reset_is_not_old() -> None:
    story = waited(Story(xid(79)).amid(pool=OPEN), Outcome.DONE)
    story.reports(xid(79, event_id="again", observed_at=LATER))

    assert story.amid(pool=PoolGuardrails("demo", breaker_reset_at=LATER)).next().step is Step.ISOLATE


def test_an_earlier_reset_drops_nothing_while_the_breaker_is_open_again() -> None:
    story = waited(Story(xid(79)).amid(pool=OPEN), Outcome.DONE)

    assert story.amid(pool=replace(OPEN, breaker_reset_at=LATER)).next().awaits is Awaited.BREAKER


def waits_for_the_breaker() -> Incident:
    it = Incident()
    trip_breaker("demo", "6 nodes of the pool fail together", it.ports)
    wait_for_news(it.request(), it.ports)
    assert it.is_waiting()
    return it


def test_a_reset_that_died_before_it_woke_anybody_is_made_up_for_by_the_sweep() -> None:
    it = waits_for_the_breaker()

    class Down:
        def queued(self, *_: object) -> object:
            raise NotAccepted("throttled")

    with pytest.raises(NotAccepted):
        reset_breaker("demo", "fixed", replace(it.ports, operations=Down()))  # type: ignore[arg-type]
    sweep(it.ports, ACT)

    assert it.resumed().outcome is Outcome.DONE


def test_the_same_reset_again_goes_on_where_the_first_died() -> None:
    it = waits_for_the_breaker()
    queued = it.ports.operations.queued
    it.ports.operations.queued = Mock(side_effect=NotAccepted("throttled"))  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        reset_breaker("demo", "fixed", it.ports)
    it.ports.operations.queued = queued  # type: ignore[method-assign]
    first = it.ports.pools.get("demo")
    it.clock.advance(60)

    assert reset_breaker("demo", "fixed", it.ports) == 1

    assert it.ports.pools.get("demo") == first  # what has failed since the first one is not looked at yet
    assert it.resumed().outcome is Outcome.DONE
    with pytest.raises(ValueError, match="not open"):
        reset_breaker("demo", "fixed", it.ports)


def test_the_sweep_wakes_nobody_while_the_breaker_is_open() -> None:
    it = waits_for_the_breaker()

    sweep(it.ports, ACT)

    assert it.is_waiting()


def test_what_wakes_a_wait_while_the_breaker_is_open_lets_it_wait_on() -> None:
    story = waited(Story(xid(79)).amid(pool=OPEN), Outcome.DONE, "something new was reported")

    assert story.next().awaits is Awaited.BREAKER


def test_all_that_an_open_breaker_holds_is_one_page_whatever_else_fails_beside_it() -> None:
    alone = Story(xid(79)).amid(pool=OPEN).next()
    among_many = Story(xid(79)).amid(pool=OPEN, observations=crowd(5), pool_nodes=10).next()

    assert alone.page_key == among_many.page_key


@pytest.mark.parametrize(("mode", "trips"), [("act", True), ("approve", True), ("observe", False)])
def test_the_breaker_opens_wherever_nodeheal_may_act_be_it_after_a_yes(mode: str, trips: bool) -> None:
    story = Story(xid(79)).amid(observations=crowd(5), pool_nodes=10)

    assert (breaker_cause(Situation(story.history, with_policy(default_pool={"mode": mode})), NOW) is not None) is trips


@pytest.mark.parametrize(
    ("code", "changes"),
    [(31, {}), (79, {"opted_out": {A: "lab machine"}})],
    ids=["a fault of the job's", "on a node that is opted out"],
)
def test_what_would_touch_no_node_opens_no_breaker(code: int, changes: dict[str, object]) -> None:
    story = Story(xid(code)).amid(observations=crowd(5), pool_nodes=10)

    assert breaker_cause(Situation(story.history, with_policy(**changes)), NOW) is None


class Down:
    """Pools whose slots cannot be given back: the call dies there."""

    def __init__(self, pools: object) -> None:
        self._pools = pools

    def __getattr__(self, name: str) -> object:
        return getattr(self._pools, name)

    def release(self, *_: object) -> None:
        raise ConnectionError("the call is lost")


def test_a_reset_that_others_write_over_is_written_again() -> None:
    it = Incident()
    trip_breaker("demo", "6 nodes of the pool fail together", it.ports)
    save, lost = it.ports.pools.save, iter([True])
    it.ports.pools.save = lambda pool: not next(lost, False) and save(pool)  # type: ignore[method-assign]

    reset_breaker("demo", "fixed", it.ports)

    assert not it.ports.pools.get("demo").is_tripped
