"""Reads the progress that the example trainer writes."""

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Progress:
    """One line: a completed step, or an event (started, resumed, finished)."""

    run: int
    step: int
    at: float
    loss: float | None = None
    event: str = ""


@dataclass
class Training:
    """The progress file of one job, read as it grows."""

    directory: Path
    lines: list[Progress] = field(default_factory=list)
    _offset: int = 0

    def read(self) -> "Training":
        """Read new lines; an incomplete line is left for the next time."""
        path = self.directory / "progress.jsonl"
        if not path.exists():
            return self
        with path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            row = json.loads(line)
            self.lines.append(
                Progress(row["run"], row.get("step", 0), row.get("at", 0.0), row.get("loss"), row.get("event", ""))
            )
        return self

    @property
    def last_step(self) -> int:
        """Return the newest step; it falls when a run resumes from a checkpoint."""
        return self.lines[-1].step if self.lines else 0

    @property
    def run(self) -> int:
        """Return the number of the newest run."""
        return self.lines[-1].run if self.lines else 0

    @property
    def losses(self) -> list[float]:
        """Return the loss curve of the steps that counted: those of an interrupted run are overwritten."""
        curve: dict[int, float] = {}
        for line in self.lines:
            if line.event == "resumed":
                curve = {step: loss for step, loss in curve.items() if step <= line.step}
            if line.loss is not None:
                curve[line.step] = line.loss
        return [curve[step] for step in sorted(curve)]

    def step_at(self, moment: float) -> int:
        """Return the last step before a moment."""
        return max((line.step for line in self.lines if line.loss is not None and line.at <= moment), default=0)

    def resumed_from(self, after_run: int = 1) -> int | None:
        """Return the checkpoint from which a later run resumed."""
        return next((line.step for line in self.lines if line.event == "resumed" and line.run > after_run), None)

    def first_step_at(self, after_run: int = 1) -> float | None:
        """Return when a later run completed its first step."""
        return next((line.at for line in self.lines if line.loss is not None and line.run > after_run), None)
