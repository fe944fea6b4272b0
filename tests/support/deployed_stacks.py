"""CloudFormation with a deployment in it."""

from typing import Any

from botocore.exceptions import ClientError

from nodeheal.contract import names
from tests.support.appconfig import Json


class FakeStacks:
    """CloudFormation with the stack, by its outputs; None: there is no stack, or the call is refused."""

    def __init__(
        self,
        outputs: dict[str, str] | None,
        code: str = "ValidationError",
        message: str = "Stack with id nodeheal does not exist",
    ) -> None:
        self.outputs = outputs
        self._refusal: Any = {"Error": {"Code": code, "Message": message}}

    def describe_stacks(self, **asked: str) -> Json:
        assert asked == {"StackName": names.STACK}
        if self.outputs is None:
            raise ClientError(self._refusal, "DescribeStacks")
        return {"Stacks": [{"Outputs": [{"OutputKey": k, "OutputValue": v} for k, v in self.outputs.items()]}]}
