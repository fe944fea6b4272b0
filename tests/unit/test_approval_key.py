"""S11: a leaked approval key can be voided: a new one takes its place within a minute, in functions that run on."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.utilities.parameters import base, clear_caches
from moto import mock_aws

from lambdas import composition
from nodeheal.contract import names
from nodeheal.domain.recovery.approval_links import Answer, LinkRefused, Question
from tests.support.approvals import DUE
from tests.support.builders import NOW

QUESTION = Question("inc-1", 3)


class Secret:
    """The key in Secrets Manager, and the process's clock."""

    def __init__(self) -> None:
        self._client: Any = boto3.client("secretsmanager", region_name="eu-central-1")
        self.arn = self._client.create_secret(Name="approval", SecretString="leaked")["ARN"]
        self.passed = timedelta()

    def rotate(self) -> None:
        self._client.put_secret_value(SecretId=self.arn, SecretString="fresh")

    def now(self) -> datetime:
        return datetime(2026, 11, 24) + self.passed  # as Powertools keeps it


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[Secret]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        clear_caches()  # type: ignore[no-untyped-call]
        made = Secret()
        monkeypatch.setenv(names.ENV_APPROVAL_KEY_ARN, made.arn)
        monkeypatch.setattr(base, "datetime", made)
        yield made
        clear_caches()  # type: ignore[no-untyped-call]


def link() -> dict[str, str]:
    return link_query(composition.links().link(QUESTION, Answer.approve, DUE))


def link_query(address: str) -> dict[str, str]:
    return dict(part.split("=") for part in address.partition("?")[2].split("&"))


def test_a_minute_after_the_key_changed_old_links_are_refused_and_new_ones_taken(secret: Secret) -> None:
    """S11: a warm function took the old link, and refused new ones, for as long as it lived."""
    old = link()
    assert composition.links().read(old, NOW) == (QUESTION, Answer.approve)

    secret.rotate()
    secret.passed = timedelta(seconds=61)

    with pytest.raises(LinkRefused, match="not made by nodeheal"):
        composition.links().read(old, NOW)
    assert composition.links().read(link(), NOW) == (QUESTION, Answer.approve)


def test_within_the_minute_the_key_is_read_once(secret: Secret) -> None:
    old = link()

    secret.rotate()
    secret.passed = timedelta(seconds=59)

    assert link() == old
