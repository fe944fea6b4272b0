"""Ranks that may still write, and words about them that come late.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from nodeheal.services.jobs.runs import current_run
from tests.support.builders import xid
from tests.support.fake_cluster import BROKEN, PEER
from tests.workflows.scenarios.setup import RECOVERED, ends_as, world, wrong_with


def a_gpu_is_lost() -> list[str]:
    it = world()
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED), (it.job_nodes == [BROKEN, PEER], "the job was not brought back"))


def its_next_run_shows_the_fault_again() -> list[str]:
    """One incident has restarted the job, and another one's fault comes again on that run: it needs another restart."""
    it = world()
    it._ingest(xid(31))
    it._ingest(xid(43, node_id=PEER, instance_id=PEER, event_id="peer"))

    def again() -> None:
        it.clock.advance(60)
        it._ingest(xid(43, node_id=PEER, instance_id=PEER, event_id="again", observed_at=it.clock()))

    it.clock.advance(60)
    it.meanwhile["end_incident"] = [again]
    it.walk_what_was_started()
    _, run = current_run("llama", it.plain)
    is_twice = run is not None and run.number == 3
    return wrong_with(it, ends_as(it, *RECOVERED, *RECOVERED), (is_twice, "a run that has failed is left as it is"))
