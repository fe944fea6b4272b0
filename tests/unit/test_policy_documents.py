"""The policy documents as an operator handles them, against a small AppConfig that keeps its rules."""

import base64
import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from lambdas import validate_policy
from nodeheal.adapters.aws import policy_documents
from nodeheal.adapters.aws.policy_documents import (
    Deployed,
    NotDeployed,
    PolicyDocuments,
    deployed_node_roles,
    deployed_place,
)
from nodeheal.contract import names
from nodeheal.domain.errors import Conflict, NotFound
from tests.support.appconfig import PLACE, FakeAppConfig, Json
from tests.support.builders import NOW
from tests.support.deployed_stacks import FakeStacks


@pytest.fixture
def appconfig(monkeypatch: pytest.MonkeyPatch) -> FakeAppConfig:
    monkeypatch.setattr(policy_documents, "time", SimpleNamespace(sleep=lambda seconds: None, monotonic=lambda: 0))
    return FakeAppConfig()


def applied(appconfig: FakeAppConfig, *texts: str) -> PolicyDocuments:
    documents = PolicyDocuments(appconfig, PLACE)
    for text in texts:
        documents.apply(text, f"because of {text}")
    return documents


def rolled_back(documents: PolicyDocuments, why: str) -> Deployed:
    return documents.deploy(documents.previous()[0], why)


