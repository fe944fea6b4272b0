"""A folder that stands for a node's root, and the install document's script run in it as the SSM agent runs it."""

import base64
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.toml import toml

REPOSITORY = Path(__file__).parents[2]
DOCUMENT = REPOSITORY / "packaging" / "ssm" / "install-agent.json"
FROM_THE_SYSTEM = (
    *("sh", "base64", "cat", "chmod", "cp", "date", "find", "grep", "ln", "mkdir", "mv", "readlink", "rm"),
    *("rmdir", "sed", "sha256sum", "sleep"),
)
# What the stubs do to a root that the tests look at.
STUBS = {
    "id": '[ "$1" = -u ] && echo "${FAKE_UID:-0}" || grep -qx "$1" "$ROOT/users"',
    "useradd": 'for name; do :; done; echo "$name" >> "$ROOT/users"; echo "$@" >> "$ROOT/useradd.log"',
    "userdel": """
        [ "$1" = -f ] && shift || [ ! -s "$ROOT/processes" ] || { echo "userdel: user is in use" >&2; exit 8; }
        sed -i "/^$1\\$/d" "$ROOT/users\"""",
    "pgrep": '[ "$1 $2" = "-U nodeheal" ] && grep . "$ROOT/processes"',
    "pkill": '[ "$1 $2 $3" = "-KILL -U nodeheal" ] && sed -i /ends/d "$ROOT/processes"',
    "groupdel": "exit 6",
    "chown": 'echo "$@" >> "$ROOT/chown.log"',
    "journalctl": "echo the last words",
    "systemctl": """
        echo "$@" >> "$ROOT/systemctl.log"
        case "$1" in
          show) grep -qs 4.0 "$ROOT/opt/nodeheal/current/package" && echo NRestarts=3 || cat "$ROOT/restarts" ;;
          reset-failed) echo NRestarts=0 > "$ROOT/restarts" ;;
          is-active) echo active ;;
        esac""",
    "dnf": '[ -e "$ROOT/amazon-linux" ] && [ "$4" = python3.11 ] && cp "$ROOT/python-stub" "$ROOT/tools/python3.11"',
}


@dataclass
class NodeRoot:
    """The root, with the system's tools that the script needs and stubs for those that would change this machine."""

    root: Path
    config: dict[str, object]

    def __post_init__(self) -> None:
        self.tools = self.root / "tools"
        self.tools.mkdir(parents=True)
        for name in FROM_THE_SYSTEM:
            (self.tools / name).symlink_to(str(shutil.which(name)))
        for name, text in STUBS.items():
            executable(self.tools / name, f"#!/bin/sh\n{text}\n")
        (self.root / "users").touch()

    def send(
        self, document: Mapping[str, Any], action: str, version: str, config: str | None, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run the document's script with these parameters. No config: the node's own."""
        script = "\n".join(document["mainSteps"][0]["inputs"]["runCommand"])
        given = toml(self.config) if config is None else config
        values = {"Action": action, "Version": version, "Config": base64.b64encode(given.encode()).decode()}
        assert sorted(document["parameters"]) == sorted(values)
        for name, value in values.items():
            script = script.replace("{{ " + name + " }}", value)
        return subprocess.run(
            ["sh", "-c", script],
            env={
                "PATH": str(self.tools),
                "ROOT": str(self.root),
                "NODEHEAL_INSTALL_ROOT": str(self.root),
                "NODEHEAL_SETTLE_SECONDS": "0",
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    @property
    def base(self) -> Path:
        return self.root / "opt" / "nodeheal"

    @property
    def settings(self) -> Path:
        return self.root / "etc" / "nodeheal"

    def log(self, tool: str) -> list[str]:
        return (self.root / f"{tool}.log").read_text().splitlines()

    @property
    def left_versions(self) -> list[str]:
        """What is below versions/."""
        return [path.name for path in (self.base / "versions").iterdir()]

    @property
    def left(self) -> list[str]:
        """Everything of ours that is on the node."""
        places = ("opt", "etc", "var", "run")
        return [str(path) for place in places for path in (self.root / place).rglob("*nodeheal*")]


def executable(path: Path, text: str) -> None:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def script_of(document: Path) -> str:
    """The script of a document with one step."""
    return "\n".join(json.loads(document.read_text())["mainSteps"][0]["inputs"]["runCommand"]) + "\n"
