"""What happened, line by line: for people, and as one number that two runs are compared by."""

from collections import Counter
from collections.abc import Callable
from hashlib import sha256

from nodeheal.simulation.agenda import Agenda


class Trace:
    """The story of a run. Counts what happened, hashes every line, and hands each to whoever wants to read it."""

    def __init__(self, agenda: Agenda, read: Callable[[str], object] | None = None) -> None:
        self._agenda, self._read = agenda, read
        self._hash = sha256()
        self.counts: Counter[str] = Counter()

    def tell(self, kind: str, about: str, text: str = "") -> None:
        """One line."""
        line = f"{self._agenda.now:.3f} {kind} {about} {text}"
        self._hash.update(line.encode())
        self.counts[kind] += 1
        if self._read is not None:
            moment = self._agenda.clock()
            self._read(f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}  {kind:<20} {about:<28} {text}")

    @property
    def digest(self) -> str:
        """Two runs with the same digest are the same run."""
        return self._hash.hexdigest()
