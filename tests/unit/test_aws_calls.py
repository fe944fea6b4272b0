"""Clients of AWS."""

from collections.abc import Iterator

import pytest
from moto import mock_aws

from nodeheal.adapters.aws import calls

ROLE = "arn:aws:iam::123456789012:role/nodeheal-controllers-us-east-1"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    cached = (calls.client, calls.client_once_as, calls.own_role_arn)
    with mock_aws():
        for function in cached:
            function.cache_clear()
        yield
    for function in cached:
        function.cache_clear()


def test_a_client_of_a_role_calls_as_a_session_of_it_and_renews_its_credentials() -> None:
    sts = calls.client_once_as(ROLE, "sts")
    first = sts._get_credentials()
    used = first.access_key
    first._expiry_time = first._time_fetcher()  # as if its hour were over

    assert ":assumed-role/nodeheal-controllers-us-east-1/nodeheal" in sts.get_caller_identity()["Arn"]
    assert first.access_key != used
    assert sts.meta.config.retries["total_max_attempts"] == 1


def test_a_role_of_the_stack_is_named_after_the_callers_account_and_region() -> None:
    assert calls.own_role_arn("nodeheal-controllers-{region}") == ROLE
