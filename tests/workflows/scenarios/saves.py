"""A record that somebody else has written between a function's look and its write: it looks again, and writes then.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from datetime import timedelta

from nodeheal.contract.vocabulary import NodeState
from nodeheal.services.operators.operator_guardrails import pause_node
from nodeheal.services.operators.release_node import release_node
from tests.unit.builders import NOW, xid
from tests.workflows.breaking_world import BreakingWorld
from tests.workflows.fake_cluster import BROKEN
from tests.workflows.fuse import Fuse
from tests.workflows.scenarios.races import Moment
from tests.workflows.scenarios.setup import (
    RECOVERED,
    changes,
    ends_as,
    world,
    wrong_with,
)
from tests.workflows.stories import STORIES


def a_node_is_heard_while_it_is_isolated() -> list[str]:
    return _is_heard_while("isolate_node")


def a_node_is_heard_while_it_is_returned() -> list[str]:
    return _is_heard_while("return_to_service")


def a_node_boots_while_it_is_returned() -> list[str]:
    """By itself: what has passed is the boot before."""
    it = world(spare=False)
    it.fuse.meanwhile["return_to_service", "nodes.save"] = changes(it, boot_id="boot-by-itself")
    it.reports(xid(79))
    back = it.node()
    is_in_service = back.boot_id == "boot-by-itself" and back.state is NodeState.PROBATION
    return ["it is back on a boot that has passed nothing"] if is_in_service else []


def a_node_is_heard_while_it_is_paused() -> list[str]:
    it = Moment("nodes.save", lambda it: it.is_written(last_seen=NOW + timedelta(seconds=1)))
    it.does(lambda: pause_node(BROKEN, 3_600, "repair", it.ports))
    kept = it.plain.nodes.get(BROKEN)
    return [] if kept is not None and kept.paused_why else ["he is told that it is paused, and it is not"]


def a_node_is_heard_while_its_incident_ends() -> list[str]:
    return _is_heard_while("end_incident")


def _is_heard_while(function: str) -> list[str]:
    """It gives a heartbeat, between the function's look at its record and its write."""
    it = world(spare=False)
    it.fuse.meanwhile[function, "nodes.save"] = changes(it, last_seen=NOW)
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_node_is_heard_while_it_is_given_back() -> list[str]:
    return _is_heard_while_given_back(0)


def a_node_is_heard_while_it_is_switched_on() -> list[str]:
    return _is_heard_while_given_back(1)


def _is_heard_while_given_back(saves: int) -> list[str]:
    """By hand; before the first write of its record, or after so many."""
    it = STORIES[2].make(Fuse(writes_only=True))
    it.reports(xid(79))
    when, heard = ("release_node", "nodes.save"), changes(it, last_seen=NOW)
    it.fuse.meanwhile[when] = heard if not saves else lambda: it.fuse.meanwhile.update({when: heard})
    it.does("release_node", lambda: release_node(BROKEN, "repaired", it.ports))
    is_free = it.node().state is NodeState.HEALTHY and it.node().open_incident is None
    return [*it.faults(), *([] if is_free else ["it was given back, and is not free"])]


def a_rank_is_told_of_while_another_starts() -> list[str]:
    """What was started is on record, whoever else writes the run."""
    it, when = world(), ("launch_gang", "jobs.save_run")
    # The first save is of the run, the second one of its first rank.
    it.fuse.meanwhile[when] = lambda: it.fuse.meanwhile.update({when: lambda: _run_is_written(it, 2)})
    becomes, on_record = it._gang_becomes, list[str]()

    def once_it_is_started(status: str, exit_code: int = 143) -> None:
        run = it.plain.jobs.get_run("llama", 2)
        on_record.extend(task.task_id for task in run.tasks) if run else None
        becomes(status, exit_code)

    it._gang_becomes = once_it_is_started  # type: ignore[method-assign]
    it.reports(xid(31))
    return [] if "" not in on_record[:2] else ["a rank was started that is not on record"]


def _run_is_written(it: BreakingWorld, number: int) -> None:
    run = it.plain.jobs.get_run("llama", number)
    assert run is not None
    it.plain.jobs.save_run(run)
