"""The API behind the links of approval emails: one path, GET shows a page, POST decides."""

from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.api_stage import default_stage
from stacks.nag import accept

PATH = "/approval"
# A person clicks twice; an attacker who tries signatures gets nowhere, and costs next to nothing.
REQUESTS_A_SECOND, BURST = 5, 10


class ApprovalApi(Construct):
    """Public by design: the signature in the link is the permission."""

    def __init__(self, scope: Construct, function: lambda_.IFunction, keep_logs: logs.RetentionDays) -> None:
        super().__init__(scope, "Approval")
        api = apigateway.HttpApi(
            self, "Api", api_name="nodeheal-approval", description="approve or refuse", create_default_stage=False
        )
        stage = default_stage(
            self,
            api,
            "approval-api",
            keep_logs,
            apigateway.ThrottleSettings(rate_limit=REQUESTS_A_SECOND, burst_limit=BURST),
        )
        routes = api.add_routes(
            path=PATH,
            methods=[apigateway.HttpMethod.GET, apigateway.HttpMethod.POST],
            integration=integrations.HttpLambdaIntegration("Answer", function),
        )
        for route in routes:
            accept(route, "AwsSolutions-APIG4", "the signature in the link is the permission; people have no other")
        self.url = f"{stage.url.rstrip('/')}{PATH}"
