"""Recoveries from the first event to the last word, over the real state machines and services."""

import pytest

from nodeheal.contract.vocabulary import Action, Confirmation, Escalation, IncidentState, NodeState, Verdict
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.release_node import release_node
from tests.support.builders import ACT, scheduler_in, stored_job, waiting, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE, FakeCluster, without_job
from tests.support.walker import Error, steps

BROKEN_FUNCTION = Error("Lambda.Unknown", "Traceback: …")


def test_a_gpu_off_the_bus_is_rebooted_proven_and_its_job_runs_again() -> None:
    cluster = FakeCluster()

    walked = cluster.reports(xid(79))

    assert walked.end == "Recovered"
    assert cluster.commands == [("reboot-node", BROKEN), ("run-diagnostics", BROKEN)]
    assert cluster.job_nodes == [BROKEN, PEER]
    assert cluster.told == [f"[nodeheal] recovered: {BROKEN}, llama: XID 79 (GPU has fallen off the bus)"]


def test_a_node_that_fails_its_diagnostics_is_exchanged_for_the_spare() -> None:
    cluster = FakeCluster()
    cluster.diagnoses[BROKEN] = Verdict.FAILED

    walked = cluster.reports(xid(79))

    assert walked.end == "Escalated"
    assert cluster.commands == [("reboot-node", BROKEN), ("run-diagnostics", BROKEN), ("run-diagnostics", SPARE)]
    assert cluster.job_nodes == [SPARE, PEER]
    assert cluster.node().state is NodeState.QUARANTINED


def test_a_node_that_denies_its_fault_is_diagnosed_and_keeps_its_job() -> None:
    cluster = FakeCluster()
    cluster.confirms = Confirmation.DENIED

    walked = cluster.reports(xid(74))

    assert walked.end == "Recovered"
    assert cluster.commands == [("freeze-evidence", BROKEN), ("run-diagnostics", BROKEN)]
    assert cluster.job_nodes == [BROKEN, PEER]


def test_a_node_that_cannot_tell_whether_it_is_broken_is_a_humans() -> None:
    cluster = FakeCluster()
    cluster.confirms = Confirmation.UNKNOWN

    walked = cluster.reports(xid(74))

    assert walked.end == "Escalated"
    assert cluster.commands == [("freeze-evidence", BROKEN)]
    told = cluster.ports.notifier.announced[-1][1]  # type: ignore[attr-defined]
    assert told.escalation is Escalation.NOT_CONFIRMED


def test_a_node_that_faults_again_after_its_reboot_is_exchanged() -> None:
    cluster = FakeCluster()
    cluster.after_reboot = [xid(79, event_id="again", boot_id="boot-2")]

    cluster.reports(xid(79))

    assert cluster.job_nodes == [SPARE, PEER]
    assert "XID 79 (GPU has fallen off the bus) on" in cluster.ports.notifier.announced[0][1].body  # type: ignore[attr-defined]


def test_a_node_that_never_returns_is_exchanged() -> None:
    cluster = FakeCluster()
    cluster.node_returns = False

    walked = cluster.reports(xid(79))

    assert walked.end == "Escalated"
    assert cluster.job_nodes == [SPARE, PEER]


def test_diagnostics_that_hang_are_a_failure() -> None:
    cluster = FakeCluster()
    cluster.hangs = {BROKEN}

    cluster.reports(xid(79))

    assert cluster.job_nodes == [SPARE, PEER]


def test_without_a_spare_the_job_stays_down_and_a_human_is_told() -> None:
    cluster = FakeCluster(spare=False)
    cluster.diagnoses[BROKEN] = Verdict.FAILED

    walked = cluster.reports(xid(79))

    assert walked.end == "Escalated"
    assert cluster.job_nodes == []
    assert cluster.ports.attempts.spent(f"node#{BROKEN}", ACT.limits[Action.REPLACE]) == {Action.REPLACE: 0}


def test_a_spare_that_fails_is_not_given_the_job() -> None:
    cluster = FakeCluster()
    cluster.diagnoses[SPARE] = Verdict.FAILED

    walked = cluster.reports(xid(74))

    assert walked.end == "Escalated"
    assert cluster.job_nodes == []
    assert cluster.node(SPARE).open_incident is None


