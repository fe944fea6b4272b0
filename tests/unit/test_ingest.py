"""What becomes of a health event."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.names import DRILL_MARK, INSTANCE_GONE, SILENCES
from nodeheal.contract.vocabulary import Ending, Family, IncidentState, NodeState, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.recovery.incident import History, Incident, fingerprint, incident_id_of
from nodeheal.domain.recovery.timeline import event_entry
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.node_rates import HEARTBEATS_A_MINUTE, LATE_A_DAY, LATE_SECONDS, REPORTS_A_MINUTE
from nodeheal.services.recovery.end_incident import end_incident
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, stored_node, xid
from tests.support.crashes import lost_call
from tests.support.fake_cluster import BROKEN, FakeCluster
from tests.support.incident_steps import Incident as SteppedIncident
from tests.support.incident_steps import take as reports
from tests.support.observations import later
from tests.support.policies import with_policy
from tests.support.replays import HOUR


def _heartbeat(**changes: object) -> object:
    return xid(family=Family.heartbeat, **{"event_id": "beat", "verdict": Verdict.OK, **changes})


def take(ports: Ports, *events: object) -> list[Ingested]:
    return [ingest(event, ports, ACT) for event in events]  # type: ignore[arg-type]


def test_a_fault_opens_an_incident_and_starts_its_workflow() -> None:
    ports = memory_ports()
    ports.nodes.save(node(job_id="llama"))

    assert take(ports, xid(79)) == [Ingested.OPENED]

    incident = ports.incidents.history(incident_id_of(xid(79))).incident
    assert (incident.state, incident.job_id, incident.policy_version) == (IncidentState.OPEN, "llama", ACT.version)
    assert ports.workflows.started == [incident.incident_id]  # type: ignore[attr-defined]


def test_a_node_that_nobody_knows_is_enrolled_by_its_first_event() -> None:
    ports = memory_ports()

    take(ports, _heartbeat())

    stored = stored_node(ports, xid().node_id)
    assert (stored.pool, stored.boot_id, stored.state) == ("demo", "boot-1", NodeState.HEALTHY)


def test_a_heartbeat_moves_last_seen_and_opens_nothing() -> None:
    ports = memory_ports(clock := FrozenClock())
    clock.advance(300)
    ports.nodes.save(node())

    assert take(ports, _heartbeat(observed_at=NOW + timedelta(minutes=5))) == [Ingested.SEEN]

    stored = stored_node(ports, node().node_id)
    assert stored.last_seen == NOW + timedelta(minutes=5)
    assert ports.workflows.started == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", ["silent", "agent_disconnected"])
def test_that_no_heartbeat_comes_is_a_finding_and_not_a_heartbeat(code: str) -> None:
    ports = memory_ports()
    ports.nodes.save(node())
    later = NOW + timedelta(minutes=5)

    became = take(ports, _heartbeat(code=code, source="nodeheal.sweep", verdict=Verdict.UNKNOWN, observed_at=later))

    stored = stored_node(ports, node().node_id)
    assert (became, stored.last_seen) == ([Ingested.OPENED], node().last_seen)


def test_good_news_that_others_bring_is_no_heartbeat() -> None:
    ports = memory_ports()
    ports.nodes.save(node())
    later = NOW + timedelta(minutes=5)

    assert take(ports, xid(79, source="aws.ecs", verdict=Verdict.OK, observed_at=later)) == [Ingested.SEEN]

    stored = stored_node(ports, node().node_id)
    assert (stored.last_seen, stored.version) == (node().last_seen, 1)


def test_a_second_fault_joins_the_open_incident() -> None:
    ports = memory_ports()
    ports.nodes.save(node())

    assert take(ports, xid(79), xid(48), xid(48)) == [Ingested.OPENED, Ingested.JOINED, Ingested.DUPLICATE]

    history = ports.incidents.history(incident_id_of(xid(79)))
    assert sorted(event.code for event in history.events) == ["48", "79"]
    assert len(ports.workflows.started) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_driver_first", [True, False])
def test_dcgms_counter_and_the_drivers_line_of_one_error_are_one_incident(is_driver_first: bool) -> None:
    ports = memory_ports()
    ports.nodes.save(node())
    counter = {"event_id": "counter", "family": Family.dcgm, "code": "POLICY_DBE", "component": "GPU 0"}
    events = [xid(48), xid(48).model_copy(update={**counter, "source": "dcgm_counters"})]

    taken = take(ports, *(events if is_driver_first else events[::-1]))

    assert taken == [Ingested.OPENED, Ingested.JOINED]
    assert len(ports.workflows.started) == 1  # type: ignore[attr-defined]


def test_an_event_from_before_the_current_boot_is_history_and_acts_on_nothing() -> None:
    ports = memory_ports()
    ports.nodes.save(node(boot_id="boot-2", past_boots=("boot-1",)))

    assert take(ports, xid(79)) == [Ingested.HISTORY]

    assert ports.workflows.started == []  # type: ignore[attr-defined]
    [(_, kept)] = ports.nodes.recorded.values()  # type: ignore[attr-defined]
    assert kept.note == "from before the node's current boot"


def test_a_fault_whose_call_broke_off_and_that_is_over_when_it_is_told_again_leaves_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ports = memory_ports()
    ports.nodes.save(node(boot_id="boot-1"))
    with monkeypatch.context() as broken, pytest.raises(ConnectionError):
        broken.setattr(ports.incidents, "open", lost_call)
        take(ports, xid(79))
    rebooted = _heartbeat(boot_id="boot-2", observed_at=NOW + timedelta(minutes=3))

    assert take(ports, rebooted, xid(79)) == [Ingested.SEEN, Ingested.HISTORY]

    kept = {observation.note for _, observation in ports.nodes.recorded.values()}  # type: ignore[attr-defined]
    assert kept == {"", "from before the node's current boot"}


def test_what_a_node_said_before_it_had_an_agent_is_kept_and_acts_on_nothing() -> None:
    ports = memory_ports()
    ports.nodes.save(node(job_id="llama"))
    before = ports.nodes.get(node().node_id)

    assert take(ports, xid(79, is_history=True)) == [Ingested.HISTORY]

    assert ports.workflows.started == []  # type: ignore[attr-defined]
    assert ports.nodes.get(node().node_id) == before
    [(_, kept)] = ports.nodes.recorded.values()  # type: ignore[attr-defined]
    assert kept.note == "from before the node had an agent"
    assert take(ports, xid(79, event_id="now")) == [Ingested.OPENED]


def test_an_event_of_an_unknown_boot_older_than_the_current_one_is_history() -> None:
    ports = memory_ports()
    ports.nodes.save(node(boot_id="boot-2", booted_at=NOW + timedelta(seconds=1)))

    assert take(ports, xid(79, boot_id="boot-0")) == [Ingested.HISTORY]


def test_a_fault_of_a_newer_boot_counts_even_before_the_boot_was_announced() -> None:
    ports = memory_ports()
    ports.nodes.save(node())

    assert take(ports, xid(79, boot_id="boot-2")) == [Ingested.OPENED]

    stored = stored_node(ports, node().node_id)
    assert (stored.boot_id, stored.past_boots) == ("boot-2", ("boot-1",))


def test_an_event_is_told_as_what_it_is() -> None:
    gone = {"family": Family.host, "code": INSTANCE_GONE, "subcode": "terminated", "component": None}

    told = [event_entry(event).text.partition(": ")[2] for event in (xid(0, **gone, verdict=Verdict.OK), well())]

    assert told == ["its machine is terminated, as it may be: the node is out of service", "OK"]
    assert event_entry(xid(0, **gone)).text.endswith("reports HOST instance_gone: FAILED")


def test_what_is_well_beside_a_drill_does_not_make_it_the_real_thing() -> None:
    drill = xid(79, evidence=f"NVRM: Xid 79 {DRILL_MARK}")
    incident = Incident(incident_id_of(drill), drill.node_id, "demo", drill, NOW, "1")

    assert History(incident, (drill, well()), ()).is_drill
    assert not History(incident, (drill, xid(74)), ()).is_drill
    assert not History(incident, (drill, xid(74, verdict=Verdict.UNKNOWN)), ()).is_drill


@pytest.mark.parametrize(("verdict", "is_drill"), [(Verdict.UNKNOWN, True), (Verdict.FAILED, False)])
@pytest.mark.parametrize("code", SILENCES)
def test_the_silence_of_its_own_reboot_leaves_a_drill_one_and_a_node_that_is_missed_does_not(
    code: str, verdict: Verdict, is_drill: bool
) -> None:
    drill = xid(79, evidence=f"NVRM: Xid 79 {DRILL_MARK}")
    incident = Incident(incident_id_of(drill), drill.node_id, "demo", drill, NOW, "1")
    silence = xid(0, family=Family.heartbeat, code=code, verdict=verdict, event_id="silence")

    assert History(incident, (drill, silence), ()).is_drill is is_drill
    assert not History(replace(incident, root=xid(79)), (silence,), ()).is_drill


def well() -> HealthEvent:
    return xid(0, family=Family.nvml, code="ok", verdict=Verdict.OK, event_id="well")


def test_what_is_settled_on_this_boot_is_not_news() -> None:
    ports = memory_ports()
    take(ports, xid(999))
    settled = incident_id_of(xid(999))
    stored = stored_node(ports, xid().node_id)
    ports.nodes.save(replace(stored, open_incident=None, resolved_faults={fingerprint(xid(999)): settled}))

    assert take(ports, xid(999, event_id="again"), xid(999, event_id="again")) == [
        Ingested.REPEATED,
        Ingested.DUPLICATE,
    ]
    assert len(ports.workflows.started) == 1  # type: ignore[attr-defined]


def test_a_redelivered_event_of_a_closed_incident_opens_nothing() -> None:
    ports = memory_ports()
    take(ports, xid(79))
    stored = stored_node(ports, xid().node_id)
    ports.nodes.save(replace(stored, open_incident=None))

    assert take(ports, xid(79)) == [Ingested.DUPLICATE]


def test_a_fault_on_a_quarantined_node_stays_with_the_incident_that_a_human_has() -> None:
    ports = memory_ports()
    take(ports, xid(79))
    stored = stored_node(ports, xid().node_id)
    ports.nodes.save(replace(stored, state=NodeState.QUARANTINED))

    assert take(ports, xid(48)) == [Ingested.JOINED]


def flood(number: int, name: str = "flood", **changes: object) -> list[HealthEvent]:
    return [xid(79, event_id=f"{name}-{one}", component=f"gpu-{one}", **changes) for one in range(number)]


def test_one_node_is_heard_so_often_a_minute_and_the_rest_is_counted() -> None:
    """S6: one node could spend what it liked of functions, tables and emails."""
    ports = memory_ports(clock := FrozenClock())
    ports.nodes.save(node())
    window = f"{NOW:%Y-%m-%dT%H:%M}"

    became = take(ports, *flood(REPORTS_A_MINUTE + 30))

    assert became == [
        Ingested.OPENED,
        *[Ingested.JOINED] * (REPORTS_A_MINUTE - 1),
        *[Ingested.TOO_MANY] * 30,
    ]
    assert ports.nodes.reports[node().node_id, window] == REPORTS_A_MINUTE + 30  # type: ignore[attr-defined]
    told = [s.note for _, s in ports.nodes.recorded.values() if s.note]  # type: ignore[attr-defined]
    assert told == ["the node has sent more reports than are taken of one node; from this one on they are only counted"]
    clock.advance(60)
    assert take(ports, xid(79, event_id="later", observed_at=clock())) == [Ingested.JOINED]


def test_a_flood_of_one_node_keeps_no_other_from_being_heard_and_it_lives_on() -> None:
    ports = memory_ports()
    other = "mi-0000000000000000b"
    ports.nodes.save(node())
    ports.nodes.save(node(other))

    take(ports, *flood(REPORTS_A_MINUTE + 1))

    assert take(ports, xid(79, node_id=other, event_id="other")) == [Ingested.OPENED]
    assert take(ports, _heartbeat(event_id="alive")) == [Ingested.SEEN]


def test_a_flood_of_one_node_hides_no_fault_of_others_in_the_breakers_window() -> None:
    """All that is taken of one node, for ten minutes, filled the places that decisions about its pool look at."""
    ports = memory_ports(clock := FrozenClock())
    others = [f"mi-{one:017}" for one in range(80)]
    for name in (node().node_id, *others):
        ports.nodes.save(node(name))
    take(ports, *(xid(79, node_id=name, event_id=f"of-{name}") for name in others))

    for minute in range(ACT.breaker.window_seconds // 60 + 1):
        take(ports, *flood(REPORTS_A_MINUTE, f"{minute}", observed_at=clock()))
        clock.advance(60)
    take(ports, *flood(LATE_A_DAY, "late", observed_at=NOW + timedelta(seconds=1)))

    seen = ports.nodes.observations("mi-a-neighbour", NOW, node().pool, NOW)
    assert {s.node_id for s in seen} >= set(others)


def test_heartbeats_over_the_bus_are_taken_so_often_a_minute() -> None:
    """Each writes the node's item, and there was no bound on them."""
    ports = memory_ports()
    ports.nodes.save(node())

    became = take(ports, *(_heartbeat(event_id=f"alive-{one}") for one in range(HEARTBEATS_A_MINUTE + 1)))

    assert became == [*[Ingested.SEEN] * HEARTBEATS_A_MINUTE, Ingested.TOO_MANY]
    assert take(ports, xid(79)) == [Ingested.OPENED]


