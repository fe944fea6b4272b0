"""The console that people sign in to: nothing of it unless it is wanted, and then least privilege."""

import json
from typing import Any

import pytest

from nodeheal.console.roles import ACTS_OF_ROLE, OwnAct, Role
from nodeheal.contract.vocabulary import ActKind
from stacks.console import POLICIES_OF, SPEC
from stacks.operator import CHANGE_POLICY, DRILL, POLICIES, every_permission
from stacks.settings import Settings
from tests.infrastructure.filled import Place, filled, properties
from tests.infrastructure.iam_statements import as_list
from tests.infrastructure.synthesis import Template, role_named, synthesize

HERE = Place()
PREFIX = "acme-nodeheal"
EMAILS = {"alert_emails": ["oncall@example.com"]}
FUNCTION_ROLE = "ConsoleFunctionRole"
# What a role may reach beside its managed policies: nothing.
FUNCTION_MAY = {"logs:CreateLogStream", "logs:PutLogEvents", "sts:AssumeRole", "cognito-idp:DescribeUserPoolClient"}


@pytest.fixture(scope="module")
def on() -> Template:
    return synthesize({"nodeheal": {**EMAILS, "console": {"domain_prefix": PREFIX}}})


def only(template: Template, kind: str, name: str = "Console") -> dict[str, Any]:
    [logical_id] = [i for i, _ in template.of_type(kind) if i.startswith(name)]
    return properties(template, logical_id, HERE)


def test_without_the_setting_nothing_of_it_is_created(real: Template) -> None:
    assert Settings().console is None
    for word in ("Cognito", "nodeheal-console", "ConsoleUrl", "NODEHEAL_CONSOLE"):
        assert word not in json.dumps(real.body)
    assert synthesize({"nodeheal": {**EMAILS, "console": None}}).body == real.body


def test_with_it_the_rest_of_the_stack_stays_as_it_is(real: Template, on: Template) -> None:
    functions = [name for name, _ in real.of_type("AWS::Lambda::Function") if name.endswith("Function", 0, -8)]
    changed = [name for name, resource in real.resources.items() if on.resources[name] != resource]

    # The links of messages lead to the console; and an error of the console's function is on the dashboard.
    assert [name for name in changed if not name.startswith("Dashboard")] == functions
    added = {name for name in on.resources if name not in real.resources}
    assert {name[: len("Console")] for name in added} == {"Console"}
    url = {"Fn::GetAtt": [next(i for i, _ in on.of_type("AWS::ApiGatewayV2::Api") if "Console" in i), "ApiEndpoint"]}
    for name in functions:
        assert on.resources[name]["Properties"]["Environment"]["Variables"]["NODEHEAL_CONSOLE_URL"] == url


def test_the_function_may_assume_the_three_roles_and_nothing_else(on: Template) -> None:
    role = only(on, "AWS::IAM::Role", FUNCTION_ROLE)
    [policy] = role["Policies"]
    statements = policy["PolicyDocument"]["Statement"]
    assumed = [s for s in statements if "sts:AssumeRole" in as_list(s["Action"])]

    assert "ManagedPolicyArns" not in role
    assert {action for s in statements for action in as_list(s["Action"])} == FUNCTION_MAY
    assert [as_list(s["Resource"]) for s in assumed] == [
        [f"arn:aws:iam::{HERE.account}:role/nodeheal-console-{role}-{HERE.region}" for role in Role]
    ]
    wild = [on for s in statements for on in as_list(s["Resource"]) if "*" in on]
    assert wild == [f"arn:aws:logs:{HERE.region}:{HERE.account}:log-group:/nodeheal/console:*"]
    assert [i for i, r in on.of_type("AWS::IAM::Policy") if "Console" in i] == []


@pytest.mark.parametrize("role", Role)
def test_a_role_trusts_the_function_alone_and_has_the_policies_of_its_commands(on: Template, role: Role) -> None:
    deployed = filled(role_named(on, f"nodeheal-console-{role}-{{region}}"), on, HERE)
    of_function = only(on, "AWS::Lambda::Function")["Role"]

    assert deployed["AssumeRolePolicyDocument"]["Statement"] == [
        {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"AWS": of_function}}
    ]
    policies = [f"arn:aws:iam::{HERE.account}:policy/{name.format(region=HERE.region)}" for name in POLICIES_OF[role]]
    assert deployed["ManagedPolicyArns"] == policies
    assert "Policies" not in deployed
    assert "PermissionsBoundary" not in deployed


