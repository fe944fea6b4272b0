"""Simulates a node with eight NVIDIA GPUs: the tests' library, and a matching /proc."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.node import Furnished
from tests.fakes.nvml import FakeGpus, build

COUNT, LINKS = 8, 18
# Only the watching agent sees the simulated node: `later` first, as in `main`.
_SCRIPT = """
import sys
from nodeheal.agent.runtime.lazy_imports import load_when_used
load_when_used()
from pathlib import Path
from nodeheal.agent.runtime import watching
plain = watching.Place
watching.Place = lambda *given: plain(*given, proc=Path({proc!r}))
from nodeheal.agent.main import main
sys.exit(main())
"""
# In the place of DCGM's tool: what it prints, at the same interval. Its own cost is not the agent's.
_DCGMI = """#!/bin/sh
case "$1" in
  health) echo '{{"body": {{"Overall Health": {{"value": "Healthy"}}}}}}' ;;
  dmon) while :; do for gpu in $(seq 0 {gpus}); do echo "GPU $gpu  0  0"; done; sleep 10; done ;;
esac
"""


@contextmanager
def eight_gpus() -> Iterator[Furnished]:
    """Return healthy GPUs, with NVLinks. Needs gcc."""
    with TemporaryDirectory() as directory:
        yield furnished(Path(directory))[0]


def furnished(folder: Path) -> tuple[Furnished, FakeGpus]:
    """Create a node with eight healthy GPUs in this folder, and the control of its GPUs."""
    gpus = FakeGpus(build(folder / "lib"), folder / "state")
    gpus.set(gpus=COUNT, **{f"gpu{number}_links": LINKS for number in range(COUNT)})
    tools = folder / "bin"
    tools.mkdir()
    (tools / "dcgmi").write_text(_DCGMI.format(gpus=COUNT - 1))
    (tools / "dcgmi").chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    return Furnished(_SCRIPT.format(proc=str(_proc(folder / "proc"))), {**gpus.environment, **path}), gpus


def _proc(folder: Path) -> Path:
    """Create a /proc of this machine, with the driver's part."""
    folder.mkdir()
    for entry in Path("/proc").iterdir():
        if entry.name != "driver":
            (folder / entry.name).symlink_to(entry)
    for number in range(COUNT):
        gpu = folder / f"driver/nvidia/gpus/0000:{number + 16:02x}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text("Model: NVIDIA H100\n", "utf-8")
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun May  4 04:06:06 UTC 2025\n"
    (folder / "driver/nvidia/version").write_text(version, "utf-8")
    return folder
