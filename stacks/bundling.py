"""Builds the code assets of the functions, with pip: no Docker. See docs/adr/0005-building-without-docker.md."""

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

PACKAGES = ("nodeheal", "lambdas")
_NEVER = (Path("nodeheal/agent"), Path("nodeheal/cli"))
CACHE = REPOSITORY / "build" / "lambda-packages"
PIP_SECONDS = 300
_MACHINES = {"arm64": "aarch64", "x86_64": "x86_64"}  # as in the names of wheels


@dataclass(frozen=True)
class Bundle:
    """What functions are packed of: pinned packages, and nodeheal's sources but for some."""

    pins: Path
    left_out: tuple[Path, ...]


CONSOLE_FILES = (Path("nodeheal/console"), Path("lambdas/console.py"), Path("lambdas/sign_in.py"))
ALL_FUNCTIONS = Bundle(Path("lambdas/requirements.txt"), (*_NEVER, *CONSOLE_FILES))
# Of its own: what pages are made with would make every other function's cold start longer.
CONSOLE_BUNDLE = Bundle(Path("lambdas/requirements-console.txt"), _NEVER)


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


def code_asset(settings: Settings, bundle: Bundle = ALL_FUNCTIONS) -> lambda_.Code:
    """Return the asset. Its hash covers all inputs, so unchanged sources are not built again."""
    return lambda_.Code.from_asset(
        str(REPOSITORY / "lambdas"),  # nominal: the bundler knows its sources
        asset_hash=fingerprint(settings, bundle),
        asset_hash_type=AssetHashType.CUSTOM,
        bundling=BundlingOptions(
            # Never pulled: the local bundler below builds, or fails.
            image=DockerImage.from_registry("none"),
            local=PipBundler(settings, bundle),
        ),
    )


def fingerprint(settings: Settings, bundle: Bundle = ALL_FUNCTIONS) -> str:
    """Return a digest of the bundle's recipe: sources, pins, target."""
    digest = hashlib.sha256()
    files = [*sources(bundle), REPOSITORY / bundle.pins, Path(__file__)]
    inputs = {str(path.relative_to(REPOSITORY)): path for path in files}
    for name, path in inputs.items():
        digest.update(f"{name}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    target = Target.of(settings)
    digest.update(json.dumps([target.python_version, target.platform]).encode())
    return digest.hexdigest()


def sources(bundle: Bundle = ALL_FUNCTIONS) -> Iterator[Path]:
    """Return nodeheal's files that the functions need, in a fixed order."""
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*")):
            relative = path.relative_to(REPOSITORY)
            if path.is_file() and "__pycache__" not in relative.parts and not _is_left_out(relative, bundle):
                yield path


def _is_left_out(relative: Path, bundle: Bundle) -> bool:
    return any(relative.is_relative_to(each) for each in bundle.left_out) or relative.name.startswith("requirements")


def build(settings: Settings, folder: Path, bundle: Bundle = ALL_FUNCTIONS) -> None:
    """Fill the folder with the bundle. Raises RuntimeError with pip's output when pip fails."""
    shutil.copytree(dependencies(Target.of(settings), bundle), folder, dirs_exist_ok=True)
    for path in sources(bundle):
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


def dependencies(target: Target, bundle: Bundle = ALL_FUNCTIONS) -> Path:
    """Return a folder with the pinned packages, installed once for each set of pins and target."""
    pins = (REPOSITORY / bundle.pins).read_bytes()
    installed = CACHE / hashlib.sha256(pins + repr(target).encode()).hexdigest()[:16]
    if not installed.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="unfinished-") as unfinished:
            _install(target, Path(unfinished) / "packages", bundle)
            with contextlib.suppress(OSError):  # another process was faster, and installed the same
                (Path(unfinished) / "packages").rename(installed)
    return installed


def _install(target: Target, folder: Path, bundle: Bundle) -> None:
    command = pip_command(target, folder, bundle)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"pip could not install {bundle.pins}: {done.stderr.strip()[-2000:]}")
    _forget_the_machine(folder)


def pip_command(target: Target, folder: Path, bundle: Bundle = ALL_FUNCTIONS) -> list[str]:
    """Return the pip call for a target: pinned, hash-checked, wheels only, so that it builds for another machine."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--target", str(folder)]
    if not target.is_host:
        command += ["--platform", target.platform, "--python-version", target.python_version]
        command += ["--implementation", "cp"]
    return [*command, "--requirement", str(REPOSITORY / bundle.pins)]


def _forget_the_machine(folder: Path) -> None:
    """Remove what differs from one build to the next: launchers, and the records that list them."""
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for record in folder.glob("*.dist-info/RECORD"):
        record.unlink()


@jsii.implements(ILocalBundling)
class PipBundler:
    """Builds the bundle on this machine. There is no fallback: a failure is a failure."""

    def __init__(self, settings: Settings, bundle: Bundle) -> None:
        self._settings, self._bundle = settings, bundle

    def try_bundle(self, output_dir: str, *_: object, **__: object) -> bool:
        """Build the bundle. The CDK calls it when no asset with this hash is in its output folder."""
        build(self._settings, Path(output_dir), self._bundle)
        return True
