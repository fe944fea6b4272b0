"""Statistics of many incidents: recovery times, causes, endings, and repeat offenders."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from statistics import fmean, median

from nodeheal.contract.vocabulary import Ending
from nodeheal.domain.review.review import Review

OFTEN = 2  # incidents that make a repeat offender


@dataclass(frozen=True)
class Spread:
    """Times to recovery, in seconds."""

    incidents: int
    mean: float
    median: float
    p90: float  # nearest rank: so many took this long or less


@dataclass(frozen=True)
class DayStats:
    """What was opened on one day: faults that were found, how many of them ended RECOVERED, and hours lost by all."""

    day: date
    incidents: int
    recovered: int
    lost_accelerator_hours: float


@dataclass(frozen=True)
class IncidentStats:
    """The statistics. Drills are counted separately, and are in none of the other numbers.

    What operators asked for, and the first diagnoses of new nodes, are no faults: of them only the hours lost count.
    """

    incidents: int  # faults that were found
    drills: int
    asked: int  # what operators asked for, and new nodes
    time_to_recover: Spread | None  # of those that ended RECOVERED without an answer of a human; None: none did
    by_cause: dict[str, int]
    by_ending: dict[str, int]
    accelerators_again: dict[str, int]  # serial -> incidents; without those of a job's own program, as in nodes_again
    nodes_again: dict[str, int]
    by_rack: dict[str, int]  # of nodes that say their rack; without those of a job's own program
    days: tuple[DayStats, ...]  # in UTC, from the first with an incident to the last
    lost_accelerator_hours: float


def summarize(reviews: Sequence[Review]) -> IncidentStats:
    """Returns the statistics of these incidents."""
    real = [review for review in reviews if not review.is_drill]
    incidents = [review for review in real if review.is_found]
    of_nodes = [review for review in incidents if not review.is_of_program]
    took = [seconds for review in incidents if (seconds := review.seconds_to_recover) is not None]
    return IncidentStats(
        incidents=len(incidents),
        drills=len(reviews) - len(real),
        asked=len(real) - len(incidents),
        time_to_recover=spread(took) if took else None,
        by_cause=_most_first(Counter(review.fault for review in incidents)),
        by_ending=_most_first(Counter((review.ending or review.state).value for review in incidents)),
        accelerators_again=_again(Counter(review.serial for review in of_nodes if review.serial)),
        nodes_again=_again(Counter(review.node_id for review in of_nodes)),
        by_rack=_most_first(Counter(review.rack for review in of_nodes if review.rack)),
        days=tuple(_days(real)),
        lost_accelerator_hours=round(sum(review.lost_accelerator_hours for review in real), 3),
    )


def _days(real: Sequence[Review]) -> Iterator[DayStats]:
    by_day: dict[date, list[Review]] = {}
    for review in real:
        by_day.setdefault(review.opened_at.astimezone(UTC).date(), []).append(review)
    for after in range((max(by_day) - min(by_day)).days + 1 if by_day else 0):
        day = min(by_day) + timedelta(days=after)
        opened = by_day.get(day, [])
        faults = [review for review in opened if review.is_found]
        recovered = sum(review.ending is Ending.RECOVERED for review in faults)
        lost = round(sum(review.lost_accelerator_hours for review in opened), 3)
        yield DayStats(day, len(faults), recovered, lost)


def spread(seconds: Sequence[float]) -> Spread:
    """Returns mean, median and 90th percentile. Raises ValueError for an empty sequence."""
    if not seconds:
        raise ValueError("there is nothing to spread")
    in_order = sorted(seconds)
    p90 = in_order[math.ceil(0.9 * len(in_order)) - 1]
    return Spread(len(in_order), round(fmean(in_order), 1), round(median(in_order), 1), round(p90, 1))


def _most_first(counts: "Counter[str]") -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _again(counts: "Counter[str]") -> dict[str, int]:
    return {name: count for name, count in _most_first(counts).items() if count >= OFTEN}
