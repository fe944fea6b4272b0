"""Enrolling and retiring nodes by hand: look first, mark, then write it down; whatever breaks off can be said again."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract.health_event import HealthEvent, NodeBooted
from nodeheal.contract.vocabulary import Action, Family, NodeState, Provider, SchedulerKind, Verdict
from nodeheal.domain.errors import HalfDone, NotFound
from nodeheal.domain.fleet.enrolment import EnrolmentTag, Registry
from nodeheal.domain.fleet.liveness import is_silent, liveness_of
from nodeheal.domain.fleet.node import Node
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.wakeup import on_node_booted
from nodeheal.services.operators.operator_guardrails import pause_node
from nodeheal.services.recovery.spares import claim_spare
from nodeheal.services.steps import save_node
from tests.support.acts import MemoryControlPlane, requested
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, stored_node, xid
from tests.support.enrolment import SAID, enroll, retire

NODE = node().node_id
BOTH = {(Registry.SSM, NODE), (Registry.SCHEDULER, NODE)}


@pytest.fixture
def ports(clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> Ports:
    world = memory_ports(clock)
    world.nodes.save(node())
    monkeypatch.setattr(connect, "ports", lambda table: world)
    monkeypatch.setattr(connect, "policy", lambda: ACT)
    monkeypatch.setattr(connect, "policy_copy", lambda table: ACT)
    monkeypatch.setattr(connect, "control_plane", lambda: MemoryControlPlane(world, ACT))
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
    return stored_node(ports, node_id)


def test_an_enrolled_node_carries_the_mark_wherever_it_is_asked_for(ports: Ports, marks: MemoryMarks) -> None:
    recorded, done = enroll(NODE, SAID, ports, marks)

    assert marks.marked == BOTH
    assert done == (f"marked SSM managed node SSM/{NODE}", f"marked node of the cluster SCHEDULER/{NODE}")
    assert recorded.state_reason == "enrolled by ada: new rack"


def test_a_node_that_serves_or_does_not_is_left_as_it_is(ports: Ports, marks: MemoryMarks) -> None:
    assert ports.nodes.save(replace(stored(ports), state=NodeState.QUARANTINED, agent_version="0.2.0"))

    recorded, _ = enroll(NODE, SAID, ports, marks)

    assert recorded.state is NodeState.QUARANTINED


def test_an_ec2_node_is_marked_as_an_instance(ports: Ports, marks: MemoryMarks) -> None:
    ports.nodes.save(node("i-1", provider=Provider.ec2))

    enroll("i-1", SAID, ports, marks)

    assert marks.marked == {(Registry.EC2, "i-1"), (Registry.SCHEDULER, "i-1")}


def test_enrolling_again_changes_nothing(ports: Ports, marks: MemoryMarks) -> None:
    enroll(NODE, SAID, ports, marks)
    before = stored(ports)

    _, done = enroll(NODE, SAID, ports, marks)

    assert done == ()
    assert stored(ports) == before


def test_what_a_human_has_said_already_is_left_alone(ports: Ports, marks: MemoryMarks) -> None:
    marks.marked.add((Registry.SSM, NODE))

    _, done = enroll(NODE, SAID, ports, marks)

    assert done == (f"marked node of the cluster SCHEDULER/{NODE}",)


@pytest.mark.parametrize(
    ("registry", "called"), [(Registry.SSM, "SSM managed node"), (Registry.SCHEDULER, "node of the cluster")]
)
def test_a_node_that_a_registry_does_not_know_is_refused_before_anything_is_marked(
    ports: Ports, marks: MemoryMarks, registry: Registry, called: str
) -> None:
    marks.unknown.add((registry, NODE))

    with pytest.raises(NotFound, match=f"know no {called} {NODE}.*; nothing was done"):
        enroll(NODE, replace(SAID, is_spare=True), ports, marks)

    assert marks.marked == set()
    assert not stored(ports).is_spare


NEW = "mi-0b1b2c3d4e5f60718"


def heartbeat(node_id: str = NEW, **changes: Any) -> HealthEvent:
    said: dict[str, Any] = {"node_id": node_id, "instance_id": node_id, "family": Family.heartbeat, "code": "alive"}
    return xid(**{**said, "verdict": Verdict.OK, "observed_at": NOW + timedelta(minutes=5), **changes})


def test_a_node_whose_agent_has_never_reported_is_recorded_and_told_to_be_so(ports: Ports, marks: MemoryMarks) -> None:
    said = run("enroll", NEW, "--pool", "demo", "--why", "new rack", "--rack", "r7", "--spare")

    assert said.exit_code == 0, said.output
    assert "its agent has not reported yet" in said.output
    assert marks.marked == {(Registry.SSM, NEW), (Registry.SCHEDULER, NEW)}
    recorded = stored(ports, NEW)
    assert (recorded.state, recorded.cluster.name, recorded.rack) == (NodeState.ENROLLED, "training", "r7")
    [row] = [row for row in json.loads(run("list", "demo", "--json").output) if row["node"] == NEW]
    assert (row["state"], row["last_seen"], row["rack"]) == ("ENROLLED", None, "r7")
    assert "its agent has never reported; enrolled by " in row["reason"]
    shown = run("show", NEW).output
    assert "Agent        has never reported" in shown
    assert "Rack         r7" in shown


def test_its_first_word_makes_it_a_node_like_any_other_and_what_the_operator_said_stays(
    ports: Ports, marks: MemoryMarks, clock: FrozenClock
) -> None:
    enroll(NEW, replace(SAID, is_spare=True, rack="r7"), ports, marks)
    clock.advance(300)

    ingest(heartbeat(), ports, ACT)

    known = stored(ports, NEW)
    assert (known.state, known.boot_id, known.past_boots) == (NodeState.HEALTHY, "boot-1", ())
    assert (known.is_spare, known.rack, known.state_reason) == (True, "r7", "enrolled by ada: new rack")
    assert known.last_seen == NOW + timedelta(minutes=5)


def test_its_first_word_may_be_its_boot_or_a_fault(ports: Ports, marks: MemoryMarks) -> None:
    enroll(NEW, SAID, ports, marks)
    enroll("mi-2", SAID, ports, marks)
    said = heartbeat().model_dump(include=set(NodeBooted.model_fields))

    on_node_booted(NodeBooted(**said, booted_at=NOW, address="10.0.0.7", accelerators=8), ports)
    became = ingest(xid(79, node_id="mi-2", instance_id="mi-2", observed_at=NOW - timedelta(days=1)), ports, ACT)

    assert (stored(ports, NEW).state, stored(ports, NEW).accelerators) == (NodeState.HEALTHY, 8)
    assert (became, stored(ports, "mi-2").open_incident is not None) == (Ingested.OPENED, True)


def test_an_agent_that_names_another_pool_is_in_the_one_that_the_operator_named(
    ports: Ports, marks: MemoryMarks
) -> None:
    enroll(NEW, SAID, ports, marks)

    ingest(heartbeat(pool="other"), ports, ACT)

    assert (stored(ports, NEW).pool, list(ports.fleet_index.pools())) == ("demo", ["demo"])


def test_what_others_say_of_a_node_that_was_never_heard_is_history(ports: Ports, marks: MemoryMarks) -> None:
    enroll(NEW, SAID, ports, marks)
    fault = heartbeat(family=Family.host, code="instance_impaired", verdict=Verdict.FAILED, source="aws.ec2")

    became = ingest(fault, ports, ACT)

    assert (became, stored(ports, NEW).state) == (Ingested.HISTORY, NodeState.ENROLLED)
    assert stored(ports, NEW).open_incident is None


def test_one_that_never_spoke_is_not_silent_no_spare_and_takes_no_order(
    ports: Ports, marks: MemoryMarks, clock: FrozenClock
) -> None:
    enroll(NEW, replace(SAID, is_spare=True), ports, marks)
    clock.advance(86_400)

    new = stored(ports, NEW)

    assert not is_silent(liveness_of(new), ACT.silence, clock())
    assert claim_spare(stored(ports), "inc-1", ports, ACT) is None
    with pytest.raises(ValueError, match="never been heard"):
        requested(NEW, Action.REBOOT, "ada: x", ports)


def test_a_node_that_never_comes_is_retired(ports: Ports, marks: MemoryMarks) -> None:
    enroll(NEW, replace(SAID, rack="r7"), ports, marks)

    gone, _ = retire(NEW, "sent back", ports, marks)

    assert (gone.state, marks.marked, marks.racks) == (NodeState.RETIRED, set(), {})


def test_a_node_that_nobody_knows_is_refused_by_name(ports: Ports, marks: MemoryMarks) -> None:
    marks.unknown = {(Registry.SSM, NEW), (Registry.SCHEDULER, NEW)}

    said = run("enroll", NEW, "--pool", "demo", "--why", "x")

    assert said.exit_code == 1
    assert f"know no SSM managed node and no node of the cluster {NEW} (cluster training)" in said.output
    assert "its agent has never reported either; nothing was done" in said.output
    assert (ports.nodes.get(NEW), marks.marked) == (None, set())


@pytest.mark.parametrize(
    ("node_id", "pool", "why"),
    [
        ("gpu-7", "demo", "'gpu-7' is not the id of a machine"),
        ("bad id", "empty", "'bad id' is not the id of a machine"),  # before the cluster, which a good id would need
        ("mi-two words", "demo", "'mi-two words' is not the id of a machine"),
        (NEW, "empty", "give --cluster"),
    ],
)
def test_what_nobody_can_look_up_is_refused(
    ports: Ports, marks: MemoryMarks, node_id: str, pool: str, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        enroll(node_id, replace(SAID, pool=pool), ports, marks)


def test_an_enrolment_that_was_a_slip_is_said_again(ports: Ports, marks: MemoryMarks) -> None:
    slip = replace(SAID, pool="dmeo", cluster="training", scheduler=SchedulerKind.ECS)
    enroll("i-0123456789abcdef0", slip, ports, marks)

    again, _ = enroll("i-0123456789abcdef0", replace(SAID, cluster="other"), ports, marks)

    assert (again.pool, again.cluster.name, again.provider) == ("demo", "other", Provider.ec2)


def test_an_agent_that_reports_while_it_is_enrolled_has_the_word(ports: Ports, marks: MemoryMarks) -> None:
    class Busy(MemoryMarks):
        def put(self, node: Node, mark: EnrolmentTag, rack: str = "") -> None:
            super().put(node, mark, rack)
            ingest(heartbeat(), ports, ACT)

    recorded, _ = enroll(NEW, replace(SAID, rack="r7"), ports, Busy())

    assert (recorded.state, recorded.boot_id, recorded.rack) == (NodeState.HEALTHY, "boot-1", "r7")


def test_an_agent_that_reports_from_another_pool_while_it_is_enrolled_is_told_to_the_operator(
    ports: Ports, marks: MemoryMarks
) -> None:
    class Busy(MemoryMarks):
        def put(self, node: Node, mark: EnrolmentTag, rack: str = "") -> None:
            super().put(node, mark, rack)
            ingest(heartbeat().model_copy(update={"pool": "other"}), ports, ACT)

    with pytest.raises(ValueError, match="says that it is of pool other, not demo"):
        enroll(NEW, SAID, ports, Busy())


def test_a_node_that_is_known_is_not_moved_by_what_its_agent_says(ports: Ports) -> None:
    ingest(heartbeat().model_copy(update={"node_id": NODE, "instance_id": NODE, "pool": "other"}), ports, ACT)

    assert stored(ports).pool == "demo"


def test_a_rack_is_recorded_marked_and_changed(ports: Ports, marks: MemoryMarks) -> None:
    enroll(NODE, SAID, ports, marks)
    enroll(NODE, replace(SAID, rack="r7"), ports, marks)
    _, done = enroll(NODE, replace(SAID, rack="r8"), ports, marks)

    _, again = enroll(NODE, SAID, ports, marks)

    assert (len(done), again) == (3, ())
    assert (set(marks.racks.values()), stored(ports).rack) == ({"r8"}, "r8")


def test_a_rack_that_no_tag_can_hold_is_refused(ports: Ports, marks: MemoryMarks) -> None:
    said = run("enroll", NODE, "--pool", "demo", "--rack", "r7; drop", "--why", "x")

    assert (said.exit_code, "rack 'r7; drop': give" in said.output) == (1, True)


def test_what_fails_in_one_rack_has_that_in_common(ports: Ports, marks: MemoryMarks) -> None:
    names = [f"mi-{number}" for number in range(3)]
    for name in names:
        ports.nodes.save(node(name))
        enroll(name, replace(SAID, rack="r7"), ports, marks)

    for number, name in enumerate(names):
        ingest(xid(79, node_id=name, instance_id=name, event_id=f"e{number}", boot_id="boot-1"), ports, ACT)

    seen = ports.nodes.observations(names[0], NOW, "demo", NOW)
    assert [dict(s.labels) for s in seen] == [{"rack": "r7"}] * 3
    incident = stored(ports, names[0]).open_incident
    assert ports.incidents.history(str(incident)).incident.root.labels == {"rack": "r7"}


def test_a_full_set_of_labels_is_left_as_it_is(ports: Ports) -> None:
    labels = {f"label-{number}": "x" for number in range(16)}
    full, named = xid(79, labels=labels), xid(79, labels={"rack": "r1"})

    assert node(rack="r7").with_rack(full) == full
    assert node(rack="r7").with_rack(named).labels == {"rack": "r7"}
    full_with_a_rack = xid(79, labels={**dict(list(labels.items())[1:]), "rack": "r1"})
    assert node(rack="r7").with_rack(full_with_a_rack).labels["rack"] == "r7"


def test_a_node_that_works_keeps_its_job_and_one_that_was_put_aside_the_reason_why(
    ports: Ports, marks: MemoryMarks
) -> None:
    save_node(ports, stored(ports), job_id="llama", state=NodeState.QUARANTINED, state_reason="XID 79")

    enroll(NODE, replace(SAID, accelerators=8), ports, marks)

    assert (stored(ports).job_id, stored(ports).state_reason) == ("llama", "XID 79")


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
        enroll(NODE, replace(SAID, **said), ports, marks)

    assert marks.marked == set()


def test_what_breaks_off_says_how_far_it_came_and_goes_on_from_there(ports: Ports, marks: MemoryMarks) -> None:
    marks.broken = {Registry.SCHEDULER}

    with pytest.raises(HalfDone, match=f"the connection is broken; done: marked SSM managed node SSM/{NODE}"):
        enroll(NODE, replace(SAID, is_spare=True), ports, marks)
    assert not stored(ports).is_spare

    marks.broken = set()
    enroll(NODE, replace(SAID, is_spare=True), ports, marks)
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


@pytest.mark.parametrize("state", [NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION, NodeState.QUARANTINED])
def test_a_retired_node_carries_no_mark(ports: Ports, marks: MemoryMarks, state: NodeState) -> None:
    enroll(NODE, replace(SAID, is_spare=True), ports, marks)
    save_node(ports, stored(ports), state=state)

    said = run("retire", NODE, "--why", "beyond repair")

    assert said.exit_code == 0
    assert (stored(ports).state, marks.marked) == (NodeState.RETIRED, set())


def test_retiring_that_broke_off_goes_on(ports: Ports, marks: MemoryMarks) -> None:
    enroll(NODE, SAID, ports, marks)
    marks.broken = {Registry.SCHEDULER}
    with pytest.raises(HalfDone, match="took the mark off SSM"):
        retire(NODE, "sold", ports, marks)

    marks.broken = set()
    retire(NODE, "sold", ports, marks)

    assert (stored(ports).state, stored(ports).state_reason, marks.marked) == (NodeState.RETIRED, "sold", set())


def test_why_it_was_retired_first_holds(ports: Ports, marks: MemoryMarks) -> None:
    for why in ("sold", "again"):
        retire(NODE, why, ports, marks)

    assert stored(ports).state_reason == "sold"


def test_a_machine_that_is_gone_is_retired_all_the_same(ports: Ports, marks: MemoryMarks) -> None:
    marks.unknown = BOTH

    node_after, done = retire(NODE, "sold", ports, marks)

    assert (node_after.state, done) == (NodeState.RETIRED, [])


@pytest.mark.parametrize(
    ("record", "why"), [({"job_id": "llama"}, "runs llama"), ({"open_incident": "inc-7"}, "inc-7")]
)
def test_a_node_that_serves_is_not_retired(ports: Ports, marks: MemoryMarks, record: dict[str, str], why: str) -> None:
    save_node(ports, stored(ports), **record)

    with pytest.raises(ValueError, match=why):
        retire(NODE, "sold", ports, marks)

    assert stored(ports).state is NodeState.HEALTHY


def test_a_list_is_narrowed_by_state_and_counted(ports: Ports) -> None:
    ports.nodes.save(node("mi-2", state=NodeState.QUARANTINED, state_reason="no\nspare"))

    said = run("list", "demo", "--state", "quarantined").output.splitlines()

    assert [line.split()[0] for line in said] == ["NODE", "mi-2", "1"]
    assert said[1].endswith("no spare")
    assert run("list", "demo").output.endswith("2 nodes: 1 FREE, 1 QUARANTINED\n")
    assert run("list", "demo", "--state", "retired").output.endswith("0 nodes: none in this state\n")


def test_a_node_is_shown_with_what_may_still_be_done(ports: Ports, clock: FrozenClock) -> None:
    ports.pools.claim("demo", NODE, 1)
    [limit] = [ACT.limits[action] for action in ACT.limits if action == "REBOOT"]
    ports.attempts.reserve(f"node#{NODE}", "inc-1/2", limit)
    save_node(ports, stored(ports), healthy_since=NOW)
    pause_node(NODE, 3_600, "ada: fans", ports)

    said = run("show", NODE).output

    assert "HEALTHY since 2026-03-01 03:00:00 UTC" in said
    assert "left now: 0 REBOOT, 1 REPLACE" in said
    assert "holds a slot; 1 of 1 slots are taken" in said
    assert "until 2026-03-01 04:00:00 UTC (ada: fans)" in said
    clock.advance(3_600)
    assert "Pause        no" in run("show", NODE).output


def test_only_a_diagnosis_counts_as_passed_diagnostics(ports: Ports) -> None:
    save_node(ports, stored(ports), healthy_since=NOW)  # given back by a human
    given_back = run("show", NODE).output
    save_node(ports, stored(ports), passed_at=NOW)

    assert "Diagnostics  none passed that nodeheal asked for" in given_back
    assert "Diagnostics  last passed 2026-03-01 03:00:00 UTC" in run("show", NODE).output


def test_an_unknown_node_is_named(ports: Ports) -> None:
    said = run("show", "mi-unknown", "--json")

    assert (said.exit_code, "mi-unknown" in said.output) == (1, True)
