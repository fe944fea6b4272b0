"""A node remembers which states it was in, since when and why."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.node import RESOLVED_REMEMBERED, STATE_REASON_CHARACTERS, STATES_REMEMBERED, moved
from nodeheal.services.operators.release_node import release_node
from tests.support.builders import ACT, NOW, node, xid
from tests.support.fake_cluster import BROKEN, FakeCluster

RUN = CliRunner()


def test_a_node_is_shown_on_probation_only_until_its_probation_is_over() -> None:
    until = NOW + timedelta(hours=1)
    returned = node(state=NodeState.PROBATION, probation_until=until, state_reason="back to service")

    during, after = returned.as_shown(NOW), returned.as_shown(until)

    assert (during.state, during.state_reason) == (
        NodeState.PROBATION,
        f"on probation until {until:%H:%M} UTC; back to service",
    )
    assert (after.state, after.state_reason) == (NodeState.HEALTHY, "back to service")
    assert node().as_shown(NOW) == node()
    waiting = replace(node(), open_incident="inc-1").as_shown(NOW)
    assert (waiting.state, waiting.state_reason) == (
        NodeState.HEALTHY,
        "it gets no new work while its incident is open",
    )


def test_a_recovery_leaves_each_state_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    monkeypatch.setattr(connect, "ports", lambda table: cluster.ports)
    monkeypatch.setattr(connect, "policy", lambda: ACT)

    cluster.reports(xid(79))

    shown = json.loads(RUN.invoke(app, ["nodes", "show", BROKEN, "--json"]).output)["states"]
    text = RUN.invoke(app, ["nodes", "show", BROKEN]).output
    assert [one["state"] for one in shown] == ["PROBATION", "RECOVERING", "ISOLATED"]
    assert [one["at"] for one in shown] == sorted((one["at"] for one in shown), reverse=True)
    assert shown[2]["reason"].startswith("XID 79")
    assert "States, the newest first:\n  2026-" in text
    assert "UTC  PROBATION: proven by a new boot id" in text


def test_what_an_operator_does_is_among_them() -> None:
    cluster = FakeCluster(spare=False)
    cluster.node_returns = False
    cluster.reports(xid(79))

    release_node(BROKEN, "ada: repaired", cluster.ports)

    assert [(one.state, one.reason) for one in cluster.node().state_changes][:1] == [
        (NodeState.HEALTHY, "ada: repaired")
    ]


def test_to_stay_in_a_state_is_no_change() -> None:
    isolated = moved(node(), NodeState.ISOLATED, "broken", NOW)

    again = moved(isolated, NodeState.ISOLATED, "broken, asked again", NOW)

    assert again.state_changes == isolated.state_changes
    assert len(again.state_changes) == 1


def test_what_is_remembered_is_bounded() -> None:
    one = node()
    for number in range(STATES_REMEMBERED):
        one = moved(one, NodeState.ISOLATED, f"{number}: {'broken ' * 50}", NOW)
        one = moved(one, NodeState.PROBATION, "back", NOW)

    assert len(one.state_changes) == STATES_REMEMBERED
    assert max(len(change.reason) for change in one.state_changes) <= STATE_REASON_CHARACTERS
    assert one.state_changes[1].reason.startswith("9: broken broken")
    assert one.state_changes[1].reason.endswith("broken broken ...")


def test_a_node_with_ever_new_findings_does_not_outgrow_its_item() -> None:
    one = node()
    for number in range(2 * RESOLVED_REMEMBERED):
        one = one.with_resolved_faults({f"xid|92|{number}": f"inc-20260301T{number:06}-mi-1"})

    assert len(one.resolved_faults) == RESOLVED_REMEMBERED
    assert f"xid|92|{2 * RESOLVED_REMEMBERED - 1}" in one.resolved_faults
    assert "xid|92|0" not in one.resolved_faults
