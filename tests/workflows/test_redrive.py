"""Somebody stops a recovery in the middle, and redrives it: docs/operations.md says when that helps, and that it never
harms. The emulator has no RedriveExecution; the walker goes on as AWS describes it: in the state where it was stopped.
"""

from typing import Any

import pytest

from tests.support.builders import xid
from tests.support.fake_cluster import BROKEN, PEER, FakeCluster
from tests.support.walker import STOPPED, Walk

STATES = [
    "Decide next step",
    "Isolate node",
    "Reboot node",
    "Run diagnostics",
    "Return to service",
    "Stop gang",
    "Launch gang",
    "End incident",
]


class Interrupted(FakeCluster):
    """The execution is stopped once in `state`: before its task does anything, or when it has done everything."""

    def __init__(self, state: str, *, after: bool) -> None:
        self._state, self._after, self._was_stopped = state, after, False
        super().__init__()

    def _answers(self) -> dict[str, Any]:
        answers = super()._answers()
        act = answers[self._state]

        def stopped_once(arguments: Any) -> Any:
            if self._was_stopped:
                return act(arguments)
            self._was_stopped = True
            if self._after:
                act(arguments)
            return STOPPED

        return {**answers, self._state: stopped_once}


def redriven(cluster: FakeCluster) -> Walk:
    """The recovery, stopped and redriven."""
    walked = cluster.reports(xid(79))
    assert walked.redrive is not None
    return walked.redrive()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_a_recovery_that_was_stopped_goes_on_where_it_was_and_does_nothing_twice(state: str, after: bool) -> None:
    cluster = Interrupted(state, after=after)

    walked = redriven(cluster)

    assert walked.end == "Recovered"
    assert cluster.commands.count(("reboot-node", BROKEN)) == 1
    assert cluster.job_nodes == [BROKEN, PEER]
    assert cluster.ports.pools.holders("demo") == []
    announced = cluster.ports.notifier.announced  # type: ignore[attr-defined]
    assert len({told.key for _, told in announced}) == len(set(cluster.told))  # what is told twice is folded by its key
