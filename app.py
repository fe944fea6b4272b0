#!/usr/bin/env python3
"""The CDK app. `cdk deploy` deploys the real stage; `-c stage=sandbox` is for the embedded cloud."""

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from stacks.settings import SettingsError, load_settings
from stacks.stack import NodehealStack


def main() -> None:
    """Synthesize the stack. A bad setting ends it with one line that names the key."""
    app = cdk.App()
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    try:
        settings = load_settings(app.node)
    except SettingsError as error:
        raise SystemExit(f"nodeheal: {error}") from None
    NodehealStack(app, settings)
    app.synth()


if __name__ == "__main__":
    main()
