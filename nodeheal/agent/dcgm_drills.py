"""Records the values that drills inject into DCGM, so that DCGM's reports of them are marked as drills.

Root writes the file in a folder of its own, and the agent's user reads it. A reboot deletes it.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

from nodeheal.agent.config import AgentConfig
from nodeheal.agent.safe_files import replace_file
from nodeheal.contract.json_text import read_json
from nodeheal.parsers.dcgm_injected import XID_FIELD, health_code

FILE_MODE = 0o644
# DCGM keeps an XID until its host engine restarts, at the latest at the next boot. Any other value lasts until the
# driver's next one, within seconds; the check runs every five minutes.
HELD_SECONDS = 600.0

Notes = dict[str, float | None]  # by `GPU 3 DCGM_FR_…`: until when, in monotonic seconds; None: until the next boot


def note(
    config: AgentConfig, gpu: int, field: int, value: str, monotonic: Callable[[], float] = time.monotonic
) -> Callable[[], None]:
    """Record the finding that DCGM's health may report for the value. Returns a function that removes the record.

    Raises OSError.
    """
    code, before = health_code(field, value), _read(config)
    if code is None:
        return lambda: None
    _write(config, {**before, _key(f"GPU {gpu}", code): None if field == XID_FIELD else monotonic() + HELD_SECONDS})
    return lambda: _write(config, before)


def is_drilled(
    config: AgentConfig, component: str | None, code: str, monotonic: Callable[[], float] = time.monotonic
) -> bool:
    """Whether a finding of DCGM's health comes from a drill of this boot."""
    key, notes = _key(component, code), _read(config) if config.drills else {}
    until = notes.get(key, 0.0)
    return key in notes and (until is None or monotonic() < until)


def _key(component: str | None, code: str) -> str:
    return f"{component} {code}"


def _write(config: AgentConfig, notes: Notes) -> None:
    told = json.dumps({"boot_id": config.boot_id(), "notes": notes})
    replace_file(Path(config.dcgm_drills_file), told, FILE_MODE)


def _read(config: AgentConfig) -> Notes:
    try:
        told = read_json(Path(config.dcgm_drills_file).read_text("utf-8"))
        if told["boot_id"] != config.boot_id():
            return {}
        return {str(key): None if until is None else float(until) for key, until in told["notes"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
