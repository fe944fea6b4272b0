"""Each invariant can fail: with one guard taken away it names what was broken, and with the guard it is silent."""

from collections.abc import Callable
from typing import Any

import pytest

from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import Action, Ending, Provider, SchedulerKind
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.simulation import invariants
from nodeheal.simulation.faults import kinds
from nodeheal.simulation.hazards import Died
from nodeheal.simulation.schedules import run_schedule
from nodeheal.simulation.world import SimulatedPool
from tests.simulation.branches import BRANCHES, NO_RESTART, ONLY_REBOOTS, every_action_is_allowed
from tests.simulation.builders import HOUR, NVLINK
from tests.simulation.cases import ACT, CASES, TRAINS, a_gang_loses_a_node, calm, one_fault, strike
from tests.simulation.taken_away import Patch, every_attempt_is_granted, set_to


def _broken(name: str) -> list[str]:
    _, happen, policy, work = CASES[name]
    world = _played(calm(policy, work), happen)
    assert world.fleet.faults or name in ("nothing_stale_opens_an_incident", "nothing_is_left_of_a_job")
    return [violation.invariant for violation in world.watch.violations]


def _played(world: SimulatedPool, happen: Callable[[SimulatedPool], None]) -> SimulatedPool:
    happen(world)
    world.advance(8 * HOUR)
    world.finish(HOUR)
    return world


@pytest.mark.parametrize("name", CASES)
def test_without_its_guard_it_is_named(name: str, monkeypatch: Patch) -> None:
    take_away, *_ = CASES[name]
    take_away(monkeypatch)

    assert name in _broken(name)


@pytest.mark.parametrize("name", CASES)
def test_with_its_guard_nothing_is_broken(name: str) -> None:
    assert _broken(name) == []


def test_every_invariant_has_its_case() -> None:
    assert {check.__name__ for check in invariants.ALL} | {"one_rank_a_node"} == set(CASES)


def _told(words: str) -> list[tuple[str, str]]:
    _, _, happen, policy = BRANCHES[words]
    world = _played(calm(policy), happen)
    assert world.fleet.faults
    return [(violation.invariant, violation.text) for violation in world.watch.violations]


@pytest.mark.parametrize("words", BRANCHES)
def test_whatever_else_it_says_can_be_heard(words: str, monkeypatch: Patch) -> None:
    name, take_away, _, _ = BRANCHES[words]
    take_away(monkeypatch)

    assert any(invariant == name and words in text for invariant, text in _told(words))


@pytest.mark.parametrize("words", BRANCHES)
def test_and_nothing_is_said_with_its_guard(words: str) -> None:
    assert _told(words) == []


def test_what_one_action_may_do_in_a_pool_that_is_observed_is_no_harm() -> None:
    world = _played(calm(ONLY_REBOOTS), one_fault)

    (incident,) = world.incidents.incidents.values()
    assert (incident.ending, world.watch.violations) == (Ending.RECOVERED, [])


STOPS_TOO = ACT.model_copy(update={"default_pool": ACT.default_pool.model_copy(update={"stop_start": True})})


def _dies_after_its_reboot(world: SimulatedPool) -> None:
    """The first function that has a machine rebooted is gone before it can say so."""
    one_fault(world)
    call, gone = world.hazards.call, list[str]()

    def once(name: str, *given: Any) -> Any:
        answer = call(name, *given)
        if name == "machines.power" and not gone:
            gone.append(name)
            raise Died
        return answer

    world.hazards.call = once  # type: ignore[method-assign, assignment]


def test_a_node_that_is_rebooting_is_not_stopped_because_a_function_died(monkeypatch: Patch) -> None:
    whole = _played(calm(STOPS_TOO, provider=Provider.ec2), _dies_after_its_reboot)
    set_to(("nodeheal.operations.reboot.has_time_left", lambda *_: False))(monkeypatch)
    without = _played(calm(STOPS_TOO, provider=Provider.ec2), _dies_after_its_reboot)

    assert [act.verb for acts in whole.watch.acts.values() for act in acts] == ["isolate", "reboot"]
    assert whole.watch.violations == []
    (broken,) = without.watch.violations
    assert broken.invariant == "one_destructive_action_a_node"
    assert "s after a reboot of the same boot" in broken.text


ONE_RESTART = ACT.model_copy(
    update={
        "limits": {
            **ACT.limits,
            Action.RESTART_WORKLOAD: AttemptLimit(group=Action.RESTART_WORKLOAD, limit=1, window_seconds=86_400),
        }
    }
)


def _loses_a_node_twice(world: SimulatedPool) -> None:
    a_gang_loses_a_node(world)
    world.agenda.at(4 * HOUR, lambda: _lose_one(world))


def _lose_one(world: SimulatedPool) -> None:
    busy = (node for node in world.fleet.nodes.values() if world.work._on_node.get(node.node_id) and node.fault is None)
    world.fleet.strike(next(busy), NVLINK)


