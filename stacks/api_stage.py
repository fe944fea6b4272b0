"""The stage of an HTTP API: its bounds, and its log without a query."""

import json
from collections.abc import Mapping

import aws_cdk as cdk
import jsii
from aws_cdk import aws_apigateway as rest_apigateway
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_logs as logs
from constructs import Construct

DEFAULT_STAGE = "$default"
# CloudWatch Logs lists each log group that a service writes in one resource policy of 5,120 characters a Region, but
# one entry stands for all groups under this prefix.
LOG_GROUP = "/aws/vendedlogs/nodeheal/{name}"
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

    def __init__(self, log: logs.ILogGroup, fields: Mapping[str, str]) -> None:
        self._log, self._fields = log, fields

    @property
    def destination(self) -> apigateway.IAccessLogDestination:
        """Return the log group."""
        return apigateway.LogGroupLogDestination(self._log)

    @property
    def format(self) -> rest_apigateway.AccessLogFormat:
        """Return one JSON object for each request."""
        return rest_apigateway.AccessLogFormat.custom(json.dumps({**_LOGGED, **self._fields}))


def default_stage(
    scope: Construct,
    api: apigateway.HttpApi,
    name: str,
    keep_logs: logs.RetentionDays,
    bounds: apigateway.ThrottleSettings,
    **fields: str,
) -> apigateway.HttpStage:
    """Create the stage of an API, with its log. `fields`: what a line has beside when, whence, what and its status."""
    log = logs.LogGroup(
        scope,
        "Log",
        log_group_name=LOG_GROUP.format(name=name),
        retention=keep_logs,
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    return apigateway.HttpStage(
        scope,
        "Stage",
        http_api=api,
        stage_name=DEFAULT_STAGE,
        auto_deploy=True,
        throttle=bounds,
        # The construct checks the format, as the service does.
        access_log_settings=_AccessLog(log, fields),
    )
