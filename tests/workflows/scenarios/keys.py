"""What is found by a name of its own: the question of this turn, this incident's wait, the moment of the proof.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from datetime import timedelta

from nodeheal.contract.steps import Reservation, StepRequest
from nodeheal.contract.vocabulary import Action, NodeState, Outcome
from nodeheal.domain.jobs.job import CheckAnswer
from nodeheal.operations.engine import conclude
from nodeheal.operations.steps import stop_gang
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.wakeup import on_task_change
from nodeheal.services.jobs.job_nodes import claim
from nodeheal.services.recovery.reserve_attempt import refund_attempt, why_no_attempt
from tests.unit.builders import NOW, commands_in, node, scheduler_in, started_job, xid
from tests.unit.step_functions import reboot_node, replace_node
from tests.unit.test_replacement import LIMIT, Pool
from tests.workflows.breaking_world import ACTS, BreakingWorld
from tests.workflows.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import RECOVERED, changes, world
from tests.workflows.scenarios.turns import opened
from tests.workflows.stories import TEMPLATE, pool


def two_incidents_wait_for_one_gang() -> list[str]:
    it, mine = opened()
    started_job(JOB, [node(BROKEN), node(PEER)], it.plain)
    run = it.plain.jobs.get_run("llama", 1)
    assert run is not None
    stops = mine.decision.model_copy(update={"job_id": "llama", "node_id": BROKEN, "fault_at": run.started_at})
    for incident_id in (mine.incident_id, "inc-of-another"):
        stop_gang(_asks(mine, incident_id, stops), it.plain, ACTS)
    for task in run.tasks:
        on_task_change(TaskChange("llama", 1, task.task_id, task.placement, "STOPPED", 143, ""), it.plain)
    told = it.plain.workflows.resumed  # type: ignore[attr-defined]
    return [f"{i} waits on for a gang that has stopped" for i in (mine.incident_id, "inc-of-another") if i not in told]


def _asks(mine: StepRequest, incident_id: str, decision: object) -> StepRequest:
    return mine.model_copy(update={"incident_id": incident_id, "decision": decision, "task_token": incident_id})


def it_fails_between_its_proof_and_its_return() -> list[str]:
    """And is heard when it is back: what came after the proof, the proof says nothing about."""
    return _fails_after_its_proof(world(), BROKEN, 79)


def a_new_machine_fails_between_its_proof_and_its_work() -> list[str]:
    return _fails_after_its_proof(world(pool(), spare=False, machine=TEMPLATE), "", 74)


def _fails_after_its_proof(it: BreakingWorld, name: str, code: int) -> list[str]:
    """`name`: of the node that is proven; empty: of the machine that is launched."""
    it.meanwhile["return_to_service"] = [lambda: it.clock.advance(60)]
    it.reports(xid(code, **it.fault))
    assert it.ends == RECOVERED
    [name] = [name] if name else it.plain.machines.tokens.values()  # type: ignore[attr-defined]
    of = {"node_id": name, "instance_id": name, "boot_id": it.node(name).boot_id, **it.fault}
    it._ingest(xid(74, event_id="late", observed_at=it.clock() - timedelta(seconds=30), **of))
    it.walk_what_was_started()
    return [] if len(it.ends) == 2 else [f"{name} has failed after its proof, and nobody looks"]


def nothing_was_done_under_two_limits() -> list[str]:
    it, mine = opened()
    limit = ACTS.limits[Action.REBOOT]
    both = (Reservation(scope=f"node#{BROKEN}", limit=limit), Reservation(scope="rack#r1", limit=limit))
    asks = mine.model_copy(update={"decision": mine.decision.model_copy(update={"reserve": both})})
    it.does(lambda: why_no_attempt(asks, it.ports))
    it.does(lambda: refund_attempt(asks, it.ports))
    scopes = (each.scope for each in both)
    return [f"an attempt of {s} is spent for nothing" for s in scopes if it.plain.attempts.spent(s, limit)[limit.group]]


def people_drain_it_while_it_is_isolated() -> list[str]:
    """Between the look and the mark, and something else is written of the node: it is looked at again."""
    it = world()

    def drain() -> None:
        changes(it, last_seen=it.clock())()
        scheduler_in(it.plain).draining.add(BROKEN)

    it.fuse.meanwhile["isolate_node", "nodes.save"] = drain
    it.reports(xid(79))
    draining = scheduler_in(it.plain).draining
    return [] if BROKEN in draining else ["people had drained it, and it was switched on"]


def a_second_reboot_is_decided() -> list[str]:
    """In a later turn, and on another boot: it is sent, and the first one is not taken for it."""
    it, mine = opened()
    it.is_written(state=NodeState.ISOLATED)
    it.plain.pools.claim("demo", BROKEN, 1)
    twice = ACTS.limits[Action.REBOOT].model_copy(update={"limit": 2})
    reserve = (Reservation(scope=f"node#{BROKEN}", limit=twice),)
    for turn, boot in ((1, "boot-1"), (3, "boot-2")):
        it.is_written(boot_id=boot)
        decision = mine.decision.model_copy(update={"reserve": reserve})
        reboot_node(mine.model_copy(update={"turn": turn, "decision": decision, "task_token": str(turn)}), it.plain)
    boots = [sent.boot_id for sent in commands_in(it.plain).sent_of("reboot-node")]
    return [] if boots == ["boot-1", "boot-2"] else [f"reboots were sent for {boots}, and two were decided"]


def a_second_machine_is_launched() -> list[str]:
    """The first one never came up; EC2 launches once for a token."""
    it = Pool(group="", template="lt-1")
    it.replaces(turn=3)
    first, look = list(it.machines.tokens.values()), it.request(turn=3)
    conclude(look, it.ports)
    reserved = it.request(turn=5)
    higher = [each.model_copy(update={"limit": LIMIT.model_copy(update={"limit": 2})}) for each in _reserved(reserved)]
    decision = reserved.decision.model_copy(update={"reserve": tuple(higher)})
    replace_node(reserved.model_copy(update={"decision": decision}), it.ports, it.policy)
    both = list(it.machines.tokens.values())
    return [] if len(set(both) - set(first)) == 1 else [f"{both} were launched, of which {first} has not come up"]


def _reserved(request: StepRequest) -> tuple[Reservation, ...]:
    return request.decision.reserve


def it_has_failed_a_check_of_an_earlier_submission() -> list[str]:
    it = Moment()
    for name in (BROKEN, PEER, SPARE):
        it.plain.job_notes.note_answer("llama", CheckAnswer("llama-0-0", name, "boot-1", Outcome.FAILED, "said", NOW))
        it.is_written(name, passed_at=None)
    found = it.does(lambda: claim(JOB, it.ports, ACTS))
    return [] if found.nodes else [f"nothing is chosen: {found.why}"]
