"""Reports the results of a simulation, for each pool and in total."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nodeheal.simulation.prices import LOG_BYTES_A_RUN, RUN_SECONDS, cost
from nodeheal.simulation.seen import Violation
from nodeheal.simulation.setting import DAY
from nodeheal.simulation.world import SimulatedPool

# Table units for a run of a function, as tests/workflows/meter.py counts them over the real adapters: docs/cost.md's
# "rebooted, proven, job resumed" takes 218 write and 275 read units in 28 runs.
WRITES_A_RUN, READS_A_RUN = 218 / 28, 275 / 28
MEMORY_GB = 0.5
QUEUE_REQUESTS_A_FAULT = 3
SWEEPS_A_DAY, SWEEP_GB_SECONDS = 1_440, 0.6
# From docs/cost.md: the sweep's reads of one node for a month.
SWEEP_READING_A_NODE_DAY = 0.000_7 / 30


@dataclass
class SimulationReport:
    """The results of one pool, or of several together."""

    nodes: int = 0
    days: float = 0.0
    digests: dict[str, str] = field(default_factory=dict)
    faults: int = 0
    incidents: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    still_open: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    pages: int = 0
    emails: int = 0
    dead_letters: int = 0
    struck: int = 0
    throttled: Counter[str] = field(default_factory=Counter)
    surprises: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    lost_node_hours: float = 0.0
    isolated_at_once: list[float] = field(default_factory=list)
    isolated_after_wait: list[float] = field(default_factory=list)
    jobs: Counter[str] = field(default_factory=Counter)
    job_seconds: dict[str, float] = field(default_factory=dict)
    violations: list[tuple[str, Violation]] = field(default_factory=list)

    @property
    def to_isolation(self) -> list[float]:
        """Return for every isolated node the seconds from its fault."""
        return [*self.isolated_at_once, *self.isolated_after_wait]

    @property
    def ettr(self) -> float | None:
        """Return the effective training time ratio of all jobs together; None: none has run."""
        total = sum(self.job_seconds.values())
        return self.job_seconds["productive"] / total if total else None

    @property
    def dollars(self) -> dict[str, float]:
        """Return AWS's bill, by item. Heartbeats and the sweep depend on time only, and are computed."""
        node_days, prices = self.nodes * self.days, cost(self.counted)
        beats = cost({"table_write": node_days * SWEEPS_A_DAY})["table_write"]
        sweeps = cost({"function_time": self.days * SWEEPS_A_DAY * SWEEP_GB_SECONDS})["function_time"]
        return {**prices, "heartbeats": beats, "sweep": sweeps + node_days * SWEEP_READING_A_NODE_DAY}

    @property
    def unforeseen(self) -> Counter[str]:
        """Return exceptions of services that no lost answer explains, by function and text, with their numbers."""
        return Counter({name: often for name, often in self.surprises.items() if "NoAnswer" not in name})


def report_of(world: SimulatedPool) -> SimulationReport:
    """Return the report of one pool."""
    incidents = world.incidents.incidents.values()
    acts = [act for of_node in world.watch.acts.values() for act in of_node]
    return SimulationReport(
        nodes=world.setting.nodes,
        days=min(world.setting.days, world.agenda.now / DAY),  # a replay may be stopped early
        digests={world.setting.pool: world.trace.digest},
        faults=world.fleet.faults,
        incidents=len(world.incidents.incidents),
        endings=Counter(incident.ending.value for incident in incidents if incident.ending),
        still_open=len(world.incidents.live),
        actions=Counter(act.verb for act in acts),
        pages=world.operators.pages,
        emails=world.operators.emails,
        dead_letters=world.bus.dead,
        struck=world.hazards.struck,
        throttled=Counter({name: b.refused for name, b in world.throttles.buckets.items() if b.refused}),
        surprises=world.surprises,
        counted=_counted(world),
        lost_node_hours=world.watch.out_of_service_seconds() / 3_600,
        isolated_at_once=world.watch.isolated_at_once,
        isolated_after_wait=world.watch.isolated_after_wait,
        jobs=world.work.ended + (world.parts.cluster.ended if world.parts.cluster else Counter()),
        job_seconds=world.work.seconds,
        violations=[(world.setting.pool, violation) for violation in world.watch.violations],
    )


def _counted(world: SimulatedPool) -> Counter[str]:
    """Count in the units of the price list."""
    runs = sum(count for function, count in world.runs.items() if function != "sweep")
    return Counter(
        {
            "transition": world.executions.transitions,
            "function_run": runs,
            "function_time": runs * RUN_SECONDS * MEMORY_GB,
            "table_write": runs * WRITES_A_RUN,
            "table_read": runs * READS_A_RUN,
            "bus_event": world.bus.sent,
            "queue_request": world.runs["ingest"] * QUEUE_REQUESTS_A_FAULT,
            "publish": world.operators.emails + world.operators.pages,
            "email": world.operators.emails,
            "log": runs * LOG_BYTES_A_RUN / 1e9,
        }
    )


def together(reports: Iterable[SimulationReport]) -> SimulationReport:
    """Combine pools, in the order given."""
    whole = SimulationReport()
    for report in reports:
        whole.days = max(whole.days, report.days)
        for key, value in vars(report).items():
            if key == "days":
                continue
            known = getattr(whole, key)
            setattr(whole, key, _sum(known, value) if isinstance(value, dict) else known + value)
    return whole


def _sum(known: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Add two mappings by name, with missing values as zero. A Counter stays one."""
    summed = {**known, **{name: known[name] + value if name in known else value for name, value in more.items()}}
    return Counter(summed) if isinstance(more, Counter) else summed


def spread(seconds: list[float]) -> dict[str, float]:
    """Return the median and the tails; nothing where nothing was measured."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    marks = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    quantiles = {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in marks.items()}
    return {**quantiles, "max": ordered[-1]}
