"""The IAM matrix: the templates say what the tables say, and the tables say nothing too broad.

docs/reference/iam.md is generated from the same tables and diffed by tests/architecture.
"""

import json
from typing import Any

import pytest

from nodeheal.contract import names
from nodeheal.contract.names import JOB_EXECUTION_ROLE
from stacks.functions import FUNCTIONS, FunctionSpec
from stacks.permission import MANAGED_NODES, PASS_EXECUTION_ROLE, Permission
from tests.infrastructure.iam_statements import WITHOUT_RESOURCE, as_list
from tests.infrastructure.synthesis import Template, role_named, synthesize

# What can hurt a node, a task or a job.
DESTRUCTIVE = {
    "autoscaling:SetInstanceHealth",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
    "ec2:RebootInstances",
    "ec2:StartInstances",
    "ec2:StopInstances",
    "ec2:TerminateInstances",
    "ecs:StartTask",
    "ecs:StopTask",
    "ecs:UpdateContainerInstancesState",
    "ssm:SendCommand",
}
# One function a verb, or two where the step is two: whoever is added here needs a reason.
MAY = {
    "autoscaling:SetInstanceHealth": {"replace_node", "return_to_service"},
    "autoscaling:TerminateInstanceInAutoScalingGroup": {"replace_node", "return_to_service"},
    "ec2:RebootInstances": {"reboot_node"},
    "ec2:RunInstances": {"replace_node"},
    "ec2:StartInstances": {"reboot_node", "wakeup"},
    "ec2:StopInstances": {"reboot_node"},
    "ec2:TerminateInstances": {"replace_node", "return_to_service"},
    "ecs:RegisterTaskDefinition": {"request_job"},
    "ecs:StartTask": {"end_incident", "launch_gang", "launch_job"},
    "ecs:StopTask": {"isolate_node", "launch_gang", "launch_job", "reconcile_records", "stop_gang", "stop_job"},
    "ecs:UpdateContainerInstancesState": {"do_act", "isolate_node", "reconcile_records", "return_to_service"},
    "dynamodb:Scan": {"ingest", "reconcile_records", "sweep"},
    "sns:Publish": {"notify"},
    "s3:PutObject": {"freeze_evidence", "isolate_node"},
    "ssm:SendCommand": {
        "check_nodes",
        "find_checkpoint",
        "freeze_evidence",
        "isolate_node",
        "reboot_node",
        "run_diagnostics",
        "stop_gang",
        "wait_for_news",
    },
    "sts:AssumeRole": {
        "decide_next_step",
        "do_act",
        "end_incident",
        "isolate_node",
        "reboot_node",
        "reconcile_records",
        "replace_node",
        "return_to_service",
        "sweep",
    },
    "states:StartExecution": {
        "attribute_failure",
        "do_act",
        "find_checkpoint",
        "ingest",
        "judge_checks",
        "request_job",
        "sweep",
        "take_signal",
        "wakeup",
    },
}
CONTROLLERS = {"StringLike": {f"ssm:resourceTag/{names.SLURM_CONTROLLER_TAG}": "*"}}
TAG_KEYS = {f"{key}/{names.MANAGED_TAG}" for key in ("aws:ResourceTag", "aws:RequestTag", "ssm:resourceTag")}
EVERY_PERMISSION = [(spec.stem, permission) for spec in FUNCTIONS for permission in spec.every_permission]
DESTRUCTIVE_ONES = [
    (stem, permission) for stem, permission in EVERY_PERMISSION if DESTRUCTIVE & set(permission.actions)
]
COMMANDS = [(stem, permission) for stem, permission in DESTRUCTIVE_ONES if "ssm:SendCommand" in permission.actions]
# A document is what runs, not what it runs on: the node has a statement of its own, with the condition.
ON_SOMETHING = [(stem, p) for stem, p in DESTRUCTIVE_ONES if not all(":document/" in r for r in p.resources)]


def statements(templates: Template, spec: FunctionSpec) -> list[dict[str, Any]]:
    """Every statement of a function's role."""
    [role] = [r["Properties"] for i, r in templates.of_type("AWS::IAM::Role") if i.startswith(f"{spec.class_name}Role")]
    assert "ManagedPolicyArns" not in role
    return [s for policy in role["Policies"] for s in policy["PolicyDocument"]["Statement"]]


