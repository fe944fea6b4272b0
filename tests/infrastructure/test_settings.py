"""A setting that cannot be used is named in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stacks import settings as settings_module
from stacks.settings import REPOSITORY, SettingsError, load_settings
from tests.support.channels import SECRET


class FakeNode:
    """The part of a construct's node that settings are read from."""

    def __init__(self, **context: Any) -> None:
        self._context = context

    def try_get_context(self, key: str) -> Any:
        return self._context.get(key)


def load(**context: Any) -> Any:
    """The settings of this context."""
    return load_settings(FakeNode(**context))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"colour": "red"}, "nodeheal.colour: there is no such field; there are stage, cluster, "),
        ({"alert_emails": ["not an address"]}, "nodeheal.alert_emails.0"),
        ({"cluster": "two words"}, "nodeheal.cluster"),
        ({"log_retention_days": 31}, "nodeheal.log_retention_days"),
        ({"heartbeat_writes_a_second": -1}, "nodeheal.heartbeat_writes_a_second"),
        ({"task_role_arns": ["trainer"]}, "nodeheal.task_role_arns.0"),
        ({"instance_role_arns": ["node"]}, "nodeheal.instance_role_arns.0"),
        ({"hyperpod_clusters": ["training"]}, "nodeheal.hyperpod_clusters.0"),
        ({"eks_clusters": ["two words"]}, "nodeheal.eks_clusters.0"),
        ({"pod_identity_clusters": ["training"]}, "names 'training', which is not in eks_clusters"),
        ({"vpc": {"subnets": [], "security_groups": ["sg-0123456789abcdef0"]}}, "nodeheal.vpc.subnets"),
        ({"vpc": {"subnets": ["subnet-1"], "security_groups": ["sg-0123456789abcdef0"]}}, "nodeheal.vpc.subnets.0"),
        ({"image_parameter_arns": ["/golden/image"]}, "nodeheal.image_parameter_arns.0"),
        ({"image_repository_arns": ["763104351884.dkr.ecr"]}, "nodeheal.image_repository_arns.0"),
        ({"architecture": "amd64"}, "nodeheal.architecture"),
        ({"runbook_base_url": "our wiki"}, "nodeheal.runbook_base_url"),
        ({"channels": {"Ops": {"kind": "chat"}}}, "nodeheal.channels.Ops"),
        ({"channels": {"ops": {"kind": "slack"}}}, "nodeheal.channels.ops.kind"),
        ({"channels": {"email": {"kind": "chat"}}}, "the channel email always exists"),
        ({"channels": {"ops": {"kind": "pagerduty"}}}, "channels.ops: a channel of kind pagerduty needs secret_arn"),
        ({"channels": {"ops": {"kind": "pagerduty", "secret_arn": "key"}}}, "nodeheal.channels.ops.secret_arn"),
        ({"channels": {"ops": {"kind": "webhook", "secret_arn": SECRET}}}, "a channel of kind webhook needs url"),
        (
            {"channels": {"ops": {"kind": "webhook", "secret_arn": SECRET, "url": "http://x"}}},
            "nodeheal.channels.ops.url: http://x must begin with https://",
        ),
        ({"account": "12"}, "nodeheal.account"),
        ({"region": "Frankfurt"}, "nodeheal.region"),
        ({"policy_file": "mine.json"}, "nodeheal policy apply FILE"),
        ({"alert_emails": "ada@example.com"}, 'nodeheal.alert_emails: "ada@example.com" is text; give a list'),
        ({"agent_pools": []}, "nodeheal.agent_pools: is a list; give an object of fields"),
        ({"cluster": 5}, 'nodeheal.cluster: text is wanted; put it in quotes: "5"'),
        ({"evidence_retention_days": "ten"}, 'nodeheal.evidence_retention_days: "ten" is not a whole number'),
        ({"evidence_retention_days": 0}, "nodeheal.evidence_retention_days: 0 is too small; give at least 1"),
        ({"log_retention_days": 31}, "nodeheal.log_retention_days: 31 is not known; give 7, 30, 90, 180 or 365"),
        ({"cluser": "blue"}, "nodeheal.cluser: there is no such field; did you mean `cluster`?"),
        ("{not json", "the context flag -c nodeheal: not JSON"),
        ("[]", "the context flag -c nodeheal: nodeheal must be an object"),
        ([], "cdk.json: nodeheal must be an object, not []"),
    ],
)
def test_a_bad_setting_is_named(given: Any, named: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(nodeheal=given)

    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_stage_is_named() -> None:
    with pytest.raises(SettingsError, match="stage: 'prod' is not one of real, sandbox"):
        load(stage="prod")


def in_file(monkeypatch: pytest.MonkeyPatch, folder: Path, **settings: Any) -> None:
    """A checkout whose cdk.json holds these settings."""
    (folder / "cdk.json").write_text(json.dumps({"context": {"nodeheal": settings}}))
    monkeypatch.setattr(settings_module, "REPOSITORY", folder)


def test_a_flag_changes_what_it_names_and_the_rest_stays_as_in_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_file(monkeypatch, tmp_path, cluster="training", alert_emails=["ada@example.com"])

    found = load(nodeheal='{"cluster": "blue"}')

    assert (found.cluster, found.alert_emails) == ("blue", ("ada@example.com",))


def test_an_error_names_where_the_setting_was_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_file(monkeypatch, tmp_path, log_retention_days=31)

    with pytest.raises(SettingsError, match=r"^cdk\.json: nodeheal\.log_retention_days"):
        load(nodeheal='{"cluster": "blue"}')
    with pytest.raises(SettingsError, match=r"^the context flag -c nodeheal: nodeheal\.cluster"):
        load(nodeheal='{"cluster": "two words", "log_retention_days": 30}')


def test_synth_ends_with_one_line_and_no_traceback(tmp_path: Path) -> None:
    context = json.dumps({"nodeheal": {"colour": "red"}})

    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=REPOSITORY,
        env={**os.environ, "CDK_CONTEXT_JSON": context, "CDK_OUTDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("nodeheal: cdk.json: nodeheal.colour: there is no such field; ")


def test_the_configuration_of_a_pools_agents_names_that_pool(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text('cluster = "training"\nscheduler = "ECS"\npool = "other"\n')

    with pytest.raises(SettingsError, match=r"agent_pools.*has the pool 'other', but is given for 'h100'"):
        load(nodeheal={"agent_pools": {"h100": str(config)}})


@pytest.mark.parametrize("region", ["us-gov-west-1", "us-gov-east-1", "ap-east-2"])
@pytest.mark.parametrize("kind", ["pagerduty", "webhook"])
@pytest.mark.parametrize("is_setting", [True, False])
def test_a_region_without_api_destinations_refuses_such_a_channel_by_name(
    region: str, kind: str, is_setting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = {"kind": kind, "secret_arn": SECRET, "url": "https://t.example/hook"}
    monkeypatch.setenv("CDK_DEFAULT_REGION", "eu-west-1" if is_setting else region)
    where = {"region": region} if is_setting else {}

    with pytest.raises(SettingsError, match=f"channels.oncall: {region} has no API destinations"):
        load(nodeheal={"channels": {"oncall": channel}, **where})

    assert load(nodeheal={"channels": {"ops": {"kind": "chat"}}, **where}).channels
