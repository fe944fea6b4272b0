"""The end of an incident: what it lets go of, what it counts as settled, and where tasks of others go on.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from typing import Any

from nodeheal.contract.vocabulary import Step
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from tests.support.builders import scheduler_in, xid
from tests.support.fake_cluster import BROKEN
from tests.workflows.breaking_world import BreakingWorld
from tests.workflows.scenarios.setup import RECOVERED, ends_as, world, wrong_with
from tests.workflows.stories import pool


def _with_an_unmanaged_task(**said: Any) -> BreakingWorld:
    """Its owner has said that it may be stopped."""
    it = world(pool(stops_other_tasks=True), **said)
    unmanaged_task = UnmanagedTask("task/1", "eval:1", may_be_stopped=True)
    scheduler_in(it.plain).unmanaged["task/1"] = (BROKEN, unmanaged_task)
    return it


def a_task_is_forgotten_while_it_is_stopped() -> list[str]:
    """The function is throttled after the stop; when it comes again, the scheduler knows nothing of the task."""
    it = _with_an_unmanaged_task(spare=False)

    def throttled() -> None:
        scheduler_in(it.plain).unmanaged_ended.clear()
        raise NotAccepted("too many calls")

    it.fuse.meanwhile["isolate_node", "jobs.save_run"] = throttled
    it.reports(xid(79))
    turns = it.plain.incidents.history(it.incident_id).turns
    told = [t.result.reason for t in turns if t.decision.step is Step.ISOLATE and t.result is not None]
    is_told = any("stopped, to be started again" in text for text in told)
    return wrong_with(it, ends_as(it, *RECOVERED), (is_told, f"nobody is told that a task was stopped: {told}"))