@pytest.mark.parametrize("spec", FUNCTIONS, ids=lambda spec: spec.stem)
def test_a_role_says_what_the_table_says(real: Template, spec: FunctionSpec) -> None:
    written = {(action, json.dumps(p.conditions) != "{}") for p in spec.every_permission for action in p.actions}
    deployed = {(a, "Condition" in s) for s in statements(real, spec) for a in as_list(s["Action"])}

    assert deployed == written


def test_no_function_gets_rights_from_anywhere_else(real: Template) -> None:
    extra = [i for i, _ in real.of_type("AWS::IAM::Policy") if any(spec.class_name + "Role" in i for spec in FUNCTIONS)]

    assert extra == []


@pytest.mark.parametrize(("stem", "permission"), EVERY_PERMISSION)
def test_a_permission_names_its_actions_and_its_reason(stem: str, permission: Permission) -> None:
    assert permission.why
    assert not [action for action in permission.actions if "*" in action]


@pytest.mark.parametrize(("stem", "permission"), EVERY_PERMISSION)
def test_a_permission_names_its_resources_unless_the_call_takes_none(stem: str, permission: Permission) -> None:
    assert "*" not in permission.resources or set(permission.actions) <= WITHOUT_RESOURCE


@pytest.mark.parametrize(("stem", "permission"), ON_SOMETHING)
def test_what_can_hurt_touches_only_what_the_operator_or_we_have_tagged(stem: str, permission: Permission) -> None:
    tags = [pairs for pairs in permission.conditions.get("StringEquals", {}).items() if pairs[0] in TAG_KEYS]

    assert [value for _, value in tags] == [names.MANAGED_TAG_VALUE]


@pytest.mark.parametrize(
    ("stem", "permission"), [(stem, p) for stem, p in DESTRUCTIVE_ONES if any(a.startswith("ecs:") for a in p.actions)]
)
def test_what_ecs_may_be_asked_to_change_is_in_our_cluster(stem: str, permission: Permission) -> None:
    assert str(permission.conditions["ArnEquals"]["ecs:cluster"]).endswith(":cluster/{cluster}")


@pytest.mark.parametrize(("stem", "permission"), COMMANDS)
def test_a_command_goes_to_its_documents_or_to_tagged_nodes(stem: str, permission: Permission) -> None:
    documents = {
        "check_nodes": [names.document("run-diagnostics"), names.document("test-fabric")],
        "find_checkpoint": [names.document("find-checkpoint")],
        "freeze_evidence": [names.document("freeze-evidence")],
        "run_diagnostics": [names.document("run-diagnostics")],
        "stop_gang": [names.document("checkpoint-now")],
        "wait_for_news": [names.document("checkpoint-now")],
        "isolate_node": [names.document("checkpoint-now"), names.document("freeze-evidence")],
        "reboot_node": [names.document(name) for name in ("reset-gpu", "reboot-node", "find-checkpoint")],
    }[stem]

    in_place = tuple("arn:{partition}:ssm:{region}:{account}:document/" + document for document in documents)
    assert permission.resources in {MANAGED_NODES, in_place}


def test_the_role_that_asks_slurm_sends_one_document_to_tagged_controllers_and_may_nothing_else(real: Template) -> None:
    role = role_named(real, names.CONTROLLER_ROLE)
    [policy] = role["Policies"]
    document, machines = policy["PolicyDocument"]["Statement"]

    assert {document["Action"], machines["Action"]} == {"ssm:SendCommand"}
    assert str(document["Resource"]).count("document/") == str(document["Resource"]).count(names.document("slurm")) == 1
    assert machines["Condition"] == CONTROLLERS


@pytest.mark.parametrize(("action", "stems"), MAY.items())
def test_a_verb_that_matters_belongs_to_few(action: str, stems: set[str]) -> None:
    assert {stem for stem, permission in EVERY_PERMISSION if action in permission.actions} == stems


def test_no_role_sends_documents_to_two_kinds_of_machines(real: Template) -> None:
    """IAM authorizes the document and the machine of a command apart: a role with two uses could mix them."""
    kinds: dict[str, set[str]] = {}
    for name, properties in (*real.of_type("AWS::IAM::Role"), *real.of_type("AWS::IAM::ManagedPolicy")):
        policies = [policy["PolicyDocument"] for policy in properties["Properties"].get("Policies", [])]
        policies += [properties["Properties"]["PolicyDocument"]] if "PolicyDocument" in properties["Properties"] else []
        for statement in (one for policy in policies for one in policy["Statement"]):
            if "ssm:SendCommand" in as_list(statement["Action"]) and "Condition" in statement:
                kinds.setdefault(name, set()).add(str(statement["Condition"]))

    assert len(kinds) > 2
    assert {name: sent for name, sent in kinds.items() if len(sent) > 1} == {}


