"""The operator's command: what it says, and how it says that something is wrong."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nodeheal.cli import nodes
from nodeheal.cli.main import app
from nodeheal.contract.vocabulary import NodeState
from nodeheal.ports import Ports
from tests.unit.builders import memory_ports, node

RUN = CliRunner()
NODE = node().node_id


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Ports:
    world = memory_ports()
    monkeypatch.setattr(nodes, "_ports", lambda table: world)
    return world


def test_explain_says_what_and_why() -> None:
    said = RUN.invoke(app, ["explain", "XID", "79"]).output

    assert "GPU has fallen off the bus" in said
    assert "REBOOT, then REPLACE" in said
    assert "observe mode" in said


def test_explain_speaks_to_programs() -> None:
    said = json.loads(RUN.invoke(app, ["explain", "xid", "555", "--json"]).output)

    assert (said["is_known"], said["action"]) == (False, "ESCALATE")


def test_a_policy_that_is_wrong_is_refused_by_field(tmp_path: Path) -> None:
    document = tmp_path / "policy.json"
    document.write_text('{"default_pool": {"mode": "destroy"}}')

    result = RUN.invoke(app, ["policy", "check", str(document)])

    assert result.exit_code == 2
    assert "default_pool.mode" in result.output


def test_nodes_are_listed_with_their_state(ports: Ports) -> None:
    ports.nodes.save(node(state=NodeState.QUARANTINED, state_reason="no spare"))

    said = RUN.invoke(app, ["nodes", "list", "demo"]).output

    assert NODE in said
    assert "QUARANTINED" in said
    assert "no spare" in said


@pytest.mark.parametrize(("verb", "state"), [("release", NodeState.HEALTHY), ("retire", NodeState.RETIRED)])
def test_a_quarantined_node_is_given_back_or_given_up(ports: Ports, verb: str, state: NodeState) -> None:
    ports.nodes.save(node(state=NodeState.QUARANTINED))
    ports.budget.claim("demo", NODE, 1)

    result = RUN.invoke(app, ["nodes", verb, NODE, "--why", "seen to"])

    after = ports.nodes.get(NODE)
    assert result.exit_code == 0
    assert after is not None
    assert after == replace(after, state=state, state_reason="seen to", open_incident=None)
    assert list(ports.budget.holders("demo")) == []


def test_a_node_that_is_in_service_is_refused_in_one_line(ports: Ports) -> None:
    ports.nodes.save(node())

    result = RUN.invoke(app, ["nodes", "release", NODE, "--why", "by mistake"])

    assert result.exit_code == 1
    assert "nodeheal has not taken it out of service" in result.output
