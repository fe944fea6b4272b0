"""Creates the log group of jobs, and the role by which the ECS agent of a node writes it."""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from nodeheal.contract import names
from stacks.nag import accept_wildcards
from stacks.permission import Permission, for_this_account
from stacks.settings import Settings

RETENTION = {
    7: logs.RetentionDays.ONE_WEEK,
    30: logs.RetentionDays.ONE_MONTH,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
}
WRITE_LOG = Permission(
    "write what the containers of jobs write, into this group and no other",
    ("logs:CreateLogStream", "logs:PutLogEvents"),
    ("arn:{partition}:logs:{region}:{account}:log-group:" + names.JOB_LOG_GROUP + ":*",),
)
SIGN_IN_TO_ECR = Permission(
    "sign in to ECR before an image is pulled; the call takes no resource", ("ecr:GetAuthorizationToken",), ("*",)
)
PULL_IMAGE = Permission(
    "pull the images of jobs from the account's own repositories",
    ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"),
    ("arn:{partition}:ecr:{region}:{account}:repository/*",),
)
EXECUTION_PERMISSIONS = (WRITE_LOG, SIGN_IN_TO_ECR, PULL_IMAGE)


def pull_from_others(image_repository_arns: tuple[str, ...]) -> Permission:
    """Return what the role needs in addition where images come from repositories of other accounts. The settings name
    them.
    """
    return Permission(
        "pull the images of jobs from repositories of other accounts that the operator names",
        PULL_IMAGE.actions,
        image_repository_arns,
    )


def job_output(scope: Construct, settings: Settings) -> None:
    """Create the log group of every job that nodeheal has made a task definition for, and the role that writes it."""
    logs.LogGroup(
        scope,
        "JobLog",
        log_group_name=names.JOB_LOG_GROUP,
        retention=RETENTION[settings.log_retention_days],
        # Logs are kept for a limited time anyway, as the functions' are; checkpoints and incidents outlive the stacks.
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    others = settings.image_repository_arns
    _execution_role(scope, (*EXECUTION_PERMISSIONS, pull_from_others(others)) if others else EXECUTION_PERMISSIONS)


def _execution_role(scope: Construct, permissions: tuple[Permission, ...]) -> None:
    """Create the task execution role. The program in the container never has it: its own is the task role, if there is
    one.
    """
    places = {"partition": cdk.Aws.PARTITION, "region": cdk.Aws.REGION, "account": cdk.Aws.ACCOUNT_ID}
    statements = [permission.statement(places) for permission in permissions]
    role = iam.Role(
        scope,
        "JobExecutionRole",
        role_name=names.JOB_EXECUTION_ROLE.format(region=cdk.Aws.REGION),
        assumed_by=for_this_account("ecs-tasks.amazonaws.com"),
        inline_policies={"start": iam.PolicyDocument(statements=statements)},
    )
    accept_wildcards(role, permissions, places)
