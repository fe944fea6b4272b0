"""`python -m nodeheal.agent.evidence.stacks`: prints the stacks of each Python process of a job by py-spy, where that
is installed.

It runs as a separate process, like all evidence commands. Variables are not requested, and command lines are left out:
they may hold secrets.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
# The control plane sets it for every rank: a process that inherits it belongs to a job.
MARK = b"NODEHEAL_JOB="
ENVIRONMENT_BYTES = 256 * 1024
PROCESSES = 64  # eight accelerators with their ranks and loaders; more add nothing
SECONDS = 5.0  # one takes a tenth of it; a process that blocks in the driver cannot be inspected
MISSING = "(py-spy is not installed here: put it on PATH, or into the agent's own environment)"


def stacks(spy: str | None) -> Iterator[str]:
    """Print the stacks of every process of a job, each below its pid and name."""
    if spy is None:
        yield MISSING
        return
    for pid in sorted(_of_jobs())[:PROCESSES]:
        yield f"== {pid} {_name(pid)}"
        yield from _dump(spy, pid)


def find_spy() -> str | None:
    """Return py-spy from PATH, or beside the running Python."""
    return shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))


def without_arguments(printed: str) -> Iterator[str]:
    """Drop the first line of py-spy's output: it is the command line of the process."""
    for line in printed.splitlines():
        if not line.startswith("Process "):
            yield line


def _of_jobs() -> Iterator[int]:
    for folder in PROC.glob("[0-9]*"):
        try:
            with (folder / "environ").open("rb") as file:
                variables = file.read(ENVIRONMENT_BYTES).split(b"\0")
        except OSError:
            continue  # it has ended, or this user may not read it
        if any(variable.startswith(MARK) for variable in variables):
            yield int(folder.name)


def _dump(spy: str, pid: int) -> Iterator[str]:
    command = [spy, "dump", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        yield f"(no answer within {SECONDS:g} s)"
        return
    except OSError as error:
        yield f"({error.strerror})"
        return
    yield from without_arguments(done.stdout.decode("utf-8", "replace"))
    if done.returncode:
        yield f"({done.stderr.decode('utf-8', 'replace').strip()[:500]})"  # most are not Python at all


def _name(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def main() -> None:
    """Print each as it comes: a process that hangs must not hold back the earlier ones."""
    for line in stacks(find_spy()):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
