"""The sweep over a world in memory: who is heard, who is asked, and who is left alone."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.steps import DecideRequest, Decision
from nodeheal.contract.vocabulary import EndCause, JobState, NodeState, Provider, Step, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.liveness import STOPPED, TERMINATED, Heartbeat, ProbeAnswer, Silence
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.records_epoch import Epoch
from nodeheal.domain.recovery.incident import Incident, incident_id_of
from nodeheal.ports import Ports
from nodeheal.ports.storage import SweepCursor
from nodeheal.services import sweep as sweep_module
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.liveness import probe_silent_nodes
from nodeheal.services.recovery.decide_next_step import decide_next_step
from nodeheal.services.sweep import Swept, sweep
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, stored_node, stored_run, xid
from tests.support.jobs import ecs_job

LOST = ProbeAnswer("ECS", is_up=False, text="agent not connected")
HEARD = ProbeAnswer("ECS", is_up=True, text="agent connected")
A = "mi-0000000000000000a"


class Cluster:
    """A pool of twenty nodes that speak, and those that the test silences."""

    def __init__(self, speaking: int = 20) -> None:
        self.clock = FrozenClock()
        self.ports: Ports = memory_ports(self.clock)
        for number in range(speaking):
            self.add(f"mi-speaking{number:02}", seconds_ago=10)

    def add(self, node_id: str, seconds_ago: float = 301, **changes: object) -> Node:
        last_seen = NOW - timedelta(seconds=seconds_ago)
        added = node(node_id, **{"last_seen": last_seen, "booted_at": NOW - timedelta(days=1), **changes})
        assert self.ports.nodes.save(added)
        return added

    def says(self, node_id: str, *said: ProbeAnswer) -> None:
        self.ports.liveness_probes.says[node_id] = said  # type: ignore[attr-defined]

    def sweep(self, policy: RecoveryPolicy = ACT) -> Swept:
        return sweep(self.ports, policy)

    def node(self, node_id: str = A) -> Node:
        return stored_node(self.ports, node_id)

    @property
    def asked(self) -> list[str]:
        return list(self.ports.liveness_probes.asked)  # type: ignore[attr-defined]

    @property
    def incidents(self) -> list[Incident]:
        return list(self.ports.incidents.incidents.values())  # type: ignore[attr-defined]

    @property
    def told(self) -> list[str]:
        return [notification.subject for _, notification in self.ports.notifier.announced]  # type: ignore[attr-defined]

    @property
    def mail(self) -> str:
        [*_, (_, newest)] = self.ports.notifier.announced  # type: ignore[attr-defined]
        return str(newest.body)

    def decide(self, incident: Incident) -> Decision:
        request = DecideRequest(incident_id=incident.incident_id, turn=0)
        return decide_next_step(request, self.ports, ACT)

    def runs_job(self, **statuses: str) -> None:
        """A job with a rank on each of these nodes (their dashes as underscores)."""
        ids = [name.replace("_", "-") for name in statuses]
        tasks = tuple(
            GangTask(node_id, rank, "boot-1", f"at-{node_id}", f"task-{rank}", statuses[node_id.replace("-", "_")])
            for rank, node_id in enumerate(ids)
        )
        self.ports.jobs.save(ecs_job("llama", "demo", "training", "trainer:1", "trainer", len(ids), current_run=1))
        self.ports.jobs.save_run(Run("llama", 1, NOW, "first", tasks))
        self.ports.nodes.save(replace(self.node(), job_id="llama"))


def test_silence_that_nobody_else_confirms_is_told_and_touches_nothing() -> None:
    it = Cluster()
    it.add(A)

    it.sweep()

    [incident] = it.incidents
    assert (incident.node_id, incident.root.code, incident.root.verdict) == (A, "silent", Verdict.UNKNOWN)
    assert it.decide(incident).step is Step.CLOSE


def test_silence_that_another_witness_confirms_isolates_the_node() -> None:
    it = Cluster()
    it.add(A)
    it.says(A, LOST)

    it.sweep()

    [incident] = it.incidents
    assert (incident.root.subcode, incident.root.verdict) == ("confirmed", Verdict.FAILED)
    assert "ECS: agent not connected" in incident.root.evidence
    assert it.decide(incident).step is Step.ISOLATE


def test_a_witness_who_hears_the_node_keeps_it_from_being_touched() -> None:
    it = Cluster()
    it.add(A)
    it.says(A, replace(LOST, witness="SSM"), HEARD)

    it.sweep()

    assert it.decide(it.incidents[0]).step is Step.CLOSE


def test_a_silence_that_is_confirmed_later_is_a_new_fault() -> None:
    it = Cluster()
    it.add(A)
    it.sweep()
    it.ports.nodes.save(replace(it.node(), open_incident=None))  # told, and closed
    it.says(A, LOST)

    it.sweep()

    assert [incident.root.subcode for incident in it.incidents] == [None, "confirmed"]


def test_a_jobs_record_that_is_not_what_it_should_be_keeps_no_node_from_being_heard() -> None:
    """Who submits jobs writes their records. The run fails at its end, which an alarm tells of."""
    cluster = Cluster()
    cluster.add(A)
    cluster.says(A, LOST)
    job = ecs_job("evil", "demo", "training", "trainer:1", "trainer", 2, state=JobState.SUBMITTED)
    cluster.ports.jobs.save(replace(job, submitted_at=NOW.replace(tzinfo=None)))

    with pytest.raises(TypeError, match="offset-naive"):
        cluster.sweep()

    assert cluster.asked == [A]
    assert len(cluster.incidents) == 1


def test_the_same_silence_is_reported_once() -> None:
    it = Cluster()
    it.add(A)

    outcomes = [heard.became for _ in range(3) for heard in it.sweep().heard]

    assert outcomes == [Ingested.OPENED, Ingested.DUPLICATE, Ingested.DUPLICATE]
    assert it.node().last_seen == NOW - timedelta(seconds=301)


def test_a_node_that_was_heard_since_the_list_was_made_is_not_silent() -> None:
    it = Cluster()
    it.add(A)
    listed = it.ports.fleet_index.liveness_page("demo", "", 100)
    it.ports.nodes.save(replace(it.node(), last_seen=NOW))
    it.ports.fleet_index.liveness_page = lambda *_: listed  # type: ignore[method-assign]

    it.sweep()

    assert (it.asked, it.incidents) == ([], [])


@pytest.mark.parametrize("state", [NodeState.RECOVERING, NodeState.QUARANTINED, NodeState.RETIRED])
def test_a_node_that_was_taken_out_of_service_meanwhile_is_not_asked_about(state: NodeState) -> None:
    it = Cluster()
    it.add(A)
    listed = it.ports.fleet_index.liveness_page("demo", "", 100)
    it.ports.nodes.save(replace(it.node(), state=state))
    it.ports.fleet_index.liveness_page = lambda *_: listed  # type: ignore[method-assign]

    assert it.sweep().heard == []


def test_nobody_listens_where_the_policy_says_so() -> None:
    it = Cluster()
    it.add(A)
    heartbeat = Heartbeat(f"role:{A}", "boot-1", it.clock(), 60.0)
    it.ports.heartbeats.beats[heartbeat.who] = heartbeat  # type: ignore[attr-defined]

    done = it.sweep(ACT.model_copy(update={"silence": Silence(enabled=False)}))

    assert done.silent == 0
    assert it.incidents == []
    assert done.counted == {"demo": 21}
    assert done.running_jobs == {}, "without heartbeats nobody knows"


# The job -------------------------------------------------------------------------------------------------------------


def test_a_silent_node_whose_job_goes_on_is_not_touched() -> None:
    it = Cluster()
    it.add(A)
    it.says(A, LOST)
    it.runs_job(mi_0000000000000000a="RUNNING", mi_speaking01="RUNNING")

    it.sweep()

    [incident] = it.incidents
    assert (incident.root.verdict, incident.root.subcode) == (Verdict.UNKNOWN, None)
    assert "1 other rank of its job runs" in incident.root.evidence


def test_a_gang_that_broke_is_a_witness() -> None:
    it = Cluster()
    it.add(A)
    it.runs_job(mi_0000000000000000a="RUNNING", mi_speaking01="STOPPED")

    it.sweep()

    assert it.incidents[0].root.subcode == "confirmed"


def test_a_gang_says_nothing_of_a_node_whose_rank_has_ended() -> None:
    it = Cluster()
    it.add(A)
    it.says(A, LOST)
    it.runs_job(mi_0000000000000000a="STOPPED", mi_speaking01="RUNNING")

    it.sweep()

    assert it.incidents[0].root.subcode == "confirmed"


def test_a_rank_whose_own_node_is_silent_vouches_for_nobody() -> None:
    it = Cluster()
    for one in (A, "mi-other"):
        it.add(one)
        it.says(one, LOST)
    it.runs_job(mi_0000000000000000a="RUNNING", mi_other="RUNNING")

    it.sweep()

    assert {incident.root.subcode for incident in it.incidents} == {"confirmed"}


@pytest.mark.parametrize("ended", [{"exit_code": 0}, {"exit_code": 137, "end_causes": (EndCause.ON_REQUEST,)}])
def test_a_rank_that_ended_well_or_was_stopped_speaks_against_nobody(ended: dict[str, Any]) -> None:
    it = Cluster()
    it.add(A)
    it.runs_job(mi_0000000000000000a="RUNNING", mi_speaking01="STOPPED")
    run = stored_run(it.ports, "llama", 1)
    it.ports.jobs.save_run(run.with_task(replace(run.tasks[1], **ended)))

    it.sweep()

    assert it.incidents[0].root.subcode is None


def test_a_gang_that_still_starts_or_a_rank_alone_cannot_tell() -> None:
    for others in ({"mi_speaking01": "PENDING"}, {}):
        it = Cluster()
        it.add(A)
        it.says(A, LOST)
        it.runs_job(mi_0000000000000000a="RUNNING", **others)

        it.sweep()

        assert it.incidents[0].root.subcode == "confirmed"


# Many at once --------------------------------------------------------------------------------------------------------


def test_a_network_cut_of_ten_nodes_acts_on_nobody_and_is_told_once() -> None:
    it = Cluster(speaking=90)
    for number in range(10):
        it.add(f"mi-cut{number}", seconds_ago=301 + 5 * number)
        it.says(f"mi-cut{number}", LOST)

    done = [it.sweep() for _ in range(2)]
    it.ports.notifier.mark_sent(it.ports.notifier.announced[0][1].key)  # type: ignore[attr-defined]
    done.append(it.sweep())

    assert (it.asked, it.incidents) == ([], [])
    assert [swept.paged_mass_silence for swept in done] == [["demo"], ["demo"], []]
    assert it.told[0] == "[nodeheal] 10 nodes of pool demo fell silent together"
    assert len({notification.key for _, notification in it.ports.notifier.announced}) == 1  # type: ignore[attr-defined]
    assert it.mail.count("mi-cut") == 10
    assert " more" not in it.mail


def test_of_very_many_that_fall_silent_together_fifty_are_named_and_the_others_counted() -> None:
    it = Cluster(speaking=500)
    for number in range(53):
        it.add(f"mi-cut{number}", seconds_ago=301 + number)
        it.says(f"mi-cut{number}", LOST)

    it.sweep()

    assert it.mail.count("mi-cut") == 50
    assert "and 3 more" in it.mail


def test_ten_that_are_confirmed_one_by_one_still_trip_the_breaker() -> None:
    it = Cluster(speaking=90)
    lone = [it.add(f"mi-cut{number}") for number in range(10)]
    for one in lone:
        it.says(one.node_id, LOST)

    probe_silent_nodes([one.node_id for one in lone], 10, {}, it.ports, ACT)

    steps = [it.decide(incident) for incident in it.incidents]
    assert len(steps) == 10
    assert {decision.step for decision in steps} == {Step.WAIT}
    assert len({decision.page_key for decision in steps}) == 1


def test_all_are_recorded_before_the_first_is_acted_on() -> None:
    it = Cluster()
    for number in (1, 2):
        it.add(f"mi-lone{number}")
        it.says(f"mi-lone{number}", LOST)
    recorded_at_start: list[int] = []
    it.ports.workflows.start = lambda *_: recorded_at_start.append(  # type: ignore[method-assign]
        len(it.ports.nodes.recorded)  # type: ignore[attr-defined]
    )

    it.sweep()

    assert recorded_at_start == [2, 2]


# Machines that are gone ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gone", "state"), [(TERMINATED, NodeState.RETIRED), (STOPPED, NodeState.HEALTHY)])
def test_a_machine_that_is_gone_without_a_job_is_no_fault(gone: str, state: NodeState) -> None:
    it = Cluster()
    it.add(A, provider=Provider.ec2)
    it.says(A, LOST, ProbeAnswer("EC2", is_up=False, text=f"the machine is {gone}", gone=gone))

    it.sweep()

    assert (it.node().state, it.incidents) == (state, [])


def test_a_machine_that_is_gone_with_a_job_is_a_fault() -> None:
    it = Cluster()
    it.add(A, provider=Provider.ec2)
    it.says(A, ProbeAnswer("EC2", is_up=False, text="the machine is terminated", gone=TERMINATED))
    it.runs_job(mi_0000000000000000a="RUNNING", mi_speaking01="RUNNING")

    it.sweep()

    assert [(incident.root.code, incident.root.subcode) for incident in it.incidents] == [("instance_gone", TERMINATED)]


# Bounded work --------------------------------------------------------------------------------------------------------


def test_a_run_looks_at_so_many_and_the_next_pool_is_not_starved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "LOOKS_A_RUN", 2)
    it = Cluster()
    for number in range(3):
        it.add(f"mi-old{number}", seconds_ago=90_000 * (number + 1))
    it.add("mi-other", pool="other")
    it.add("mi-speaking", seconds_ago=10, pool="other")

    runs = [[heard.node_id for heard in it.sweep().heard] for _ in range(2)]

    assert runs == [["mi-old0", "mi-old1"], ["mi-other", "mi-old0"]]


def test_a_run_reads_so_many_nodes_and_the_next_goes_on_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "NODES_A_RUN", 8)
    monkeypatch.setattr(sweep_module, "NODES_A_PAGE", 4)
    it = Cluster(speaking=20)

    runs = [it.sweep().nodes for _ in range(4)]

    assert runs == [8, 8, 4, 8]


def test_a_run_that_has_read_so_many_leaves_the_next_pool_to_the_next_run_which_counts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep_module, "NODES_A_RUN", 12)
    monkeypatch.setattr(sweep_module, "NODES_A_PAGE", 4)
    it = Cluster(speaking=20)
    it.add("mi-other", seconds_ago=10, pool="other")

    runs = [it.sweep() for _ in range(2)]

    assert [(run.nodes, list(run.counted)) for run in runs] == [(12, []), (9, ["demo", "other"])]


def test_where_there_is_no_pool_there_is_nothing_to_do() -> None:
    assert Cluster(speaking=0).sweep().nodes == 0


def test_a_run_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Cluster()
    it.add("mi-other", seconds_ago=10, pool="other")
    liveness_page = it.ports.fleet_index.liveness_page

    def slow(*asked: object) -> object:
        it.clock.advance(31)
        return liveness_page(*asked)  # type: ignore[arg-type]

    it.ports.fleet_index.liveness_page = slow  # type: ignore[method-assign,assignment]

    assert it.sweep().nodes == 20
    assert it.ports.fleet_index.cursor() == SweepCursor("other")


def test_a_pool_that_is_gone_from_the_list_does_not_stop_the_round() -> None:
    it = Cluster()
    it.add("mi-other", seconds_ago=10, pool="other")
    looked_at: list[tuple[object, ...]] = []
    liveness_page = it.ports.fleet_index.liveness_page
    it.ports.fleet_index.liveness_page = lambda *asked: looked_at.append(asked[:2]) or liveness_page(*asked)  # type: ignore

    for gone in ("gone", "zzz"):
        it.ports.fleet_index.save_cursor(SweepCursor(gone, "mi-1"))
        assert it.sweep().nodes == 21

    assert looked_at == [("other", ""), ("demo", ""), ("demo", ""), ("other", "")]


# Lost starts ---------------------------------------------------------------------------------------------------------


def test_a_service_that_says_not_now_ends_the_run_and_the_next_one_asks_again() -> None:
    it = Cluster()
    it.add(A)
    ask = it.ports.liveness_probes.ask

    def throttled(_: Node) -> object:
        raise NotAccepted("ListContainerInstances: ThrottlingException")

    it.ports.liveness_probes.ask = throttled  # type: ignore[method-assign,assignment]

    assert it.sweep().unfinished == "ListContainerInstances: ThrottlingException"
    it.ports.liveness_probes.ask = ask  # type: ignore[method-assign]
    assert [heard.node_id for heard in it.sweep().heard] == [A]


def test_an_incident_whose_workflow_never_started_is_started() -> None:
    it = Cluster()
    ingest(xid(79, node_id="mi-speaking01"), it.ports, ACT)
    started: list[str] = it.ports.workflows.started  # type: ignore[attr-defined]
    started.clear()
    it.clock.advance(61)

    done = it.sweep()

    assert done.restarted == started == [incident_id_of(xid(79, node_id="mi-speaking01"))]


def test_a_fault_of_yesterday_isolates_nobody_today() -> None:
    it = Cluster()
    ingest(xid(79, node_id="mi-speaking01"), it.ports, ACT)
    it.clock.advance(86_401)

    assert it.sweep().restarted == []


@pytest.mark.parametrize("why", ["it has just begun", "a decision was taken"])
def test_an_incident_that_is_on_its_way_is_left_alone(why: str) -> None:
    it = Cluster()
    ingest(xid(79, node_id="mi-speaking01"), it.ports, ACT)
    it.clock.advance(60)
    if why == "a decision was taken":
        it.clock.advance(3_600)
        it.decide(it.incidents[0])

    assert it.sweep().restarted == []


def test_a_pool_that_only_the_policy_names_is_looked_at_too() -> None:
    it = Cluster()
    it.add(A, pool="named")
    it.ports.fleet_index.pools = lambda: []  # type: ignore[method-assign]

    assert it.sweep(ACT.model_copy(update={"pools": {"named": ACT.default_pool}})).nodes == 1


def slow_pools(it: Cluster, names: list[str], seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each of these pools takes so long to see to; they are listed as they are begun with."""
    begun: list[str] = []

    def lost(pool: str, ports: Ports) -> list[str]:
        it.clock.advance(seconds)
        begun.append(pool)
        return []

    for name in names:
        it.add(f"mi-of-{name}", seconds_ago=1, pool=name)
    monkeypatch.setattr(sweep_module, "_start_what_was_lost", lost)
    return begun


