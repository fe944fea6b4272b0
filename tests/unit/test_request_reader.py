"""The sandbox reads every request as botocore writes it, so that it can refuse what AWS would refuse."""

from typing import Any
from urllib.parse import urlencode

import pytest
from botocore.serialize import create_serializer

from sandbox.request_reader import read_request
from sandbox.request_rules import service_model

PARAMETERS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "ecs",
        "StartTask",
        {"taskDefinition": "llama:1", "containerInstances": ["one", "two"], "startedBy": "nodeheal/1"},
    ),
    ("ssm", "SendCommand", {"DocumentName": "reboot", "InstanceIds": ["mi-1"], "Parameters": {"BootId": ["b-1"]}}),
    ("dynamodb", "PutItem", {"TableName": "nodeheal", "Item": {"pk": {"S": "node#1"}, "n": {"N": "1"}}}),
    ("sqs", "SendMessage", {"QueueUrl": "http://127.0.0.1/q", "MessageBody": "{}"}),
    (
        "sns",
        "Publish",
        {"TopicArn": "t", "Message": "m", "MessageAttributes": {"a": {"DataType": "String", "StringValue": "v"}}},
    ),
    ("sts", "GetCallerIdentity", {}),
    (
        "autoscaling",
        "DescribeAutoScalingGroups",
        {"AutoScalingGroupNames": ["one", "two"], "MaxRecords": 5},
    ),
    (
        "ec2",
        "RunInstances",
        {
            "MinCount": 1,
            "MaxCount": 1,
            "LaunchTemplate": {"LaunchTemplateId": "lt-1"},
            "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "b"}]}],
            "NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": True, "Groups": ["sg-1"]}],
        },
    ),
    ("ec2", "DescribeInstances", {"Filters": [{"Name": "tag:a", "Values": ["b", "c"]}], "InstanceIds": ["i-1"]}),
    (
        "appconfig",
        "StartDeployment",
        {
            "ApplicationId": "app1234",
            "EnvironmentId": "env1234",
            "DeploymentStrategyId": "AllAtOnce",
            "ConfigurationProfileId": "pro1234",
            "ConfigurationVersion": "1",
        },
    ),
    ("appconfig", "ListDeployments", {"ApplicationId": "app1234", "EnvironmentId": "env1234", "MaxResults": 5}),
    ("lambda", "GetFunction", {"FunctionName": "nodeheal-ingest"}),
]


@pytest.mark.parametrize(("service", "operation", "parameters"), PARAMETERS, ids=lambda one: str(one)[:40])
def test_a_request_is_read_as_it_was_written(service: str, operation: str, parameters: dict[str, Any]) -> None:
    model = service_model(service)
    written = create_serializer(model.metadata["protocol"], include_validation=False).serialize_to_request(
        parameters, model.operation_model(operation)
    )
    body = written["body"]
    found = read_request(
        service,
        written["method"],
        written["url_path"],
        {name.lower(): value for name, value in written["headers"].items()},
        urlencode(body).encode() if isinstance(body, dict) else body,
        {name: [str(value)] for name, value in written["query_string"].items()} if written["query_string"] else {},
    )

    assert found is not None
    assert (found[0].name, found[1]) == (operation, parameters)


def test_a_body_that_is_no_json_is_an_error() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        read_request("ecs", "POST", "/", {"x-amz-target": "Ecs.ListTasks"}, b"{", {})
