"""A machine that is stopped and started."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Reservation, StepRequest
from nodeheal.contract.vocabulary import Action, Provider
from nodeheal.domain.fleet.machine import Machine, Power
from nodeheal.operations.engine import machine_stopped
from tests.support.builders import ACT
from tests.support.incident_steps import A, Incident
from tests.support.step_functions import reboot_node

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = ACT.limits[Action.STOP_START]


class Stopping:
    """An isolated EC2 node whose turn it is to be stopped and started."""

    def __init__(self, **machine: Any) -> None:
        self.it = Incident()
        self.it.isolate()
        self.ports = self.it.ports
        self.ports.nodes.save(replace(self.it.node(), provider=Provider.ec2))
        machines: Any = self.ports.machines
        self.machines = machines
        self.machines.machines[A] = Machine(A, **machine)
        reserve = (Reservation(scope=f"node#{A}", limit=LIMIT),)
        asked = self.it.request()
        decision = asked.decision.model_copy(update={"action": Action.STOP_START, "reserve": reserve})
        self.request: StepRequest = asked.model_copy(update={"decision": decision, "task_token": "token-1"})

    def calls(self, token: str = "token-1") -> None:
        reboot_node(self.request.model_copy(update={"task_token": token}), self.ports)

    def has_stopped(self) -> None:
        machine_stopped(A, self.ports)

    def becomes(self, state: str, why: str = "") -> None:
        code = why.partition(":")[0]
        known = self.machines.machines[A]
        self.machines.machines[A] = replace(known, state=state, state_code=code, state_reason=why)

    def answer(self, token: str = "token-1") -> StepResult:
        found: StepResult = self.ports.workflows.resumed[token]  # type: ignore[attr-defined]
        return found

    @property
    def is_open(self) -> bool:
        """Whether nobody has been answered."""
        return not self.ports.workflows.resumed  # type: ignore[attr-defined]

    @property
    def ordered(self) -> list[tuple[str, Power]]:
        found: list[tuple[str, Power]] = self.machines.ordered
        return found

    @property
    def spent(self) -> int:
        return self.ports.attempts.spent(f"node#{A}", LIMIT)[LIMIT.group]

    def fails_once(self, order: Power, error: Exception, *, after: bool = False) -> None:
        """The next such order raises; `after`: when it has been carried out."""
        power: Callable[[str, Power], None] = self.machines.power

        def failing(machine_id: str, asked: Power) -> None:
            if asked is not order:
                return power(machine_id, asked)
            self.machines.power = power
            if after:
                power(machine_id, asked)
            raise error

        self.machines.power = failing


def of(**machine: Any) -> Stopping:
    found = Stopping(**machine)
    found.ports.workflows.resumed.clear()  # type: ignore[attr-defined]
    return found
