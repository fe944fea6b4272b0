"""What a few independent runs say of their mean."""

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
    """A mean, and how far on either side of it the true one lies with 95 % confidence. None: one sample cannot tell."""

    mean: float
    margin: float | None


def estimate(samples: Sequence[float]) -> Estimate:
    """From independent samples of one kind: the t-interval of their mean."""
    if len(samples) < 2:
        return Estimate(fmean(samples), None)
    quantile = _T[min(len(samples) - 1, len(_T)) - 1]  # beyond the table: its last, which is a little too wide
    return Estimate(fmean(samples), quantile * stdev(samples) / sqrt(len(samples)))
