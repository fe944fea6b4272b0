"""The embedded cloud denies each destructive verb without its grant or its tag, as AWS does."""

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from nodeheal.contract import names
from sandbox.client import NodeHandle, Sandbox
from tests.emulated.iam_lab import (
    CLUSTER,
    IDLE,
    MANAGED,
    TAGGED_REQUEST,
    TAGGED_RESOURCE,
    Json,
    Lab,
    allow,
    hello,
    policy,
)

pytestmark = pytest.mark.emulated

DOCUMENT = "say-hello"
TAGGED_NODE = {"StringEquals": {f"ssm:resourceTag/{names.MANAGED_TAG}": names.MANAGED_TAG_VALUE}}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Sandbox(tmp_path_factory.mktemp("cloud"), boot_seconds=0.2, cluster=CLUSTER) as sandbox:
        idle = {"name": "idle", "image": "numpy-trainer", "command": IDLE, "memory": 64, "stopTimeout": 2}
        sandbox.client("ecs").register_task_definition(family="idle", containerDefinitions=[idle])
        sandbox.client("ssm").create_document(Name=DOCUMENT, Content=hello(), DocumentType="Command")
        enrolled = sandbox.add_node(agent=IDLE, gpus=8)
        yield Lab(sandbox, enrolled, sandbox.add_node(agent=IDLE, tags={}))


def test_a_command_needs_a_grant_for_the_document_and_for_an_enrolled_node(lab: Lab) -> None:
    on_document = allow("ssm:SendCommand", f"*:document/{DOCUMENT}")
    on_nodes = allow("ssm:SendCommand", "*:managed-instance/*", TAGGED_NODE)
    nobody = lab.as_role("ssm-nobody", [], "ssm")
    half = lab.as_role("ssm-half", [on_document], "ssm")
    other = lab.as_role("ssm-other", [allow("ssm:SendCommand", "*:document/other"), on_nodes], "ssm")
    healer = lab.as_role("ssm-healer", [on_document, on_nodes], "ssm")

    def send(client: Any, node: NodeHandle) -> Callable[[], Any]:
        return lambda: client.send_command(DocumentName=DOCUMENT, InstanceIds=[node.node_id])

    assert is_denied(send(nobody, lab.enrolled))
    assert is_denied(send(half, lab.enrolled))
    assert is_denied(send(other, lab.enrolled))
    assert is_denied(send(healer, lab.stranger))
    assert not is_denied(send(healer, lab.enrolled))


def test_draining_needs_a_grant_and_the_tag_on_the_container_instance(lab: Lab) -> None:
    drains = "ecs:UpdateContainerInstancesState"
    nobody = lab.as_role("drain-nobody", [], "ecs")
    healer = lab.as_role(
        "drain-healer", [allow(drains, "*:container-instance/lab/*", in_cluster(TAGGED_RESOURCE))], "ecs"
    )
    elsewhere = lab.as_role("drain-elsewhere", [allow(drains, "*", in_cluster({}, "other"))], "ecs")

    def drain(client: Any, node: NodeHandle) -> Callable[[], Any]:
        return lambda: client.update_container_instances_state(
            cluster=CLUSTER, containerInstances=[node.container_instance_arn], status="ACTIVE"
        )

    assert is_denied(drain(nobody, lab.enrolled))
    assert is_denied(drain(elsewhere, lab.enrolled))
    assert is_denied(drain(healer, lab.stranger))
    assert not is_denied(drain(healer, lab.enrolled))


def test_stopping_a_task_needs_a_grant_and_the_tag_on_the_task(lab: Lab) -> None:
    ours, theirs = lab.running_task(MANAGED), lab.running_task({})
    nobody = lab.as_role("stop-nobody", [], "ecs")
    healer = lab.as_role("stop-healer", [allow("ecs:StopTask", "*:task/lab/*", in_cluster(TAGGED_RESOURCE))], "ecs")

    assert is_denied(lambda: nobody.stop_task(cluster=CLUSTER, task=ours))
    assert is_denied(lambda: healer.stop_task(cluster=CLUSTER, task=theirs))
    assert not is_denied(lambda: healer.stop_task(cluster=CLUSTER, task=ours))


def test_starting_a_task_needs_a_grant_the_tag_and_leave_to_set_it(lab: Lab) -> None:
    starts = allow("ecs:StartTask", "*:task-definition/idle:*", in_cluster(TAGGED_REQUEST))
    tags = allow("ecs:TagResource", "*:task/lab/*", {"StringEquals": {"ecs:CreateAction": "StartTask"}})
    nobody = lab.as_role("start-nobody", [tags], "ecs")
    untagging = lab.as_role("start-untagging", [starts], "ecs")
    healer = lab.as_role("start-healer", [starts, tags], "ecs")
    mark = [{"key": names.MANAGED_TAG, "value": names.MANAGED_TAG_VALUE}]

    def start(client: Any, **more: Any) -> Callable[[], Any]:
        where = [lab.enrolled.container_instance_arn]
        return lambda: client.start_task(cluster=CLUSTER, taskDefinition="idle", containerInstances=where, **more)

    assert is_denied(start(nobody, tags=mark))
    assert is_denied(start(untagging, tags=mark))
    assert is_denied(start(healer))
    assert not is_denied(start(healer, tags=mark))


