"""The table is restored to what it was an hour ago, while nodes fail: nobody acts by the old records, and a person who
runs `nodeheal reconcile` makes them true again.
"""

from dataclasses import replace

import pytest

from nodeheal.contract.vocabulary import IncidentState, NodeState
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Breaker, Budget, Mode, PoolPolicy
from nodeheal.simulation.restores import Restore
from nodeheal.simulation.setting import Setting, Work
from nodeheal.simulation.world import World
from tests.simulation.builders import HOUR, quiet

ACT = RecoveryPolicy(
    default_pool=PoolPolicy(mode=Mode.act, budget=Budget(max_nodes=8, max_percent=100)),
    breaker=Breaker(min_nodes=99, max_nodes=99),
)
RESTORES = tuple(Restore(at=hour * HOUR, back_to=(hour - 1) * HOUR) for hour in (5, 11, 17))
SEEDS = range(1, 7)


def restored(seed: int) -> World:
    """A pool of sixteen nodes with three short jobs, on which something fails every hour or so."""
    setting = Setting(
        nodes=16,
        days=1,
        seed=seed,
        policy=ACT,
        faults_a_node_day=4,
        cloud=quiet(16, 4).cloud,
        operators=quiet(16, 4).operators,
        work=Work(share=0.8, gang_nodes=4, days=0.1),
        restores=RESTORES,
        cool_down_days=2,
    )
    world = World(replace(setting, operators=replace(setting.operators, repair_seconds=2 * HOUR)))
    world.advance(24 * HOUR)
    world.finish(48 * HOUR)
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_a_restored_table_breaks_no_promise(seed: int) -> None:
    world = restored(seed)

    assert [str(violation) for violation in world.watch.violations] == []
