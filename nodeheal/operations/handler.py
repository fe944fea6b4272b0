"""The interface of a verb, with which the engine starts, follows and ends its operations."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodeheal.contract.health_event import NodeAnswer
from nodeheal.contract.job_steps import JobResult
from nodeheal.contract.results import Facts as ResultFacts
from nodeheal.contract.results import StepResult
from nodeheal.contract.vocabulary import Outcome
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.operation import Operation
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Links
from nodeheal.ports import Ports

Result = StepResult | JobResult


@dataclass(frozen=True)
class VerbContext:
    """What a verb needs to act. Functions that only follow operations have no policy and make no links."""

    ports: Ports
    given_policy: RecoveryPolicy | None = None
    given_links: Links | None = None

    @property
    def is_step(self) -> bool:
        """Whether the workflow's own step called, and not an event."""
        return self.given_policy is not None

    @property
    def policy(self) -> RecoveryPolicy:
        """The policy in force. Raises ValueError in a function that reads none."""
        if self.given_policy is None:
            raise ValueError("this function reads no policy")
        return self.given_policy

    @property
    def links(self) -> Links:
        """Makes approval links. Raises ValueError in a function that has no key for them."""
        if self.given_links is None:
            raise ValueError("this function makes no approval links")
        return self.given_links


@dataclass(frozen=True)
class OperationFacts:
    """What is on record, and what the time is. `is_final`: the workflow waits no longer; the authority was queried."""

    now: datetime
    is_final: bool = False
    node: Node | None = None


@dataclass(frozen=True)
class Answers:
    """What a node answers to the command of a verb: its event, and what of it is stored with the operation."""

    event: type[NodeAnswer]
    stored: Callable[[Any], str] = lambda event: event.model_dump_json()


@dataclass(frozen=True)
class NextActDue:
    """The operation's next act is due: the engine calls `start` once more."""


@dataclass(frozen=True)
class Handler:
    """One verb.

    `start` sends what is to be sent, once, and returns the operation as it is then, or its result where nothing was to
    be sent. `read` reads the facts. `observe` is pure, and the only place that says whether the verb is done: it gives
    the result, `NextActDue`, or None while there is none; with final facts it always gives a result. `refresh` queries
    the authority (SSM, EC2, the scheduler) and records what it says. `machine_stopped` records that EC2 has stopped the
    machine. `settle` writes what the result means for others, before the workflow has it; it may be repeated.

    `may_repeat`: a start that broke off is made again, for it sends nothing to a node, and people get the same message
    once. `acts_in_step`: an event's function may not do what `NextActDue` asks for, so the workflow calls its step
    again. `refreshes_when_repeated`: a call that is repeated goes on from what the authority says. `is_half_of_step`:
    another operation of the same step follows, so that its end is not the step's. `needs_isolation`: it is not begun on
    a node that a person has taken over since nodeheal isolated it, nor where the work on it is not known.
    """

    start: Callable[[Operation, VerbContext], Operation | Result]
    observe: Callable[[Operation, Any], Result | NextActDue | None]
    read: Callable[[Operation, Ports], Any]
    refresh: Callable[[Operation, Ports], Operation] = lambda operation, ports: operation
    settle: Callable[[Operation, Any, Ports], None] = lambda operation, result, ports: None
    answers: Answers | None = None  # None: no node is sent a command that it answers
    machine_stopped: Callable[[Operation, Ports], Operation] = lambda operation, ports: operation
    may_repeat: bool = False
    acts_in_step: bool = False
    refreshes_when_repeated: bool = False
    is_half_of_step: bool = False
    needs_isolation: bool = False


def read_time(operation: Operation, ports: Ports) -> OperationFacts:
    """The facts of a verb whose answers are all in its own record."""
    return OperationFacts(ports.clock())


# For an operation that no workflow waits for. It stays in its line until a function takes it out.
STANDS_IN_LINE = Handler(lambda operation, world: operation, lambda operation, facts: None, read_time)


def read_node(operation: Operation, ports: Ports) -> OperationFacts:
    """The facts of a verb that looks at its node."""
    return OperationFacts(ports.clock(), node=ports.nodes.get(operation.node_id))


def step_result(
    operation: Operation,
    now: datetime,
    outcome: Outcome,
    reason: str,
    *,
    boot_id: str | None = None,
    replacement_node_id: str | None = None,
    facts: ResultFacts | None = None,
) -> StepResult:
    """How a recovery's step went."""
    decision = operation.step.decision
    return StepResult(
        step=decision.step,
        node_id=decision.node_id,
        outcome=outcome,
        reason=reason,
        finished_at=now,
        boot_id=boot_id,
        replacement_node_id=replacement_node_id,
        facts=facts,
    )