def test_machines_are_launched_from_tagged_templates_and_marked() -> None:
    launching = {r: p.conditions for _, p in EVERY_PERMISSION if "ec2:RunInstances" in p.actions for r in p.resources}

    tag, value = names.MANAGED_TAG, names.MANAGED_TAG_VALUE
    by_kind = {resource.rpartition(":")[2].partition("/")[0]: conditions for resource, conditions in launching.items()}
    assert by_kind.pop("launch-template") == {"StringEquals": {f"aws:ResourceTag/{tag}": value}}
    assert by_kind.pop("instance") == {"StringEquals": {f"aws:RequestTag/{tag}": value}}
    assert by_kind.pop("group") == {}  # of capacity reservations: EC2 knows no condition for it
    assert {key for conditions in by_kind.values() for key in conditions["ArnLike"]} == {"ec2:LaunchTemplate"}
    held = {kind for kind, conditions in by_kind.items() if conditions.get("Bool")}
    assert held == {"image", "key-pair"}
    assert {str(by_kind[kind]["Bool"]) for kind in held} == {"{'ec2:IsLaunchTemplateResource': 'true'}"}


ROLES_PASSED_BY_AT_MOST = 4


def is_passing(statement: dict[str, Any]) -> bool:
    """Whether it lets a role be passed."""
    return "iam:PassRole" in as_list(statement["Action"])


def test_what_starts_tasks_or_registers_their_definitions_passes_the_execution_role_of_jobs() -> None:
    passing = {stem for stem, permission in EVERY_PERMISSION if permission == PASS_EXECUTION_ROLE}

    assert passing == MAY["ecs:StartTask"] | MAY["ecs:RegisterTaskDefinition"]


@pytest.mark.parametrize(
    ("setting", "service"),
    [
        ("task_role_arns", "ecs-tasks.amazonaws.com"),
        ("instance_role_arns", ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]),
    ],
)
def test_roles_are_passed_only_where_the_operator_names_them(
    real: Template, setting: str, service: str | list[str]
) -> None:
    role = "arn:aws:iam::111122223333:role/trainer"

    named = synthesize({"nodeheal": {setting: [role]}})

    before, after = ([s for spec in FUNCTIONS for s in statements(t, spec) if is_passing(s)] for t in (real, named))
    assert all(JOB_EXECUTION_ROLE.format(region="") in json.dumps(statement["Resource"]) for statement in before)
    passing = [statement for statement in after if statement not in before]
    assert 0 < len(passing) <= ROLES_PASSED_BY_AT_MOST
    for statement in passing:
        assert statement["Resource"] == role
        assert statement["Condition"] == {"StringEquals": {"iam:PassedToService": service}}


HYPERPOD = ["arn:aws:sagemaker:eu-central-1:111122223333:cluster/7tg6o65u86i5"]


def test_hyperpod_is_asked_only_about_the_clusters_that_the_operator_names(real: Template) -> None:
    named = synthesize({"nodeheal": {"hyperpod_clusters": HYPERPOD}})

    before, after = (
        {spec.stem: [s for s in statements(template, spec) if "sagemaker:" in json.dumps(s)] for spec in FUNCTIONS}
        for template in (real, named)
    )
    acts: dict[str, set[str]] = {}
    for stem, found in after.items():
        for statement in found:
            assert as_list(statement["Resource"]) == HYPERPOD
            for action in as_list(statement["Action"]):
                acts.setdefault(action, set()).add(stem)
    assert not any(before.values())
    assert acts["sagemaker:BatchRebootClusterNodes"] == {"reboot_node"}
    assert acts["sagemaker:BatchReplaceClusterNodes"] == {"replace_node"}
    assert acts["sagemaker:ListClusterNodes"] == {"decide_next_step"}
    describes = acts.pop("sagemaker:DescribeClusterNode")
    assert describes == acts.pop("sagemaker:DescribeCluster") >= {"ingest", "isolate_node", "reboot_node", "sweep"}
    assert "notify" not in describes


