"""The policy documents in AppConfig, as an operator handles them: show, apply, roll back."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nodeheal.contract import names
from nodeheal.domain.errors import NodehealError, NotFound

DEPLOY_SECONDS = 120
_LOOK_EVERY_SECONDS = 1.0


class NotDeployed(NodehealError):
    """AppConfig has not taken the document into force; the message says why."""


@dataclass(frozen=True)
class Deployed:
    """One document and the deployment that put it into force."""

    text: str
    version: int  # AppConfig's own number of the document
    deployment: int
    at: str
    why: str


@dataclass(frozen=True)
class PolicyPlace:
    """The ids in AppConfig under which the stack keeps the policy."""

    application: str
    environment: str
    profile: str
    strategy: str


def deployed_place(client: Any) -> PolicyPlace:
    """Where the deployed stack keeps the policy. `client`: boto3's `cloudformation`. Raises NotFound.

    The stack is asked, and not AppConfig: a stack that was removed leaves its application there, of the same name.
    """
    ids = _outputs(client).get(names.POLICY_OUTPUT)
    if not ids:
        raise _not_deployed()
    return PolicyPlace(*ids.split("/"))


def deployed_channels(client: Any) -> str:
    """The channels of the deployed stack, as its functions find them. `client`: as above. Raises NotFound."""
    return _outputs(client).get(names.CHANNELS_OUTPUT, "")


def _outputs(client: Any) -> dict[str, str]:
    from botocore.exceptions import ClientError

    try:
        [stack] = client.describe_stacks(StackName=names.STACK)["Stacks"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":  # CloudFormation's word for a stack that is not there
            raise
        raise _not_deployed() from error
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def _not_deployed() -> NotFound:
    return NotFound(f"no stack {names.STACK} with a policy: has nodeheal been deployed in this account and Region?")


class PolicyDocuments:
    """AppConfig's hosted configuration."""

    def __init__(self, client: Any, place: PolicyPlace) -> None:
        """`client`: boto3's `appconfig`."""
        self._client = client
        self._place = place

    def history(self) -> list[dict[str, Any]]:
        """The deployments that went through, newest first."""
        pages = self._client.get_paginator("list_deployments").paginate(
            ApplicationId=self._place.application, EnvironmentId=self._place.environment
        )
        found = [item for page in pages for item in page["Items"] if item["State"] == "COMPLETE"]
        return sorted(found, key=lambda item: -int(item["DeploymentNumber"]))

    def in_force(self) -> Deployed:
        """The document of the newest deployment. Raises NotFound where there is none."""
        history = self.history()
        if not history:
            raise NotFound("no policy document has been deployed yet")
        return self._deployed(int(history[0]["DeploymentNumber"]))

    def apply(self, text: str, why: str) -> Deployed:
        """Store the document and put it into force. Raises NotDeployed: the validator or AppConfig refused it."""
        with _refusals_told("the document"):
            stored = self._client.create_hosted_configuration_version(
                ApplicationId=self._place.application,
                ConfigurationProfileId=self._place.profile,
                Content=text.encode(),
                ContentType="application/json",
                Description=why[:1024],
            )
        return self._deploy(int(stored["VersionNumber"]), why)

    def roll_back(self, why: str) -> Deployed:
        """Put the document before the present one into force again; once more goes back further, never forward.

        Raises NotFound where there is none.
        """
        standing = _standing(self.history())
        if not standing:
            raise NotFound("no policy document has been deployed yet")
        if len(standing) == 1:
            raise NotFound(f"there is no policy document before version {standing[0]} to go back to")
        return self._deploy(standing[-2], why)

    def _deployed(self, number: int) -> Deployed:
        found = self._client.get_deployment(
            ApplicationId=self._place.application, EnvironmentId=self._place.environment, DeploymentNumber=number
        )
        version = int(found["ConfigurationVersion"])
        content = self._client.get_hosted_configuration_version(
            ApplicationId=self._place.application, ConfigurationProfileId=self._place.profile, VersionNumber=version
        )["Content"].read()
        ended = found.get("CompletedAt") or found["StartedAt"]
        at = ended if isinstance(ended, str) else ended.isoformat()
        return Deployed(content.decode("utf-8"), version, number, at, found.get("Description", ""))

    def _deploy(self, version: int, why: str) -> Deployed:
        with _refusals_told(f"version {version}"):
            started = self._client.start_deployment(
                ApplicationId=self._place.application,
                EnvironmentId=self._place.environment,
                ConfigurationProfileId=self._place.profile,
                ConfigurationVersion=str(version),
                DeploymentStrategyId=self._place.strategy,
                Description=why[:1024],
            )
        number = int(started["DeploymentNumber"])
        self._await(number)
        return self._deployed(number)

    def _await(self, number: int) -> None:
        """Until it is in force: a validator that refuses rolls it back."""
        give_up_at = time.monotonic() + DEPLOY_SECONDS
        while time.monotonic() < give_up_at:
            found = self._client.get_deployment(
                ApplicationId=self._place.application, EnvironmentId=self._place.environment, DeploymentNumber=number
            )
            if found["State"] == "COMPLETE":
                return
            if found["State"] in ("ROLLING_BACK", "ROLLED_BACK", "REVERTED"):
                told = "; ".join(event.get("Description", "") for event in found.get("EventLog", []))
                raise NotDeployed(f"AppConfig rolled deployment {number} back: {told}")
            time.sleep(_LOOK_EVERY_SECONDS)
        raise NotDeployed(f"deployment {number} is not complete after {DEPLOY_SECONDS} s; look at it in AppConfig")


def _standing(history: list[dict[str, Any]]) -> list[int]:
    """The documents that follow one another, oldest first. One that comes again takes back what came after it."""
    standing: list[int] = []
    for item in reversed(history):
        version = int(item["ConfigurationVersion"])
        if version in standing:
            del standing[standing.index(version) + 1 :]
        else:
            standing.append(version)
    return standing


@contextmanager
def _refusals_told(what: str) -> Iterator[None]:
    """A refusal as NotDeployed. What a validator said may stand in the message or in the details beside it."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        response: dict[str, Any] = {**error.response}
        found = (response.get("Details") or {}).get("InvalidConfiguration") or []
        beside = [detail[key] for detail in found for key in ("Location", "Reason", "Value") if detail.get(key)]
        told = "; ".join(dict.fromkeys([response["Error"]["Message"], *beside]))
        raise NotDeployed(f"AppConfig refused {what}: {told}") from error
