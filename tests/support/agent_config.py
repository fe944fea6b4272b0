"""Configuration files of the agent, and profiles in a file of credentials."""

import os
import pwd
from pathlib import Path
from typing import Any

from sandbox.toml import toml

LEAST: dict[str, Any] = {
    "node_id": "mi-0a1b",
    "cluster": "training",
    "pool": "h100",
    "provider": "hybrid",
    "scheduler": "ECS",
    "region": "eu-central-1",
}


def written(directory: Path, **changes: Any) -> Path:
    path = directory / "agent.toml"
    path.write_text(toml({**LEAST, **changes}))
    return path


ME = pwd.getpwuid(os.geteuid()).pw_name


def profile(access_key: str, name: str = "default") -> str:
    return f"[{name}]\naws_access_key_id = {access_key}\naws_secret_access_key = 50%off\naws_session_token = t=\n"
