"""Defers standard library modules that others import, and that the agent never or hardly ever uses: 3 MiB of memory.

Each is an empty module until an attribute is accessed; it is then loaded and works as usual.
"""

import sys
from importlib.machinery import PathFinder
from types import ModuleType

# The module that imports it, and when it is used.
SELDOM = (
    "inspect",  # dataclasses: for the docstring of a class without one
    "ipaddress",  # urllib.parse: for an IP address in brackets
    "calendar",  # email: for a time in seconds
    "selectors",  # socket: for sending a file
    "subprocess",  # the checks: for a tool, in the check process that runs it
    "textwrap",  # traceback: for syntax errors
    "tokenize",  # linecache: for the lines of a traceback
)


def load_when_used(names: tuple[str, ...] = SELDOM) -> None:
    """Defer these modules, where they are not loaded yet."""
    for name in names:
        if name not in sys.modules:
            _put_off(name)


def _put_off(name: str) -> None:
    module, spec = ModuleType(name), PathFinder.find_spec(name)
    if spec is None or spec.loader is None:
        return
    module.__spec__, loader = spec, spec.loader

    def load(attribute: str) -> object:
        if attribute.startswith("__"):  # called by the import system
            raise AttributeError(attribute)
        del module.__getattr__
        loader.exec_module(module)
        return getattr(module, attribute)

    # Not importlib.util.LazyLoader: it loads as soon as a second module imports it.
    module.__getattr__ = load  # type: ignore[method-assign]
    sys.modules[name] = module
