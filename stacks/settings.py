"""What an operator may set in cdk.json, under the context key "nodeheal", and the stage."""

from __future__ import annotations

import json
import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from constructs import Node

REPOSITORY = Path(__file__).resolve().parent.parent
CONTEXT_KEY = "nodeheal"
STAGE_KEY = "stage"
SANDBOX_POLICY = "sandbox/policy.json"

Email = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")]
ParameterArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:ssm:[a-z0-9-]+:\d{12}:parameter/.+$")]
RepositoryArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:ecr:[a-z0-9-]+:\d{12}:repository/.+$")]
# The file of a wheel of nodeheal; its group is the version.
AGENT_WHEEL = r"^nodeheal-([0-9][0-9A-Za-z.+]*)-py3-none-any\.whl$"
Pool = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
RoleArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$")]


def _is_agent_wheel(path: str) -> str:
    if not re.match(AGENT_WHEEL, Path(path).name) or not (REPOSITORY / path).is_file():
        raise ValueError("must be the file of a wheel of nodeheal")
    return path


def _is_agent_config(path: str) -> str:
    try:
        config = tomllib.loads((REPOSITORY / path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"must be a TOML file: {error}") from None
    if "node_id" in config:
        raise ValueError("must not hold node_id: each node adds its own")
    return path


def _are_of_their_pools(files: dict[str, str]) -> dict[str, str]:
    for pool, path in files.items():
        named = tomllib.loads((REPOSITORY / path).read_text(encoding="utf-8")).get("pool")
        if named != pool:
            raise ValueError(f"{path} names the pool {named!r}, and is given for {pool!r}")
    return files


class SettingsError(Exception):
    """A setting that cannot be used; the message names it."""


class Stage(StrEnum):
    """real: an AWS account. sandbox: the embedded cloud; tests/golden lists every difference."""

    real = "real"
    sandbox = "sandbox"


class Settings(BaseModel):
    """Every setting with its default. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Stage = Stage.real
    cluster: str = Field(default="training", pattern=r"^[A-Za-z0-9_-]{1,255}$", description="the ECS cluster to heal")
    alert_emails: tuple[Email, ...] = Field(default=(), description="who is told; each must confirm its subscription")
    log_retention_days: Literal[7, 30, 90, 180, 365] = Field(default=90, description="days that function logs are kept")
    evidence_retention_days: int = Field(
        default=90, ge=1, le=3650, description="days that evidence of incidents is kept in its bucket"
    )
    heartbeat_writes_a_second: int = Field(
        default=0,
        ge=0,
        le=20_000,
        description="capacity bought for signs of life: nodes over their interval, and a fifth; 0: paid for each",
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
    runbook_base_url: str = Field(
        default="docs/runbooks",
        pattern=r"^[!-~]{0,200}$",
        description="where emails say that the runbooks stand: your wiki's address, or a path; empty: the file's name",
    )
    account: str | None = Field(default=None, pattern=r"^\d{12}$", description="default: the deploying credentials'")
    region: str | None = Field(default=None, pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="default: the CLI's")

    @property
    def is_sandbox(self) -> bool:
        """Whether this goes into the embedded cloud."""
        return self.stage is Stage.sandbox


def load_settings(node: Node) -> Settings:
    """The settings of an app, checked. Raises SettingsError."""
    given = node.try_get_context(CONTEXT_KEY) or {}
    if isinstance(given, str):  # from the command line: -c nodeheal='{"cluster": "blue"}'
        given = _parse(given)
    stage = node.try_get_context(STAGE_KEY) or Stage.real.value
    if stage not in [known.value for known in Stage]:
        raise SettingsError(f"context key {STAGE_KEY}: {stage!r} is not one of real, sandbox")
    return validated({**given, "stage": stage})


def _parse(text: str) -> dict[str, object]:
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(f"context key {CONTEXT_KEY}: not JSON: {error}") from None
    if not isinstance(given, dict):
        raise SettingsError(f"context key {CONTEXT_KEY}: must be an object")
    return given


def validated(given: dict[str, object]) -> Settings:
    """These settings, checked. Raises SettingsError."""
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        raise SettingsError(f"cdk.json: {CONTEXT_KEY}.{_first(error)}") from None


def _first(error: ValidationError) -> str:
    """The first complaint in one line: which key, what is wrong with it."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "(document)"
    if key == "policy_file":
        return f"{key}: the policy is no setting any more; put it into force with `nodeheal policy apply FILE`"
    if first["type"] == "extra_forbidden":
        return f"{key}: unknown key"
    return f"{key}: {first['msg']} (got {first['input']!r})"
