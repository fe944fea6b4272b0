"""Restores the table to what it was some time ago, while machines, schedulers and executions go on."""

from collections import deque
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from nodeheal.ports import Ports
from nodeheal.simulation.outages import TABLE_PORTS

# What stands in the table. Messages that were sent are marked there, too; the mark of the records is there as well.
_STORES = (*sorted(TABLE_PORTS - {"heartbeats"}), "hardware")
_CONTAINERS = (dict, set, list, deque)


@dataclass(frozen=True)
class Restore:
    """At `at`, the table becomes what it was at `back_to`."""

    at: float
    back_to: float


@dataclass
class Copy:
    """What the table held at one moment."""

    _held: dict[tuple[str, str], Any] = field(default_factory=dict)

    def take(self, ports: Ports) -> None:
        """Copy all stores. Their records are immutable, so that the containers suffice."""
        for name in _STORES:
            for attribute, value in vars(getattr(ports, name)).items():
                if isinstance(value, _CONTAINERS):
                    self._held[name, attribute] = _copied(value)
        self._held["fleet_index", "marked"] = ports.fleet_index.cursor()
        self._held["epoch", "in_table"] = ports.epoch.read().in_table
        self._held["notifier", "marked"] = _copied(vars(ports.notifier)["marked"])

    def put_back(self, ports: Ports) -> None:
        """Have the stores hold it again, and nothing else."""
        for (name, attribute), value in self._held.items():
            setattr(getattr(ports, name), attribute, _copied(value))


def _copied(value: Any) -> Any:
    same = copy(value) if isinstance(value, _CONTAINERS) else value
    if isinstance(same, dict):
        for key, inner in value.items():
            same[key] = _copied(inner)
    return same
