"""Uninstalling, with the commands of docs/operations.md: what acts is gone, no node is touched, no history is lost."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodeheal.adapters.aws.policy_documents import PolicyDocuments, deployed_place
from nodeheal.contract import names
from sandbox.client import Sandbox
from sandbox.deployment import ASSET_BUCKET, DeployFailed, bootstrap, deploy
from stacks.settings import REPOSITORY

pytestmark = pytest.mark.emulated
IDLE = ["sleep", "3600"]
KEPT_ITEM = {names.PARTITION_KEY: {"S": "incident#kept"}, names.SORT_KEY: {"S": "incident"}}
APPLIED = '{"default_pool": {"mode": "observe"}, "settle_seconds": 301}'


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("uninstall") / "cloud", boot_seconds=0.1) as sandbox:
        sandbox.deploy()
        yield sandbox


def ours(cloud: Sandbox) -> dict[str, list[str]]:
    """What of nodeheal is deployed, by kind."""
    found = {
        "functions": [f["FunctionName"] for f in cloud.client("lambda").list_functions(MaxItems=100)["Functions"]],
        "workflows": [m["name"] for m in cloud.client("stepfunctions").list_state_machines()["stateMachines"]],
        "rules": [rule["Name"] for rule in cloud.client("events").list_rules()["Rules"]],
        "buses": [bus["Name"] for bus in cloud.client("events").list_event_buses()["EventBuses"]],
        "topics": [topic["TopicArn"].rpartition(":")[2] for topic in cloud.client("sns").list_topics()["Topics"]],
        "roles": [role["RoleName"] for role in cloud.client("iam").list_roles()["Roles"]],
    }
    return {kind: [name for name in known if name.startswith("nodeheal")] for kind, known in found.items()}


def documents(cloud: Sandbox) -> PolicyDocuments:
    return PolicyDocuments(cloud.client("appconfig"), deployed_place(cloud.client("cloudformation")))


def of_the_stack(cloud: Sandbox) -> dict[str, str]:
    """The physical id of each resource of the stack, by type; of several of one type, the last."""
    pages = cloud.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=names.STACK)
    found = [resource for page in pages for resource in page["StackResourceSummaries"]]
    return {resource["ResourceType"]: resource["PhysicalResourceId"] for resource in found}


def kept_item(cloud: Sandbox) -> Any:
    return cloud.client("dynamodb").get_item(TableName=names.TABLE, Key=KEPT_ITEM).get("Item")


def test_after_uninstalling_nothing_of_nodeheal_acts_and_the_nodes_are_as_they_were(cloud: Sandbox) -> None:
    node = cloud.add_node(agent=IDLE)
    bucket = cloud.outputs["EvidenceBucketName"]
    cloud.client("dynamodb").put_item(TableName=names.TABLE, Item=KEPT_ITEM)
    cloud.client("s3").put_object(Bucket=bucket, Key="incidents/kept", Body=b"evidence")
    documents(cloud).apply(APPLIED, "a quiet night")
    before = ours(cloud)

    cloud.destroy()

    assert all(before[kind] for kind in ("functions", "workflows", "rules", "buses", "topics")), before
    assert not any(ours(cloud).values()), ours(cloud)
    with pytest.raises(ClientError):
        cloud.client("ssm").describe_document(Name=names.document("reboot-node"))
    [instance] = cloud.client("ecs").describe_container_instances(
        cluster=cloud.cluster, containerInstances=[node.container_instance_arn]
    )["containerInstances"]
    assert instance["status"] == "ACTIVE"
    assert kept_item(cloud) == KEPT_ITEM
    assert cloud.client("s3").get_object(Bucket=bucket, Key="incidents/kept")["Body"].read() == b"evidence"


def test_a_new_deployment_that_is_not_told_to_take_up_what_is_kept_stops_and_harms_nothing(cloud: Sandbox) -> None:
    with pytest.raises(DeployFailed):
        cloud.deploy()

    assert kept_item(cloud) == KEPT_ITEM
    assert not any(ours(cloud).values()), ours(cloud)


def test_a_new_deployment_takes_up_what_is_kept(cloud: Sandbox) -> None:
    cloud.deploy("--import-existing-resources")

    assert "nodeheal-recover-node" in ours(cloud)["workflows"]
    assert kept_item(cloud) == KEPT_ITEM
    assert of_the_stack(cloud)["AWS::S3::Bucket"] == cloud.outputs["EvidenceBucketName"]
    assert cloud.outputs["TableName"] == names.TABLE


def test_the_policy_of_before_is_kept_and_can_be_applied_again(cloud: Sandbox) -> None:
    """AppConfig knows no names, only ids: the new deployment has an application of its own, and observes at first."""
    appconfig = cloud.client("appconfig")
    applications = [a["Id"] for a in appconfig.list_applications()["Items"] if a["Name"] == names.POLICY_APPLICATION]
    [former] = set(applications) - {deployed_place(cloud.client("cloudformation")).application}
    [profile] = appconfig.list_configuration_profiles(ApplicationId=former)["Items"]
    where = {"ApplicationId": former, "ConfigurationProfileId": profile["Id"]}
    newest = max(v["VersionNumber"] for v in appconfig.list_hosted_configuration_versions(**where)["Items"])
    text = appconfig.get_hosted_configuration_version(**where, VersionNumber=newest)["Content"].read().decode()
    assert documents(cloud).in_force().text != APPLIED

    documents(cloud).apply(text, "as before the uninstall")

    assert documents(cloud).in_force().text == APPLIED


def test_a_first_deployment_that_fails_leaves_nothing_that_the_next_one_stops_at(tmp_path_factory: Any) -> None:
    with Sandbox(tmp_path_factory.mktemp("first") / "cloud", boot_seconds=0.1) as cloud:
        failing = f"{sys.executable} -m tests.emulated.failing_app"
        bootstrap(cloud.client("s3"), cloud.client("ssm"))
        with pytest.raises(DeployFailed, match="WaitCondition"):
            deploy(REPOSITORY, cloud.directory, cloud.environment(), app=failing)
        assert cloud.client("dynamodb").list_tables()["TableNames"] == []
        assert cloud.client("appconfig").list_applications()["Items"] == []
        assert [b["Name"] for b in cloud.client("s3").list_buckets()["Buckets"]] == [ASSET_BUCKET]

        cloud.deploy()

        assert "nodeheal-recover-node" in ours(cloud)["workflows"]
