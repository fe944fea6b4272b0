"""What becomes of a job's cluster."""

from nodeheal.contract.acts import StopJob
from tests.support.acts import does
from tests.support.builders import xid
from tests.support.job_cluster import Happening, JobCluster


def wants_it_stopped(it: JobCluster) -> None:
    """An operator asks for the job to be stopped."""
    does(StopJob(job="llama", why="enough"), it.ports, it.policy)


def falls_off_the_bus(name: str) -> Happening:
    """A node of the gang breaks, and its rank dies of it."""

    def happens(it: JobCluster) -> None:
        it._ingest(xid(79, node_id=name, instance_id=name, event_id=f"fault-of-{name}"))

    return happens
