"""The small API behind the links of approval emails: one path, GET shows a page, POST decides."""

import json

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.nag import accept

PATH = "/approval"
# A person clicks twice; whoever tries signatures gets nowhere, and costs next to nothing.
REQUESTS_A_SECOND, BURST = 5, 10
# Not the query: a signature in a log would be a permission in a log.
_LOGGED = {
    "at": "$context.requestTime",
    "from": "$context.identity.sourceIp",
    "method": "$context.httpMethod",
    "path": "$context.path",
    "status": "$context.status",
}


class ApprovalApi(Construct):
    """Public by its nature: the signature in the link is the permission."""

    def __init__(self, scope: Construct, function: lambda_.IFunction, keep_logs: logs.RetentionDays) -> None:
        super().__init__(scope, "Approval")
        api = apigateway.HttpApi(
            self, "Api", api_name="nodeheal-approval", description="approve or refuse", create_default_stage=False
        )
        log = logs.LogGroup(
            self,
            "Log",
            log_group_name="/nodeheal/approval-api",
            retention=keep_logs,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        stage = apigateway.HttpStage(
            self,
            "Stage",
            http_api=api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigateway.ThrottleSettings(rate_limit=REQUESTS_A_SECOND, burst_limit=BURST),
        )
        resource = stage.node.default_child
        if isinstance(resource, apigateway.CfnStage):
            resource.access_log_settings = apigateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=log.log_group_arn, format=json.dumps(_LOGGED)
            )
        routes = api.add_routes(
            path=PATH,
            methods=[apigateway.HttpMethod.GET, apigateway.HttpMethod.POST],
            integration=integrations.HttpLambdaIntegration("Answer", function),
        )
        for route in routes:
            accept(route, "AwsSolutions-APIG4", "the signature in the link is the permission; people have no other")
        self.url = f"{stage.url.rstrip('/')}{PATH}"
