"""What a function of ours can reach: the calls on ports that stand in its own code and in all that it refers to.

Read from the source, nothing is run: what stands in a branch that no test enters is found as well. It follows names
through modules, not values: a name that is mentioned counts as called.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nodeheal.operations.verbs import HANDLERS
from nodeheal.ports import Ports
from nodeheal.ports.scheduler import CAPABILITIES
from stacks.functions import FUNCTIONS
from stacks.settings import REPOSITORY

PORTS = frozenset(Ports.__dataclass_fields__) - {"channels", "clock", "console_links", "decide", "schedulers"}
VERBS = frozenset({"has_confirmed", "sign_upload"})  # ports that are one call
OF_A_SCHEDULER = frozenset(CAPABILITIES) - {"machines", "definitions"} | {"maker"}
_FOLDERS = ("nodeheal/operations", "nodeheal/services", "nodeheal/domain", "lambdas")
# They serve every function: what a wrapper does with the policy, the function that asks for it refers to itself.
_NOT_FOLLOWED = frozenset(
    {
        "lambdas.composition.queued",
        "lambdas.composition.step",
        "lambdas.composition.ports",
        # The engine calls whichever verb an operation has. Which these are for each function, says `_verbs_of`.
        "nodeheal.operations.engine.handler_of",
        # The engine asks for those verbs whose handler says so: see `_ASKS_WHOSE`.
        "nodeheal.operations.engine._why_left_alone",
        "nodeheal.operations.verbs.HANDLERS",
    }
)
_VERBS_PACKAGE = "nodeheal.operations"
_FOLLOWED_PARTS = ("_read", "_observe", "_settle")
_OF_A_JOB = {"await_nodes": _FOLLOWED_PARTS, "watch_gang": (*_FOLLOWED_PARTS, "_hold")}
_OF_A_NODE = ("diagnose", "find_checkpoint", "freeze_evidence", "reboot", "reset_gpu", "stop_start")
_REFRESHED = ("stop_start.", "diagnose.")  # by a call that is repeated
_OF_A_GANG = ("check_node", "network_test", "fan_out", "look_at_directory")
_ALL = (*_OF_A_NODE, "approve", "replace", "wait")
# Of each function whose step is one operation: which verbs.
_OPERATIONS = {
    "isolate_node": ("isolate",),
    "freeze_evidence": ("freeze_evidence",),
    "reboot_node": ("reset_gpu", "reboot", "stop_start"),
    "run_diagnostics": ("diagnose",),
    "replace_node": ("replace",),
}
_ASKS_WHOSE = {verb.value.lower() for verb, handler in HANDLERS.items() if handler.needs_isolation}
_DECIDING = {spec.stem for spec in FUNCTIONS if spec.handler == "deciding_operation"}
# Who ends operations that others have begun, of which verbs, and by which of their parts.
_ENDS: dict[str, dict[str, tuple[str, ...]]] = {
    "answer_approval": {"approve": _FOLLOWED_PARTS},
    "decide_next_step": dict.fromkeys(_ALL, ("plan", *_FOLLOWED_PARTS, "_refresh")),
    "find_checkpoint": dict.fromkeys(("fan_out", "look_at_directory"), _FOLLOWED_PARTS),
    "judge_checks": dict.fromkeys(("fan_out", "network_test"), _FOLLOWED_PARTS),
    "choose_nodes": {"await_nodes": _FOLLOWED_PARTS},
    "end_incident": _OF_A_JOB,
    "do_act": {"approve": _FOLLOWED_PARTS, "wait": _FOLLOWED_PARTS},
    "request_job": _OF_A_JOB,
    "reconcile_records": dict.fromkeys(("approve", "wait"), _FOLLOWED_PARTS) | _OF_A_JOB,
    "end_job": {"await_nodes": _FOLLOWED_PARTS},
    "sweep": dict.fromkeys(("reset_gpu", "reboot", "replace", "stop_start"), _FOLLOWED_PARTS) | _OF_A_JOB,
    "take_signal": dict.fromkeys(("reset_gpu", "reboot", "replace", "stop_start"), _FOLLOWED_PARTS),
    "wakeup": dict.fromkeys((*_OF_A_NODE, *_OF_A_GANG), (*_FOLLOWED_PARTS, "_refresh"))
    | _OF_A_JOB
    | {"replace": _FOLLOWED_PARTS, "stop_start": (*_FOLLOWED_PARTS, "_refresh", "_start_machine")},
}


@cache
def modules() -> dict[str, ast.Module]:
    """Every module that may stand between a handler and a port, by its dotted name."""
    files = [path for folder in _FOLDERS for path in sorted((REPOSITORY / folder).rglob("*.py"))]
    return {_dotted(path): ast.parse(path.read_text("utf-8")) for path in files}


@cache
def calls_of(stem: str) -> frozenset[str]:
    """`port.method` of each call that the function of this stem can reach; `document.stem` of each command.

    An order to a machine is there with which one it is.

    What a handler takes from lambdas/composition.py beside ports is there by its name: `policy_reader`, `get_secret`.
    Its wrappers look first whether the records are whole.
    """
    entry = f"lambdas.{stem}"
    seen: set[str] = set()
    operations = _OPERATIONS.get(stem, ())
    waiting = [f"{_VERBS_PACKAGE}.{verb}.plan" for verb in operations] + ["nodeheal.operations.engine.begin"]
    if stem in _DECIDING:
        waiting.append("lambdas.deciding.deciding_ports")
    elif not operations:
        waiting = [f"{entry}.{name}" for name in _parts(entry)]
    waiting += [f"{_VERBS_PACKAGE}.{verb}.{part}" for verb, parts in _ENDS.get(stem, {}).items() for part in parts]
    while waiting:
        name = waiting.pop()
        if name not in seen and name not in _NOT_FOLLOWED:
            seen.add(name)
            waiting += _mentioned(name)
            if name.startswith(f"{_VERBS_PACKAGE}.") and name.endswith(".plan") and stem != "decide_next_step":
                verb = name.removesuffix("plan")  # who plans an operation begins it
                parts = ("_start", *_FOLLOWED_PARTS, *(("_refresh",) if verb.endswith(_REFRESHED) else ()))
                waiting += [f"{verb}{part}" for part in parts]
                if verb.removeprefix(f"{_VERBS_PACKAGE}.").removesuffix(".") in _ASKS_WHOSE:
                    waiting.append("nodeheal.services.recovery.taken_over.why_taken_over")
    looks = {"epoch.read"} if any(spec.stem == stem and spec.acts_by_records for spec in FUNCTIONS) else set()
    return frozenset({call for name in seen for call in _calls(name)} | looks)


@cache
def _parts(module: str) -> dict[str, list[ast.stmt]]:
    """A module's functions, classes and values, by name."""
    found: dict[str, list[ast.stmt]] = {}
    for statement in modules()[module].body:
        for name in _names_of(statement):
            found.setdefault(name, []).append(statement)
    return found


