"""The node's signing key: one for the daemon and the orders, kept, published before it is used, and replaced by age."""

import json
import os
import stat
from base64 import b64decode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from nodeheal.agent.identity.signing import (
    FILE_NAME,
    PUBLISH_AGAIN_SECONDS,
    PUBLISHED_FOR_SECONDS,
    ROTATE_SECONDS,
    NotPublished,
    Signer,
)
from nodeheal.agent.identity.sts_identity import StsIdentity
from nodeheal.agent.transport.aws_client import AwsClient
from nodeheal.agent.transport.credentials import CredentialChain
from nodeheal.agent.transport.heartbeat_client import OLD_KEYS, HeartbeatItem, HeartbeatRejected, PublicKey
from nodeheal.contract.signature import KEPT_SECONDS, signed_bytes
from tests.support.agent_fakes import IDENTITY, KEYS, USER_ID, FakeEventBridge, FakeTime

EVENT = '{"node_id":"mi-1","evidence":"é \\\\ \\""}'


GOOD = b'{"node_id": "mi-0a1b2c3d4e5f67890", "secret": "' + b"A" * 43 + b'=", "created_at": %b, "signer": "x"}'


class Item:
    """A KeyItem that remembers what was published."""

    def __init__(self) -> None:
        self.published: list[PublicKey] = []
        self.refusal = ""
        self.is_of_another = ""  # why the credentials do not prove this item

    def name(self) -> str:
        if self.is_of_another:
            raise HeartbeatRejected(self.is_of_another, is_refusal=True)
        return USER_ID

    def publish(self, key: PublicKey, now: float) -> str:
        if self.refusal:
            raise HeartbeatRejected(self.refusal, is_refusal=True)
        self.published.append(key)
        return USER_ID

    def close(self) -> None:
        """There is no connection."""


@pytest.fixture
def item() -> Item:
    return Item()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


def signed(signer: Signer) -> dict[str, str]:
    signer.prepare()
    envelope: dict[str, str] = json.loads(signer.sign("Node Booted", EVENT, 1_795_290_959.0))
    return envelope


def is_good(envelope: dict[str, str], key: PublicKey) -> bool:
    public = Ed25519PublicKey.from_public_bytes(b64decode(key.text))
    public.verify(b64decode(envelope["signature"]), signed_bytes(envelope["signed"]))  # raises InvalidSignature
    return envelope["key_id"] == key.key_id


def test_an_event_travels_as_the_exact_text_that_was_signed(folder: Path, item: Item, time: FakeTime) -> None:
    envelope = signed(Signer(folder, IDENTITY.node_id, item, time.clock()))

    assert EVENT in envelope["signed"]
    assert json.loads(envelope["signed"]) == {
        "detail_type": "Node Booted",
        "signed_at": 1_795_290_959,
        "event": json.loads(EVENT),
    }
    assert envelope["signer"] == USER_ID
    assert is_good(envelope, item.published[-1])


