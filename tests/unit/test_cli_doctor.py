"""`nodeheal doctor` where there is no account to look at, and what it makes of single answers."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, NoRegionError
from typer.testing import CliRunner

from nodeheal.adapters.aws import account
from nodeheal.adapters.aws.account import Account, examine
from nodeheal.adapters.memory.ports import memory_ports
from nodeheal.cli import doctor
from nodeheal.cli.main import app
from tests.unit.builders import ACT, FrozenClock, node


class Answers:
    """Clients that answer what they are told; what is not told is denied."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def __call__(self, service: str) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        def call(**asked: Any) -> Any:
            answer = self.answers.get(name, _error("AccessDeniedException", name))
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def get_paginator(self, name: str) -> Any:
        answer = self.answers.get(name, _error("AccessDeniedException", name))

        class Pages:
            def paginate(self, **asked: Any) -> Iterator[Any]:
                if isinstance(answer, Exception):
                    raise answer
                yield answer

        return Pages()


def _error(code: str, operation: str = "op") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)


class Sts:
    """An STS that answers or raises."""

    def __init__(self, region: str | None, error: Exception | None = None) -> None:
        self.meta = type("Meta", (), {"region_name": region})
        self._error = error

    def get_caller_identity(self) -> dict[str, str]:
        if self._error is not None:
            raise self._error
        return {"Arn": "arn:aws:sts::111122223333:assumed-role/admin/ada"}


@pytest.mark.parametrize(
    ("sts", "said"),
    [
        (Sts(None), "FAIL     Region: no Region is named"),
        (Sts("aws-global"), "FAIL     Region: no Region is named"),
        (Sts("eu-central-1", NoRegionError()), "FAIL     Region: no Region is named"),
        (Sts("eu-central-1", NoCredentialsError()), "FAIL     credentials: Unable to locate credentials"),
        (Sts("eu-central-1", _error("ExpiredToken")), "→ sign in as for the AWS CLI"),
    ],
)
def test_without_credentials_or_region_it_says_so_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, sts: Sts, said: str
) -> None:
    monkeypatch.setattr(doctor, "client", lambda service: sts)

    answer = CliRunner().invoke(app, ["doctor"])

    assert said in answer.output
    assert answer.exit_code == 1


def findings(**answers: Any) -> dict[str, tuple[str, str]]:
    """State and detail of each finding, by what it is about."""
    ports = memory_ports(FrozenClock())
    ports.nodes.save(node())
    made = Account(Answers(**answers), lambda: ports, lambda: ACT)
    return {one.what: (one.state, one.detail) for one in examine(made)}


STACK = {"Stacks": [{"StackStatus": "UPDATE_COMPLETE", "Outputs": [{"OutputKey": "TopicArn", "OutputValue": "arn:t"}]}]}


def test_a_look_that_is_denied_hides_no_other() -> None:
    found = findings(describe_stacks=STACK, describe_alarms={"MetricAlarms": []})

    assert found["bootstrap"][0] == account.UNKNOWN
    assert found["stack"][0] == account.GOOD
    assert found["alarms"] == (account.BAD, "the stack has no alarm")


@pytest.mark.parametrize(("limit", "state"), [(10, account.BAD), (99, account.BAD), (100, account.GOOD)])
def test_a_new_accounts_concurrency_is_too_little(limit: int, state: str) -> None:
    found = findings(get_account_settings={"AccountLimit": {"ConcurrentExecutions": limit}})

    assert found["Lambda concurrency"][0] == state


@pytest.mark.parametrize("status", ["ROLLBACK_COMPLETE", "CREATE_FAILED", "UPDATE_ROLLBACK_FAILED", "DELETE_COMPLETE"])
def test_a_stack_that_is_not_whole_fails_and_nothing_behind_it_is_looked_at(status: str) -> None:
    found = findings(describe_stacks={"Stacks": [{"StackStatus": status}]})

    assert found["stack"][0] == account.BAD
    assert "alarms" not in found


@pytest.mark.parametrize(
    ("subscriptions", "state"),
    [
        ([], account.BAD),
        ([{"Endpoint": "a@example.com", "SubscriptionArn": "PendingConfirmation"}], account.BAD),
        ([{"Endpoint": "a@example.com", "SubscriptionArn": "arn:aws:sns:r:a:t:id"}], account.GOOD),
    ],
)
def test_an_address_that_has_not_confirmed_is_named(subscriptions: list[dict[str, str]], state: str) -> None:
    found = findings(describe_stacks=STACK, list_subscriptions_by_topic={"Subscriptions": subscriptions})

    assert found["alert emails"][0] == state


def test_an_alarm_that_rings_fails_with_its_own_description() -> None:
    ringing = {"AlarmName": "nodeheal-SweepGone", "StateValue": "ALARM", "AlarmDescription": "look at the sweep's log"}
    made = Account(Answers(describe_stacks=STACK, describe_alarms={"MetricAlarms": [ringing]}), _never, _never)

    [found] = [one for one in examine(made) if one.what == "alarm nodeheal-SweepGone"]

    assert (found.state, found.todo) == (account.BAD, "look at the sweep's log")


def _never() -> Any:
    raise _error("AccessDeniedException", "GetItem")
