"""How runs train on a node, from one heartbeat to the next."""

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeheal.agent.runtime.training_files import StepRecord
from nodeheal.agent.runtime.trainings import (
    DEVIATIONS,
    LOOKS,
    RECENT_SECONDS,
    RUNS,
    RUNS_READ,
    USUAL_LOOKS,
    WARM_UP_STEPS,
    TrainingHistory,
    Trainings,
)
from nodeheal.contract.training import ENDED, NodeTraining

EVERY = 60.0
MINUTES_OF_RECENT = int(RECENT_SECONDS / EVERY)


class Job:
    """The ranks of a run on a node, and the agent that looks at them once a minute."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 1_000.0
        self.step = 0
        self.time = 2.0  # by the node's clock
        self.trainings = Trainings(folder, lambda: self.now, lambda: self.time)

    def writes(self, *records: StepRecord, rank: int = 0, run: str = "llama.2") -> None:
        """The rank's whole file, as its program would write it."""
        file = self.folder / (f"{run}.{rank}.steps" if rank else f"{run}.900.json")
        lines = [
            "{"
            + ",".join(
                f'"{name}":{number(value)}'
                for name in StepRecord.__slots__
                if (value := getattr(record, name)) is not None
            )
            + "}"
            for record in records
        ]
        file.write_text("\n".join(lines))

    def minute(self, step_seconds: float | None = None, loss: float | None = None) -> NodeTraining:
        """A minute with one new step that its rank shows; what the agent then reports."""
        self.now += EVERY
        self.step += 1
        self.writes(StepRecord(self.step, at=float(self.step), step_seconds=step_seconds, loss=loss))
        [training] = self.trainings.look()
        return training

    def minutes(self, count: int, step_seconds: float | None = None, loss: float | None = None) -> NodeTraining:
        training = NodeTraining("", 0)
        for _ in range(count):
            training = self.minute(step_seconds, loss)
        return training


def number(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) or value != value else str(value)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_the_ranks_of_a_run_are_one_training(job: Job) -> None:
    job.writes(
        StepRecord(99, at=1.0, step_seconds=4.0, compute_seconds=1.0),
        StepRecord(100, at=2.0, step_seconds=2.0, compute_seconds=3.0, loss=2.5, saved=90, saved_at=1.5),
    )
    job.writes(StepRecord(98, at=9.0, compute_seconds=5.0, saved=80, saved_at=9.9, pause="checkpoint"), rank=1)
    job.writes(StepRecord(99, at=9.0, pause="evaluation"), rank=2)

    job.time = 7.0

    [training] = job.trainings.look()

    assert training == NodeTraining(
        "llama/2",
        step=100,
        idle_seconds=5.0,
        step_seconds=3.0,
        compute_seconds=3.5,
        slowest_compute_seconds=5.0,
        slowest_rank=1,
        loss=2.5,
        saved_step=90,
        saved_seconds=5.5,
        pause="checkpoint",
    )


def test_what_a_rank_does_not_show_is_unknown(job: Job) -> None:
    job.writes(StepRecord(5))

    assert job.trainings.look() == [NodeTraining("llama/2", 5, idle_seconds=0.0)]


def test_only_what_is_new_at_a_look_counts_for_it(job: Job) -> None:
    job.writes(*(StepRecord(step, step_seconds=9.0) for step in range(8)))
    job.trainings.look()
    job.writes(*(StepRecord(step, step_seconds=9.0) for step in range(8)), StepRecord(8, step_seconds=1.0))

    [training] = job.trainings.look()

    assert training.step_seconds == 5.0, "the median of a look of 9 s and one of 1 s"


def test_a_look_at_which_nothing_is_new_leaves_the_median(job: Job) -> None:
    job.minutes(2, step_seconds=1.0)
    job.minute(step_seconds=5.0)

    [training] = [*job.trainings.look(), *job.trainings.look()][1:]

    assert training.step_seconds == 1.0


def test_after_ten_minutes_without_a_step_no_pace_is_reported(job: Job) -> None:
    job.minutes(3, step_seconds=1.0)
    job.now += RECENT_SECONDS
    [before] = job.trainings.look()
    job.now += 1.0

    [after] = job.trainings.look()

    assert (before.step_seconds, after.step_seconds, after.step) == (1.0, None, 3)


