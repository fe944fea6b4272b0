"""A cloud that enforces IAM, and the roles that tests give to a caller."""

import json
from dataclasses import dataclass
from typing import Any

import boto3

from nodeheal.contract import names
from sandbox.client import NodeHandle, Sandbox

Json = dict[str, Any]


CLUSTER = "lab"


IDLE = ["sleep", "600"]


MANAGED = {names.MANAGED_TAG: names.MANAGED_TAG_VALUE}


TAGGED_RESOURCE = {"StringEquals": {f"aws:ResourceTag/{names.MANAGED_TAG}": names.MANAGED_TAG_VALUE}}


TAGGED_REQUEST = {"StringEquals": {f"aws:RequestTag/{names.MANAGED_TAG}": names.MANAGED_TAG_VALUE}}


@dataclass(frozen=True)
class Lab:
    """A cloud with an enrolled node and a stranger."""

    sandbox: Sandbox
    enrolled: NodeHandle
    stranger: NodeHandle

    def as_role(self, name: str, statements: list[Json], service: str) -> Any:
        """A client with the permissions of a new role that has these statements."""
        iam, sts = self.sandbox.client("iam"), self.sandbox.client("sts")
        anybody = {"Effect": "Allow", "Principal": {"AWS": "000000000000"}, "Action": "sts:AssumeRole"}
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy([anybody]))["Role"]["Arn"]
        if statements:
            iam.put_role_policy(RoleName=name, PolicyName="it", PolicyDocument=policy(statements))
        keys = sts.assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.sandbox.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id=keys["AccessKeyId"],
            aws_secret_access_key=keys["SecretAccessKey"],
            aws_session_token=keys["SessionToken"],
        )

    def running_task(self, tags: dict[str, str]) -> str:
        """A task on the enrolled node, started by an administrator."""
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        started = self.sandbox.client("ecs").start_task(
            cluster=CLUSTER,
            taskDefinition="idle",
            containerInstances=[self.enrolled.container_instance_arn],
            **({"tags": listed} if listed else {}),
        )
        assert started["failures"] == []
        found: str = started["tasks"][0]["taskArn"]
        return found


def allow(action: str, resource: str, condition: Json | None = None) -> Json:
    return {"Effect": "Allow", "Action": action, "Resource": resource, "Condition": condition or {}}


def policy(statements: list[Json]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def hello() -> str:
    step = {"action": "aws:runShellScript", "name": "hello", "inputs": {"runCommand": ["echo hello"]}}
    return json.dumps({"schemaVersion": "2.2", "mainSteps": [step]})
