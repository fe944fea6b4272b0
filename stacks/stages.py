"""What the stack gets from its stage."""

import os
from typing import TypedDict

import aws_cdk as cdk

from stacks.settings import Settings

# What holds history outlives its stack, but not a first deployment that is rolled back: the next try would stop at it.
KEPT_AFTER_ITS_STACK = cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE


class StackOptions(TypedDict):
    """Arguments of cdk.Stack."""

    synthesizer: cdk.IStackSynthesizer
    env: cdk.Environment


def stack_options(settings: Settings) -> StackOptions:
    """Where the stack goes, and with whose credentials."""
    # The embedded cloud refuses the roles that a bootstrap makes; the CLI's own credentials work.
    synthesizer = cdk.CliCredentialsStackSynthesizer() if settings.is_sandbox else cdk.DefaultStackSynthesizer()
    # The CLI says whose credentials it has. Without credentials the template is for any account and Region.
    account = settings.account or os.environ.get("CDK_DEFAULT_ACCOUNT")
    region = settings.region or os.environ.get("CDK_DEFAULT_REGION")
    return StackOptions(synthesizer=synthesizer, env=cdk.Environment(account=account, region=region))
