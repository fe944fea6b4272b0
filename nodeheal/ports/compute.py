"""Machines behind nodes, the workflows that run, and which machines are enrolled."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from nodeheal.contract.job_steps import JobResult
from nodeheal.contract.results import StepResult
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.fleet.machine import Alternative, Launch, Machine, Power, Termination


class Machines(Protocol):
    """Knows the machines behind the nodes of EC2, or of HyperPod. What acts is sent once.

    `MachineRefused`: provably nothing was done.
    """

    def describe(self, machine_id: str) -> Machine | None:
        """The machine, and who else would repair it. None: it is gone, or on its way out."""

    def power(self, machine_id: str, order: Power) -> None:
        """Ask for a reboot, a stop or a start. A repeated reboot reboots twice: EC2 knows no boots.
        The others may be repeated. Raises MachineRefused; for a start NoCapacity, and NotAccepted while it stops."""

    def launch(self, like: Machine, token: str, alternatives: Sequence[Alternative]) -> str:
        """One more machine like this one, at the first alternative that has room; its id. The same token launches once.

        Raises NoCapacity, MachineRefused.
        """

    def terminate_instance(self, machine: Machine, how: Termination) -> None:
        """Give the machine up; its group, if it has one, makes another. Raises MachineRefused."""

    def launches(self, group: str, since: datetime) -> Sequence[Launch]:
        """What the group has done since then to get machines, oldest first. Raises MachineRefused for no such group."""


@dataclass(frozen=True)
class Started:
    """What an execution was started for: the recovery of a node, or one submission of a job."""

    node_id: str = ""
    job_id: str = ""
    submission: int = 0


class Workflows(Protocol):
    """Runs the workflows."""

    def start(self, incident_id: str, node_id: str) -> None:
        """Start recover_node for the incident; a second start is a no-op."""

    def run_job(self, job_id: str, submission: int) -> None:
        """Start run_job for this submission of the job; a second start is a no-op."""

    def resume(self, token: str, result: StepResult | JobResult) -> bool:
        """Hand a waiting task its result. False: nobody waits with this token any more."""

    def started_since(self, since: datetime) -> Sequence[Started]:
        """What executions were started for since then, the newest first."""

    def runs_job(self, job_id: str, submission: int) -> bool:
        """Whether run_job for this submission has begun, and has not ended."""


class EnrolmentTags(Protocol):
    """Knows which machines an operator has enrolled by a tag, at their launch or later."""

    def pool_of(self, node_id: str, provider: Provider) -> str | None:
        """The pool that the machine's tags name, or empty where they name none. None: it is not enrolled."""
