"""The app of app.py with one resource more, which fails after everything else is made: a rehearsal of a roll-back."""

import aws_cdk as cdk

from stacks.settings import load_settings
from stacks.stack import NodehealStack


def main() -> None:
    """Synthesize the stack."""
    app = cdk.App()
    stack = NodehealStack(app, load_settings(app.node))
    made = [construct for construct in stack.node.find_all() if isinstance(construct, cdk.CfnResource)]
    handle = cdk.CfnWaitConditionHandle(stack, "Handle")
    # Nobody signals it.
    waits = cdk.CfnWaitCondition(stack, "NeverSignalled", handle=handle.ref, timeout="1")
    waits.node.add_dependency(*made)
    app.synth()


if __name__ == "__main__":
    main()
