"""The core stories, to be told with breaks in them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, IncidentState, NodeState, Verdict
from nodeheal.domain.fleet.enrolment import Enrolment
from nodeheal.domain.fleet.machine import Machine
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Evidence
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.operators.answer_approval import answer_approval
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool, reset_breaker, trip_breaker
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.operators.withdraw_request import withdraw_request
from tests.support.acts import requested
from tests.support.builders import node, scheduler_in, xid
from tests.support.enrolment import enroll
from tests.support.fake_cluster import BROKEN, PEER, SPARE
from tests.support.fuse import Fuse
from tests.support.policies import with_policy
from tests.workflows.breaking_world import ACTS, QUIET, BreakingWorld, Story
from tests.workflows.restart_stories import RESTARTS

ROOM = {"max_nodes": 1, "max_percent": 100}
TEMPLATE = Machine(BROKEN, instance_type="p5.48xlarge", launch_template="lt-1", subnet="subnet-1")
OTHER = "mi-0dddddddddddddddd"
NEW = "i-00000000000000001"


def pool(**said: object) -> RecoveryPolicy:
    """A policy whose pools act, and say this."""
    return with_policy(default_pool={"mode": "act", "budget": ROOM, **said}).model_copy(update=QUIET)


def _world(policy: RecoveryPolicy = ACTS, **said: object) -> Callable[[Fuse], BreakingWorld]:
    return lambda fuse: BreakingWorld(fuse, policy, **said)  # type: ignore[arg-type]


def _fault(code: int) -> Callable[[BreakingWorld], object]:
    return lambda it: it.reports(xid(code, **it.fault))


def _fails_diagnostics(fuse: Fuse) -> BreakingWorld:
    it = BreakingWorld(fuse)
    it.diagnoses[BROKEN] = Verdict.FAILED
    return it


def _asks(fuse: Fuse) -> BreakingWorld:
    it = BreakingWorld(fuse, pool(mode="approve"))

    def answer(request: StepRequest) -> None:
        question = Question(request.incident_id, request.turn)
        it.does("answer_approval", lambda: answer_approval(question, Answer.approve, "ada", "", it.ports))

    it.on_question = answer
    return it


def _is_full(fuse: Fuse) -> BreakingWorld:
    it = BreakingWorld(fuse)
    it.plain.nodes.save(node(OTHER))
    of_other = xid(74, node_id=OTHER, instance_id=OTHER, event_id="other")
    ingest(of_other, it.plain, it.policy)
    it._begun += [incident_id_of(of_other)]
    handed_over = it.plain.incidents.history(incident_id_of(of_other)).incident
    it.plain.incidents.finish(replace(handed_over, state=IncidentState.ESCALATED))
    it.paged.add(handed_over.incident_id)
    it.plain.nodes.save(replace(it.node(OTHER), state=NodeState.QUARANTINED, drained_by_us=True))
    scheduler_in(it.plain).draining.add(OTHER)
    it.plain.pools.claim("demo", OTHER, 1)
    it.on_wait = lambda: it.does("release_node", lambda: release_node(OTHER, "a new riser card", it.ports))
    return it


def _two_faults(fuse: Fuse) -> BreakingWorld:
    """While the first node waits for its job to end, another one of the job falls off the bus."""
    it = BreakingWorld(fuse, pool(budget={"max_nodes": 2, "max_percent": 100}))
    left = [lambda: it.reports(xid(79, node_id=PEER, instance_id=PEER, event_id="peer"))]
    it.on_wait = lambda: left.pop()() if left else it._gang_finishes()
    return it


def _grows_worse(fuse: Fuse) -> BreakingWorld:
    it = BreakingWorld(fuse)
    it.on_wait = lambda: it._ingest(xid(79))
    return it


def _is_paused(it: BreakingWorld) -> None:
    it.does("pause_pool", lambda: pause_pool("demo", 10**6, "new driver", it.ports))
    it.reports(xid(79))


def stops_and_starts(fuse: Fuse) -> BreakingWorld:
    """The node passes its diagnostics on another host only."""
    it = BreakingWorld(fuse, pool(stop_start=True), spare=False, machine=TEMPLATE)
    it.diagnoses[BROKEN] = Verdict.FAILED
    answers = it._diagnosed

    def diagnosed(request: StepRequest) -> None:
        it.diagnoses[BROKEN] = Verdict.OK if it.node().boot_id == "boot-3" else Verdict.FAILED
        answers(request)

    it._diagnosed = diagnosed  # type: ignore[method-assign]
    return it


def _is_given_up(fuse: Fuse) -> BreakingWorld:
    it = _fails_diagnostics(fuse)
    it.is_beyond_repair = True
    return it


# A job need not wait for its node, where a free one can prove that it is fit.
MOVES = ACTS.model_copy(update={"move_job_seconds": 0})


def _replacement_node_fails(fuse: Fuse) -> BreakingWorld:
    it = BreakingWorld(fuse, MOVES)
    it.diagnoses[SPARE] = Verdict.FAILED
    return it


def group_makes_another(fuse: Fuse) -> BreakingWorld:
    """The broken one's machine is of an Auto Scaling group, which launches another when it is asked to."""
    it = BreakingWorld(fuse, pool(), spare=False, machine=replace(TEMPLATE, group="asg"))
    it.plain.machines.groups.add("asg")  # type: ignore[attr-defined]
    it.on_replace = lambda _: group_launches(it)
    return it


def group_launches(it: BreakingWorld) -> None:
    """What the group does a minute after it was asked to, once."""
    machines: Any = it.plain.machines
    if machines.given_back and NEW not in machines.machines:
        it.clock.advance(60)
        machines.machines[NEW] = replace(TEMPLATE, machine_id=NEW, group="asg", launched_at=it.clock())
        it._comes_up(NEW, "boot-1")