def test_a_document_that_is_applied_is_in_force_with_its_reason(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one")

    deployed = documents.apply("two", "better")

    assert (deployed.text, deployed.version, deployed.deployment, deployed.why) == ("two", 2, 2, "better")
    assert documents.in_force() == deployed
    assert deployed.at == NOW.isoformat()


def test_a_deployment_names_what_the_stack_has_made(appconfig: FakeAppConfig) -> None:
    applied(appconfig, "one")

    asked = {key: value for key, value in appconfig.started[0].items() if key.endswith("Id")}

    assert asked == {
        "ApplicationId": "a",
        "EnvironmentId": "e",
        "ConfigurationProfileId": "p",
        "DeploymentStrategyId": "s",
    }


def test_a_reason_longer_than_appconfig_takes_is_cut(appconfig: FakeAppConfig) -> None:
    PolicyDocuments(appconfig, PLACE).apply("one", "x" * 2_000)

    assert len(appconfig.started[0]["Description"]) == 1_024


def test_the_time_is_that_of_the_completion_where_there_is_one(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one")
    appconfig.deployments[0]["CompletedAt"] = datetime(2027, 1, 1, tzinfo=UTC)

    assert documents.in_force().at == "2027-01-01T00:00:00+00:00"


def test_a_refusal_says_why_and_changes_nothing(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one")
    appconfig.validator = lambda text: "default_pool.mode: no such mode" if text == "bad" else ""

    with pytest.raises(NotDeployed, match=r"refused version 2: default_pool\.mode: no such mode"):
        documents.apply("bad", "by mistake")

    assert documents.in_force().text == "one"


def test_what_the_validator_said_is_told_where_it_stands_beside_the_message(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one")
    appconfig.validator = lambda text: "validation failed"
    appconfig.details = {
        "Reason": "InvalidConfiguration",
        "Details": {"InvalidConfiguration": [{"Type": "LAMBDA", "Reason": "pools.a: unknown"}, {}]},
    }

    with pytest.raises(NotDeployed) as refused:
        documents.apply("bad", "by mistake")

    assert str(refused.value) == "AppConfig refused version 2: validation failed; pools.a: unknown"


def test_a_document_that_appconfig_does_not_even_store_is_refused_alike(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one")

    with pytest.raises(NotDeployed, match="refused the document: too large"):
        documents.apply("x" * 2_000_001, "everything")

    assert len(appconfig.deployments) == 1


def test_a_deployment_is_awaited(appconfig: FakeAppConfig) -> None:
    appconfig.states = ["VALIDATING", "DEPLOYING", "BAKING", "COMPLETE"]

    assert applied(appconfig, "one").in_force().text == "one"


@pytest.mark.parametrize("state", ["ROLLING_BACK", "ROLLED_BACK", "REVERTED"])
def test_a_deployment_that_is_rolled_back_says_why(appconfig: FakeAppConfig, state: str) -> None:
    documents = applied(appconfig, "one")
    appconfig.states = ["DEPLOYING", state]
    appconfig.events = [{"Description": "an alarm rang"}, {}]

    with pytest.raises(NotDeployed, match="rolled deployment 2 back: an alarm rang"):
        documents.apply("two", "better")

    assert documents.in_force().text == "one"


def test_a_deployment_that_does_not_end_is_left_with_a_word(
    appconfig: FakeAppConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    appconfig.states = ["DEPLOYING"]
    seconds = iter(range(0, 10_000, 60))
    monkeypatch.setattr(
        policy_documents, "time", SimpleNamespace(sleep=lambda seconds: None, monotonic=lambda: next(seconds))
    )

    with pytest.raises(NotDeployed, match="deployment 1 is not complete after 120 s"):
        applied(appconfig, "one")


def test_where_nothing_was_deployed_nothing_is_in_force_and_nothing_to_go_back_to(appconfig: FakeAppConfig) -> None:
    documents = PolicyDocuments(appconfig, PLACE)

    for asked in (documents.in_force, documents.previous):
        with pytest.raises(NotFound, match="no policy document has been deployed yet"):
            asked()


def test_the_first_document_has_none_before_it(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one")

    with pytest.raises(NotFound, match="there is no policy document before version 1"):
        rolled_back(documents, "worse")

    assert len(appconfig.deployments) == 1


def test_a_change_is_refused_where_another_version_is_in_force_than_it_was_made_from(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one", "two")

    with pytest.raises(Conflict, match=r"AppConfig version 2 is in force since .* was made from version 1"):
        documents.apply("three", "unaware", over=1)
    with pytest.raises(Conflict):
        documents.deploy(1, "unaware", over=1)

    assert appconfig.stored == ["one", "two"]
    assert documents.apply("three", "aware", over=2).version == 3


def test_the_first_document_is_made_from_an_empty_one(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig)
    base = documents.base()

    assert (base.text, base.version, base.is_same("{}")) == ("{}", 0, False)
    assert documents.apply("{}", "first", over=0).is_same("{ }")


def test_earlier_documents_are_listed_and_read_if_they_were_in_force(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one", "two", "three")
    appconfig.stored.append("never deployed")

    assert [deployed.text for deployed in documents.recent(2)] == ["three", "two"]
    assert documents.applied(1) == "one"
    with pytest.raises(NotFound, match="version 4 of the policy document was never in force"):
        documents.applied(4)


def test_a_rollback_brings_back_the_document_before_with_its_own_reason(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one", "two")

    back = rolled_back(documents, "two was worse")

    assert (back.text, back.version, back.why) == ("one", 1, "two was worse")
    assert documents.in_force() == back
    assert appconfig.stored == ["one", "two"]  # the document itself is deployed again, not a copy


def test_two_rollbacks_go_two_documents_back(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one", "two", "three")

    texts = [rolled_back(documents, "worse").text for _ in range(2)]

    assert texts == ["two", "one"]
    with pytest.raises(NotFound):
        rolled_back(documents, "worse")


@pytest.mark.parametrize(
    ("texts", "back"), [(("{}", "[1]", " [1] "), "{}"), (("x", "{}", "{}\n"), "x"), (("[1]", "{}", "[1]"), "{}")]
)
def test_a_document_that_was_applied_twice_is_one_document_for_a_rollback(
    appconfig: FakeAppConfig, texts: tuple[str, ...], back: str
) -> None:
    assert rolled_back(applied(appconfig, *texts), "worse").text == back


def test_where_every_document_before_says_the_same_there_is_none_to_go_back_to(appconfig: FakeAppConfig) -> None:
    with pytest.raises(NotFound, match="no policy document before version 2 that differs from it"):
        applied(appconfig, "{}", " {}").previous()


def test_what_was_rolled_back_is_not_the_one_before_what_came_after(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one", "bad")
    rolled_back(documents, "bad")
    documents.apply("good", "better")

    assert rolled_back(documents, "not so good").text == "one"


def test_a_deployment_that_did_not_go_through_is_no_document_to_go_back_to(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, "one", "two")
    appconfig.states = ["ROLLED_BACK"]
    with pytest.raises(NotDeployed):
        documents.apply("three", "unlucky")
    appconfig.states = ["COMPLETE"]

    assert rolled_back(documents, "worse").text == "one"


def test_the_history_is_in_order_whatever_order_appconfig_lists_it_in(appconfig: FakeAppConfig) -> None:
    documents = applied(appconfig, *(f"document {number}" for number in range(12)))
    appconfig.deployments.sort(key=lambda item: str(item["DeploymentNumber"]))

    assert [item["DeploymentNumber"] for item in documents.history()] == list(range(12, 0, -1))


def test_the_stack_says_where_its_policy_is() -> None:
    """AppConfig may have several applications of one name: a stack that was removed leaves its own."""
    assert deployed_place(FakeStacks({"BusName": "nodeheal", names.POLICY_OUTPUT: "a/e/p/s"})) == PLACE


def test_the_stack_says_which_roles_its_nodes_have() -> None:
    assert deployed_node_roles(FakeStacks({names.NODE_ROLES_OUTPUT: "AROA1,AROA2"})) == ["AROA1", "AROA2"]
    assert deployed_node_roles(FakeStacks({"BusName": "nodeheal"})) == []
    assert deployed_node_roles(FakeStacks(None)) == []
    assert deployed_node_roles(FakeStacks(None, code="AccessDenied", message="not authorized")) == []


@pytest.mark.parametrize("stacks", [{"BusName": "nodeheal"}, None])
def test_a_stack_that_is_not_there_asks_whether_nodeheal_is_deployed(stacks: dict[str, str] | None) -> None:
    with pytest.raises(NotFound, match="has nodeheal been deployed in this account and Region"):
        deployed_place(FakeStacks(stacks))


def test_a_refusal_of_cloudformation_is_not_taken_for_a_stack_that_is_not_there() -> None:
    with pytest.raises(ClientError, match="not authorized"):
        deployed_place(FakeStacks(None, code="AccessDenied", message="not authorized"))


# The validator -------------------------------------------------------------------------------------------------------


def asks(text: bytes) -> Json:
    """What AppConfig sends to a validator."""
    return {
        "applicationId": "a",
        "configurationProfileId": "p",
        "configurationVersion": "2",
        "content": base64.b64encode(text).decode(),
        "uri": "hosted",
    }


def test_the_validator_lets_a_valid_document_pass() -> None:
    validate_policy.handler(asks(b'{"default_pool": {"mode": "act"}}'), None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b'{"default_pool": {"mode": "destroy"}}', r"refused: default_pool\.mode: "),
        (b'{"shoe_size": 44}', "refused: shoe_size: "),
        (b"{", "refused: it is not JSON: "),
        (b"", "refused: it is not JSON: "),
        (b'{"a": "\xe9"}', "utf-8"),
    ],
)
def test_the_validator_refuses_by_field(text: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        validate_policy.handler(asks(text), None)


def test_the_validator_names_five_fields_at_most() -> None:
    document = {f"unknown_{number}": 1 for number in range(9)}

    with pytest.raises(ValueError, match="unknown_0") as refused:
        validate_policy.handler(asks(json.dumps(document).encode()), None)

    assert str(refused.value).count("unknown_") == 5
