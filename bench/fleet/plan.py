"""Plans which fleets are simulated, under which keeper, for how long, and with how many seeds."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodeheal.contract.job_steps import GANG_AT_MOST
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Budget, Mode, PoolPolicy
from nodeheal.simulation.faults import kinds
from nodeheal.simulation.latency import AWS, NONE
from nodeheal.simulation.setting import CALM, DAY, Cloud, Setting, Work

GPUS_A_NODE = 8
# Failures a node-day, as published: see docs/fleet.md.
RATES = {"RSC-1": 6.5 / 1_000, "Llama 3": 419 / 54 / (16_384 / GPUS_A_NODE), "RSC-2": 2.34 / 1_000}
FLEETS = (128, 1_200, 2_048, 12_500)  # nodes: 1,024, 9,600, 16,384 and 100,000 GPUs
NODEHEAL, AT_AWS, BAD_CLOUD = "nodeheal", "nodeheal, AWS's latencies", "nodeheal, bad cloud"
BY_HAND, POLL = "restart by hand", "poll and wait"
KEEPERS = (NODEHEAL, AT_AWS, BY_HAND, POLL)  # the last two make no AWS calls: one latency is enough for them
WHOLE, EIGHT = "one job a pool", "jobs of 8 nodes"
WRITE_SECONDS = 30.0
JOB_DAYS = 14.0


@dataclass(frozen=True)
class Case:
    """One point of the report: a fleet under one keeper, for a number of days, once for each seed."""

    keeper: str = NODEHEAL
    nodes: int = 128
    rate: str = "RSC-1"
    mix: str = WHOLE
    days: float = 30.0
    seeds: int = 6
    spares: int = 8  # nodes that a pool's jobs leave free
    gang_nodes: int | None = None  # none: by the mix
    checkpoint_seconds: float = 1_800.0
    budget: int | None = None  # nodes of a pool; none: one in twenty
    poll_seconds: float = 60.0
    wait_seconds: float = 1_800.0
    page_seconds: float = 1_800.0

    def settings(self, seed: int) -> Iterator[Setting]:
        """Return its pools: as few as possible with at most GANG_AT_MOST nodes."""
        count = -(-self.nodes // GANG_AT_MOST)
        for number in range(count):
            yield self._pool(seed, number, self.nodes // count + (number < self.nodes % count))

    def _pool(self, seed: int, number: int, nodes: int) -> Setting:
        gang = self.gang_nodes or (nodes - self.spares if self.mix == WHOLE else 8)
        jobs = (nodes - self.spares) // gang
        setting = Setting(
            nodes=nodes,
            days=self.days,
            seed=seed,
            pool=f"pool-{number:03d}",
            faults_a_node_day=RATES[self.rate],
            cloud=Cloud() if self.keeper == BAD_CLOUD else CALM,
            latency=AWS if self.keeper == AT_AWS else NONE,
            work=Work((jobs * gang + 0.5) / nodes, gang, JOB_DAYS, self.checkpoint_seconds, WRITE_SECONDS),
            policy=None if self.budget is None else _with_budget(self.budget),
            is_strict=False,
        )
        return replace(setting, operators=replace(setting.operators, page_seconds=self.page_seconds))


def _with_budget(nodes: int) -> RecoveryPolicy:
    budget = Budget(max_nodes=nodes, max_percent=100)
    return RecoveryPolicy(default_pool=PoolPolicy(mode=Mode.act, budget=budget))


def mtbf_seconds(nodes: int, rate: str) -> float:
    """Return the time between two faults that end a job of this many nodes, without warnings."""
    among = kinds()
    ends = sum(kind.weight for kind in among if kind.effect != "warns") / sum(kind.weight for kind in among)
    return DAY / (RATES[rate] * ends * nodes)


_LENGTHS = {128: (60.0, 8), 1_200: (15.0, 4), 2_048: (10.0, 4), 12_500: (3.0, 3)}  # days, seeds
_MORE = {("RSC-1", 1_200): 8, ("RSC-1", 2_048): 8}  # seeds, where the first four were not conclusive
_AT_AWS_SEEDS = 2  # of fleets above the smallest: seconds of latency hardly matter beside minutes of recovery


def fleets() -> Iterator[Case]:
    """Return every size, rate and mix under each keeper, the most important first."""
    for rate in RATES:
        for nodes in FLEETS:
            days, seeds = _LENGTHS[nodes]
            seeds = _MORE.get((rate, nodes), seeds)
            for mix in (WHOLE, EIGHT):
                for keeper in KEEPERS:
                    fewer = keeper == AT_AWS and nodes > FLEETS[0]
                    yield Case(keeper, nodes, rate, mix, days, _AT_AWS_SEEDS if fewer else seeds)


def sweeps() -> dict[str, list[Case]]:
    """Return the effect of single settings, on 128 nodes (or 120 and the spares) at RSC-1's rate."""
    intervals = (300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0)
    return {
        "interval": [Case(keeper, checkpoint_seconds=every) for every in intervals for keeper in KEEPERS],
        "spares": [
            Case(keeper, 120 + spares, spares=spares, gang_nodes=120)
            for spares in (0, 1, 2, 4, 8)
            for keeper in KEEPERS
        ],
        "budget": [Case(keeper, budget=n, mix=EIGHT) for n in (1, 2, 3, 6, 12) for keeper in (NODEHEAL, AT_AWS)],
        "cloud": [Case(keeper, mix=mix) for mix in (WHOLE, EIGHT) for keeper in (NODEHEAL, AT_AWS, BAD_CLOUD)],
        "others": [
            *(Case(POLL, poll_seconds=poll, wait_seconds=wait) for poll, wait in ((60, 0), (60, 1_800), (300, 1_800))),
            *(Case(BY_HAND, page_seconds=page) for page in (600.0, 1_800.0, 7_200.0)),
        ],
    }


def quick(cases: list[Case]) -> list[Case]:
    """Return cases for a first look: two short runs each, on fleets of one small pool."""
    small = [replace(case, days=6.0, seeds=2) for case in cases if case.nodes <= 128]
    return [replace(case, nodes=case.nodes - 96, gang_nodes=case.gang_nodes and 24) for case in small]
