"""`nodeheal approve`, `refuse`, `pause`, `unpause` and `breaker`."""

import json
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract.vocabulary import Action
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import incident_id_of, short_id
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators import do_act
from nodeheal.services.operators.operator_guardrails import trip_breaker
from tests.support.acts import ADA, MemoryControlPlane, requested
from tests.support.approvals import Asked
from tests.support.builders import ACT, NOW, memory_ports, node
from tests.support.queues import WAITS, stands

RUN = CliRunner()
NODE = node().node_id


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Ports:
    world = memory_ports()
    world.nodes.save(node())
    monkeypatch.setattr(connect, "ports", lambda table: world)
    monkeypatch.setattr(connect, "policy_copy", lambda table: RecoveryPolicy())
    monkeypatch.setattr(connect, "policy", RecoveryPolicy)
    monkeypatch.setattr(connect, "control_plane", lambda: MemoryControlPlane(world, ACT))
    return world


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    it = Asked()
    monkeypatch.setattr(connect, "ports", lambda table: it.ports)
    monkeypatch.setattr(connect, "policy_copy", lambda table: RecoveryPolicy())
    monkeypatch.setattr(connect, "control_plane", lambda: MemoryControlPlane(it.ports, ACT))
    return it


def run(*words: str) -> Any:
    return RUN.invoke(app, list(words))


@pytest.mark.parametrize(("word", "outcome"), [("approve", "DONE"), ("refuse", "REFUSED")])
def test_an_answer_resumes_the_incident_and_says_what_went_on_record(asked: Asked, word: str, outcome: str) -> None:
    answered = run(word, asked.id, "--why", "the job is done")

    assert answered.exit_code == 0
    assert "ed by ada: the job is done" in answered.output
    assert [entry.actor for entry in asked.ports.incidents.history(asked.id).timeline if entry.actor] == [ADA.id]
    assert asked.resumed().outcome == outcome


def test_a_second_answer_is_refused_with_the_first(asked: Asked) -> None:
    run("refuse", asked.id, "--why", "no")

    again = run("approve", asked.id, "--why", "yes")

    assert again.exit_code == 1
    assert "waits for no approval" in again.output
    assert "It was refused by ada: no" in again.output


def test_an_unknown_incident_is_named(asked: Asked) -> None:
    answered = run("approve", "inc-unknown", "--why", "yes")

    assert (answered.exit_code, "inc-unknown" in answered.output) == (1, True)


def test_an_answer_needs_a_reason(asked: Asked) -> None:
    answered = run("approve", asked.id, "--why", "  ")

    assert (answered.exit_code, "--why: say why" in answered.output) == (2, True)
    assert asked.is_waiting()


def test_a_node_is_paused_until_told(ports: Ports) -> None:
    said = run("pause", NODE, "--for", "2h", "--why", "new riser").output

    pause = ports.pauses.read().of_node(NODE, NOW)
    assert said == f"node {NODE} is paused until 2026-03-01 05:00:00 UTC\n"
    assert pause is not None
    assert pause.until == NOW + timedelta(hours=2)
    assert pause.why.endswith(": new riser")


def test_a_pool_is_paused_and_unpaused(ports: Ports) -> None:
    run("pause", "demo", "--for", "30m", "--why", "new switch")
    why = ports.pauses.read().why_pool_is_paused("demo", NOW)
    assert why.startswith("pool demo is paused until 2026-03-01 03:30 UTC (")

    assert "Pause        pool demo is paused until 2026-03-01 03:30 UTC (" in run("nodes", "show", NODE).output
    run("pause", NODE, "--for", "2h", "--why", "new riser")
    both = run("nodes", "show", NODE).output
    assert "Pause        until 2026-03-01 05:00:00 UTC (" in both
    assert "; pool demo is paused until" in both
    told = json.loads(run("nodes", "show", NODE, "--json").output)
    assert told["pool_paused_until"] == "2026-03-01T03:30:00+00:00"
    assert told["pool_paused_why"].endswith(": new switch")

    said = run("unpause", "demo", "--why", "it is in").output

    assert said == "pool demo's pause is over now, before 2026-03-01 03:30:00 UTC\n"
    pauses = ports.pauses.read()
    assert pauses.of_pool("demo", NOW) is None
    assert pauses.by_key["pool#demo"].why.endswith(": it is in")


def test_a_pause_is_ended_without_a_reason_but_not_without_a_name(ports: Ports) -> None:
    run("pause", NODE, "--for", "30m", "--why", "new riser")

    run("unpause", NODE)

    pauses = ports.pauses.read()
    assert pauses.of_node(NODE, NOW) is None
    assert pauses.by_key[f"node#{NODE}"].why.endswith(": unpaused")
    assert not pauses.by_key[f"node#{NODE}"].why.startswith(":")


@pytest.mark.parametrize("target", [NODE, "demo"])
def test_what_is_not_paused_is_left_as_it_is(ports: Ports, target: str) -> None:
    said = run("unpause", target).output

    assert said.endswith(f" {target} was not paused; nothing was changed\n")
    assert ports.pauses.read() == NO_PAUSES


