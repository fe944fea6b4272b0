"""What every stack gets from its stage."""

from typing import TypedDict

import aws_cdk as cdk

from stacks.settings import Settings


class StackOptions(TypedDict):
    """Arguments of cdk.Stack."""

    synthesizer: cdk.IStackSynthesizer
    env: cdk.Environment


def stack_options(settings: Settings) -> StackOptions:
    """Where a stack goes, and with whose credentials."""
    # The embedded cloud refuses the roles that a bootstrap makes; the CLI's own credentials work.
    synthesizer = cdk.CliCredentialsStackSynthesizer() if settings.is_sandbox else cdk.DefaultStackSynthesizer()
    return StackOptions(synthesizer=synthesizer, env=cdk.Environment(account=settings.account, region=settings.region))
