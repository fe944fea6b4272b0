"""The API by which people act: a route for each act, which IAM permits by itself, and which names its caller."""

from collections.abc import Mapping

from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from nodeheal.contract.vocabulary import ActKind
from stacks.api_stage import DEFAULT_STAGE, default_stage
from stacks.permission import Permission

# A person acts seldom, and so does a script: a sweep of a pool waits for each node.
BOUNDS = apigateway.ThrottleSettings(rate_limit=20, burst_limit=40)
# The function of each act. What those of jobs and of a reconciliation may do, no other needs.
FUNCTION_OF: Mapping[ActKind, str] = {
    **dict.fromkeys(ActKind, "do_act"),
    ActKind.SUBMIT_JOB: "request_job",
    ActKind.STOP_JOB: "request_job",
    ActKind.RESTART_JOB: "request_job",
    ActKind.RECONCILE: "reconcile_records",
}


def permit(why: str, *acts: ActKind) -> Permission:
    """Return the permission of a person to have these acts done."""
    api = "arn:{partition}:execute-api:{region}:{account}:{acts_api}"
    return Permission(why, ("execute-api:Invoke",), tuple(f"{api}/{DEFAULT_STAGE}/POST{act.path}" for act in acts))


class ActsApi(Construct):
    """For callers that AWS authenticates. An output of the stack tells the command where it is."""

    def __init__(
        self, scope: Construct, functions: Mapping[str, lambda_.IFunction], keep_logs: logs.RetentionDays
    ) -> None:
        super().__init__(scope, "Acts")
        api = apigateway.HttpApi(
            self, "Api", api_name="nodeheal-acts", description="what people do by hand", create_default_stage=False
        )
        stage = default_stage(self, api, "acts-api", keep_logs, BOUNDS, caller="$context.identity.userArn")
        targets = {stem: integrations.HttpLambdaIntegration(stem, functions[stem]) for stem in {*FUNCTION_OF.values()}}
        for act, stem in FUNCTION_OF.items():
            api.add_routes(
                path=act.path,
                methods=[apigateway.HttpMethod.POST],
                integration=targets[stem],
                authorizer=authorizers.HttpIamAuthorizer(),
            )
        self.api_id = api.api_id
        self.url = stage.url.rstrip("/")
