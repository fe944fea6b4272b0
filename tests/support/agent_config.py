"""A configuration file of the agent."""

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
