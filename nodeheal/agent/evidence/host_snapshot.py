"""`python -m nodeheal.agent.evidence.host_snapshot WHAT`: prints what no tool prints, from /proc and /sys.

It runs as a separate process, because reading a counter of a dead device can hang without end. Arguments and
environments of processes are left out, since they may hold secrets.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from nodeheal.agent.runtime.safe_files import is_own, open_file, open_folder
from nodeheal.parsers.kernel_header import kernel_text_of_tagged_line

PROC = Path("/proc")
SYSTEM = Path("/sys")
DEVICES = ("/dev/nvidia", "/dev/neuron", "/dev/infiniband")
LARGEST_FILE = 64 * 1024
LOG_BYTES = 4 * 1024 * 1024
LAST_BOOT = ("/sys/fs/pstore", "/var/lib/systemd/pstore", "/var/crash")


def processes() -> Iterator[str]:
    """Print one line for each process: pid, parent, state, user, wait channel, name, open devices."""
    yield "pid\tparent\tstate\tuid\twaits_in\tname\tholds"
    for folder in sorted(PROC.glob("[0-9]*"), key=lambda path: int(path.name)):
        status = _fields(folder / "status")
        if status:
            user = status.get("Uid", "").split()[:1]
            columns = (folder.name, status.get("PPid", ""), status.get("State", ""), *user, _text(folder / "wchan"))
            yield "\t".join((*columns, status.get("Name", ""), ",".join(_held(folder))))


def stuck() -> Iterator[str]:
    """Print the kernel stacks of processes in uninterruptible sleep, which is where a dead device leaves its users."""
    for folder in PROC.glob("[0-9]*"):
        status = _fields(folder / "status")
        if status.get("State", "").startswith("D"):
            yield f"== {folder.name} {status.get('Name', '')}"
            yield _text(folder / "stack") or "(no stack: needs root)"


def network() -> Iterator[str]:
    """Print counters and states of network, EFA and InfiniBand devices, as `path: value`."""
    yield _text(PROC / "net/dev")
    yield from _tree(SYSTEM / "class/infiniband", ("*/ports/*/*", "*/ports/*/hw_counters/*", "*/ports/*/counters/*"))


def ports() -> Iterator[str]:
    """Print the state of each port of each EFA or InfiniBand device, as `path: value`."""
    yield from _tree(SYSTEM / "class/infiniband", ("*/ports/*/state",))


def host() -> Iterator[str]:
    """Print heat and error values of the host's processors, memory and sensors, as `path: value`."""
    yield from _tree(SYSTEM / "devices/system/cpu", ("cpu[0-9]*/thermal_throttle/*_throttle_count",))
    yield from _tree(SYSTEM / "devices/system/edac/mc", ("mc[0-9]*/ue_count",))
    yield from _tree(
        SYSTEM / "class/thermal", ("thermal_zone*/type", "thermal_zone*/temp", "thermal_zone*/trip_point_*")
    )


def neuron() -> Iterator[str]:
    """Print the Neuron driver's tree, as `path: value`."""
    for root in ("devices/virtual/neuron_device", "class/neuron_device"):
        yield from _tree(SYSTEM / root, ("neuron*/**/*",))


def last_boot() -> Iterator[str]:
    """Print what the kernel saved of its last moments, where the platform supports that."""
    for folder in LAST_BOOT:
        try:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # this platform saves nothing there
        yield from _own_files(opened, Path(folder), deeper=True)


def log_end(file: str) -> Iterator[str]:
    """Print the kernel's lines among the last ones of a log file.

    Those of programs are left out, since they may hold secrets. Another user may own its folder, and could place a
    link there.
    """
    try:
        with open_file(file) as opened:
            opened.seek(max(0, os.fstat(opened.fileno()).st_size - LOG_BYTES))
            lines = opened.read(LOG_BYTES).decode("utf-8", "replace").splitlines()
        yield from (line for line in lines if kernel_text_of_tagged_line(line) is not None)
    except OSError as error:
        yield f"({error.strerror})"


WHAT: dict[str, Callable[[], Iterator[str]]] = {
    "processes": processes,
    "stuck": stuck,
    "network": network,
    "ports": ports,
    "host": host,
    "neuron": neuron,
    "last-boot": last_boot,
}


def _tree(root: Path, patterns: tuple[str, ...]) -> Iterator[str]:
    paths = set()
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            if path not in paths and path.is_file():
                paths.add(path)
                yield f"{path}: {_text(path)}"


def _own_files(folder: int, path: Path, deeper: bool) -> Iterator[str]:
    """Yield each file of this process's user in a folder and, with `deeper`, in that user's folders below it. Closes
    the descriptor.

    Where everybody can write, other users can place links and folders. These are left out.
    """
    try:
        for name in sorted(os.listdir(folder)) if deeper or is_own(folder) else ():
            with contextlib.suppress(OSError), open_file(name, inside=folder) as file:
                if is_own(file.fileno()):
                    yield f"{path / name}: {file.read(LARGEST_FILE).decode('utf-8', 'replace').strip()}"
            with contextlib.suppress(OSError):
                if deeper:
                    yield from _own_files(open_folder(name, folder), path / name, deeper=False)
    finally:
        os.close(folder)


def _fields(path: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in _text(path).splitlines())
    return {name: value.strip() for name, _, value in lines}


def _held(folder: Path) -> list[str]:
    """Return the accelerator and network devices among its open files."""
    held = set()
    try:
        for link in (folder / "fd").iterdir():
            target = str(link.readlink())
            if target.startswith(DEVICES):
                held.add(target)
    except OSError:
        pass  # it has ended, or this user may not read it
    return sorted(held)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_FILE).decode("utf-8", "replace").strip()
    except OSError as error:
        return f"({error.strerror})" if path.is_relative_to(SYSTEM) else ""


def main(what: str, file: str = "") -> None:
    """Print line by line, so that what was read before a hang is not lost."""
    for line in WHAT[what]() if what in WHAT else log_end(file):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
