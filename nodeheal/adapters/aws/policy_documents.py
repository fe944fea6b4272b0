"""Handles the policy documents in AppConfig for operators: show, apply, roll back."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nodeheal.contract import names
from nodeheal.contract.json_text import read_json
from nodeheal.domain.errors import Conflict, NodehealError, NotFound

DEPLOY_SECONDS = 120
_LOOK_EVERY_SECONDS = 1.0


class NotDeployed(NodehealError):
    """AppConfig has not deployed the document; the message says why."""


@dataclass(frozen=True)
class Deployed:
    """A document and the deployment that activated it."""

    text: str
    version: int  # AppConfig's version number of the document
    deployment: int
    at: str
    why: str

    def is_same(self, text: str) -> bool:
        """Return whether this text is the same document. No text is one that was never applied."""
        return self.version > 0 and document_of(self.text) == document_of(text)


@dataclass(frozen=True)
class PolicyPlace:
    """The ids in AppConfig of the stack's policy."""

    application: str
    environment: str
    profile: str
    strategy: str


def deployed_place(client: Any) -> PolicyPlace:
    """Return the ids of the deployed stack's policy. `client`: boto3's `cloudformation`. Raises NotFound.

    It reads the stack and not AppConfig: a removed stack leaves an application of the same name there.
    """
    ids = _outputs(client).get(names.POLICY_OUTPUT)
    if not ids:
        raise _not_deployed()
    return PolicyPlace(*ids.split("/"))


def deployed_channels(client: Any) -> str:
    """Return the channels of the deployed stack, as its functions see them. `client`: boto3's `cloudformation`. Raises
    NotFound.
    """
    return _outputs(client).get(names.CHANNELS_OUTPUT, "")


def deployed_acts_url(client: Any) -> str:
    """Return the address of the deployed API of acts. `client`: boto3's `cloudformation`. Raises NotFound."""
    url = _outputs(client).get(names.ACTS_OUTPUT)
    if not url:
        raise _not_deployed()
    return url


