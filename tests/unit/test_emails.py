"""Every kind of email, as a phone shows it: what is needed is on the first screen, and nothing is said twice."""

import json
import re

import pytest

from stacks.workflows import JOB, PARENT, Workflow
from tests import emails
from tests.emails import Kind, screen_lines
from tests.support.command_lines import must_parse

KINDS = list(emails.kinds())
EACH = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
FIRST_SCREEN = 12  # lines
SAID_TWICE = 40  # characters
SENTENCE_ENDS = re.compile(r"(?<=[.;:])\s+|\n")
# An empty line, a command, a quotation, an address, a time, an item of a list, a node, or a sentence.
BEGINS = re.compile(r"$|  nodeheal |\| |https://|s3://|\+\d|\d+\. |\d\d-\d\d |mi-|[A-Z]|your job |docs/|XID ")
MIDDLE = re.compile(r"(?: the| a| of| and| or| to|,)$")
COMMAND = re.compile(r"^  nodeheal (.+)$", re.MULTILINE)


def sentences(body: str) -> list[str]:
    """What it says, without commands and addresses, which are for the hand."""
    prose = [line for line in body.split("\n") if not line.startswith(("  nodeheal ", "https://", "s3://", "| "))]
    return [said.strip(" .;:") for said in SENTENCE_ENDS.split("\n".join(prose))]


@EACH
def test_what_is_needed_is_on_the_first_screen_of_a_phone(kind: Kind) -> None:
    begins = next(n for n, line in enumerate(screen_lines(kind.mail.body)) if line.startswith(("Needed:", "Approve:")))

    assert begins < FIRST_SCREEN


@EACH
def test_nothing_is_said_twice(kind: Kind) -> None:
    long = [said for said in sentences(kind.mail.body) if len(said) > SAID_TWICE]

    assert [said for said in long if kind.mail.body.count(said) > 1] == []


@EACH
def test_no_line_is_broken_by_us(kind: Kind) -> None:
    """Of a paragraph in several lines, some would begin with a small letter, or end in the middle of a sentence."""
    lines = kind.mail.body.split("\n")

    assert [line for line in lines[1:] if not BEGINS.match(line)] == []
    assert [line for line in lines if MIDDLE.search(line) and not line.startswith("Hello ")] == []


@EACH
def test_every_command_is_whole_and_exists(kind: Kind) -> None:
    for command in COMMAND.findall(kind.mail.body):
        must_parse(command.split())


def test_what_a_person_decides_stands_first() -> None:
    [asks] = [kind.mail.body.split("\n") for kind in KINDS if kind.name == "Approve?"]

    assert [asks[0], asks[3]] == ["Approve:", "Refuse:"]
    assert asks[1].startswith("https://") and "answer=approve" in asks[1]
    assert asks[4].startswith("https://") and "answer=refuse" in asks[4]


@pytest.mark.parametrize("stem", [PARENT, JOB])
def test_the_page_of_a_workflow_that_broke_says_what_is_needed_before_what_broke(stem: str) -> None:
    message = json.loads(Workflow(stem).path.read_text("utf-8"))["States"]["Page operators"]["Arguments"]["Message"]

    assert 0 < message.index("'Needed: ") < message.index("'Runbook: ") < message.index("'Error: ")


def test_other_vendors_opinions_stay_out() -> None:
    from_survey = re.compile(r"gpu-cluster-healthcheck|HyperPod|EKS")

    assert [kind.name for kind in KINDS if from_survey.search(kind.mail.body)] == []


def test_the_page_shows_every_kind_as_it_is() -> None:
    assert emails.PAGE.read_text("utf-8") == emails.render()
    assert emails.PICTURE.read_text("utf-8") == emails.draw()
