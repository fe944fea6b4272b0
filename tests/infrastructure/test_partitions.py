"""Both partitions: nothing that we deploy spells one of them, and what a service is called is the same in both."""

import json
import re
from pathlib import Path

import pytest

from stacks.settings import REPOSITORY, WITHOUT_API_DESTINATIONS
from tests.infrastructure.cfn_lint import cfn_lint
from tests.infrastructure.synthesis import Template, synthesize
from tests.support.channels import CHANNELS

CHINA = {"region": "cn-north-1", "account": "111122223333"}
# Names of services, as IAM spells them in every partition; hosts are spelled with AWS::URLSuffix.
_SERVICE = re.compile(r'"[a-z0-9-]+\.amazonaws\.com"')
# EC2 is passed roles under either name in China, where it began under its own.
_CHINESE = '"ec2.amazonaws.com.cn"'
DOCUMENTS = sorted((REPOSITORY / "packaging" / "ssm").glob("*.json"))
WORKFLOWS = sorted((REPOSITORY / "state_machines").glob("*.asl.json"))


@pytest.fixture(scope="module")
def china() -> Template:
    """What a user in Beijing deploys, with every setting that names roles."""
    role = "arn:aws-cn:iam::111122223333:role/trainer"
    named = {"task_role_arns": [role], "instance_role_arns": [role], "alert_emails": ["oncall@example.com"]}
    return synthesize({"nodeheal": {**CHINA, **named}})


def spelled(template: Template) -> str:
    """The template as text, without the names of services."""
    return _SERVICE.sub("", json.dumps(template.body).replace(_CHINESE, ""))


@pytest.mark.parametrize("which", ["real", "china"])
def test_no_template_spells_a_partition(request: pytest.FixtureRequest, which: str) -> None:
    text = spelled(request.getfixturevalue(which))

    assert "arn:aws:" not in text
    assert "amazonaws.com" not in text
    assert "Ref" in text and "AWS::Partition" in text


@pytest.mark.parametrize("path", [*DOCUMENTS, *WORKFLOWS], ids=lambda path: path.name)
def test_no_document_and_no_workflow_spells_a_partition(path: Path) -> None:
    text = path.read_text("utf-8")

    assert "arn:aws:" not in text
    assert "amazonaws.com" not in text


def test_the_templates_are_the_same_but_for_what_the_settings_name(real: Template, china: Template) -> None:
    kinds = [sorted(resource["Type"] for resource in t.resources.values()) for t in (real, china)]

    assert kinds[0] == kinds[1]


def test_cfn_lint_finds_nothing_for_the_regions_of_china(china: Template, tmp_path: Path) -> None:
    file = tmp_path / "template.json"
    file.write_text(json.dumps(china.body))

    done = cfn_lint("--regions", "cn-north-1", "cn-northwest-1", "--", str(file))

    assert done.returncode == 0, done.stdout


def test_cfn_lint_takes_every_kind_of_channel_in_the_regions_that_have_them(tmp_path: Path) -> None:
    """cfn-lint's own list lags behind AWS's page, so it is asked where it knows API destinations."""
    # Here, since it loads SymPy: each worker of a run imports every file of tests.
    from cfnlint.helpers import REGIONS
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

    template = synthesize({"nodeheal": {"channels": CHANNELS}})
    file = tmp_path / "template.json"
    file.write_text(json.dumps(template.body))
    kind, schemas = "AWS::Events::ApiDestination", PROVIDER_SCHEMA_MANAGER
    regions = [region for region in sorted(REGIONS) if kind in schemas.get_resource_types(region)]

    done = cfn_lint("--regions", *regions, "--", str(file))

    assert done.returncode == 0, done.stdout
    assert len(regions) > 30 and not set(regions) & set(WITHOUT_API_DESTINATIONS)
