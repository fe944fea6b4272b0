"""Random delays, so that a fleet does not act in step. The standard library's `random` would load a generator and its
tables.
"""

import os

_STEPS = 2**53  # as many as there are between 0 and 1


def between(low: float, high: float) -> float:
    """Return a random number from `low` to `high`."""
    return low + (high - low) * ((int.from_bytes(os.urandom(8)) % _STEPS) / _STEPS)
