"""Whose node it is by now: another incident's, another job's, another repairer's.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from nodeheal.contract.vocabulary import Verdict
from tests.support.builders import xid
from tests.support.fake_cluster import BROKEN, SPARE
from tests.workflows.scenarios.setup import HANDED_OVER, ends_as, world, wrong_with
from tests.workflows.stories import MOVES


def a_replacement_node_that_failed_is_no_spare() -> list[str]:
    """Its reboot does not help the broken node either: what has failed lately is not swapped in."""
    it = world(MOVES)
    it.diagnoses[SPARE] = it.diagnoses[BROKEN] = Verdict.FAILED
    it.reports(xid(79))
    claims = (ends_as(it, *HANDED_OVER), (SPARE not in it.job_nodes, "the job runs on a node that has failed"))
    tested = it.commands.count(("run-diagnostics", SPARE))
    return wrong_with(it, *claims, (tested == 1, f"it was tested {tested} times"))
