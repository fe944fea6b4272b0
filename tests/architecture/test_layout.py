"""The house's layout: who imports whom, one stem per function, generated files fresh."""

import ast
import importlib.util
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from nodeheal import ports as ports_module
from stacks.console import SPEC as CONSOLE
from stacks.functions import FUNCTIONS
from stacks.settings import REPOSITORY
from tools import reference, schemas

STEMS = [spec.stem for spec in FUNCTIONS]
NOT_FUNCTIONS = {"acting", "deciding", "__init__", "composition", "sign_in", "signatures"}
PORTS_AT_MOST, METHODS_AT_MOST = 31, 7
FUNCTION_LINES, APP_LINES = 25, 30
ADAPTER = "sandbox/ministack_adapter/"
PATCHES_ALONE = "tests/unit/test_environments.py"  # tests the adapter's patches on the functions that they replace


def test_imports_point_one_way() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def test_only_its_adapter_knows_the_emulator_and_one_line_chooses_it() -> None:
    files = [path for folder in ("sandbox", "tests") for path in (REPOSITORY / folder).rglob("*.py")]
    texts = {path.relative_to(REPOSITORY).as_posix(): path.read_text("utf-8") for path in files}
    others = {file: text for file, text in texts.items() if not file.startswith(ADAPTER)}
    importers = {
        file for file, text in others.items() if re.search(r"^\s*(from|import) ministack\b", text, re.MULTILINE)
    }
    choices = {file: text.count("ministack_adapter.") for file, text in others.items() if file.startswith("sandbox/")}

    assert importers == {PATCHES_ALONE}
    assert {file: count for file, count in choices.items() if count} == {"sandbox/emulator.py": 1}


def test_modules_import_one_another_in_no_circle() -> None:
    """Imports inside functions count, too."""
    graph = grimp.build_graph("nodeheal", exclude_type_checking_imports=True)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}

    TopologicalSorter(imported).prepare()


def test_the_agents_modules_are_in_folders_that_say_what_lives_there() -> None:
    agent = REPOSITORY / "nodeheal" / "agent"
    folders = [path.parent for path in agent.glob("*/__init__.py")]

    assert {path.name for path in agent.glob("*.py")} == {"__init__.py", "main.py"}
    assert len(folders) > 6
    assert [
        folder.name for folder in folders if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    ] == []


@pytest.mark.parametrize("stem", STEMS)
def test_a_function_has_a_module_of_its_name(stem: str) -> None:
    assert importlib.util.find_spec(next(spec.module for spec in FUNCTIONS if spec.stem == stem))


def test_every_handler_is_deployed() -> None:
    modules = {path.stem for path in (REPOSITORY / "lambdas").glob("*.py")} - NOT_FUNCTIONS

    assert {f"lambdas.{module}" for module in modules} == {spec.module for spec in (*FUNCTIONS, CONSOLE)}


@pytest.mark.parametrize("module", sorted({spec.module for spec in FUNCTIONS}))
def test_a_handler_is_thin(module: str) -> None:
    tree = ast.parse((REPOSITORY / f"{module.replace('.', '/')}.py").read_text("utf-8"))

    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        assert (function.end_lineno or 0) - function.lineno < FUNCTION_LINES, function.name


def test_the_app_is_thin() -> None:
    assert len((REPOSITORY / "app.py").read_text("utf-8").splitlines()) < APP_LINES


def test_ports_are_few_and_small() -> None:
    trees = [ast.parse(path.read_text("utf-8")) for path in Path(ports_module.__file__).parent.glob("*.py")]
    classes = [one for tree in trees for one in tree.body if isinstance(one, ast.ClassDef)]
    found = [one for one in classes if any(ast.unparse(base) == "Protocol" for base in one.bases)]

    assert 0 < len(found) <= PORTS_AT_MOST
    for port in found:
        assert sum(isinstance(item, ast.FunctionDef) for item in port.body) <= METHODS_AT_MOST, port.name


@pytest.mark.parametrize("render", [schemas.render, reference.render])
def test_generated_files_are_fresh(render: object) -> None:
    for path, text in render().items():  # type: ignore[operator]
        assert path.read_text("utf-8") == text, f"{path.relative_to(REPOSITORY)}: run `make schemas reference`"


def test_the_control_plane_reads_the_clock_in_one_place() -> None:
    told = [
        REPOSITORY / "nodeheal" / part
        for part in ("contract", "parsers", "domain", "operations", "services", "adapters", "ports")
    ]
    files = [
        path for part in [*told, REPOSITORY / "lambdas"] for path in (part.rglob("*.py") if part.is_dir() else [part])
    ]

    readers = [path for path in files if re.search(r"datetime\.now|time\.time\(|utcnow", path.read_text("utf-8"))]

    assert len(readers) == 1, readers


def pins(file: str) -> dict[str, set[str]]:
    """Package to its pinned versions (two, where they differ by Python version)."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", (REPOSITORY / file).read_text("utf-8"), re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


@pytest.mark.parametrize("file", ["requirements.txt", "lambdas/requirements.txt", "lambdas/requirements-console.txt"])
def test_what_is_tested_is_what_is_deployed(file: str) -> None:
    tested = pins("requirements-dev.txt")

    assert {name: tested[name] for name in pins(file)} == pins(file)


@pytest.mark.parametrize(
    "file",
    [
        "requirements.txt",
        "requirements-dev.txt",
        "lambdas/requirements.txt",
        "lambdas/requirements-console.txt",
        "package-lock.json",
    ],
)
def test_a_pin_names_no_address(file: str) -> None:
    assert "://" not in (REPOSITORY / file).read_text("utf-8")