def test_a_restart_beyond_its_limit_is_named(monkeypatch: Patch) -> None:
    whole = _played(calm(ONE_RESTART, TRAINS), _loses_a_node_twice)
    every_attempt_is_granted(monkeypatch)
    without = _played(calm(ONE_RESTART, TRAINS), _loses_a_node_twice)

    assert whole.watch.violations == []
    told = {(one.invariant, one.text) for one in without.watch.violations}
    assert ("no_attempt_beyond_its_limit", "restart number 2 in 86400 s, 1 allowed") in told


def test_a_restart_in_a_pool_that_is_only_observed_is_named(monkeypatch: Patch) -> None:
    whole = _played(calm(NO_RESTART, TRAINS), _its_program_fails)
    every_action_is_allowed(monkeypatch)
    without = _played(calm(NO_RESTART, TRAINS), _its_program_fails)

    assert whole.watch.violations == []
    assert ("hands_off_where_told", "restart in observe mode") in {
        (one.invariant, one.text) for one in without.watch.violations
    }


def _its_program_fails(world: SimulatedPool) -> None:
    fault = next(kind for kind in kinds() if kind.code == "31")
    busy = (node for node in world.fleet.nodes.values() if world.work._on_node.get(node.node_id))
    world.agenda.at(2 * HOUR, lambda: world.fleet.strike(next(busy), fault))


ONLY_WATCHED = ACT.model_copy(update={"default_pool": ACT.default_pool.model_copy(update={"mode": Mode.observe})})
ASKS = ACT.model_copy(update={"default_pool": ACT.default_pool.model_copy(update={"mode": Mode.approve})})


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (ONLY_WATCHED, ("hands_off_where_told", "end in observe mode")),
        (ASKS, ("nothing_is_done_without_a_yes", "end, and nobody has said yes to it")),
        (ASKS, ("nothing_is_done_without_a_yes", "restart, and nobody has said yes to it")),
    ],
)
def test_a_gang_that_is_ended_where_nodeheal_may_not_is_named(
    policy: RecoveryPolicy, told: tuple[str, str], monkeypatch: Patch
) -> None:
    whole = _played(calm(policy, TRAINS), _its_program_fails)
    every_action_is_allowed(monkeypatch)
    without = _played(calm(policy, TRAINS), _its_program_fails)

    assert whole.watch.violations == []
    assert told in {(one.invariant, one.text) for one in without.watch.violations}


def test_a_yes_to_an_isolation_that_is_all_that_is_left_is_one() -> None:
    # Its pool asks before a reset, and only observes otherwise. The resets are spent: only the isolation is asked for.
    assert run_schedule(6_000_569, SchedulerKind.SLURM, resets=True).violations == []


def _limit(action: Action, often: int) -> AttemptLimit:
    return AttemptLimit(group=action, limit=often, window_seconds=86_400)


ONE_REBOOT_AN_ACCELERATOR = ACT.model_copy(
    update={
        "limits": {**ACT.limits, Action.REBOOT: _limit(Action.REBOOT, 3)},
        "accelerator_limits": {Action.REBOOT: _limit(Action.REBOOT, 1)},
    }
)


@pytest.mark.parametrize("slots", [(2, 2), (2, 3)], ids=["of the same accelerator", "of another one"])
def test_a_reboot_beyond_the_limit_of_an_accelerator_is_named(slots: tuple[int, int], monkeypatch: Patch) -> None:
    def it_fails_twice(world: SimulatedPool) -> None:
        node = next(iter(world.fleet.nodes.values()))
        for at, slot in zip((60, 3 * HOUR), slots, strict=True):
            strike(world, at)
            world.agenda.at(at, lambda slot=slot: setattr(node, "slot", slot))  # type: ignore[misc]

    whole = _played(calm(ONE_REBOOT_AN_ACCELERATOR), it_fails_twice)
    every_attempt_is_granted(monkeypatch)
    without = _played(calm(ONE_REBOOT_AN_ACCELERATOR), it_fails_twice)

    assert whole.watch.violations == []
    named = ["reboot number 2 in 86400 s, 1 allowed"] if slots[0] == slots[1] else []
    told = [one for one in without.watch.violations if one.invariant == "no_attempt_beyond_its_limit"]
    assert [one.text for one in told] == named


def test_accelerators_keep_their_serials_under_a_new_name_and_not_in_another_machine() -> None:
    fleet = calm().fleet
    name, node = next(iter(fleet.nodes.items()))
    node.slot = 3
    before = node.serial
    again = fleet.nodes[fleet.replacement_node(name).node_id]
    again.slot = 3
    fleet.move_to_another_host(node)

    assert (again.serial, again.node_id != name) == (before, True)
    assert before not in (node.serial, *(other.serial for other in fleet.nodes.values() if other is not again))
