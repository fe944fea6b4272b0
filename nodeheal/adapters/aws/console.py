"""Links into the AWS console, in whichever partition the account is."""

CONSOLES = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}
_COMMERCIAL = "console.aws.amazon.com"


def console_host(partition: str, region: str) -> str:
    """The Region's own console."""
    return f"{region}.{CONSOLES.get(partition, _COMMERCIAL)}"


def execution_arn(caller_arn: str, region: str, workflow: str, name: str) -> str:
    """The execution of a workflow in the account and partition of the caller, whose ARN this is."""
    _, partition, _, _, account, *_ = caller_arn.split(":")
    return f"arn:{partition}:states:{region}:{account}:execution:{workflow}:{name}"


def execution_url(arn: str) -> str:
    """Where the console shows this execution."""
    _, partition, _, region, *_ = arn.split(":")
    return f"https://{console_host(partition, region)}/states/home?region={region}#/v2/executions/details/{arn}"