def test_an_eks_cluster_is_reached_by_the_role_that_asks_clusters_and_by_nobody_else(real: Template) -> None:
    named = synthesize({"nodeheal": {"eks_clusters": ["training"]}})

    entries = [entry["Properties"] for _, entry in named.of_type("AWS::EKS::AccessEntry")]
    roles = {
        name: json.dumps(role["Properties"]) for name, role in named.of_type("AWS::IAM::Role") if "eks:" in str(role)
    }
    assert not list(real.of_type("AWS::EKS::AccessEntry"))
    assert [(entry["ClusterName"], entry["KubernetesGroups"]) for entry in entries] == [
        ("training", [names.KUBERNETES_GROUP])
    ]
    [(name, role)] = [(name, role) for name, role in roles.items() if "eks:DescribeCluster" in role]
    assert (entries[0]["PrincipalArn"], "cluster/training" in role) == ({"Fn::GetAtt": [name, "Arn"]}, True)


def test_the_agents_pods_of_the_named_clusters_alone_may_report_each_in_its_own_item(real: Template) -> None:
    named = synthesize({"nodeheal": {"eks_clusters": ["training", "other"], "pod_identity_clusters": ["training"]}})

    [(name, role)] = [
        (name, role["Properties"]) for name, role in named.of_type("AWS::IAM::Role") if "AgentPods" in name
    ]
    [trust] = role["AssumeRolePolicyDocument"]["Statement"]
    tags = trust["Condition"]["StringEquals"]
    [heartbeat] = [
        each
        for each in role["Policies"][0]["PolicyDocument"]["Statement"]
        if as_list(each["Action"]) == ["dynamodb:UpdateItem"]
    ]
    [(_, association)] = named.of_type("AWS::EKS::PodIdentityAssociation")
    assert (trust["Principal"], set(trust["Action"])) == (
        {"Service": "pods.eks.amazonaws.com"},
        {"sts:AssumeRole", "sts:TagSession"},
    )
    assert [each["Fn::Join"][1][-1] for each in tags.pop("aws:RequestTag/eks-cluster-arn")] == [":cluster/training"]
    assert tags == {
        "aws:RequestTag/kubernetes-namespace": "nodeheal",
        "aws:RequestTag/kubernetes-service-account": "nodeheal-agent",
    }
    assert heartbeat["Condition"]["ForAllValues:StringEquals"] == {
        "dynamodb:LeadingKeys": "pod:${aws:PrincipalTag/eks-cluster-name}/${aws:PrincipalTag/kubernetes-pod-name}"
    }
    assert association["Properties"] == {
        "ClusterName": "training",
        "Namespace": "nodeheal",
        "ServiceAccount": "nodeheal-agent",
        "RoleArn": {"Fn::GetAtt": [name, "Arn"]},
    }
    assert not [each for each, _ in real.of_type("AWS::IAM::Role") if "AgentPods" in each]


def test_only_functions_that_ask_clusters_run_in_a_vpc_and_their_code_makes_no_interface(real: Template) -> None:
    vpc = {"subnets": ["subnet-0123456789abcdef0"], "security_groups": ["sg-0123456789abcdef0"]}
    named = synthesize({"nodeheal": {"eks_clusters": ["training"], "vpc": vpc}})

    functions = [resource["Properties"] for _, resource in named.of_type("AWS::Lambda::Function")]
    networks = {function["FunctionName"]: function.get("VpcConfig") for function in functions}
    inside = {"SubnetIds": vpc["subnets"], "SecurityGroupIds": vpc["security_groups"]}
    ask: set[str] = set()
    for spec in FUNCTIONS:
        may = statements(named, spec)
        makes = [each for each in may if "ec2:CreateNetworkInterface" in as_list(each["Action"])]
        if any("sts:AssumeRole" in as_list(each["Action"]) for each in may):
            ask.add(spec.stem)
            [(key, arn)] = makes[1]["Condition"]["ArnEquals"].items()
            assert ([each["Effect"] for each in makes], networks[spec.deployed_name]) == (["Allow", "Deny"], inside)
            assert (key, f"function:{spec.deployed_name}" in json.dumps(arn)) == ("lambda:SourceFunctionArn", True)
        else:
            assert (makes, networks[spec.deployed_name]) == ([], None)
    assert {"isolate_node", "replace_node", "sweep", "decide_next_step"} <= ask < {spec.stem for spec in FUNCTIONS}
    assert not [f for _, f in real.of_type("AWS::Lambda::Function") if "VpcConfig" in f["Properties"]]
    assert named.body["Outputs"][names.FUNCTION_GROUPS_OUTPUT]["Value"] == "sg-0123456789abcdef0"
