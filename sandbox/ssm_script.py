"""One run of a command's script on a node, as by the SSM agent: a shell, two pipes, a time-out, a cancellation."""

import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from sandbox.iam import REGION
from sandbox.node import Node

if TYPE_CHECKING:
    import subprocess

REBOOT_CODE = 194  # the script requests a reboot, and to be run again
SUCCESS_CODE = 168
KILLED_CODE = 137  # the agent has killed it, at its time-out or on cancellation
OUTPUT_CHARACTERS = 24_000
TRUNCATED = "--output truncated--"
WORKING_DIRECTORY = "usr/bin"  # of the node: the WorkingDirectory of the agent's own unit
# The environment that systemd gives a service.
SERVICE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NOT_A_SERVICES = ("HOME", "LANG")
_KEPT_BYTES = 4 * OUTPUT_CHARACTERS + 1
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Ended:
    """How a script ended. `was_cut`: its node went down during it, and the agent knows nothing of its end."""

    code: int
    status: str
    output: str = ""
    errors: str = ""
    was_cut: bool = False
    details: str = ""  # of the status, where it has more than one


class _Pipe(threading.Thread):
    """Reads one pipe to its end: a process that holds the other end keeps the step running."""

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._read = b""
        self.start()

    def run(self) -> None:
        while some := os.read(self._pipe.fileno(), 65_536):
            self._read += some[: _KEPT_BYTES - len(self._read)]
        self._pipe.close()

    @property
    def text(self) -> str:
        """Return what was read so far, up to the reported maximum."""
        return self._read.decode(errors="replace")


def run_script(text: str, seconds: int, command_id: str, node: Node, cancelled: threading.Event) -> Ended | None:
    """Run the script and wait for its end, the end of its pipes, its time-out or the cancellation.

    None: the node is down, so the script has not begun.
    """
    boot_id = node.boot_id
    folder = node.directory / "ssm" / command_id
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "_script.sh"
    script.write_text(text + "\n", encoding="utf-8")
    script.chmod(0o700)
    here = node.directory / WORKING_DIRECTORY
    here.mkdir(parents=True, exist_ok=True)
    process = node.spawn(["sh", "-c", str(script)], here, _environment(node, command_id))
    if process is None or process.stdout is None or process.stderr is None:
        return None
    pipes = _Pipe(process.stdout), _Pipe(process.stderr)
    ended = _wait(process, pipes, time.monotonic() + seconds, cancelled)
    if ended is None:
        ended = _ended(process.wait())
    if ended.code != 0 and (not node.is_up or node.boot_id != boot_id):
        return Ended(1, "Failed", was_cut=True)
    output, errors = (pipe.text for pipe in pipes)
    return Ended(ended.code, ended.status, output, "" if ended.code == SUCCESS_CODE else errors + ended.errors)


def shortened(text: str) -> str:
    """Return the reported part of an output: its beginning, with a mark where it was cut."""
    if len(text) < OUTPUT_CHARACTERS:
        return text
    return text[: OUTPUT_CHARACTERS - len(TRUNCATED)] + TRUNCATED


def _environment(node: Node, command_id: str) -> dict[str, str]:
    """Return a service's environment, and the agent's additions. The rest leads the sandbox's tools to their node."""
    kept = {name: value for name, value in node.environment().items() if name not in _NOT_A_SERVICES}
    own = kept["PATH"].removesuffix(os.defpath)
    return {
        **kept,
        "PATH": own + SERVICE_PATH,
        "AWS_SSM_INSTANCE_ID": node.spec.node_id,
        "AWS_SSM_REGION_NAME": REGION,
        "AWS_SSM_PLATFORM_NAME": "Simulated Linux",
        "AWS_SSM_PLATFORM_VERSION": "1",
        "SSM_COMMAND_ID": command_id,
    }


def _wait(
    process: "subprocess.Popen[bytes]", pipes: tuple[_Pipe, _Pipe], until: float, cancelled: threading.Event
) -> Ended | None:
    """Wait. None: it has ended by itself, and so have its pipes."""
    while process.poll() is None or any(pipe.is_alive() for pipe in pipes):
        if cancelled.is_set():
            return _killed(process, "Cancelled")
        if time.monotonic() >= until:
            return _killed(process, "TimedOut")
        time.sleep(_POLL_SECONDS)
    return None


def _killed(process: "subprocess.Popen[bytes]", status: str) -> Ended:
    """Send SIGKILL to the process group: no other process of the script's is ended, and none is warned."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # the shell has ended; a process of another session holds the pipe
        return Ended(1, "Failed", errors="failed to run commands: no such process")
    process.wait()
    return Ended(KILLED_CODE, status)


def _ended(returned: int) -> Ended:
    if returned in (0, SUCCESS_CODE):
        return Ended(returned, "Success")
    if returned == REBOOT_CODE:
        return Ended(returned, "SuccessAndReboot")
    if returned == KILLED_CODE:
        return Ended(returned, "TimedOut")
    said = f"exit status {returned}" if returned > 0 else f"signal: {(signal.strsignal(-returned) or '').lower()}"
    return Ended(max(returned, -1), "Failed", errors=f"failed to run commands: {said}")
