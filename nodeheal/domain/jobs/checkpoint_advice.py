"""How often a job should write a checkpoint: seldom enough to train, often enough to lose little.

Young (1974), "A first order approximation to the optimum checkpoint interval": the root of twice the time of a write
times the mean time between failures. Daly (2006), "A higher order estimate of the optimum checkpoint interval for
restart dumps": the same with two more terms, less the write itself; and the expected loss of any interval, by which
the current one is judged. An interval is the training between two writes. How long a restart takes does not change
which interval is the best, but what each costs.

Failures are taken as a Poisson process. Few of them say little: the range in which their rate lies with 90 %
confidence is Garwood's (1936), exact for any number, zero included.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from nodeheal.domain.humanize import counted, lasting
from nodeheal.domain.jobs.goodput import Goodput, goodput_of
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.recovery.incident import Incident

CONFIDENCE = 0.90
FEW_FAILURES = 5  # with fewer, the ends of the range are more than a factor of five apart
HOURS_A_DAY = 24
YOUNG_SECONDS = 3_600  # of running without a failure: the low end of so little would have it write all the time
WORTH_SAYING = 0.005  # of all time: less between two intervals is not worth a change
_LARGEST_EXPONENT = 500.0  # beyond, nothing is ever finished
_HALVINGS = 60  # to the last digit that a float has


@dataclass(frozen=True)
class PoolExperience:
    """The failures and running times of other jobs on nodes of the same pool. The default: none are known."""

    jobs: int = 0
    failures: int = 0
    node_seconds: float = 0.0  # of running


NO_EXPERIENCE = PoolExperience()


@dataclass(frozen=True)
class Mtbf:
    """Mean time between failures of the whole gang, with its 90 % confidence interval."""

    failures: int
    running_seconds: float
    seconds: float | None  # None: no failure yet
    low_seconds: float
    high_seconds: float | None  # None: without bound

    @property
    def careful_seconds(self) -> float:
        """The value to calculate with: the mean or, before the first failure, the low end."""
        return self.seconds if self.seconds is not None else self.low_seconds


@dataclass(frozen=True)
class Advice:
    """The advice that the measured times lead to. `lines` contains it for people."""

    mtbf: Mtbf | None
    write_seconds: float | None
    restart_seconds: float | None  # from a failure until all ranks run again
    current_seconds: float | None  # the interval that the job has named
    young_seconds: float | None
    daly_seconds: float | None
    current_loss_share: float | None  # of all time, expected at the current interval
    daly_loss_share: float | None
    saved_node_hours_a_day: float | None  # by changing from the current to Daly's
    lines: tuple[str, ...]
    account: Goodput  # what it rests on; `account.words` says that to people

    @property
    def says_enough(self) -> bool:
        """Whether it rests on enough to be followed: before that it would change each time that it is asked for."""
        return self.mtbf is not None and self.mtbf.running_seconds >= YOUNG_SECONDS


def advice_of(
    job: Job, runs: Sequence[Run], incidents: Sequence[Incident], now: datetime, beside: PoolExperience = NO_EXPERIENCE
) -> Advice:
    """Returns advice on the job's checkpoint interval.

    It rests on the job's own runs since its submission and on those of other jobs on the pool's nodes. The more nodes a
    gang has, the more often one of them fails.
    """
    known = goodput_of(job, runs, incidents, now)
    where = job.checkpoints
    write, every = (where.write_seconds, where.every_seconds) if where is not None else (None, None)
    lived = known.running_seconds + beside.node_seconds / job.nodes
    mtbf = mtbf_of(known.failures + beside.failures, lived) if lived > 0 else None
    restart = _restart_seconds(known)
    measured = _told_of(mtbf, beside)
    why = _why_none(mtbf, write)
    if mtbf is None or write is None or why:
        text = (*measured, f"no advice on the checkpoint interval: {why}")
        return Advice(mtbf, write, restart, every, None, None, None, None, None, text, known)
    return _advise(job, mtbf, write, restart, every, known, measured)


def _why_none(mtbf: Mtbf | None, write: float | None) -> str:
    if mtbf is None:
        return "it has not run yet"
    if write is None:
        return "checkpoints.write_seconds of job.yaml does not say how long a write takes"
    if not mtbf.failures and mtbf.running_seconds < YOUNG_SECONDS:
        return f"nothing has failed in {lasting(mtbf.running_seconds)}, which says nothing yet"
    return ""


def young_seconds(write_seconds: float, mtbf_seconds: float) -> float:
    """Returns Young's interval. Both must be positive."""
    return math.sqrt(2 * write_seconds * mtbf_seconds)


def daly_seconds(write_seconds: float, mtbf_seconds: float) -> float:
    """Returns Daly's interval, equation 37 of the paper. Both must be positive.

    It is the mean time between failures itself, where a write takes at least twice as long.
    """
    if write_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    share = write_seconds / (2 * mtbf_seconds)
    root = young_seconds(write_seconds, mtbf_seconds)
    return root * (1 + math.sqrt(share) / 3 + share / 9) - write_seconds


