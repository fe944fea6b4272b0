"""A node goes back to work, or away for good; and what people ask for by hand, where it cannot be.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.contract.vocabulary import Action, IncidentState, NodeState
from nodeheal.domain.errors import NotAccepted
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs.start_gang import record_run
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.operators.request_action import request_action
from nodeheal.services.operators.retire_node import retire_node
from nodeheal.services.recovery.undo_isolation import undo_isolation
from tests.unit.builders import NOW, node, scheduler_in, started_job, xid
from tests.workflows.breaking_world import ACTS, BreakingWorld
from tests.workflows.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.fuse import Crash, Fuse
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import HANDED_OVER, RECOVERED, breaks, changes, ends_as, world, wrong_with
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


def a_quarantined_node_is_released() -> list[str]:
    it = _quarantined()
    it.does("release_node", lambda: release_node(BROKEN, "repaired", it.ports))
    is_free = it.node().state is NodeState.HEALTHY and it.node().open_incident is None
    return wrong_with(it, (is_free, f"it was given back, and is {it.node().state}"))


def it_was_drained_by_people_and_is_released() -> list[str]:
    it = _quarantined(drained_by_people=True)
    it.does("release_node", lambda: release_node(BROKEN, "repaired", it.ports))
    return _stays_off(it)


def it_was_drained_by_people_and_recovers() -> list[str]:
    it = world()
    _draining(it).add(BROKEN)
    it.reports(xid(79))
    isolated_by = scheduler_in(it.plain).isolated_by
    marks = [] if BROKEN not in isolated_by else ["it bears the mark of an isolation that was not ours"]
    assert it.ends == RECOVERED
    return [*_stays_off(it), *marks]


def its_isolation_is_repeated_after_its_drain() -> list[str]:
    """Its first call was carried out without an answer, and the SDK's own repeat of it was throttled."""
    it = world(ACTS, breaks("scheduler.drain_all", of="isolate_node", error=NotAccepted))
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


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
    it.does("retire_node", lambda: retire_node(BROKEN, "beyond repair", it.ports, MemoryMarks()))
    is_ours = it.node().drained_by_us
    return [*_stays_off(it), *([] if is_ours else ["nobody knows by whom it was switched off"])]


def a_release_breaks_off() -> list[str]:
    """It is written as in service, and all that follows is left to the repeated command."""
    it = _quarantined()
    _breaks_off(it, "release_node", "pools.release")
    it.does("release_node", lambda: release_node(BROKEN, "repaired", it.ports))
    return _is_done(it)


def a_retirement_breaks_off() -> list[str]:
    it = _quarantined()
    _breaks_off(it, "retire_node", "pools.release")
    it.does("retire_node", lambda: retire_node(BROKEN, "beyond repair", it.ports, MemoryMarks()))
    return _is_done(it)


def _breaks_off(it: BreakingWorld, command: str, call: str) -> None:
    def dies() -> None:
        raise Crash

    it.fuse.meanwhile[command, call] = dies


def _is_done(it: BreakingWorld) -> list[str]:
    incident = it.plain.incidents.history(it.incident_id).incident
    left = [f"{name} holds a slot" for name in it.plain.pools.holders("demo") if name == BROKEN]
    is_closed = incident.state is IncidentState.CLOSED and it.node().open_incident is None
    return [*left, *it.answers, *([] if is_closed else [f"its incident is {incident.state}"])]


def what_is_half_retired_is_released() -> list[str]:
    """He is told that it is retired, and nothing is undone."""
    it = _quarantined()
    changes(it, state=NodeState.RETIRED)()
    it.does("release_node", lambda: release_node(BROKEN, "repaired", it.ports))
    return [] if it.answers else ["he is told that it is back in service, and it is retired"]


def it_is_isolated_anew_while_it_is_released() -> list[str]:
    """It is written as in service, and fails, before it has been let work."""
    it = _quarantined()
    again = changes(it, state=NodeState.ISOLATED, open_incident="inc-of-another", drained_by_us=True)
    it.fuse.meanwhile["release_node", "pools.release"] = again
    it.does("release_node", lambda: release_node(BROKEN, "repaired", it.ports))
    return _stays_off(it)


