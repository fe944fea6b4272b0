"""Reads the names that MiniStack does not promise to keep."""

from typing import Any


class EmulatorChanged(Exception):
    """The emulator is not the one that this adapter was written for."""


def attribute(module: Any, name: str) -> Any:
    """Return the emulator's attribute of this name. Raises EmulatorChanged."""
    if not hasattr(module, name):
        raise EmulatorChanged(f"{module.__name__} no longer has {name}")
    return getattr(module, name)
