"""A setting that cannot be used is named in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stacks.settings import REPOSITORY, SettingsError, load_settings


class FakeNode:
    """The part of a construct's node that settings are read from."""

    def __init__(self, **context: Any) -> None:
        self._context = context

    def try_get_context(self, key: str) -> Any:
        return self._context.get(key)


def load(**context: Any) -> Any:
    """The settings of this context."""
    return load_settings(FakeNode(**context))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"colour": "red"}, "nodeheal.colour: unknown key"),
        ({"alert_emails": ["not an address"]}, "nodeheal.alert_emails.0"),
        ({"cluster": "two words"}, "nodeheal.cluster"),
        ({"log_retention_days": 31}, "nodeheal.log_retention_days"),
        ({"heartbeat_writes_a_second": -1}, "nodeheal.heartbeat_writes_a_second"),
        ({"task_role_arns": ["trainer"]}, "nodeheal.task_role_arns.0"),
        ({"instance_role_arns": ["node"]}, "nodeheal.instance_role_arns.0"),
        ({"image_parameter_arns": ["/golden/image"]}, "nodeheal.image_parameter_arns.0"),
        ({"image_repository_arns": ["763104351884.dkr.ecr"]}, "nodeheal.image_repository_arns.0"),
        ({"architecture": "amd64"}, "nodeheal.architecture"),
        ({"runbook_base_url": "our wiki"}, "nodeheal.runbook_base_url"),
        ({"account": "12"}, "nodeheal.account"),
        ({"region": "Frankfurt"}, "nodeheal.region"),
        ({"policy_file": "mine.json"}, "nodeheal policy apply FILE"),
        ("{not json", "context key nodeheal"),
        ("[]", "context key nodeheal"),
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


def test_settings_may_come_from_the_command_line() -> None:
    assert load(nodeheal='{"cluster": "blue"}').cluster == "blue"


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
    assert done.stderr.strip() == "nodeheal: cdk.json: nodeheal.colour: unknown key"


def test_the_configuration_of_a_pools_agents_names_that_pool(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text('cluster = "training"\npool = "other"\n')

    with pytest.raises(SettingsError, match=r"agent_pools.*names the pool 'other', and is given for 'h100'"):
        load(nodeheal={"agent_pools": {"h100": str(config)}})
