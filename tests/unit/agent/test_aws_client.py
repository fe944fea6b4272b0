"""Signed calls: what went wrong is told in words."""

import pytest

from nodeheal.agent.transport.aws_client import AwsClient, RequestFailed
from nodeheal.agent.transport.credentials import CredentialChain
from tests.support.agent_fakes import FakeTime


def test_an_error_without_words_is_told_by_its_kind(monkeypatch: pytest.MonkeyPatch, time: FakeTime) -> None:
    def is_late(*_: object) -> tuple[int, bytes]:
        raise TimeoutError

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    service = AwsClient("sns", "eu-central-1", "http://127.0.0.1:9", CredentialChain(time.clock()), time.clock())
    monkeypatch.setattr(service, "_exchange", is_late)

    with pytest.raises(RequestFailed, match=r"^127\.0\.0\.1:9: TimeoutError$"):
        service.ask({}, b"")


@pytest.mark.parametrize("url", ["https://events..amazonaws.com", "https://127.0.0.1:70000", "https://127.0.0.1:https"])
def test_an_address_that_is_none_is_no_answer(monkeypatch: pytest.MonkeyPatch, time: FakeTime, url: str) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    service = AwsClient("events", "eu-central-1", url, CredentialChain(time.clock()), time.clock())

    with pytest.raises(RequestFailed):
        service.ask({}, b"")
