"""`python -m bench.fleet.slow`: ETTR lost to hangs, slow nodes and diverged losses, by arithmetic on published rates.

Neither simulated nor measured: cases a node-day, times what a case costs. docs/fleet.md says what each rate counts.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.fleet.plan import FLEETS, GPUS_A_NODE, RATES, Case
from bench.fleet.plots import draw_losses
from bench.fleet.runs import ROOT
from bench.fleet.tables import into_page, table
from bench.slow_jobs import WORK

BEGIN = "<!-- written by: python -m bench.fleet.slow --write-page -->"
DAY_MINUTES = 1_440.0
MONTH_DAYS = 365 / 12

# ByteDance, arXiv 2509.16293: three months of all its training jobs (table 1), and what the analyzer resolved in a job
# of three months and one of a month on 1,200 nodes, hangs and slowdowns together (table 4).
HANGS, SLOWDOWNS, NO_NUMBERS, EXPLICIT = 5_506, 442, 148, 38_236
OF_TWO_JOBS = (15 + 9) / (4 * MONTH_DAYS * 1_200)

RESTART = 10.0  # between ByteDance's 454 s on 2,048 GPUs and 768 s on 16,384 (table 7, requeue)
REWORK = Case.checkpoint_seconds / 60 / 2  # half of the interval between checkpoints
PAGE = Case.page_seconds / 60  # until an email is looked at
LOOK, LOOK_AT_PACE = 60.0, 240.0  # until somebody looks by chance: every two hours, and once in a shift of eight; ours
SEARCH = 30.0  # for the node that slows a job; ours
ALERTED = 1.0  # by nodeheal, at most: a hang, or a loss that is not a number, in an event
PACE_ANNOUNCED, RANK_ANNOUNCED = 10.0, 4.0  # by nodeheal, simulated: docs/benchmarks.md#slow-jobs

HUMAN, EMAIL, RESTARTS = "a human looks", "nodeheal tells a human", "nodeheal restarts"
# Minutes of no training until the restart begins. PyTorch's time-out is the second with NCCL, and the first with others
# (and with NCCL until October 2023).
UNTIL_RESTART = {
    "a time-out of 30 min": 30.0,
    "a time-out of 10 min": 10.0,
    HUMAN: LOOK,
    EMAIL: ALERTED + PAGE,
    RESTARTS: ALERTED,
}
ALL_SLOWER, ONE_SLOW = 1.15, 1.0 + WORK / 2  # times as long a step: the two that bench.slow_jobs plays
UNTIL_SWAP = {
    (ALL_SLOWER, HUMAN): LOOK_AT_PACE + SEARCH,
    (ALL_SLOWER, EMAIL): PACE_ANNOUNCED + PAGE + SEARCH,
    (ONE_SLOW, HUMAN): LOOK_AT_PACE + SEARCH,
    (ONE_SLOW, EMAIL): RANK_ANNOUNCED + PAGE,  # the email names the rank
    (ONE_SLOW, "nodeheal swaps"): RANK_ANNOUNCED,  # as if each measured why, and had a spare
}


@dataclass(frozen=True)
class PublishedRate:
    """Cases a node-day of training. None: not published."""

    hangs: float
    slow: float | None = None
    diverged: float | None = None


def in_proportion(faults: float) -> PublishedRate:
    """Return as many cases for each fault as ByteDance's jobs had for each explicit failure."""
    return PublishedRate(*(faults * count / EXPLICIT for count in (HANGS, SLOWDOWNS, NO_NUMBERS)))


PUBLISHED = {
    "Llama 3": PublishedRate(7 / 54 / (16_384 / GPUS_A_NODE)),
    "ByteDance's two jobs": PublishedRate(
        OF_TWO_JOBS * HANGS / (HANGS + SLOWDOWNS), OF_TWO_JOBS * SLOWDOWNS / (HANGS + SLOWDOWNS)
    ),
    "RSC-1, ByteDance's proportions": in_proportion(RATES["RSC-1"]),
}


def stopped_minutes(until_restart: float) -> float:
    """Return what a case costs that makes no progress: the wait, the restart, and the work of no checkpoint."""
    return until_restart + RESTART + REWORK


def slow_minutes(until_swap: float, times: float) -> float:
    """Return what a node costs that makes each step so many times as long, until a restart without it."""
    return until_swap * (1 - 1 / times) + RESTART + REWORK


