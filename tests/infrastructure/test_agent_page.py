"""The commands of docs/agent.md, as a shell expands them, against AWS's models and our own document."""

import base64
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name
from botocore.validate import ParamValidator

from nodeheal.contract import names
from stacks.settings import REPOSITORY
from stacks.wheelhouse import packages
from tests.support.node_root import DOCUMENT, executable

PAGE = (REPOSITORY / "docs" / "agent.md").read_text("utf-8")
INSTALL = PAGE[PAGE.index("## Put it on a node") : PAGE.index("## Let it speak")]
# A stand-in that writes its words down, as the shell hands them over.
AWS = f"""#!/bin/sh
exec {sys.executable} -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$@" >> "$SEEN"
"""


@dataclass(frozen=True)
class Call:
    """One call of the AWS CLI."""

    service: str
    operation: str
    given: dict[str, Any]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """Every call on the page, made by a shell."""
    folder = tmp_path_factory.mktemp("page")
    executable(folder / "bin" / "aws", AWS)
    (folder / "agents").mkdir()
    for file in ("agent.toml", "agents/h100.toml"):
        (folder / file).write_text('cluster = "training"\n' * 20)  # long enough for padding and several lines
    seen = folder / "seen"
    for block in re.findall(r"```sh\n(.*?)```", INSTALL, re.DOTALL):
        if block.startswith("aws "):
            environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "SEEN": str(seen)}
            subprocess.run(["sh", "-ec", block], cwd=folder, env=environment, check=True, timeout=60)
    return [call(json.loads(line)) for line in seen.read_text().splitlines()]


def call(words: list[str]) -> Call:
    """As the AWS CLI reads it: an option is a member of the request, and JSON where it is no plain word."""
    service, operation, *options = words
    model = botocore.session.get_session().get_service_model(service)
    name = next(known for known in model.operation_names if xform_name(known, "-") == operation)
    shape = model.operation_model(name).input_shape
    assert shape is not None
    given: dict[str, Any] = {}
    for option, value in zip(options[::2], options[1::2], strict=True):
        member = next(known for known in shape.members if f"--{xform_name(known, '-')}" == option)
        kind = shape.members[member].type_name
        if kind in ("integer", "map", "structure") or value.startswith("["):
            given[member] = json.loads(value)
        else:
            given[member] = [value] if kind == "list" else value
    complaint = ParamValidator().validate(given, shape).generate_report()
    assert complaint == "", f"{operation}: {complaint}"
    return Call(service, operation, given)


def test_every_command_is_a_request_that_aws_can_read(calls: list[Call]) -> None:
    assert [(one.service, one.operation) for one in calls] == [
        ("ssm", "send-command"),
        ("ssm", "list-associations"),
        ("ssm", "describe-association-execution-targets"),
        ("ssm", "create-activation"),
        ("ssm", "add-tags-to-resource"),
        ("ec2", "create-tags"),
        ("ssm", "send-command"),
    ]


def test_every_install_sends_what_our_document_takes(calls: list[Call]) -> None:
    declared = json.loads(DOCUMENT.read_text("utf-8"))["parameters"]
    sent = [one.given for one in calls if one.operation == "send-command"]

    for request in sent:
        assert request["DocumentName"] == names.INSTALL_DOCUMENT
        for name, [value] in request["Parameters"].items():
            assert re.fullmatch(declared[name]["allowedPattern"], value), name
        assert b"cluster" in base64.b64decode(request["Parameters"]["Config"][0])
    assert [{key for key in request if key in ("InstanceIds", "Targets")} for request in sent] == [
        {"InstanceIds"},
        {"Targets"},
    ]


def test_the_tag_of_a_pool_is_spelled_alike_everywhere(calls: list[Call]) -> None:
    tags = [tag["Key"] for one in calls for tag in one.given.get("Tags", ())]
    targets = [target["Key"] for one in calls for target in one.given.get("Targets", ())]

    assert set(tags) == {names.AGENT_POOL_TAG}
    assert targets == [f"tag:{names.AGENT_POOL_TAG}"]


def test_the_way_by_hand_names_the_pip_that_the_wheelhouse_holds() -> None:
    [pip] = packages().glob("pip-*.whl")

    assert f"wheels/{pip.name}/pip install --no-index" in INSTALL


def test_nothing_on_the_page_installs_from_an_index() -> None:
    commands = "".join(re.findall(r"```sh\n(.*?)```", INSTALL, re.DOTALL))
    installs = re.findall(r"pip install [^\n]*", commands)

    assert installs
    assert [line for line in installs if "--no-index" not in line] == []


@pytest.mark.parametrize("name", ["LICENSE", "CONTRIBUTING.md", "docs/adr/0047-the-agents-wheelhouse.md"])
def test_what_the_pages_link_to_is_there(name: str) -> None:
    assert Path(REPOSITORY / name).is_file()
