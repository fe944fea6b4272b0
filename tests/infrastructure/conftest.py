"""The templates, synthesized once in each process of pytest: the CDK's Node takes seconds to start."""

import os

import pytest

# The CDK's own template rules cost seconds a synthesis; cfn-lint and the gates' test check more.
os.environ["CDK_VALIDATION"] = "false"

from tests.infrastructure.synthesis import Template, synthesize


@pytest.fixture(scope="session")
def real() -> Template:
    """What a user deploys, with one address to alert."""
    return synthesize({"nodeheal": {"alert_emails": ["oncall@example.com"]}})


@pytest.fixture(scope="session")
def sandbox() -> Template:
    """What goes into the embedded cloud."""
    return synthesize({"stage": "sandbox", "nodeheal": {"alert_emails": ["oncall@example.com"]}})
