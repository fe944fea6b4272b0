"""The wheel of nodeheal, installed by pip into an empty virtual environment without any other package."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from nodeheal import __version__
from nodeheal.cli import entry
from stacks import wheelhouse
from stacks.settings import REPOSITORY, Settings

PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
INFO = f"nodeheal-{__version__}.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nodeheal's own wheel, out of the wheelhouse."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheelhouse.build(Settings()).archive) as archive:
        return Path(archive.extract(f"nodeheal-{__version__}-py3-none-any.whl", folder))


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Path:
    """The folder of the console scripts."""
    environment = wheel.parent / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    [pip] = wheelhouse.packages().glob("pip-*.whl")
    install = [str(environment / "bin" / "python"), "-I", f"{pip}/pip", "install", "--quiet", "--no-index", str(wheel)]
    subprocess.run(install, check=True, timeout=120)
    return environment / "bin"


def run(program: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(program), *words], env={}, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("--help", "cli"),
        ("explain xid 79", "cli"),
        ("incidents list", "cli"),
        ("policy check policy.json", "cli"),
        ("simulate", "simulate"),
    ],
)
def test_without_its_extra_a_command_says_what_to_install(programs: Path, command: str, extra: str) -> None:
    ended = run(programs / "nodeheal", *command.split())

    assert ended.returncode == entry.BAD_INPUT
    assert ended.stdout == ""
    assert ended.stderr.startswith("nodeheal: this command needs the package typer")
    assert f"pip install '.[{extra}]' in a checkout" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    # The name alone is on no index of ours: whoever registers it would be installed.
    assert not re.search(r"install '?nodeheal\b", ended.stderr)


def test_the_agent_needs_no_extra(programs: Path) -> None:
    said = run(programs / "nodeheal-agent", "--version")

    assert (said.returncode, said.stdout.strip()) == (0, f"nodeheal-agent {__version__}")


def test_every_package_of_the_extras_is_known_by_the_module_that_is_imported() -> None:
    modules = {name: set(found) for name, found in metadata.packages_distributions().items()}
    for extra in ("cli", "simulate"):
        for requirement in PYPROJECT["optional-dependencies"][extra]:
            package = re.split(r"[>=]", requirement)[0]
            known = [module for module in entry.EXTRAS if package in {p.lower() for p in modules.get(module, ())}]
            assert known, package


def test_the_simulation_has_everything_that_the_command_line_needs() -> None:
    extras = PYPROJECT["optional-dependencies"]

    assert set(extras["cli"]) <= set(extras["simulate"])


def test_another_missing_module_is_a_defect_and_not_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nodeheal.cli.main", None)

    with pytest.raises(ModuleNotFoundError):
        entry.main()


def test_the_wheel_says_what_it_is_and_under_which_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        about = archive.read(f"{INFO}/METADATA").decode("utf-8")
        licence = archive.read(f"{INFO}/licenses/LICENSE")

    assert f"\nSummary: {PYPROJECT['description']}\n" in about
    assert "\nLicense-Expression: Apache-2.0\n" in about
    assert "\nRequires-Python: >=3.11\n" in about
    assert "\n# nodeheal\n" in about
    assert licence == (REPOSITORY / "LICENSE").read_bytes()
    assert b"Apache License" in licence


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "nodeheal"], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()

    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())

    assert "nodeheal/domain/faults/catalog.csv" in tracked
    assert sorted(set(tracked) - held) == []