def test_what_aws_or_an_operator_says_of_a_node_does_not_count() -> None:
    ports = memory_ports()
    ports.nodes.save(node())
    take(ports, *flood(REPORTS_A_MINUTE + 1))

    said = xid(family=Family.host, code=INSTANCE_GONE, component=None, source="aws.ec2", event_id="gone")

    assert take(ports, said) == [Ingested.JOINED]


def test_what_a_spool_has_kept_through_an_outage_counts_for_itself() -> None:
    ports = memory_ports()
    ports.nodes.save(node())
    hours_ago = NOW - timedelta(seconds=LATE_SECONDS + 1)

    old = take(ports, *flood(2 * REPORTS_A_MINUTE, observed_at=hours_ago))

    assert Ingested.TOO_MANY not in old
    assert take(ports, xid(74, event_id="fresh")) == [Ingested.JOINED]


NODE = xid().node_id


def test_a_heartbeat_is_a_heartbeat_whatever_its_verdict() -> None:
    ports = memory_ports()
    ports.nodes.save(node())

    assert ingest(xid(family=Family.heartbeat, verdict=Verdict.UNKNOWN), ports, ACT) is Ingested.SEEN
    assert ports.workflows.started == []  # type: ignore[attr-defined]


def test_a_fault_from_before_the_passed_diagnostics_is_kept_as_history_and_opens_nothing() -> None:
    ports = memory_ports()
    ports.nodes.save(node(healthy_since=later(1)))

    assert ingest(xid(79), ports, ACT) is Ingested.HISTORY

    [(_, kept)] = ports.nodes.recorded.values()  # type: ignore[attr-defined]
    assert kept.note == "from before the node last passed its diagnostics"
    assert ingest(xid(79, event_id="then", observed_at=later(1)), ports, ACT) is Ingested.OPENED