def test_a_task_role_must_be_passed(lab: Lab) -> None:
    role = "arn:aws:iam::000000000000:role/trainer"
    container = {"name": "idle", "image": "numpy-trainer", "command": IDLE, "memory": 64}
    ecs = lab.sandbox.client("ecs")
    ecs.register_task_definition(family="with-role", containerDefinitions=[container], taskRoleArn=role)
    starts = allow("ecs:StartTask", "*")
    without = lab.as_role("pass-nothing", [starts], "ecs")
    healer = lab.as_role("pass-role", [starts, allow("iam:PassRole", role)], "ecs")

    def start(client: Any) -> Callable[[], Any]:
        where = [lab.enrolled.container_instance_arn]
        return lambda: client.start_task(cluster=CLUSTER, taskDefinition="with-role", containerInstances=where)

    assert is_denied(start(without))
    assert not is_denied(start(healer))


def test_only_the_tag_that_says_which_incident_holds_a_node_may_be_set_and_taken_off(lab: Lab) -> None:
    own_tag = {**TAGGED_RESOURCE, "ForAllValues:StringEquals": {"aws:TagKeys": names.ISOLATED_TAG}}
    verbs = ("ecs:TagResource", "ecs:UntagResource")
    healer = lab.as_role("tag-healer", [allow(verb, "*:container-instance/lab/*", own_tag) for verb in verbs], "ecs")

    def tag(node: NodeHandle, key: str) -> Callable[[], Any]:
        return lambda: healer.tag_resource(
            resourceArn=node.container_instance_arn, tags=[{"key": key, "value": "inc-1"}]
        )

    assert is_denied(tag(lab.stranger, names.ISOLATED_TAG))
    assert is_denied(tag(lab.enrolled, names.MANAGED_TAG))
    assert not is_denied(tag(lab.enrolled, names.ISOLATED_TAG))
    where = lab.enrolled.container_instance_arn
    assert is_denied(lambda: healer.untag_resource(resourceArn=where, tagKeys=[names.MANAGED_TAG]))
    assert not is_denied(lambda: healer.untag_resource(resourceArn=where, tagKeys=[names.ISOLATED_TAG]))


def test_reading_needs_a_grant_too(lab: Lab) -> None:
    nobody = lab.as_role("read-nobody", [], "ecs")
    reader = lab.as_role("read-reader", [allow("ecs:ListContainerInstances", "*:cluster/lab")], "ecs")

    assert is_denied(lambda: nobody.list_container_instances(cluster=CLUSTER))
    assert not is_denied(lambda: reader.list_container_instances(cluster=CLUSTER))


def test_loopback_satisfies_a_policy_that_demands_tls(lab: Lab) -> None:
    sns = lab.sandbox.client("sns")
    topic = sns.create_topic(Name="tls-only")["TopicArn"]
    deny = {"Effect": "Deny", "Principal": "*", "Action": "sns:Publish", "Resource": topic}
    only_tls = {**deny, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    publisher = lab.as_role("publisher", [allow("sns:Publish", topic)], "sns")

    sns.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=policy([only_tls]))
    assert publisher.publish(TopicArn=topic, Message="hello")["MessageId"]

    sns.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=policy([deny]))
    with pytest.raises(ClientError):
        publisher.publish(TopicArn=topic, Message="hello")


def test_a_wrong_signature_is_refused(lab: Lab) -> None:
    ecs = boto3.client(
        "ecs",
        endpoint_url=lab.sandbox.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="ASIA0000000000000000",
        aws_secret_access_key="wrong",
        aws_session_token="wrong",
    )

    with pytest.raises(ClientError) as refused:
        ecs.list_clusters()

    assert refused.value.response["Error"]["Code"] == "UnrecognizedClientException"


def in_cluster(condition: Json, cluster: str = CLUSTER) -> Json:
    return {**condition, "ArnEquals": {"ecs:cluster": f"arn:aws:ecs:us-east-1:000000000000:cluster/{cluster}"}}


def is_denied(call: Callable[[], Any]) -> bool:
    try:
        answer = call()
    except ClientError as error:
        assert error.response["Error"]["Code"] == "AccessDeniedException", error
        return True
    assert not answer.get("failures"), answer
    return False
