"""The role of ParallelCluster's queues: made where the settings name a cluster, and believed from the start."""

import json

import pytest
import yaml

from nodeheal.contract import names
from stacks.parallelcluster import SCRIPT
from stacks.settings import REPOSITORY
from tests.infrastructure.synthesis import Template, role_named, synthesize

# aws/aws-parallelcluster, cli/src/pcluster/templates/cdk_builder_utils.py, ComputeNodeIamResources.
GRANTED_BY_DEFAULT = {
    "ec2:DescribeInstanceAttribute",
    "s3:GetObject",
    "cloudformation:DescribeStackResource",
    "dynamodb:UpdateItem",
    "dynamodb:PutItem",
    "dynamodb:GetItem",
}


@pytest.fixture(scope="module")
def template() -> Template:
    return synthesize({"nodeheal": {"parallelclusters": ["training"]}})


def test_a_queues_role_may_what_parallelcluster_grants_and_what_an_agent_needs(
    template: Template, real: Template
) -> None:
    [queue] = role_named(template, names.QUEUE_ROLE)["Policies"]
    [node] = role_named(real, names.NODE_ROLE)["Policies"]
    statements, of_nodes = queue["PolicyDocument"]["Statement"], node["PolicyDocument"]["Statement"]
    own = [statement for statement in statements if statement not in of_nodes]

    assert [statement for statement in of_nodes if statement not in statements] == []
    assert {a for s in own for a in (s["Action"] if isinstance(s["Action"], list) else [s["Action"]])} == (
        GRANTED_BY_DEFAULT
    )
    assert json.dumps(own).count("parallelcluster-training") == 1  # of tables, only the cluster's
    assert json.dumps(own).count("stack/training/*") == 1


def test_only_machines_are_of_a_queues_role_and_their_reports_are_believed(template: Template) -> None:
    [trusted] = role_named(template, names.QUEUE_ROLE)["AssumeRolePolicyDocument"]["Statement"]
    logical_id = next(k for k, _ in template.of_type("AWS::IAM::Role") if "QueueRole" in k)
    functions = [f["Properties"]["Environment"]["Variables"] for _, f in template.of_type("AWS::Lambda::Function")]
    believed = [json.dumps(f[names.ENV_NODE_ROLE_IDS]) for f in functions if names.ENV_NODE_ROLE_IDS in f]

    assert trusted["Principal"] == {"Service": "ec2.amazonaws.com"}
    assert believed
    assert all(f'["{logical_id}", "RoleId"]' in ids for ids in believed)


def test_without_a_cluster_there_is_no_role_of_queues(real: Template) -> None:
    assert not [name for name, _ in real.of_type("AWS::IAM::Role") if "QueueRole" in name]
    assert not [name for name in real.body["Outputs"] if name.startswith("Queue")]


def test_the_example_names_the_stacks_role_and_script_and_nothing_that_excludes_them() -> None:
    cluster = yaml.safe_load((REPOSITORY / "examples" / "parallelcluster" / "cluster.yaml").read_text("utf-8"))
    [queue] = cluster["Scheduling"]["SlurmQueues"]

    role = names.QUEUE_ROLE.format(region=cluster["Region"])
    assert queue["Iam"] == {"InstanceRole": f"arn:aws:iam::123456789012:role/{role}"}
    assert queue["CustomActions"]["OnNodeConfigured"]["Script"].endswith(SCRIPT.suffix)
