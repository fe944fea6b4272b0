"""Has a rank stand still, as one does whose kernel or file system never returns: it lives, and says nothing."""

import signal
import time
from pathlib import Path

from nodeheal.agent.runtime.training_files import files_by_run, newest, read_progress, records_in
from sandbox import processes

_SECONDS = 10.0
_SETTLED_SECONDS = 0.05  # a write that was under way when the signal came is done by then


def freeze_rank(node_directory: Path) -> float:
    """Stop the processes of the node's newest run within their own work; returns when, in seconds since the epoch.

    One that is stopped while it waits for others is let go on: they may wait for another one by then. Raises
    TimeoutError.
    """
    ranks = [
        process
        for process in processes.with_mark(processes.NODE_MARK, str(node_directory))
        if any(argument.endswith("train.py") for argument in process.cmdline())
    ]
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        at = time.time()
        for process in ranks:
            processes.send(process, signal.SIGSTOP)
        time.sleep(_SETTLED_SECONDS)
        if ranks and not _waits(node_directory / "progress"):
            return at
        for process in ranks:
            processes.send(process, signal.SIGCONT)
        time.sleep(_SETTLED_SECONDS / 7)  # not in step with the steps
    raise TimeoutError(f"no rank of {node_directory.name} was met within its own work for {_SECONDS:g} s")


def _waits(folder: Path) -> bool:
    """Return whether the newest run's last word there is that it waits for others."""
    for _, files in files_by_run(folder)[:1]:
        records = [record for file in files.values() for record in records_in(read_progress(file))]
        return not records or newest(records).waits
    return True