def _withdraws(fuse: Fuse) -> BreakingWorld:
    """He takes back what he has asked for while it stands in line, and the node fails before the workflow has woken."""
    it = _is_full(fuse)
    a_slot_is_free = it.on_wait

    def withdraws() -> None:
        it.on_wait = a_slot_is_free
        it.does("withdraw_request", lambda: withdraw_request(BROKEN, "the wrong node", it.ports))
        it._ingest(xid(79))

    it.on_wait = withdraws
    return it


def _pauses_and_goes_on(fuse: Fuse) -> BreakingWorld:
    it = BreakingWorld(fuse)
    it.does("pause_node", lambda: pause_node(BROKEN, 10**6, "in the rack", it.ports))
    return it


def _fails_twice(it: BreakingWorld) -> None:
    it.reports(xid(79))
    it.does("pause_node", lambda: pause_node(BROKEN, 0, "done", it.ports))
    it.reports(xid(79, event_id="another"))


def _resets_the_breaker(fuse: Fuse) -> BreakingWorld:
    it = BreakingWorld(fuse)
    trip_breaker("demo", "6 nodes fail", it.plain)
    it.on_wait = lambda: it.does("reset_breaker", lambda: reset_breaker("demo", "looked at", it.ports))
    return it


def _enrolls(it: BreakingWorld) -> None:
    """A spare is announced before its agent has ever reported, and then it is heard, and needed."""
    said = Enrolment("demo", why="ada: a new one", cluster="training", is_spare=True)
    it.does("enroll_node", lambda: enroll(OTHER, said, it.ports, MemoryMarks()))
    it._comes_up(OTHER, "boot-1")
    it.reports(xid(79))


def _has_no_spare(fuse: Fuse) -> BreakingWorld:
    it = BreakingWorld(fuse, spare=False)
    it.diagnoses[BROKEN] = Verdict.FAILED
    return it


def _has_a_task_of_others(fuse: Fuse) -> BreakingWorld:
    """Its owner lets us stop it, and so does the pool."""
    it = BreakingWorld(fuse, pool(stops_other_tasks=True))
    unmanaged_task = UnmanagedTask("task/1", "eval:1", may_be_stopped=True)
    scheduler_in(it.plain).unmanaged[unmanaged_task.task_id] = (BROKEN, unmanaged_task)
    return it


def _saves_a_checkpoint(fuse: Fuse) -> BreakingWorld:
    return BreakingWorld(fuse, ACTS.model_copy(update={"checkpoint_seconds": 60}))


STORIES = (
    Story("fixed by a reboot", _world(), _fault(79)),
    Story("replaced by a new machine", _world(pool(), spare=False, machine=TEMPLATE), _fault(74)),
    Story("a spare, since the reboot did not help", _fails_diagnostics, _fault(79), ("Escalated",)),
    Story("only the job restarts", _world(), _fault(31)),
    Story("a human is asked", _asks, _fault(79)),
    Story("the budget is full", _is_full, _fault(79)),
    Story("two nodes of one job", _two_faults, _fault(63), ("Recovered", "Recovered")),
    Story("it grows worse while it waits", _grows_worse, _fault(63)),
    Story("it waits for the job's end", _world(), _fault(63)),
    Story("only observed", _world(RecoveryPolicy().model_copy(update=QUIET)), _fault(79), ("Observed only",)),
    Story("paused", BreakingWorld, _is_paused, ("Observed only",)),
    Story("stopped and started", stops_and_starts, _fault(79)),
    Story("beyond repair", _is_given_up, _fault(79), ("Escalated",), ("retire_node",)),
    Story(
        "its evidence is saved first",
        _world(ACTS.model_copy(update={"evidence": Evidence()})),
        _fault(79),
        only=("freeze_evidence", "wakeup.on_answer"),
    ),
    Story("the job goes on where a free node has passed", _world(MOVES), _fault(79)),
    Story(
        "the free node does not pass",
        _replacement_node_fails,
        _fault(79),
        only=("run_diagnostics", "wakeup.on_answer", "decide_next_step", "end_incident"),
    ),
    Story(
        "replaced by its group",
        group_makes_another,
        _fault(74),
        only=("replace_node", "wakeup.on_node_booted", "return_to_service"),
    ),
    Story(
        "what was asked for is withdrawn",
        _withdraws,
        lambda it: it.reports(requested(BROKEN, Action.REBOOT, "it smells", it.plain)),
        ("Observed only", "Recovered"),
        ("withdraw_request",),
    ),
    Story(
        "a node is paused for a while",
        _pauses_and_goes_on,
        _fails_twice,
        ("Observed only", "Recovered"),
        ("pause_node",),
    ),
    Story("the breaker is reset", _resets_the_breaker, _fault(79), only=("reset_breaker",)),
    Story("a task of others makes way", _has_a_task_of_others, _fault(79), only=("isolate_node", "end_incident")),
    Story("a checkpoint is asked for", _saves_a_checkpoint, _fault(79), only=("isolate_node",)),
    Story(
        "terminated, then replaced",
        _world(pool(replacement={"terminate_first": True}), spare=False, machine=TEMPLATE),
        _fault(74),
        only=("replace_node", "wakeup.machine_gone", "wakeup.on_node_booted"),
    ),
    Story("a spare is announced", _has_no_spare, _enrolls, ("Escalated",), ("enroll_node",)),
    *RESTARTS,
    Story(
        "its GPU is reset",
        _world(pool(reset_gpu=True)),
        lambda it: it.reports(xid(154, subcode="GPU_RESET")),
        only=("reboot_node", "wakeup.on_answer"),
    ),
)


A_HUMANS = {"Escalated", "Recovery failed"}
