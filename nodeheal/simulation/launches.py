"""Counts what incidents do to jobs, for the invariants: runs of which a rank was really started, and ranks that were
stopped.
"""

from collections.abc import Iterator

from nodeheal.contract.vocabulary import Action
from nodeheal.domain.jobs.job import Run
from nodeheal.simulation.invariants import (
    PAUSE_SECONDS,
    hands_off_where_told,
    no_attempt_beyond_its_limit,
    nothing_is_done_without_a_yes,
)
from nodeheal.simulation.seen import NodeAction, Seen, Violation

# The wording of stop_gang.py.
STOPPED_FOR = "nodeheal: recovery "


class Launches:
    """Counts the restarts of each job by incidents, independently of the ledger."""

    def __init__(self, state: Seen) -> None:
        self._state = state
        self._begun: dict[str, dict[str, float]] = {}  # by job and by the turn that launched it: when
        self._ends: dict[str, list[NodeAction]] = {}  # by incident: the ranks that it has stopped

    def started(self, run: Run) -> Iterator[Violation]:
        """Record that a rank of this run starts. A submission is no restart, and one turn spends one attempt."""
        incident_id = run.incident_id
        begun = self._begun.setdefault(run.job_id, {})
        if incident_id not in self._state.incidents.incidents or run.why in begun:
            return
        at, limit = self._state.agenda.now, self._state.policy.limits[Action.RESTART_WORKLOAD]
        yield from self._acted("restart", incident_id)
        # An attempt is reserved before its first rank starts: the oldest may have left the ledger's window since.
        since = at - limit.window_seconds + PAUSE_SECONDS
        spent = [moment for moment in begun.values() if moment > since]
        begun[run.why] = at
        if len(spent) >= limit.limit:
            text = f"restart number {len(spent) + 1} in {limit.window_seconds} s, {limit.limit} allowed"
            yield Violation(at, no_attempt_beyond_its_limit.__name__, run.job_id, text)

    def asked_to_stop(self, reason: str) -> Iterator[Violation]:
        """Record that a rank is stopped, and why. A stop that the job's owner requested is no incident's action."""
        incident_id = reason.removeprefix(STOPPED_FOR)
        if incident_id in self._state.incidents.incidents:
            yield from self._acted("end", incident_id)

    def _acted(self, verb: str, incident_id: str) -> Iterator[Violation]:
        node = self._state.nodes.nodes[self._state.incidents.incidents[incident_id].node_id]
        act = NodeAction(self._state.agenda.now, verb, node.node_id, incident_id, node.boot_id)
        ends = self._ends.setdefault(incident_id, [])
        yield from hands_off_where_told(self._state, ends, act)
        ends += [act] if verb == "end" else []
        yield from nothing_is_done_without_a_yes(self._state, act)
