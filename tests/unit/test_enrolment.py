"""Enrolling and retiring nodes by hand: look first, mark, then write it down; whatever breaks off can be said again."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract.vocabulary import NodeState, Provider
from nodeheal.domain.enrolment import Enrolment, Registry
from nodeheal.domain.errors import HalfDone, NotFound
from nodeheal.domain.job import Job
from nodeheal.domain.node import Node
from nodeheal.ports import Ports
from nodeheal.services.enroll_node import enroll_node
from nodeheal.services.launch_gang import submit_job
from nodeheal.services.retire_node import retire_node
from nodeheal.services.stand_in import claim_spare
from nodeheal.services.steps import save_node
from tests.unit.builders import ACT, NOW, FrozenClock, memory_ports, node

NODE = node().node_id
BOTH = {(Registry.SSM, NODE), (Registry.ECS, NODE)}
SAID = Enrolment("demo", "ada: new rack")


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def ports(clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> Ports:
    world = memory_ports(clock)
    world.nodes.save(node())
    monkeypatch.setattr(connect, "ports", lambda table: world)
    monkeypatch.setattr(connect, "policy", lambda: ACT)
    return world


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> MemoryMarks:
    it = MemoryMarks()
    monkeypatch.setattr(connect, "marks", lambda: it)
    return it


def run(*words: str) -> Any:
    answer = CliRunner().invoke(app, ["nodes", *words])
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exception
    return answer


def stored(ports: Ports, node_id: str = NODE) -> Node:
    found = ports.nodes.get(node_id)
    assert found is not None
    return found


def test_an_enrolled_node_carries_the_mark_wherever_it_is_asked_for(ports: Ports, marks: MemoryMarks) -> None:
    recorded, done = enroll_node(NODE, SAID, ports, marks)

    assert marks.marked == BOTH
    assert done == (f"marked SSM managed node SSM/{NODE}", f"marked ECS container instance ECS/{NODE}")
    assert recorded.state_reason == "enrolled by ada: new rack"


def test_an_ec2_node_is_marked_as_an_instance(ports: Ports, marks: MemoryMarks) -> None:
    ports.nodes.save(node("i-1", provider=Provider.ec2))

    enroll_node("i-1", SAID, ports, marks)

    assert marks.marked == {(Registry.EC2, "i-1"), (Registry.ECS, "i-1")}


def test_enrolling_again_changes_nothing(ports: Ports, marks: MemoryMarks) -> None:
    enroll_node(NODE, SAID, ports, marks)
    before = stored(ports)

    _, done = enroll_node(NODE, SAID, ports, marks)

    assert done == ()
    assert stored(ports) == before


def test_what_a_human_has_said_already_is_left_alone(ports: Ports, marks: MemoryMarks) -> None:
    marks.marked.add((Registry.SSM, NODE))

    _, done = enroll_node(NODE, SAID, ports, marks)

    assert done == (f"marked ECS container instance ECS/{NODE}",)


@pytest.mark.parametrize("registry", [Registry.SSM, Registry.ECS])
def test_a_node_that_a_registry_does_not_know_is_refused_before_anything_is_marked(
    ports: Ports, marks: MemoryMarks, registry: Registry
) -> None:
    marks.unknown.add((registry, NODE))

    with pytest.raises(NotFound, match=f"{NODE} is no {registry.value} .* nothing was done"):
        enroll_node(NODE, replace(SAID, is_spare=True), ports, marks)

    assert marks.marked == set()
    assert not stored(ports).is_spare


def test_a_node_whose_agent_has_never_reported_is_refused_by_name(ports: Ports, marks: MemoryMarks) -> None:
    with pytest.raises(NotFound, match=r"mi-unknown .* has its agent ever reported"):
        enroll_node("mi-unknown", SAID, ports, marks)


@pytest.mark.parametrize(
    ("record", "said", "why"),
    [
        ({}, {"pool": "other"}, "it is of pool demo, not other"),
        ({}, {"provider": Provider.ec2}, "it is hybrid, not ec2"),
        ({"state": NodeState.RETIRED}, {}, "is retired"),
        ({"job_id": "llama"}, {"is_spare": True}, "runs llama: a spare has no job"),
    ],
)
def test_what_cannot_be_is_refused(
    ports: Ports, marks: MemoryMarks, record: dict[str, Any], said: dict[str, Any], why: str
) -> None:
    save_node(ports, stored(ports), **record)

    with pytest.raises(ValueError, match=why.replace(".", r"\.")):
        enroll_node(NODE, replace(SAID, **said), ports, marks)

    assert marks.marked == set()


def test_what_breaks_off_says_how_far_it_came_and_goes_on_from_there(ports: Ports, marks: MemoryMarks) -> None:
    marks.broken = {Registry.ECS}

    with pytest.raises(HalfDone, match=f"the line is dead; done: marked SSM managed node SSM/{NODE}"):
        enroll_node(NODE, replace(SAID, is_spare=True), ports, marks)
    assert not stored(ports).is_spare

    marks.broken = set()
    enroll_node(NODE, replace(SAID, is_spare=True), ports, marks)
    assert (marks.marked, stored(ports).is_spare) == (BOTH, True)


def test_the_record_says_what_the_operator_said(ports: Ports, marks: MemoryMarks) -> None:
    save_node(ports, stored(ports), job_id="gone")

    said = run("enroll", NODE, "--pool", "demo", "--spare", "--accelerators", "8", "--job", "none", "--why", "new rack")

    after = stored(ports)
    assert (after.is_spare, after.accelerators, after.job_id) == (True, 8, None)
    assert said.output.endswith(f"{NODE} is enrolled as a spare of pool demo\n")
    assert "recorded accelerators" in said.output


def test_a_job_cannot_be_made_up(ports: Ports, marks: MemoryMarks) -> None:
    said = run("enroll", NODE, "--pool", "demo", "--job", "llama", "--why", "x")

    assert (said.exit_code, "--job llama" in said.output) == (2, True)


def test_a_spare_is_taken_before_a_node_that_happens_to_be_free(ports: Ports) -> None:
    ports.nodes.save(node("mi-1"))
    ports.nodes.save(node("mi-2", is_spare=True))

    taken = [claim_spare(stored(ports), "inc-1", ports, ACT), claim_spare(stored(ports), "inc-2", ports, ACT)]

    assert [spare.node_id for spare in taken if spare] == ["mi-2", "mi-1"]


def test_no_new_job_begins_on_a_spare(ports: Ports) -> None:
    job = Job("llama", "demo", "training", "trainer", "main", 2)

    with pytest.raises(ValueError, match="mi-2: kept as a spare"):
        submit_job(job, [stored(ports), node("mi-2", is_spare=True)], ports)

    assert ports.jobs.get("llama") is None


@pytest.mark.parametrize("state", [NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION, NodeState.QUARANTINED])
def test_a_retired_node_carries_no_mark(ports: Ports, marks: MemoryMarks, state: NodeState) -> None:
    enroll_node(NODE, replace(SAID, is_spare=True), ports, marks)
    save_node(ports, stored(ports), state=state)

    said = run("retire", NODE, "--why", "beyond repair")

    assert said.exit_code == 0
    assert (stored(ports).state, marks.marked) == (NodeState.RETIRED, set())


def test_retiring_that_broke_off_goes_on(ports: Ports, marks: MemoryMarks) -> None:
    enroll_node(NODE, SAID, ports, marks)
    marks.broken = {Registry.ECS}
    with pytest.raises(HalfDone, match="took the mark off SSM"):
        retire_node(NODE, "sold", ports, marks)

    marks.broken = set()
    retire_node(NODE, "sold", ports, marks)

    assert (stored(ports).state, stored(ports).state_reason, marks.marked) == (NodeState.RETIRED, "sold", set())


def test_a_machine_that_is_gone_is_retired_all_the_same(ports: Ports, marks: MemoryMarks) -> None:
    marks.unknown = BOTH

    node_after, done = retire_node(NODE, "sold", ports, marks)

    assert (node_after.state, done) == (NodeState.RETIRED, [])


@pytest.mark.parametrize(
    ("record", "why"), [({"job_id": "llama"}, "runs llama"), ({"open_incident": "inc-7"}, "inc-7")]
)
def test_a_node_that_serves_is_not_retired(ports: Ports, marks: MemoryMarks, record: dict[str, str], why: str) -> None:
    save_node(ports, stored(ports), **record)

    with pytest.raises(ValueError, match=why):
        retire_node(NODE, "sold", ports, marks)

    assert stored(ports).state is NodeState.HEALTHY


def test_a_list_is_narrowed_by_state_and_counted(ports: Ports) -> None:
    ports.nodes.save(node("mi-2", state=NodeState.QUARANTINED, state_reason="no\nspare"))

    said = run("list", "demo", "--state", "quarantined").output.splitlines()

    assert [line.split()[0] for line in said] == ["NODE", "mi-2", "1"]
    assert said[1].endswith("no spare")
    assert run("list", "demo").output.endswith("2 nodes: 1 HEALTHY, 1 QUARANTINED\n")
    assert run("list", "demo", "--state", "retired").output.endswith("0 nodes: none in this state\n")


def test_a_node_is_shown_with_what_may_still_be_done(ports: Ports, clock: FrozenClock) -> None:
    ports.pools.claim("demo", NODE, 1)
    [limit] = [ACT.limits[action] for action in ACT.limits if action == "REBOOT"]
    ports.attempts.reserve(f"node#{NODE}", "inc-1/2", limit)
    save_node(ports, stored(ports), paused_until=NOW + timedelta(hours=1), paused_why="ada: fans", good_since=NOW)

    said = run("show", NODE).output

    assert "HEALTHY since 2026-03-01 03:00:00 UTC" in said
    assert "left now: 0 REBOOT, 1 REPLACE" in said
    assert "holds slot; 1 of 1 are taken" in said
    assert "until 2026-03-01 04:00:00 UTC (ada: fans)" in said
    clock.advance(3_600)
    assert "Pause        no" in run("show", NODE).output


def test_an_unknown_node_is_named(ports: Ports) -> None:
    said = run("show", "mi-unknown", "--json")

    assert (said.exit_code, "mi-unknown" in said.output) == (1, True)
