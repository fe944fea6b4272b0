"""The table is restored to what it was an hour before, three times a day, while nodes fail and jobs run.

Nobody acts by the old records, and a person who runs `nodeheal reconcile` half an hour later makes them true again.
"""

from dataclasses import replace

import pytest

from nodeheal.contract.vocabulary import IncidentState, NodeState, Provider
from nodeheal.domain.operation import OperationState
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Breaker, Budget, Mode, PoolPolicy
from nodeheal.domain.records_epoch import Epoch
from nodeheal.simulation.restores import Restore
from nodeheal.simulation.setting import CALM, Setting, Work
from nodeheal.simulation.world import SimulatedPool
from tests.simulation.builders import HOUR, quiet

ACT = RecoveryPolicy(
    default_pool=PoolPolicy(mode=Mode.act, budget=Budget(max_nodes=8, max_percent=100)),
    breaker=Breaker(min_nodes=99, max_nodes=99),
)
RESTORED_AT = (5 * HOUR, 11 * HOUR, 17 * HOUR)
SEEDS = range(1, 7)


def restored(seed: int, provider: Provider = Provider.hybrid) -> SimulatedPool:
    """A day of a pool of sixteen nodes with three short jobs, on which something fails two or three times an hour."""
    setting = Setting(
        nodes=16,
        days=1,
        seed=seed,
        provider=provider,
        policy=ACT,
        faults_a_node_day=4,
        cloud=CALM,
        work=Work(share=0.8, gang_nodes=4, days=0.1),
        operators=replace(quiet(16, 4).operators, repair_seconds=2 * HOUR),
        restores=tuple(Restore(at, at - HOUR) for at in RESTORED_AT),
    )
    world = SimulatedPool(setting)
    world.advance(24 * HOUR)
    world.finish(48 * HOUR)
    return world


@pytest.mark.parametrize("provider", [Provider.hybrid, Provider.ec2])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_restored_table_breaks_no_promise_and_leaves_nothing_under_way(seed: int, provider: Provider) -> None:
    world = restored(seed, provider)

    assert [str(violation) for violation in world.watch.violations] == []
    incidents = world.incidents.incidents.values()
    assert {incident.state for incident in incidents} <= {IncidentState.CLOSED, IncidentState.ESCALATED}
    assert not world.raw.epoch.read().has_gone_back
    open_nodes = [node for node in world.nodes.nodes.values() if node.open_incident is not None]
    assert all(node.state is NodeState.QUARANTINED for node in open_nodes)
    late = [one for one in world.parts.operations.operations.values() if one.state is not OperationState.DELIVERED]
    assert [
        one.operation_id for one in late if one.line is not None and one.incident_id in world.incidents.incidents
    ] == []


def test_nobody_acts_between_the_restore_and_the_end_of_reconcile() -> None:
    """From the restore on, not from the next sweep on: each function looks for itself."""
    acted: list[float] = []
    lines: list[str] = []
    setting = Setting(
        nodes=16, days=1, policy=ACT, faults_a_node_day=24, cloud=CALM, restores=(Restore(5 * HOUR, 4 * HOUR),)
    )
    setting = replace(setting, operators=replace(setting.operators, page_seconds=HOUR))
    world = SimulatedPool(setting, lines.append)
    world.advance(5 * HOUR)
    act = world.watch.acted

    def note(verb: str, node_id: str, why: str) -> None:
        acted.append(world.agenda.now)
        act(verb, node_id, why)

    world.scheduler.on_act = world.commands.on_act = world.machines.on_act = note
    world.advance(9 * HOUR)

    assert acted
    assert min(acted) >= 6 * HOUR
    assert sum("stopped: its records went back" in line for line in lines) == 1  # one page


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_without_the_mark_a_restored_table_breaks_promises(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other tests find nothing of is there to be found."""
    monkeypatch.setattr(Epoch, "has_gone_back", False)

    found = {violation.invariant for violation in restored(seed).watch.violations}

    assert "no_attempt_beyond_its_limit" in found