def test_the_usual_pace_is_that_before_the_last_ten_minutes(job: Job) -> None:
    job.minutes(WARM_UP_STEPS + USUAL_LOOKS, step_seconds=1.0)
    few = job.minutes(MINUTES_OF_RECENT, step_seconds=3.0)

    enough = job.minute(step_seconds=3.0)

    assert (few.step_seconds, few.usual_step_seconds, few.step_spread) == (3.0, None, None)
    assert (enough.step_seconds, enough.usual_step_seconds, enough.step_spread) == (3.0, 1.0, 0.0)


def test_the_warm_up_and_the_first_look_are_not_usual(job: Job) -> None:
    job.step = 1_000
    job.minutes(WARM_UP_STEPS, step_seconds=50.0)
    job.minutes(USUAL_LOOKS, step_seconds=1.0)

    training = job.minutes(MINUTES_OF_RECENT + 1, step_seconds=1.0)

    assert (training.usual_step_seconds, training.step_spread) == (1.0, 0.0)


def test_the_spread_is_that_of_a_normal_distribution(job: Job) -> None:
    job.minutes(WARM_UP_STEPS + 1)
    for seconds in (1.0, 2.0, 3.0, 4.0, 1_000.0):
        job.minute(step_seconds=seconds, loss=-seconds)

    training = job.minutes(MINUTES_OF_RECENT + 1, step_seconds=9.0, loss=1.0)

    assert (training.usual_step_seconds, training.step_spread) == (3.0, DEVIATIONS)
    assert (training.usual_loss, training.loss_spread) == (-3.0, DEVIATIONS)


def test_a_loss_is_no_number_while_the_newest_is_none(job: Job) -> None:
    job.minutes(3, loss=2.0)

    broken, mended = job.minute(loss=math.nan), job.minute(loss=4.0)

    assert broken.loss is not None
    assert math.isnan(broken.loss)
    assert mended.loss == 2.0


def test_one_loss_of_many_that_is_no_number_is_reported(job: Job) -> None:
    job.writes(StepRecord(1, loss=1.0), StepRecord(2, loss=math.nan), StepRecord(3, loss=1.0))

    [training] = job.trainings.look()

    assert training.loss is not None
    assert math.isnan(training.loss)


def test_losses_that_are_no_numbers_are_not_usual(job: Job) -> None:
    job.minutes(WARM_UP_STEPS + 1)
    for loss in (1.0, math.nan, 1.0, 1.0, 1.0):
        job.minute(loss=loss)
    training = job.minutes(MINUTES_OF_RECENT + 1, loss=2.0)

    assert training.usual_loss is None

    assert job.minute(loss=2.0).usual_loss == 1.0


def test_a_clock_that_jumps_changes_no_pace(job: Job) -> None:
    job.minutes(2, step_seconds=1.0)
    job.writes(StepRecord(3, at=1e10, step_seconds=1.0))
    job.trainings.look()
    job.writes(StepRecord(3, at=1e10, step_seconds=1.0), StepRecord(4, at=0.0, step_seconds=1.0))

    [training] = job.trainings.look()

    assert (training.step, training.step_seconds) == (4, 1.0)


@pytest.mark.parametrize(("clock_says", "idle"), [(1e9, 120.0), (-1e9, 60.0), (75.0, 75.0), (None, 60.0)])
def test_how_long_no_step_was_taken_is_bounded_by_the_agents_own_looks(
    job: Job, clock_says: float | None, idle: float
) -> None:
    job.minutes(2, step_seconds=1.0)
    for _ in range(2):  # the step came between the look before the first of these and that one
        job.now += EVERY
        job.time = 2e9
        at = None if clock_says is None else job.time - clock_says
        job.writes(StepRecord(9, at=at, saved=9, saved_at=at))
        [training] = job.trainings.look()

    assert (training.idle_seconds, training.saved_seconds) == (idle, idle)


def test_the_newest_runs_that_show_a_step_are_reported(job: Job) -> None:
    for age, run in enumerate(["eval.7", "llama.2", "old.1"]):
        job.writes(StepRecord(age), run=run)
        os.utime(job.folder / f"{run}.900.json", (1_000 - age, 1_000 - age))
    (job.folder / "gpt.1.60.json").write_text("no json")

    assert [training.run for training in job.trainings.look()] == ["eval/7", "llama/2"]
    assert RUNS == 2


