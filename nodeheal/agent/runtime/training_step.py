"""Reads the last step that a run has reported on this node, from its progress file."""

import re
from pathlib import Path

from nodeheal.agent.runtime.safe_files import open_file
from nodeheal.contract.json_text import read_json

FILE_BYTES = 4_096
STEPS = 2**63
FILES = 8  # looked at for a heartbeat: a node has one job at a time, and leftovers of others
RUNS = 2  # in a heartbeat, which is one small item
_OF_RUN = re.compile(r"(?P<job>[a-z0-9-]{1,63})\.(?P<run>\d{1,9})\.\d{1,6}\.json")


def steps_in(folder: Path) -> dict[str, int]:
    """The last steps of the newest runs that show one in this folder, by `JOB/RUN`. Never raises: a heartbeat must go
    out whatever a job has put there.
    """
    steps: dict[str, int] = {}
    try:
        files = sorted(folder.iterdir(), key=lambda file: file.lstat().st_mtime, reverse=True)[:FILES]
    except OSError:
        return steps
    for file in files:
        named = _OF_RUN.fullmatch(file.name)
        try:
            step = step_in(read_progress(file)) if named else None
        except OSError:
            continue
        if named is not None and step is not None and len(steps) < RUNS:
            steps.setdefault(f"{named['job']}/{named['run']}", step)
    return steps


def step_in(content: bytes) -> int | None:
    """Parse the step in `{"step": 2037}`; None for anything else that a job may write."""
    try:
        progress = read_json(content)
    except ValueError:
        return None
    step = progress.get("step") if isinstance(progress, dict) else None
    is_step = isinstance(step, int) and not isinstance(step, bool) and 0 <= step < STEPS
    return step if is_step else None


def read_progress(file: Path) -> bytes:
    """Return the start of a progress file. Raises OSError."""
    with open_file(file) as opened:  # a job may write anything there
        return opened.read(FILE_BYTES)
