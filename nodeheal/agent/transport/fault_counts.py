"""Counts the faults that this agent has reported since its start, by kind."""

from collections import Counter
from collections.abc import Iterable, Iterator

from nodeheal.agent.transport.event import HealthEvent, NodeFact
from nodeheal.agent.transport.gauges import Sample
from nodeheal.contract.vocabulary import Verdict

# A broken machine can name a new component in each line: beyond this many kinds, faults are counted without details.
MOST_KINDS = 500
OTHER = "other"
_LABELS = ("family", "code", "verdict", "component", "training_job")
_Kind = tuple[str, str, str, str, str]


class FaultCounts:
    """Fault counters; the end of a fault is not counted. One thread counts, any may read."""

    def __init__(self) -> None:
        self._counts: Counter[_Kind] = Counter()

    def add(self, events: Iterable[NodeFact], job: str) -> None:
        """Add the faults among these events, each as often as it occurred. `job`: the job on this node; empty: not
        known.
        """
        for event in events:
            if isinstance(event, HealthEvent) and event.verdict is not Verdict.OK:
                family, verdict = event.family.value, event.verdict.value
                kind = (family, event.code, verdict, event.component or "", job)
                is_new = kind not in self._counts and len(self._counts) >= MOST_KINDS
                self._counts[(family, OTHER, verdict, "", "") if is_new else kind] += event.count

    def samples(self) -> Iterator[Sample]:
        """Return one sample for each kind. Safe from any thread."""
        for kind, count in list(self._counts.items()):
            yield Sample("faults_total", count, dict(zip(_LABELS, kind, strict=True)))
