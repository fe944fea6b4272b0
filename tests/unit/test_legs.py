"""The seconds of a recovery by leg, from a history that is on record."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from nodeheal.contract.results import Isolated, StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Outcome, Step
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.recovery.incident import History, Incident, Turn
from nodeheal.domain.recovery.timeline import NodeDrained, TimelineEntry
from nodeheal.simulation.latency import AWS, NONE
from sandbox.legs import DIAGNOSTICS_SECONDS, LEGS, Facts, Leg, legs_of
from tests.support.builders import NOW, xid

NODE, BOOT_SECONDS = "mi-0a1b2c3d4e5f60718", 3.0
OPENED, DRAINED, LAUNCHED, STARTED, STEPPED = 0.5, 0.75, 14.0, 14.5, 15.0
# When each step had its result, in seconds from the fault line.
HEALED = (
    (Step.ISOLATE, 1.25),
    (Step.FREEZE_EVIDENCE, 3.25),
    (Step.REBOOT, 8.25),
    (Step.DIAGNOSE, 11.25),
    (Step.RETURN, 12.25),
    (Step.RESTART_WORKLOAD, 14.75),
)


def went(steps: Sequence[tuple[Step, float]], job_id: str | None = "llama") -> Facts:
    """A recovery whose steps ended then; no run yet."""
    turns = []
    for step, at in steps:
        isolated = Isolated(is_drained=True) if step is Step.ISOLATE else None
        ended = NOW + timedelta(seconds=at)
        decision = Decision(step=step, reason="it is next", node_id=NODE)
        result = StepResult(step=step, node_id=NODE, outcome=Outcome.DONE, reason="", finished_at=ended, facts=isolated)
        turns.append(Turn(decision, result))
    incident = Incident("inc-1", NODE, "demo", xid(79), NOW + timedelta(seconds=OPENED), "1", job_id=job_id)
    drained = TimelineEntry(NOW + timedelta(seconds=DRAINED), "isolated-0000", "it takes no new work", NodeDrained())
    return Facts(NOW.timestamp(), History(incident, (incident.root,), tuple(turns), (drained,)), BOOT_SECONDS)


def launched(facts: Facts) -> Facts:
    """The same, after which the job took its first step again."""
    started = NOW + timedelta(seconds=STARTED)
    tasks = tuple(
        GangTask(NODE, rank, "boot", "place", started_at=started - timedelta(seconds=0.1 * rank)) for rank in (0, 1)
    )
    run = Run("llama", 2, NOW + timedelta(seconds=LAUNCHED), "inc-1/7", tasks)
    return replace(facts, run=run, first_step_at=NOW.timestamp() + STEPPED)


def seconds(facts: Facts) -> dict[str, float]:
    return {leg.name: leg.seconds for leg in legs_of(facts)}


def test_a_recovery_by_reboot_has_eight_legs_that_add_up_to_the_whole() -> None:
    legs = legs_of(launched(went(HEALED)))

    assert legs == [
        Leg("detect", 0.5),
        Leg("isolate", 0.25),
        Leg("stop", 0.5),
        Leg("evidence", 2.0),
        Leg("boot", 2.0, BOOT_SECONDS),
        Leg("proof", 1.5, DIAGNOSTICS_SECONDS),
        Leg("checkpoint", 2.75),
        Leg("start", 0.5, 0.5),
    ]
    assert sum(leg.seconds + leg.own_seconds for leg in legs) == pytest.approx(STEPPED)


def test_a_node_without_a_gang_has_nothing_to_stop_and_nothing_to_start() -> None:
    assert seconds(went(HEALED[:5], job_id=None)) == {
        "detect": 0.5,
        "isolate": 0.75,
        "evidence": 2.0,
        "boot": 2.0,
        "proof": 1.5,
        "checkpoint": 1.0,
    }


def test_a_replacement_is_a_leg_in_the_place_of_the_boot() -> None:
    steps = [(Step.REPLACE if step is Step.REBOOT else step, at) for step, at in HEALED]

    told = seconds(launched(went(steps)))

    assert "boot" not in told
    assert told["replace"] == 5.0


def test_evidence_beside_the_stop_of_the_gang_counts_only_as_long_as_it_outlasts_it() -> None:
    steps = [(Step.ISOLATE, 3.0), *HEALED[1:]]

    told = seconds(went(steps))

    assert (told["stop"], told["evidence"]) == (2.25, 0.25)


def test_a_second_try_is_added_to_the_first() -> None:
    again = [*HEALED[:4], (Step.REBOOT, 16.25), (Step.DIAGNOSE, 19.25)]

    legs = {leg.name: leg for leg in legs_of(went(again))}

    assert legs["boot"] == Leg("boot", 4.0, 2 * BOOT_SECONDS)
    assert legs["proof"] == Leg("proof", 3.0, 2 * DIAGNOSTICS_SECONDS)


def test_a_machine_that_took_longer_than_all_of_the_leg_leaves_nothing_below_zero() -> None:
    legs = {leg.name: leg for leg in legs_of(replace(went(HEALED), boot_seconds=60.0))}

    assert legs["boot"] == Leg("boot", 0.0, 5.0)


def test_a_floor_is_what_the_latencies_say_and_zero_where_everything_answers_at_once() -> None:
    assert {name: floor.seconds(NONE) for name, floor in LEGS.items()} == dict.fromkeys(LEGS, 0.0)
    assert LEGS["detect"].seconds(AWS) == AWS.event_seconds
    assert LEGS["evidence"].seconds(AWS) == AWS.ssm_begin_seconds + AWS.event_seconds
    assert LEGS["proof"].seconds(AWS) == AWS.event_seconds
    assert LEGS["start"].seconds(AWS) == AWS.task_start_seconds
