"""The line of a pool: incidents that wait for a slot of the disruption budget, or for a human to reset the breaker."""

from nodeheal.contract.names import pool_line
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Awaited, IncidentState
from nodeheal.domain.fleet.node import OUT_OF_SERVICE, Node
from nodeheal.domain.operation import Operation
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import Incident
from nodeheal.domain.verbs import DISRUPTIVENESS
from nodeheal.operations.engine import signal
from nodeheal.ports import Ports
from nodeheal.services.recovery.pool_size import slots_of

IN_LINE = frozenset({Awaited.BUDGET, Awaited.BREAKER})
_MOST_HARM = 99
CALLED = "called"  # the answer that ends a wait in line


def place_of(decision: Decision, incident: Incident) -> str:
    """Where an incident stands: those that hold a job up first, then by what is to be done, then by age."""
    harm = (10 if incident.job_id else 0) + (DISRUPTIVENESS[decision.action] if decision.action else 0)
    return f"{_MOST_HARM - harm:02d}#{incident.opened_at:%Y-%m-%dT%H:%M:%SZ}#{incident.incident_id}"


def wake_queue(pool: str, ports: Ports) -> str | None:
    """Let the first in line try for a slot that has become free; its incident. Waking too often is harmless."""
    return next((wait.incident_id for wait in _standing(pool, Awaited.BUDGET, ports) if _wake(wait, ports)), None)


def in_line_before(incident_id: str, pool: str, ports: Ports) -> list[str]:
    """The incidents that stand in line for a slot before this one may take one. None, once it has been called."""
    others = [wait.incident_id for wait in _standing(pool, Awaited.BUDGET, ports) if wait.incident_id != incident_id]
    if not others:
        return []
    turns = ports.incidents.history(incident_id).turns
    called = any(t.result is not None and t.decision.awaits is Awaited.BUDGET for t in turns)
    return [] if called else others


def wake_for_free_slots(pool: str, ports: Ports, policy: RecoveryPolicy) -> list[str]:
    """Wake as many as there are free slots: a policy may have made more, and a wake-up may have been lost.

    Slots that a crash left claimed are released although no incident waits: the next node would wait for them, for a
    minute.
    """
    _free_what_a_crash_left(pool, ports)
    if not _standing(pool, Awaited.BUDGET, ports):
        return []
    slots = slots_of(pool, ports, policy).total
    free = slots - len(ports.pools.holders(pool))
    woken = (wake_queue(pool, ports) for _ in range(free))
    return [incident_id for incident_id in woken if incident_id is not None]


def wake_after_reset(pool: str, ports: Ports) -> list[str]:
    """Wakes the incidents in line for a closed breaker: the reset that was to wake them may have crashed."""
    standing = _standing(pool, Awaited.BREAKER, ports)
    if not standing or ports.pools.get(pool).is_tripped:
        return []
    return [wait.incident_id for wait in standing if _wake(wait, ports)]


def wake_all(pool: str, awaited: Awaited, ports: Ports) -> int:
    """Wake everyone in line for this; how many were."""
    return sum(_wake(wait, ports) for wait in _standing(pool, awaited, ports))


def _free_what_a_crash_left(pool: str, ports: Ports) -> None:
    """Give back the slots of nodes that are in service, or retired, and that no incident works on any more."""
    for holder in ports.pools.holders(pool):
        node = ports.nodes.get(holder)
        if node is not None and node.state not in OUT_OF_SERVICE and not is_worked_on(node, ports):
            ports.pools.release(pool, holder)


def is_worked_on(node: Node, ports: Ports) -> bool:
    """Whether its slot may have been claimed a moment ago: it is marked only after that."""
    if node.open_incident is None:
        return False
    return ports.incidents.incident(node.open_incident).state in (IncidentState.OPEN, IncidentState.WAITING)


def _standing(pool: str, awaited: Awaited, ports: Ports) -> list[Operation]:
    return list(ports.operations.queued(pool_line(awaited, pool)))


def _wake(waiting: Operation, ports: Ports) -> bool:
    """False: its workflow waits no longer, and the next in line may go."""
    return signal(waiting, CALLED, ports)
