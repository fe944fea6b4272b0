"""The code asset: everything that the functions need, nothing that they do not, the same bytes each time."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.bundling import (
    ALL_FUNCTIONS,
    CONSOLE_BUNDLE,
    CONSOLE_FILES,
    Bundle,
    Target,
    build,
    fingerprint,
    pip_command,
    sources,
)
from stacks.functions import FUNCTIONS
from stacks.settings import REPOSITORY, Settings, Stage
from tests.infrastructure.synthesis import synthesize

REAL = Settings()
SANDBOX = Settings(stage=Stage.sandbox)
FUNCTION = "AWS::Lambda::Function"


def digest(folder: Path) -> str:
    """Every name and every byte of a folder."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        total.update(str(path.relative_to(folder)).encode() + (path.read_bytes() if path.is_file() else b""))
    return total.hexdigest()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real stage's bundle."""
    folder = tmp_path_factory.mktemp("bundle")
    build(REAL, folder)
    return folder


def test_the_bundle_holds_every_handler_and_its_packages(bundle: Path) -> None:
    for spec in FUNCTIONS:
        assert (bundle / f"{spec.module.replace('.', '/')}.py").is_file()
    assert (bundle / "pydantic").is_dir()
    assert (bundle / "nodeheal" / "domain" / "faults" / "catalog.csv").is_file()


def test_the_bundle_is_built_for_lambda_whatever_builds_it(bundle: Path) -> None:
    [core] = (bundle / "pydantic_core").glob("*.so")

    assert core.name == "_pydantic_core.cpython-313-aarch64-linux-gnu.so"


def test_agents_tests_and_tools_stay_out_of_the_bundle(bundle: Path) -> None:
    assert not [name for name in ("tests", "sandbox", "stacks", "tools", "bin", "boto3") if (bundle / name).exists()]
    assert not (bundle / "nodeheal" / "agent").exists()


def test_the_console_has_its_pages_and_packages_and_no_other_function_has_them(bundle: Path, tmp_path: Path) -> None:
    build(SANDBOX, tmp_path, CONSOLE_BUNDLE)
    of_console = [*CONSOLE_FILES, *map(Path, ("jinja2", "jwt", "mangum", "starlette", "yaml"))]

    assert [name for name in of_console if not (tmp_path / name).exists()] == []
    assert [name for name in of_console if (bundle / name).exists()] == []
    assert (tmp_path / "nodeheal" / "console" / "static" / "htmx.min.js").is_file()
    found = "import lambdas.console, lambdas.sign_in, nodeheal.console.app as app; print(app.__file__)"
    # Without what is installed beside it, but for boto3, which the runtime has.
    paths = f"import sys; sys.path = [{str(tmp_path)!r}, *[p for p in sys.path if 'wt-' not in p]]; {found}"
    done = subprocess.run([sys.executable, "-c", paths], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(tmp_path / "nodeheal" / "console" / "app.py"), done.stderr


def test_building_twice_gives_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    build(REAL, tmp_path)

    assert digest(tmp_path) == digest(bundle)


def test_the_stages_have_bundles_of_their_own() -> None:
    assert fingerprint(REAL) != fingerprint(SANDBOX)
    assert fingerprint(REAL) == fingerprint(Settings())


def test_every_source_is_one_of_ours() -> None:
    assert {path.relative_to(REPOSITORY).parts[0] for path in sources()} == {"lambdas", "nodeheal"}


def test_the_bundle_follows_the_processor_of_the_functions() -> None:
    """Lambda has arm64 in most Regions of China, and not in all that AWS has."""
    intel = Settings(architecture="x86_64")

    deployed = [f["Properties"] for _, f in synthesize({"nodeheal": {"architecture": "x86_64"}}).of_type(FUNCTION)]
    assert Target.of(intel).platform == "manylinux2014_x86_64"
    assert fingerprint(intel) != fingerprint(REAL)
    assert deployed
    assert all(function["Architectures"] == ["x86_64"] for function in deployed)


@pytest.mark.parametrize("bundle", [ALL_FUNCTIONS, CONSOLE_BUNDLE], ids=["functions", "console"])
def test_no_pin_of_the_bundle_depends_on_the_machine_that_builds_it(bundle: Bundle) -> None:
    """pip evaluates markers for the machine on which it runs, also where it builds for another one. CPython runs it."""
    pins = (REPOSITORY / bundle.pins).read_text("utf-8")

    marked = [line.partition(";")[2] for line in pins.splitlines() if ";" in line.partition("#")[0]]
    of_cpython = "(implementation_name|platform_python_implementation) != 'PyPy'"
    assert [marker for marker in marked if re.sub(rf"{of_cpython}| and |[ \\\\]", "", marker)] == []


def test_pip_takes_only_pinned_wheels() -> None:
    command = pip_command(Target.of(REAL), Path("somewhere"))

    assert "--require-hashes" in command
    assert "--only-binary=:all:" in command
