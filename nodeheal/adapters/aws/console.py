"""Creates links into the AWS console, for the account's partition."""

from nodeheal.domain.review.console_links import console_host, execution_url

__all__ = ["console_host", "execution_arn", "execution_url"]


def execution_arn(caller_arn: str, region: str, workflow: str, name: str) -> str:
    """Return the ARN of a workflow's execution in the account and partition of the caller's ARN."""
    _, partition, _, _, account, *_ = caller_arn.split(":")
    return f"arn:{partition}:states:{region}:{account}:execution:{workflow}:{name}"
