"""People at terminals, each with a role that has one of the deployed policies, and what they are held against."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError

from nodeheal.adapters.aws.notifier import Destinations
from nodeheal.adapters.aws.ports import aws_ports
from nodeheal.ports import Ports
from sandbox.client import Sandbox

REPOSITORY = Path(__file__).parents[2]
# As the services spell it: JSON, S3 and queries, EC2, SNS.
DENIALS = ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation", "AuthorizationError")


@dataclass(frozen=True)
class Operator:
    """A person at a terminal, with credentials of a role that has the managed policy."""

    sandbox: Sandbox
    keys: dict[str, str]

    def types(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run `nodeheal`."""
        command = [sys.executable, "-c", "from nodeheal.cli.entry import main; main()", *words]
        environment = {**self.sandbox.environment(), **self.keys, "PYTHONPATH": str(REPOSITORY), "USER": "ada"}
        return subprocess.run(
            command, env=environment, cwd=os.sep, capture_output=True, text=True, timeout=90, check=False
        )

    def does(self, *words: str) -> str:
        """Run `nodeheal`, which must work; what it says."""
        done = self.types(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def client(self, service: str) -> Any:
        """The same credentials, without `nodeheal` in between."""
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.sandbox.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id=self.keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.keys["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=self.keys["AWS_SESSION_TOKEN"],
        )


def operator(cloud: Sandbox, name: str, policy: str) -> Operator:
    """A person of this name. `policy`: the output of the stack that names the only policy of the role."""
    anybody = {"Effect": "Allow", "Principal": {"AWS": "000000000000"}, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [anybody]})
    role = cloud.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    cloud.client("iam").attach_role_policy(RoleName=name, PolicyArn=cloud.outputs[policy])
    found = cloud.client("sts").assume_role(RoleArn=role, RoleSessionName=name)["Credentials"]
    keys = {
        "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
        "AWS_SESSION_TOKEN": found["SessionToken"],
    }
    return Operator(cloud, keys)


def deployed(cloud: Sandbox) -> Ports:
    """The deployed state, for what a test puts there and looks up."""
    to = Destinations(cloud.outputs["BusName"], cloud.outputs["TopicArn"], cloud.outputs["QuarantineUrl"])
    table, arn = cloud.outputs["TableName"], cloud.outputs["RecoverNodeArn"]
    return aws_ports(table, arn, to, cloud.client, cloud.client)


def is_denied(call: Callable[[], Any]) -> bool:
    """Whether it fails for want of a permission."""
    try:
        call()
    except ClientError as error:
        assert error.response["Error"]["Code"] in DENIALS, error
        return True
    return False
