"""One act of a workflow, stored before anything is sent: its request, its node, its state and its result."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from nodeheal.contract.job_steps import JobRequest, JobResult
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.type_adapters import adapter_of
from nodeheal.contract.vocabulary import VerbName


class OperationState(StrEnum):
    """How far an operation is."""

    PLANNED = "PLANNED"  # nothing was asked of anybody yet
    SENDING = "SENDING"  # it is being sent: if the function crashed there, it is not known whether it was accepted
    STARTED = "STARTED"  # it was taken, or there was nothing to send
    DONE = "DONE"  # its result is stored; the workflow may not have it yet
    DELIVERED = "DELIVERED"  # the workflow has its result


@dataclass(frozen=True)
class Operation:
    """`owner` and `operation_id` name it; a call that is repeated finds the operation of the first call.

    `token`: of the workflow that waits; the newest call's. `incident_id`: the incident, or the round of a job.
    """

    owner: str
    operation_id: str
    verb: VerbName
    token: str
    incident_id: str
    deadline_at: datetime
    request_json: str
    state: OperationState = OperationState.PLANNED
    node_id: str = ""
    boot_id: str = ""  # the boot that the node was on when it was asked
    reference: str = ""  # the SSM command behind it, where there is one and its id is known
    nonce: str = ""  # the random part of the request id that the node is given, and echoes
    has_command_failed: bool = False  # the node refused the command or could not run it
    is_machine_gone: bool = False  # the machine was terminated
    command_state: str = ""  # what SSM said of the command when it was last queried
    answer_json: str = ""  # what the node, or a person, has answered
    data_json: str = ""  # the verb's own record
    result_json: str = ""
    parent: tuple[str, str] | None = None  # (owner, id) of the operation that this is a part of; it has the token
    line: tuple[str, str] | None = None  # (which line, place): stands in a line, the smallest place first
    version: int = 0  # 0: not stored yet

    @property
    def is_over(self) -> bool:
        """Whether its result is known."""
        return self.state in (OperationState.DONE, OperationState.DELIVERED)

    def delivered(self) -> "Operation":
        """The workflow has its result. The token is worth nothing any more, and nothing that is kept holds one."""
        return replace(self, state=OperationState.DELIVERED, token="")

    @property
    def request_id(self) -> str:
        """The name that the node is given and answers with. Its random part follows from nothing that others know."""
        return f"{self.operation_id}.{self.nonce}" if self.nonce else self.operation_id

    @property
    def request(self) -> StepRequest | JobRequest:
        """What the workflow asked for, without its token."""
        request: StepRequest | JobRequest = adapter_of(StepRequest | JobRequest).validate_json(self.request_json)
        return request

    @property
    def step(self) -> StepRequest:
        """The request of a recovery. Raises TypeError for one of a job's workflow."""
        request = self.request
        if not isinstance(request, StepRequest):
            raise TypeError(f"{self.operation_id} is an operation of a job")
        return request

    @property
    def job_request(self) -> JobRequest:
        """The request of a job's workflow. Raises TypeError for one of a recovery."""
        request = self.request
        if not isinstance(request, JobRequest):
            raise TypeError(f"{self.operation_id} is an operation of a recovery")
        return request

    @property
    def result(self) -> StepResult | JobResult:
        """How it ended. Raises ValueError while it has not."""
        result: StepResult | JobResult = adapter_of(StepResult | JobResult).validate_json(self.result_json)
        return result


def node_owner(node_id: str) -> str:
    """Owner of the operations whose facts are those of a node."""
    return f"node#{node_id}"


def incident_owner(incident_id: str) -> str:
    """Owner of the operations whose facts are those of an incident."""
    return f"incident#{incident_id}"


def job_owner(job_id: str) -> str:
    """Owner of the operations whose facts are those of a job's runs."""
    return f"job#{job_id}"