def test_leftovers_cost_no_more_than_their_share(job: Job) -> None:
    job.writes(StepRecord(5))
    os.utime(job.folder / "llama.2.900.json", (1, 1))
    for number_ in range(RUNS_READ - 1):
        (job.folder / f"gpt.{number_}.steps").touch()
    [training] = job.trainings.look()
    (job.folder / f"gpt.{RUNS_READ}.steps").touch()

    assert training.step == 5
    assert job.trainings.look() == []


def test_a_run_is_remembered_while_others_are_newer(job: Job) -> None:
    job.minutes(3, step_seconds=1.0)
    os.utime(job.folder / "llama.2.900.json", (1, 1))
    for run in ("eval.1", "eval.2"):
        job.writes(StepRecord(1), run=run)
    job.trainings.look()
    (job.folder / "eval.1.900.json").unlink()

    assert [training.step_seconds for training in job.trainings.look() if training.run == "llama/2"] == [1.0]


def test_a_run_that_is_gone_is_forgotten(job: Job) -> None:
    job.minutes(3, step_seconds=1.0)
    (job.folder / "llama.2.900.json").unlink()
    assert job.trainings.look() == []
    job.writes(StepRecord(1))

    assert [training.step_seconds for training in job.trainings.look()] == [None]


@pytest.mark.parametrize("place", [os.mkfifo, os.mkdir, lambda file: Path(file).symlink_to("llama.2.900.json")])
def test_what_is_no_file_hides_no_run(job: Job, place: Callable[[Path], object]) -> None:
    job.writes(StepRecord(5))
    place(job.folder / "llama.2.1.steps")
    place(job.folder / "gpt.1.60.json")

    assert job.trainings.look() == [NodeTraining("llama/2", 5, idle_seconds=0.0)]


def test_a_folder_that_no_job_has_created_is_no_training(tmp_path: Path) -> None:
    assert Trainings(tmp_path / "nowhere", lambda: 0.0, lambda: 0.0).look() == []


def test_a_long_run_is_remembered_evenly_and_in_bounds() -> None:
    history, count = TrainingHistory(), LOOKS * 20
    for step in range(count):
        history.add({0: [StepRecord(step, step_seconds=float(step))]}, step * EVERY)

    middle, _ = history.usual_step_seconds()
    assert len(history._older) <= LOOKS
    assert middle == pytest.approx(count / 2, rel=0.05)


def test_looks_each_second_are_in_bounds_and_still_grow_old() -> None:
    history = TrainingHistory()
    for step in range(LOOKS * 2):
        history.add({0: [StepRecord(step, step_seconds=1.0)]}, float(step) / 10)

    assert len(history._recent) == LOOKS
    assert history.usual_step_seconds() == (1.0, 0.0)


def stands(job: Job, seconds: float) -> list[tuple[str, float | None]]:
    """What stands still at a look between two heartbeats, so much later."""
    job.now += seconds
    return [(training.run, training.idle_seconds) for training in job.trainings.alerts()]


def test_a_run_without_a_step_for_half_a_minute_and_ten_of_its_own_steps_stands_still(job: Job) -> None:
    job.writes(StepRecord(9, step_seconds=1.0))
    job.writes(StepRecord(9, step_seconds=4.0), run="slow.1")
    job.trainings.look()

    assert stands(job, 30.0) == []
    assert stands(job, 0.25) == [("llama/2", 30.25)]
    assert {run for run, _ in stands(job, 10.0)} == {"llama/2", "slow/1"}


def test_a_run_that_has_not_been_seen_by_a_heartbeat_does_not_stand_still(job: Job) -> None:
    job.writes(StepRecord(9, step_seconds=1.0))

    assert stands(job, 600.0) == []


def test_a_pause_that_nobody_declares_may_be_twice_as_long_the_next_time(job: Job) -> None:
    job.minute(step_seconds=1.0)
    stands(job, 50.0)
    job.now += 10.0
    job.writes(StepRecord(2, step_seconds=1.0))
    assert stands(job, 0.0) == []

    [training] = job.trainings.look()

    assert training.longest_idle_seconds == 50.0
    assert stands(job, 100.0) == []
    assert stands(job, 0.25) == [("llama/2", 100.25)]


