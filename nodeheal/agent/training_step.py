"""Reads the last step that a run has reported on this node, from its progress file."""

import json
from collections.abc import Callable
from pathlib import Path

from nodeheal.agent.safe_files import open_file
from nodeheal.checkpoints.apart import NoAnswer, tell_apart

FILE_BYTES = 4_096
SECONDS = 3.0
STEPS = 2**63


def last_step(file: Path, become: Callable[[], None]) -> int | None:
    """Return the step; None where the file does not exist or contains none. The file is read as the user of
    `become`.
    """
    try:
        told = tell_apart(lambda: step_in(_read(file)), SECONDS, become)
    except NoAnswer:
        return None
    return told if isinstance(told, int) else None


def step_in(content: bytes) -> int | None:
    """Parse the step in `{"step": 2037}`; None for anything else that a job may write."""
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return None
    step = said.get("step") if isinstance(said, dict) else None
    is_step = isinstance(step, int) and not isinstance(step, bool) and 0 <= step < STEPS
    return step if is_step else None


def _read(file: Path) -> bytes:
    with open_file(file) as opened:  # a job may write anything there
        return opened.read(FILE_BYTES)
