"""Let nodeheal act on a node: the operator sets the mark wherever it is asked for, then what they say is written down.

The marks come first: a record without them would be a promise that IAM does not keep.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.errors import HalfDone, NotFound
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.enrolment import Enrolment, EnrolmentTag, Registry, provider_of
from nodeheal.domain.fleet.node import NO_BOOT_REPORTED, Node
from nodeheal.ports import Ports
from nodeheal.services.saving import node_of
from nodeheal.services.steps import enter_state, save_node


class Marks(Protocol):
    """Knows where a node carries the mark. Only operators change it: no function is handed this port."""

    def of(self, node: Node) -> Sequence[EnrolmentTag]:
        """The mark in every registry that must carry it, as it is now."""

    def put(self, node: Node, mark: EnrolmentTag, rack: str = "") -> None:
        """Set it, and name the rack where one is given. Setting it again changes nothing."""

    def take(self, node: Node, mark: EnrolmentTag) -> None:
        """Take it away, and the rack's name with it. Taking it again changes nothing."""


# What a person is told was recorded, by the field of the node.
_RECORDED = {
    "is_spare": "spare",
    "pool": "pool",
    "state": "state",
    "cluster": "cluster",
    "rack": "rack",
    "accelerators": "accelerators",
    "job_id": "job id",
}


def check_enrolment(node_id: str, enrolment: Enrolment, ports: Ports) -> Node:
    """The node as recorded, or as it would be. Raises ValueError where what is said cannot be."""
    node = ports.nodes.get(node_id) or _announced(node_id, enrolment, ports)
    _must_fit(node, enrolment)
    return node


def mark_node(node: Node, enrolment: Enrolment, marks: Marks) -> list[str]:
    """Set the mark wherever it is missing; what was done, in words. Safe to repeat.

    Raises NotFound for a node that a registry does not know, HalfDone where it broke off.
    """
    of_node = marks.of(node)
    unknown = [mark for mark in of_node if not mark.name]
    if unknown:
        raise NotFound(_nobody_knows(node, unknown))
    missing = [mark for mark in of_node if not mark.is_set or enrolment.rack not in (None, mark.rack)]
    return change_marks(missing, lambda mark: marks.put(node, mark, enrolment.rack or ""), "marked")


def unmark_node(node: Node, marks: Marks) -> list[str]:
    """Take the mark off wherever it is; what was done, in words. Safe to repeat. Raises HalfDone."""
    left = [mark for mark in marks.of(node) if mark.is_set]
    return change_marks(left, lambda mark: marks.take(node, mark), "took the mark off")


def record_enrolment(node_id: str, enrolment: Enrolment, ports: Ports) -> tuple[Node, tuple[str, ...]]:
    """The node as recorded, and what was written down. Safe to repeat: what is there already is left alone.

    One whose agent has never reported is recorded all the same, as ENROLLED. Raises ValueError where what is said
    cannot be.
    """
    node = check_enrolment(node_id, enrolment, ports)
    if node.version == 0:
        ports.nodes.save(node)  # if its agent has reported in this very moment, its word stands, and ours comes on top
        node = node_of(node_id, ports)
        _must_fit(node, enrolment)
    changes = _changes(node, enrolment)
    if changes:
        node = save_node(ports, node, **changes)
    if node.agent_version and not node.has_reported:  # its agent has reported already
        node = enter_state(ports, node, NodeState.HEALTHY, enrolment.why)
    return node, tuple(f"recorded {words}" for name, words in _RECORDED.items() if name in changes)


