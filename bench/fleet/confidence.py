"""Estimates a mean from a few independent runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

# Student's t, two-sided 95 %, by degrees of freedom from 1.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class Estimate:
    """A mean, and its margin with 95 % confidence. None: one sample has no margin."""

    mean: float
    margin: float | None


def estimate(samples: Sequence[float]) -> Estimate:
    """Return the t-interval of the mean of independent samples of one kind."""
    if len(samples) < 2:
        return Estimate(fmean(samples), None)
    quantile = _T[min(len(samples) - 1, len(_T)) - 1]  # beyond the table: its last value, which is a little too wide
    return Estimate(fmean(samples), quantile * stdev(samples) / sqrt(len(samples)))
