"""Creates the state machines: each is one file of state_machines/, with names filled in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from nodeheal.contract import names
from stacks.nag import accept
from stacks.permission import Permission, only_keys
from stacks.settings import REPOSITORY

DEFINITIONS = REPOSITORY / "state_machines"
PARENT = "recover_node"
JOB = "run_job"
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
# Step Functions keeps its permission to write logs in one resource policy a Region; one entry for this prefix never
# fills it.
_LOG_PREFIX = "/aws/vendedlogs/states"


@dataclass(frozen=True)
class Workflow:
    """A state machine to create: its file, and its name in the account."""

    stem: str

    @property
    def path(self) -> Path:
        """Return the path of the definition."""
        return DEFINITIONS / f"{self.stem}.asl.json"

    @property
    def class_name(self) -> str:
        """Return the stem as in construct ids and placeholders."""
        return "".join(word.title() for word in self.stem.split("_"))

    @property
    def deployed_name(self) -> str:
        """Return the name in the account, which is the last part of its ARN."""
        return f"nodeheal-{self.stem.replace('_', '-')}"

    def placeholders(self) -> set[str]:
        """Return every placeholder in the definition."""
        return set(_PLACEHOLDER.findall(self.path.read_text(encoding="utf-8")))


PARENT_PERMISSIONS = (
    Permission(
        "record the incident as begun, without a function",
        ("dynamodb:UpdateItem",),
        ("{table}",),
        only_keys(names.incident_pk("*")),
    ),
    Permission("page even where no function works", ("sns:Publish",), ("{topic}",)),
)

JOB_PERMISSIONS = (
    Permission(
        "hand a job whose workflow failed to a human, without a function",
        ("dynamodb:UpdateItem",),
        ("{table}",),
        only_keys(names.job_pk("*")),
    ),
    Permission("page even where no function works", ("sns:Publish",), ("{topic}",)),
)


def build_workflow(
    scope: Construct,
    workflow: Workflow,
    places: Mapping[str, str],
    statements: list[iam.PolicyStatement],
    keep_logs: logs.RetentionDays,
) -> sfn.StateMachine:
    """Create the state machine with its own role and log. `places` has the value of each placeholder."""
    role = iam.Role(
        scope,
        f"{workflow.class_name}WorkflowRole",
        assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
        inline_policies={"steps": iam.PolicyDocument(statements=statements)},
    )
    log_group = logs.LogGroup(
        scope,
        f"{workflow.class_name}WorkflowLog",
        log_group_name=f"{_LOG_PREFIX}/{workflow.deployed_name}",
        retention=keep_logs,
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    machine = sfn.StateMachine(
        scope,
        f"{workflow.class_name}Workflow",
        state_machine_name=workflow.deployed_name,
        state_machine_type=sfn.StateMachineType.STANDARD,
        definition_body=sfn.DefinitionBody.from_string(workflow.path.read_text(encoding="utf-8")),
        definition_substitutions={name: places[name] for name in sorted(workflow.placeholders())},
        role=role,
        logs=sfn.LogOptions(destination=log_group, level=sfn.LogLevel.ERROR, include_execution_data=True),
    )
    _accept_findings(machine, role)
    return machine


def _accept_findings(machine: sfn.StateMachine, role: iam.Role) -> None:
    accept(machine, "AwsSolutions-SF1", "every state is in the execution history for 90 days; the log is for errors")
    accept(machine, "AwsSolutions-SF2", "the execution history has the times of every state; tracing would repeat it")
    policy = role.node.try_find_child("DefaultPolicy")
    if policy is not None:
        accept(policy, "AwsSolutions-IAM5[Resource::*]", "the log delivery actions of CloudWatch Logs take no resource")