def test_a_fault_is_recorded_with_its_job_for_the_decisions_about_others() -> None:
    ports = memory_ports()
    ports.nodes.save(node(job_id="llama"))

    ingest(xid(79), ports, ACT)

    [kept] = ports.nodes.observations(NODE, NOW, "demo", NOW)
    assert (kept.code, kept.job_id, kept.note) == ("79", "llama", "")


def test_a_fault_that_loses_its_race_reads_the_node_again_and_opens_its_incident() -> None:
    ports = memory_ports()
    ports.nodes.save(node())
    stale = iter([node(version=7)])
    get = ports.nodes.get
    ports.nodes.get = lambda node_id: next(stale, None) or get(node_id)  # type: ignore[method-assign]

    assert ingest(xid(79), ports, ACT) is Ingested.OPENED


def test_a_fault_that_loses_every_race_is_tried_again_later() -> None:
    ports = memory_ports()
    ports.nodes.save(node())
    ports.incidents.open = lambda *_: False  # type: ignore[method-assign]

    with pytest.raises(NotAccepted, match="written by others"):
        ingest(xid(79), ports, ACT)


def test_a_copy_of_an_event_does_not_start_an_incident_that_was_closed_before_it_began() -> None:
    it = SteppedIncident(63)
    history = it.ports.incidents.history(it.id)
    it.ports.incidents.finish(replace(history.incident, state=IncidentState.CLOSED))
    it.ports.workflows.started.clear()  # type: ignore[attr-defined]

    reports(it, xid(79))

    assert it.ports.workflows.started == []  # type: ignore[attr-defined]


