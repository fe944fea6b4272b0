"""Every place in services and operations where a port is written to, read from the code; and which is called now."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import nodeheal
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import CAPABILITIES
from tests.support.reads import READS

HOME = Path(nodeheal.__path__[0])
FOLDERS = (HOME / "operations", HOME / "services")
PORTS = (frozenset(field.name for field in fields(Ports)) - {"channels", "console_links", "decide", "schedulers"}) | {
    "scheduler"
}
OF_WHOSE = {"launcher_for": "launcher", "machines_of": "machines"}
# A task definition that is registered once more starts nothing.
OF_A_SCHEDULER = frozenset(CAPABILITIES) - {"machines", "definitions"} | {"maker"}
OF_AN_ADAPTER = "kubernetes."  # its calls of the API, within one call of the port
IMAGINED = "replay.py"  # writes to a memory of its own
SAVING = "services/saving.py"  # the loop: the place is where it is called
CHANGES = {
    "change_node": "nodes.save",
    "change_job": "jobs.save",
    "change_run": "jobs.save_run",
    "change_pool": "pools.save",
}


@dataclass(frozen=True, order=True)
class Place:
    """A call in the source of a service. `line` to `end`: where it stands now."""

    module: str
    line: int
    end: int
    call: str  # nodes.save
    is_called: bool = True  # false: it is handed on, and called by others

    def __str__(self) -> str:
        return f"{self.call} in {self.module}:{self.line}"


@cache
def places() -> tuple[Place, ...]:
    """All of them."""
    left_out = (HOME / SAVING, HOME / "services" / "operators" / IMAGINED)
    files = (file for folder in FOLDERS for file in folder.rglob("*.py") if file not in left_out)
    return tuple(sorted(place for file in files for place in _places_of(file)))


def _places_of(file: Path) -> Iterator[Place]:
    tree = ast.parse(file.read_text("utf-8"))
    called = {node.func: node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CHANGES:
            yield Place(_module(file), node.lineno, node.end_lineno or node.lineno, CHANGES[node.func.id])
        if isinstance(node, ast.Attribute) and (call := _written(node)):
            whole = called.get(node, node)
            yield Place(_module(file), whole.lineno, whole.end_lineno or whole.lineno, call, is_called=node in called)


def _written(function: ast.Attribute) -> str:
    """`nodes.save` of `ports.nodes.save`; empty for what writes to no port."""
    owner = function.value
    port = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr in OF_WHOSE:
        port = OF_WHOSE[owner.func.attr]
    port = "scheduler" if port in OF_A_SCHEDULER else "" if port == "scheduler" else port  # what it is, is no call
    is_constant = function.attr.isupper()  # of a module that is named like a port
    return f"{port}.{function.attr}" if port in PORTS and not is_constant and function.attr not in READS else ""


def place_called(name: str) -> Place | None:
    """The place that calls this port: the nearest caller that is a service or an operation."""
    frame = sys._getframe(1)
    folders, loop = tuple(f"{folder}/" for folder in FOLDERS), str(HOME / SAVING)
    while frame is not None and (not frame.f_code.co_filename.startswith(folders) or frame.f_code.co_filename == loop):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return None
    module, line = _module(Path(frame.f_code.co_filename)), frame.f_lineno
    return _of_scheduler(module, line) if name.startswith(OF_AN_ADAPTER) else _at(module, line, name)


def _module(file: Path) -> str:
    """Two folders may have a file of one name."""
    return str(file.relative_to(HOME))


@cache
def _of_scheduler(module: str, line: int) -> Place | None:
    """The place that calls a scheduler there, whose real adapter runs; None: what is called there only reads."""
    here = [one for one in places() if one.module == module and one.line <= line <= one.end]
    return next((one for one in here if one.call.startswith("scheduler.")), None)


@cache
def _at(module: str, line: int, call: str) -> Place:
    here = [one for one in places() if one.module == module and one.line <= line <= one.end and _is(one, call)]
    found = here or [one for one in places() if not one.is_called and _is(one, call)]
    if len(found) != 1:
        raise AssertionError(f"{call} is called at {module}:{line}, and the source shows {len(found)} such places")
    return found[0]


def _is(place: Place, call: str) -> bool:
    """A store may have another name where it is handed on; a command has that of its document."""
    if call.startswith("commands."):
        return place.call.startswith("commands.")
    return place.call.rpartition(".")[2] == call.rpartition(".")[2]
