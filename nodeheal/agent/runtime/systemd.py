"""Runs the tools of systemd, each with a deadline."""

import subprocess
from collections.abc import Callable, Sequence

DEADLINE_SECONDS = 10.0  # a service manager that does not answer must not take all of a command's time
ERROR_CHARACTERS = 300

Call = Callable[[Sequence[str]], str]


def call(command: Sequence[str]) -> str:
    """Run one command. Returns why it failed; an empty string: it succeeded. Never raises."""
    try:
        ended = subprocess.run(
            list(command), cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_SECONDS, check=False
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"{command[0]}: no answer within {DEADLINE_SECONDS:g} s"
    if ended.returncode == 0:
        return ""
    message = ended.stderr.decode(errors="replace").strip()[-ERROR_CHARACTERS:]
    return f"{command[0]}: exit code {ended.returncode}: {message}"
