"""The console that a team signs in to: a user pool, a role for each group of people, and a function that assumes them.

Nothing of it is created unless the settings name a domain. See docs/adr/0100-a-console-that-people-sign-in-to.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from nodeheal.console.roles import Role
from nodeheal.contract import names
from stacks.api_stage import default_stage
from stacks.functions import FunctionSpec
from stacks.nag import accept, accept_wildcards
from stacks.operator import JOBS_POLICY_NAME, POLICY_NAME, VIEWER_POLICY_NAME
from stacks.permission import Permission
from stacks.settings import ConsoleSetting

# An open page asks every two seconds: 25 people with two pages each. If each answer took the 30 s that API Gateway
# waits, that would be 750 of the account's 1,000 concurrent executions, which recoveries need as well.
BOUNDS = apigateway.ThrottleSettings(rate_limit=25, burst_limit=50)
SESSION_HOURS = 8  # a shift; nothing ends a signed token before its time
# What a person of each role may do at AWS: the policies of the commands, and no others.
POLICIES_OF: Mapping[Role, tuple[str, ...]] = {
    Role.viewer: (VIEWER_POLICY_NAME,),
    Role.researcher: (VIEWER_POLICY_NAME, JOBS_POLICY_NAME),
    Role.operator: (POLICY_NAME, JOBS_POLICY_NAME),
}
_GROUPS: Mapping[Role, str] = {
    Role.viewer: "look at nodes, incidents and jobs",
    Role.researcher: "look, and submit, stop and restart jobs",
    Role.operator: "look, and have every act done",
}
_ROLE_ARN = "arn:{partition}:iam::{account}:role/" + names.CONSOLE_ROLE
SPEC = FunctionSpec(
    "console",
    (
        Permission(
            "act as a person who has signed in, in the role of their group",
            ("sts:AssumeRole",),
            tuple(_ROLE_ARN.replace("{role}", role.value) for role in Role),
        ),
        Permission(
            "read the secret of its own client of the user pool",
            ("cognito-idp:DescribeUserPoolClient",),
            ("{console_pool}",),
        ),
    ),
    state=(),
    memory_mb=1_024,  # a person waits for it
)


@dataclass(frozen=True)
class Around:
    """What the console needs of the stack around it."""

    code: lambda_.Code
    architecture: lambda_.Architecture
    table: str
    acts_url: str
    policies: Mapping[str, iam.IManagedPolicy]  # by the name that stacks/operator.py gives them
    places: Mapping[str, str]
    keep_logs: logs.RetentionDays


class Console(Construct):
    """Public by design, as a page is: its function asks each request for the session of a person."""

    def __init__(self, scope: Construct, setting: ConsoleSetting, around: Around) -> None:
        super().__init__(scope, "Console")
        self._around = around
        self._api = apigateway.HttpApi(
            self, "Api", api_name="nodeheal-console", description="pages for people", create_default_stage=False
        )
        self.url = self._api.api_endpoint
        self._pool = self._user_pool(setting)
        domain = self._pool.add_domain(
            "Domain",
            cognito_domain=cognito.CognitoDomainOptions(domain_prefix=setting.domain_prefix),
            managed_login_version=cognito.ManagedLoginVersion.NEWER_MANAGED_LOGIN,
        )
        client = self._client()
        function_role = self._function_role()
        for role in Role:
            self._role(role, function_role)
        self._serve(self._function(function_role, client.ref, domain.base_url()))

    def outputs(self) -> dict[str, str]:
        """Return the stack's outputs for people, by name."""
        return {"ConsoleUrl": self.url, "ConsoleUserPoolId": self._pool.user_pool_id}

    def _user_pool(self, setting: ConsoleSetting) -> cognito.UserPool:
        is_required = setting.mfa == "required"
        pool = cognito.UserPool(
            self,
            "Pool",
            user_pool_name="nodeheal-console",
            self_sign_up_enabled=False,
            sign_in_aliases=cognito.SignInAliases(username=True),
            sign_in_case_sensitive=False,
            feature_plan=cognito.FeaturePlan.ESSENTIALS,  # managed login needs it
            mfa=cognito.Mfa.REQUIRED if is_required else cognito.Mfa.OPTIONAL,
            mfa_second_factor=cognito.MfaSecondFactor(sms=False, otp=True),
            password_policy=cognito.PasswordPolicy(
                min_length=14,
                require_digits=True,
                require_lowercase=True,
                require_symbols=True,
                require_uppercase=True,
                temp_password_validity=cdk.Duration.days(3),
            ),
            account_recovery=cognito.AccountRecovery.NONE,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        why = "threat protection costs for each person; passwords have 14 characters here, and there is a second factor"
        accept(pool, "AwsSolutions-COG8", why)
        if not is_required:
            accept(pool, "AwsSolutions-COG2", "the settings make the second factor optional")
        for precedence, role in enumerate(reversed(Role)):
            cognito.CfnUserPoolGroup(
                self,
                f"{role.value.title()}Group",
                user_pool_id=pool.user_pool_id,
                group_name=role.value,
                description=_GROUPS[role],
                precedence=precedence,
            )
        return pool

    def _client(self) -> cognito.CfnUserPoolClient:
        """Create the console's client, which takes codes and nothing else."""
        client = cognito.CfnUserPoolClient(
            self,
            "Client",
            user_pool_id=self._pool.user_pool_id,
            client_name="console",
            generate_secret=True,
            allowed_o_auth_flows=["code"],
            allowed_o_auth_flows_user_pool_client=True,
            allowed_o_auth_scopes=["openid"],
            callback_ur_ls=[f"{self.url}/signed-in"],
            logout_ur_ls=[f"{self.url}/signed-out"],
            supported_identity_providers=["COGNITO"],
            explicit_auth_flows=["ALLOW_REFRESH_TOKEN_AUTH"],  # no password but at the managed login
            prevent_user_existence_errors="ENABLED",
            read_attributes=["email"],  # the token is a cookie, which has 4,096 characters
            id_token_validity=SESSION_HOURS,
            # The console uses neither of them. No token may outlive the refresh token, by the rules of Cognito.
            access_token_validity=5,
            refresh_token_validity=SESSION_HOURS,
            token_validity_units=cognito.CfnUserPoolClient.TokenValidityUnitsProperty(
                id_token="hours", access_token="minutes", refresh_token="hours"
            ),
        )
        cognito.CfnManagedLoginBranding(
            self,
            "Branding",
            user_pool_id=self._pool.user_pool_id,
            client_id=client.ref,
            use_cognito_provided_values=True,
        )
        return client

    def _function_role(self) -> iam.Role:
        places = {**self._around.places, "console_pool": self._pool.user_pool_arn}
        role = iam.Role(
            self,
            "FunctionRole",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            inline_policies={
                "may": iam.PolicyDocument(statements=[p.statement(places) for p in SPEC.every_permission])
            },
        )
        accept_wildcards(role, SPEC.every_permission, places)
        return role

    def _role(self, role: Role, function_role: iam.Role) -> None:
        """Create the role of a group. It trusts the console's function, which names each session after its person."""
        iam.Role(
            self,
            f"{role.value.title()}Role",
            role_name=names.CONSOLE_ROLE.format(role=role.value, region=cdk.Aws.REGION),
            description=f"Of those who are {role.value}s at the console",
            assumed_by=iam.ArnPrincipal(function_role.role_arn),
            managed_policies=[self._around.policies[name] for name in POLICIES_OF[role]],
        )

    def _function(self, role: iam.Role, client_id: str, login: str) -> lambda_.Function:
        around = self._around
        log_group = logs.LogGroup(
            self,
            "FunctionLog",
            log_group_name=SPEC.log_group,
            retention=around.keep_logs,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        function = lambda_.Function(
            self,
            "Function",
            function_name=SPEC.deployed_name,
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=around.architecture,
            code=around.code,
            handler=f"{SPEC.module}.handler",
            role=role,
            log_group=log_group,
            timeout=cdk.Duration.seconds(SPEC.timeout_seconds),
            memory_size=SPEC.memory_mb,
            environment={
                names.ENV_TABLE: around.table,
                names.ACTS_URL_VARIABLE: around.acts_url,
                names.CONSOLE_URL_VARIABLE: self.url,
                names.CONSOLE_POOL_VARIABLE: self._pool.user_pool_id,
                names.CONSOLE_ISSUER_VARIABLE: self._pool.user_pool_provider_url,
                names.CONSOLE_LOGIN_VARIABLE: login,
                names.CONSOLE_CLIENT_VARIABLE: client_id,
                names.CONSOLE_ROLES_VARIABLE: _ROLE_ARN.replace("{role}", "{{role}}").format_map(around.places),
            },
        )
        accept(
            function, "AwsSolutions-L1", "3.13 is the runtime that the bundle is built for; all functions move at once"
        )
        return function

    def _serve(self, function: lambda_.Function) -> None:
        default_stage(self, self._api, "console-api", self._around.keep_logs, BOUNDS)
        route = apigateway.HttpRoute(
            self,
            "Route",
            http_api=self._api,
            integration=integrations.HttpLambdaIntegration("Pages", function),
            route_key=apigateway.HttpRouteKey.DEFAULT,
        )
        accept(route, "AwsSolutions-APIG4", "the function asks each request for the session of a person")
