"""What is left of a deployment: the history is deleted only when its stack is gone."""

from typing import Any

import pytest

from nodeheal.contract import names
from tools.leftovers import Leftovers, StackIsThere


class Account:
    """CloudFormation with this stack, and one table; which of it was deleted."""

    def __init__(self, *stacks: str) -> None:
        self.deleted: list[str] = []
        self._answers: dict[str, list[dict[str, Any]]] = {
            "describe_stacks": [{"Stacks": [{"StackName": name, "StackStatus": "DELETE_FAILED"} for name in stacks]}],
            "list_tables": [{"TableNames": ["another"]}, {"TableNames": [names.TABLE]}],
            "list_applications": [{"Items": []}],
        }

    def client(self, _: str) -> "Account":
        return self

    def get_paginator(self, operation: str) -> Any:
        answers = self._answers[operation]
        return type("Paginator", (), {"paginate": lambda self: answers})()

    def list_buckets(self) -> dict[str, Any]:
        return {"Buckets": [{"Name": "nodeheal-evidence-111122223333-us-east-1"}]}

    def delete_table(self, **request: str) -> None:
        self.deleted.append(request["TableName"])

    def get_waiter(self, _: str) -> Any:
        return type("Waiter", (), {"wait": lambda self, **_: None})()


def leftovers(account: Account) -> Leftovers:
    return Leftovers(account.client, "111122223333", "eu-central-1")


def test_the_history_of_a_stack_that_is_there_is_not_deleted() -> None:
    account = Account(names.STACK)

    with pytest.raises(StackIsThere):
        leftovers(account).delete([])

    assert account.deleted == []


def test_what_was_there_before_is_not_deleted() -> None:
    account = Account("CDKToolkit")

    assert leftovers(account).delete([f"table {names.TABLE}"]) == []
    assert account.deleted == []


def test_only_what_bears_the_names_of_nodeheal_in_this_region_is_deleted() -> None:
    account = Account("CDKToolkit")

    assert leftovers(account).delete([]) == [f"table {names.TABLE}"]
    assert account.deleted == [names.TABLE]
