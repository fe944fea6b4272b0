"""The API behind the links of approval emails: one path, GET shows a page, POST decides."""

import json

import aws_cdk as cdk
import jsii
from aws_cdk import aws_apigateway as rest_apigateway
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.nag import accept

PATH = "/approval"
# A person clicks twice; an attacker who tries signatures gets nowhere, and costs next to nothing.
REQUESTS_A_SECOND, BURST = 5, 10
# CloudWatch Logs lists each log group that a service writes in one resource policy of 5,120 characters a Region, but
# one entry stands for all groups under this prefix.
LOG_GROUP = "/aws/vendedlogs/nodeheal/approval-api"
# API Gateway refuses a format without the request id. The query is omitted: a signature in a log would be a permission
# in a log.
_LOGGED = {
    "request": "$context.requestId",
    "at": "$context.requestTime",
    "from": "$context.identity.sourceIp",
    "method": "$context.httpMethod",
    "path": "$context.path",
    "status": "$context.status",
}


@jsii.implements(apigateway.IAccessLogSettings)
class _AccessLog:
    """Where and how the stage logs its requests."""

    def __init__(self, log: logs.ILogGroup) -> None:
        self._log = log

    @property
    def destination(self) -> apigateway.IAccessLogDestination:
        """Return the log group."""
        return apigateway.LogGroupLogDestination(self._log)

    @property
    def format(self) -> rest_apigateway.AccessLogFormat:
        """Return one JSON object for each request."""
        return rest_apigateway.AccessLogFormat.custom(json.dumps(_LOGGED))


class ApprovalApi(Construct):
    """Public by design: the signature in the link is the permission."""

    def __init__(self, scope: Construct, function: lambda_.IFunction, keep_logs: logs.RetentionDays) -> None:
        super().__init__(scope, "Approval")
        api = apigateway.HttpApi(
            self, "Api", api_name="nodeheal-approval", description="approve or refuse", create_default_stage=False
        )
        log = logs.LogGroup(
            self,
            "Log",
            log_group_name=LOG_GROUP,
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
            # The construct checks the format, as the service does.
            access_log_settings=_AccessLog(log),
        )
        routes = api.add_routes(
            path=PATH,
            methods=[apigateway.HttpMethod.GET, apigateway.HttpMethod.POST],
            integration=integrations.HttpLambdaIntegration("Answer", function),
        )
        for route in routes:
            accept(route, "AwsSolutions-APIG4", "the signature in the link is the permission; people have no other")
        self.url = f"{stage.url.rstrip('/')}{PATH}"
