"""Modules of the standard library that other ones load, and the agent never or hardly ever uses: 3 MiB of a node.

Each is loaded when something of it is asked for, and works as ever from then on; until then it is an empty module.
"""

import sys
from importlib.machinery import PathFinder
from types import ModuleType

# What loads it, and what it is asked for then.
SELDOM = (
    "inspect",  # dataclasses: for the words about a class that has none
    "ipaddress",  # urllib.parse: for an address in brackets
    "calendar",  # email: for a time that is told in seconds
    "selectors",  # socket: for sending a file
    "subprocess",  # the checks: for a tool, in the process of the look that runs it
    "textwrap",  # traceback: for syntax errors
    "tokenize",  # linecache: for the lines of a traceback
)


def load_when_used(names: tuple[str, ...] = SELDOM) -> None:
    """Put these off, where they are not loaded yet."""
    for name in names:
        if name not in sys.modules:
            _put_off(name)


def _put_off(name: str) -> None:
    module, spec = ModuleType(name), PathFinder.find_spec(name)
    if spec is None or spec.loader is None:
        return
    module.__spec__, loader = spec, spec.loader

    def load(attribute: str) -> object:
        if attribute.startswith("__"):  # of the import system, which asks whether there is any
            raise AttributeError(attribute)
        del module.__getattr__
        loader.exec_module(module)
        return getattr(module, attribute)

    # Not importlib.util.LazyLoader: it loads as soon as a second one imports the module.
    module.__getattr__ = load  # type: ignore[method-assign]
    sys.modules[name] = module
