"""Workflows on Step Functions."""

import json
from typing import TYPE_CHECKING

from nodeheal.adapters.aws.calls import code_of, throttles_named
from nodeheal.contract.steps import StepResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_stepfunctions import SFNClient


class StepFunctionsWorkflows:
    """Workflows."""

    def __init__(self, client: "Callable[[], SFNClient]", recover_node_arn: str) -> None:
        self._client = client
        self._recover_node_arn = recover_node_arn

    def start(self, incident_id: str, node_id: str) -> None:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("StartExecution"):
                self._client().start_execution(
                    stateMachineArn=self._recover_node_arn,
                    name=incident_id,
                    input=json.dumps({"incident_id": incident_id, "node_id": node_id}),
                )
        except ClientError as error:
            if code_of(error) != "ExecutionAlreadyExists":
                raise

    def resume(self, token: str, result: StepResult) -> bool:
        from botocore.exceptions import ClientError

        try:
            with throttles_named("SendTaskSuccess"):
                self._client().send_task_success(taskToken=token, output=result.model_dump_json())
        except ClientError as error:
            if code_of(error) in ("TaskTimedOut", "TaskDoesNotExist", "InvalidToken"):
                return False
            raise
        return True