def a_human_releases_what_is_about_to_be_isolated() -> list[str]:
    """It has its slot, and is not marked yet."""
    it = world()
    it.fuse.meanwhile["isolate_node", "nodes.save"] = lambda: _released(it)
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_human_releases_what_is_being_returned() -> list[str]:
    """It is written as in service, and does not take work yet."""
    it = world()
    it.fuse.meanwhile["return_to_service", "scheduler.undrain"] = lambda: _released(it)
    it.reports(xid(79))
    remembers = len(it.node().recoveries) == 1
    return wrong_with(
        it, ends_as(it, *RECOVERED), (remembers, "its recovery was taken from it, and counts for nothing")
    )


def _released(it: BreakingWorld) -> None:
    with suppress(ValueError):
        release_node(BROKEN, "it looks well", it.plain)


def _at_work(**to: Any) -> tuple[Moment, str]:
    """An incident is open, and its workflow about to begin."""
    it = Moment()
    it.is_written(**to)
    ingest(xid(79), it.plain, ACTS)
    opened = it.plain.nodes.get(BROKEN)
    assert opened is not None
    assert opened.open_incident is not None
    return it, opened.open_incident


def a_suspect_that_fails_is_released() -> list[str]:
    """A replacement node that has proven nothing; and meanwhile it has a fault of its own."""
    it, _ = _at_work(state=NodeState.SUSPECT)
    told = it.does(lambda: release_node(BROKEN, "it looks well", it.ports))
    return [] if isinstance(told, str) else ["its fault was forgotten by a release of what was never isolated"]


def one_whose_workflow_lives_is_released() -> list[str]:
    """What its incident holds is the workflow's to let go of; the node is nobody's from now on."""
    it, mine = _at_work()
    it.is_written(BROKEN, state=NodeState.ISOLATED)
    it.is_written(SPARE, open_incident=mine)
    it.does(lambda: release_node(BROKEN, "it looks well", it.ports))
    held = {node.node_id: node.open_incident for node in it.plain.nodes.in_pool("demo")}
    wanted = {BROKEN: None, PEER: None, SPARE: mine}
    return [] if held == wanted else [f"{held} are held, and not {wanted}"]


def a_node_in_service_is_released() -> list[str]:
    it = Moment()
    told = it.does(lambda: release_node(BROKEN, "it looks well", it.ports))
    return [] if isinstance(told, str) else ["he is told that it was given back, and nobody had it"]


def something_is_asked_of_a_retired_node() -> list[str]:
    return _is_asked(NodeState.RETIRED)


def something_is_asked_of_a_node_that_never_spoke() -> list[str]:
    return _is_asked(NodeState.ENROLLED)


def _is_asked(state: NodeState) -> list[str]:
    it = Moment()
    it.is_written(state=state)
    told = it.does(lambda: request_action(BROKEN, Action.REBOOT, "ada: it smells", it.ports))
    return [] if isinstance(told, str) else ["he is told that it is under way, and nothing comes of it"]


def something_is_asked_of_a_node_at_work() -> list[str]:
    it, _ = _at_work()
    told = it.does(lambda: request_action(BROKEN, Action.REBOOT, "ada: it smells", it.ports))
    return [] if isinstance(told, str) else ["what he asks for is mixed up with a recovery that is under way"]


def the_last_free_node_is_to_be_replaced() -> list[str]:
    """The others have work: it would go, and none come."""
    it = Moment()
    for name in (PEER, SPARE):
        it.is_written(name, job_id="llama")
    told = it.does(lambda: request_action(BROKEN, Action.REPLACE, "ada: it smells", it.ports))
    return [] if isinstance(told, str) else ["a node is given up, and there is none to take its place"]


def its_job_runs_on_while_it_is_given_back() -> list[str]:
    """It was isolated, which stops nothing that runs there, and handed to a human."""
    it = _isolated_under_its_job()
    it.does(lambda: release_node(BROKEN, "ada: it is well", it.ports))
    return [] if _has_job(it) else ["another job is let in beside a rank that runs"]


def its_job_went_on_elsewhere_before_it_is_given_back() -> list[str]:
    it = _isolated_under_its_job()
    job = it.plain.jobs.get("llama")
    assert job is not None
    peer = it.plain.nodes.get(PEER)
    assert peer is not None
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
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
