"""A node's record: which moves its life allows, and what a boot, an event or a recovery changes of it."""

import re
from datetime import timedelta

import pytest

from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.node import BootView, PastRecovery, may_move, moved
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.recovery.incident import incident_id_of
from tests.support.builders import NOW, node, xid
from tests.support.observations import later

_S = NodeState


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_S.HEALTHY, {_S.SUSPECT, _S.ISOLATED, _S.RETIRED}),
        (_S.SUSPECT, {_S.HEALTHY, _S.ISOLATED, _S.RETIRED}),
        (_S.ISOLATED, {_S.RECOVERING, _S.PROBATION, _S.QUARANTINED, _S.HEALTHY}),
        (_S.RECOVERING, {_S.PROBATION, _S.QUARANTINED}),
        (_S.PROBATION, {_S.HEALTHY, _S.SUSPECT, _S.ISOLATED, _S.RETIRED}),
        (_S.QUARANTINED, {_S.HEALTHY, _S.PROBATION, _S.RETIRED}),
        (_S.RETIRED, set()),
    ],
)
def test_a_node_goes_where_its_life_allows_and_may_always_stay(before: NodeState, after: set[NodeState]) -> None:
    assert {state for state in NodeState if may_move(before, state)} == after | {before}


def test_a_move_says_why() -> None:
    assert moved(node(), NodeState.ISOLATED, "off the bus", NOW).state_reason == "off the bus"


def test_a_new_boot_forgets_what_was_settled_and_remembers_when_it_came() -> None:
    before = node(resolved_faults={"xid/79/-/boot-1": "inc-1"})

    after = before.booted("boot-2", later(60))

    assert (after.resolved_faults, after.booted_at, after.last_seen) == ({}, later(60), later(60))


def test_an_event_that_comes_late_does_not_make_the_node_look_older() -> None:
    before = node(last_seen=later(60))

    assert before.booted("boot-1", NOW).last_seen == later(60)
    assert before.booted("boot-2", NOW).last_seen == later(60)


@pytest.mark.parametrize(
    ("version", "seconds", "expected"),
    [
        ("0.2.0", 60, ("0.2.0", 60)),
        ("0.1.0", 60, ("0.1.0", 0)),
        ("0.0.9", -1, ("0.1.0", 0)),
        ("0.2.0", 0, ("0.2.0", 0)),
    ],
    ids=["an upgrade", "the same", "from before the upgrade", "in the same moment"],
)
def test_an_agents_version_is_known_since_it_was_first_heard(
    version: str, seconds: float, expected: tuple[str, float]
) -> None:
    after = node(agent_version="0.1.0", agent_since=NOW).with_agent_version(version, later(seconds))

    assert (after.agent_version, after.agent_since) == (expected[0], later(expected[1]))
    assert node().with_agent_version("0.1.0", NOW).agent_since == NOW


def test_an_incident_counts_as_one_recovery_however_often_its_ending_is_written() -> None:
    first, then = PastRecovery("inc-1", NOW), PastRecovery("inc-2", later(60))

    after = node().with_recovery(first).with_recovery(then).with_recovery(then)

    assert after.recoveries == (then, first)


def test_an_incidents_name_can_be_an_executions_name() -> None:
    name = incident_id_of(xid(79, node_id="arn:aws/" + "x" * 60 + ".end"))

    assert re.fullmatch(r"inc-20260301T030000-[A-Za-z0-9-]{24}-[0-9a-f]{10}", name)
    assert name.split("-", 2)[2].startswith("x" * 20 + "-end-")


def test_a_move_that_a_nodes_life_does_not_allow_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot go from RETIRED to ISOLATED"):
        moved(node(state=NodeState.RETIRED), NodeState.ISOLATED, "broken", NOW)


def test_a_boot_without_an_address_keeps_the_one_that_is_known() -> None:
    known = node(address="10.0.0.1", accelerators=8)
    boots = [known.booted(boot, NOW + timedelta(minutes=1)) for boot in ("boot-1", "boot-2")]

    assert {(boot.address, boot.accelerators) for boot in boots} == {("10.0.0.1", 8)}
    moved_to = [known.booted(boot, NOW, "10.0.0.2", 4) for boot in ("boot-1", "boot-2")]
    assert {(boot.address, boot.accelerators) for boot in moved_to} == {("10.0.0.2", 4)}


def test_a_node_in_quarantine_is_no_spare_however_old_its_probation() -> None:
    assert not node(state=NodeState.QUARANTINED, probation_until=NOW).is_available(NOW, NO_PAUSES)
    assert not node(state=NodeState.PROBATION).is_available(NOW, NO_PAUSES)


def test_an_unknown_boot_of_the_very_moment_of_the_current_one_is_past() -> None:
    assert node(booted_at=NOW).view("boot-x", NOW) is BootView.PAST
    assert node(booted_at=NOW).view("boot-x", NOW + timedelta(microseconds=1)) is BootView.NEWER