def deployed_node_roles(client: Any) -> list[str]:
    """Return the ids of the roles of the deployment's nodes; none where the caller cannot read the stack. `client`:
    boto3's `cloudformation`.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return [role for role in _outputs(client).get(names.NODE_ROLES_OUTPUT, "").split(",") if role]
    except (BotoCoreError, ClientError, NotFound):
        return []


def _outputs(client: Any) -> dict[str, str]:
    from botocore.exceptions import ClientError

    try:
        [stack] = client.describe_stacks(StackName=names.STACK)["Stacks"]
    except ClientError as error:
        # CloudFormation's error for a stack that does not exist.
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        raise _not_deployed() from error
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def _not_deployed() -> NotFound:
    return NotFound(
        f"there is no stack {names.STACK} of this version: has nodeheal been deployed in this account and Region?"
    )


class PolicyDocuments:
    """Reads and deploys AppConfig's hosted configuration."""

    def __init__(self, client: Any, place: PolicyPlace) -> None:
        """`client`: boto3's `appconfig`."""
        self._client = client
        self._place = place

    def history(self) -> list[dict[str, Any]]:
        """Return the completed deployments, newest first."""
        pages = self._client.get_paginator("list_deployments").paginate(
            ApplicationId=self._place.application, EnvironmentId=self._place.environment
        )
        deployments = [item for page in pages for item in page["Items"] if item["State"] == "COMPLETE"]
        return sorted(deployments, key=lambda item: -int(item["DeploymentNumber"]))

    def in_force(self) -> Deployed:
        """Return the document of the newest deployment. Raises NotFound where there is none."""
        history = self.history()
        if not history:
            raise NotFound("no policy document has been deployed yet")
        return self._deployed(int(history[0]["DeploymentNumber"]))

    def base(self) -> Deployed:
        """Return what a change is made from: the document in force, or an empty one of version 0 where none was ever
        applied, for functions take the default then.
        """
        try:
            return self.in_force()
        except NotFound:
            return Deployed("{}", version=0, deployment=0, at="", why="")

    def recent(self, most: int) -> list[Deployed]:
        """Return the newest completed deployments, the newest first."""
        return [self._deployed(int(item["DeploymentNumber"])) for item in self.history()[:most]]

    def applied(self, version: int) -> str:
        """Return the text of a version that was in force. Raises NotFound."""
        if version not in {int(item["ConfigurationVersion"]) for item in self.history()}:
            raise NotFound(f"version {version} of the policy document was never in force")
        return self._text(version)

    def apply(self, text: str, why: str, over: int | None = None) -> Deployed:
        """Store and deploy the document. Raises NotDeployed: the validator or AppConfig refused it.

        `over`: the version that it was made from. Raises Conflict where another one is in force by now.
        """
        self._refuse_unless_in_force(over)
        with _refusals_told("the document"):
            stored = self._client.create_hosted_configuration_version(
                ApplicationId=self._place.application,
                ConfigurationProfileId=self._place.profile,
                Content=text.encode(),
                ContentType="application/json",
                Description=why[:1024],
            )
        return self._deploy(int(stored["VersionNumber"]), why)

    def deploy(self, version: int, why: str, over: int | None = None) -> Deployed:
        """Deploy a stored document. Raises as `apply`."""
        self._refuse_unless_in_force(over)
        return self._deploy(version, why)

    def _refuse_unless_in_force(self, over: int | None) -> None:
        if over is None:
            return
        now = self.base()
        if now.version != over:
            raise Conflict(
                f"nothing was changed: AppConfig version {now.version} is in force since {now.at} ({now.why}), and this"
                f" change was made from version {over}; look at what is in force now, and make the change there"
            )

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

    def previous(self) -> tuple[int, str]:
        """Return version and text of the newest earlier document that differs from the one in force.

        Rolling back twice goes back two documents. Raises NotFound if there is no earlier one.
        """
        standing = _standing(self.history())
        if not standing:
            raise NotFound("no policy document has been deployed yet")
        present = document_of(self._text(standing[-1]))
        for version in reversed(standing[:-1]):
            text = self._text(version)
            if document_of(text) != present:
                return version, text
        raise NotFound(f"there is no policy document before version {standing[-1]} that differs from it")

    def _deployed(self, number: int) -> Deployed:
        deployment = self._client.get_deployment(
            ApplicationId=self._place.application, EnvironmentId=self._place.environment, DeploymentNumber=number
        )
        version = int(deployment["ConfigurationVersion"])
        ended = deployment.get("CompletedAt") or deployment["StartedAt"]
        at = ended if isinstance(ended, str) else ended.isoformat()
        return Deployed(self._text(version), version, number, at, deployment.get("Description", ""))

    def _text(self, version: int) -> str:
        answer = self._client.get_hosted_configuration_version(
            ApplicationId=self._place.application, ConfigurationProfileId=self._place.profile, VersionNumber=version
        )
        text: str = answer["Content"].read().decode("utf-8")
        return text

    def _await(self, number: int) -> None:
        """Wait until the deployment is complete: a validator that refuses the document rolls it back."""
        give_up_at = time.monotonic() + DEPLOY_SECONDS
        while time.monotonic() < give_up_at:
            deployment = self._client.get_deployment(
                ApplicationId=self._place.application, EnvironmentId=self._place.environment, DeploymentNumber=number
            )
            if deployment["State"] == "COMPLETE":
                return
            if deployment["State"] in ("ROLLING_BACK", "ROLLED_BACK", "REVERTED"):
                descriptions = "; ".join(event.get("Description", "") for event in deployment.get("EventLog", []))
                raise NotDeployed(f"AppConfig rolled deployment {number} back: {descriptions}")
            time.sleep(_LOOK_EVERY_SECONDS)
        raise NotDeployed(f"deployment {number} is not complete after {DEPLOY_SECONDS} s; look at it in AppConfig")


def document_of(text: str) -> object:
    """Return the document parsed as JSON, or its text where that is no JSON: `policy show` must show any document."""
    try:
        return read_json(text)
    except ValueError:
        return text


def _standing(history: list[dict[str, Any]]) -> list[int]:
    """Return the documents in their order, oldest first. A repeated document removes those after its first
    occurrence.
    """
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
    """Convert a refusal into NotDeployed. A validator's text may be in the message or in the details."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        response: dict[str, Any] = {**error.response}
        details = (response.get("Details") or {}).get("InvalidConfiguration") or []
        beside = [detail[key] for detail in details for key in ("Location", "Reason", "Value") if detail.get(key)]
        message = "; ".join(dict.fromkeys([response["Error"]["Message"], *beside]))
        raise NotDeployed(f"AppConfig refused {what}: {message}") from error
