"""Measures the memory of a process and its forks, with each shared page counted once."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

KIB = 1024


def resident_bytes(processes: Sequence[psutil.Process]) -> int:
    """Return the resident bytes of all of them together. Their private pages are counted by proportion, which adds up.
    A file's pages, which the whole machine shares, count as in the process that has most of the mapping.
    """
    own, files = 0, dict[str, int]()
    for process in processes:
        for mapping, sizes in _mappings(process.pid):
            files[mapping] = max(files.get(mapping, 0), sizes["Rss"] - sizes["Anonymous"])
        own += _rollup(process.pid)["Pss_Anon"]
    return (own + sum(files.values())) * KIB


def _mappings(pid: int) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Return each mapping by its file and offset, and its sizes in KiB."""
    name, sizes = "", dict[str, int]()
    for line in Path(f"/proc/{pid}/smaps").read_text("utf-8", "replace").splitlines():
        words = line.split(None, 5)
        if not words[0].endswith(":"):
            if name:
                yield name, sizes
            name, sizes = f"{words[5] if len(words) > 5 else words[0]} {words[2]}", {}
        elif words[1].isdecimal():
            sizes[words[0].removesuffix(":")] = int(words[1])
    yield name, sizes


def _rollup(pid: int) -> Mapping[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()[1:]
    return {words[0].removesuffix(":"): int(words[1]) for words in map(str.split, lines)}
