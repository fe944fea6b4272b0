"""A recovery's seconds by leg, from what is on record: the incident's timeline, the job's run, the first step after it.

Every leg ends with a record and begins where the one before has ended, so that the legs add up to the whole. One that
runs beside another has the seconds only by which it outlasts it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodeheal.contract.results import Isolated
from nodeheal.contract.vocabulary import Action, Outcome, Step
from nodeheal.domain.jobs.job import Run
from nodeheal.domain.recovery.incident import History
from nodeheal.operations.isolate import DRAINED
from nodeheal.simulation.latency import Latency

# What the fake dcgmi takes, unless a node's faults say otherwise.
DIAGNOSTICS_SECONDS = 1.5
ALL_OF_IT = float("inf")


@dataclass(frozen=True)
class Floor:
    """What a leg waits for whatever nodeheal does, and how often."""

    named: str
    events: int = 0  # of EventBridge, from a source to its rule's target
    commands: int = 0  # of SSM, from SendCommand to the first line of the script
    tasks: int = 0  # of ECS, from StartTask until the process runs

    def seconds(self, latency: Latency) -> float:
        """At these latencies."""
        return round(
            self.events * latency.event_seconds
            + self.commands * latency.ssm_begin_seconds
            + self.tasks * latency.task_start_seconds,
            3,
        )


# Each leg, in the order of a recovery by reboot, and what it cannot be less than while it is a leg of its own.
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
    """What one leg took. `own_seconds` come on top: the machine's boot, the diagnostics, the trainer's own start."""

    name: str
    seconds: float = 0.0
    own_seconds: float = 0.0


@dataclass(frozen=True)
class Facts:
    """What the legs are made of. Times are seconds since the epoch.

    `run`: the one that the incident has launched. `first_step_at`: of that run.
    """

    fault_at: float
    history: History
    boot_seconds: float
    run: Run | None = None
    first_step_at: float | None = None


def legs_of(facts: Facts) -> list[Leg]:
    """The legs that happened, in the order of `LEGS`. One that came more than once is added up."""
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
    """(when, of which leg, how much of it at most was not the leg's own doing), up to the first step."""
    until = facts.first_step_at if facts.run is not None else None
    for at, name, own in (*_of_incident(facts), *_of_run(facts)):
        if until is None or at <= until:
            yield at, name, own


def _of_incident(facts: Facts) -> Iterator[tuple[float, str, float]]:
    history = facts.history
    yield history.incident.opened_at.timestamp(), "detect", 0.0
    for entry in history.timeline:
        if entry.entry_id.startswith(f"{DRAINED}-"):
            yield entry.at.timestamp(), "isolate", 0.0
    for turn in history.turns:
        result = turn.result
        if result is None or (result.step is Step.RESTART_WORKLOAD and facts.run is not None):
            continue  # of a run there is a better record
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
