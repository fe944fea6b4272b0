"""What only a page can say stands there: nothing in the code fails where a person does not know it."""

import re

import pytest

from sandbox.fleet import PROPAGATES_TAGS
from stacks.settings import REPOSITORY


@pytest.mark.parametrize(
    ("page", "words"),
    [
        # A machine that a group launches cannot be isolated without it.
        ("docs/ec2.md", (PROPAGATES_TAGS.decode(), "ec2:DescribeTags")),
        # A launch with volumes under a key of the customer ends in Client.InternalError without it.
        ("docs/ec2.md", ("kms:CreateGrant", "replace_node", "launch")),
        # The ECS agent cannot register without it: on EC2 it has the instance profile, and nothing else.
        ("docs/agent.md", ("EC2 nodes", "instance profile", "AmazonEC2ContainerServiceforEC2Role")),
        ("docs/deploy.md", ("Lambda's concurrency", "get-account-settings")),
        ("docs/deploy.md", ("China", "ICP", "x86_64")),
    ],
)
def test_a_page_says_what_nothing_else_can(page: str, words: tuple[str, ...]) -> None:
    text = (REPOSITORY / page).read_text("utf-8")
    parts = re.split(r"\n(?=\n|[-|] |\d+\. |\|)", text)

    assert [part for part in parts if all(word in part for word in words)], f"{page}: {words}"
