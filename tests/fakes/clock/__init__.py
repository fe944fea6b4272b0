"""A time of day that a test moves under a real process, built with gcc; see clock.c."""

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "clock.c"


@dataclass
class FakeClock:
    """How far the clock of the processes is set that have its `environment`."""

    folder: Path

    def __post_init__(self) -> None:
        self._library, self._shift = self.folder / "clock.so", self.folder / "clock.shift"
        options = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(["gcc", *options, "-o", str(self._library), str(SOURCE), "-ldl"], check=True, timeout=60)
        self._shift.write_bytes(struct.pack("q", 0))

    def environment(self, *, waits_by_wall: bool) -> dict[str, str]:
        """What a process needs to live by it. `waits_by_wall`: as older builds of Python wait."""
        told = {"LD_PRELOAD": str(self._library), "NODEHEAL_FAKE_CLOCK": str(self._shift)}
        return {**told, "NODEHEAL_FAKE_WAITS_BY_WALL": "1"} if waits_by_wall else told

    def jump(self, seconds: int) -> None:
        """From now on it is so far from the true one."""
        with self._shift.open("r+b") as file:
            file.write(struct.pack("q", seconds))
