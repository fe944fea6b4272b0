"""An event is believed only if the node that it is about has signed it."""

from base64 import b64encode
from typing import Any

import pytest
from pydantic import ValidationError

from nodeheal.contract.agent_pod import AgentPod
from nodeheal.contract.names import NODE_BOOTED, NODE_HEALTH_REPORTED
from nodeheal.contract.signature import EARLY_SECONDS, KEPT_SECONDS, key_id_of, signed_bytes
from nodeheal.contract.signed_event import SignedEvent, SignedText
from nodeheal.domain.errors import NotAccepted
from nodeheal.services.intake.verify_event import Forged, verify
from tests.support.signing import ROLE, Keys, Machine

NODE, OTHER = "i-0aaaaaaaaaaaaaaaa", "i-0bbbbbbbbbbbbbbbb"
NOW = 1_795_290_959.0


@pytest.fixture
def keys() -> Keys:
    return Keys()


def read(event: SignedEvent, keys: Keys, kind: str = NODE_HEALTH_REPORTED, now: float = NOW) -> SignedText:
    return verify(event, kind, keys, {ROLE}, now)


def test_what_a_node_signs_about_itself_is_believed(keys: Keys) -> None:
    event = Machine(NODE, keys).signs({"node_id": NODE, "evidence": "é\u2028\\"}, at=NOW)

    assert read(event, keys).event == {"node_id": NODE, "evidence": "é\u2028\\"}


def test_a_node_cannot_speak_for_another_one(keys: Keys) -> None:
    forger = Machine(OTHER, keys)
    Machine(NODE, keys)

    with pytest.raises(Forged, match="about another node"):
        read(forger.signs({"node_id": NODE}, at=NOW), keys)
    with pytest.raises(NotAccepted):  # the victim's item has no such key
        read(forger.signs({"node_id": NODE}, at=NOW, signer=f"{ROLE}:{NODE}"), keys)


def test_a_signature_of_another_key_is_refused(keys: Keys) -> None:
    victim, forger = Machine(NODE, keys), Machine(OTHER, keys)
    forged = forger.signs({"node_id": NODE}, at=NOW, signer=victim.signer, key_id=key_id_of(victim.public))

    with pytest.raises(Forged, match="signature"):
        read(forged, keys)


def test_a_key_that_is_published_under_the_id_of_another_proves_nothing(keys: Keys) -> None:
    victim, forger = Machine(NODE, keys), Machine(OTHER, keys)
    of_victim = key_id_of(victim.public)
    keys.find = lambda *_: forger.public  # type: ignore[method-assign]
    forged = forger.signs({"node_id": NODE}, at=NOW, signer=victim.signer, key_id=of_victim)

    with pytest.raises(Forged, match="something else than a key"):
        read(forged, keys)


@pytest.mark.parametrize("change", [lambda text: text.replace("79", "48"), lambda text: text + " ", lambda text: "{}"])
def test_a_text_that_was_changed_is_refused(keys: Keys, change: Any) -> None:
    event = Machine(NODE, keys).signs({"node_id": NODE, "code": "79"}, at=NOW)

    with pytest.raises(Forged, match="signature"):
        read(event.model_copy(update={"signed": change(event.signed)}), keys)


def test_a_role_whose_sessions_people_name_is_not_believed(keys: Keys) -> None:
    person = Machine(NODE, keys, role="AROAOFSOMEBODYELSE00")

    with pytest.raises(Forged, match="node_role_ids"):
        read(person.signs({"node_id": NODE}, at=NOW), keys)


def test_an_event_of_one_kind_is_not_taken_for_another(keys: Keys) -> None:
    event = Machine(NODE, keys).signs({"node_id": NODE}, NODE_BOOTED, NOW)

    with pytest.raises(Forged, match="of the kind 'Node Booted'"):
        read(event, keys)


@pytest.mark.parametrize(
    ("signed_at", "is_believed"),
    [
        (NOW, True),
        (NOW - KEPT_SECONDS + 1, True),
        (NOW - KEPT_SECONDS - 1, False),
        (NOW + EARLY_SECONDS - 1, True),
        (NOW + EARLY_SECONDS + 1, False),
    ],
)
def test_a_signature_holds_for_as_long_as_a_queue_keeps_an_event(
    keys: Keys, signed_at: float, is_believed: bool
) -> None:
    event = Machine(NODE, keys).signs({"node_id": NODE}, at=signed_at)

    if is_believed:
        assert read(event, keys).signed_at == pytest.approx(signed_at, abs=0.001)
    else:
        with pytest.raises(Forged, match="signed the event at"):
            read(event, keys)


