"""Implements Workflows on Step Functions."""

import json
from typing import TYPE_CHECKING

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract.job_steps import JobResult
from nodeheal.contract.names import job_execution
from nodeheal.contract.results import StepResult

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
