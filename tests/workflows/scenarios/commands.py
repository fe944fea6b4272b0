"""What people do by hand, where it cannot be, or where somebody else writes beside them.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from typing import Any

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.domain.fleet.enrolment import Enrolment
from nodeheal.domain.policy.policy import RecoveryPolicy
from tests.support.enrolment import enroll
from tests.support.fake_cluster import BROKEN
from tests.workflows.scenarios.races import Moment

DRILLED = RecoveryPolicy.model_validate({"pools": {"demo": {"drills": True}}})


# Enrolment


def a_node_is_enrolled_for_another_cluster() -> list[str]:
    return _is_enrolled(Moment(), cluster="another")


def _is_enrolled(it: Moment, *, unknown: Any = (), **said: Any) -> list[str]:
    marks = MemoryMarks(unknown=set(unknown))
    wanted = Enrolment(**{"pool": "demo", "why": "ada: a new one", **said})
    told = it.does(lambda: enroll(BROKEN, wanted, it.ports, marks))
    if isinstance(told, str) and not marks.marked:
        return []
    return ["it is marked as one that may be acted on, and what was said of it is not so"]
