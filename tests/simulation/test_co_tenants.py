"""Others in the pool: what is theirs is left alone, and the invariant that says so bites for each of them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import time

import pytest

from nodeheal.contract.vocabulary import Ending, Provider
from nodeheal.domain.fleet.pause import Pauses
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import MaintenanceWindow, Weekday
from nodeheal.domain.recovery import guardrails
from nodeheal.operations import isolate
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool
from nodeheal.services.recovery import retire_broken
from nodeheal.simulation.co_tenants import observing
from nodeheal.simulation.schedules import schedule
from nodeheal.simulation.setting import CALM, DAY, NOBODY, OperatorTimes, Others, Setting, Work
from nodeheal.simulation.world import SimulatedPool
from tests.simulation.builders import HOUR, NVLINK
from tests.simulation.cases import ACT, strike
from tests.without import without

ALL_WEEK = MaintenanceWindow(days=tuple(Weekday), starts_at=time(0), minutes=1_440, why="new firmware")
RESTRICTED = ACT.model_copy(
    update={"default_pool": ACT.default_pool.model_copy(update={"drills": True, "maintenance": (ALL_WEEK,)})}
)
KINDS = {"guest", "drained by people", "observes", "drill", "pauses"}  # as the trace names them
Cut = tuple[Callable[..., object], str, str]


def crowd(policy: RecoveryPolicy = ACT, provider: Provider = Provider.hybrid, **others: float) -> SimulatedPool:
    """A calm pool with these others in it."""
    return SimulatedPool(
        Setting(
            nodes=6,
            days=1,
            cloud=CALM,
            provider=provider,
            faults_a_node_day=0,
            work=Work(share=0),
            policy=policy,
            others=replace(NOBODY, **others),
            operators=OperatorTimes(page_seconds=1e9, round_seconds=1e9, spread=0.01),
        )
    )


def a_paused_node(world: SimulatedPool) -> None:
    for name in world.fleet.nodes:
        pause_node(name, 10**6, "ada: works there since 0", world.raw)


def a_paused_pool(world: SimulatedPool) -> None:
    pause_pool(world.setting.pool, 10**6, "ada: works there since 0", world.raw)


def a_pool_that_is_observed_by_now(world: SimulatedPool) -> None:
    world.agenda.at(60, lambda: world._come_into_force(observing(world.policy)))


def nothing_else(world: SimulatedPool) -> None:
    """The world is as it was made."""


_OTHER = "owner is not None and owner not in accepted"
_OBSERVED = "mode_of(builder, fault, fault.action) is Mode.observe"
CASES: dict[str, tuple[Callable[[], SimulatedPool], Callable[[SimulatedPool], None], Cut, str]] = {
    "opted out": (
        lambda: crowd(opted_out=1.0),
        nothing_else,
        (RecoveryPolicy.why_opted_out, "node_id in self.opted_out", "False"),
        "opted out",
    ),
    "repaired by another": (
        lambda: crowd(provider=Provider.ec2, repaired=1.0),
        nothing_else,
        (isolate._other_owner, _OTHER, "False"),
        "repairs",
    ),
    "in maintenance": (
        lambda: crowd(RESTRICTED),
        nothing_else,
        (RecoveryPolicy.why_only_observe, "window.holds(now)", "False"),
        "maintenance",
    ),
    "a paused node": (crowd, a_paused_node, (Pauses.why_paused, "self.of_node(node_id, now)", "None"), "paused node"),
    "a paused pool": (
        crowd,
        a_paused_pool,
        (Pauses.why_paused, "self.why_pool_is_paused(pool, now)", "''"),
        "paused pool",
    ),
    "observed since": (
        crowd,
        a_pool_that_is_observed_by_now,
        (guardrails.blocked_before_start, _OBSERVED, "False"),
        "observe mode",
    ),
}


def _played(make: Callable[[], SimulatedPool], happen: Callable[[SimulatedPool], None]) -> SimulatedPool:
    world = make()
    happen(world)
    strike(world, 600)
    world.advance(4 * HOUR)
    assert world.incidents.incidents
    return world


@pytest.mark.parametrize("name", CASES)
def test_what_is_others_is_left_alone(name: str) -> None:
    make, happen, _, _ = CASES[name]

    world = _played(make, happen)

    assert (world.watch.violations, world.watch.acts) == ([], {})


@pytest.mark.parametrize("name", CASES)
def test_without_its_guard_the_invariant_names_whose_it_was(name: str) -> None:
    make, happen, (where, guard, becomes), told = CASES[name]

    with without(where, guard, becomes):
        world = _played(make, happen)

    assert any(one.invariant == "hands_off_where_told" and told in one.text for one in world.watch.violations)


def _is_paused_before_the_broken_machine_goes() -> SimulatedPool:
    world = crowd(provider=Provider.ec2)
    strike(world, 60, kind=NVLINK, cure="hardware")
    world.machines.on_act = lambda verb, node_id, why: world.watch.acted(verb, node_id, why)
    while world.machines._launched == 0:
        assert world.agenda.step()
    pause_pool(world.setting.pool, 10**6, f"ada: works there since {world.agenda.clock().timestamp()}", world.raw)
    world.advance(world.agenda.now + 2 * HOUR)
    return world


def test_a_machine_that_somebody_works_on_by_now_is_not_given_up() -> None:
    world = _is_paused_before_the_broken_machine_goes()

    (incident,) = world.incidents.incidents.values()
    assert (incident.ending, world.watch.violations) == (Ending.HANDED_TO_A_HUMAN, [])
    assert "could not be given back and stays for a human: pool pool-00 is paused" in incident.summary


def test_without_its_guard_it_would_be_and_is_noticed() -> None:
    with without(retire_broken.retire_broken, "_held(request, ports, policy)", "''"):
        world = _is_paused_before_the_broken_machine_goes()

    assert [one.text for one in world.watch.violations] == ["replace in a paused pool"]


def test_a_drill_is_recovered_like_a_fault_where_the_policy_allows_it() -> None:
    allowed = ACT.model_copy(update={"default_pool": ACT.default_pool.model_copy(update={"drills": True})})
    worlds = [crowd(policy, drills_a_day=24.0) for policy in (allowed, ACT)]
    for world in worlds:
        world.advance(8 * HOUR)

    held, refused = (world.trace.counts["drill"] for world in worlds)
    assert (held > 2, refused) == (True, 0)
    endings = [one.ending for one in worlds[0].incidents.incidents.values()]
    assert Ending.RECOVERED in endings
    assert worlds[0].watch.violations == []


def test_random_schedules_meet_all_of_them() -> None:
    met: set[str] = set()
    for number in range(40):
        world = SimulatedPool(schedule(number))
        world.advance(world.setting.days * DAY)
        met |= KINDS & world.trace.counts.keys()
        met |= {"theirs"} if world.co_tenants.theirs else set()
        met |= {"nobody"} if world.setting.others == NOBODY else set()

    assert met == KINDS | {"theirs", "nobody"}


def test_where_there_is_nobody_nothing_is_drawn() -> None:
    world = crowd()

    world.advance(DAY)

    assert world.co_tenants.theirs == world.co_tenants.drained == set()
    assert Others() != NOBODY