def test_the_daemon_and_the_orders_share_one_key_that_only_its_owner_reads(
    folder: Path, item: Item, time: FakeTime
) -> None:
    first, second = (Signer(folder, IDENTITY.node_id, item, time.clock()) for _ in range(2))

    assert (
        signed(first)["key_id"]
        == signed(second)["key_id"]
        == signed(Signer(folder, IDENTITY.node_id, item, time.clock()))["key_id"]
    )
    assert stat.S_IMODE((folder / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [FILE_NAME]


def test_a_key_is_published_before_it_signs_and_once_a_day_after(folder: Path, item: Item, time: FakeTime) -> None:
    signer = Signer(folder, IDENTITY.node_id, item, time.clock())
    for _ in range(3):
        signed(signer)
    signed(Signer(folder, IDENTITY.node_id, item, time.clock()))
    assert len(item.published) == 1

    time.seconds += PUBLISH_AGAIN_SECONDS + 1
    signed(signer)

    assert len(item.published) == 2


def test_nothing_is_signed_that_nobody_could_verify(folder: Path, item: Item, time: FakeTime) -> None:
    item.refusal = "400 AccessDeniedException"

    with pytest.raises(NotPublished, match="AccessDenied"):
        signed(Signer(folder, IDENTITY.node_id, item, time.clock()))


def test_a_table_that_is_out_of_reach_for_days_holds_nothing_up(folder: Path, item: Item, time: FakeTime) -> None:
    signer = Signer(folder, IDENTITY.node_id, item, time.clock())
    signed(signer)
    item.refusal = "timed out"

    time.seconds += PUBLISHED_FOR_SECONDS - 1
    signed(signer)

    time.seconds += 2
    with pytest.raises(NotPublished):
        signed(signer)


def test_only_the_daemon_replaces_an_old_key_and_publishes_the_new_one_first(
    folder: Path, item: Item, time: FakeTime
) -> None:
    daemon = Signer(folder, IDENTITY.node_id, item, time.clock(), may_rotate=True)
    order = Signer(folder, IDENTITY.node_id, item, time.clock())
    old = signed(daemon)["key_id"]
    time.seconds += ROTATE_SECONDS + 1
    assert signed(order)["key_id"] == old

    item.refusal = "timed out"
    with pytest.raises(NotPublished):
        daemon.prepare()
    item.refusal = ""
    new = signed(daemon)

    assert new["key_id"] != old
    assert is_good(new, item.published[-1])
    assert signed(Signer(folder, IDENTITY.node_id, item, time.clock()))["key_id"] == new["key_id"]


@pytest.mark.parametrize(
    "spoilt",
    [b"", b"{", b"[]", b'{"secret": "AAAA", "created_at": 1}', b"\xff" * 99, b"[" * 9999, GOOD % b"NaN", GOOD % b'"5"'],
)
def test_a_spoilt_key_file_is_replaced(folder: Path, item: Item, time: FakeTime, spoilt: bytes) -> None:
    (folder / FILE_NAME).write_bytes(spoilt)

    envelope = signed(Signer(folder, IDENTITY.node_id, item, time.clock()))

    assert is_good(envelope, item.published[-1])
    assert signed(Signer(folder, IDENTITY.node_id, item, time.clock()))["key_id"] == envelope["key_id"]


def test_a_link_in_the_place_of_the_key_is_not_followed(folder: Path, item: Item, time: FakeTime) -> None:
    elsewhere = folder.parent / "elsewhere"
    elsewhere.write_text("not ours")
    (folder / FILE_NAME).symlink_to(elsewhere)

    signed(Signer(folder, IDENTITY.node_id, item, time.clock()))

    assert elsewhere.read_text() == "not ours"
    assert not (folder / FILE_NAME).is_symlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_disk_that_cannot_be_written_holds_nothing_up(folder: Path, item: Item, time: FakeTime) -> None:
    folder.chmod(0o500)

    assert is_good(signed(Signer(folder, IDENTITY.node_id, item, time.clock())), item.published[-1])


def test_nothing_is_signed_with_a_key_that_the_credentials_do_not_prove(
    folder: Path, item: Item, time: FakeTime
) -> None:
    """A machine that was started from a copy of the disk has the key, the configuration and other credentials."""
    signed(Signer(folder, IDENTITY.node_id, item, time.clock()))
    item.is_of_another = "the credentials here are another machine's"

    with pytest.raises(NotPublished, match="another machine's") as refused:
        signed(Signer(folder, IDENTITY.node_id, item, time.clock()))

    assert refused.value.is_refusal


def test_the_key_of_another_node_is_replaced_before_the_first_signature(
    folder: Path, item: Item, time: FakeTime
) -> None:
    origin = signed(Signer(folder, "mi-0origin", item, time.clock()))

    copy = signed(Signer(folder, IDENTITY.node_id, item, time.clock()))

    assert copy["key_id"] != origin["key_id"]
    assert is_good(copy, item.published[-1])
    assert json.loads((folder / FILE_NAME).read_text())["node_id"] == IDENTITY.node_id


def test_a_key_that_was_never_published_is_its_nodes_alone(folder: Path, item: Item, time: FakeTime) -> None:
    origin = Signer(folder, "mi-0origin", item, time.clock()).public()

    assert Signer(folder, IDENTITY.node_id, item, time.clock()).public() != origin


# The item -------------------------------------------------------------------------------------------------------------


def heartbeat_item(bus: FakeEventBridge, time: FakeTime) -> HeartbeatItem:
    credentials, clock = CredentialChain(time.clock(), KEYS), time.clock()
    sts, table = (AwsClient(name, "eu-central-1", bus.url, credentials, clock) for name in ("sts", "dynamodb"))
    return HeartbeatItem(IDENTITY.node_id, table, StsIdentity(sts))


def key_made_at(created_at: float, number: int = 0) -> PublicKey:
    return PublicKey(f"{number:016x}", "A" * 43 + "=", int(created_at))


def kept(bus: FakeEventBridge) -> list[str]:
    return sorted(name for name in bus.table.item if name.startswith("key_"))


def test_old_keys_stay_for_as_long_as_an_event_may_wait(bus: FakeEventBridge, time: FakeTime) -> None:
    table, now = heartbeat_item(bus, time), 1_800_000_000.0
    old, new = key_made_at(now - ROTATE_SECONDS, 1), key_made_at(now, 2)
    table.publish(old, now - 1)

    assert table.publish(new, now) == USER_ID
    table.publish(new, now + KEPT_SECONDS - 1)
    assert kept(bus) == [old.attribute, new.attribute]

    table.publish(new, now + KEPT_SECONDS + 1)
    assert kept(bus) == [new.attribute]


def test_only_some_old_keys_stay_however_often_a_disk_loses_its_own(bus: FakeEventBridge, time: FakeTime) -> None:
    table, now = heartbeat_item(bus, time), 1_800_000_000.0

    for number in range(20):
        table.publish(key_made_at(now + number, number), now + number)

    newest = range(20 - OLD_KEYS - 1, 20)
    assert kept(bus) == [key_made_at(0, number).attribute for number in newest]
