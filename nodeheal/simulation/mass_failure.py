"""Simulates many nodes that fail within one second: how fast they are isolated with the breaker raised, and what
happens at its defaults.
"""

from collections.abc import Callable
from dataclasses import replace

from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Breaker, Budget, Mode, PoolPolicy
from nodeheal.simulation.report import SimulationReport, report_of
from nodeheal.simulation.setting import CALM, OperatorTimes, Setting, Work
from nodeheal.simulation.world import MASS_FAILURE_AT, SimulatedPool

WATCHED_SECONDS = 6 * 3_600.0


def settings_of(setting: Setting) -> dict[str, Setting]:
    """Return two settings: breaker and budget `raised`, and the breaker as `shipped`.

    No other fault, an idle pool, and no human who resets a breaker.
    """
    everything = Budget(max_nodes=setting.nodes, max_percent=100)
    policy = RecoveryPolicy(default_pool=PoolPolicy(mode=Mode.act, budget=everything))
    raised = policy.model_copy(update={"breaker": Breaker(min_nodes=setting.nodes + 2, max_nodes=setting.nodes + 2)})
    nobody = OperatorTimes(page_seconds=1e9)
    calm = replace(setting, cloud=CALM, faults_a_node_day=0.0, work=Work(share=0.0), days=1.0, operators=nobody)
    return {"raised": replace(calm, policy=raised), "shipped": replace(calm, policy=policy)}


def run_mass_failure(
    setting: Setting, read: Callable[[str], object] | None = None, until: float | None = None
) -> SimulationReport:
    """Run one of them with a trace, and stop after this many seconds where `until` is given."""
    world = SimulatedPool(setting, read)
    world.advance(MASS_FAILURE_AT + WATCHED_SECONDS if until is None else until)
    return report_of(world)