@pytest.mark.parametrize("length", ["soon", "2", "0h", "91d", "-1h", "2 h"])
def test_a_length_that_is_none_is_refused_by_name(ports: Ports, length: str) -> None:
    said = run("pause", "demo", f"--for={length}", "--why", "x")

    assert said.exit_code == 2
    assert length in said.output


@pytest.mark.parametrize("length", ["91d", "99999999h"])
def test_a_pause_that_is_too_long_is_told_how_long_it_may_be(ports: Ports, length: str) -> None:
    said = run("pause", "demo", "--for", length, "--why", "x")

    assert (said.exit_code, said.output) == (2, f"'{length}' is too long; give at most 90d\n")
    assert ports.pauses.read() == NO_PAUSES


@pytest.mark.parametrize("target", ["dmeo", "mi-0unknown"])
def test_what_nobody_has_heard_of_is_not_paused(ports: Ports, target: str) -> None:
    said = run("pause", target, "--for", "2h", "--why", "x")

    assert (said.exit_code, target in said.output) == (1, True)
    assert ports.pauses.read() == NO_PAUSES


def test_an_open_breaker_is_shown_and_reset(ports: Ports) -> None:
    trip_breaker("demo", "6 nodes with rack r7", ports)
    stands(ports, "inc-1", WAITS.model_copy(update={"awaits": "BREAKER"}))

    shown = json.loads(run("breaker", "show", "demo", "--json").output)
    said = run("breaker", "reset", "demo", "--why", "the rack has power again").output

    waiting = {"waiting": ["inc-1"], "nodes": {"inc-1": "mi-1"}}
    assert shown == {"pool": "demo", "opened_at": NOW.isoformat(), "why": "6 nodes with rack r7", **waiting}
    assert said == "the breaker of pool demo is closed; 1 incident decides again; what is stale is dropped\n"
    pool = ports.pools.get("demo")
    assert (pool.breaker_reset_why, pool.breaker_reset_by != "") == ("the rack has power again", True)
    assert run("breaker", "show", "demo").output == "the breaker of pool demo is closed\n"


def test_an_open_breaker_names_the_incidents_that_wait_and_their_nodes(ports: Ports) -> None:
    trip_breaker("demo", "6 nodes with rack r7 (mi-1, mi-2)", ports)
    waits = WAITS.model_copy(update={"awaits": "BREAKER"})
    for number in range(10):
        stands(ports, f"inc-20260301T030000-mi-1-{number:010d}", waits, number)

    shown = run("breaker", "show", "demo").output.splitlines()

    assert shown[1:4] == [
        "  6 nodes with rack r7 (mi-1, mi-2)",
        "  10 incidents wait for its reset",
        "    0000000000  mi-1",
    ]
    assert shown[-3:] == [
        "    0000000007  mi-1",
        "    and 2 more: nodeheal incidents list demo --state waiting",
        "  once you have looked at the pool: nodeheal breaker reset demo --why …",
    ]


@pytest.mark.parametrize("words", [("show", "dmeo"), ("reset", "dmeo", "--why", "x")])
def test_the_breaker_of_a_pool_that_nobody_knows_is_an_error(ports: Ports, words: tuple[str, ...]) -> None:
    said = run("breaker", *words)

    assert (said.exit_code, "no pool dmeo is known; did you mean demo?" in said.output) == (1, True)


def test_a_closed_breaker_is_not_reset(ports: Ports) -> None:
    said = run("breaker", "reset", "demo", "--why", "to be sure")

    assert (said.exit_code, said.output) == (1, "the breaker of pool demo is not open\n")


@pytest.mark.parametrize("word", ["isolate", "reboot", "replace"])
def test_what_is_asked_for_by_hand_names_its_incident(ports: Ports, word: str) -> None:
    ports.nodes.save(node("mi-free"))

    answered = run("nodes", word, NODE, "--why", "it smells")

    [incident] = ports.incidents.incidents.values()  # type: ignore[attr-defined]
    assert (answered.exit_code, incident.root.subcode, incident.node_id) == (0, word.upper(), NODE)
    assert incident.root.evidence == "ada: it smells"
    assert f"asked for; it is incident {incident.incident_id}:" in answered.output


def test_a_request_that_comes_second_is_told_which_incident_it_has_become_part_of(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = requested(NODE, Action.ISOLATE, "bob: me too", ports)

    def both_at_once(event: Any, *world: Any) -> None:
        ingest(first, ports, ACT)
        ingest(event, *world)

    monkeypatch.setattr(do_act, "ingest", both_at_once)

    said = run("nodes", "isolate", NODE, "--why", "it smells").output

    assert f"it is part of {incident_id_of(first)} now" in said
    assert said.endswith(f"`nodeheal incidents show {short_id(incident_id_of(first))}`\n")


def test_a_request_that_nothing_has_taken_is_to_be_made_again(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(do_act, "ingest", lambda *asked: None)

    answered = run("nodes", "isolate", NODE, "--why", "it smells")

    assert (answered.exit_code, "nothing was begun, try again" in answered.output) == (1, True)


def test_nothing_is_asked_for_on_a_node_that_nobody_knows(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "control_plane", lambda: pytest.fail("it was asked for"))

    assert run("nodes", "reboot", "mi-0unknown", "--why", "x").exit_code == 1
