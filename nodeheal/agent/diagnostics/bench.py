"""What every diagnostic gets: the level, what to expect, and a way to run a tool with a deadline."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeheal.agent.runtime import probe
from nodeheal.contract.vocabulary import Verdict
from nodeheal.parsers.finding import ToolReport

OUTPUT_BYTES = 4 * 1024 * 1024
WORDS_CHARACTERS = 120


@dataclass(frozen=True)
class Output:
    """The output of a tool, and how it ended."""

    text: str
    errors: str
    ran: probe.Ran

    @property
    def is_installed(self) -> bool:
        """Whether the tool is installed."""
        return self.ran.error != probe.NOT_INSTALLED

    @property
    def last_words(self) -> str:
        """Describe its end where its output cannot be parsed: the exit code, and its error output."""
        text = self.text.strip()
        words = self.errors.strip() or ("" if text.startswith("{") else text)  # the first line of JSON says nothing
        first = words.partition("\n")[0][:WORDS_CHARACTERS]
        return f"it ended with {self.ran.exit_code}" + f" and said {first!r}" * bool(first)

    def no_answer(self, tool: str) -> ToolReport | None:
        """Return the report where there is no output: a tool that hangs is a failure, a missing one proves nothing.

        Only broken hardware makes a diagnostic hang, since its deadline is far longer than it needs.
        """
        if self.ran.has_hung:
            return ToolReport(Verdict.FAILED, ("timeout",), reason=f"{tool}: {self.ran.error}")
        if self.ran.error:
            return ToolReport(Verdict.UNKNOWN, reason=f"{tool} cannot be run: {self.ran.error}")
        return None


@dataclass(frozen=True)
class Bench:
    """One run of a node's diagnostics."""

    folder: Path
    level: int
    accelerators: int
    first: tuple[str, ...] = ()  # tests that failed before: they run again first
    deadline_seconds: float | None = None  # replaces each tool's own deadline
    dcgmi: tuple[str, ...] = ("dcgmi", "diag")  # the command that runs a diagnostic by DCGM's host engine

    def run(self, command: Sequence[str], seconds: float) -> Output:
        """Run a tool in a process of its own."""
        text, errors = self.folder / "output", self.folder / "errors"
        ran = probe.run(command, text, self.deadline_seconds or seconds, OUTPUT_BYTES, errors)
        read = [file.read_text("utf-8", "replace") if file.exists() else "" for file in (text, errors)]
        return Output(read[0], read[1], ran)
