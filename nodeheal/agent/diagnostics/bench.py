"""What every diagnostic is handed: how deep to go, what to expect, and a way to run a tool that cannot hang it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent import probe
from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import Report

OUTPUT_BYTES = 4 * 1024 * 1024
WORDS_CHARACTERS = 120


@dataclass(frozen=True)
class Output:
    """What a tool said, and how it ended."""

    text: str
    errors: str
    ran: probe.Ran

    @property
    def is_installed(self) -> bool:
        """Whether there was such a tool to run."""
        return self.ran.error != probe.NOT_INSTALLED

    @property
    def last_words(self) -> str:
        """How it ended, for where nobody understands what it has said: its exit code, and what it complained about."""
        text = self.text.strip()
        words = self.errors.strip() or ("" if text.startswith("{") else text)  # JSON says nothing in its first line
        first = words.partition("\n")[0][:WORDS_CHARACTERS]
        return f"it ended with {self.ran.exit_code}" + f" and said {first!r}" * bool(first)

    def no_answer(self, tool: str) -> Report | None:
        """The report where there is nothing to read: one that hangs has failed, one that is not there proves nothing.

        Only broken hardware makes a diagnostic hang: it has been given far longer than it needs.
        """
        if self.ran.has_hung:
            return Report(Verdict.FAILED, ("timeout",), reason=f"{tool}: {self.ran.error}")
        if self.ran.error:
            return Report(Verdict.UNKNOWN, reason=f"{tool} cannot be run: {self.ran.error}")
        return None


@dataclass(frozen=True)
class Bench:
    """One run of the diagnostics of a node."""

    folder: Path
    level: int
    accelerators: int
    first: tuple[str, ...] = ()  # tests that failed before: they are rerun before anything else
    deadline_seconds: float | None = None  # instead of each tool's own
    dcgmi: tuple[str, ...] = ("dcgmi", "diag")  # the command that asks DCGM's host engine for a diagnostic

    def run(self, command: Sequence[str], seconds: float) -> Output:
        """Run a tool in a process of its own."""
        text, errors = self.folder / "output", self.folder / "errors"
        ran = probe.run(command, text, self.deadline_seconds or seconds, OUTPUT_BYTES, errors)
        read = [file.read_text("utf-8", "replace") if file.exists() else "" for file in (text, errors)]
        return Output(read[0], read[1], ran)
