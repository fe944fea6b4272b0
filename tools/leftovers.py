"""Lists and deletes what a deployment leaves in its account after `cdk destroy`.

    python -m tools.leftovers list [--into FILE]      # history, and what else is left
    python -m tools.leftovers release                 # detach from the nodes' role what was attached by hand
    python -m tools.leftovers delete --but FILE       # delete the history, except what FILE lists

`make e2e` runs all three. IAM deletes no role that an instance profile holds or that a policy was attached to, so
`release` comes before `cdk destroy`. `delete` refuses while the stack exists.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nodeheal.contract import names

# The docs tell a person to attach it to the role of the nodes, for the ECS agent.
ECS_AGENT_POLICY = "AmazonEC2ContainerServiceforEC2Role"
TABLE, BUCKET, APPLICATION = "table", "bucket", "AppConfig application"
LOG_GROUPS = ("/nodeheal/", "/aws/vendedlogs/nodeheal/", "/aws/vendedlogs/states/nodeheal-")
MANAGED = [{"Name": f"tag:{names.MANAGED_TAG}", "Values": [names.MANAGED_TAG_VALUE]}]
GONE = ("terminated", "shutting-down")
Client = Callable[[str], Any]


class StackIsThere(Exception):
    """The stack exists, so the resources that it uses are not deleted."""


class Leftovers:
    """What is left in one account and Region. Each thing is a text: its kind and its name."""

    def __init__(self, client: Client, account: str, region: str) -> None:
        self._client, self._account, self._region = client, account, region

    def history(self) -> list[str]:
        """Return what outlives the stack, because it holds history."""
        tables = _pages(self._client("dynamodb"), "list_tables", "TableNames")
        buckets = self._client("s3").list_buckets()["Buckets"]
        applications = _pages(self._client("appconfig"), "list_applications", "Items")
        evidence = names.EVIDENCE_BUCKET.format(account=self._account, region=self._region)
        return [
            *(f"{TABLE} {name}" for name in tables if name == names.TABLE),
            *(f"{BUCKET} {one['Name']}" for one in buckets if one["Name"] == evidence),
            *(f"{APPLICATION} {one['Id']}" for one in applications if one["Name"] == names.POLICY_APPLICATION),
        ]

    def others(self) -> list[str]:
        """Return what else is left: the stack itself, its log groups, and the machines that nodeheal may act on."""
        reservations = _pages(self._client("ec2"), "describe_instances", "Reservations", Filters=MANAGED)
        machines = (machine for one in reservations for machine in one["Instances"])
        nodes = _pages(self._client("ssm"), "describe_instance_information", "InstanceInformationList")
        return [
            *(f"stack {names.STACK}: {status}" for status in self._stack_status()),
            *(
                f"log group {group['logGroupName']}"
                for prefix in LOG_GROUPS
                for group in _pages(self._client("logs"), "describe_log_groups", "logGroups", logGroupNamePrefix=prefix)
            ),
            *(f"EC2 instance {one['InstanceId']}" for one in machines if one["State"]["Name"] not in GONE),
            *(
                f"registration with SSM {node['InstanceId']}"
                for node in nodes
                if node.get("IamRole", "").rpartition("/")[2] == self._role
            ),
        ]

    def release(self) -> list[str]:
        """Detach from the role of the nodes what keeps IAM from deleting it; returns what was detached."""
        iam, role = self._client("iam"), self._role
        done = []
        for policy in _pages(iam, "list_attached_role_policies", "AttachedPolicies", RoleName=role):
            if policy["PolicyName"] == ECS_AGENT_POLICY:
                iam.detach_role_policy(RoleName=role, PolicyArn=policy["PolicyArn"])
                done.append(f"detached {policy['PolicyName']} from {role}")
        for profile in _pages(iam, "list_instance_profiles_for_role", "InstanceProfiles", RoleName=role):
            name = profile["InstanceProfileName"]
            iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role)
            done.append(f"removed {role} from the instance profile {name}")
        return done

    def delete(self, but: Sequence[str]) -> list[str]:
        """Delete the history, without what `but` names; returns what was deleted. Raises StackIsThere."""
        if any(True for _ in self._stack_status()):
            raise StackIsThere(f"the stack {names.STACK} exists: the resources that it uses are not deleted")
        found = [one for one in self.history() if one not in but]
        for one in found:
            kind, _, name = one.rpartition(" ")
            {TABLE: self._delete_table, BUCKET: self._delete_bucket, APPLICATION: self._delete_application}[kind](name)
        return found

    @property
    def _role(self) -> str:
        return names.NODE_ROLE.format(region=self._region)

    def _stack_status(self) -> Iterator[str]:
        stacks = _pages(self._client("cloudformation"), "describe_stacks", "Stacks")
        return (one["StackStatus"] for one in stacks if one["StackName"] == names.STACK)

    def _delete_table(self, name: str) -> None:
        dynamodb = self._client("dynamodb")
        dynamodb.delete_table(TableName=name)
        dynamodb.get_waiter("table_not_exists").wait(TableName=name)

    def _delete_bucket(self, name: str) -> None:
        s3 = self._client("s3")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=name):
            keys = [{"Key": one["Key"]} for one in page.get("Contents", [])]
            if keys:
                s3.delete_objects(Bucket=name, Delete={"Objects": keys, "Quiet": True})
        s3.delete_bucket(Bucket=name)

    def _delete_application(self, application: str) -> None:
        """Delete from the inside out: AppConfig deletes nothing that contains something."""
        appconfig = self._client("appconfig")
        whole = {"ApplicationId": application}
        for environment in _pages(appconfig, "list_environments", "Items", **whole):
            appconfig.delete_environment(**whole, EnvironmentId=environment["Id"], DeletionProtectionCheck="BYPASS")
        for profile in _pages(appconfig, "list_configuration_profiles", "Items", **whole):
            of_profile = {**whole, "ConfigurationProfileId": profile["Id"]}
            for version in _pages(appconfig, "list_hosted_configuration_versions", "Items", **of_profile):
                appconfig.delete_hosted_configuration_version(**of_profile, VersionNumber=version["VersionNumber"])
            appconfig.delete_configuration_profile(**of_profile, DeletionProtectionCheck="BYPASS")
        appconfig.delete_application(**whole)


def _pages(client: Any, operation: str, key: str, **request: Any) -> list[Any]:
    """Return all items of all pages."""
    return [item for page in client.get_paginator(operation).paginate(**request) for item in page.get(key, [])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0: done; 1: AWS refused it, or the stack exists."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    parser = argparse.ArgumentParser(prog="python -m tools.leftovers", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list").add_argument(
        "--into", type=Path, help="write the existing history to this file, for --but"
    )
    verbs.add_parser("release")
    verbs.add_parser("delete").add_argument("--but", type=Path, required=True, help="the history that existed before")
    given = parser.parse_args(arguments)
    session: Any = boto3.Session(region_name=os.environ.get("AWS_REGION"))
    try:
        account = session.client("sts").get_caller_identity()["Account"]
        found = Leftovers(session.client, account, session.region_name)
        lines = _done(found, given)
    except (StackIsThere, BotoCoreError, ClientError) as error:
        sys.stderr.write(f"leftovers: {error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _done(found: Leftovers, given: argparse.Namespace) -> list[str]:
    if given.verb == "release":
        return found.release()
    if given.verb == "delete":
        return [f"deleted {one}" for one in found.delete(json.loads(given.but.read_text("utf-8")))]
    history = found.history()
    if given.into:
        given.into.write_text(json.dumps(history), "utf-8")
    return [f"left: {one}" for one in (*history, *found.others())] or ["nothing is left"]


if __name__ == "__main__":
    sys.exit(main())
