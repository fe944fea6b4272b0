"""A class has a name of its own, and a value is named by a noun."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.settings import REPOSITORY

# What the agent sends or is sent, in its own words: on a node there is no pydantic (ADR 1). Name: the two modules below
# nodeheal/ that define it.
COPIES_OF_THE_AGENT = {
    "Accelerator": ("agent.transport.event", "contract.health_event"),
    "Accusation": ("agent.evidence.confirm", "contract.steps"),
    "CheckpointFound": ("agent.transport.event", "contract.health_event"),
    "DiagnosticsFinished": ("agent.transport.event", "contract.health_event"),
    "EvidenceFrozen": ("agent.transport.event", "contract.health_event"),
    "GpuResetFinished": ("agent.node_commands.reset_gpu", "operations.reset_gpu"),
    "HealthEvent": ("agent.transport.event", "contract.health_event"),
    "NodeBooted": ("agent.transport.event", "contract.health_event"),
    "NodeFact": ("agent.transport.event", "contract.health_event"),
    "NodeHardwareReported": ("agent.transport.event", "contract.health_event"),
    "Sight": ("agent.transport.event", "contract.health_event"),
}
OF_PROGRAMS = {"Progress": ("domain.recovery.progress", "progress")}  # training programs import the short name
# Participles and pronouns, which say nothing of a value.
NO_NOUNS = ("told", "seen", "said", "found", "one")
# How many parameters, variables and attributes of a folder's files still have one of these names: attributes that are
# stored, or shown under their name. A count only falls.
LEFT = {
    "nodeheal/agent/commands": 2,
    "nodeheal/api": 1,
    "nodeheal/domain/jobs": 1,
    "nodeheal/domain/review": 1,
    "nodeheal/services/intake": 1,
}


def public_classes(folder: Path) -> dict[str, list[str]]:
    """The modules of a folder that define a class of each name, by their dotted names below the folder."""
    modules: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
                modules.setdefault(node.name, []).append(name)
    return modules


def named_values(tree: ast.AST) -> Iterator[str]:
    """The names of parameters, variables and attributes where they get their values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            yield node.name


def test_a_class_name_is_used_once() -> None:
    classes = public_classes(REPOSITORY / "nodeheal")

    assert len(classes) > 800
    twice = {name: tuple(modules) for name, modules in classes.items() if len(modules) > 1}
    assert twice == COPIES_OF_THE_AGENT | OF_PROGRAMS


def test_values_are_named_by_nouns() -> None:
    counted: Counter[str] = Counter()
    for path in (REPOSITORY / "nodeheal").rglob("*.py"):
        values = named_values(ast.parse(path.read_text("utf-8")))
        counted[path.parent.relative_to(REPOSITORY).as_posix()] += sum(name in NO_NOUNS for name in values)

    assert {folder: count for folder, count in counted.items() if count} == LEFT, "name it by what it is, or lower LEFT"


def test_a_name_that_is_used_twice_is_found(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("class Node: ...\nclass _Row: ...\n")
    (tmp_path / "rack.py").write_text("class Node:\n    class Slot: ...\nclass _Row: ...\n")

    assert public_classes(tmp_path) == {"Node": ["__init__", "rack"], "Slot": ["rack"]}


@pytest.mark.parametrize(
    "text",
    [
        "told = 1",
        "told: int = 1",
        "def act(told): ...",
        "lambda told: 1",
        "[1 for told in ()]",
        "(told := 1)",
        "self.told = 1",
        "with x as told: ...",
        "try: ...\nexcept OSError as told: ...",
        "match x:\n    case [told]: ...",
        "for x, told in (): ...",
    ],
)
def test_a_name_of_a_value_is_found(text: str) -> None:
    assert "told" in list(named_values(ast.parse(text)))


@pytest.mark.parametrize("text", ["print(told)", "x = told.one", "x.told(one=1)", "def told(): ..."])
def test_a_name_that_gets_no_value_is_not_counted(text: str) -> None:
    assert not set(named_values(ast.parse(text))) & set(NO_NOUNS)
