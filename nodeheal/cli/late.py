"""Modules that a command imports when it first uses them, and not when it starts: its help needs few of them.

It is the `lazy import` of Python 3.15, for `from package import module` and the packages of LATE. Only the console
script asks for it. Everywhere else, in most tests too, imports are what they always are.
"""

import os
from importlib import import_module
from types import ModuleType
from typing import Any

# Packages whose modules come late. One that is imported by `from package.module import name` comes at once, as ever.
LATE = (
    "nodeheal.adapters",
    "nodeheal.adapters.aws",
    "nodeheal.adapters.ecs",
    "nodeheal.adapters.kubernetes",
    "nodeheal.adapters.memory",
    "nodeheal.adapters.slurm",
    "nodeheal.api",
    "nodeheal.checkpoints",
    "nodeheal.cli",
    "nodeheal.console",
    "nodeheal.contract",
    "nodeheal.domain",
    "nodeheal.domain.faults",
    "nodeheal.domain.policy",
    "nodeheal.domain.recovery",
    "nodeheal.domain.review",
    "nodeheal.parsers",
    "nodeheal.services.operators",
    "nodeheal.simulation",
)
# Small, and read in each step of a simulation: a module that came late is a little slower for those who had it before.
EARLY = "nodeheal.contract.names"


class _Late(ModuleType):
    """Stands for a module that was not used yet, wherever it was imported. What is asked of it, the module answers."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # the next time it is there at once
        return value


def import_late() -> None:
    """From now on, the modules of these packages are imported when they are first used."""
    import_module(EARLY)
    for name in LATE:
        package = import_module(name)
        for file in os.listdir(package.__path__[0]):  # noqa: PTH208  # pathlib takes five times as long
            module, _, kind = file.partition(".")
            if kind == "py" and not hasattr(package, module):
                setattr(package, module, _Late(f"{name}.{module}"))
