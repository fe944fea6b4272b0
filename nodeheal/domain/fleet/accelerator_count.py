"""How many accelerators nodes have, and how many of them are in service."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AcceleratorCount:
    """The accelerators of nodes, and of these the ones whose nodes are neither held nor out of service."""

    accelerators: int = 0
    in_service: int = 0

    def __add__(self, other: "AcceleratorCount") -> "AcceleratorCount":
        return AcceleratorCount(self.accelerators + other.accelerators, self.in_service + other.in_service)
