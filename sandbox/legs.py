"""Computes a recovery's seconds by leg from records: the incident's timeline, the job's run, and the first step after
it.

Every leg begins where the previous one ended, so that the legs add up to the total. One that runs in parallel only
counts the seconds by which it lasts longer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodeheal.contract.results import Isolated
from nodeheal.contract.vocabulary import Action, Outcome, Step
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.recovery.incident import History
from nodeheal.domain.recovery.timeline import NodeDrained, entries_with
from nodeheal.simulation.latency import Latency

# The duration of the fake dcgmi, unless a node's faults set another.
DIAGNOSTICS_SECONDS = 1.5
ALL_OF_IT = float("inf")


@dataclass(frozen=True)
class Floor:
    """The minimum of a leg, from waits that nodeheal cannot avoid, and their number."""

    named: str
    events: int = 0  # of EventBridge, from a source to its rule's target
    commands: int = 0  # of SSM, from SendCommand to the first line of the script
    tasks: int = 0  # of ECS, from StartTask until the process runs

    def seconds(self, latency: Latency) -> float:
        """Return the minimum at these latencies."""
        return round(
            self.events * latency.event_seconds
            + self.commands * latency.ssm_begin_seconds
            + self.tasks * latency.task_start_seconds,
            3,
        )


# Each leg, in the order of a recovery by reboot, and its minimum where it is a leg of its own.
LEGS = {
    "detect": Floor("one event", events=1),
    "isolate": Floor("a call"),
    "stop": Floor("one event; the job's grace", events=1),
    "evidence": Floor("one command, one event", events=1, commands=1),
    "boot": Floor("one command, one event", events=1, commands=1),
    "replace": Floor("the pool's spare or EC2"),
    "proof": Floor("one event", events=1),
    "wait": Floor("the policy's"),
    "checkpoint": Floor("known while the node boots"),
    "start": Floor("one start of a task", tasks=1),
}
_OF_STEP = {
    Step.ISOLATE: "isolate",
    Step.FREEZE_EVIDENCE: "evidence",
    Step.REBOOT: "boot",
    Step.REPLACE: "replace",
    Step.DIAGNOSE: "proof",
    Step.WAIT: "wait",
    Step.RETURN: "checkpoint",
    Step.RESTART_WORKLOAD: "checkpoint",
}


@dataclass(frozen=True)
class Leg:
    """The duration of one leg. `own_seconds` are added: the machine's boot, the diagnostics, the trainer's own
    start.
    """

    name: str
    seconds: float = 0.0
    own_seconds: float = 0.0


@dataclass(frozen=True)
class Facts:
    """The input of the legs. Times are seconds since the epoch.

    `run`: the one that the incident has launched. `first_step_at`: of that run.
    """

    fault_at: float
    history: History
    boot_seconds: float
    run: Run | None = None
    first_step_at: float | None = None


def legs_of(facts: Facts) -> list[Leg]:
    """Return the legs that happened, in the order of `LEGS`. Repeated ones are summed."""
    found: dict[str, Leg] = {}
    last = facts.fault_at
    for at, name, own_at_most in sorted(_ends(facts)):
        took = max(0.0, at - last)
        own = min(took, own_at_most)
        known = found.get(name, Leg(name))
        found[name] = replace(known, seconds=known.seconds + took - own, own_seconds=known.own_seconds + own)
        last = max(last, at)
    rounded = (
        replace(leg, seconds=round(leg.seconds, 3), own_seconds=round(leg.own_seconds, 3)) for leg in found.values()
    )
    return sorted(rounded, key=lambda leg: list(LEGS).index(leg.name))


def _ends(facts: Facts) -> Iterator[tuple[float, str, float]]:
    """Return (when, of which leg, the maximum of it that is not its own), up to the first step."""
    until = facts.first_step_at if facts.run is not None else None
    for at, name, own in (*_of_incident(facts), *_of_run(facts)):
        if until is None or at <= until:
            yield at, name, own


def _of_incident(facts: Facts) -> Iterator[tuple[float, str, float]]:
    history = facts.history
    yield history.incident.opened_at.timestamp(), "detect", 0.0
    for entry in entries_with(history.timeline, NodeDrained):
        yield entry.at.timestamp(), "isolate", 0.0
    for turn in history.turns:
        result = turn.result
        if result is None or (result.step is Step.RESTART_WORKLOAD and facts.run is not None):
            continue  # the record of a run is more precise
        name, own = _OF_STEP[result.step], 0.0
        if result.step is Step.ISOLATE and history.incident.job_id and result.facts == Isolated(is_drained=True):
            name = "stop"
        is_reset = turn.decision.action is Action.RESET_GPU
        if result.step is Step.REBOOT and result.outcome is Outcome.DONE and not is_reset:
            own = facts.boot_seconds
        if result.step is Step.DIAGNOSE:
            own = DIAGNOSTICS_SECONDS
        yield result.finished_at.timestamp(), name, own


def _of_run(facts: Facts) -> Iterator[tuple[float, str, float]]:
    run, first_step_at = facts.run, facts.first_step_at
    if run is None:
        return
    yield run.started_at.timestamp(), "checkpoint", 0.0
    started = [task.started_at.timestamp() for task in run.tasks if task.started_at is not None]
    if started:
        yield max(started), "start", 0.0
    if first_step_at is not None:
        yield first_step_at, "start", ALL_OF_IT if started else 0.0
