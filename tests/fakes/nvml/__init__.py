"""A fake of NVIDIA's library, built with gcc; see nvml.c for the GPUs it can tell of."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parent / "nvml.c"
LIBRARY = "libnvidia-ml.so.1"
STATE = "NODEHEAL_FAKE_NVML"


def build(folder: Path, *options: str) -> Path:
    """The library, in a folder of its own for LD_LIBRARY_PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / LIBRARY
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *options, "-o", str(target), str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return target


@dataclass
class FakeGpus:
    """The GPUs that the library tells of. What a test sets is what the next call answers."""

    library: Path
    state: Path
    said: dict[str, int] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find them."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), STATE: str(self.state)}

    def set(self, **said: int) -> "FakeGpus":
        """Names as nvml.c gives them, with `_` for the first dot where a GPU is meant: `gpu3_temperature`."""
        for name, value in said.items():
            gpu, _, what = name.removeprefix("gpu").partition("_")
            self.said[f"{gpu}.{what.replace('__', '.')}" if gpu.isdigit() else name] = value
        return self._write()

    def tell(self, gpu: int, kind: int, data: int = 0) -> "FakeGpus":
        """An event of the driver."""
        self.events.append(f"event {len(self.events) + 1} {gpu} {kind} {data}")
        return self._write()

    def _write(self) -> "FakeGpus":
        lines = [*(f"{name} {value}" for name, value in self.said.items()), *self.events]
        new = self.state.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(self.state)  # a library that reads meanwhile sees the old or the new file, never half of one
        return self
