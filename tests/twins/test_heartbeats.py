"""The heartbeats that machines write themselves: memory and DynamoDB over one specification.

Into DynamoDB they come as the agent's own request has it, so that the two cannot drift apart.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from nodeheal.adapters.aws import calls
from nodeheal.adapters.aws.heartbeats import DynamoHeartbeats
from nodeheal.adapters.aws.own_ports import own_ports
from nodeheal.adapters.memory.heartbeats import MemoryHeartbeats
from nodeheal.agent.transport import heartbeat_client as agent
from nodeheal.contract import names
from nodeheal.contract.agent_pod import AgentPod
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.ports import Ports
from tests.support.agent_fakes import PUBLIC_KEY
from tests.support.builders import NOW, FrozenClock
from tests.support.dynamo_tables import client_of, clock, dynamo_ports, ports

__all__ = ["clock", "ports"]  # fixtures

A, B = "mi-0000000000000000a", "i-0000000000000000b"


def beats(
    ports: Ports, machine_id: str = A, role: str = "AROA1", seconds: float = 0, boot: str = "boot-1"
) -> Heartbeat:
    """The machine gives a heartbeat; how it is to be read."""
    given = Heartbeat(f"{role}:{machine_id}", boot, NOW + timedelta(seconds=seconds), 60.0)
    store = ports.heartbeats
    if isinstance(store, MemoryHeartbeats):
        known = store.beats.get(given.who)
        store.beats[given.who] = replace(given, wanted_seconds=known.wanted_seconds if known else None)
    else:
        asked = agent.request(given.who, agent.HeartbeatContent(boot, given.at.timestamp(), 60.0, PUBLIC_KEY))
        client_of(ports).update_item(**asked)
    return given


def pod_beats(ports: Ports, pod: AgentPod, seconds: float = 0) -> Heartbeat:
    """The pod gives a heartbeat; how it is to be read before anybody knows its machine."""
    given = Heartbeat(pod.signer, "boot-1", NOW + timedelta(seconds=seconds), 60.0)
    store = ports.heartbeats
    if isinstance(store, MemoryHeartbeats):
        store.beats[given.who] = given
    else:
        asked = agent.request(given.who, agent.HeartbeatContent("boot-1", given.at.timestamp(), 60.0, PUBLIC_KEY))
        client_of(ports).update_item(**asked)
    return given


def test_where_nobody_has_given_a_heartbeat_there_is_none(ports: Ports) -> None:
    assert ports.heartbeats.newest() == {}
    assert ports.heartbeats.of([A]) == {}


def test_the_newest_heartbeat_of_every_machine_is_found_by_its_id(ports: Ports) -> None:
    beats(ports, A)
    newer, other = beats(ports, A, seconds=60.5), beats(ports, B, boot="boot-b")

    assert ports.heartbeats.newest() == {A: newer, B: other}
    assert ports.heartbeats.of([B, "i-unknown"]) == {B: other}
    assert ports.heartbeats.of([]) == {}


FIRST_POD, POD, NEW_POD = (AgentPod("training", f"nodeheal-agent-{name}") for name in ("00000", "aaaaa", "bbbbb"))


def test_a_pods_heartbeat_is_nobodys_until_the_pod_is_placed(ports: Ports) -> None:
    unplaced, other = pod_beats(ports, POD), beats(ports, A)

    assert ports.heartbeats.newest() == {A: other}
    assert ports.heartbeats.of([B]) == {}

    for _ in range(2):
        ports.heartbeats.place(POD, B)

    placed = replace(unplaced, pod_machine=B)
    assert ports.heartbeats.newest() == {B: placed, A: other}
    assert ports.heartbeats.of([A, B]) == {A: other, B: placed}
    assert placed.machine_id == B


def test_of_the_last_two_pods_of_a_machine_the_newer_heartbeat_counts(ports: Ports) -> None:
    first, old, new = (
        pod_beats(ports, FIRST_POD, seconds=90),
        pod_beats(ports, POD),
        pod_beats(ports, NEW_POD, seconds=60),
    )

    for pod in (FIRST_POD, POD, NEW_POD, NEW_POD):
        ports.heartbeats.place(pod, B)

    assert first.at > new.at > old.at
    assert ports.heartbeats.newest() == {B: replace(new, pod_machine=B)}
    assert ports.heartbeats.of([B]) == {B: replace(new, pod_machine=B)}


def test_a_pod_that_is_placed_again_leaves_the_one_before_it_heard(ports: Ports) -> None:
    of_old = pod_beats(ports, POD)

    for pod in (POD, NEW_POD, NEW_POD):
        ports.heartbeats.place(pod, B)

    assert ports.heartbeats.newest() == {B: replace(of_old, pod_machine=B)}


@pytest.mark.parametrize("value", [{"S": POD.signer}, {"N": "1"}])
def test_no_machine_can_place_a_pod_by_what_it_writes_into_its_own_item(value: dict[str, str]) -> None:
    with mock_aws():
        ports = dynamo_ports(FrozenClock())
        of_pod, forger = pod_beats(ports, POD), beats(ports, A)
        ports.heartbeats.place(POD, B)
        client_of(ports).update_item(
            TableName=names.HEARTBEATS_TABLE,
            Key={names.HEARTBEAT_KEY: {"S": forger.who}},
            UpdateExpression="SET #pod = :pod",
            ExpressionAttributeNames={"#pod": names.AGENT_POD},
            ExpressionAttributeValues={":pod": value},
        )

        assert ports.heartbeats.newest() == {A: forger, B: replace(of_pod, pod_machine=B)}
        assert ports.heartbeats.of([A, B]) == {A: forger, B: replace(of_pod, pod_machine=B)}


@pytest.mark.parametrize("order", [(0, 60), (60, 0)])
def test_of_a_machine_that_was_given_another_role_the_newer_item_counts(ports: Ports, order: tuple[int, int]) -> None:
    given = [
        beats(ports, A, role=role, seconds=seconds) for role, seconds in zip(("AROA1", "AROA2"), order, strict=True)
    ]

    assert ports.heartbeats.newest() == {A: max(given, key=lambda one: one.at)}
    assert ports.heartbeats.of([A]) == {A: max(given, key=lambda one: one.at)}


def test_a_heartbeat_under_another_role_is_nobodys() -> None:
    """People name the sessions of other roles, so that its item could bear any machine's name."""
    with mock_aws():
        ports = dynamo_ports(FrozenClock())
        own, _ = beats(ports, A, role="AROA1"), beats(ports, A, role="AROA2", seconds=60, boot="boot-9")
        believed = DynamoHeartbeats(client_of(ports), names.HEARTBEATS_TABLE, ["AROA1"])

        assert believed.newest() == {A: own}
        assert believed.of([A]) == {A: own}


