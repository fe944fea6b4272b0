"""Defines the settings in cdk.json, under the context key "nodeheal", and the stage.

`cdk deploy -c nodeheal='{"cluster": "blue"}'` changes single settings: those that it does not name stay as in cdk.json.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from nodeheal.agent.runtime.config import ConfigError, parse
from nodeheal.contract.names import CHANNEL_NAME, EMAIL_CHANNEL
from nodeheal.domain.complaints import Complaint, complaints_of
from nodeheal.domain.review.console_links import RUNBOOKS

REPOSITORY = Path(__file__).resolve().parent.parent
CONTEXT_KEY = "nodeheal"
STAGE_KEY = "stage"
SANDBOX_POLICY = "sandbox/policy.json"
FILE = "cdk.json"
FLAG = f"the context flag -c {CONTEXT_KEY}"
# What each node of a pool adds by itself where the file leaves it out, with any values that the agent accepts.
ADDED_BY_NODE = {"node_id": "mi-0123456789abcdef0", "region": "eu-central-1", "provider": "hybrid"}

# No API destinations, by which EventBridge posts to a webhook or to PagerDuty: EventBridge User Guide, feature
# availability by Region; AWS GovCloud (US) User Guide, EventBridge.
WITHOUT_API_DESTINATIONS = ("ap-east-2", "us-gov-east-1", "us-gov-west-1")

Email = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")]
ParameterArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:ssm:[a-z0-9-]+:\d{12}:parameter/.+$")]
RepositoryArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:ecr:[a-z0-9-]+:\d{12}:repository/.+$")]
# The file of a wheel of nodeheal; its group is the version.
AGENT_WHEEL = r"^nodeheal-([0-9][0-9A-Za-z.+]*)-py3-none-any\.whl$"
Pool = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
RoleId = Annotated[str, Field(pattern=r"^AROA[A-Z0-9]{12,124}$")]
SecretArn = Annotated[
    str, Field(pattern=r"^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[A-Za-z0-9/_+=.@!-]+$")
]
ClusterName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,59}$")]
HyperPodArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:cluster/[a-z0-9]{12}$")]
EksClusterName = Annotated[str, Field(pattern=r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$")]
SubnetId = Annotated[str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")]
SecurityGroupId = Annotated[str, Field(pattern=r"^sg-[0-9a-f]{8,17}$")]
RoleArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$")]


def _is_not_email(name: str) -> str:
    if name == EMAIL_CHANNEL:
        raise ValueError(f"the channel {name} always exists: set its addresses under alert_emails")
    return name


ChannelName = Annotated[str, Field(pattern=CHANNEL_NAME), AfterValidator(_is_not_email)]


def _is_free_of_reserved_words(prefix: str) -> str:
    for word in ("aws", "amazon", "cognito"):
        if word in prefix:
            raise ValueError(f"Cognito takes no prefix with {word} in it")
    return prefix


DomainPrefix = Annotated[
    str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"), AfterValidator(_is_free_of_reserved_words)
]


def _is_agent_wheel(path: str) -> str:
    if not re.match(AGENT_WHEEL, Path(path).name) or not (REPOSITORY / path).is_file():
        raise ValueError(f"{path} must be the file of a wheel of nodeheal")
    return path


def _is_agent_config(path: str) -> str:
    try:
        config = tomllib.loads((REPOSITORY / path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} must be a TOML file: {error}") from None
    if "node_id" in config:
        raise ValueError(f"{path} must not contain node_id: each node adds its own")
    try:
        parse({**ADDED_BY_NODE, **config})
    except ConfigError as error:
        raise ValueError(f"{path}: {error}") from None
    return path


def _are_of_their_pools(files: dict[str, str]) -> dict[str, str]:
    for pool, path in files.items():
        named = tomllib.loads((REPOSITORY / path).read_text(encoding="utf-8")).get("pool")
        if named != pool:
            raise ValueError(f"{path} has the pool {named!r}, but is given for {pool!r}")
    return files


class SettingsError(Exception):
    """A setting is not valid; the message names it."""


class Stage(StrEnum):
    """real: an AWS account. sandbox: the embedded cloud; tests/golden lists every difference."""

    real = "real"
    sandbox = "sandbox"


class ChannelSetting(BaseModel):
    """One channel. `secret_arn`: in Secrets Manager, plain text, read by CloudFormation at the deployment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["chat", "pagerduty", "webhook"]
    url: str | None = Field(default=None, pattern=r"^https?://[!-~]{1,2000}$", description="of a webhook; https")
    secret_arn: SecretArn | None = Field(default=None, description="PagerDuty's routing key, or the header's value")
    header: str = Field(
        default="Authorization", pattern=r"^[A-Za-z0-9-]{1,64}$", description="the webhook's header for the secret"
    )


