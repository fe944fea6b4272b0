"""The policy that the functions read: the deployed document where it can be used, and the last good one where not."""

import io
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.utilities.parameters import AppConfigProvider
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError
from botocore.response import StreamingBody
from botocore.stub import Stubber
from moto import mock_aws

from nodeheal.adapters.aws.items import Item, Table
from nodeheal.adapters.aws.policy_reader import KEPT_SECONDS, PolicyReader, last_good
from nodeheal.contract import names
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from tests.support.builders import FrozenClock
from tests.support.dynamo_tables import dynamo_ports

BROKEN = '{"default_pool": {"mode": "destroy"}}'
OUTAGE = GetParameterError("the service does not answer")


def acting(settle_seconds: int) -> str:
    """A document that differs from every other one by a knob."""
    return json.dumps({"default_pool": {"mode": "act"}, "settle_seconds": settle_seconds})


class CountingTable(Table):
    """A table that counts what is written."""

    writes = 0

    def put(self, item: Item, condition: str = "", values: Any = None) -> bool:
        written = super().put(item, condition, values)
        self.writes += written
        return written


class AppConfig:
    """What is deployed, or the error that a read of it ends with. Counts sessions."""

    def __init__(self) -> None:
        self.deployed: object = b"{}"
        self.sessions = 0
        self.asked: list[tuple[str, int | None]] = []

    def connect(self) -> "AppConfig":
        self.sessions += 1
        return self

    def get(self, name: str, max_age: int | None = None) -> object:
        self.asked.append((name, max_age))
        if isinstance(self.deployed, Exception):
            raise self.deployed
        return self.deployed


class Functions:
    """Functions that read one deployed policy. Each `starts` is a cold start."""

    def __init__(self, table: CountingTable) -> None:
        self.table, self.appconfig = table, AppConfig()
        self.alarms: list[str] = []
        self.reader = self.starts()

    def starts(self) -> PolicyReader:
        self.reader = PolicyReader(self.appconfig.connect, "recovery-policy", self.table, self.alarms.append)
        return self.reader

    def deploys(self, document: object) -> None:
        self.appconfig.deployed = document.encode() if isinstance(document, str) else document

    def settles(self) -> int:
        """A knob of the policy in force, by which documents are told apart."""
        return self.reader.read().settle_seconds


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Functions]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        dynamo_ports(FrozenClock())
        yield Functions(CountingTable(boto3.client("dynamodb", region_name="us-east-1"), "state"))


def test_the_deployed_document_is_in_force_and_kept_for_a_minute(functions: Functions) -> None:
    functions.deploys(acting(301))

    policy = functions.reader.read()

    assert policy == RecoveryPolicy.model_validate_json(acting(301))
    assert functions.appconfig.asked == [("recovery-policy", KEPT_SECONDS)]
    assert functions.alarms == []


def test_a_document_that_comes_as_text_is_read_too(functions: Functions) -> None:
    functions.appconfig.deployed = acting(301)

    assert functions.settles() == 301


def test_who_only_tells_people_reads_what_others_have_read_last(functions: Functions) -> None:
    before = last_good(functions.table)
    functions.deploys(acting(301))
    functions.settles()
    functions.deploys('{"default_pool": {"mode": "destroy"}}')
    functions.settles()

    kept = last_good(functions.table)

    assert before is None
    assert kept is not None
    assert kept.settle_seconds == 301


def test_the_same_text_is_parsed_once(functions: Functions) -> None:
    functions.deploys(acting(301))

    first = functions.reader.read()

    assert functions.reader.read() is first
    assert functions.appconfig.sessions == 1


def test_a_new_document_comes_into_force(functions: Functions) -> None:
    functions.deploys(acting(301))
    functions.settles()

    functions.deploys(acting(302))

    assert functions.settles() == 302


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (BROKEN, "the deployed policy is not valid: default_pool.mode: "),
        ("not json", "the deployed policy is not valid: it is not JSON: "),
        ("", "the deployed policy is not valid: it is not JSON: "),
        (b"\xff\xfe{", "the deployed policy is not valid: it is not JSON: "),
        ('{"shoe_size": 44}', "the deployed policy is not valid: shoe_size: "),
        (OUTAGE, "AppConfig cannot be read: the service does not answer"),
    ],
)
def test_what_cannot_be_used_leaves_the_last_good_one_in_force_and_rings(
    functions: Functions, bad: object, told: str
) -> None:
    functions.deploys(acting(301))
    functions.settles()

    functions.deploys(bad)

    assert [functions.settles(), functions.settles()] == [301, 301]
    assert len(functions.alarms) == 2
    assert all(alarm.startswith(told) for alarm in functions.alarms)


