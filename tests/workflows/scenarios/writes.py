"""Two who write in one moment: of a conditional write one of them hears that it came second.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from tests.support.builders import node, xid
from tests.support.fake_cluster import PEER, SPARE
from tests.workflows.scenarios.setup import (
    changes,
    world,
)


def two_want_the_first_of_two_spares() -> list[str]:
    """Whoever comes second takes the other one."""
    it = world()
    it.plain.nodes.save(node("mi-0dddddddddddddddd"))
    it.fuse.meanwhile["replace_node", "nodes.save"] = changes(it, SPARE, open_incident="inc-of-another")
    it.reports(xid(74))
    return [] if it.job_nodes == ["mi-0dddddddddddddddd", PEER] else [f"the job is on {it.job_nodes}"]
