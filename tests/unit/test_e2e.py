"""`make e2e` asks before it acts, refuses what is in use, and takes away what it made."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError

from nodeheal.contract import names
from nodeheal.domain.policy import parse_policy
from stacks import e2e
from stacks.e2e import E2e, E2eFailed, confirm, dry_run, refuse_where_it_is_deployed


@pytest.fixture
def run(tmp_path: Path) -> E2e:
    return E2e("training", "e2e", ["oncall@example.com"], ["stage=sandbox"], tmp_path, look_every=0.0, settle=0.0)


def test_a_dry_run_says_every_command_in_order_and_does_nothing(run: E2e, capsys: pytest.CaptureFixture[str]) -> None:
    said = dry_run(run)

    verbs = [line.split()[1:3] for line in said.splitlines()]
    assert verbs == [
        ["doctor"],
        ["deploy", "--require-approval"],
        ["doctor"],
        ["policy", "apply"],
        ["nodes", "enroll"],
        ["doctor"],
        ["inject", "NODE"],
        ["nodes", "retire"],
        ["destroy", "--force"],
    ]
    assert "oncall@example.com" in said
    assert e2e.main(["--dry-run"]) == 0
    assert "deploy --require-approval" in capsys.readouterr().out


def test_its_policy_lets_it_act_on_its_own_pool_and_on_no_other(run: E2e) -> None:
    policy = parse_policy(run.policy().read_text("utf-8"))

    assert policy.pool("e2e").mode == "act"
    assert policy.pool("e2e").drills is True
    assert policy.pool("h100").mode == "observe"


@pytest.mark.parametrize("typed", ["", "yes", "111122223333", "111122223333 us-east-1"])
def test_whoever_does_not_type_account_and_region_has_done_nothing(typed: str) -> None:
    with pytest.raises(E2eFailed, match="nothing was done"):
        confirm("111122223333", "eu-central-1", lambda _: typed)


def test_who_types_both_goes_on() -> None:
    confirm("111122223333", "eu-central-1", lambda question: "111122223333 eu-central-1" * ("reboots" in question))


class Stacks:
    """CloudFormation with these stacks."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def get_paginator(self, _: str) -> "Stacks":
        return self

    def paginate(self) -> list[dict[str, Any]]:
        return [{"Stacks": [{"StackName": name} for name in self._names]}]


def test_where_nodeheal_is_deployed_it_refuses() -> None:
    refuse_where_it_is_deployed(Stacks("CDKToolkit"))

    with pytest.raises(E2eFailed, match="take it away"):
        refuse_where_it_is_deployed(Stacks("CDKToolkit", names.STACK))


def test_what_it_made_is_taken_away_although_the_drill_has_failed(run: E2e, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def record(command: list[str], *, must: bool = True) -> bool:
        done.append(command[1])
        if command[1] == "inject":
            raise E2eFailed("the node takes no drill")
        return True

    monkeypatch.setattr(e2e, "run", record)
    monkeypatch.setattr(e2e, "is_heard", lambda _: True)

    with pytest.raises(E2eFailed, match="no drill"):
        e2e.play(run, lambda _: "mi-0a1b2c3d4e5f60718")
    assert [verb for verb in done if verb != "doctor"] == ["deploy", "policy", "nodes", "inject", "nodes", "destroy"]


def test_a_stack_that_is_left_behind_is_no_success(
    run: E2e, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cdk destroy` fails while an instance profile holds the role of the nodes."""
    monkeypatch.setattr(e2e, "run", lambda command, *, must=True: command[1] != "destroy")
    monkeypatch.setattr(e2e, "is_heard", lambda _: True)
    monkeypatch.setattr(e2e, "has_recovered", lambda _: True)

    with pytest.raises(E2eFailed, match="not everything was taken away"):
        e2e.play(run, lambda _: "i-0a1b2c3d4e5f60718")
    assert e2e.LEFT in capsys.readouterr().out


def test_a_second_run_takes_up_what_the_first_has_left(run: E2e) -> None:
    assert "--import-existing-resources" in run.deploy()


def test_an_account_that_cannot_be_asked_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_answer(*_: Any, **__: Any) -> Any:
        raise NoCredentialsError

    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr("boto3.client", no_answer)

    assert e2e.main([]) == 1
    assert capsys.readouterr().out == "e2e: AWS cannot be asked, so nothing was done: Unable to locate credentials\n"