@pytest.mark.parametrize("bad", [BROKEN, OUTAGE])
def test_a_cold_start_takes_the_last_good_one_from_the_table(functions: Functions, bad: object) -> None:
    functions.deploys(acting(301))
    functions.settles()
    functions.deploys(bad)

    functions.starts()

    assert functions.settles() == 301
    assert len(functions.alarms) == 1


def test_where_nothing_ever_was_good_every_pool_is_only_observed(functions: Functions) -> None:
    functions.deploys(BROKEN)

    policy = functions.reader.read()

    assert policy == RecoveryPolicy()
    assert policy.default_pool.mode is Mode.observe
    assert len(functions.alarms) == 1
    assert functions.table.writes == 0


def test_where_nothing_is_remembered_and_appconfig_is_silent_the_call_comes_back_later(functions: Functions) -> None:
    functions.deploys(OUTAGE)

    with pytest.raises(NotAccepted, match="the service does not answer"):
        functions.reader.read()

    assert len(functions.alarms) == 1


def test_a_document_that_is_mended_comes_into_force_again(functions: Functions) -> None:
    functions.deploys(BROKEN)
    functions.settles()

    functions.deploys(acting(301))

    assert functions.settles() == 301
    assert len(functions.alarms) == 1


def test_a_table_copy_of_another_release_is_no_copy(functions: Functions) -> None:
    functions.deploys(acting(301))
    functions.settles()
    functions.table.client.update_item(
        TableName="state",
        Key={"pk": {"S": names.POLICY_PK}, "sk": {"S": names.POLICY_SK}},
        UpdateExpression="SET document = :document",
        ExpressionAttributeValues={":document": {"S": '{"a_knob_that_is_gone": 1}'}},
    )
    functions.starts()

    functions.deploys('{"a_knob_that_is_gone": 1}')
    assert functions.reader.read() == RecoveryPolicy()

    functions.deploys(OUTAGE)
    functions.starts()
    with pytest.raises(NotAccepted):
        functions.reader.read()


def test_the_copy_says_no_more_than_the_document(functions: Functions) -> None:
    functions.deploys(acting(301))
    functions.settles()

    kept = functions.table.get(names.POLICY_PK, names.POLICY_SK)

    assert kept is not None
    assert json.loads(kept["document"]["S"]) == json.loads(acting(301))


def test_the_table_is_written_when_the_version_changes_and_only_then(functions: Functions) -> None:
    writes = []
    for document in (acting(301), acting(301), f"  {acting(301)}", acting(302), acting(301)):
        functions.deploys(document)
        functions.settles()
        functions.starts()
        functions.settles()
        writes.append(functions.table.writes)

    assert writes == [1, 1, 1, 2, 3]


def test_a_session_is_kept_until_it_fails_and_then_begun_anew(functions: Functions) -> None:
    functions.deploys(acting(301))
    functions.settles(), functions.settles()
    assert functions.appconfig.sessions == 1

    functions.deploys(OUTAGE)
    functions.settles()
    functions.deploys(acting(302))

    assert functions.settles() == 302
    assert functions.appconfig.sessions == 2


def test_powertools_own_reader_begins_a_new_session_after_an_expired_token(functions: Functions) -> None:
    client = boto3.client("appconfigdata", region_name="us-east-1")
    place = {
        "ApplicationIdentifier": "app",
        "EnvironmentIdentifier": "live",
        "ConfigurationProfileIdentifier": "recovery-policy",
    }
    with Stubber(client) as stub:
        for token, document in (("first", None), ("second", acting(301).encode())):
            stub.add_response("start_configuration_session", {"InitialConfigurationToken": token}, place)
            if document is None:
                stub.add_client_error("get_latest_configuration", "BadRequestException", "the token has expired")
                continue
            answer = {
                "Configuration": StreamingBody(io.BytesIO(document), len(document)),
                "NextPollConfigurationToken": "third",
            }
            stub.add_response("get_latest_configuration", answer, {"ConfigurationToken": token})
        reader = PolicyReader(
            lambda: AppConfigProvider("live", "app", boto3_client=client),
            "recovery-policy",
            functions.table,
            functions.alarms.append,
        )

        with pytest.raises(NotAccepted, match="the token has expired"):
            reader.read()
        found = [reader.read().settle_seconds for _ in range(2)]  # the second within the minute: no call

        stub.assert_no_pending_responses()
    assert found == [301, 301]
