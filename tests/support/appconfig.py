"""AppConfig's hosted configuration in memory, for policy documents."""

import io
from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import ClientError

from nodeheal.adapters.aws.policy_documents import PolicyPlace
from tests.support.builders import NOW

Json = dict[str, Any]
PLACE = PolicyPlace("a", "e", "p", "s")


class FakeAppConfig:
    """AppConfig's hosted configuration in memory. `validator` returns why a document is refused, or an empty string."""

    def __init__(self, validator: Callable[[str], str] = lambda text: "") -> None:
        self.validator = validator
        self.details: Json = {}
        self.states = ["COMPLETE"]  # what a deployment goes through, one a look
        self.events: list[Json] = []
        self.stored: list[str] = []
        self.deployments: list[Json] = []
        self.started: list[Json] = []

    def get_paginator(self, verb: str) -> "FakeAppConfig":
        assert verb == "list_deployments"
        return self

    def paginate(self, **place: str) -> Iterator[Json]:
        assert place == {"ApplicationId": PLACE.application, "EnvironmentId": PLACE.environment}
        for item in reversed(self.deployments):  # one a page
            yield {"Items": [item]}

    def create_hosted_configuration_version(self, **asked: Any) -> Json:
        if len(asked["Content"]) > 2_000_000:
            raise self._error("PayloadTooLargeException", "too large", "CreateHostedConfigurationVersion")
        self.stored.append(asked["Content"].decode())
        return {"VersionNumber": len(self.stored)}

    def get_hosted_configuration_version(self, **asked: Any) -> Json:
        return {"Content": io.BytesIO(self.stored[asked["VersionNumber"] - 1].encode())}

    def start_deployment(self, **asked: Any) -> Json:
        self.started.append(asked)
        why = self.validator(self.stored[int(asked["ConfigurationVersion"]) - 1])
        if why:
            raise self._error("BadRequestException", why, "StartDeployment")
        self._left = list(self.states)
        record = {
            "DeploymentNumber": len(self.deployments) + 1,
            "ConfigurationVersion": asked["ConfigurationVersion"],
            "Description": asked["Description"],
            "State": "DEPLOYING",
            "StartedAt": NOW,
            "EventLog": self.events,
        }
        self.deployments.append(record)
        return record

    def get_deployment(self, **asked: Any) -> Json:
        record: Json = self.deployments[asked["DeploymentNumber"] - 1]
        if record["State"] != "COMPLETE" and self._left:
            record["State"] = self._left.pop(0)
        return record

    def _error(self, code: str, message: str, verb: str) -> ClientError:
        response: Any = {"Error": {"Code": code, "Message": message}, **self.details}
        return ClientError(response, verb)
