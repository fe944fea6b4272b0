"""The policy document's life in the deployed sandbox: shown, applied, refused, rolled back, and decided by."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from nodeheal.adapters.aws.policy_documents import PolicyDocuments, deployed_place
from nodeheal.cli.main import app
from nodeheal.domain.policy.policy import RecoveryPolicy
from sandbox.client import Sandbox
from tests.support.builders import xid

pytestmark = pytest.mark.emulated

WAIT_SECONDS = 30.0
SANDBOX_POLICY = Path(__file__).resolve().parents[2] / "sandbox" / "policy.json"
BROKEN = '{"default_pool": {"mode": "destroy"}}'


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("policy")) as sandbox:
        sandbox.deploy()
        yield sandbox


@pytest.fixture
def documents(cloud: Sandbox) -> PolicyDocuments:
    return PolicyDocuments(cloud.client("appconfig"), deployed_place(cloud.client("cloudformation")))


@pytest.fixture
def operator(cloud: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The operator's command, in the sandbox's account."""
    for name, value in cloud.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    return lambda *words: CliRunner().invoke(app, ["policy", *map(str, words)])


def observing(settle_seconds: int) -> str:
    """A document that differs from every other one by a knob."""
    return json.dumps({"default_pool": {"mode": "observe"}, "settle_seconds": settle_seconds})


def version_of(text: str) -> str:
    return RecoveryPolicy.model_validate_json(text).version


def decided_by(cloud: Sandbox) -> str:
    """The version of the policy by which the cloud decides about a new fault."""
    node_id = f"mi-{uuid.uuid4().hex[:17]}"
    event = xid(79, node_id=node_id, instance_id=node_id, event_id=uuid.uuid4().hex, observed_at=datetime.now(UTC))
    cloud.voices.enrols(node_id)
    cloud.voices.says(event)
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for item in cloud.client("dynamodb").scan(TableName=cloud.outputs["TableName"])["Items"]:
            decision = json.loads(item["data"]["S"]) if item.get("kind", {}).get("S") == "decision" else {}
            if decision.get("node_id") == node_id:
                return str(decision["policy_version"])
        time.sleep(0.1)
    raise AssertionError(f"after {WAIT_SECONDS:.0f} s nothing is decided about {node_id}")


# First: no function has read a policy yet, so none has to be waited for.
def test_a_document_that_is_applied_is_the_one_that_is_decided_by(
    cloud: Sandbox, operator: Callable[..., Any], tmp_path: Path
) -> None:
    assert json.loads(operator("show", "--json").output)["version"] == version_of(SANDBOX_POLICY.read_text("utf-8"))
    file = tmp_path / "policy.json"
    file.write_text(observing(301))

    applied = operator("apply", file, "--why", "a quiet night")

    assert applied.exit_code == 0
    assert f"in force: policy version {version_of(observing(301))}" in applied.output
    assert decided_by(cloud) == version_of(observing(301))
    shown = json.loads(operator("show", "--json").output)
    assert (shown["version"], shown["why"].partition(": ")[2]) == (version_of(observing(301)), "a quiet night")


def test_a_document_that_the_validator_refuses_changes_nothing(
    cloud: Sandbox, operator: Callable[..., Any], documents: PolicyDocuments, tmp_path: Path
) -> None:
    documents.apply(observing(302), "before")
    file = tmp_path / "broken.json"
    file.write_text(BROKEN)

    result = operator("apply", file, "--why", "by mistake")
    with pytest.raises(Exception, match=r"default_pool\.mode") as refused:  # past the command's own check
        documents.apply(BROKEN, "by mistake, past the command")

    assert result.exit_code == 2
    assert "default_pool.mode" in result.output
    assert isinstance(refused.value.__cause__, ClientError)
    assert refused.value.__cause__.response["Error"]["Code"] == "BadRequestException"
    assert documents.in_force().text == observing(302)


def test_a_rollback_brings_back_the_document_before_and_never_the_one_that_was_rolled_back(
    operator: Callable[..., Any], documents: PolicyDocuments
) -> None:
    for number in (303, 304, 305):
        documents.apply(observing(number), f"settle for {number} s")

    texts = []
    for _ in range(2):
        assert operator("rollback", "--why", "worse than before").exit_code == 0
        texts.append(documents.in_force().text)

    assert texts == [observing(304), observing(303)]
