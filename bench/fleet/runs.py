"""Runs cases, each seed once: finished runs are stored, and reused for the same code."""

import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from bench.fleet.confidence import Estimate, estimate
from bench.fleet.keepers import ByHand, PollAndWait
from bench.fleet.plan import BY_HAND, POLL, Case
from nodeheal.simulation.ranks import CAUSES
from nodeheal.simulation.setting import DAY, Setting
from nodeheal.simulation.world import SimulatedPool

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "fleet"
_SOURCES = ("nodeheal/**/*.py", "nodeheal/**/*.csv", "state_machines/*.json", "bench/fleet/keepers.py")


@dataclass(frozen=True)
class Outcome:
    """The result of one seed: job-seconds by cause, and useful and total node-seconds."""

    seconds: dict[str, float]
    useful_node_seconds: float
    node_seconds: float
    faults: int
    pages: int
    violations: tuple[str, ...] = ()

    @property
    def ettr(self) -> float:
        """Return productive time over all time since the jobs were submitted, waiting included (arXiv 2410.21680)."""
        return self.seconds["productive"] / sum(self.seconds.values())

    @property
    def goodput(self) -> float:
        """Return useful steps over the possible steps, had every node of the fleet trained without a break."""
        return self.useful_node_seconds / self.node_seconds


@cache
def sources_digest() -> str:
    """Return a digest of nodeheal's sources that a run depends on."""
    digest = sha256(platform.python_version().encode())
    for path in sorted(path for pattern in _SOURCES for path in ROOT.glob(pattern)):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def run_case(case: Case, seed: int, kept: Path = KEPT) -> Outcome:
    """Run one seed, or return the stored result."""
    name = sha256(f"{sources_digest()} {seed} {replace(case, seeds=0)}".encode()).hexdigest()[:32]
    path = kept / f"{name}.json"
    if path.exists():
        known = json.loads(path.read_text("utf-8"))
        return Outcome(**{**known, "violations": tuple(known["violations"])})
    outcome = _together([_run(case, setting) for setting in case.settings(seed)])
    kept.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(asdict(outcome)), "utf-8")
    unfinished.replace(path)
    return outcome


def _run(case: Case, setting: Setting) -> Outcome:
    if case.keeper == BY_HAND or case.keeper == POLL:
        keeper = (
            ByHand(setting) if case.keeper == BY_HAND else PollAndWait(setting, case.poll_seconds, case.wait_seconds)
        )
        keeper.agenda.run(setting.days * DAY)
        return _outcome(setting, keeper.so_far(), keeper.fleet.faults, keeper.pages)
    world = SimulatedPool(setting)
    world.advance(setting.days * DAY)
    seconds, faults, pages = world.work.so_far(), world.fleet.faults, world.operators.pages
    world.finish(setting.cool_down_days * DAY)  # for the invariants: running work ends
    broken = tuple(f"{setting.seed}/{setting.pool}: {one.invariant}: {one.about}" for one in world.watch.violations)
    return _outcome(setting, seconds, faults, pages, broken)


def _outcome(
    setting: Setting, seconds: dict[str, float], faults: int, pages: int, broken: tuple[str, ...] = ()
) -> Outcome:
    useful = seconds["productive"] * setting.work.gang_nodes
    return Outcome(seconds, useful, setting.nodes * setting.days * DAY, faults, pages, broken)


def _together(pools: list[Outcome]) -> Outcome:
    return Outcome(
        {cause: sum(one.seconds[cause] for one in pools) for cause in CAUSES},
        sum(one.useful_node_seconds for one in pools),
        sum(one.node_seconds for one in pools),
        sum(one.faults for one in pools),
        sum(one.pages for one in pools),
        tuple(broken for one in pools for broken in one.violations),
    )


def measure(
    cases: Iterable[Case], seeds: int | None, told: Callable[[Case, int], None], kept: Path = KEPT
) -> list[dict[str, object]]:
    """Return each case with its results, for the report."""
    return [_measured(case, seeds or case.seeds, told, kept) for case in cases]


def _measured(case: Case, seeds: int, told: Callable[[Case, int], None], kept: Path) -> dict[str, object]:
    outcomes = []
    for seed in range(1, seeds + 1):
        told(case, seed)
        outcomes.append(run_case(case, seed, kept))
    walls = [sum(one.seconds.values()) for one in outcomes]
    lost = {c: sum(one.seconds[c] for one in outcomes) / sum(walls) for c in CAUSES if c != "productive"}
    return {
        **asdict(case),
        "seeds": seeds,
        "ettr": _rounded(estimate([one.ettr for one in outcomes])),
        "goodput": _rounded(estimate([one.goodput for one in outcomes])),
        "lost": {cause: round(share, 6) for cause, share in lost.items()},
        "faults": sum(one.faults for one in outcomes),
        "pages": sum(one.pages for one in outcomes),
        "violations": [broken for one in outcomes for broken in one.violations],
    }


def _rounded(found: Estimate) -> dict[str, float | None]:
    return {"mean": round(found.mean, 6), "margin": None if found.margin is None else round(found.margin, 6)}
