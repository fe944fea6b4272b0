"""What must not be learned stays unlearned: by how long a comparison takes, and from what is written down."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.notification import Notification
from nodeheal.contract.steps import StepRequest
from stacks.settings import REPOSITORY

SECRET = "AQCsecretAAAAKgAAAAM"
_SECRETIVE = ("signature", "_sign", "secret", "hmac")


def sources() -> Iterator[Path]:
    """Every module of ours that runs deployed."""
    for folder in ("nodeheal", "lambdas"):
        yield from sorted((REPOSITORY / folder).rglob("*.py"))


def comparisons(path: Path) -> Iterator[str]:
    """Each comparison for equality in which something stands that is named like a secret."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            text = ast.unparse(node)
            if any(word in text for word in _SECRETIVE):
                yield text


def test_signatures_are_compared_in_constant_time() -> None:
    found = {path.name: list(comparisons(path)) for path in sources()}

    assert {path: texts for path, texts in found.items() if texts} == {}
    approval = (REPOSITORY / "nodeheal" / "domain" / "recovery" / "approval_links.py").read_text("utf-8")
    assert approval.count("hmac.compare_digest(self._sign(") == 1
    assert approval.count("self._sign(") == 2  # the other one writes the link: a signature is kept under no name


@pytest.mark.parametrize("model", [StepRequest, JobRequest, Notification])
def test_what_is_refused_is_named_and_not_shown(model: type[BaseModel]) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate({"task_token": [SECRET], "body": {"link": SECRET}, "unknown": SECRET})

    assert "unknown" in str(refused.value)
    assert SECRET not in str(refused.value)
