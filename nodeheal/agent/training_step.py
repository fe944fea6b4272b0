"""The last step that a run has shown on this node: what it writes into the file that it touches, if it does."""

import json
from collections.abc import Callable
from pathlib import Path

from nodeheal.agent.safe_files import open_file
from nodeheal.checkpoints.apart import NoAnswer, tell_apart

FILE_BYTES = 4_096
SECONDS = 3.0
STEPS = 2**63


def last_step(file: Path, become: Callable[[], None]) -> int | None:
    """The step; None where the file is not there or says none. Its reader is who `become` makes him."""
    try:
        told = tell_apart(lambda: step_in(_read(file)), SECONDS, become)
    except NoAnswer:
        return None
    return told if isinstance(told, int) else None


def step_in(content: bytes) -> int | None:
    """The step in `{"step": 2037}`; None for whatever else a job may have put there."""
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return None
    step = said.get("step") if isinstance(said, dict) else None
    is_step = isinstance(step, int) and not isinstance(step, bool) and 0 <= step < STEPS
    return step if is_step else None


def _read(file: Path) -> bytes:
    with open_file(file) as opened:  # a job may put there what it likes
        return opened.read(FILE_BYTES)