def test_a_second_incident_within_the_window_finds_no_reboot_left() -> None:
    cluster = FakeCluster()
    cluster.reports(xid(79))

    cluster.reports(xid(79, event_id="second", boot_id="boot-2", observed_at=cluster.clock()))

    assert cluster.commands.count(("reboot-node", BROKEN)) == 1
    assert cluster.job_nodes == [SPARE, PEER]


def test_a_budget_that_stays_full_touches_nothing_and_tells_a_human() -> None:
    cluster = FakeCluster()
    cluster.ports.pools.claim("demo", PEER, 1)
    cluster.on_wait = lambda: None

    walked = cluster.reports(xid(79))

    assert walked.end == "Escalated"
    assert "no slot was free in 24 h" in walked.output["summary"]
    assert cluster.commands == []
    assert cluster.job_nodes == [BROKEN, PEER]
    assert cluster.node().state is NodeState.HEALTHY


def test_two_runs_never_write_at_the_same_time() -> None:
    """The peer's rank does not stop, and its node does not reboot: nothing may start over it."""
    cluster = FakeCluster()
    cluster.deaf = {PEER}

    walked = cluster.reports(xid(79))

    assert walked.end == "Escalated"
    job = stored_job(cluster.ports, "llama")
    assert job.current_run == 1


def test_a_rank_that_would_not_stop_is_gone_when_its_own_node_has_rebooted() -> None:
    cluster = FakeCluster()
    cluster.deaf = {BROKEN}

    walked = cluster.reports(xid(79))

    assert walked.end == "Recovered"
    assert cluster.job_nodes == [BROKEN, PEER]


def test_an_application_fault_restarts_the_gang_in_place() -> None:
    cluster = FakeCluster()

    walked = cluster.reports(xid(31))

    assert steps(walked) == ["Stop gang", "Launch gang", "End incident", "How did it end?", "Recovered"]
    assert cluster.job_nodes == [BROKEN, PEER]
    assert cluster.commands == []


def test_an_unknown_code_leaves_everything_alone() -> None:
    cluster = FakeCluster()

    walked = cluster.reports(xid(999))

    assert steps(walked) == ["End incident", "How did it end?", "Escalated"]
    assert cluster.job_nodes == [BROKEN, PEER]


def test_observe_mode_only_tells() -> None:
    cluster = FakeCluster(policy=RecoveryPolicy())

    walked = cluster.reports(xid(79))

    assert steps(walked) == ["End incident", "How did it end?", "Observed only"]
    assert cluster.job_nodes == [BROKEN, PEER]
    assert cluster.commands == []


def test_a_node_without_a_job_is_healed_and_nothing_is_restarted() -> None:
    cluster = without_job(FakeCluster())

    walked = cluster.reports(xid(79))

    assert walked.end == "Recovered"
    assert "Stop gang" not in walked.path


def test_an_incident_that_ended_leaves_nothing_waiting() -> None:
    cluster = FakeCluster()

    cluster.reports(xid(79))

    assert waiting(cluster.ports) == []
    history = cluster.ports.incidents.history(cluster.incident_id)
    assert history.incident.state is IncidentState.CLOSED


@pytest.mark.parametrize("state", ["Decide next step", "Isolate node", "Return to service", "End incident"])
def test_a_function_that_breaks_pages_from_the_state_machine_itself(state: str) -> None:
    cluster = FakeCluster()
    cluster.breaks = {state: BROKEN_FUNCTION}

    walked = cluster.reports(xid(79))

    assert walked.path[-3:] == ["Page operators", "Mark escalated", "Recovery failed"]


def test_a_reboot_whose_function_breaks_is_looked_at_and_not_repeated() -> None:
    cluster = FakeCluster()
    cluster.breaks = {"Reboot node": BROKEN_FUNCTION}

    walked = cluster.reports(xid(79))

    assert walked.end == "Escalated"
    assert walked.path.count("Reboot node") == 1
    assert ("reboot-node", BROKEN) not in cluster.commands


def test_after_a_recovery_that_broke_the_nodes_next_fault_is_news() -> None:
    cluster = FakeCluster()
    cluster.breaks = {"Decide next step": BROKEN_FUNCTION}
    cluster.reports(xid(79))
    cluster.breaks = {}

    walked = cluster.reports(xid(79, event_id="again"))

    assert walked.end == "Recovered"


