"""Everything that a screen or a program asks of one deployment, in one place."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

from nodeheal.api import incident_list, incident_queries, job_list, job_queries, node_list, node_queries, queries
from nodeheal.api.acts import ControlPlane, new_key, preview
from nodeheal.api.incident_views import IncidentView
from nodeheal.api.job_views import JobView
from nodeheal.api.pages import WHOLE, Page, Rows
from nodeheal.api.views import Consequences, FleetView, IncidentRow, JobListRow, NodeRow, NodeView, Todo
from nodeheal.contract.acts import Act, ActDone
from nodeheal.contract.vocabulary import Availability
from nodeheal.domain.errors import NotFound
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.review.review import StateWord
from nodeheal.ports import Ports


@dataclass(frozen=True)
class Client:
    """Reads with the caller's own permissions, and has the control plane act for the caller whom AWS names.

    `pools`: of these only; empty: of all. A query raises NotFound for a name that is not known, and ValueError for a
    cursor of another list.
    """

    ports: Ports
    read_policy: Callable[[], RecoveryPolicy]
    control_plane: ControlPlane

    def fleet(self, pools: Sequence[str] = ()) -> FleetView:
        """Return the pools with their incidents and jobs."""
        return queries.fleet(self._named(pools), self.ports, self.read_policy())

    def todo(self, pools: Sequence[str] = ()) -> tuple[Todo, ...]:
        """Return what waits for a person, with the acts that answer it."""
        return self.fleet(pools).todo

    def nodes(
        self, pools: Sequence[str] = (), states: Sequence[Availability] = (), page: Page = WHOLE
    ) -> Rows[NodeRow]:
        """Return nodes in these states, or in any, by pool and id."""
        return node_list.nodes(self._named(pools), self.ports.pauses.read(), self.ports, states, page)

    def node(self, node_id: str) -> NodeView:
        """Return one node."""
        return node_queries.node(node_id, self.ports, self.read_policy())

    def incidents(
        self,
        since: datetime,
        pools: Sequence[str] = (),
        words: AbstractSet[StateWord] = frozenset(),
        page: Page = WHOLE,
    ) -> Rows[IncidentRow]:
        """Return the incidents that were opened since, the newest first; those that stand so, or all."""
        return incident_list.incidents(self._named(pools), self.ports, since, words, page)

    def incident(self, incident_id: str) -> IncidentView:
        """Return one incident."""
        return incident_queries.incident(incident_id, self.ports, self.read_policy)

    def jobs(self, pools: Sequence[str] = (), *, live_only: bool = False, page: Page = WHOLE) -> Rows[JobListRow]:
        """Return jobs: those that live first, then by name."""
        return job_list.jobs(self._named(pools), self.ports, live_only=live_only, page=page)

    def job(self, job_id: str) -> JobView:
        """Return one job."""
        return job_queries.job(job_id, self.ports, self.read_policy)

    def preview(self, act: Act) -> Consequences:
        """Return what the act will do now. Raises NotFound, Conflict and ValueError where it would be refused."""
        return preview(act, self.ports, self.read_policy())

    def do(self, act: Act, key: str = "") -> ActDone:
        """Have the act done, once for this key; without one, for this call. Raises as ControlPlane.do."""
        return self.control_plane.do(act, key or new_key())

    def _named(self, pools: Sequence[str]) -> Sequence[str]:
        known = list(self.ports.fleet_index.pools())
        if unknown := sorted({*pools} - {*known}):
            raise NotFound(f"no pool {', '.join(unknown)} is known; known: {', '.join(known)}")
        return pools or known
