"""The templates, synthesized once. All tests here run in one worker: the CDK's Node takes seconds to start."""

import os

import pytest

# The CDK's own template rules cost seconds a synthesis; cfn-lint and the gates' test check more.
os.environ["CDK_VALIDATION"] = "false"

from tests.infrastructure.synthesis import Templates, synthesize


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep this folder's tests together."""
    for item in items:
        if "tests/infrastructure/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("synthesis"))


@pytest.fixture(scope="session")
def real() -> Templates:
    """What a user deploys, with one address to alert."""
    return synthesize({"nodeheal": {"alert_emails": ["oncall@example.com"]}})


@pytest.fixture(scope="session")
def sandbox() -> Templates:
    """What goes into the embedded cloud."""
    return synthesize({"stage": "sandbox", "nodeheal": {"alert_emails": ["oncall@example.com"]}})
