"""Orders that people give by a node's mark at its scheduler, and which of them still stand."""

from dataclasses import dataclass

from nodeheal.contract.vocabulary import Action
from nodeheal.domain.fleet.cluster import Cluster


@dataclass(frozen=True)
class NodeOrder:
    """What is wanted of a machine. `who`: all that is known of the person; `how`: by which mark.

    `is_authorised`: nobody can set the mark but those who may order it.
    """

    machine_id: str
    action: Action
    who: str
    how: str
    is_authorised: bool


@dataclass(frozen=True)
class StandingOrder:
    """An order whose mark stood at the last look. `is_taken`: it is done, once, however long the mark stands.

    `needs_approval`: anybody may have set the mark, when it was seen first or since. `waits_because`: why it could not
    be requested yet, in words.
    """

    node_id: str
    action: Action
    needs_approval: bool
    is_taken: bool = False
    waits_because: str = ""


@dataclass(frozen=True)
class ClusterOrders:
    """The orders that stand in a cluster. `is_limited`: all marks were seen, and only who may order could set one."""

    cluster: Cluster
    standing: tuple[StandingOrder, ...] = ()
    is_limited: bool = False
