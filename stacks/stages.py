"""Defines what depends on the stage."""

import os
from typing import TypedDict

import aws_cdk as cdk

from stacks.settings import Settings

# Resources with history outlive their stack, but not a first deployment that is rolled back: otherwise the next
# deployment would fail because they exist.
KEPT_AFTER_ITS_STACK = cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE


class StackOptions(TypedDict):
    """Arguments of cdk.Stack."""

    synthesizer: cdk.IStackSynthesizer
    env: cdk.Environment


def stack_options(settings: Settings) -> StackOptions:
    """Return the target of the stack, and the credentials of the deployment."""
    # The embedded cloud refuses the roles of a bootstrap; the CLI's own credentials work.
    synthesizer = cdk.CliCredentialsStackSynthesizer() if settings.is_sandbox else cdk.DefaultStackSynthesizer()
    # The CLI gives the account of its credentials. Without credentials the template is for any account and Region.
    account = settings.account or os.environ.get("CDK_DEFAULT_ACCOUNT")
    region = settings.region or os.environ.get("CDK_DEFAULT_REGION")
    return StackOptions(synthesizer=synthesizer, env=cdk.Environment(account=account, region=region))
