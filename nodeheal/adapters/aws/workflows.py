"""Implements Workflows on Step Functions."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract.job_steps import JobResult
from nodeheal.contract.names import job_execution
from nodeheal.contract.results import StepResult
from nodeheal.contract.type_adapters import adapter_of
from nodeheal.ports.compute import Started

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_stepfunctions import SFNClient


class StepFunctionsWorkflows:
    """Implements Workflows."""

    def __init__(self, client: "Callable[[], SFNClient]", recover_node_arn: str, run_job_arn: str = "") -> None:
        self._client = client
        self._recover_node_arn = recover_node_arn
        self._run_job_arn = run_job_arn

    def start(self, incident_id: str, node_id: str) -> None:
        self._start(self._recover_node_arn, incident_id, {"incident_id": incident_id, "node_id": node_id})

    def run_job(self, job_id: str, submission: int) -> None:
        self._start(self._run_job_arn, job_execution(job_id, submission), {"job_id": job_id, "submission": submission})

    def _start(self, arn: str, name: str, given: dict[str, str | int]) -> None:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("StartExecution"):
                self._client().start_execution(stateMachineArn=arn, name=name, input=json.dumps(given))
        except ClientError as error:
            if code_of(error) != "ExecutionAlreadyExists":
                raise

    def resume(self, token: str, result: StepResult | JobResult) -> bool:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("SendTaskSuccess"):
                self._client().send_task_success(taskToken=token, output=result.model_dump_json())
        except ClientError as error:
            if code_of(error) in ("TaskTimedOut", "TaskDoesNotExist", "InvalidToken"):
                return False
            raise
        return True

    def started_since(self, since: datetime) -> Sequence[Started]:
        machines = (self._recover_node_arn, self._run_job_arn)
        return [
            started for arn in machines for execution in self._newest(arn, since) for started in self._of(execution)
        ]

    def _newest(self, arn: str, since: datetime) -> Iterator[str]:
        """Yield the ARNs of the executions that started since then. Step Functions lists the newest first."""
        with throttles_named("ListExecutions"):
            for page in self._client().get_paginator("list_executions").paginate(stateMachineArn=arn):
                for execution in page["executions"]:
                    if execution["startDate"] < since:
                        return
                    yield execution["executionArn"]

    def _of(self, execution_arn: str) -> Iterator[Started]:
        """Yield what its input names; nothing for an input that its workflow refuses as well."""
        from pydantic import ValidationError

        with throttles_named("DescribeExecution"):
            given = self._client().describe_execution(executionArn=execution_arn)["input"]
        try:
            yield adapter_of(Started).validate_json(given)
        except ValidationError:
            return

    def runs_job(self, job_id: str, submission: int) -> bool:
        from botocore.exceptions import ClientError

        machine = self._run_job_arn.replace(":stateMachine:", ":execution:")
        arn = f"{machine}:{job_execution(job_id, submission)}"
        try:
            with throttles_named("DescribeExecution"):
                return self._client().describe_execution(executionArn=arn)["status"] == "RUNNING"
        except ClientError as error:
            if code_of(error) != "ExecutionDoesNotExist":
                raise
            return False
