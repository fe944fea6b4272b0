"""Records the values that drills inject into DCGM, so that DCGM's reports of them are marked as drills.

Root writes the file in a folder of its own, and the agent's user reads it. A reboot deletes it.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.runtime.safe_files import replace_file
from nodeheal.contract.json_text import read_json
from nodeheal.contract.names import DRILL_MARK
from nodeheal.parsers.dcgm_injected import XID_FIELD, counter_code, health_code
from nodeheal.parsers.finding import Finding

FILE_MODE = 0o644
# DCGM keeps an XID until its host engine restarts, at the latest at the next boot. Any other value lasts until the
# driver's next one, within seconds; the check runs every five minutes.
HELD_SECONDS = 600.0

Notes = dict[str, float | None]  # by `GPU 3 DCGM_FR_…`: until when, in monotonic seconds; None: until the next boot


def note(
    config: AgentConfig, gpu: int, field: int, value: str, monotonic: Callable[[], float] = time.monotonic
) -> Callable[[], None]:
    """Record the findings that the agent may report for the value. Returns a function that removes the record.

    Raises OSError.
    """
    codes, before = filter(None, (health_code(field, value), counter_code(field, value))), _read(config)
    until = None if field == XID_FIELD else monotonic() + HELD_SECONDS
    noted = {_key(f"GPU {gpu}", code): until for code in codes}
    if not noted:
        return lambda: None
    _write(config, {**before, **noted})
    return lambda: _write(config, before)


def is_drilled(
    config: AgentConfig, component: str | None, code: str, monotonic: Callable[[], float] = time.monotonic
) -> bool:
    """Whether a finding of DCGM's health comes from a drill of this boot."""
    key, notes = _key(component, code), _read(config) if config.drills else {}
    until = notes.get(key, 0.0)
    return key in notes and (until is None or monotonic() < until)


def marked(finding: Finding, config: AgentConfig) -> Finding:
    """Return the finding, with the drill's mark where a drill has injected it."""
    if not is_drilled(config, finding.component, finding.code):
        return finding
    return replace(finding, message=f"{finding.message} {DRILL_MARK}")


def _key(component: str | None, code: str) -> str:
    return f"{component} {code}"


def _write(config: AgentConfig, notes: Notes) -> None:
    content = json.dumps({"boot_id": config.boot_id(), "notes": notes})
    replace_file(Path(config.dcgm_drills_file), content, FILE_MODE)


def _read(config: AgentConfig) -> Notes:
    try:
        content = read_json(Path(config.dcgm_drills_file).read_text("utf-8"))
        if content["boot_id"] != config.boot_id():
            return {}
        return {str(key): None if until is None else float(until) for key, until in content["notes"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
