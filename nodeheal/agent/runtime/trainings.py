"""Measures how runs train on this node, from one look at their progress files to the next."""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nodeheal.agent.runtime.training_files import StepRecord, files_by_run, newest, read_progress, records_in
from nodeheal.contract.training import ENDED, NodeTraining

RUNS = 2  # in a heartbeat, which is one small item
RUNS_READ = 6  # the newest: a node has one job at a time, and leftovers of others
STALL_SECONDS, STALL_STEPS = 30.0, 10.0  # as the policy's slow_jobs has them by default
RECENT_SECONDS = 600.0
LOOKS = 512  # kept of a run, of the last ten minutes and of the time before
USUAL_LOOKS = 5  # with fewer, nothing is usual yet
WARM_UP_STEPS = 10
DEVIATIONS = 1.4826  # standard deviations in a median absolute deviation, of a normal distribution
Ranks = Mapping[int, Sequence[StepRecord]]  # the records of each local rank


class Trainings:
    """The runs of the files in a folder. Not safe to share between threads."""

    def __init__(
        self,
        folder: Path,
        monotonic: Callable[[], float],
        time: Callable[[], float],
        slowed_by: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`time`: seconds since the epoch by the node's own clock, as programs write them; `slowed_by`: the fault that
        slows the node now.
        """
        self._folder = folder
        self._monotonic = monotonic
        self._time = time
        self._slowed_by = slowed_by
        self._histories: dict[str, TrainingHistory] = {}

    def look(self) -> list[NodeTraining]:
        """Return how the newest runs train that show a step. Never raises: a heartbeat must go out whatever a job has
        written.
        """
        now, before, trainings = self._monotonic(), self._histories, list[NodeTraining]()
        self._histories = {}
        for run, ranks in self._shown():
            self._histories[run] = history = before.get(run) or TrainingHistory()
            history.add(ranks, now)
            trainings.append(self._training(run, ranks, history, now))
        return trainings[:RUNS]

    def alerts(self) -> list[NodeTraining]:
        """Return the runs that stand still, or whose loss is not a number. Between two looks: their medians stay as
        they are, and what no look has seen yet does not stand still.
        """
        now, known, new = self._monotonic(), self._histories, TrainingHistory()
        trainings = [self._training(run, ranks, known.get(run, new), now) for run, ranks in self._shown()]
        return [
            training
            for training in trainings[:RUNS]
            if training.has_lost_its_loss or training.is_stalled(STALL_SECONDS, STALL_STEPS)
        ]

    def _training(self, run: str, ranks: Ranks, history: "TrainingHistory", now: float) -> NodeTraining:
        return replace(training_of(run, ranks, history, now, self._time()), slowed_by=self._slowed_by())

    def _shown(self) -> Iterator[tuple[str, Ranks]]:
        for run, files in files_by_run(self._folder)[:RUNS_READ]:
            if ranks := {rank: records for rank, file in files.items() if (records := _read(file))}:
                yield run, ranks


@dataclass(frozen=True, slots=True)
class _Look:
    """The medians of what was new at one look at a run."""

    at: float  # by the agent's monotonic clock: the node's own may jump
    step_seconds: float | None
    loss: float | None  # not a number where one was not finite
    is_usual: bool  # neither the first look, which may have any past, nor the warm-up


class Age:
    """How long something is as it is. The node's clock may jump: two looks by the agent's own bound what it says."""

    def __init__(self) -> None:
        self._value: object = None
        self._last_at = self._before_at = -math.inf  # of the last look, and of the last at another value
        self._first_at = 0.0
        self.longest = 0.0  # seconds that a value before this one has stood, at least

    def of(self, value: object, by_clock: float | None, now: float) -> float:
        """Return the age of this value in seconds; `by_clock`: as the node's clock has it."""
        if value != self._value:
            self.longest = max(self.longest, self._last_at - self._first_at)
            self._value, self._before_at, self._first_at = value, self._last_at, now
        self._last_at = now
        least, most = now - self._first_at, now - self._before_at
        return min(max(least, by_clock or 0.0), most)


class TrainingHistory:
    """The looks at a run: those of the last ten minutes, and an even choice of those before."""

    def __init__(self) -> None:
        self._known = frozenset[int]()  # hashes of the records of the last look, with their ranks
        self._usual_from: int | None = None  # the step
        self._recent: deque[_Look] = deque()
        self._older: list[_Look] = []
        self.step_age, self.save_age = Age(), Age()
        self._aged, self._every = 0, 1  # of the looks that have grown old, each so many-th is kept

    def add(self, ranks: Ranks, now: float) -> None:
        """Add what the ranks have done since the last look."""
        hashes = {hash((rank, record)): record for rank, records in ranks.items() for record in records}
        new = [record for key, record in hashes.items() if key not in self._known]
        self._known = frozenset(hashes)
        first = min((record.step for record in new), default=0)
        is_usual = self._usual_from is not None and first >= self._usual_from
        if self._usual_from is None:
            self._usual_from = first + WARM_UP_STEPS
        step_seconds, loss = _median(record.step_seconds for record in new), _loss(record.loss for record in new)
        self._recent.append(_Look(now, step_seconds, loss, is_usual))
        self._grow_old(now)

    def _grow_old(self, now: float) -> None:
        while self._recent and (now - self._recent[0].at > RECENT_SECONDS or len(self._recent) > LOOKS):
            look = self._recent.popleft()
            self._aged += look.is_usual
            if look.is_usual and self._aged % self._every == 0:
                self._older.append(look)
        if len(self._older) > LOOKS:
            del self._older[::2]
            self._every *= 2

    @property
    def step_seconds(self) -> float | None:
        """The median of the last ten minutes."""
        return _median(look.step_seconds for look in self._recent)

    @property
    def loss(self) -> float | None:
        """The median of the last ten minutes; not a number where one of the newest is not finite."""
        losses = [look.loss for look in self._recent if look.loss is not None]
        return losses[-1] if losses and math.isnan(losses[-1]) else _median(losses)

    def usual_step_seconds(self) -> tuple[float | None, float | None]:
        """Return the median of the time before, and its robust standard deviation; None: too few looks."""
        return _usual(look.step_seconds for look in self._older)

    def usual_loss(self) -> tuple[float | None, float | None]:
        """Return the same of the loss."""
        return _usual(look.loss for look in self._older)


def _read(file: Path) -> list[StepRecord]:
    try:
        return records_in(read_progress(file))
    except OSError:
        return []


def training_of(run: str, ranks: Ranks, history: TrainingHistory, now: float, time: float) -> NodeTraining:
    """Return how a run trains, from the records of its ranks (each has some) and from the looks before. `now` and
    `time`: by the agent's monotonic clock, and by the node's.
    """
    last = {rank: newest(records) for rank, records in sorted(ranks.items())}
    latest = max(last.values(), key=lambda record: record.order)
    medians = {rank: _median(record.compute_seconds for record in records) for rank, records in ranks.items()}
    computes = {rank: seconds for rank, seconds in medians.items() if seconds is not None}
    slowest_rank = max(computes, key=lambda rank: computes[rank], default=None)
    saves = [(record.saved, record.saved_at) for record in last.values() if record.saved is not None]
    saved_step, saved_at = max(saves, key=lambda save: save[0], default=(None, None))
    saved_seconds = history.save_age.of(saved_step, _since(saved_at, time), now)
    usual_step_seconds, step_spread = history.usual_step_seconds()
    usual_loss, loss_spread = history.usual_loss()
    idle_seconds = history.step_age.of(latest.step, _since(latest.at, time), now)
    working = [rank for rank, record in last.items() if not record.waits]
    newest_losses = _newest_with_loss(ranks.values())
    shows_waits = any(record.waits for records in ranks.values() for record in records)
    return NodeTraining(
        run=run,
        step=latest.step,
        idle_seconds=idle_seconds,
        longest_idle_seconds=history.step_age.longest or None,
        step_seconds=history.step_seconds,
        usual_step_seconds=usual_step_seconds,
        step_spread=step_spread,
        compute_seconds=_median(computes.values()),
        slowest_compute_seconds=None if slowest_rank is None else computes[slowest_rank],
        slowest_rank=slowest_rank,
        loss=math.nan if any(math.isnan(record.loss or 0.0) for record in newest_losses) else history.loss,
        good_step=min((record.good_step for record in newest_losses if record.good_step is not None), default=None),
        usual_loss=usual_loss,
        loss_spread=loss_spread,
        saved_step=saved_step,
        saved_seconds=None if saved_step is None else saved_seconds,
        waiting_ranks=len(last) - len(working) if shows_waits else None,
        working_rank=min(working, key=lambda rank: last[rank].order, default=None) if shows_waits else None,
        pause=_pause(last.values()),
    )


def _pause(last: Collection[StepRecord]) -> str | None:
    """Return what a rank is at; ENDED where all ranks have ended. One that has ended stops no others."""
    if all(record.pause == ENDED for record in last):
        return ENDED
    return next((record.pause for record in last if record.pause and record.pause != ENDED), None)


def _since(at: float | None, time: float) -> float | None:
    return None if at is None else time - at


def _newest_with_loss(ranks: Iterable[Sequence[StepRecord]]) -> list[StepRecord]:
    """Return the newest record of each rank that shows a loss."""
    shown = ([record for record in records if record.loss is not None] for records in ranks)
    return [newest(records) for records in shown if records]


def _loss(losses: Iterable[float | None]) -> float | None:
    """Return the median; NaN where one of them is not finite."""
    known = [loss for loss in losses if loss is not None]
    return math.nan if any(map(math.isnan, known)) else _median(known)


def _usual(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    known = _finite(values)
    middle = _median(known)
    if middle is None or len(known) < USUAL_LOOKS:
        return None, None
    spread = _median(abs(value - middle) for value in known)
    return middle, DEVIATIONS * (spread or 0.0)


def _median(values: Iterable[float | None]) -> float | None:
    """Return the median of the finite values; None where there are none."""
    ordered = sorted(_finite(values))
    half = len(ordered) // 2
    return (ordered[half] + ordered[~half]) / 2 if ordered else None


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
