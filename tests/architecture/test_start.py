"""A command imports what it uses, and no more: that decides how fast it starts. It is counted here, and never timed."""

import json
import os
import subprocess
import sys

import pytest

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
HEAVY = {"boto3", "botocore", "pydantic", "rich", "yaml"}
# How many modules of nodeheal a command may import. A change that needs more says why. The last ones: ports with the
# caller's own credentials, with the roles of nodes, which the stack names; pauses, and the store of what persons write
# there; views and pages; the base of views, with which commands that ask no deployment start.
AT_MOST = {
    "--version": 8,
    "-h": 49,  # the console
    "nodes list -h": 22,
    "explain xid 79": 63,  # the timeline and the situation, which a decision is made from
    "status": 139,  # views and queries in place of one module of services
    "nodes list": 126,  # the view, and the query beside the renderer
    "incidents list": 126,
    "incidents show inc-1234": 127,  # the view, and the query beside the renderer
    "jobs list": 132,  # the typed timeline
    "jobs show llama": 162,  # the engine, with what it asks before an operation begins
    "approve inc-1234 --why because": 145,  # what the control plane refuses by, and what an answer does
    "pools list": 140,
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
    """Those of nodeheal."""
    return sorted(name for name in modules if name.partition(".")[0] == "nodeheal")


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
