"""Authorizes ECS calls with IAM: the condition keys of resources, and the roles of tasks."""

from collections.abc import Mapping

from sandbox.aws_json import Caller, Json
from sandbox.ecs_state import arn
from sandbox.iam import resource_tags

MISSING = "MISSING"  # the failure reason for a resource that does not exist


def in_cluster(cluster: str, tags: Mapping[str, str]) -> dict[str, str | list[str]]:
    """Return the condition keys of a resource in a cluster."""
    return {"ecs:cluster": arn("cluster", cluster), **resource_tags(tags)}


def must_pass_roles(caller: Caller, body: Json) -> None:
    """Raises AwsError unless the caller may pass the roles of a task definition to tasks."""
    for key in ("taskRoleArn", "executionRoleArn"):
        if body.get(key):
            caller.must_be_allowed("iam:PassRole", body[key], {"iam:PassedToService": "ecs-tasks.amazonaws.com"})
