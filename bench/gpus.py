"""A node with eight NVIDIA GPUs where there are none: the tests' library, and a /proc that tells of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.node import Furnished
from tests.fakes.nvml import FakeGpus, build

COUNT, LINKS = 8, 18
# Only the watching agent knows where a node is looked at: `later` first, as `main` has it.
_SCRIPT = """
import sys
from nodeheal.agent.lazy_imports import load_when_used
load_when_used()
from pathlib import Path
from nodeheal.agent import watching
plain = watching.Place
watching.Place = lambda *given: plain(*given, proc=Path({proc!r}))
from nodeheal.agent.main import main
sys.exit(main())
"""


@contextmanager
def eight_gpus() -> Iterator[Furnished]:
    """Healthy ones, with NVLinks. Needs gcc."""
    with TemporaryDirectory() as directory:
        yield furnished(Path(directory))[0]


def furnished(folder: Path) -> tuple[Furnished, FakeGpus]:
    """A node with eight healthy GPUs in this folder, and what changes them."""
    gpus = FakeGpus(build(folder / "lib"), folder / "state")
    gpus.set(gpus=COUNT, **{f"gpu{number}_links": LINKS for number in range(COUNT)})
    return Furnished(_SCRIPT.format(proc=str(_proc(folder / "proc"))), gpus.environment), gpus


def _proc(folder: Path) -> Path:
    """This machine's, and the driver's part."""
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
