"""Keeps the diagnostics command that a reboot leaves for the next boot, in a file of root's (ADR 62)."""

import contextlib
import json
import logging
import os
from base64 import urlsafe_b64decode
from pathlib import Path

from nodeheal.agent.runtime import systemd
from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.agent.runtime.safe_files import is_own, open_file, open_folder, replace_file
from nodeheal.contract.json_text import read_json

VARIABLE = "NODEHEAL_AFTER_BOOT"  # the SSM document passes the command here: older agents know no such option
UNIT = "nodeheal-after-boot.service"
FILE = "after-boot.json"
LONGEST = 4_096  # characters of a command
_ASKED = ("level", "checks", "first", "request_id", "expires_at")
NODE, NOT_ON = "node", "not_on"

logger = logging.getLogger(__name__)


def leave(text: str, boot_id: str, config: AgentConfig, call: systemd.Call) -> str:
    """Store the diagnostics command for the next boot. Returns its request id; empty: nothing was stored.

    `text`: a JSON object in URL-safe Base64, with five options of `nodeheal-agent run diag` as texts.
    """
    if text in ("", "none"):
        return ""
    command = _read(_decoded(text))
    why_not = "it cannot be read" if command is None else call(["systemctl", "is-enabled", "--quiet", UNIT])
    if command is None or why_not:
        logger.warning("no diagnostics are left for the next boot", extra={"why": why_not})
        return ""
    folder = Path(config.orders_dir)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(folder / FILE, json.dumps({**command, NODE: config.node_id, NOT_ON: boot_id}), 0o600, os.fsync)
    except OSError as error:
        logger.warning("no diagnostics are left for the next boot", extra={"why": error})
        return ""
    return command["request_id"]


def forget(config: AgentConfig) -> None:
    """Delete the stored command: diagnostics run now, and a second run would collide with the next job."""
    with contextlib.suppress(OSError):
        (Path(config.orders_dir) / FILE).unlink(missing_ok=True)


def _decoded(text: str) -> str:
    try:
        return urlsafe_b64decode(f"{text}==").decode()
    except ValueError:
        return ""


def take(place: Path) -> dict[str, str] | None:
    """Return the command and delete it from the disk before it runs, so that it runs once. None: root has
    stored none.
    """
    try:
        folder = open_folder(place)
    except FileNotFoundError:
        return None
    try:
        with open_file(FILE, inside=folder) as file:
            is_ours, text = is_own(file.fileno()) and is_own(folder), file.read(LONGEST).decode(errors="replace")
        os.unlink(FILE, dir_fd=folder)
        os.fsync(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.error("the stored diagnostics command cannot be removed", extra={"file": place / FILE, "why": error})
        return None
    finally:
        os.close(folder)
    command = _read(text, NODE, NOT_ON) if is_ours else None
    if command is None:
        logger.error("the stored diagnostics command is not valid", extra={"file": place / FILE})
    return command


def _read(text: str, *more: str) -> dict[str, str] | None:
    """Parse the command; it must have exactly these texts. `run diag` validates their values."""
    try:
        command = read_json(text) if len(text) <= LONGEST else None
    except ValueError:
        return None
    if not isinstance(command, dict) or command.keys() != {*_ASKED, *more}:
        return None
    return command if all(isinstance(value, str) for value in command.values()) else None
