"""Builds one code asset for all functions, with pip: no Docker. See docs/adr/0005-building-without-docker.md."""

import compileall
import contextlib
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_

from stacks.settings import REPOSITORY, Settings

REQUIREMENTS = Path("lambdas/requirements.txt")
PACKAGES = ("nodeheal", "lambdas")
LEFT_OUT = (Path("nodeheal/agent"), Path("nodeheal/cli"))
CACHE = REPOSITORY / "build" / "lambda-packages"
PIP_SECONDS = 300
_MACHINES = {"arm64": "aarch64", "x86_64": "x86_64"}  # as in the names of wheels


@dataclass(frozen=True)
class Target:
    """The platform that the bundle is built for. Compiled wheels (pydantic's core) depend on it."""

    python_version: str
    platform: str

    @classmethod
    def of(cls, settings: Settings) -> "Target":
        """Return Lambda's platform for the real stage. The sandbox runs functions on the interpreter that
        synthesizes.
        """
        if settings.is_sandbox:
            return cls(
                f"{sys.version_info.major}.{sys.version_info.minor}", f"{platform.system()}-{platform.machine()}"
            )
        return cls("3.13", f"manylinux2014_{_MACHINES[settings.architecture]}")

    @property
    def is_host(self) -> bool:
        """Whether pip may choose wheels as for itself."""
        return not self.platform.startswith("manylinux")


def code_asset(settings: Settings) -> lambda_.Code:
    """Return the asset. Its hash covers all inputs, so unchanged sources are not built again."""
    return lambda_.Code.from_asset(
        str(REPOSITORY / "lambdas"),  # nominal: the bundler knows its sources
        asset_hash=fingerprint(settings),
        asset_hash_type=AssetHashType.CUSTOM,
        bundling=BundlingOptions(
            # Never pulled: the local bundler below builds, or fails.
            image=DockerImage.from_registry("none"),
            local=PipBundler(settings),
        ),
    )


def fingerprint(settings: Settings) -> str:
    """Return a digest of the bundle's recipe: sources, pins, target."""
    digest = hashlib.sha256()
    inputs = {
        str(path.relative_to(REPOSITORY)): path for path in [*sources(), REPOSITORY / REQUIREMENTS, Path(__file__)]
    }
    for name, path in inputs.items():
        digest.update(f"{name}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    target = Target.of(settings)
    digest.update(json.dumps([target.python_version, target.platform]).encode())
    return digest.hexdigest()


def sources() -> Iterator[Path]:
    """Return nodeheal's files that the functions need, in a fixed order."""
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*")):
            relative = path.relative_to(REPOSITORY)
            if path.is_file() and "__pycache__" not in relative.parts and not _is_left_out(relative):
                yield path


def _is_left_out(relative: Path) -> bool:
    return any(relative.is_relative_to(folder) for folder in LEFT_OUT) or relative.name.startswith("requirements")


def build(settings: Settings, folder: Path) -> None:
    """Fill the folder with the bundle. Raises RuntimeError with pip's output when pip fails."""
    shutil.copytree(dependencies(Target.of(settings)), folder, dirs_exist_ok=True)
    for path in sources():
        copy = folder / path.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    if Target.of(settings).is_host:
        _compile(folder)


def _compile(folder: Path) -> None:
    """Compile modules ahead, which halves a cold start. Only this interpreter's format can be made here, so only for
    the host.

    The files are unchecked and without times, so that the same sources give the same bytes.
    """
    compileall.compile_dir(folder, quiet=2, stripdir=str(folder), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)


def dependencies(target: Target) -> Path:
    """Return a folder with the pinned packages, installed once for each set of pins and target."""
    pins = (REPOSITORY / REQUIREMENTS).read_bytes()
    installed = CACHE / hashlib.sha256(pins + repr(target).encode()).hexdigest()[:16]
    if not installed.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="unfinished-") as unfinished:
            _install(target, Path(unfinished) / "packages")
            with contextlib.suppress(OSError):  # another process was faster, and installed the same
                (Path(unfinished) / "packages").rename(installed)
    return installed


def _install(target: Target, folder: Path) -> None:
    command = pip_command(target, folder)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"pip could not install {REQUIREMENTS}: {done.stderr.strip()[-2000:]}")
    _forget_the_machine(folder)


def pip_command(target: Target, folder: Path) -> list[str]:
    """Return the pip call for a target: pinned, hash-checked, wheels only, so that it builds for another machine."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--target", str(folder)]
    if not target.is_host:
        command += ["--platform", target.platform, "--python-version", target.python_version]
        command += ["--implementation", "cp"]
    return [*command, "--requirement", str(REPOSITORY / REQUIREMENTS)]


def _forget_the_machine(folder: Path) -> None:
    """Remove what differs from one build to the next: launchers, and the records that list them."""
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for record in folder.glob("*.dist-info/RECORD"):
        record.unlink()


@jsii.implements(ILocalBundling)
class PipBundler:
    """Builds the bundle on this machine. There is no fallback: a failure is a failure."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def try_bundle(self, output_dir: str, *_: object, **__: object) -> bool:
        """Build the bundle. The CDK calls it when no asset with this hash is in its output folder."""
        build(self._settings, Path(output_dir))
        return True
