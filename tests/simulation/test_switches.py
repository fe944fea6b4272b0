"""A switch fails: the nodes of several racks lose their fabric in one moment, and none of them is broken."""

from dataclasses import replace

from nodeheal.contract.vocabulary import Provider
from nodeheal.simulation.schedules import schedule
from nodeheal.simulation.setting import Work
from nodeheal.simulation.world import SimulatedPool
from tests.simulation.builders import HOUR, quiet

RACKS = 4


def failed(provider: Provider = Provider.hybrid, nodes: int = 8) -> SimulatedPool:
    """Racks of two nodes; the switch of the first two of them fails after a minute."""
    world = SimulatedPool(replace(quiet(nodes, 2, work=Work(share=0)), racks_of=2, days=1, provider=provider))
    rack = next(iter(world.fleet.nodes.values())).rack
    world.agenda.at(60, lambda: world.switches.fail(rack))
    return world


def test_all_racks_of_a_switch_lose_their_fabric_in_one_moment_and_no_other() -> None:
    world = failed()

    world.advance(61)

    racks = sorted({node.rack for node in world.fleet.nodes.values()})
    hit = sorted({node.rack for node in world.fleet.nodes.values() if node.fault is not None})
    assert (len(racks), hit) == (RACKS, racks[:2])


def test_the_nodes_below_a_switch_are_well_once_it_is_back() -> None:
    world = failed(Provider.ec2)

    world.advance(24 * HOUR)

    assert [node.node_id for node in world.fleet.nodes.values() if node.fault is not None] == []
    assert len({one.node_id for one in world.incidents.incidents.values()}) > 1
    assert world.watch.violations == []


def test_in_half_of_the_schedules_switches_fail() -> None:
    rates = [schedule(number).switches_fail_a_day for number in range(200)]

    assert 70 < sum(rate > 0 for rate in rates) < 130