@pytest.mark.parametrize("role", Role)
def test_the_table_of_deeds_says_what_iam_permits_each_role(role: Role) -> None:
    permissions = [each for name in POLICIES_OF[role] for each in every_permission(POLICIES[name])]
    routes = {
        where.rpartition("/POST")[2] for each in permissions for where in each.resources if "execute-api" in where
    }
    acts = {kind for kind in ActKind if kind.path in routes}
    needed = {OwnAct.DRILL: DRILL, OwnAct.POLICY: CHANGE_POLICY}
    own = {act for act, all_of in needed.items() if all(each in permissions for each in all_of)}

    assert ACTS_OF_ROLE[role] == acts | own


def test_people_sign_in_by_a_code_with_a_secret_and_come_back_to_this_console_only(on: Template) -> None:
    client = on.resources[next(i for i, _ in on.of_type("AWS::Cognito::UserPoolClient"))]["Properties"]
    api = {"Fn::GetAtt": [next(i for i, _ in on.of_type("AWS::ApiGatewayV2::Api") if "Console" in i), "ApiEndpoint"]}

    assert client["GenerateSecret"] is True
    assert (client["AllowedOAuthFlows"], client["AllowedOAuthScopes"]) == (["code"], ["openid"])
    assert client["CallbackURLs"] == [{"Fn::Join": ["", [api, "/signed-in"]]}]
    assert client["LogoutURLs"] == [{"Fn::Join": ["", [api, "/signed-out"]]}]
    assert client["ExplicitAuthFlows"] == ["ALLOW_REFRESH_TOKEN_AUTH"]
    assert client["PreventUserExistenceErrors"] == "ENABLED"
    assert (client["IdTokenValidity"], client["TokenValidityUnits"]["IdToken"]) == (8, "hours")
    # Cognito refuses a token that would outlive the refresh token.
    assert (client["RefreshTokenValidity"], client["TokenValidityUnits"]["RefreshToken"]) == (8, "hours")
    assert "Secret" not in json.dumps(only(on, "AWS::Lambda::Function")["Environment"])


def test_nobody_signs_up_by_themselves_and_passwords_are_long(on: Template) -> None:
    pool = only(on, "AWS::Cognito::UserPool")
    optional = synthesize({"nodeheal": {"console": {"domain_prefix": PREFIX, "mfa": "optional"}}})

    assert pool["AdminCreateUserConfig"] == {"AllowAdminCreateUserOnly": True}
    assert pool["Policies"]["PasswordPolicy"]["MinimumLength"] == 14
    assert (pool["MfaConfiguration"], pool["EnabledMfas"]) == ("ON", ["SOFTWARE_TOKEN_MFA"])
    assert only(optional, "AWS::Cognito::UserPool")["MfaConfiguration"] == "OPTIONAL"
    groups = [r["Properties"] for _, r in on.of_type("AWS::Cognito::UserPoolGroup")]
    assert {group["GroupName"] for group in groups} == set(Role)
    assert [group for group in groups if "RoleArn" in group] == []


def test_its_requests_are_bounded_and_its_logs_are_kept_as_long_as_the_others(on: Template) -> None:
    [stage] = [r["Properties"] for i, r in on.of_type("AWS::ApiGatewayV2::Stage") if i.startswith("Console")]
    logs = [r["Properties"] for i, r in on.of_type("AWS::Logs::LogGroup") if i.startswith("Console")]

    assert stage["DefaultRouteSettings"] == {"ThrottlingBurstLimit": 50, "ThrottlingRateLimit": 25}
    assert "query" not in stage["AccessLogSettings"]["Format"].lower()  # a code would stand in it
    assert {log["LogGroupName"]: log["RetentionInDays"] for log in logs} == {
        SPEC.log_group: 90,
        "/aws/vendedlogs/nodeheal/console-api": 90,
    }
    assert "nodeheal-ConsoleErrors" in json.dumps(on.body)


def test_its_function_has_a_bundle_of_its_own(on: Template) -> None:
    function = only(on, "AWS::Lambda::Function")

    assert function["Handler"] == "lambdas.console.handler"
    bundles = [r["Properties"]["Code"]["S3Key"] for _, r in on.of_type("AWS::Lambda::Function")]
    assert bundles.count(function["Code"]["S3Key"]) == 1
    assert len(set(bundles)) == 2
