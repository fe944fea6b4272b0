"""Everything that a screen or a program asks of one deployment, in one place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nodeheal.api.acts import ControlPlane, new_key, preview
from nodeheal.api.node_list import nodes
from nodeheal.api.node_queries import node
from nodeheal.api.queries import fleet
from nodeheal.api.views import Consequences, FleetView, NodeRow, NodeView, Todo
from nodeheal.contract.acts import Act, ActDone
from nodeheal.contract.vocabulary import Availability
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports import Ports
from nodeheal.services.jobs.prepare_job import DefinitionsOf


@dataclass(frozen=True)
class Client:
    """Reads with the caller's own permissions, and has the control plane act for the caller whom AWS names."""

    ports: Ports
    read_policy: Callable[[], RecoveryPolicy]
    definitions: DefinitionsOf
    control_plane: ControlPlane

    def fleet(self, pools: Sequence[str] = ()) -> FleetView:
        """Return these pools, or all, with their incidents and jobs."""
        return fleet(pools or list(self.ports.fleet_index.pools()), self.ports, self.read_policy())

    def todo(self, pools: Sequence[str] = ()) -> tuple[Todo, ...]:
        """Return what waits for a person, with the acts that answer it."""
        return self.fleet(pools).todo

    def nodes(self, pools: Sequence[str] = (), states: Sequence[Availability] = ()) -> list[NodeRow]:
        """Return the nodes of these pools, or of all, in these states, or in any."""
        named = pools or list(self.ports.fleet_index.pools())
        return nodes(named, self.ports.pauses.read(), self.ports, states)

    def node(self, node_id: str) -> NodeView:
        """Return one node. Raises NotFound."""
        return node(node_id, self.ports, self.read_policy())

    def preview(self, act: Act) -> Consequences:
        """Return what the act will do now. Raises NotFound, Conflict and ValueError where it would be refused."""
        return preview(act, self.ports, self.read_policy(), self.definitions)

    def do(self, act: Act, key: str = "") -> ActDone:
        """Have the act done, once for this key; without one, for this call. Raises as ControlPlane.do."""
        return self.control_plane.do(act, key or new_key())