def test_an_event_that_the_last_decision_has_just_counted_has_joined() -> None:
    it = SteppedIncident(999)
    append = it.ports.incidents.append
    decided: list[Any] = []

    def then_it_is_decided(incident_id: str, entry: Any) -> bool:
        is_new = append(incident_id, entry)
        if not decided:
            decided.append(it.request().decision)
        return is_new

    it.ports.incidents.append = then_it_is_decided  # type: ignore[method-assign]

    assert reports(it, xid(92, event_id="beside")) is Ingested.JOINED
    assert (decided[0].ending, decided[0].events_seen) == (Ending.HANDED_TO_A_HUMAN, 2)


@pytest.mark.parametrize("state", [NodeState.ISOLATED, NodeState.RECOVERING, NodeState.QUARANTINED])
def test_a_node_that_is_out_of_service_keeps_its_incident_although_that_has_broken(state: NodeState) -> None:
    it = SteppedIncident()
    incident = it.ports.incidents.history(it.id).incident
    it.ports.incidents.finish(replace(incident, state=IncidentState.ESCALATED))
    it.ports.nodes.save(replace(it.node(), state=state))

    assert reports(it, xid(48)) is Ingested.JOINED


def test_a_fault_that_is_redelivered_while_its_incident_is_still_ending_is_not_lost() -> None:
    it = SteppedIncident(999)
    ending = it.request()
    with pytest.raises(NotAccepted, match="is ending"):
        reports(it, xid(79))

    with pytest.raises(NotAccepted, match="is ending"):  # the queue is quicker than the ending
        reports(it, xid(79))
    end_incident(ending, it.ports, ACT)

    assert reports(it, xid(79)) is Ingested.OPENED


