"""Signed calls: what went wrong is told in words."""

import pytest

from nodeheal.agent.credentials import CredentialChain
from nodeheal.agent.signed_post import NoAnswer, SignedPost
from tests.unit.agent.fakes import FakeTime


def test_an_error_without_words_is_told_by_its_kind(monkeypatch: pytest.MonkeyPatch, time: FakeTime) -> None:
    def is_late(*_: object) -> tuple[int, bytes]:
        raise TimeoutError

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    service = SignedPost("sns", "eu-central-1", "http://127.0.0.1:9", CredentialChain(time.clock()), time.clock())
    monkeypatch.setattr(service, "_exchange", is_late)

    with pytest.raises(NoAnswer, match=r"^127\.0\.0\.1:9: TimeoutError$"):
        service.ask({}, b"")
