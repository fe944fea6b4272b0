"""What people do by hand, where it cannot be, or where somebody else writes beside them.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from typing import Any

from nodeheal.adapters.memory.drills import MemoryDrills
from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.contract.vocabulary import NodeState, Provider
from nodeheal.domain.fleet.enrolment import Enrolment, Registry
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.services.intake.enroll_node import enroll_node
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.inject_fault import inject_fault
from nodeheal.services.operators.operator_guardrails import pause_pool, trip_breaker
from tests.unit.builders import NOW, xid
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN
from tests.workflows.scenarios.races import Moment

DRILLED = RecoveryPolicy.model_validate({"pools": {"demo": {"drills": True}}})


# Drills


def a_drill_is_asked_for_where_none_may_be() -> list[str]:
    return _is_drilled(Moment(), ACTS)


def a_drill_is_asked_for_of_a_node_at_work() -> list[str]:
    it = Moment()
    ingest(xid(79), it.plain, ACTS)
    return _is_drilled(it, DRILLED)


def a_drill_is_asked_for_of_a_suspect() -> list[str]:
    it = Moment()
    it.is_written(state=NodeState.SUSPECT)
    return _is_drilled(it, DRILLED)


def _is_drilled(it: Moment, policy: RecoveryPolicy) -> list[str]:
    drills = MemoryDrills()
    it.does(lambda: inject_fault(BROKEN, "NVRM: Xid", "fire drill", it.ports, policy, drills))
    return [f"{name} was broken for a drill" for name, _, _ in drills.injected]


# Enrolment


def a_retired_node_is_enrolled() -> list[str]:
    it = Moment()
    it.is_written(state=NodeState.RETIRED)
    return _is_enrolled(it)


def a_node_is_enrolled_for_another_pool() -> list[str]:
    return _is_enrolled(Moment(), pool="another")


def a_node_is_enrolled_for_another_cluster() -> list[str]:
    return _is_enrolled(Moment(), cluster="another")


def a_node_is_enrolled_with_another_provider() -> list[str]:
    return _is_enrolled(Moment(), provider=Provider.ec2)


def a_node_that_trains_is_enrolled_as_a_spare() -> list[str]:
    it = Moment()
    it.is_written(job_id="llama")
    return _is_enrolled(it, is_spare=True)


def a_node_is_enrolled_that_ecs_does_not_know() -> list[str]:
    return _is_enrolled(Moment(), unknown={(Registry.SCHEDULER, BROKEN)})


def _is_enrolled(it: Moment, *, unknown: Any = (), **said: Any) -> list[str]:
    marks = MemoryMarks(unknown=set(unknown))
    wanted = Enrolment(**{"pool": "demo", "why": "ada: a new one", **said})
    told = it.does(lambda: enroll_node(BROKEN, wanted, it.ports, marks))
    if isinstance(told, str) and not marks.marked:
        return []
    return ["it is marked as one that may be acted on, and what was said of it is not so"]


# Pauses


def a_breaker_opens_while_its_pool_is_paused() -> list[str]:
    """Of the two who write the pool, the one who comes second writes over what the first has written."""
    it = Moment("pools.save", lambda it: trip_breaker("demo", "6 fail", it.plain))
    it.does(lambda: pause_pool("demo", 10**6, "hands off", it.ports))
    pool = it.plain.pools.get("demo")
    is_kept = pool.is_tripped and bool(pool.why_paused(NOW))
    return [] if is_kept else ["he is told that the pool is paused, and it is not"]