@pytest.mark.parametrize("published", [b"", b"short", bytes(32), b"\xff" * 32, b"x" * 33])
def test_a_key_that_is_none_is_refused(keys: Keys, published: bytes) -> None:
    machine = Machine(NODE, keys)
    keys.by_name[machine.signer, key_id_of(machine.public)] = published

    with pytest.raises((Forged, NotAccepted)):
        read(machine.signs({"node_id": NODE}, at=NOW), keys)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"detail_type": "x"}', '{"detail_type": "x", "signed_at": NaN, "event": {}}']
)
def test_a_signed_text_that_is_no_event_is_refused(keys: Keys, text: str) -> None:
    machine = Machine(NODE, keys)
    event = machine.signs({}, at=NOW, signed=text, signature=b64encode(machine.private.sign(signed_bytes(text))))

    with pytest.raises(ValidationError):
        read(event, keys)


@pytest.mark.parametrize(
    "signer", ["", ":", ROLE, f"{ROLE}:", f":{NODE}", f"{ROLE}:{NODE}:{NODE}", f"{ROLE}:{NODE}\n", f"role:{NODE}"]
)
def test_a_signer_is_a_session_of_a_role(keys: Keys, signer: str) -> None:
    with pytest.raises(ValidationError):
        Machine(NODE, keys).signs({"node_id": NODE}, at=NOW, signer=signer)


POD = AgentPod("training", "nodeheal-agent-x7k2p")
OF_POD = {"node_id": NODE, "cluster": "training"}


def test_a_pod_speaks_for_the_machine_that_its_cluster_names(keys: Keys) -> None:
    agent = Machine(NODE, keys, pod=POD)
    keys.pods[NODE] = POD.signer

    assert read(agent.signs(OF_POD, at=NOW), keys).event == OF_POD


@pytest.mark.parametrize("event", [{**OF_POD, "cluster": "other"}, {"node_id": NODE}, {**OF_POD, "node_id": "i" * 129}])
def test_a_pod_speaks_of_nodes_of_its_own_cluster_only(keys: Keys, event: dict[str, Any]) -> None:
    agent = Machine(NODE, keys, pod=POD)
    keys.pods |= {NODE: POD.signer, "i" * 129: POD.signer}

    with pytest.raises(Forged, match="another cluster"):
        read(agent.signs(event, at=NOW), keys)


def test_a_pod_speaks_for_no_machine_before_its_cluster_was_asked_and_for_no_other_one_ever(keys: Keys) -> None:
    agent = Machine(NODE, keys, pod=POD)
    with pytest.raises(NotAccepted, match="is not known as the agent of"):
        read(agent.signs(OF_POD, at=NOW), keys)

    keys.pods |= {NODE: POD.signer, OTHER: "pod:training/nodeheal-agent-qq8zt"}

    with pytest.raises(NotAccepted, match=f"agent of {OTHER}"):
        read(agent.signs({**OF_POD, "node_id": OTHER}, at=NOW), keys)


def test_a_pods_signature_is_checked_as_a_machines(keys: Keys) -> None:
    keys.pods[NODE] = POD.signer
    victim, forger = Machine(NODE, keys, pod=POD), Machine(OTHER, keys)
    forged = forger.signs(OF_POD, at=NOW, signer=victim.signer, key_id=key_id_of(victim.public))

    with pytest.raises(Forged, match="signature"):
        read(forged, keys)


@pytest.mark.parametrize(
    "signer", ["pod:training", "pod:a/b/c", "pod:a/B", "pod:../b", f"pod:a/{'b' * 254}", "pod:a/b\n"]
)
def test_what_is_no_name_of_a_pod_signs_nothing(keys: Keys, signer: str) -> None:
    with pytest.raises(ValidationError):
        Machine(NODE, keys).signs({"node_id": NODE}, at=NOW, signer=signer)
