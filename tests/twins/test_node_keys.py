"""Public keys of nodes, read from the items into which agents write them."""

from collections.abc import Iterator
from typing import Any

import pytest
from moto import mock_aws

from nodeheal.adapters.aws import node_keys
from nodeheal.adapters.aws.heartbeats import DynamoHeartbeats
from nodeheal.adapters.aws.node_keys import FRESH_SECONDS, LACKING_SECONDS, DynamoNodeKeys
from nodeheal.agent.transport import heartbeat_client as agent
from nodeheal.contract import names
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.signature import key_id_of
from tests.support.agent_fakes import PUBLIC_KEY
from tests.support.builders import FrozenClock
from tests.support.dynamo_tables import client_of, dynamo_ports

A, B = "AROA1:i-0000000000000000a", "AROA1:i-0000000000000000b"


class Table:
    """The real request against DynamoDB in memory; counts what is read."""

    def __init__(self, client: Any) -> None:
        self.client, self.reads, self.now = client, 0, 0.0
        self.on_machine, self.asked = dict[AgentPod, str](), list[AgentPod]()
        self.keys = DynamoNodeKeys(self, names.HEARTBEATS_TABLE, self.place, lambda: self.now)  # type: ignore[arg-type]

    def place(self, pod: AgentPod) -> str | None:
        self.asked.append(pod)
        return self.on_machine.get(pod)

    def get_item(self, **asked: Any) -> Any:
        self.reads += 1
        return self.client.get_item(**asked)

    def publishes(self, who: str) -> str:
        self.client.update_item(**agent.request(who, agent.HeartbeatContent("boot-1", 0.0, 60.0, PUBLIC_KEY)))
        return PUBLIC_KEY.key_id


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield Table(client_of(dynamo_ports(FrozenClock())))


def test_a_published_key_is_read_once_in_a_while_and_is_its_nodes_alone(table: Table) -> None:
    key_id = table.publishes(A)

    found = [table.keys.find(A, key_id) for _ in range(3)]
    table.now = FRESH_SECONDS
    again = table.keys.find(A, key_id)

    assert {*found, again} == {bytes(32)}
    assert table.reads == 2
    assert table.keys.find(B, key_id) is None


def test_names_of_keys_that_an_item_lacks_cost_no_reading_each(table: Table) -> None:
    """A node may fill its item, a hundred read units, and sign with a new name each time."""
    table.publishes(A)

    assert [table.keys.find(A, f"{one:016x}") for one in range(1_000)] == [None] * 1_000
    assert table.reads == 1


def test_nobody_keeps_a_new_key_from_being_found_by_asking_for_others(table: Table) -> None:
    for one in range(100):
        table.keys.find(A, f"{one:016x}")
    key_id = table.publishes(A)

    table.now = LACKING_SECONDS
    table.keys.find(A, "f" * 16)
    table.now += 1

    assert table.keys.find(A, key_id) is not None


@pytest.mark.parametrize("value", ["", "no Base64!", "A" * 300_000])
def test_what_is_no_key_is_none(table: Table, value: str) -> None:
    item = {names.HEARTBEAT_KEY: {"S": A}, f"{names.HEARTBEAT_KEY_PREFIX}0": {"S": value}}
    table.client.put_item(TableName=names.HEARTBEATS_TABLE, Item=item)

    key = table.keys.find(A, "0")

    assert key is None or key_id_of(key) != "0"


def test_an_item_full_of_keys_fills_no_memory(table: Table) -> None:
    filled = {f"{names.HEARTBEAT_KEY_PREFIX}{one}": {"S": "QUJD 1"} for one in range(1_000)}
    table.client.put_item(TableName=names.HEARTBEATS_TABLE, Item={names.HEARTBEAT_KEY: {"S": A}, **filled})

    known = [one for one in range(1_000) if table.keys.find(A, str(one))]

    assert len(known) == node_keys.KEYS_OF_ONE


POD, NEW_POD = AgentPod("training", "nodeheal-agent-aaaaa"), AgentPod("training", "nodeheal-agent-bbbbb")
MACHINE = "i-0000000000000000a"


def test_which_pod_speaks_for_a_machine_is_read_once_in_a_while(table: Table) -> None:
    heartbeats = DynamoHeartbeats(table.client, names.HEARTBEATS_TABLE)
    heartbeats.place(POD, MACHINE)

    assert [table.keys.is_agent_of(MACHINE, POD.signer) for _ in range(3)] == [True] * 3
    assert table.reads == 1
    assert not table.keys.is_agent_of("i-0000000000000000b", POD.signer)


def test_a_machines_new_pod_is_believed_soon_after_it_is_placed_and_the_one_before_for_what_is_under_way(
    table: Table,
) -> None:
    heartbeats = DynamoHeartbeats(table.client, names.HEARTBEATS_TABLE)
    heartbeats.place(POD, MACHINE)
    assert table.keys.is_agent_of(MACHINE, POD.signer)
    heartbeats.place(NEW_POD, MACHINE)

    assert [table.keys.is_agent_of(MACHINE, NEW_POD.signer) for _ in range(100)] == [False] * 100
    assert (table.reads, table.asked) == (1, [])
    table.now = LACKING_SECONDS

    assert table.keys.is_agent_of(MACHINE, NEW_POD.signer)
    assert table.keys.is_agent_of(MACHINE, POD.signer)
    heartbeats.place(AgentPod("training", "nodeheal-agent-ccccc"), MACHINE)
    table.now += FRESH_SECONDS
    assert not table.keys.is_agent_of(MACHINE, POD.signer)


def test_of_a_pod_that_nobody_has_placed_its_cluster_is_asked_at_once_and_then_no_more(table: Table) -> None:
    table.on_machine[POD] = MACHINE

    assert [table.keys.is_agent_of(MACHINE, POD.signer) for _ in range(3)] == [True] * 3
    assert table.asked == [POD]


def test_a_pod_that_speaks_for_a_thousand_machines_has_its_cluster_asked_once_in_a_while(table: Table) -> None:
    table.on_machine[POD] = MACHINE

    assert not any(table.keys.is_agent_of(f"i-{number:017x}", POD.signer) for number in range(100, 1_100))
    assert table.asked == [POD]
    table.now = LACKING_SECONDS

    assert table.keys.is_agent_of(MACHINE, POD.signer)
