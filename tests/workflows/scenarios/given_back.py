"""A node goes back to work, or away for good; and what people ask for by hand, where it cannot be.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from typing import Any

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.contract.vocabulary import Action, NodeState
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs.start_gang import record_run
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.recovery.undo_isolation import undo_isolation
from tests.support.acts import requested
from tests.support.builders import NOW, node, scheduler_in, started_job, stored_job, stored_node, stored_run, xid
from tests.support.enrolment import retire
from tests.support.fake_cluster import BROKEN, PEER
from tests.support.fuse import Fuse
from tests.workflows.breaking_world import ACTS, BreakingWorld
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import HANDED_OVER, changes
from tests.workflows.stories import STORIES


def _quarantined(*, drained_by_people: bool = False) -> BreakingWorld:
    """Its reboot did not help, and a spare has taken its place."""
    it = STORIES[2].make(Fuse(writes_only=True))
    if drained_by_people:
        _draining(it).add(BROKEN)
    it.reports(xid(79))
    assert it.ends == HANDED_OVER
    return it


def _draining(it: BreakingWorld) -> set[str]:
    draining: set[str] = scheduler_in(it.plain).draining
    return draining


def _stays_off(it: BreakingWorld) -> list[str]:
    return [] if BROKEN in _draining(it) else ["it takes work, and is not to"]


def it_is_isolated_again_before_its_slot_is_freed() -> list[str]:
    """Whoever gives it back sits at a slow line, and it fails again at once."""
    it = Moment()
    given_back = node(BROKEN)
    it.is_written(BROKEN, state=NodeState.ISOLATED, open_incident="inc-of-now")
    it.plain.pools.claim("demo", BROKEN, 1)
    it.does(lambda: undo_isolation(given_back, it.ports))
    return [] if BROKEN in it.plain.pools.holders("demo") else ["more are out of service than the budget allows"]


def a_quarantined_node_is_retired() -> list[str]:
    it = _quarantined()
    it.does("retire_node", lambda: retire(BROKEN, "beyond repair", it.ports, MemoryMarks()))
    is_ours = it.node().drained_by_us
    return [*_stays_off(it), *([] if is_ours else ["nobody knows by whom it was switched off"])]


def what_is_half_retired_is_released() -> list[str]:
    """He is told that it is retired, and nothing is undone."""
    it = _quarantined()
    changes(it, state=NodeState.RETIRED)()
    it.does("release_node", lambda: release_node(BROKEN, "repaired", it.ports))
    return [] if it.answers else ["he is told that it is back in service, and it is retired"]


def _at_work(**to: Any) -> tuple[Moment, str]:
    """An incident is open, and its workflow about to begin."""
    it = Moment()
    it.is_written(**to)
    ingest(xid(79), it.plain, ACTS)
    opened = stored_node(it.plain, BROKEN)
    assert opened.open_incident is not None
    return it, opened.open_incident


def a_suspect_that_fails_is_released() -> list[str]:
    """A replacement node that has proven nothing; and meanwhile it has a fault of its own."""
    it, _ = _at_work(state=NodeState.SUSPECT)
    told = it.does(lambda: release_node(BROKEN, "it looks well", it.ports))
    return [] if isinstance(told, str) else ["its fault was forgotten by a release of what was never isolated"]


def _is_asked(state: NodeState) -> list[str]:
    it = Moment()
    it.is_written(state=state)
    told = it.does(lambda: requested(BROKEN, Action.REBOOT, "ada: it smells", it.ports))
    return [] if isinstance(told, str) else ["he is told that it is under way, and nothing comes of it"]


def its_job_went_on_elsewhere_before_it_is_given_back() -> list[str]:
    it = _isolated_under_its_job()
    job = stored_job(it.plain, "llama")
    peer = stored_node(it.plain, PEER)
    run = stored_run(it.plain, "llama", 1)
    ended = tuple(replace(task, status="STOPPED", stopped_at=NOW) for task in run.tasks)
    it.plain.jobs.save_run(replace(run, tasks=ended))
    record_run(job, [peer], "moved", it.plain)
    it.does(lambda: release_node(BROKEN, "ada: repaired", it.ports))
    return [] if not _has_job(it) else ["it is free, and kept for a job that has left it"]


def it_is_retired_under_its_job() -> list[str]:
    it = _isolated_under_its_job()
    it.does(lambda: release_node(BROKEN, "ada: it is dead", it.ports, retire=True))
    return [] if not _has_job(it) else ["what is gone for good keeps a job"]


def _has_job(it: Moment) -> bool:
    node = it.plain.nodes.get(BROKEN)
    return node is not None and node.job_id == "llama"


def _isolated_under_its_job() -> Moment:
    it = Moment()
    started_job(JOB, [node(BROKEN, version=1)], it.plain)
    it.is_written(state=NodeState.QUARANTINED)
    return it
