"""A service that nodeheal needs is down for an hour, while nodes fail.

Afterwards each fault is healed or a person's, none is acted on twice, and nobody had to empty a queue.
"""

from dataclasses import replace

import pytest

from nodeheal.contract.vocabulary import IncidentState, NodeState
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Breaker, Budget, Mode, PoolPolicy
from nodeheal.simulation.faults import SimulatedFault
from nodeheal.simulation.outages import AwsService, Outage
from nodeheal.simulation.world import SimulatedPool
from tests.simulation.builders import HOUR, OFF_THE_BUS, quiet

ACT = RecoveryPolicy(
    default_pool=PoolPolicy(mode=Mode.act, budget=Budget(max_nodes=8, max_percent=100)),
    breaker=Breaker(min_nodes=99, max_nodes=99),
)
BEGINS = 2 * HOUR


def struck(service: AwsService, *times: float) -> SimulatedPool:
    """A pool of eight nodes, four of them with a job, whose nodes lose a GPU at these times, each another node.

    Nobody reads a page, and nobody redrives: what heals, heals by itself.
    """
    people = replace(quiet(8, 4).operators, page_seconds=1e9, round_seconds=1e9)
    world = SimulatedPool(quiet(8, 4, days=1, policy=ACT, outages=(Outage(service, BEGINS),), operators=people))
    nodes = list(world.fleet.nodes.values())

    def strike(number: int) -> None:
        world.fleet.strike(nodes[number], OFF_THE_BUS)
        nodes[number].fault = SimulatedFault(OFF_THE_BUS, "reboot")

    for number, at in enumerate(times):
        world.agenda.at(at, lambda number=number: strike(number))  # type: ignore[misc]
    world.advance(24 * HOUR)
    world.finish(6 * HOUR)
    return world


def is_healed(world: SimulatedPool, node_id: str) -> bool:
    in_service = world.nodes.nodes[node_id].state in (NodeState.HEALTHY, NodeState.PROBATION)
    return in_service and world.fleet.nodes[node_id].fault is None


def is_healed_or_handed_over(world: SimulatedPool, node_id: str) -> bool:
    return is_healed(world, node_id) or world.nodes.nodes[node_id].state is NodeState.QUARANTINED


@pytest.mark.parametrize("service", AwsService)
def test_faults_within_an_outage_are_healed_once_it_is_over(service: AwsService) -> None:
    world = struck(service, BEGINS + 60, BEGINS + 1_800, BEGINS + 3_500)

    incidents = world.incidents.incidents.values()
    assert len({incident.node_id for incident in incidents}) == 3
    assert {incident.state for incident in incidents} <= {IncidentState.CLOSED, IncidentState.ESCALATED}
    assert all(is_healed_or_handed_over(world, node_id) for node_id in world.fleet.nodes)
    assert sum(is_healed(world, incident.node_id) for incident in incidents) >= 2
    assert world.watch.violations == []
    assert world.bus.dead == 0


@pytest.mark.parametrize("service", AwsService)
@pytest.mark.parametrize("before", [1.0, 30.0, 120.0, 400.0])
def test_a_recovery_that_an_outage_breaks_off_is_healed_or_a_persons_and_never_repeated(
    service: AwsService, before: float
) -> None:
    world = struck(service, BEGINS - before)

    [incident] = world.incidents.incidents.values()
    is_ended = incident.state is IncidentState.CLOSED and is_healed(world, incident.node_id)
    assert is_ended or incident.state is IncidentState.ESCALATED
    assert world.watch.violations == []
    assert world.bus.dead == 0
