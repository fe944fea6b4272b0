"""The pages for a first account: each command exists, and is one that the AWS CLI can read."""

import base64
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name
from botocore.validate import ParamValidator

from nodeheal.domain.policy.policy import parse_policy
from nodeheal.domain.policy.policy_lint import lint_policy
from sandbox.machine_orders import USER_DATA
from stacks.settings import REPOSITORY
from tests.support.command_lines import must_parse

DOCS = REPOSITORY / "docs"
PAGES = [DOCS / name for name in ("ecs-anywhere.md", "ec2.md", "first-account.md")]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
OF_THE_CLI_ITSELF = {"query", "max-items"}


def typed(text: str, program: str) -> list[list[str]]:
    """The arguments of each command of this program in the blocks of a page."""
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [shlex.split(line)[1:] for line in lines if line.startswith(f"{program} ")]


@EACH_PAGE
def test_every_command_of_aws_names_an_operation_and_all_that_it_requires(page: Path) -> None:
    session, found = botocore.session.get_session(), typed(page.read_text("utf-8"), "aws")

    assert found
    for service, operation, *arguments in found:
        model = session.get_service_model(service)
        shape = next(
            model.operation_model(name).input_shape
            for name in model.operation_names
            if xform_name(name, "-") == operation
        )
        assert shape is not None
        flags = {word.removeprefix("--") for word in arguments if word.startswith("--")}
        assert flags <= {xform_name(member, "-") for member in shape.members} | OF_THE_CLI_ITSELF, operation
        assert {xform_name(member, "-") for member in shape.required_members} <= flags, operation
        by_flag = {f"--{xform_name(name, '-')}": member for name, member in shape.members.items()}
        for flag, value in pairwise(arguments):
            if flag in by_flag and not value.startswith(("file://", "--", "$")):
                must_be_taken(by_flag[flag], value)


def must_be_taken(member: Any, value: str) -> None:
    """Fails where the model of the service does not allow this value: a choice, or JSON of another shape."""
    if member.type_name == "string" and member.enum:
        assert value in member.enum
    if value.startswith(("{", "[{")):
        report = ParamValidator().validate(json.loads(value), member)
        assert not report.has_errors(), report.generate_report()


@EACH_PAGE
def test_every_command_of_ours_exists(page: Path) -> None:
    found = typed(page.read_text("utf-8"), "nodeheal")

    assert found
    for arguments in found:
        must_parse(arguments)


def test_no_policy_in_a_page_is_in_doubt() -> None:
    blocks = [
        block for page in DOCS.glob("*.md") for block in re.findall(r"```json\n(.*?)```", page.read_text("utf-8"), re.S)
    ]
    policies = [block for block in blocks if block.startswith('{ "pools": ')]

    assert len(policies) >= 3
    assert [doubt for policy in policies for doubt in lint_policy(parse_policy(policy))] == []


@EACH_PAGE
def test_every_link_leads_to_a_page_and_a_heading_that_are_there(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)]+)\)", page.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        path = (DOCS / name) if name else page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
            known = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
            assert anchor in known, target


def test_the_user_data_of_the_page_is_what_the_sandbox_boots_its_machines_with() -> None:
    [block] = re.findall(r"```sh\n(#!/bin/sh\n.*?)```", (DOCS / "ec2.md").read_text("utf-8"), re.DOTALL)

    assert base64.b64decode(USER_DATA).decode() == block
