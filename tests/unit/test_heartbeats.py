"""What the sweep makes of the heartbeats that machines write themselves."""

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from nodeheal.contract.health_event import NodeBooted, NodeFact
from nodeheal.contract.vocabulary import Family, NodeState, Outcome, VerbName, Verdict
from nodeheal.domain.fleet.liveness import LONGEST_INTERVAL_SECONDS, Heartbeat, Silence
from nodeheal.domain.fleet.node import Node
from nodeheal.services.intake import heartbeats
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.intake.wakeup import on_node_booted
from nodeheal.services.sweep import Swept, sweep
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, stored_node, under_way, waiting, xid

if TYPE_CHECKING:
    from nodeheal.ports import Ports

A = "mi-0000000000000000a"
LONG_AGO = NOW - timedelta(hours=8)


class World:
    """A pool of ten whose machines beat, and one node that the bus has not heard for hours."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.ports: Ports = memory_ports(self.clock)
        for number in range(10):
            self.has(f"mi-{number}")
            self.beats(f"mi-{number}", seconds_ago=10)
        self.has(A)

    def has(self, node_id: str, **changes: object) -> None:
        values = {"last_seen": LONG_AGO, "booted_at": LONG_AGO, **changes}
        assert self.ports.nodes.save(node(node_id, **values))

    def beats(self, machine: str = A, seconds_ago: float = 10, boot: str = "boot-1", **changes: object) -> Heartbeat:
        heartbeat = Heartbeat(f"AROA:{machine}", boot, self.clock() - timedelta(seconds=seconds_ago), 60.0)
        heartbeat = replace(heartbeat, **changes)  # type: ignore[arg-type]
        self.ports.heartbeats.beats[heartbeat.who] = heartbeat  # type: ignore[attr-defined]
        return heartbeat

    def node(self, node_id: str = A) -> Node:
        return stored_node(self.ports, node_id)

    def sweep(self, **silence: object) -> Swept:
        policy = ACT.model_copy(update={"silence": Silence.model_validate(silence)})
        return sweep(self.ports, policy)

    @property
    def silent(self) -> list[str]:
        return [incident.node_id for incident in self.ports.incidents.incidents.values()]  # type: ignore[attr-defined]


@pytest.fixture
def it() -> World:
    return World()


def test_a_node_whose_machine_beats_is_not_silent_whatever_the_bus_has_heard(it: World) -> None:
    it.beats(A, seconds_ago=299)

    it.sweep()

    assert it.silent == []
    assert it.node().version == 1  # nothing is written for a healthy node


@pytest.mark.parametrize(
    ("seconds_ago", "every_seconds", "is_silent"),
    [
        (300, 60.0, True),
        (1_499, 300.0, False),
        (1_500, 300.0, True),
        (299, 1.0, False),  # who beats more often is not missed sooner
        (5 * LONGEST_INTERVAL_SECONDS, 1e9, True),  # nobody can make itself never missed
        (-1e9, 60.0, True),  # nor by a beat of the future
    ],
)
def test_a_node_is_silent_when_its_machine_has_missed_five_beats(
    it: World, seconds_ago: float, every_seconds: float, is_silent: bool
) -> None:
    it.beats(A, seconds_ago=seconds_ago, every_seconds=every_seconds)

    it.sweep()

    assert (it.silent == [A]) is is_silent


def test_events_on_the_bus_are_heartbeats_too(it: World) -> None:
    it.beats(A, seconds_ago=3_000)
    it.ports.nodes.save(replace(it.node(), last_seen=NOW - timedelta(seconds=20)))

    it.sweep()

    assert it.silent == []


def test_one_silence_stays_one_event_when_the_item_of_the_machine_has_gone(it: World) -> None:
    it.beats(A, seconds_ago=400)
    it.sweep()
    it.ports.heartbeats.beats.pop(f"AROA:{A}")  # type: ignore[attr-defined]
    it.ports.nodes.save(replace(it.node(), open_incident=None))

    it.sweep()

    assert it.node().last_seen == NOW - timedelta(seconds=400)
    assert it.silent == [A]


@pytest.mark.parametrize("tells", ["heartbeat", "boot"])
def test_nor_by_a_word_on_the_bus_that_is_of_the_future(it: World, tells: str) -> None:
    later = it.clock() + timedelta(days=10_000)
    said = {"node_id": A, "instance_id": A, "observed_at": later, "event_id": "later"}
    if tells == "heartbeat":
        well = xid(**said).model_copy(update={"family": Family.heartbeat, "code": "heartbeat", "verdict": Verdict.OK})
        ingest(well, it.ports, ACT)
    else:
        booted = {**xid(**said).model_dump(include=set(NodeFact.model_fields)), "boot_id": "boot-2"}
        on_node_booted(NodeBooted(**booted, booted_at=later, address="10.0.0.1", accelerators=8), it.ports)

    assert it.node().last_seen == it.clock()


def test_a_clock_that_is_ahead_does_not_make_a_dead_node_live_on(it: World) -> None:
    it.beats(A, seconds_ago=-120)
    it.sweep()
    assert it.silent == []

    it.clock.advance(120 + 300)
    for number in range(10):
        it.beats(f"mi-{number}")
    it.sweep()

    assert it.silent == [A]


def test_many_machines_that_stop_beating_together_are_told_once_and_left_alone(it: World) -> None:
    for number in range(8):
        it.beats(f"mi-{number}", seconds_ago=310)

    done = it.sweep()

    assert done.paged_mass_silence == ["demo"]
    assert it.silent == [A]


def test_a_boot_that_nobody_has_announced_is_recorded_and_ends_the_wait_for_it(it: World) -> None:
    under_way(it.ports, VerbName.REBOOT, node_id=A)
    it.ports.nodes.save(replace(it.node(), state=NodeState.RECOVERING))
    it.beats(A, boot="boot-2")

    done = it.sweep()

    assert done.booted == [A]
    assert (it.node().boot_id, it.node().past_boots) == ("boot-2", ("boot-1",))
    [(token, result)] = it.ports.workflows.resumed.items()  # type: ignore[attr-defined]
    assert (token, result.outcome, result.boot_id) == ("token", Outcome.DONE, "boot-2")
    assert waiting(it.ports) == []


def test_a_boot_that_is_known_is_recorded_once(it: World) -> None:
    it.beats(A, boot="boot-2")

    assert [it.sweep().booted, it.sweep().booted] == [[A], []]


def test_a_heartbeat_of_the_boot_before_changes_no_boot(it: World) -> None:
    it.ports.nodes.save(replace(it.node(), boot_id="boot-2", past_boots=("boot-1",), booted_at=NOW))
    it.beats(A, seconds_ago=400, boot="boot-1")

    done = it.sweep()

    assert done.booted == []
    assert it.node().boot_id == "boot-2"


@pytest.mark.parametrize("state", [NodeState.ENROLLED, NodeState.RETIRED])
def test_one_that_never_spoke_or_is_retired_stays_what_it_is(it: World, state: NodeState) -> None:
    it.ports.nodes.save(replace(it.node(), state=state))
    it.beats(A, boot="boot-2")

    it.sweep()

    assert (it.node().state, it.node().boot_id) == (state, "boot-1")


def test_of_many_boots_at_once_a_run_takes_its_share_and_the_next_run_the_rest(
    it: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "BOOTS_A_RUN", 6)
    for number in range(10):
        it.beats(f"mi-{number}", boot="boot-2")

    runs = [len(it.sweep().booted) for _ in range(3)]

    assert runs == [6, 4, 0]


def test_machines_are_asked_for_the_interval_of_the_policy_once(it: World) -> None:
    it.beats(A)

    asked = [it.sweep(heartbeat_seconds=seconds).interval_requests for seconds in (60, 300, 300, 60)]

    assert asked == [0, 11, 0, 11]
    assert it.ports.heartbeats.newest()[A].wanted_seconds == 60


def test_of_many_machines_a_run_asks_its_share(it: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "MACHINES_ASKED_A_RUN", 7)

    assert [it.sweep(heartbeat_seconds=300).interval_requests for _ in range(3)] == [7, 3, 0]


def test_a_node_that_the_cloud_knows_by_another_id_is_known_by_it(it: World) -> None:
    it.has("rack-7-slot-3", instance_id="mi-000000000000000c7")
    it.beats("mi-000000000000000c7")
    it.beats(A)

    it.sweep()

    assert it.silent == []


def test_a_node_that_announces_itself_again_is_seen_and_tells_its_version() -> None:
    ports = memory_ports()
    ports.nodes.save(node(last_seen=LONG_AGO, agent_version="0.1.0"))
    fact = xid(agent_version="0.9.0").model_dump(include=set(NodeBooted.model_fields))

    on_node_booted(NodeBooted(**fact, booted_at=LONG_AGO, address="10.0.0.7", accelerators=8), ports)

    stored = stored_node(ports, node().node_id)
    assert (stored.last_seen, stored.agent_version, stored.boot_id) == (NOW, "0.9.0", "boot-1")
