"""Every statement of every role, held against AWS's Service Authorization Reference.

A statement that names an action, a resource or a condition key that AWS does not know grants nothing, and says nothing.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.authorization import KNOWN, Statement, objection, objections, overlap
from tests.infrastructure.filled import Place, properties
from tests.infrastructure.synthesis import Template, synthesize

HERE = Place()
SETTINGS = {
    "alert_emails": ["oncall@example.com"],
    "task_role_arns": ["arn:aws:iam::111122223333:role/trainer"],
    "image_parameter_arns": ["arn:aws:ssm:eu-central-1:111122223333:parameter/golden/image"],
    "image_repository_arns": ["arn:aws:ecr:eu-central-1:763104351884:repository/pytorch-training"],
    "instance_role_arns": ["arn:aws:iam::111122223333:role/machine"],
    "eks_clusters": ["training"],
    "pod_identity_clusters": ["training"],
    "vpc": {"subnets": ["subnet-0123456789abcdef0"], "security_groups": ["sg-0123456789abcdef0"]},
    "hyperpod_clusters": ["arn:aws:sagemaker:eu-central-1:111122223333:cluster/7tg6o65u86i5"],
}


def statements(template: Template, effect: str = "Allow") -> Iterator[tuple[str, Statement]]:
    """Each action and resource of every statement of this effect, with the role or policy that has it."""
    for kind in ("AWS::IAM::Role", "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for name, _ in template.of_type(kind):
            given = properties(template, name, HERE)
            documents = [policy["PolicyDocument"] for policy in given.get("Policies", ())]
            documents += [given["PolicyDocument"]] if "PolicyDocument" in given else []
            for statement in (statement for document in documents for statement in document["Statement"]):
                if statement.get("Effect") != effect:
                    continue
                keys = frozenset(key for pairs in statement.get("Condition", {}).values() for key in pairs)
                for action in _listed(statement["Action"]):
                    for resource in _listed(statement["Resource"]):
                        yield name, Statement(action, resource, keys)


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


@pytest.fixture(scope="module")
def template() -> Template:
    """With every setting that adds a statement."""
    return synthesize({"nodeheal": SETTINGS})


# A List or Describe whose argument is left out is checked on *, and not on the resource. Each of these was looked at.
ARGUMENT_IS_GIVEN = {
    "appconfig:ListDeployments": "application and environment stand in the path",
    "cloudformation:DescribeStacks": "adapters/aws/policy_documents.py names the stack",
    "ecs:DescribeContainerInstances": "takes container instances, and cannot be called without",
    "ecs:DescribeTasks": "takes tasks, and cannot be called without",
    "ecs:ListAttributes": "every call names the cluster",
    "ecs:ListContainerInstances": "every call names the cluster",
    "eks:DescribeAccessEntry": "cluster and principal stand in the path",
    "eks:DescribeCluster": "the cluster stands in the path",
    "eks:DescribeNodegroup": "cluster and node group stand in the path",
    "eks:ListAssociatedAccessPolicies": "cluster and principal stand in the path",
    "eks:ListNodegroups": "the cluster stands in the path",
    "states:DescribeExecution": "takes an execution, and cannot be called without",
    "states:ListExecutions": "adapters/aws/workflows.py names the workflow",
    "sagemaker:DescribeCluster": "takes a cluster, and cannot be called without",
    "sagemaker:DescribeClusterNode": "takes a cluster, and cannot be called without",
    "sagemaker:ListClusterNodes": "takes a cluster, and cannot be called without",
    "sns:ListSubscriptionsByTopic": "takes a topic, and cannot be called without",
    "ssm:DescribeAssociationExecutions": "takes an association, and cannot be called without",
    "ssm:ListTagsForResource": "takes a resource, and cannot be called without",
}


def test_aws_knows_every_action_resource_and_condition_that_is_granted(template: Template) -> None:
    found = {why for _, statement in statements(template) for why in objections(statement)}

    assert len(list(statements(template))) > 500
    assert found - KNOWN.keys() == set()


def test_aws_knows_every_action_that_is_denied(template: Template) -> None:
    denied = [statement for _, statement in statements(template, "Deny")]

    assert denied
    assert not [why for statement in denied for why in objections(statement) if "granted on *" not in why]


def test_every_look_on_a_resource_was_checked_for_arguments_that_are_left_out(template: Template) -> None:
    looks = {
        statement.action
        for _, statement in statements(template)
        if statement.action.partition(":")[2].startswith(("List", "Describe")) and statement.resource != "*"
    }

    assert looks == ARGUMENT_IS_GIVEN.keys()


def grants(template: Template, role: str, action: str) -> set[str]:
    """What of a role's statements allows an action, by resource."""
    return {s.resource for name, s in statements(template) if name.startswith(role) and s.action == action}