def test_a_grave_fault_that_joins_a_harmless_one_is_healed() -> None:
    cluster = FakeCluster()
    cluster.before_walk = [xid(79)]

    walked = cluster.reports(xid(63))

    assert walked.end == "Recovered"
    assert ("reboot-node", BROKEN) in cluster.commands


def test_a_quarantined_node_blocks_its_pool_until_a_human_gives_it_back() -> None:
    cluster = FakeCluster()
    cluster.reports(xid(74))

    release_node(BROKEN, "board exchanged", cluster.ports)

    assert cluster.node().state is NodeState.HEALTHY
    assert list(cluster.ports.pools.holders("demo")) == []
    assert scheduler_in(cluster.ports).draining == set()
    assert cluster.reports(xid(999, event_id="later")).end == "Escalated"


def test_a_retired_node_gives_its_slot_back_and_stays_drained() -> None:
    cluster = FakeCluster()
    cluster.reports(xid(74))

    release_node(BROKEN, "beyond repair", cluster.ports, retire=True)

    assert cluster.node().state is NodeState.RETIRED
    assert list(cluster.ports.pools.holders("demo")) == []
    assert scheduler_in(cluster.ports).draining == {BROKEN}


def test_a_node_in_service_is_not_released() -> None:
    cluster = FakeCluster()

    with pytest.raises(ValueError, match="HEALTHY"):
        release_node(BROKEN, "by mistake", cluster.ports)


def test_a_row_remap_waits_for_the_job_and_then_reboots_a_node_that_nobody_needs() -> None:
    cluster = FakeCluster()

    walked = cluster.reports(xid(63))

    assert "Wait for condition" in walked.path
    assert walked.end == "Recovered"
    assert cluster.commands == [("reboot-node", BROKEN), ("run-diagnostics", BROKEN)]
    assert not scheduler_in(cluster.ports).stopped
    assert walked.path.count("Stop gang") == 0


def test_a_grave_fault_ends_the_wait_for_the_job() -> None:
    cluster = FakeCluster()

    def worse() -> None:
        ingest(xid(79), cluster.ports, cluster.policy)

    cluster.on_wait = worse

    walked = cluster.reports(xid(63))

    assert walked.end == "Recovered"
    assert (
        walked.path.index("Wait for condition") < walked.path.index("Isolate node") < walked.path.index("Reboot node")
    )
    assert cluster.job_nodes == [BROKEN, PEER]


def test_a_job_that_outlives_the_wait_leaves_its_node_to_a_human() -> None:
    cluster = FakeCluster()
    cluster.on_wait = lambda: None

    walked = cluster.reports(xid(63))

    assert walked.end == "Escalated"
    assert cluster.commands == []
    assert cluster.job_nodes == [BROKEN, PEER]
    assert waiting(cluster.ports) == []


def test_a_second_run_may_show_the_same_application_fault_as_news() -> None:
    cluster = FakeCluster()
    cluster.reports(xid(31))
    cluster.clock.advance(60)

    again = cluster.reports(xid(31, event_id="again", observed_at=cluster.clock()))

    assert again.end == "Recovered"
    assert cluster.ports.jobs.get("llama").current_run == 3  # type: ignore[union-attr]


def test_a_recovery_counts_towards_a_lemon_whatever_came_of_it() -> None:
    cluster = FakeCluster()
    cluster.reports(xid(79))

    assert [past.incident_id for past in cluster.node().recoveries] == [cluster.incident_id]


def test_what_only_restarted_the_job_does_not() -> None:
    cluster = FakeCluster()
    cluster.reports(xid(31))

    assert cluster.node().recoveries == ()


def test_a_recovery_of_another_node_of_the_job_does_not_end_the_wait_and_is_not_held_up_by_it() -> None:
    cluster = FakeCluster()
    seen: list[str] = []

    def other_node_breaks() -> None:
        waiting = cluster.incident_id
        if seen:
            cluster._gang_finishes()
            return
        seen.append(waiting)
        walked = cluster.reports(xid(79, node_id=PEER, instance_id=PEER, event_id="peer"))
        seen.append(str(walked.end))
        cluster.incident_id = waiting

    cluster.on_wait = other_node_breaks
    walked = cluster.reports(xid(63))

    assert seen[1] == "Recovered"
    assert walked.end == "Recovered"
    assert walked.path.count("Wait for condition") == 2
    assert [verb for verb, name in cluster.commands if name == BROKEN] == ["reboot-node", "run-diagnostics"]