def test_many_pools_keep_no_run_from_its_looks_and_each_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """S6: what waits was seen to in every pool first, without a bound on time."""
    it = Cluster(speaking=0)
    pools = [f"pool-{number:02}" for number in range(10)]
    begun = slow_pools(it, pools, sweep_module.DUE_SECONDS / 4, monkeypatch)

    runs = []
    for _ in range(3):
        done, so_far = it.sweep(), len(begun)
        runs.append((done.nodes, len(done.left_waiting), so_far))

    assert runs == [(10, 6, 4), (10, 6, 8), (10, 6, 12)]
    assert begun == [*pools, *pools[:2]]


def test_a_pool_that_was_next_and_is_gone_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Cluster(speaking=0)
    begun = slow_pools(it, ["a", "c"], 0, monkeypatch)
    it.ports.fleet_index.save_cursor(SweepCursor(due="b"))

    it.sweep()

    assert begun == ["c", "a"]
    assert it.ports.fleet_index.cursor().due == ""


def test_the_look_over_nodes_keeps_the_pool_that_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Cluster(speaking=0)
    slow_pools(it, ["a", "b", "c"], 2 * sweep_module.DUE_SECONDS, monkeypatch)

    it.sweep()

    place = it.ports.fleet_index.cursor()
    assert (place.pool, place.due) == ("a", "b")


def test_the_sweep_renews_the_mark_of_the_records_and_does_nothing_but_page_where_it_went_back() -> None:
    it = Cluster()
    it.sweep()
    assert it.ports.epoch.read() == Epoch(NOW, NOW)
    it.add(A)
    it.says(A, LOST)
    it.ports.epoch.in_table = NOW - timedelta(hours=1)  # type: ignore[attr-defined]

    done = it.sweep()

    assert done.has_gone_back
    assert it.incidents == []
    assert it.asked == []
    assert it.told == ["[nodeheal] stopped: its records went back to 2026-03-01 02:00:00 UTC"]
    assert it.ports.epoch.read() == Epoch(NOW - timedelta(hours=1), NOW)
