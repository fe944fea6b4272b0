"""What `make synth` promises: cdk-nag and cfn-lint are content, in every partition, without a call to AWS."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_sqs as sqs
from cdk_nag import AwsSolutionsChecks

from stacks import wheelhouse
from stacks.workflows import JOB, PARENT, Workflow
from tests.infrastructure.cfn_lint import cfn_lint, run
from tests.infrastructure.synthesis import Template, synthesize
from tests.support.channels import CHANNELS

CHINA = {"region": "cn-north-1", "account": "111122223333"}
# In one template: each adds resources of its own.
OPTIONS = {"channels": CHANNELS, "console": {"domain_prefix": "acme-nodeheal", "mfa": "optional"}}


@pytest.mark.parametrize("given", [{}, CHINA, OPTIONS], ids=["aws", "aws-cn", "with-options"])
def test_the_app_synthesizes_offline_and_nag_finds_nothing(tmp_path: Path, given: dict[str, Any]) -> None:
    nowhere = "http://127.0.0.1:9"  # the discard port: a call would fail the synthesis
    context = json.dumps({"aws:cdk:bundling-stacks": [], "nodeheal": given})
    wheelhouse.packages()  # downloaded once for each set of pins

    done = run(
        [sys.executable, "app.py"],
        CDK_CONTEXT_JSON=context,
        CDK_OUTDIR=str(tmp_path),
        AWS_ENDPOINT_URL=nowhere,
        https_proxy=nowhere,
        CDK_VALIDATION="true",
    )

    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "validation-report.json").read_text("utf-8"))
    assert report["pluginReports"] == []  # neither cdk-nag nor the CDK's own rules
    assert len(list(tmp_path.glob("*.template.json"))) == 1  # one stack: `cdk deploy` needs no name


def test_nag_would_say_so(tmp_path: Path) -> None:
    app = cdk.App(outdir=str(tmp_path))
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    sqs.Queue(cdk.Stack(app, "careless"), "Open")

    with pytest.raises(RuntimeError):
        app.synth()


def test_cfn_lint_finds_nothing(real: Template, tmp_path: Path) -> None:
    files = [tmp_path / "real.json", tmp_path / "with-options.json"]
    for file, template in zip(files, (real, synthesize({"nodeheal": OPTIONS})), strict=True):
        file.write_text(json.dumps(template.body))

    done = cfn_lint(*map(str, files))

    assert done.returncode == 0, done.stdout


def filled_in(stem: str) -> dict[str, Any]:
    """A definition without what cfn-lint's own check does not know: a partition placeholder, JSONata deadlines."""
    text = Workflow(stem).path.read_text("utf-8").replace("${Partition}", "aws")
    definition: dict[str, Any] = json.loads(re.sub(r'"TimeoutSeconds": "[^"]*"', '"TimeoutSeconds": 60', text))
    return definition


def machine(stem: str, definition: dict[str, Any]) -> dict[str, Any]:
    """A resource that holds it."""
    properties = {
        "RoleArn": "arn:aws:iam::111122223333:role/workflow",
        "Definition": definition,
        "DefinitionSubstitutions": dict.fromkeys(Workflow(stem).placeholders(), "filled-in"),
    }
    return {"Type": "AWS::StepFunctions::StateMachine", "Properties": properties}


def test_cfn_lint_finds_nothing_in_the_state_machines_once_they_are_filled_in(tmp_path: Path) -> None:
    machines = {Workflow(stem).class_name: machine(stem, filled_in(stem)) for stem in (PARENT, JOB)}
    broken = filled_in(PARENT)
    broken["States"]["Isolate node"]["TimeoutSeconds"] = "soon"
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"Resources": machines}))
    bad.write_text(json.dumps({"Resources": {"Broken": machine(PARENT, broken)}}))

    done = cfn_lint("--mandatory-checks", "E3601", "--", str(good), str(bad))

    assert str(bad) in done.stdout  # or the check would see nothing at all
    assert str(good) not in done.stdout, done.stdout


@pytest.mark.parametrize("given", [{}, CHINA], ids=["aws", "aws-cn"])
def test_no_partition_is_spelled_out(given: dict[str, str]) -> None:
    assert "arn:aws:" not in json.dumps(synthesize({"nodeheal": given}).body)
