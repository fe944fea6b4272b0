"""What only shows where a gang is large, or a node stays dark."""

from nodeheal.domain.errors import NotAccepted
from nodeheal.simulation.agenda import Agenda
from nodeheal.simulation.cloud import CALL_SECONDS, Throttles
from nodeheal.simulation.setting import DAY, Quotas
from nodeheal.simulation.world import SimulatedPool
from tests.simulation.builders import HOUR, POWER, quiet


def _taken(throttles: Throttles, calls: int) -> int:
    taken = 0
    for _ in range(calls):
        try:
            throttles.take("ecs_reads", "DescribeContainerInstances")
            taken += 1
        except NotAccepted:
            break
    return taken


def test_the_calls_of_one_function_come_one_after_another() -> None:
    at_once, in_turn = (Throttles(Agenda(), Quotas(ecs_reads=(1 / CALL_SECONDS, 100))) for _ in range(2))
    in_turn.function_runs(True)

    assert _taken(at_once, 300) == 100
    assert _taken(in_turn, 300) == 300


def test_what_a_functions_calls_took_is_not_there_for_the_next_one() -> None:
    throttles = Throttles(Agenda(), Quotas(ecs_reads=(1 / CALL_SECONDS, 100)))
    for _ in range(2):
        throttles.function_runs(True)
        last = _taken(throttles, 300)
        throttles.function_runs(False)

    assert last < 300


def test_a_gang_larger_than_the_burst_of_a_quota_starts() -> None:
    world = SimulatedPool(quiet(128, 120, is_strict=False))

    world.advance(HOUR)

    (gang,) = world.work._gangs.values()
    assert gang.running_since is not None


def test_a_human_retires_a_node_that_stays_dark_and_the_job_goes_on_without_it() -> None:
    world = SimulatedPool(quiet(8, 6))
    world.advance(HOUR)
    (gang,) = world.work._gangs.values()
    dark = next(iter(gang.ranks.values())).node
    world.fleet.strike(dark, POWER)

    world.advance(6 * HOUR)

    assert gang.running_since is not None
    assert dark not in [rank.node for rank in gang.ranks.values()]
    assert len(world.fleet.nodes) == 7
    world.advance(3 * DAY)
    assert len(world.fleet.nodes) == 8  # repaired, and registered anew
    assert dark.node_id not in world.fleet.nodes
    assert world.watch.violations == []
