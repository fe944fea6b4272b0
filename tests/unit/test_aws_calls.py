"""Clients of AWS."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from threading import Barrier
from typing import Any

import boto3
import pytest
from moto import mock_aws

from nodeheal.adapters.aws import calls
from nodeheal.adapters.aws.assumed_roles import SECONDS, SPARE_SECONDS, AssumedRoles, session_name

OPERATOR, VIEWER = (f"arn:aws:iam::123456789012:role/{name}" for name in ("operator", "viewer"))
ROLE = "arn:aws:iam::123456789012:role/nodeheal-controllers-us-east-1"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    cached = (calls.client, calls.client_once, calls.client_in, calls.client_once_as, calls.own_role_arn)
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


def person(key: str) -> calls.Caller:
    """A caller with credentials of its own."""
    return calls.Caller(boto3.Session(key, "secret", "token", region_name="us-east-1"))


def key_of(client: Any) -> str:
    return str(client._get_credentials().access_key)


def test_each_caller_has_clients_of_its_own_and_the_process_keeps_its_own() -> None:
    ada, bob = person("ADA"), person("BOB")
    own = calls.client("dynamodb")
    key_of_process = key_of(own)

    for caller, key in ((ada, "ADA"), (bob, "BOB"), (ada, "ADA")):
        with calls.calling_as(caller):
            clients = (calls.client("dynamodb"), calls.client_once("ssm"), calls.client_in("logs", "eu-west-1"))
            assert [key_of(each) for each in clients] == [key] * 3
            assert calls.client("dynamodb") is calls.client("dynamodb")
            assert key_of(calls.session().client("sts")) == key

    assert calls.client("dynamodb") is own
    assert key_of(own) == key_of_process


def test_the_calls_of_two_people_at_a_time_are_never_mixed() -> None:
    """As Starlette answers: a thread carries the context of its request, and others run between."""
    people = [person(f"KEY{number}") for number in range(4)]
    meeting = Barrier(len(people))

    def call() -> list[str]:
        keys = []
        for service in ("dynamodb", "ssm", "dynamodb"):
            meeting.wait()
            keys.append(key_of(calls.client(service)))
        return keys

    def context_of(caller: calls.Caller) -> Context:
        with calls.calling_as(caller):
            return copy_context()

    with ThreadPoolExecutor(len(people)) as pool:
        asked = [pool.submit(context_of(each).run, call) for each in people]

    assert [each.result() for each in asked] == [[f"KEY{number}"] * 3 for number in range(4)]


def test_a_person_calls_by_their_role_in_a_session_of_their_name_until_shortly_before_it_ends() -> None:
    now = [time.time()]
    roles = AssumedRoles(lambda: now[0])
    ada = roles.caller(OPERATOR, "ada")

    with calls.calling_as(ada):
        assert calls.client("sts").get_caller_identity()["Arn"].endswith(":assumed-role/operator/ada")
    assert roles.caller(OPERATOR, "ada") is ada
    assert roles.caller(OPERATOR, "bob") is not ada
    assert roles.caller(VIEWER, "ada") is not ada
    now[0] += SECONDS - SPARE_SECONDS - 5
    assert roles.caller(OPERATOR, "ada") is ada
    now[0] += 10
    assert roles.caller(OPERATOR, "ada") is not ada


@pytest.mark.parametrize(
    "name", ["a", "ada/../operator", "ada operator", "ada\n", "ädä", "x" * 65, "a:b", "<script>", "ada*", "'", ""]
)
def test_a_session_is_named_as_sts_permits_and_no_two_people_alike(name: str) -> None:
    alike = {name + "-", re.sub(r"\W", "-", name), name.replace("/", ":"), name.strip()} - {name}

    assert re.fullmatch(r"[\w+=,.@-]{2,64}", session_name(name), re.ASCII)
    assert session_name(name) not in map(session_name, alike)


def test_no_name_of_a_person_is_that_of_another_ones_session() -> None:
    changed = session_name("léa")
    assert session_name(changed) != changed


def test_a_name_that_sts_takes_is_the_name_of_the_session() -> None:
    assert session_name("ada@example.com") == "ada@example.com"
