"""What comes between a look and a wait, or is there already when a function is called again.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace

from nodeheal.domain.jobs.job import GangTask
from tests.support.builders import commands_in, node, started_job, stored_run, xid
from tests.support.fake_cluster import BROKEN, SPARE
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import world, wrong_with
from tests.workflows.stories import OTHER

# When it is called again


def a_swap_is_called_again() -> list[str]:
    """There is a second spare, and one broken node."""
    it = world()
    it.plain.nodes.save(node(OTHER))

    it.fuse.throttles("replace_node", "operations.save")  # which names the spare
    it.reports(xid(74))
    held = [name for name in (SPARE, OTHER) if it.node(name).job_id or it.node(name).open_incident]
    return wrong_with(it, (held == [SPARE], f"{held} stand in for one"))


# Checkpoints that are asked for


def _runs(it: Moment) -> list[GangTask]:
    run = started_job(JOB, [node(BROKEN)], it.plain)
    tasks = tuple(replace(task, status="RUNNING") for task in run.tasks)
    stored = stored_run(it.plain, "llama", 1)
    it.plain.jobs.save_run(replace(stored, tasks=tasks))
    return list(tasks)


def _asked(it: Moment, times: int) -> list[str]:
    asked = commands_in(it.plain).sent_to_all
    return [] if len(asked) == times else [f"it was asked {len(asked)} times for a checkpoint, and not {times}"]
