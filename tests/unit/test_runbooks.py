"""The runbooks: one for each word, whole, and with commands that exist."""

import re
import shlex
from collections.abc import Iterator

import botocore.session
import pytest
from botocore import xform_name

from nodeheal.contract.vocabulary import Escalation
from nodeheal.domain.review.console_links import runbook_file
from stacks.settings import REPOSITORY
from tests.support.command_lines import must_parse

RUNBOOKS = REPOSITORY / "docs" / "runbooks"
PAGES = sorted(RUNBOOKS.glob("*.md"))
HEADINGS = [
    "What you see",
    "Why nodeheal stopped",
    "What it has done, and left",
    "Look at",
    "Decide",
    "Give it back",
    "So that it does not come again",
]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
# What the AWS CLI has beyond the services' operations and their parameters.
OF_THE_CLI_ITSELF = {"logs tail"}
PAGING = {"max-items"}


def commands(text: str, program: str) -> Iterator[list[str]]:
    """The arguments of each command of this program: in blocks, behind a pipe, and in the middle of a sentence."""
    for line in re.findall(r"`([^`\n]+)`", text) + [
        line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()
    ]:
        for part in line.split(" | "):
            words = shlex.split(part)
            if words and words[0] == program and len(words) > 1:
                yield words[1:]


def test_every_word_has_a_runbook_and_every_runbook_a_word() -> None:
    assert {page.name for page in PAGES} == {runbook_file(code) for code in Escalation}


@EACH_PAGE
def test_a_runbook_answers_the_same_questions_in_the_same_order(page: object) -> None:
    text = page.read_text("utf-8")  # type: ignore[attr-defined]

    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert text.startswith(f"# {page.stem.upper().replace('-', '_')}: ")  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= 120
    assert [part for part in re.split(r"^#.*$", text, flags=re.MULTILINE)[1:] if not part.strip()][1:] == []


@EACH_PAGE
def test_every_command_of_ours_in_a_runbook_exists(page: object) -> None:
    found = list(commands(page.read_text("utf-8"), "nodeheal"))  # type: ignore[attr-defined]

    assert found
    for arguments in found:
        must_parse([word if word != "..." else "because" for word in arguments])


@pytest.mark.parametrize("wrong", [["nodes", "heal", "NODE"], ["nodes", "enroll", "NODE"], ["approve", "--who", "me"]])
def test_a_command_that_does_not_exist_would_be_noticed(wrong: list[str]) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|missing"):
        must_parse(wrong)


@EACH_PAGE
def test_every_command_of_aws_in_a_runbook_exists(page: object) -> None:
    session = botocore.session.get_session()
    for service, operation, *arguments in commands(page.read_text("utf-8"), "aws"):  # type: ignore[attr-defined]
        if f"{service} {operation}" in OF_THE_CLI_ITSELF:
            continue
        model = session.get_service_model(service)
        known = {xform_name(name, "-"): model.operation_model(name) for name in model.operation_names}
        shape = known[operation].input_shape
        assert shape is not None
        members = {xform_name(member, "-") for member in shape.members}
        flags = {word.removeprefix("--") for word in arguments if word.startswith("--")}
        assert flags <= members | PAGING, (service, operation)