@pytest.mark.parametrize("family_code", [(Family.xid, "159"), (Family.ib, "symbol_error")], ids="/".join)
def test_a_fault_that_climbs_when_it_is_repeated_climbs_when_it_is_repeated(family_code: tuple[Family, str]) -> None:
    cluster, (family, code) = FakeCluster(), family_code
    for n in range(3):
        event = xid(0, family=family, code=code, verdict=Verdict.DEGRADED, event_id=f"n{n}")
        event = event.model_copy(update={"observed_at": cluster.clock()})
        if ingest(event, cluster.ports, ACT) is Ingested.OPENED:
            cluster.reports(event)
        cluster.clock.advance(HOUR)

    assert ("reboot-node", BROKEN) in cluster.commands


def test_a_fault_that_an_override_makes_the_jobs_own_is_news_in_the_next_run() -> None:
    cluster = FakeCluster(with_policy(overrides=[{"fault": "xid/92", "ladder": ["RESTART_WORKLOAD"], "why": "ours"}]))
    assert cluster.reports(xid(92)).end == "Recovered"
    cluster.clock.advance(HOUR)

    again = xid(92, event_id="again", observed_at=cluster.clock())

    assert ingest(again, cluster.ports, ACT) is Ingested.OPENED


def test_a_fault_that_came_in_a_maintenance_window_is_news_when_the_window_is_over() -> None:
    window = {"days": ["sunday"], "starts_at": "02:00", "minutes": 120, "why": "patching"}  # NOW is a Sunday, 03:00
    cluster = FakeCluster(with_policy(default_pool={"mode": "act", "maintenance": [window]}))
    assert cluster.reports(xid(79)).end == "Observed only"
    cluster.clock.advance(2 * HOUR)

    again = xid(79, event_id="again", observed_at=cluster.clock())

    assert ingest(again, cluster.ports, ACT) is Ingested.OPENED