@pytest.mark.parametrize("known", ["given", "found"])
def test_where_the_roles_are_known_no_other_items_are_read_for_one_machine(
    monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "test")
    roles = ["AROA1", "AROA2", "AROA3"]
    with mock_aws():
        ports = dynamo_ports(FrozenClock())
        old, new = beats(ports, A, role="AROA1"), beats(ports, A, role="AROA2", seconds=60)
        beats(ports, A, role="AROA9", seconds=120)
        client, table, calls = client_of(ports), names.HEARTBEATS_TABLE, list[str]()
        client.meta.events.register("before-call.dynamodb", lambda model, **_: calls.append(model.name))
        store = (
            DynamoHeartbeats(client, table, roles)
            if known == "given"
            else DynamoHeartbeats(client, table, find_roles=lambda: roles)
        )

        assert old.at < new.at
        assert store.of([A]) == {A: new}
        assert store.of([f"i-{number:017x}" for number in range(60)]) == {}
        assert calls == ["BatchGetItem"] * 4  # of 100 keys: a machine has one under each role, and one for its pod


@pytest.mark.parametrize("may_read", [True, False])
def test_a_person_reads_one_machines_heartbeat_by_the_roles_that_the_stack_names(
    monkeypatch: pytest.MonkeyPatch, may_read: bool
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    called: list[str] = []
    outputs = [{"OutputKey": names.NODE_ROLES_OUTPUT, "OutputValue": "AROA1,AROA2"}]

    class CloudFormation:
        def describe_stacks(self, **_: str) -> dict[str, Any]:
            called.append("DescribeStacks")
            if not may_read:
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeStacks")
            return {"Stacks": [{"Outputs": outputs}]}

    with mock_aws():
        calls.client.cache_clear()  # a client keeps the credentials of its beginning
        given = beats(dynamo_ports(FrozenClock()), A)
        calls.client("dynamodb").meta.events.register(
            "before-call.dynamodb", lambda model, **_: called.append(model.name)
        )
        heartbeats = own_ports("state").heartbeats
        calls.client.cache_clear()
        monkeypatch.setattr("nodeheal.adapters.aws.own_ports.client", lambda service: CloudFormation())

        read = [heartbeats.of([A]).get(A), heartbeats.of([A]).get(A)]

    assert read == [given, given]
    assert called == (["DescribeStacks", *["BatchGetItem"] * 2] if may_read else ["DescribeStacks", "Scan", "Scan"])


def test_a_machine_is_not_taken_for_another_whose_id_contains_its_own(ports: Ports) -> None:
    beats(ports, f"{A}-longer")

    assert ports.heartbeats.of([A]) == {}


def test_an_interval_that_is_asked_for_outlives_the_next_heartbeat(ports: Ports) -> None:
    ports.heartbeats.want(beats(ports, A), 300)

    beats(ports, A, seconds=60)

    assert ports.heartbeats.newest()[A].wanted_seconds == 300


def test_asking_a_machine_that_is_gone_brings_nothing_back(ports: Ports) -> None:
    ports.heartbeats.want(Heartbeat(f"AROA1:{A}", "boot-1", NOW, 60.0), 300)

    assert ports.heartbeats.newest() == {}
    client = getattr(ports.heartbeats, "_client", None)  # of DynamoDB: half an item would expire never
    assert client is None or client.scan(TableName=names.HEARTBEATS_TABLE)["Count"] == 0


def test_more_machines_than_one_answer_holds_are_all_found(ports: Ports) -> None:
    given = {f"mi-{number:017}": beats(ports, f"mi-{number:017}", boot="b" * 64) for number in range(50)}

    assert ports.heartbeats.newest() == given


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("at", {"S": "now"}),
        ("at", {"N": "1e100"}),
        ("at", {"N": "-1e100"}),
        ("at", {"NULL": True}),
        ("every", {"BOOL": True}),
        ("boot", {"N": "1"}),
        ("boot", {"S": ""}),
        ("boot", {"S": "b" * 65}),
        ("boot", {"S": "x_y; $(id)"}),
        ("wanted", {"S": "never"}),
    ],
)
def test_a_machine_that_writes_nonsense_harms_nobody_but_itself(
    monkeypatch: pytest.MonkeyPatch, name: str, value: dict[str, Any]
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "test")
    with mock_aws():
        ports = dynamo_ports(FrozenClock())
        beats(ports, A)
        other = beats(ports, B)
        client_of(ports).update_item(
            TableName=names.HEARTBEATS_TABLE,
            Key={names.HEARTBEAT_KEY: {"S": f"AROA1:{A}"}},
            UpdateExpression="SET #it = :it",
            ExpressionAttributeNames={"#it": name},
            ExpressionAttributeValues={":it": value},
        )

        assert ports.heartbeats.newest() == {B: other}