def _announced(node_id: str, enrolment: Enrolment, ports: Ports) -> Node:
    """Returns the record of a node that has not reported yet, as the operator describes it. Not saved."""
    provider = provider_of(node_id)
    others = ports.nodes.in_pool(enrolment.pool)
    names, kinds = {node.cluster.name for node in others}, {node.cluster.kind for node in others}
    name = enrolment.cluster or (names.pop() if len(names) == 1 else "")
    kind = enrolment.scheduler or (kinds.pop() if len(kinds) == 1 else None)
    if not name or kind is None:
        missing = "--cluster" if not name else "--scheduler"
        raise ValueError(
            f"{node_id} has never reported, and the other nodes of pool {enrolment.pool} do not say in which cluster "
            f"of which scheduler it would be: give {missing}"
        )
    now = ports.clock()
    return Node(
        node_id=node_id,
        cluster=Cluster(kind, name),
        pool=enrolment.pool,
        provider=enrolment.provider or provider,
        instance_id=node_id,
        boot_id=NO_BOOT_REPORTED,
        booted_at=now,
        last_seen=now,
        state=NodeState.ENROLLED,
    )


def _nobody_knows(node: Node, unknown: Sequence[EnrolmentTag]) -> str:
    where = f" (cluster {node.cluster.name})" if any(mark.registry is Registry.SCHEDULER for mark in unknown) else ""
    never = "" if node.has_reported else "; its agent has never reported either"
    kinds = " and no ".join(mark.kind for mark in unknown)
    return f"this account and Region know no {kinds} {node.node_id}{where}{never}; nothing was done"


def change_marks(wanted: Iterable[EnrolmentTag], change: Callable[[EnrolmentTag], None], verb: str) -> list[str]:
    """Change them one by one; what was done, in words. Raises HalfDone, which says how far it came."""
    done: list[str] = []
    for mark in wanted:
        try:
            change(mark)
        except Exception as error:  # after any error the operator must know what is done already
            text = ", ".join(done) or "nothing yet"
            raise HalfDone(f"{mark}: {error}; done: {text}; the same command goes on from there") from error
        done.append(f"{verb} {mark}")
    return done


def _must_fit(node: Node, enrolment: Enrolment) -> None:
    if node.state is NodeState.RETIRED:
        raise ValueError(f"{node.node_id} is retired; a machine that comes back registers again, under another id")
    if not node.has_reported:
        return
    if enrolment.cluster not in (None, node.cluster.name):
        raise ValueError(f"{node.node_id} says that it is of cluster {node.cluster.name}, not {enrolment.cluster}")
    if enrolment.scheduler not in (None, node.cluster.kind):
        raise ValueError(f"{node.node_id} says that its scheduler is {node.cluster.kind}, not {enrolment.scheduler}")
    if enrolment.pool != node.pool:
        raise ValueError(
            f"{node.node_id} says that it is of pool {node.pool}, not {enrolment.pool}: see its agent.toml"
        )
    if enrolment.provider not in (None, node.provider):
        raise ValueError(
            f"{node.node_id} says that it is {node.provider}, not {enrolment.provider}: see its agent.toml"
        )
    if enrolment.is_spare and node.job_id and not enrolment.has_no_job:
        raise ValueError(f"{node.node_id} runs {node.job_id}: a spare has no job (--job none, if that is over)")


def _changes(node: Node, enrolment: Enrolment) -> dict[str, object]:
    """What the record does not say yet."""
    wanted: dict[str, object] = {"is_spare": enrolment.is_spare}
    if not node.has_reported:  # so written once: the store makes the pool known before its node is in it
        wanted |= {"pool": enrolment.pool, "state": NodeState.ENROLLED}
        wanted["cluster"] = Cluster(enrolment.scheduler or node.cluster.kind, enrolment.cluster or node.cluster.name)
    if enrolment.rack is not None:
        wanted["rack"] = enrolment.rack
    if enrolment.accelerators is not None:
        wanted["accelerators"] = enrolment.accelerators
    if enrolment.has_no_job:
        wanted["job_id"] = None
    if node.state in (NodeState.HEALTHY, NodeState.ENROLLED, NodeState.UNENROLLED):
        wanted["state_reason"] = f"enrolled by {enrolment.why}"
    return {name: value for name, value in wanted.items() if getattr(node, name) != value}