def loss_share(every_seconds: float, write_seconds: float, mtbf_seconds: float, restart_seconds: float = 0.0) -> float:
    """Returns the share of all time, 0 to 1, that writes, restarts and lost work are expected to cost at this interval.

    Daly's complete model: M exp(R/M) (exp((interval + write)/M) - 1) of time for each interval of training.
    """
    exponent = (every_seconds + write_seconds) / mtbf_seconds
    if max(exponent, restart_seconds / mtbf_seconds) > _LARGEST_EXPONENT:
        return 1.0
    needed = mtbf_seconds * math.exp(restart_seconds / mtbf_seconds) * math.expm1(exponent)
    return min(1.0, max(0.0, 1 - every_seconds / needed))


def mtbf_of(failures: int, running_seconds: float) -> Mtbf:
    """Returns the mean time between failures. The running time must be positive."""
    tail = (1 - CONFIDENCE) / 2
    # As few as that, or fewer, must not be too unlikely; and as many, or more.
    most = _solve(lambda mean: _poisson_at_most(failures, mean) - tail)
    least = _solve(lambda mean: _poisson_at_most(failures - 1, mean) - (1 - tail)) if failures else 0.0
    mean = running_seconds / failures if failures else None
    return Mtbf(failures, running_seconds, mean, running_seconds / most, running_seconds / least if least else None)


def _advise(
    job: Job,
    mtbf: Mtbf,
    write: float,
    took: float | None,
    every: int | None,
    known: Goodput,
    measured: tuple[str, ...],
) -> Advice:
    between, restart = mtbf.careful_seconds, took or 0.0
    costs = "no restart was measured yet, and none is counted" if took is None else f"a restart {lasting(took)}"
    best = daly_seconds(write, between)
    best_share = loss_share(best, write, between, restart)
    current_share = loss_share(every, write, between, restart) if every is not None else None
    saved = None if current_share is None else max(0.0, current_share - best_share) * job.nodes * HOURS_A_DAY
    young = young_seconds(write, between)
    advice = f"write a checkpoint every {lasting(best)} (Daly's formula; Young's gives {lasting(young)})"
    lines = [
        *measured,
        f"{advice}: a write takes {lasting(write)}, {costs}; it loses {best_share:.1%} of all time",
    ]
    if every is not None and current_share is not None and saved is not None:
        lines.append(_told_of_current(every, current_share, best_share, saved))
    return Advice(
        mtbf=mtbf,
        write_seconds=write,
        restart_seconds=took,
        current_seconds=every,
        young_seconds=young,
        daly_seconds=best,
        current_loss_share=current_share,
        daly_loss_share=best_share,
        saved_node_hours_a_day=saved,
        lines=tuple(lines),
        account=known,
    )


def _told_of(mtbf: Mtbf | None, beside: PoolExperience) -> tuple[str, ...]:
    if mtbf is None:
        return ()
    others = f", including {counted(beside.jobs, 'other job')} of the pool" if beside.jobs else ""
    lived = f"{counted(mtbf.failures, 'failure')} in {lasting(mtbf.running_seconds)} of running{others}"
    if mtbf.seconds is None:
        least = f"{lasting(mtbf.low_seconds)} or more between failures (90 % confidence)"
        return (f"{lived}: {least}; the advice assumes that",)
    high = lasting(mtbf.high_seconds) if mtbf.high_seconds is not None else "any time"
    few = "; with so few failures the range is wide" if mtbf.failures < FEW_FAILURES else ""
    spread = f"{lasting(mtbf.low_seconds)} to {high} with 90 % confidence{few}"
    return (f"{lived}: one every {lasting(mtbf.seconds)} ({spread})",)


def _told_of_current(every: int, share: float, best: float, saved: float) -> str:
    if share - best < WORTH_SAYING:
        return f"the current {lasting(every)} loses {share:.1%}, hardly more"
    return f"the current {lasting(every)} loses {share:.1%}: changing it saves {saved:.1f} node-hours a day"


def _restart_seconds(known: Goodput) -> float | None:
    """Returns the mean time from a failed run's end until the next one runs. None: no run was restarted yet."""
    pairs = zip(known.runs, known.runs[1:], strict=False)
    took = [run.down_seconds + following.restart_seconds for run, following in pairs if run.has_failed]
    return fmean(took) if took else None


def _poisson_at_most(count: int, mean: float) -> float:
    """Returns the probability of at most this many events, where `mean` are expected."""
    if mean <= 0 or count < 0:
        return 1.0 if count >= 0 else 0.0
    return math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))


def _solve(falling: Callable[[float], float]) -> float:
    """Returns where a falling function becomes zero, for a mean above zero."""
    low, high = 0.0, 1.0
    while falling(high) > 0:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return high
