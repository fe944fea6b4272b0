"""Builds the wheelhouse: one archive with every wheel that a node needs to install the agent. See ADR 47.

The same sources and pins give the same bytes, on every machine and at any time.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodeheal import __version__
from stacks.settings import AGENT_WHEEL, REPOSITORY, Settings

PINS = REPOSITORY / "packaging" / "agent"
AGENT_PINS, PIP_PINS = PINS / "requirements.txt", PINS / "pip.txt"
BUILD = REPOSITORY / "build" / "wheelhouse"
COMMAND_SECONDS = 300
# Every platform that the agent supports: the processors of AWS's accelerator machines, and the Pythons of
# distributions.
MACHINES = ("x86_64", "aarch64")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# The oldest time that a zip archive can store.
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Wheelhouse:
    """The archive, and the SHA-256 of its bytes."""

    archive: Path
    sha256: str


def build(settings: Settings) -> Wheelhouse:
    """Build the wheelhouse below build/. Raises RuntimeError with the message of the tool that failed."""
    others = packages()
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="unfinished-") as unfinished:
        agents = [_own_wheel(Path(unfinished)), *(REPOSITORY / wheel for wheel in settings.agent_wheels)]
        wheels = {path.name: path.read_bytes() for path in (*agents, *others.iterdir())}
        archive = Path(unfinished) / f"nodeheal-agent-{__version__}.zip"
        _write(archive, {**wheels, **dict(_requirements(agents))})
        sha256 = _sha256(archive.read_bytes())
        kept = BUILD / sha256[:16] / archive.name
        kept.parent.mkdir(exist_ok=True)
        archive.replace(kept)
    return Wheelhouse(kept, sha256)


def _own_wheel(folder: Path) -> Path:
    """Build nodeheal's own wheel, with the pinned build backend, from this checkout."""
    # Some build services set it; it would put the date into the wheel.
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    built = folder / "compressed"
    _run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(built)], environment)
    wheel = folder / f"nodeheal-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(built / wheel.name) as compressed:
        _write(wheel, {name: compressed.read(name) for name in compressed.namelist()})
    return wheel


def _requirements(agents: list[Path]) -> Iterator[tuple[str, bytes]]:
    """Return what pip installs for each version of the agent, with hashes."""
    for wheel in agents:
        [version] = re.findall(AGENT_WHEEL, wheel.name)
        pin = f"nodeheal=={version} --hash=sha256:{_sha256(wheel.read_bytes())}\n"
        yield f"requirements-{version}.txt", pin.encode() + AGENT_PINS.read_bytes()


def _write(archive: Path, files: dict[str, bytes]) -> None:
    """Write a zip archive whose bytes depend on the files only: not compressed, since builds of zlib compress
    differently.
    """
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as written:
        for name in sorted(files):
            written.writestr(zipfile.ZipInfo(name, ZIP_EPOCH), files[name])


def packages() -> Path:
    """Return a folder with the pinned wheels of other projects, downloaded once for each set of pins."""
    pins = _sha256(AGENT_PINS.read_bytes() + PIP_PINS.read_bytes() + repr((MACHINES, PYTHONS)).encode())
    downloaded = BUILD / f"packages-{pins[:16]}"
    if not downloaded.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD, prefix="unfinished-") as unfinished:
            folder = Path(unfinished) / "packages"
            for command in download_commands(folder, AGENT_PINS.read_text("utf-8")):
                _run(command, dict(os.environ))
            if not downloaded.exists():  # another synthesis may have finished first, with the same files
                folder.rename(downloaded)
    return downloaded


def download_commands(folder: Path, agent_pins: str) -> Iterator[list[str]]:
    """Return the pip calls: pinned wheels only, checked by hash, and for each kind of node where the agent needs
    packages.
    """
    common = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    common += ["--require-hashes", "--only-binary=:all:", "--dest", str(folder)]
    yield [*common, "--requirement", str(PIP_PINS)]
    if "==" not in agent_pins:
        return
    for machine in MACHINES:
        for python in PYTHONS:
            target = ["--platform", f"manylinux_2_28_{machine}", "--platform", f"manylinux2014_{machine}"]
            target += ["--implementation", "cp", "--python-version", python]
            yield [*common, *target, "--requirement", str(AGENT_PINS)]


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[1:4])} failed: {done.stderr.strip()[-2000:]}")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    made = build(Settings())
    sys.stdout.write(f"{made.archive.relative_to(REPOSITORY)}\nSHA-256 {made.sha256}\n")
