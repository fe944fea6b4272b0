"""Records what happened, line by line, and as a digest that compares two runs."""

from collections import Counter
from collections.abc import Callable
from hashlib import sha256

from nodeheal.simulation.agenda import Agenda


class Trace:
    """The trace of a run. It counts events, hashes every line, and passes each to a reader."""

    def __init__(self, agenda: Agenda, read: Callable[[str], object] | None = None) -> None:
        self._agenda, self._read = agenda, read
        self._hash = sha256()
        self.counts: Counter[str] = Counter()

    def tell(self, kind: str, about: str, text: str = "") -> None:
        """Add one line."""
        line = f"{self._agenda.now:.3f} {kind} {about} {text}"
        self._hash.update(line.encode())
        self.counts[kind] += 1
        if self._read is not None:
            moment = self._agenda.clock()
            self._read(f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}  {kind:<20} {about:<28} {text}")

    @property
    def digest(self) -> str:
        """Return the digest: two runs with the same digest are equal."""
        return self._hash.hexdigest()
