"""Random schedules hold every invariant: more than a thousand here; `make simulate` runs as many as an hour allows."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from nodeheal.services.sweep import sweep
from nodeheal.simulation import schedules
from nodeheal.simulation.runner import pools_of, run_all, run_traced, run_world
from nodeheal.simulation.schedules import run_schedule, run_some, schedule
from nodeheal.simulation.setting import DAY, Setting
from nodeheal.simulation.world import SimulatedPool

BATCHES, IN_A_BATCH = 5, 150

# Schedules in which an invariant was broken once, or a service raised what it should not have. Numbers move when the
# simulation draws otherwise: each has a test of its own beside it, which does not move.
REGRESSIONS: dict[str, int] = {
    "what a gang waited for outlived its deadline: the simulation's own": 14,
    "and a reboot that a function died before it sent: the simulation's own": 34,
    "an incident closed by hand kept its node's slot: the simulation's own": 239,
    "a slot that a broken-off return left stayed until somebody stood in line: tests/unit/test_queue.py": 5_006_382,
    "a finished job kept its nodes where a function died: tests/unit/test_end_of_a_run.py": 6_006_838,
    "a fault that joined an incident just before its node was released was missed: the simulation's own": 6_030_817,
    "a late word of an older run ended a job: tests/unit/test_end_of_a_run.py": 1111,
    "a broken machine was terminated under a pause: tests/simulation/test_co_tenants.py": 146,
    "and in observe mode: the same": 434,
    "a node that had come up again was replaced for its silence: tests/workflows/scenarios/boots.py": 225,
    "a fault whose call broke off, told again on the next boot, left no reason: tests/unit/test_ingest.py": 20_013_534,
    "a node was stopped while it rebooted, for its function had died: tests/simulation/test_invariants.py": 8_001_009,
    "a job that had finished was run again: the simulation's own": 2,
    "an idle node was isolated as it came up again: tests/workflows/scenarios/boots.py": 40_025_678,
    "an idle machine was given up as it came up again: the same": 8_000_039,
    "a launch that had died kept the directory of its job: tests/unit/test_job_steps.py": 40_005_598,
    "and its nodes: tests/unit/test_attribute_failure.py": 40_063_734,
    "two ranks of a gang were started on one node: tests/workflows/scenarios/shared.py": 1429,
    "another job was started beside a rank that ran: tests/workflows/scenarios/given_back.py": 91_005_189,
    "a rank began on the next boot, beside the next run: tests/workflows/scenarios/launches.py": 93_000_162,
    "a gang was waited for after its job was submitted again: the simulation's own": 60_000_935,
    "a spare that has its own incident was let go with another's: tests/workflows/scenarios/races.py": 80_023_810,
    "a job that was submitted again was launched by a recovery: tests/workflows/scenarios/launches.py": 80_027_022,
    "a spare was taken for a free node, and bore two ranks: tests/workflows/scenarios/replacement_nodes.py": 83_044_321,
    "a wait's end was decided on, and its workflow was never told": 600_322,
    "a launch died with its claims, and its job was done before the pool's list showed them": 24_392,
    "a job that its recovery had stopped came back in a maintenance window, and that is right": 83_064_130,
}


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_schedule_breaks_an_invariant(batch: int) -> None:
    done, incidents, broken, surprises = run_some(range(batch * IN_A_BATCH, (batch + 1) * IN_A_BATCH))

    assert broken == []
    assert surprises == Counter()
    assert (done, incidents > IN_A_BATCH) == (IN_A_BATCH, True)


def test_no_schedule_breaks_an_invariant_where_gpus_are_reset_first() -> None:
    done, incidents, broken, surprises = run_some(range(IN_A_BATCH), resets=True)

    assert (done, incidents > IN_A_BATCH, broken, surprises) == (IN_A_BATCH, True, [], Counter())


def test_a_reset_mends_some_faults_and_others_take_a_reboot() -> None:
    acts: Counter[str] = Counter()
    for number in range(40):
        world = SimulatedPool(schedule(number, resets=True))
        run_world(world)
        for of_node in world.watch.acts.values():
            verbs = {act.incident_id: "" for act in of_node}
            for act in of_node:
                verbs[act.incident_id] += f"{act.verb} "
            acts.update(verbs.values())

    assert acts["isolate reset "] > 0
    assert acts["isolate reset reboot "] > 0


@pytest.mark.parametrize("number", REGRESSIONS.values(), ids=REGRESSIONS.keys())
def test_what_was_broken_once_is_not_again(number: int) -> None:
    assert run_schedule(number).violations == []


def test_a_replay_is_the_same_run_to_its_end() -> None:
    replayed = run_traced(schedule(7), lambda line: None)

    assert replayed.digests == run_schedule(7).digests


def test_a_schedule_that_breaks_off_is_named_and_the_others_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = schedules.run_schedule
    monkeypatch.setattr(schedules, "run_schedule", lambda number, *given, **more: run(number // (number != 8), *given))

    done, _, broken, _ = run_some([7, 8, 9])

    assert done == 3
    assert [("ZeroDivisionError" in one, "simulate --schedule 8 " in one) for one in broken] == [(True, True)]


@pytest.mark.parametrize(
    "given",
    [
        ("--minutes", "-1"),
        ("--minutes", "nan"),
        ("--minutes", "inf"),
        ("--first", "-3"),
        ("--processes", "0"),
        ("--processes", "9999999"),
    ],
)
def test_nonsense_is_refused_and_never_reported_as_no_violation(
    given: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        schedules.main(["--minutes", "0.01", *given])

    assert refused.value.code == 2
    assert given[0] in capsys.readouterr().err


class _CutShort:
    """Workers of which the second round is broken off by Ctrl-C."""

    def __init__(self, *given: object, **more: object) -> None:
        self.rounds = 0

    def __enter__(self) -> "_CutShort":
        return self

    def __exit__(self, *given: object) -> None: ...

    def map(self, run: object, batches: list[list[int]]) -> Iterator[tuple[int, int, list[str], Counter[str]]]:
        self.rounds += 1
        if self.rounds > 1:
            raise KeyboardInterrupt
        return iter([(50, 120, ["a promise was broken"], Counter[str]())] if len(batches) == 1 else [])


def test_what_was_found_before_ctrl_c_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(schedules, "ProcessPoolExecutor", _CutShort)

    code = schedules.main(["--minutes", "1", "--processes", "1"])

    assert code == 1
    assert capsys.readouterr().out.splitlines() == [
        "50 schedules, 120 incidents, 1 violation, broken off",
        "a promise was broken",
    ]


def test_schedules_differ_in_everything_that_matters() -> None:
    settings = [schedule(number) for number in range(200)]

    assert len({one.provider for one in settings}) == 2
    assert len({one.cloud for one in settings}) == 3
    assert len({one.panics for one in settings}) == 2
    assert len({action for one in settings for action in one.rules.default_pool.modes}) == 5
    assert {one.rules.default_pool.mode.value for one in settings} == {"act", "approve", "observe"}
    assert len({one.nodes for one in settings}) > 5


def test_a_sweep_every_minute_finds_nothing_that_the_ones_that_are_run_miss() -> None:
    """Why the others may be left out."""
    setting = replace(schedule(3), days=1.0, nodes=12, faults_a_node_day=0.5)
    few, all_of_them = SimulatedPool(setting), SimulatedPool(setting)
    for minute in range(1_440):
        all_of_them.agenda.at(minute * 60.0, lambda: _sweep(all_of_them))

    few.advance(2 * DAY)
    all_of_them.advance(2 * DAY)

    assert all_of_them.runs["sweep"] > 10 * few.runs["sweep"]
    assert _stories(few) == _stories(all_of_them)


def _sweep(world: SimulatedPool) -> None:
    """As the services have it, past the hazards: a draw more would make another run."""
    world.runs["sweep"] += 1
    sweep(world.raw, world.policy)


def _stories(world: SimulatedPool) -> list[tuple[str, str | None]]:
    return [(one.incident_id, one.ending) for one in world.incidents.incidents.values()]


def test_pools_are_put_together_alike_however_many_processes_there_are() -> None:
    settings = pools_of(Setting(nodes=90, days=3, seed=5, faults_a_node_day=0.1), pool_nodes=30)

    one, two = run_all(settings, processes=1), run_all(settings, processes=2)

    assert len(settings) == 3
    assert one.incidents > 10
    assert one == two


def test_what_comes_after_the_end_counts_for_no_jobs_and_no_nodes_time() -> None:
    setting = Setting(nodes=20, days=1, seed=5, faults_a_node_day=0.3)

    whole, stopped_there = run_traced(setting), run_traced(setting, until=DAY)

    assert whole.lost_node_hours == stopped_there.lost_node_hours > 0
    assert whole.job_seconds == stopped_there.job_seconds
    assert sum(whole.job_seconds.values()) <= 2 * DAY  # of two jobs
