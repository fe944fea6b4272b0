"""Maps the functions of the state machines to services, like `lambdas/`: parse, call one service, dump.

A function outside the table is one operation, as in lambdas/operation.py. A test compares this table with lambdas/ and
with the files.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.steps import DecideRequest, StepRequest
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.approval_links import Links
from nodeheal.operations.steps import (
    await_nodes,
    check_nodes,
    launch_gang,
    launch_job,
    stop_gang,
    stop_job,
    wait_for_approval,
    watch_gang,
)
from nodeheal.operations.verbs import run_step
from nodeheal.ports import Ports
from nodeheal.services.jobs.attribute_failure import attribute_failure
from nodeheal.services.jobs.choose_nodes import choose_nodes
from nodeheal.services.jobs.end_job import end_job
from nodeheal.services.jobs.find_checkpoint import find_checkpoint
from nodeheal.services.jobs.judge_checks import judge_checks
from nodeheal.services.recovery.decide_next_step import decide_at_once, decide_next_step
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.recovery.return_to_service import return_to_service
from nodeheal.services.recovery.wait_for_news import wait_for_news

Json = Any


@dataclass(frozen=True)
class ServiceContext:
    """What services need: the ports and the policy."""

    ports: Ports
    policy: RecoveryPolicy
    links: Links

    @property
    def deciding(self) -> Ports:
        """Return the context of the functions that end a step: they decide the next one."""
        return replace(self.ports, decide=lambda request: decide_at_once(request, self.ports, self.policy))


Serve = Callable[[Any, ServiceContext], BaseModel | None]
_DECIDING_OPERATION: tuple[type[BaseModel], Serve] = (StepRequest, lambda r, it: run_step(r, it.deciding, it.policy))
FUNCTIONS: dict[str, tuple[type[BaseModel], Serve]] = {
    "attribute_failure": (JobRequest, lambda r, it: attribute_failure(r, it.ports, it.policy)),
    "await_nodes": (JobRequest, lambda r, it: await_nodes(r, it.ports, it.policy)),
    "check_nodes": (JobRequest, lambda r, it: check_nodes(r, it.ports, it.policy)),
    "choose_nodes": (JobRequest, lambda r, it: choose_nodes(r, it.ports, it.policy)),
    "decide_next_step": (DecideRequest, lambda r, it: decide_next_step(r, it.ports, it.policy)),
    "end_incident": (StepRequest, lambda r, it: end_incident(r, it.ports, it.policy)),
    "end_job": (JobRequest, lambda r, it: end_job(r, it.ports)),
    "freeze_evidence": _DECIDING_OPERATION,
    "isolate_node": _DECIDING_OPERATION,
    "judge_checks": (JobRequest, lambda r, it: judge_checks(r, it.ports, it.policy)),
    "launch_gang": (StepRequest, lambda r, it: launch_gang(r, it.ports, it.policy)),
    "launch_job": (JobRequest, lambda r, it: launch_job(r, it.ports, it.policy)),
    "run_diagnostics": _DECIDING_OPERATION,
    "return_to_service": (StepRequest, lambda r, it: return_to_service(r, it.deciding, it.policy)),
    "stop_gang": (StepRequest, lambda r, it: stop_gang(r, it.ports, it.policy)),
    "stop_job": (JobRequest, lambda r, it: stop_job(r, it.ports)),
    "wait_for_approval": (StepRequest, lambda r, it: wait_for_approval(r, it.ports, it.links)),
    "wait_for_news": (StepRequest, lambda r, it: wait_for_news(r, it.ports)),
    "watch_gang": (JobRequest, lambda r, it: watch_gang(r, it.ports)),
}
_OPERATION: tuple[type[BaseModel], Serve] = (StepRequest, lambda r, it: run_step(r, it.ports, it.policy))
FIND_CHECKPOINT = "find_checkpoint"
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z]+)(Function|Machine)\}")


def stem_of(placeholder: str) -> str:
    """Convert a placeholder: `${DecideNextStepFunction}` -> decide_next_step."""
    match = _PLACEHOLDER.fullmatch(placeholder)
    if match is None:
        raise ValueError(f"{placeholder} names no function and no state machine")
    return re.sub(r"(?<!^)(?=[A-Z])", "_", match[1]).lower()


def serve(stem: str, payload: Json, it: ServiceContext) -> Json:
    """Return the function's answer. Raises what its service raises."""
    if stem == FIND_CHECKPOINT:  # called by a job's own workflow, which names the submission, or by a recovery
        parse = JobRequest if "submission" in payload else StepRequest
        find_checkpoint(parse.model_validate(payload), it.ports, it.policy)
        return None
    request, service = FUNCTIONS.get(stem, _OPERATION)
    answer = service(request.model_validate(payload), it)
    return None if answer is None else answer.model_dump(mode="json")
