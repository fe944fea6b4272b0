"""A command imports what it uses, and no more: that decides how fast it starts. It is counted here, and never timed."""

import ast
import json
import os
import subprocess
import sys

import pytest

from nodeheal.cli.late import LATE
from stacks.settings import REPOSITORY

# At its end the command writes what it has imported.
COMMAND = """
import atexit, json, sys
atexit.register(lambda: sys.stderr.write("\\n" + json.dumps(sorted(sys.modules))))
from nodeheal.cli.entry import main
main()
"""
IN_AN_EMPTY_ACCOUNT = """
import boto3
from moto import mock_aws
from nodeheal.contract import names

mock_aws().start()
INDEX = {names.INDEX_PARTITION_KEY: "HASH", names.INDEX_SORT_KEY: "RANGE"}
for table, keys, indexed in (
    (names.TABLE, {"pk": "HASH", "sk": "RANGE"}, INDEX),
    (names.HEARTBEATS_TABLE, {names.HEARTBEAT_KEY: "HASH"}, {}),
):
    schemas = [[{"AttributeName": key, "KeyType": kind} for key, kind in some.items()] for some in (keys, indexed)]
    index = {"IndexName": names.INDEX, "KeySchema": schemas[1], "Projection": {"ProjectionType": "ALL"}}
    boto3.client("dynamodb").create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in {**keys, **indexed}],
        KeySchema=schemas[0],
        **({"GlobalSecondaryIndexes": [index]} if indexed else {}),
    )
"""
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_DEFAULT_REGION": "us-east-1",
    "NODEHEAL_CONFIG": "/nowhere/config.yaml",  # a file of contexts is read with pydantic and yaml
}
# Packages that every command imports and that hold nothing themselves: they are not counted.
EMPTY = {*LATE, *(name.rpartition(".")[0] for name in LATE)}
HEAVY = {"boto3", "botocore", "pydantic", "rich", "yaml"}
# How many modules of nodeheal a command may import, EMPTY left out. A change that needs more says why.
AT_MOST = {
    "--version": 6,
    "-h": 6,  # the list of commands is a table
    "nodes list -h": 17,
    "explain xid 79": 57,
    "status": 121,
    "nodes list": 113,
    "incidents list": 109,
    "incidents show inc-1234": 110,
    "jobs list": 117,
    "jobs show llama": 116,
    "approve inc-1234 --why because": 113,  # refused by the same function as in the control plane
    "pools list": 97,
}


def imported(words: str, program: str = COMMAND) -> set[str]:
    """The modules that this command imports."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words.split()],
        cwd=REPOSITORY,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def named(modules: set[str]) -> list[str]:
    """Those of nodeheal, but for EMPTY."""
    return sorted(name for name in modules - EMPTY if name.partition(".")[0] == "nodeheal")


@pytest.mark.parametrize("package", sorted(EMPTY))
def test_a_package_that_every_command_imports_holds_nothing(package: str) -> None:
    lines = ast.parse((REPOSITORY / package.replace(".", "/") / "__init__.py").read_text("utf-8")).body

    assert [line for line in lines[1:] if not isinstance(line, ast.Assign)] == []


@pytest.mark.parametrize("words", AT_MOST)
def test_a_command_imports_few_modules(words: str) -> None:
    found = named(imported(words, IN_AN_EMPTY_ACCOUNT + COMMAND))

    assert len(found) <= AT_MOST[words], found


@pytest.mark.parametrize(
    ("words", "needed"), [("--version", set()), ("-h", {"rich"}), ("explain xid 79", {"pydantic"})]
)
def test_a_command_without_aws_imports_no_sdk(words: str, needed: set[str]) -> None:
    assert HEAVY & imported(words) == needed


def test_the_list_of_commands_imports_no_service_and_no_port() -> None:
    folders = {".".join(name.split(".")[:2]) for name in named(imported("-h"))}

    assert not folders & {"nodeheal.services", "nodeheal.ports", "nodeheal.operations", "nodeheal.simulation"}
