"""Leases, slots of the budget, and attempts: what there is only so much of.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace

from nodeheal.contract.names import pool_line
from nodeheal.contract.results import StepResult
from nodeheal.contract.vocabulary import Action, Outcome, Step, VerbName
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.jobs.job import job_of
from nodeheal.domain.operation import OperationState
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.services.jobs.submit_job import submit_job
from nodeheal.services.recovery.queue import wake_for_free_slots
from tests.unit.builders import under_way, xid
from tests.workflows.breaking_world import ACTS, BreakingWorld
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.fuse import Fuse
from tests.workflows.job_cluster import JobCluster
from tests.workflows.scenarios.setup import RECOVERED, breaks, ends_as, peers_fault, world, wrong_with
from tests.workflows.stories import STORIES


def two_jobs_want_one_directory() -> list[str]:
    it = JobCluster(checkpoints={"directory": "/fsx/llama"})
    other = it.spec.model_copy(update={"name": "other"})
    submit_job(job_of(other, "training", "trainer:1", it.clock()), it.ports)
    it.ports.job_notes.hold("/fsx/llama", "other")
    it.while_waiting = []
    seen = it.submit()
    launched = ["two jobs write their checkpoints to one directory"] if "Launch job" in seen.path else []
    leases = it.ports.job_notes.leases  # type: ignore[attr-defined]
    return launched + ([] if leases == {"/fsx/llama": "other"} else ["another job's lease was given back"])


def the_budget_is_full() -> list[str]:
    it = STORIES[5].make(Fuse(writes_only=True))
    it.reports(xid(79))
    return it.faults()


def an_isolation_is_repeated() -> list[str]:
    it = world(ACTS, breaks("nodes.save", of="isolate_node", error=NotAccepted, is_after=False))
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def somebody_stands_in_line() -> list[str]:
    """A slot is free, and somebody has waited for it: whoever comes now does not pass him."""
    it = world()
    it._ingest(peers_fault())
    waiting = incident_id_of(peers_fault())
    _a_result(it, waiting)
    line = (pool_line("BUDGET", "demo"), "00#first")
    under_way(it.plain, VerbName.WAIT, incident_id=waiting, line=line)
    it._begun.append(waiting)
    passed: list[bool] = []
    it.on_wait = lambda: passed.append(False)
    it.reports(xid(79))
    return [] if passed else ["it has passed one that stood in line"]


def _a_result(it: BreakingWorld, incident_id: str) -> str:
    blank = StepResult(step=Step.WAIT, node_id=PEER, outcome=Outcome.DONE, reason="its turn", finished_at=it.clock())
    return blank.model_dump_json()


def the_sweep_passes_while_a_node_is_quarantined() -> list[str]:
    it = STORIES[2].make(Fuse(writes_only=True))
    it.reports(xid(79))
    wake_for_free_slots("demo", it.plain, it.policy)
    return [] if BROKEN in it.plain.pools.holders("demo") else ["a node that is out of service holds no slot"]


def a_recovery_broke_with_a_slot() -> list[str]:
    """Between the claim and the mark, and a human has its incident."""
    it = world(ACTS, breaks("nodes.save", of="isolate_node", error=RuntimeError, is_after=False))
    it.reports(xid(79))
    wake_for_free_slots("demo", it.plain, it.policy)
    return [f"{name} serves, and holds a slot" for name in it.plain.pools.holders("demo")]


def the_slot_is_gone() -> list[str]:
    it = world()
    it.meanwhile["reboot_node"] = [lambda: it.plain.pools.release("demo", BROKEN)]
    it.reports(xid(79))
    return list(it.wrong)


def the_last_attempt_goes_to_another() -> list[str]:
    it = world()
    it.meanwhile["reboot_node"] = [lambda: spends_it(it)]
    it.reports(xid(79))
    return list(it.wrong)


def spends_it(it: BreakingWorld) -> None:
    it.plain.attempts.reserve(f"node#{BROKEN}", "inc-of-another/1", it.policy.limits[Action.REBOOT])


def another_stands_in_line_behind_who_is_called() -> list[str]:
    """Who has had his turn takes the slot that he was called for."""
    it = STORIES[5].make(Fuse(writes_only=True))
    frees = it.on_wait

    def another_comes() -> None:
        it._ingest(peers_fault())
        waiting = incident_id_of(peers_fault())
        line = (pool_line("BUDGET", "demo"), "99#last")
        under_way(it.plain, VerbName.WAIT, incident_id=waiting, node_id=PEER, token="t", line=line)
        it._begun.append(waiting)
        it.on_wait = lambda: late.append("it has lost the slot that it was called for")
        frees()

    late: list[str] = []
    it.on_wait = another_comes
    it.reports(xid(79))
    return late


def the_sweep_passes_between_claim_and_mark() -> list[str]:
    it = world()
    it._ingest(peers_fault())
    waiting = incident_id_of(peers_fault())
    line = (pool_line("BUDGET", "demo"), "00#first")
    it._begun.append(waiting)

    def passes() -> None:
        stands = under_way(it.plain, VerbName.WAIT, incident_id=waiting, node_id=PEER, token="t", line=line)
        wake_for_free_slots("demo", it.plain, it.policy)
        it.plain.operations.save(replace(stands, state=OperationState.DELIVERED))

    it.fuse.meanwhile["isolate_node", "nodes.save"] = passes
    it.reports(xid(79))
    return list(it.wrong)