def test_looks_between_two_heartbeats_leave_the_medians_as_they_are(job: Job) -> None:
    job.writes(StepRecord(1, step_seconds=1.0))
    job.trainings.look()
    job.writes(StepRecord(2, step_seconds=9.0))
    job.now += 1.0
    job.trainings.alerts()
    job.writes(StepRecord(3, step_seconds=3.0))

    [training] = job.trainings.look()

    assert training.step_seconds == 2.0


def test_a_rank_that_has_not_come_to_where_the_others_wait_is_named(job: Job) -> None:
    job.writes(StepRecord(5, at=1.0), StepRecord(5, at=2.0, waits=True))
    job.writes(StepRecord(5, at=1.5), rank=1)
    job.writes(StepRecord(4, at=9.0), rank=2)
    job.writes(StepRecord(5), run="silent.1")

    by_run = {training.run: training for training in job.trainings.look()}

    assert (by_run["llama/2"].waiting_ranks, by_run["llama/2"].working_rank) == (1, 2)
    assert (by_run["silent/1"].waiting_ranks, by_run["silent/1"].working_rank) == (None, None)


def test_where_all_ranks_wait_none_is_named(job: Job) -> None:
    for rank in range(2):
        job.writes(StepRecord(5, at=1.0, waits=True), rank=rank)

    [training] = job.trainings.look()

    assert (training.waiting_ranks, training.working_rank) == (2, None)


def test_a_loss_that_is_no_number_is_an_alert_at_once_and_the_last_good_step_is_known(job: Job) -> None:
    job.minute(step_seconds=1.0, loss=2.0)
    saves = StepRecord(3, at=4.0, saved=3, saved_at=4.0)
    job.writes(StepRecord(2, at=2.0, loss=2.0), StepRecord(3, at=3.0, loss=math.nan, good_step=2), saves)
    job.writes(StepRecord(3, at=3.0, loss=math.nan, good_step=1), rank=1)
    job.writes(StepRecord(2, at=2.0, loss=math.nan, good_step=0), StepRecord(3, at=3.0, loss=1.0), rank=2)

    [alert] = job.trainings.alerts()
    [training] = job.trainings.look()

    assert (alert.has_lost_its_loss, alert.good_step) == (True, 1)
    assert (training.has_lost_its_loss, training.good_step) == (True, 1)


def test_a_loss_that_is_no_number_is_an_alert_before_the_first_heartbeat(job: Job) -> None:
    job.writes(StepRecord(3, at=3.0, loss=math.nan))

    assert [alert.run for alert in job.trainings.alerts()] == ["llama/2"]


def test_a_rank_that_shows_no_loss_is_no_alert(job: Job) -> None:
    job.minute(step_seconds=1.0)

    assert job.trainings.alerts() == []


def test_what_slows_the_node_is_said_of_each_of_its_runs(job: Job) -> None:
    slowed = Trainings(job.folder, lambda: job.now, lambda: job.time, lambda: "nvml/CLOCKS_LOW")
    job.writes(StepRecord(3, at=3.0))
    job.writes(StepRecord(9, at=3.0, loss=math.nan), run="eval.1")

    assert [training.slowed_by for training in slowed.look()] == ["nvml/CLOCKS_LOW"] * 2
    assert [training.slowed_by for training in slowed.alerts()] == ["nvml/CLOCKS_LOW"]


@pytest.mark.parametrize(("others", "stalled"), [(None, ["llama/2"]), (ENDED, [])])
def test_a_run_has_ended_when_all_of_its_ranks_have(job: Job, others: str | None, stalled: list[str]) -> None:
    job.minutes(3, step_seconds=1.0)
    job.writes(StepRecord(3, at=3.0, step_seconds=1.0), StepRecord(3, at=4.0, pause=ENDED))
    job.writes(StepRecord(3, at=3.0, step_seconds=1.0), StepRecord(3, at=4.0, pause=others, waits=not others), rank=1)
    job.trainings.look()
    job.now += 100.0
    job.time += 100.0

    [training] = job.trainings.look()

    assert [alert.run for alert in job.trainings.alerts()] == stalled
    assert (training.pause, training.working_rank) == (others, None if others else 0)


def test_of_two_lines_at_one_time_the_later_counts(job: Job) -> None:
    job.writes(StepRecord(3, at=3.0), StepRecord(3, at=3.0, pause="evaluation"))

    [training] = job.trainings.look()

    assert training.pause == "evaluation"