def break_even_minutes(times: float) -> float:
    """Return for how long a job must be so slow that a restart without the node costs no more than the slowness."""
    return (RESTART + REWORK) / (1 - 1 / times)


COSTS_OF_HANGS = {way: stopped_minutes(wait) for way, wait in UNTIL_RESTART.items()}


def lost(rate: float, nodes: int, minutes: float) -> float:
    """Return the share of a job's time, 0 to 1, that cases of so many minutes take; they occur while it trains."""
    for_each_minute = rate * nodes * minutes / DAY_MINUTES
    return for_each_minute / (1 + for_each_minute)


def costs_of_slow_nodes() -> dict[str, float]:
    """Return the minutes of a slow node, by how it slows the job and is noticed."""
    return {f"{_longer(times)}: {way}": slow_minutes(wait, times) for (times, way), wait in UNTIL_SWAP.items()}


def tables() -> str:
    """Return the tables of the page: ETTR points lost, by rate, size and how a case is noticed."""
    diverged = {way: COSTS_OF_HANGS[way] for way in (HUMAN, EMAIL, RESTARTS)}
    pays = ", ".join(f"{break_even_minutes(times):.0f} min at {_longer(times)}" for times in (ALL_SLOWER, ONE_SLOW))
    return "\n\n".join(
        [
            "**Hangs: ETTR points lost**",
            _table({name: rate.hangs for name, rate in PUBLISHED.items()}, COSTS_OF_HANGS),
            "**Slow nodes, by how much longer a step takes: ETTR points lost**",
            _table({name: rate.slow for name, rate in PUBLISHED.items()}, costs_of_slow_nodes()),
            f"A restart without the slow node costs as much as the slowness itself after {pays}.",
            "**A loss that is not a number: ETTR points lost**",
            _table({name: rate.diverged for name, rate in PUBLISHED.items()}, diverged),
        ]
    )


def _longer(times: float) -> str:
    return f"+{100 * (times - 1):.0f} %"


def _table(rates: Mapping[str, float | None], costs: Mapping[str, float]) -> str:
    rows = [
        [name, f"{1_000 * rate:.3f}", f"{GPUS_A_NODE * nodes:,}", f"{rate * nodes:.3g}", *_points(rate, nodes, costs)]
        for name, rate in rates.items()
        if rate is not None
        for nodes in FLEETS
    ]
    minutes = ["minutes a case", "", "", "", *(f"{cost:.0f}" for cost in costs.values())]
    return table(("rate of", "in 1,000 node-days", "GPUs", "a day", *costs), [minutes, *rows], 1)


def _points(rate: float, nodes: int, costs: Mapping[str, float]) -> list[str]:
    points = [100 * lost(rate, nodes, minutes) for minutes in costs.values()]
    return [f"{each:.2f}" if each >= 0.01 else "< 0.01" for each in points]


def draw(path: Path) -> None:
    """Draw hangs at the highest and the lowest rate, and nodes that slow a job most."""
    most = PUBLISHED["RSC-1, ByteDance's proportions"]
    slow = {way.partition(": ")[2]: c for way, c in costs_of_slow_nodes().items() if _longer(ONE_SLOW) in way}
    panels = {
        "hangs, RSC-1 with ByteDance's proportions": (most.hangs, COSTS_OF_HANGS),
        "hangs, Llama 3: time-outs of unknown cause": (PUBLISHED["Llama 3"].hangs, COSTS_OF_HANGS),
        f"slow nodes, steps {_longer(ONE_SLOW)}, the first one's proportions": (most.slow or 0.0, slow),
    }
    points = {
        title: {way: [100 * lost(rate, nodes, minutes) for nodes in FLEETS] for way, minutes in costs.items()}
        for title, (rate, costs) in panels.items()
    }
    draw_losses(points, [GPUS_A_NODE * nodes for nodes in FLEETS], path)


def main(arguments: list[str] | None = None) -> int:
    """Print the tables, or write them and the plot into the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet.slow", description=__doc__)
    parser.add_argument("--write-page", action="store_true", help="write docs/fleet.md and docs/fleet/slow.svg")
    if parser.parse_args(arguments).write_page:
        into_page(tables(), ROOT / "docs" / "fleet.md", BEGIN)
        draw(ROOT / "docs" / "fleet" / "slow.svg")
    else:
        sys.stdout.write(f"{tables()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
