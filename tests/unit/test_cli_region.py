"""The Region that a command goes to is the one that the AWS CLI would take."""

import os

import boto3
import pytest
from typer.testing import CliRunner

from nodeheal.cli import connect
from nodeheal.cli import main as cli
from tests.support.builders import memory_ports


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"AWS_REGION": "eu-central-1"}, "eu-central-1"),
        ({"AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "us-east-1"}, "eu-central-1"),
        ({"AWS_DEFAULT_REGION": "us-east-1"}, "us-east-1"),
        ({"AWS_REGION": "", "AWS_DEFAULT_REGION": "us-east-1"}, "us-east-1"),
    ],
)
def test_aws_region_comes_first(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], taken: str) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    monkeypatch.setattr(connect, "ports", lambda table: memory_ports())

    CliRunner().invoke(cli.app, ["nodes", "unenrolled"], catch_exceptions=False)

    assert boto3.Session().region_name == taken
    assert os.environ.get("AWS_REGION", "") == given.get("AWS_REGION", "")
