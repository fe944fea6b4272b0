"""Where a user's own settings are. Imports nothing heavy: every command reads it first."""

import os
from pathlib import Path

ENV_ACCOUNT = "NODEHEAL_ACCOUNT"  # of the context in use: with credentials of another account, nothing is done


def context_file() -> Path:
    """Where contexts are kept: NODEHEAL_CONFIG, or config.yaml in the user's configuration directory."""
    named = os.environ.get("NODEHEAL_CONFIG")
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(named) if named else Path(home) / "nodeheal" / "config.yaml"
