"""Whose node it is by now: another incident's, another job's, another repairer's.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.contract import names
from nodeheal.contract.vocabulary import NodeState, Verdict
from nodeheal.domain.fleet.machine import Remediator
from nodeheal.domain.fleet.unmanaged_tasks import UnmanagedTask
from nodeheal.domain.jobs.job import Job, job_of
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.services.jobs.job_nodes import claim
from nodeheal.services.operators.close_incident import close_incident
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.operators.retire_node import retire_node
from nodeheal.services.recovery.spares import claim_spare
from tests.unit.builders import NOW, FrozenClock, memory_ports, node, scheduler_in, started_job, xid
from tests.workflows.breaking_world import ACTS, BreakingWorld
from tests.workflows.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.fuse import Fuse, fused
from tests.workflows.job_cluster import NODES, JobCluster, finishes
from tests.workflows.scenarios.races import Moment
from tests.workflows.scenarios.setup import HANDED_OVER, RECOVERED, breaks, changes, ends_as, world, wrong_with
from tests.workflows.stories import MOVES, STORIES, TEMPLATE, pool


def another_job_claims_too() -> list[str]:
    """While a job claims its first node, another one claims its second."""
    clock, fuse = FrozenClock(), Fuse(writes_only=True)
    plain = memory_ports(clock)
    for name in NODES[:3]:
        plain.nodes.save(node(name))
    second = node(NODES[1], version=1, claimed_by="another")
    fuse.meanwhile["claim", "nodes.save"] = lambda: plain.nodes.save(second)
    with fuse.working("claim"):
        claim(job_of(JobCluster().spec, "training", "trainer:1", clock()), fused(plain, fuse), ACTS)
    taken = plain.nodes.get(NODES[1])
    return [] if taken is not None and taken.claimed_by == "another" else ["a node was claimed by two jobs"]


def the_node_is_given_back() -> list[str]:
    it = world()
    it.meanwhile["reboot_node"] = [changes(it, state=NodeState.HEALTHY, open_incident=None)]
    it.reports(xid(79))
    return [why for why in it.wrong if why.startswith(("commands.", "reboot_node raised"))]


def the_node_is_anothers() -> list[str]:
    it = world()
    it.meanwhile["isolate_node"] = [changes(it, open_incident="inc-of-another")]
    it.reports(xid(79))
    return [] if it.node().state is NodeState.HEALTHY else ["a node of another incident was isolated"]


def a_node_is_claimed_anew_before_the_launch() -> list[str]:
    """A human has let its claim go, and another job has taken it, while this one was about to start there."""
    it, taken = JobCluster(), list[str]()

    def another_claims(cluster: JobCluster) -> None:
        name = next(name for name in NODES if cluster.node(name).claimed_by == "llama")
        taken.append(name)
        cluster.ports.nodes.save(replace(cluster.node(name), claimed_by="another"))

    it.before["Launch job"] = another_claims
    it.happenings = [finishes]
    it.submit()
    on = [task.node_id for task in it.run.tasks]
    return [] if taken and taken[0] not in on else [f"started on {on}, of which {taken} is another job's"]


def the_node_is_anothers_when_it_is_returned() -> list[str]:
    it = world()
    it.meanwhile["return_to_service"] = [changes(it, open_incident="inc-of-another")]
    it.reports(xid(79))
    return [] if it.node().state is not NodeState.PROBATION else ["a node of another incident was returned"]


def the_node_is_anothers_at_the_end() -> list[str]:
    it = world()
    it.meanwhile["end_incident"] = [changes(it, open_incident="inc-of-another")]
    it.reports(xid(79))
    return [] if it.node().open_incident == "inc-of-another" else ["a node of another incident was let go"]


def another_repairs_it() -> list[str]:
    it = world(pool(), spare=False, machine=replace(TEMPLATE, external_remediator=Remediator.ec2_auto_recovery))
    it.reports(xid(74, **it.fault))
    return wrong_with(it, ends_as(it, *HANDED_OVER))


def another_job_has_come() -> list[str]:
    it = world()

    def comes() -> None:
        started_job(Job("other-job", "demo", "training", "trainer:1", "trainer", 1), [it.node()], it.plain)

    it.meanwhile["isolate_node"] = [comes]
    it.reports(xid(79))
    return [] if it.node().state is NodeState.HEALTHY else ["the node was isolated under another job"]


def the_spare_has_work() -> list[str]:
    it = world()
    it.meanwhile["replace_node"] = [changes(it, SPARE, job_id="other-job")]
    it.reports(xid(74))
    return [] if SPARE not in [name for _, name in it.commands] else ["a node that has work stands in for another"]


def a_human_releases_under_a_recovery() -> list[str]:
    it = world()
    it.meanwhile["run_diagnostics"] = [lambda: it.does("release_node", lambda: release_node(BROKEN, "", it.ports))]
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def the_broken_one_is_anothers_when_it_is_given_up() -> list[str]:
    """Its successor is proven, and meanwhile somebody else has the machine that was to make room."""
    it = world(pool(), spare=False, machine=TEMPLATE)
    it.meanwhile["return_to_service"] = [changes(it, open_incident="inc-of-another")]
    it.reports(xid(74, **it.fault))
    given_up = [name for name, _ in it.plain.machines.given_back]  # type: ignore[attr-defined]
    return [] if given_up == [] else ["the machine of another incident was terminated"]


def one_that_broke_is_closed_under_the_next() -> list[str]:
    """A human closes the incident whose recovery broke, in the moment in which the next one isolates the node."""
    it = world(ACTS, breaks("incidents.advance", of="decide_next_step", error=RuntimeError))
    it.reports(xid(79))
    broken = incident_id_of(xid(79))
    it.fuse.meanwhile["isolate_node", "nodes.save"] = lambda: close_incident(broken, "seen to", it.plain)
    it._ingest(xid(79, event_id="again"))
    it.walk_what_was_started()
    return [why for why in it.wrong if "slot" in why]


def the_only_spare_is_opted_out() -> list[str]:
    it = world(ACTS.model_copy(update={"opted_out": {SPARE: "ours"}}))
    it.reports(xid(74))
    return [] if not any(name == SPARE for _, name in it.commands) else ["a node that is opted out stands in"]


def the_replacement_node_is_taken_before_it_is_tested() -> list[str]:
    it = world(MOVES)
    it.fuse.meanwhile["run_diagnostics", "nodes.save"] = changes(it, SPARE, claimed_by="other")
    it.reports(xid(79))
    is_tested = ("run-diagnostics", SPARE) in it.commands
    claims = (ends_as(it, *RECOVERED), (not is_tested, "accelerators of another job were tested"))
    return [text for holds, text in claims if not holds]


def a_replacement_node_that_failed_is_no_spare() -> list[str]:
    """Its reboot does not help the broken node either: what has failed lately is not swapped in."""
    it = world(MOVES)
    it.diagnoses[SPARE] = it.diagnoses[BROKEN] = Verdict.FAILED
    it.reports(xid(79))
    claims = (ends_as(it, *HANDED_OVER), (SPARE not in it.job_nodes, "the job runs on a node that has failed"))
    tested = it.commands.count(("run-diagnostics", SPARE))
    return wrong_with(it, *claims, (tested == 1, f"it was tested {tested} times"))


def a_node_that_trains_is_retired() -> list[str]:
    it = world()
    with suppress(ValueError):
        retire_node(PEER, "beyond repair", it.plain, MemoryMarks())
    return [] if it.node(PEER).state is NodeState.HEALTHY else ["a node was retired under a rank"]


def a_node_whose_incident_waits_is_retired() -> list[str]:
    """It has no job, and its recovery stands in line for a slot."""
    it = STORIES[5].make(Fuse(writes_only=True))
    a_slot_is_free = it.on_wait

    def is_retired() -> None:
        it.does("retire_node", lambda: retire_node(SPARE, "beyond repair", it.ports, MemoryMarks()))
        a_slot_is_free()

    it.on_wait = is_retired
    it.reports(xid(79, node_id=SPARE, instance_id=SPARE))
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_task_of_others_is_not_to_be_stopped() -> list[str]:
    it = _with_an_unmanaged_task({})
    it.reports(xid(79))
    running = scheduler_in(it.plain).unmanaged
    return [] if "task/1" in running else ["a task was stopped whose owner has not said that it may be"]


def a_task_of_others_ends_by_itself() -> list[str]:
    """In the moment in which it is to be stopped: then its owner has what he wanted, and it is not started again."""
    it = _with_an_unmanaged_task({names.MANAGED_TAG: names.MANAGED_TAG_VALUE})
    scheduler = scheduler_in(it.plain)
    it.fuse.meanwhile["isolate_node", "scheduler.stop_unmanaged_task"] = lambda: scheduler.unmanaged.pop("task/1")
    it.reports(xid(79))
    return [] if scheduler.unmanaged_started == [] else ["a task that had ended by itself was started again"]


def _with_an_unmanaged_task(tags: dict[str, str]) -> BreakingWorld:
    it = world(pool(stops_other_tasks=True), spare=False)
    scheduler_in(it.plain).unmanaged["task/1"] = (BROKEN, UnmanagedTask("task/1", "eval:1", tags=tags))
    return it


def the_only_spare_is_in_quarantine() -> list[str]:
    return _is_taken(state=NodeState.QUARANTINED)


def a_human_wants_hands_off_the_only_spare() -> list[str]:
    return _is_taken(paused_until=NOW + timedelta(hours=1))


def the_only_spare_has_just_been_healed() -> list[str]:
    return _is_taken(state=NodeState.PROBATION, probation_until=NOW + timedelta(hours=1))


def _is_taken(**is_so: Any) -> list[str]:
    it = Moment()
    it.is_written(PEER, job_id="llama")
    it.is_written(SPARE, is_spare=True, **is_so)
    taken = it.does(lambda: claim_spare(node(BROKEN), "inc", it.ports, ACTS))
    return [] if taken is None else [f"{SPARE} is to stand in"]
