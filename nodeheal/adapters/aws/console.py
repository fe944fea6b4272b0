"""Creates links into the AWS console, for the account's partition."""

import os

from nodeheal.domain.review.console_links import console_host, dashboard_url, execution_url

__all__ = ["console_host", "dashboard_url", "execution_arn", "execution_url", "has_console"]


def has_console() -> bool:
    """Whether AWS's console shows this account: not one behind an endpoint of one's own, such as the sandbox."""
    return "AWS_ENDPOINT_URL" not in os.environ


def execution_arn(caller_arn: str, region: str, workflow: str, name: str) -> str:
    """Return the ARN of a workflow's execution in the account and partition of the caller's ARN."""
    _, partition, _, _, account, *_ = caller_arn.split(":")
    return f"arn:{partition}:states:{region}:{account}:execution:{workflow}:{name}"
