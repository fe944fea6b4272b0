"""Defines how long a diagnosis takes on a healthy node, and how long its checks may take at most, by level."""

from collections.abc import Iterable

from nodeheal.contract.vocabulary import Check

# NVIDIA gives seconds, 2, up to 30 and some 90 minutes, for every kind of GPU alike.
HEALTHY_SECONDS = {1: 30, 2: 120, 3: 1_800, 4: 5_400}
# After this time the agent ends the tools of a check.
LONGEST_SECONDS = {
    Check.dcgm: {1: 300, 2: 900, 3: 3_600, 4: 10_800},
    Check.neuron: {1: 120, 2: 720, 3: 720, 4: 720},
    Check.efa: {1: 120, 2: 120, 3: 120, 4: 120},
    Check.stress: {1: 190, 2: 240, 3: 480, 4: 1_080},
}
DELIVERY_SECONDS = 180  # for the command to reach the node, and the answer to come back


def diagnosis_seconds(level: int, checks: Iterable[Check]) -> int:
    """Return the seconds after which a node has answered these checks, or will not answer."""
    return DELIVERY_SECONDS + sum(LONGEST_SECONDS[check][level] for check in checks)
