"""The operator's policy: a permission for each command, none that acts past nodeheal, and it fits into one policy."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from nodeheal.cli.main import app
from stacks.operator import COMMANDS, POLICY_NAME, every_permission
from stacks.permission import READ_BEATS, Permission
from tests.infrastructure.synthesis import Templates
from tests.infrastructure.test_permissions import WITHOUT_RESOURCE, as_list

# They ask nobody: files in, text out.
OFFLINE = {"version", "explain", "classify", "replay", "policy check", "policy diff"}
OFFLINE |= {f"parse {tool}" for tool in ("dcgm-diag", "dcgm-health", "nvidia-smi", "neuron", "efa")}
LISTS = {"appconfig:ListApplications", "appconfig:ListDeploymentStrategies"}
# What only the functions do, with their budgets and their record.
NEVER = re.compile(
    r"ecs:(Stop|Start|Run)\w*|ec2:(Reboot|Terminate|Run|Stop)\w*|autoscaling:\w+|iam:\w+|lambda:\w+|sns:(?!Subscribe)\w+|sqs:\w+"
    r"|states:(Start|Stop)\w+|dynamodb:(Scan|DeleteTable|Batch\w+)|s3:Put\w+|secretsmanager:\w+"
)
MANAGED_POLICY_CHARACTERS = 6_144


def commands(group: Any, path: str = "") -> Iterator[str]:
    """Every command that can be typed."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}"


def deployed(templates: Templates) -> dict[str, Any]:
    [policy] = [r["Properties"] for i, r in templates.of_type("AWS::IAM::ManagedPolicy") if i.startswith("Operator")]
    found: dict[str, Any] = policy
    return found


def test_every_command_says_what_it_needs() -> None:
    assert set(commands(typer.main.get_command(app))) == set(COMMANDS) | OFFLINE


@pytest.mark.parametrize("permission", every_permission(), ids=lambda permission: permission.why[:40])
def test_a_permission_names_its_actions_its_reason_and_its_resources(permission: Permission) -> None:
    assert permission.why
    assert not [action for action in permission.actions if "*" in action]
    assert "*" not in permission.resources or set(permission.actions) <= WITHOUT_RESOURCE | LISTS


def test_two_permissions_never_share_a_reason() -> None:
    whys = {permission.why: permission for needed in COMMANDS.values() for permission in needed}

    assert all(whys[p.why] == p for needed in COMMANDS.values() for p in needed)


def test_nothing_in_it_acts_past_nodeheal() -> None:
    # Reading all signs of life is how one finds those of a node; the table holds nothing else.
    assert READ_BEATS.resources == ("{heartbeats}",)
    actions = {action for one in every_permission() if one is not READ_BEATS for action in one.actions}

    assert [action for action in sorted(actions) if NEVER.fullmatch(action)] == []


def test_what_looks_only_writes_nothing() -> None:
    looking = [name for name in COMMANDS if name.split()[-1] in ("list", "show", "export")]

    writes = re.compile(r":(Put|Update|Delete|Create|Start|Send|Add|Remove|Tag|Untag)\w*")
    assert looking
    assert not [a for name in looking for p in COMMANDS[name] for a in p.actions if writes.search(a)]


def test_the_template_says_what_the_table_says(real: Templates) -> None:
    policy = deployed(real)
    written = {(a, json.dumps(p.conditions) != "{}") for p in every_permission() for a in p.actions}

    said = {(a, "Condition" in s) for s in policy["PolicyDocument"]["Statement"] for a in as_list(s["Action"])}

    assert said == written
    assert policy["ManagedPolicyName"] == POLICY_NAME
    assert not {"Users", "Roles", "Groups"} & policy.keys()


def test_it_fits_into_one_policy_with_the_longest_names_in_place(real: Templates) -> None:
    spelled = re.sub(r"\s", "", json.dumps(deployed(real)["PolicyDocument"]))
    # A reference takes more room in a template than its value in the policy: ARNs of 130 characters stand for them.
    joined = re.sub(r'\{"Fn::Join":\["",\[(.*?)\]\]\}', r'"\1"', spelled).replace('"Ref":', "").replace('","', "")

    assert len(joined) < MANAGED_POLICY_CHARACTERS
