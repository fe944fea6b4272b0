"""Two nodes that are isolated at the same time, call by call."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import isolation_line
from nodeheal.contract.steps import DecideRequest, StepRequest
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.operation import Operation
from nodeheal.domain.policy.policy_models import Breaker, Budget
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.operations.verbs import operation_of
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.recovery.decide_next_step import decide_next_step
from tests.support.builders import ACT, FrozenClock, memory_ports, node, scheduler_in, stored_node, xid
from tests.support.step_functions import isolate_node

NAMES = [f"mi-{number:02d}" for number in range(14)]


FIRST, SECOND, LAST = NAMES[0], NAMES[1], NAMES[-1]


ROOM = Budget(max_nodes=100, max_percent=100)


STORM = ACT.model_copy(
    update={
        "default_pool": ACT.default_pool.model_copy(update={"budget": ROOM}),
        "breaker": Breaker(min_nodes=100, max_nodes=100),
    }
)


class Storm:
    """Nodes that have all failed. Each has an incident, whose workflow wants it isolated."""

    def __init__(self, *names: str) -> None:
        self.clock = FrozenClock()
        self.ports: Ports = memory_ports(self.clock)
        self.asked: dict[str, StepRequest] = {}
        self.calls: list[tuple[str, int]] = []
        self.throttled = False
        for name in names or NAMES:
            self.ports.nodes.save(node(name))
        for name in names or NAMES:
            event = xid(79, node_id=name, event_id=f"event-{name}")
            ingest(event, self.ports, STORM)
            self.asked[name] = self._request(event)
        self._watch_calls()

    def _request(self, event: HealthEvent) -> StepRequest:
        incident_id = incident_id_of(event)
        decision = decide_next_step(DecideRequest(incident_id=incident_id, turn=0), self.ports, STORM)
        return StepRequest(incident_id=incident_id, turn=1, decision=decision, task_token=f"{event.node_id}-0")

    def _watch_calls(self) -> None:
        scheduler = scheduler_in(self.ports)

        def watched(call: str, found: Callable[..., Any]) -> Callable[..., Any]:
            def seen(first: Any, *more: Any) -> Any:
                if self.throttled:
                    raise NotAccepted(f"{call}: ThrottlingException")
                self.calls.append((call, 1 if isinstance(first, Node) else len(first)))
                return found(first, *more)

            return seen

        for call in ("placement_of", "names_in_service", "drain_all", "unmanaged_tasks"):
            setattr(scheduler, call, watched(call, getattr(scheduler, call)))

    def isolates(self, name: str, ports: Ports | None = None) -> None:
        """The workflow calls its step, with a new token each time."""
        number = int((self.asked[name].task_token or "").rpartition("-")[2]) + 1
        self.asked[name] = self.asked[name].model_copy(update={"task_token": f"{name}-{number}"})
        isolate_node(self.asked[name], ports or self.ports, STORM)

    def is_throttled(self, *names: str) -> None:
        """The calls of these nodes are not taken."""
        self.throttled = True
        for name in names or NAMES:
            with pytest.raises(NotAccepted):
                self.isolates(name)
        self.throttled = False

    def node(self, name: str) -> Node:
        return stored_node(self.ports, name)

    def writes(self, name: str, **changes: Any) -> None:
        assert self.ports.nodes.save(replace(self.node(name), **changes))

    def operation(self, name: str) -> Operation:
        planned = operation_of(self.asked[name], self.ports)
        assert planned is not None
        found = self.ports.operations.get(planned.owner, planned.operation_id)
        assert found is not None
        return found

    def ended(self, name: str) -> Outcome | None:
        result = self.ports.workflows.resumed.get(self.asked[name].task_token)  # type: ignore[attr-defined]
        return result.outcome if result else None

    @property
    def draining(self) -> list[str]:
        return sorted(scheduler_in(self.ports).draining)

    @property
    def in_line(self) -> list[str]:
        return [one.node_id for one in self.ports.operations.queued(isolation_line("ECS", "training"))]
