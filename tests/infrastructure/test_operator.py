"""The operator's policy: a permission for each command, none that acts past nodeheal, and it fits into one policy."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from nodeheal.cli.main import app
from nodeheal.contract import names
from nodeheal.contract.vocabulary import ActKind
from stacks.operator import (
    COMMANDS,
    JOB_COMMANDS,
    POLICIES,
    POLICY_NAME,
    READ,
    READ_HEARTBEATS_AND_MARK,
    VIEW_COMMANDS,
    every_permission,
)
from stacks.permission import ASK_CONTROLLER, READ_HEARTBEATS_OF_JOB, Permission, only_keys
from tests.infrastructure.iam_statements import WITHOUT_RESOURCE, as_list
from tests.infrastructure.synthesis import Template

# They ask nobody: files in, text out.
OFFLINE = {"contexts delete", "contexts list", "contexts set", "contexts use"}
OFFLINE |= {"explain", "classify", "replay", "policy check", "jobs validate", "jobs schema"}
OFFLINE |= {"checkpoints list", "checkpoints verify", "checkpoints latest", "simulate"}
OFFLINE |= {f"parse {tool}" for tool in ("dcgm-diag", "dcgm-health", "nvidia-smi", "neuron", "efa")}
PAGES = {"console"}  # each page and act needs what the command for the same needs
RECIPES = {"ecs:DescribeTaskDefinition"}
# They take no resource, or are asked by prefix, which AWS checks on every one.
LOOKS = {
    "cloudwatch:DescribeAlarms",
    "lambda:GetAccountSettings",
    "logs:DescribeLogGroups",
    "sns:GetSubscriptionAttributes",
}
LOOKS |= {"appconfig:ListApplications", "appconfig:ListDeploymentStrategies", "servicequotas:GetAWSDefaultServiceQuota"}
LOOKS |= {"ssm:ListAssociations", "ec2:DescribeSecurityGroups"}
# What only the functions do, with their budgets and their record.
NEVER = re.compile(
    r"ecs:(Stop|Start|Run|Register)\w*|ec2:(Reboot|Terminate|Run|Stop)\w*|autoscaling:\w+|iam:(?!GetInstanceProfile)\w+|lambda:(?!GetAccountSettings)\w+"
    r"|sns:(?!Subscribe|ConfirmSubscription|List|GetSubscriptionAttributes)\w+|sqs:(?!GetQueueAttributes)\w+|states:(Stop|Start|Send)\w+|events:\w+|dynamodb:(Scan|DeleteTable|Batch\w+)|s3:Put\w+|secretsmanager:\w+"
)
MANAGED_POLICY_CHARACTERS = 6_144


def commands(group: Any, path: str = "") -> Iterator[str]:
    """Every command that can be typed."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}"


def deployed(templates: Template, name: str = POLICY_NAME) -> dict[str, Any]:
    policies = [r["Properties"] for i, r in templates.of_type("AWS::IAM::ManagedPolicy") if i.startswith("Operator")]
    [found] = [policy for policy in policies if name.format(region="") in json.dumps(policy["ManagedPolicyName"])]
    return dict(found)


def test_every_command_says_what_it_needs() -> None:
    assert set(commands(typer.main.get_command(app))) == set(COMMANDS) | OFFLINE | PAGES


@pytest.mark.parametrize("permission", every_permission(), ids=lambda permission: permission.why[:40])
def test_a_permission_names_its_actions_its_reason_and_its_resources(permission: Permission) -> None:
    assert permission.why
    assert not [action for action in permission.actions if "*" in action]
    assert "*" not in permission.resources or set(permission.actions) <= WITHOUT_RESOURCE | RECIPES | LOOKS


def test_two_permissions_never_share_a_reason() -> None:
    whys = {permission.why: permission for needed in COMMANDS.values() for permission in needed}

    assert all(whys[p.why] == p for needed in COMMANDS.values() for p in needed)


