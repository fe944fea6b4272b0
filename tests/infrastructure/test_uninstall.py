"""What `cdk destroy` leaves behind is what docs/operations.md says it leaves."""

import re
from pathlib import Path
from typing import Any

from tests.infrastructure.synthesis import Template

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
NAMED_BY = ("TableName", "BucketName", "Name")


def kept(template: Template) -> dict[str, Any]:
    """Properties of every resource that survives its stack, by type; where there are several, the last."""
    found = template.resources.values()
    return {r["Type"]: r["Properties"] for r in found if r.get("DeletionPolicy", "Delete") != "Delete"}


def test_what_survives_the_stacks_is_what_the_page_names(real: Template) -> None:
    page = PAGE.read_text("utf-8")
    [step] = re.findall(r"^\d+\. What holds your history is kept: .*?(?=\n\S|\Z)", page, re.MULTILINE | re.DOTALL)

    survivors = kept(real)

    assert set(survivors) == {
        "AWS::AppConfig::Application",
        "AWS::AppConfig::ConfigurationProfile",
        "AWS::AppConfig::Deployment",
        "AWS::AppConfig::Environment",
        "AWS::AppConfig::HostedConfigurationVersion",
        "AWS::DynamoDB::Table",
        "AWS::S3::Bucket",
        "AWS::SecretsManager::Secret",
    }
    for kind in ("AWS::DynamoDB::Table", "AWS::SecretsManager::Secret", "AWS::AppConfig::Application"):
        [name] = [survivors[kind][key] for key in NAMED_BY if key in survivors[kind]]
        assert f"`{name}`" in step
    assert "`nodeheal-evidence-ACCOUNT-REGION`" in step


def test_the_sandbox_keeps_nothing(sandbox: Template) -> None:
    assert kept(sandbox) == {}