class VpcSetting(BaseModel):
    """Where in a VPC functions run, with a way to the APIs of AWS: a NAT gateway, or an endpoint of each service."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    subnets: tuple[SubnetId, ...] = Field(min_length=1, max_length=16)
    security_groups: tuple[SecurityGroupId, ...] = Field(min_length=1, max_length=5)


class ConsoleSetting(BaseModel):
    """The console that people sign in to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    domain_prefix: DomainPrefix = Field(description="of the address of the sign-in; nobody else in the Region has it")
    mfa: Literal["required", "optional"] = Field(default="required", description="a second factor, by an app")


def _is_whole(channel: ChannelSetting) -> ChannelSetting:
    if channel.kind == "chat" and (channel.url or channel.secret_arn):
        raise ValueError("a chat channel has no url and no secret_arn: Amazon Q Developer reads its topic")
    if channel.kind != "chat" and not channel.secret_arn:
        raise ValueError(f"a channel of kind {channel.kind} needs secret_arn")
    if channel.kind not in ("chat", "pagerduty") and not channel.url:
        raise ValueError(f"a channel of kind {channel.kind} needs url")
    return channel


class Settings(BaseModel):
    """Every setting with its default. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Stage = Stage.real
    cluster: str = Field(default="training", pattern=r"^[A-Za-z0-9_-]{1,255}$", description="the ECS cluster to heal")
    alert_emails: tuple[Email, ...] = Field(
        default=(), description="who is notified; each must confirm its subscription"
    )
    log_retention_days: Literal[7, 30, 90, 180, 365] = Field(default=90, description="days that function logs are kept")
    evidence_retention_days: int = Field(
        default=90, ge=1, le=3650, description="days that evidence of incidents is kept in its bucket"
    )
    node_role_ids: tuple[RoleId, ...] = Field(
        default=(),
        max_length=20,
        description="ids of your own node roles, beside nodeheal's: `aws iam get-role --role-name NAME --query "
        "Role.RoleId`; only roles that people and programs cannot assume",
    )
    parallelclusters: tuple[ClusterName, ...] = Field(
        default=(),
        max_length=10,
        description="names of clusters of AWS ParallelCluster, for whose queues the stack makes a role",
    )
    hyperpod_clusters: tuple[HyperPodArn, ...] = Field(
        default=(),
        max_length=10,
        description="ARNs of SageMaker HyperPod clusters whose nodes nodeheal may reboot, and replace, which destroys "
        "all their volumes",
    )
    eks_clusters: tuple[EksClusterName, ...] = Field(
        default=(),
        max_length=10,
        description="names of EKS clusters of this account and Region whose nodes nodeheal heals: each gets an "
        "access entry for the role that asks clusters, and needs the manifests of charts/nodeheal",
    )
    pod_identity_clusters: tuple[EksClusterName, ...] = Field(
        default=(),
        max_length=10,
        description="which of eks_clusters have the add-on eks-pod-identity-agent and are to give the agent's pods a "
        "role of their own: HyperPod's nodes need it, since none of them has an identity of its own at AWS",
    )
    vpc: VpcSetting | None = Field(
        default=None,
        description="subnets and security groups for the functions that ask clusters, where an API server of EKS does "
        "not admit those outside",
    )
    heartbeat_writes_a_second: int = Field(
        default=0,
        ge=0,
        le=20_000,
        description="write capacity for heartbeats a second: nodes over their interval, and a fifth more; 0: on demand",
    )
    console: ConsoleSetting | None = Field(
        default=None,
        description="a console that people sign in to at Cognito, beside the one on each person's machine; null: none",
    )
    node_dashboard: bool = Field(
        default=False,
        description="a CloudWatch dashboard of the nodes, 3 USD a month beyond an account's first three",
    )
    task_role_arns: tuple[RoleArn, ...] = Field(default=(), description="task roles that a restarted job may be given")
    instance_role_arns: tuple[RoleArn, ...] = Field(
        default=(), description="roles of the instance profiles in launch templates that EC2 nodes are replaced from"
    )
    image_parameter_arns: tuple[ParameterArn, ...] = Field(
        default=(), description="SSM parameters of yours by which launch templates name images (resolve:ssm:...)"
    )
    image_repository_arns: tuple[RepositoryArn, ...] = Field(
        default=(), description="ECR repositories of other accounts that jobs' images are pulled from"
    )
    architecture: Literal["arm64", "x86_64"] = Field(
        default="arm64", description="of the functions; x86_64 where Lambda has no arm64 in the Region"
    )
    agent_pools: Annotated[
        dict[Pool, Annotated[str, AfterValidator(_is_agent_config)]], AfterValidator(_are_of_their_pools)
    ] = Field(
        default_factory=dict,
        description="pools whose nodes State Manager installs the agent on, each with its agent.toml without node_id",
    )
    agent_wheels: tuple[Annotated[str, AfterValidator(_is_agent_wheel)], ...] = Field(
        default=(), description="wheels of other versions of nodeheal that nodes may install beside this one"
    )
    agent_canaries: tuple[Pool, ...] = Field(
        default=(),
        description="pools of agent_pools with canaries: nodes with the tag nodeheal:agent-canary and the pool's name "
        "get a new version first, and the pool only where it has succeeded there",
    )
    staging_key: str | None = Field(
        default=None,
        pattern=r"^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]{1,64}$",
        description="the KMS key of your own with which the CDK's staging bucket is encrypted: nodes may decrypt by it",
    )
    channels: dict[ChannelName, Annotated[ChannelSetting, AfterValidator(_is_whole)]] = Field(
        default_factory=dict,
        max_length=10,
        description="where people are notified beside email: each name is one for the policy's `channels`",
    )
    runbook_base_url: str = Field(
        default=RUNBOOKS,
        pattern=r"^[!-~]{0,200}$",
        description="where emails link to runbooks: your wiki's address, or a path; empty: the file's name",
    )
    account: str | None = Field(default=None, pattern=r"^\d{12}$", description="default: the deploying credentials'")
    region: str | None = Field(default=None, pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="default: the CLI's")

    @model_validator(mode="after")
    def _canaries_have_a_pool(self) -> Self:
        for pool in self.agent_canaries:
            if pool not in self.agent_pools:
                raise ValueError(f"agent_canaries names {pool!r}, which is not in agent_pools")
        return self

    @model_validator(mode="after")
    def _asks_the_clusters_of_pods(self) -> Self:
        for cluster in self.pod_identity_clusters:
            if cluster not in self.eks_clusters:
                raise ValueError(f"pod_identity_clusters names {cluster!r}, which is not in eks_clusters")
        return self

    @model_validator(mode="after")
    def _posts_over_tls(self) -> Self:
        for name, channel in self.channels.items():
            if channel.url and not channel.url.startswith("https://") and not self.is_sandbox:
                raise ValueError(f"channels.{name}.url: {channel.url} must begin with https://")
        return self

    @property
    def is_sandbox(self) -> bool:
        """Whether this is deployed into the embedded cloud."""
        return self.stage is Stage.sandbox


class Context(Protocol):
    """A source of settings: the node of a construct, or the command line of `make e2e`."""

    def try_get_context(self, key: str, /) -> Any:
        """Return the value of this key; None: nothing."""


def load_settings(node: Context) -> Settings:
    """Load and check the settings of an app. Raises SettingsError, which names the setting and its source."""
    context = node.try_get_context(CONTEXT_KEY)
    # The CDK passes a flag as text, and no longer the value that it replaces.
    flag = _object(context, FLAG) if isinstance(context, str) else {}
    in_file = _in_file() if isinstance(context, str) else context
    given = {**_object(in_file, FILE), **flag}
    stage = node.try_get_context(STAGE_KEY) or Stage.real.value
    if stage not in [known.value for known in Stage]:
        raise SettingsError(f"context key {STAGE_KEY}: {stage!r} is not one of real, sandbox")
    try:
        settings = Settings.model_validate({**given, "stage": stage})
    except ValidationError as error:
        first = complaints_of(error, Settings, shows_values=True)[0]
        where = FLAG if first.place and first.place[0] in flag else FILE
        if first.field == "policy_file":
            first = Complaint(first.place, "it is not a setting; activate a policy with `nodeheal policy apply FILE`")
        raise SettingsError(f"{where}: {CONTEXT_KEY}.{first}") from None
    _refuse_channels_of_region(settings, settings.region or os.environ.get("CDK_DEFAULT_REGION", ""))
    return settings


def _refuse_channels_of_region(settings: Settings, region: str) -> None:
    """Raises SettingsError for the first channel that the Region cannot have."""
    for name, channel in settings.channels.items():
        if channel.kind != "chat" and region in WITHOUT_API_DESTINATIONS:
            raise SettingsError(
                f"{CONTEXT_KEY}.channels.{name}: {region} has no API destinations of EventBridge, so no channel of kind"
                f" {channel.kind}; use email or a channel of kind chat there"
            )


def _in_file() -> object:
    return json.loads((REPOSITORY / FILE).read_text(encoding="utf-8")).get("context", {}).get(CONTEXT_KEY)


def _object(given: object, where: str) -> dict[str, object]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except json.JSONDecodeError as error:
            raise SettingsError(f"{where}: not JSON: {error}") from None
    if given is not None and not isinstance(given, dict):
        raise SettingsError(f"{where}: {CONTEXT_KEY} must be an object, not {given!r}")
    return given or {}