def _names_of(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return (
        [statement.target.id] if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) else []
    )


@cache
def _imports(module: str) -> dict[str, str]:
    """What each imported name stands for, as `module.name`."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(modules()[module])
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _bodies(name: str) -> list[ast.stmt]:
    module, _, part = name.rpartition(".")
    return _parts(module).get(part, []) if module in modules() else []


@cache
def _mentioned(name: str) -> frozenset[str]:
    """The functions, classes and values of ours to which this one refers."""
    return frozenset(_mentions(name))


def _mentions(name: str) -> Iterator[str]:
    module = name.rpartition(".")[0]
    for body in _bodies(name):
        for node in ast.walk(body):
            if isinstance(node, ast.Name):
                yield _imports(module).get(node.id, f"{module}.{node.id}")
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                yield f"{_imports(module).get(node.value.id, '')}.{node.attr}"


@cache
def _calls(name: str) -> frozenset[str]:
    """The calls on ports that stand in this one."""
    return frozenset(_calls_in(name))


def _calls_in(name: str) -> Iterator[str]:
    if name in ("lambdas.composition.policy_reader", "lambdas.composition.links"):
        yield name.rpartition(".")[2]
    if name == "lambdas.acting._remembers":
        yield "acts.remember"
    if name == "lambdas.signatures.node_keys":
        yield "node_keys.find"
    for body in _bodies(name):
        for node in ast.walk(body):
            if isinstance(node, ast.Attribute) and _is_port(node.value):
                yield f"{node.value.attr}.{node.attr}"  # type: ignore[attr-defined]
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "definitions":
                yield f"task_definitions.{node.attr}"
            elif isinstance(node, ast.Attribute) and _is_scheduler(node.value):
                yield f"scheduler.{node.attr}"
            elif isinstance(node, ast.Attribute) and _is_machines(node.value):
                yield from (f"{port}.{node.attr}" for port in ("machines", "hyperpod"))
            elif isinstance(node, ast.Attribute) and node.attr in VERBS and _is_port(node):
                yield node.attr  # called here, or handed on to be called
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Command":
                yield from (f"document.{one.value!s}" for one in node.args[:1] if isinstance(one, ast.Constant))
            elif isinstance(node, ast.Attribute) and ast.unparse(node) == "world.policy":
                yield "policy_reader"
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Power":
                yield f"Power.{node.attr}"


def _is_port(node: ast.expr) -> bool:
    """Whether it is spelled `ports.nodes` or `ports().nodes`."""
    if not isinstance(node, ast.Attribute) or node.attr not in PORTS:
        return False
    of = node.value.func if isinstance(node.value, ast.Call) else node.value
    return isinstance(of, ast.Name) and of.id == "ports"


def _is_scheduler(node: ast.expr) -> bool:
    """Whether it is spelled `ports.scheduler_of(node).gate`, `ports.launcher_for(job)`, or `gate`, by its name."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "launcher_for"
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in OF_A_SCHEDULER


def _is_machines(node: ast.expr) -> bool:
    """Whether it is spelled `ports.machines_of(node)`, or is what that gave, by its name."""
    if isinstance(node, ast.Name):
        return node.id == "machines"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "machines_of"


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