def test_a_launch_has_the_grants_of_usual_templates(template: Template) -> None:
    """Templates that tag volumes, that name images by parameters, and that use groups of capacity reservations."""
    place = f"{HERE.region}:{HERE.account}"

    tagged = grants(template, "ReplaceNodeRole", "ec2:CreateTags")
    launched = grants(template, "ReplaceNodeRole", "ec2:RunInstances")
    read = grants(template, "ReplaceNodeRole", "ssm:GetParameters")

    kinds = ("instance", "network-interface", "spot-instances-request", "volume")
    assert tagged == {f"arn:aws:ec2:{place}:{kind}/*" for kind in kinds}
    assert f"arn:aws:resource-groups:{place}:group/*" in launched
    assert read == {f"arn:aws:ssm:{HERE.region}::parameter/aws/service/*", *SETTINGS["image_parameter_arns"]}


def test_images_come_from_other_accounts_only_where_the_settings_name_them(real: Template, template: Template) -> None:
    own = f"arn:aws:ecr:{HERE.region}:{HERE.account}:repository/*"

    assert grants(real, "JobExecutionRole", "ecr:BatchGetImage") == {own}
    assert grants(template, "JobExecutionRole", "ecr:BatchGetImage") == {own, *SETTINGS["image_repository_arns"]}


@pytest.mark.parametrize(
    ("action", "resource", "key", "why"),
    [
        ("ecs:StopTasks", "arn:aws:ecs:r:a:task/training/*", "ecs:cluster", "no such action"),
        ("ecs:StopTask", "arn:aws:ecs:r:a:container-instance/training/*", "ecs:cluster", "is none of task"),
        ("ecs:StopTask", "arn:aws:ecs:r:a:task/training/*", "ssm:resourceTag/nodeheal:managed", "no condition key"),
        ("ecs:StopTask", "*", "ecs:cluster", "takes task, and is granted on *"),
        ("ec2:DescribeInstances", "arn:aws:ec2:r:a:instance/*", "ec2:Region", "it takes *"),
        (
            "appconfig:CreateHostedConfigurationVersion",
            "arn:aws:appconfig:r:a:deploymentstrategy/*",
            "aws:ResourceTag/team",
            "is none of",
        ),
    ],
)
def test_what_aws_does_not_know_is_found(action: str, resource: str, key: str, why: str) -> None:
    [found] = objections(Statement(action, resource, frozenset({key})))

    assert why in found


@pytest.mark.parametrize(
    ("action", "kind", "keys"),
    [
        # SSM spells the key of its tags in two ways: with a variable behind it, and with a word.
        ("ssm:SendCommand", "ssm:r:a:managed-instance/mi-1", {"ssm:resourceTag/nodeheal:managed"}),
        ("ssm:AddTagsToResource", "ssm:r:a:managed-instance/mi-1", {"ssm:resourceTag/nodeheal:managed", "aws:TagKeys"}),
        ("ecs:StopTask", "ecs:r:a:task/training/1", {"aws:ResourceTag/nodeheal:managed", "ecs:cluster"}),
    ],
)
def test_what_aws_knows_is_not_objected_to(action: str, kind: str, keys: set[str]) -> None:
    assert objection(action, f"arn:aws:{kind}", keys) == ""


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("arn:aws:ecs:r:a:task/training/*", "arn:*:ecs:*:*:task/*/*", True),
        ("arn:aws:appconfig:r:a:application/abc/*", "arn:*:appconfig:*:*:application/*/environment/*", True),
        ("arn:aws:ecs:r:a:task/training/*", "arn:*:ecs:*:*:cluster/*", False),
        ("secret:nodeheal-??????", "secret:*", True),
        ("abc", "ab", False),
    ],
)
def test_two_patterns_overlap_where_some_text_matches_both(one: str, other: str, meet: bool) -> None:
    assert overlap(one, other) is meet
