"""Provides all random numbers: one seed, a separate stream for each consumer, and quotas."""

import math
from random import Random


class Chance:
    """Streams of random numbers by name. Draws from one do not change the others."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._streams: dict[str, Random] = {}

    def of(self, name: str) -> Random:
        """Return the stream of this name. It is seeded by text, so it is the same in every process."""
        if name not in self._streams:
            self._streams[name] = Random(f"{self._seed}/{name}")
        return self._streams[name]


def lognormal(stream: Random, median: float, spread: float) -> float:
    """Draw a duration: half are shorter than the median; two of three lie within a factor of e**spread of it."""
    return median * math.exp(stream.gauss(0.0, spread))


class Bucket:
    """A token bucket, which is how AWS throttles. The caller passes the time."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst, self._left, self._at = rate, burst, burst, 0.0
        self.refused = 0

    def take(self, now: float) -> bool:
        """Take one token. False: there is none, and the call is throttled."""
        # Two functions at one moment each count their own calls: the time that one has gained does not help the other.
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._rate)
        self._at = max(self._at, now)
        if self._left < 1:
            self.refused += 1
            return False
        self._left -= 1
        return True
