"""What is known already, under build/mutants: a sweep that was broken off goes on where it was.

It holds for the sources that it was found with, all of them. Of older ones a result says which test to ask first.
"""

import hashlib
import json
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.mutants.sites import ROOT

Json = dict[str, Any]
KEPT = ROOT / "build/mutants"
_SOURCES = ("nodeheal", "tests", "state_machines")
_SUFFIXES = {".py", ".json", ".csv", ".yaml"}
# How it is gone about, and judged: what a guard is and which there are, the others say.
_GOES_ABOUT_IT = (
    "__main__.py",
    "child.py",
    "choice.py",
    "every_noticer.py",
    "harmless.csv",
    "harmless.py",
    "kept.py",
    "noticed.csv",
    "sample.py",
    "sweep.py",
)
_NOT_ASKED = {f"tests/mutants/{name}" for name in (*_GOES_ABOUT_IT, "test_mutants.py")}


class Kept:
    """What was found with these sources, and what with the ones before."""

    def __init__(self, folder: Path = KEPT) -> None:
        self._folder, self._now = folder, folder / digest()
        self._now.mkdir(parents=True, exist_ok=True)
        self.results = dict(_read(self._now / "results.jsonl"))
        self.recorded = dict(_read(self._now / "recorded.jsonl"))
        self._before = self._read_before()

    def asked_first(self, key: str) -> str:
        """Which test has noticed it before."""
        return str(self._before.get(key, {}).get("by", ""))

    def keep(self, key: str, result: Json) -> None:
        """What became of a guard that was out."""
        self.results[key] = result
        _add(self._now / "results.jsonl", key, result)

    def keep_recorded(self, test: str, record: Json) -> None:
        """What a test takes, and which guards matter to it, with all of them in place."""
        self.recorded[test] = record
        _add(self._now / "recorded.jsonl", test, record)

    def forget_older(self) -> None:
        """All is known again."""
        for other in self._older():
            shutil.rmtree(other)

    def _read_before(self) -> dict[str, Json]:
        known: dict[str, Json] = {}
        for other in self._older():
            known.update(_read(other / "results.jsonl"))
        return known

    def _older(self) -> list[Path]:
        others = (path for path in self._folder.iterdir() if path.is_dir() and path != self._now)
        return sorted(others, key=lambda path: path.stat().st_mtime)


def digest() -> str:
    """Of everything that a result may depend on."""
    sha = hashlib.sha256(platform.python_version().encode())
    for path in sorted(p for part in _SOURCES for p in (ROOT / part).rglob("*") if p.suffix in _SUFFIXES):
        name = str(path.relative_to(ROOT))
        if name not in _NOT_ASKED:
            sha.update(name.encode() + path.read_bytes())
    return sha.hexdigest()[:12]


def _add(path: Path, name: str, what: Json) -> None:
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps([name, what]) + "\n")


def _read(path: Path) -> Iterator[tuple[str, Json]]:
    """A last line that was broken off is none."""
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            name, what = json.loads(line)
        except ValueError:
            continue
        yield name, what