def test_nothing_in_it_acts_past_nodeheal() -> None:
    # Reading all heartbeats is how one finds those of a node; the table holds nothing else.
    scans = (READ_HEARTBEATS_OF_JOB, READ_HEARTBEATS_AND_MARK)
    assert {one.resources for one in scans} == {("{heartbeats}",)}
    actions = {action for one in every_permission() if one not in scans for action in one.actions}

    assert [action for action in sorted(actions) if NEVER.fullmatch(action)] == []


def test_what_looks_only_writes_nothing() -> None:
    looking = [name for name in COMMANDS if name.split()[-1] in ("list", "show", "export")]

    writes = re.compile(r":(Put|Update|Delete|Create|Start|Send|Add|Remove|Tag|Untag|Assume)\w*")
    found = [(name, p) for name in looking for p in COMMANDS[name] for a in p.actions if writes.search(a)]
    assert looking
    # IAM does not see what a document is asked for. These commands ask it for what it looks up.
    assert {name for name, p in found if p in ASK_CONTROLLER} == {"nodes list", "nodes show"}
    assert [name for name, p in found if p not in ASK_CONTROLLER] == []


def test_who_trains_may_not_send_what_drains_nodes() -> None:
    assert not [p for p in every_permission(JOB_COMMANDS) if {"ssm:SendCommand", "sts:AssumeRole"} & {*p.actions}]


@pytest.mark.parametrize("name", POLICIES)
def test_the_template_says_what_the_table_says(real: Template, name: str) -> None:
    policy = deployed(real, name)
    written = {(a, json.dumps(p.conditions) != "{}") for p in every_permission(POLICIES[name]) for a in p.actions}

    said = {(a, "Condition" in s) for s in policy["PolicyDocument"]["Statement"] for a in as_list(s["Action"])}

    assert said == written
    assert not {"Users", "Roles", "Groups"} & policy.keys()


@pytest.mark.parametrize("name", POLICIES)
def test_each_fits_into_one_policy_with_the_longest_names_in_place(real: Template, name: str) -> None:
    spelled = re.sub(r"\s", "", json.dumps(deployed(real, name)["PolicyDocument"]))
    # A reference takes more room in a template than its value in the policy: ARNs of 130 characters stand for them.
    joined = re.sub(r'\{"Fn::Join":\["",\[(.*?)\]\]\}', r'"\1"', spelled).replace('"Ref":', "").replace('","', "")

    assert len(joined) < MANAGED_POLICY_CHARACTERS


def test_nobody_calls_a_function_past_the_api() -> None:
    assert not [one for one in every_permission() if "lambda:InvokeFunction" in one.actions]


def test_each_act_is_permitted_by_a_route_of_its_own() -> None:
    routes = {r for one in every_permission() if one.actions == ("execute-api:Invoke",) for r in one.resources}

    assert {route.partition("/POST")[2] for route in routes} == {kind.path for kind in ActKind}
    assert not [route for route in routes if "*" in route]


def test_who_pauses_writes_the_pauses_and_nothing_else() -> None:
    for command in ("pause", "unpause"):
        [write] = [permission for permission in COMMANDS[command] if permission != READ]

        assert (write.actions, write.resources) == (("dynamodb:PutItem",), ("{table}",))
        assert write.conditions == only_keys(names.PAUSES_PK)


def test_who_trains_changes_nothing_but_by_the_acts_of_jobs() -> None:
    writes = re.compile(r":(Put|Update|Delete|Create|Register|Start|Stop|Send|Add|Remove|Tag|Untag|Pass|Invoke)\w*")

    acting = [one for one in every_permission(JOB_COMMANDS) for action in one.actions if writes.search(action)]

    assert {one.actions for one in acting} == {("execute-api:Invoke",)}
    assert {r.partition("/POST")[2] for one in acting for r in one.resources} == {
        kind.path for kind in (ActKind.SUBMIT_JOB, ActKind.STOP_JOB, ActKind.RESTART_JOB)
    }


def test_who_looks_changes_nothing() -> None:
    verbs = {action.partition(":")[2] for one in every_permission(VIEW_COMMANDS) for action in one.actions}

    assert {re.match("(Batch)?Get|List|Describe|Query|Scan", verb) is not None for verb in verbs} == {True}
