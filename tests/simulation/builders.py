"""What the tests of the simulation are made of."""

from typing import Any

from nodeheal.simulation.faults import kinds
from nodeheal.simulation.setting import CALM, DAY, OperatorTimes, Setting, Work

HOUR = 3_600.0
PAGE_SECONDS = 1_800.0
OFF_THE_BUS = next(kind for kind in kinds() if kind.code == "79")
SOFTWARE_BUG = next(kind for kind in kinds() if kind.name == "software bug")
NVLINK = next(kind for kind in kinds() if kind.code == "74")
POWER = next(kind for kind in kinds() if kind.name == "power supply")


def quiet(nodes: int, gang_nodes: int, **changes: Any) -> Setting:
    """A pool in which nothing fails by itself: one gang, which never ends, and as many nodes free as are left."""
    return Setting(
        **{
            "nodes": nodes,
            "days": 5,
            "faults_a_node_day": 0,
            "cloud": CALM,
            "work": Work(share=gang_nodes / nodes + 0.01, gang_nodes=gang_nodes, days=100),
            "operators": OperatorTimes(page_seconds=PAGE_SECONDS, repair_seconds=DAY, spread=0.0),
            **changes,
        }
    )
