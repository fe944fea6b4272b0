"""Ranks, runs and nodes of a job that are begun, given up or taken by others, and who may go on with them.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace

from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.jobs.job import Run
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs.job_nodes import claim, replacement_nodes
from tests.support.builders import node, started_job, stored_run, xid
from tests.support.fake_cluster import BROKEN
from tests.workflows.breaking_world import ACTS
from tests.workflows.scenarios.races import JOB, Moment


def _runs_on(it: Moment, name: str, **job: object) -> Run:
    """A job of one rank, which runs there."""
    started_job(replace(JOB, **job), [node(name)], it.plain)  # type: ignore[arg-type]
    run = stored_run(it.plain, "llama", 1)
    it.plain.jobs.save_run(replace(run, tasks=tuple(replace(task, status="RUNNING") for task in run.tasks)))
    return stored_run(it.plain, "llama", 1)


# Nodes


def a_node_that_it_has_claimed_has_failed() -> list[str]:
    """The call that claims is repeated; the list of the pool lags behind."""
    it = Moment()
    it.is_written(claimed_by="llama")
    listed = it.plain.nodes.in_pool("demo")
    ingest(xid(79), it.plain, ACTS)
    it.plain.nodes.in_pool = lambda pool: listed  # type: ignore[method-assign]
    found = it.does(lambda: claim(JOB, it.ports, ACTS))
    return ["a node with an incident is claimed"] if BROKEN in [one.node_id for one in found.nodes] else []


def the_free_nodes_are_too_small() -> list[str]:
    it = Moment()
    found = replacement_nodes(replace(JOB, accelerators=8), NO_PAUSES, it.plain)
    return [f"{one.node_id} has too few accelerators" for one in found]
