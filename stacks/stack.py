"""The stack `nodeheal`: everything that `cdk deploy` creates in an account and a Region."""

import aws_cdk as cdk
from constructs import Construct

from nodeheal.contract import names
from stacks.control import Control
from stacks.settings import Settings
from stacks.stages import stack_options
from stacks.state import State


class NodehealStack(cdk.Stack):
    """State, and what acts on it. One stack, so that one plain `cdk deploy` is enough."""

    def __init__(self, scope: Construct, settings: Settings) -> None:
        super().__init__(scope, names.STACK, **stack_options(settings))
        state = State(self, settings)
        control = Control(self, settings, state)
        for key, value in {**state.outputs(), **control.outputs()}.items():
            cdk.CfnOutput(self, key, value=value)
