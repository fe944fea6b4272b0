"""What `cdk destroy` leaves behind is what docs/operations.md says, and a new deployment takes it up again."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.infrastructure.synthesis import Resource, Template, synthesize

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
# What CloudFormation takes up: "the resource must have a DeletionPolicy of Retain or RetainExceptOnCreate".
KEPT = ("Retain", "RetainExceptOnCreate")
TAKEN_UP = {"AWS::DynamoDB::Table", "AWS::S3::Bucket"}
# What AppConfig gives an id: a new deployment makes its own, and the old one stays readable beside it.
MADE_ANEW = {
    "AWS::AppConfig::Application",
    "AWS::AppConfig::ConfigurationProfile",
    "AWS::AppConfig::Deployment",
    "AWS::AppConfig::Environment",
    "AWS::AppConfig::HostedConfigurationVersion",
}


def kept(template: Template) -> dict[str, Resource]:
    """Every resource that survives its stack, by type; there is one of each."""
    found = [r for r in template.resources.values() if r.get("DeletionPolicy", "Delete") != "Delete"]
    assert len({resource["Type"] for resource in found}) == len(found)
    return {resource["Type"]: resource for resource in found}


@pytest.fixture(scope="module")
def deployed() -> Template:
    """As `cdk deploy` synthesizes it: the CLI says whose credentials it has, and for which Region."""
    return synthesize({"nodeheal": {"account": "111122223333", "region": "eu-central-1"}})


def schema(kind: str) -> dict[str, Any]:
    """The schema of a type in CloudFormation's registry, which cfn-lint carries."""
    # Here, since it loads SymPy: each worker of a run imports every file of tests.
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

    found: dict[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema("eu-central-1", kind).schema
    return found


def test_what_survives_the_stack_is_what_the_page_names(real: Template) -> None:
    page = PAGE.read_text("utf-8")
    [step] = re.findall(r"^\d+\. Your history is kept: .*?(?=\n\S|\Z)", page, re.MULTILINE | re.DOTALL)

    survivors = kept(real)

    assert set(survivors) == TAKEN_UP | MADE_ANEW
    assert f"`{survivors['AWS::DynamoDB::Table']['Properties']['TableName']}`" in step
    assert f"`{survivors['AWS::AppConfig::Application']['Properties']['Name']}`" in step
    assert "`nodeheal-evidence-ACCOUNT-REGION`" in step
    assert "--import-existing-resources" in step


def test_a_first_deployment_that_is_rolled_back_leaves_nothing_that_the_next_stops_at(real: Template) -> None:
    """RetainExceptOnCreate is Retain, but for the operation that creates the resource."""
    assert {resource["DeletionPolicy"] for resource in kept(real).values()} == {"RetainExceptOnCreate"}
    assert {resource["UpdateReplacePolicy"] for resource in kept(real).values()} == {"Retain"}


@pytest.mark.parametrize("kind", sorted(TAKEN_UP))
def test_cloudformation_can_take_up_what_is_kept(deployed: Template, kind: str) -> None:
    """It wants a literal name, which is the whole primary identifier, and a DeletionPolicy that keeps the resource."""
    identifier = [path.removeprefix("/properties/") for path in schema(kind)["primaryIdentifier"]]
    resource = kept(deployed)[kind]

    assert resource["DeletionPolicy"] in KEPT
    assert not set(schema(kind)["primaryIdentifier"]) & set(schema(kind)["readOnlyProperties"])
    assert all(isinstance(resource["Properties"][name], str) for name in identifier)


def test_the_bucket_has_a_literal_name_for_the_account_of_the_clis_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDK_DEFAULT_ACCOUNT", "444455556666")
    monkeypatch.setenv("CDK_DEFAULT_REGION", "eu-west-1")

    bucket = kept(synthesize({}))["AWS::S3::Bucket"]["Properties"]["BucketName"]

    assert bucket == "nodeheal-evidence-444455556666-eu-west-1"


@pytest.mark.parametrize("kind", sorted(MADE_ANEW))
def test_what_is_made_anew_has_an_id_that_the_service_gives_and_no_name_that_is_taken(kind: str) -> None:
    assert set(schema(kind)["primaryIdentifier"]) & set(schema(kind)["readOnlyProperties"])


def test_the_sandbox_keeps_what_an_account_keeps(real: Template, sandbox: Template) -> None:
    assert set(kept(sandbox)) == set(kept(real))


def test_the_secret_goes_with_the_stack_and_has_no_name_that_could_be_refused(real: Template) -> None:
    """Links live for an hour. Secrets Manager refuses the name of a secret that is still being deleted."""
    [(_, secret)] = real.of_type("AWS::SecretsManager::Secret")

    assert secret["DeletionPolicy"] == "Delete"
    assert "Name" not in secret["Properties"]
