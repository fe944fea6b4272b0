"""Runs the evidence commands in parallel, and packs their output with a manifest that lists every gap."""

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from nodeheal.agent.evidence.evidence_commands import EvidenceCommand
from nodeheal.agent.runtime import probe

# Few enough to leave processors free on a node with a failing GPU; enough that two hanging tools do not block the rest.
SIDE_BY_SIDE = 6
LEFT_OUT = "left out: no room in the archive"
NO_TIME = "left out: no time was left"


@dataclass(frozen=True)
class Item:
    """One file of the evidence, and how its command ended."""

    exhibit: EvidenceCommand
    file: Path
    ran: probe.Ran
    size_bytes: int = 0

    @property
    def is_kept(self) -> bool:
        """Whether its file goes into the archive."""
        return self.size_bytes > 0 and not self.ran.error.startswith("left out")

    @property
    def has_failed(self) -> bool:
        """Whether expected output is missing or incomplete. A tool that is not installed is no failure."""
        return self.ran.is_truncated or self.ran.error not in ("", probe.NOT_INSTALLED)

    def told(self) -> dict[str, object]:
        """The entry of this item in the manifest."""
        return {
            "name": self.exhibit.name,
            "command": list(self.exhibit.command),
            "seconds": self.ran.seconds,
            "exit_code": self.ran.exit_code,
            "bytes": self.size_bytes,
            "truncated": self.ran.is_truncated,
            "error": self.ran.error,
        }


def collect(wanted: Sequence[EvidenceCommand], folder: Path, seconds_left: Callable[[], float]) -> list[Item]:
    """Run every command, each within its own deadline and all within the remaining seconds."""

    def one(exhibit: EvidenceCommand) -> Item:
        file = folder / exhibit.name
        left = min(exhibit.seconds, seconds_left())
        if left <= 0:
            return Item(exhibit, file, probe.Ran(error=NO_TIME))
        ran = probe.run(exhibit.command, file, left, exhibit.limit_bytes)
        if exhibit.cut is not None and file.exists():
            file.write_bytes(exhibit.cut.sub(rb"\1", file.read_bytes()))
        made = folder / exhibit.makes
        file = made if exhibit.makes and made.is_file() else file
        return Item(exhibit, file, ran, file.stat().st_size if file.exists() else 0)

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(pool.map(one, wanted))


def pack(items: list[Item], about: dict[str, object], archive: Path, limit_bytes: int) -> list[Item]:
    """Write the archive and return the items as packed. An archive that is too big is written without its biggest
    items, and the manifest records that.
    """
    _write(items, about, archive)
    while archive.stat().st_size > limit_bytes and any(item.is_kept for item in items):
        biggest = max((item for item in items if item.is_kept), key=lambda item: item.size_bytes)
        left_out = replace(biggest, ran=replace(biggest.ran, error=LEFT_OUT))
        items = [left_out if item is biggest else item for item in items]
        _write(items, about, archive)
    return items


def _write(items: Sequence[Item], about: dict[str, object], archive: Path) -> None:
    manifest = json.dumps({**about, "items": [item.told() for item in items]}, indent=2).encode()
    with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(manifest)
        tar.addfile(entry, io.BytesIO(manifest))
        for item in items:
            if item.is_kept:
                tar.add(item.file, arcname=item.file.name, recursive=False)
