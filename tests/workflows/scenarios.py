"""What may come together by bad luck or ill will, one moment each: what is wrong after it, which is nothing."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.contract.health_event import DiagnosticsFinished, NodeBooted
from nodeheal.contract.names import pool_line
from nodeheal.contract.steps import StepRequest, StepResult
from nodeheal.contract.vocabulary import Action, JobState, NodeState, Outcome, Step, Verdict
from nodeheal.domain.approval import Answer, LinkRefused, Question
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.evidence import Evidence
from nodeheal.domain.incident import incident_id_of
from nodeheal.domain.job import Job, job_of
from nodeheal.domain.machine import Owner
from nodeheal.domain.policy import RecoveryPolicy
from nodeheal.ports import RankSeen, Wait
from nodeheal.services import wakeup
from nodeheal.services.answer_approval import answer_approval
from nodeheal.services.ask_after_ranks import ask_after_ranks
from nodeheal.services.brakes import pause_node, pause_pool, reset_breaker, trip_breaker
from nodeheal.services.ingest import ingest
from nodeheal.services.job_nodes import claim
from nodeheal.services.notify import notify
from nodeheal.services.queue import wake_for_free_slots
from nodeheal.services.release_node import release_node
from nodeheal.services.stand_in import claim_spare
from nodeheal.services.start_gang import record_run, start_ranks
from nodeheal.services.steps import read_result, resume, save_node
from nodeheal.services.stop_gang import current_run
from nodeheal.services.submit_job import submit_job
from nodeheal.services.translate.ecs_task import TaskChange
from tests.unit.builders import NOW, FrozenClock, memory_ports, node, started_job, xid
from tests.workflows.breaking_world import ACTS, QUIET, BreakingWorld
from tests.workflows.fake_cluster import BROKEN, LINKS, PEER, SPARE
from tests.workflows.fuse import Blow, Crash, Fuse, LostAnswer, fused
from tests.workflows.job_cluster import NODES, JobCluster, finishes
from tests.workflows.stories import MOVES, STORIES, TEMPLATE, pool

RECOVERED = ("Recovered",)
HANDED_OVER = ("Handed to a human",)


def world(policy: RecoveryPolicy = ACTS, *blows: Blow, **said: Any) -> BreakingWorld:
    """A world of its own; functions break where they are told to."""
    return BreakingWorld(Fuse(blows, writes_only=True), policy, **said)


def breaks(call: str, *, of: str, error: type[Exception], is_after: bool = True, story: int = 0) -> Blow:
    """The break around this call of this function, wherever in the story it is made."""
    it = STORIES[story].make(Fuse(writes_only=True))
    STORIES[story].tell(it)
    at = next(i for i, made in enumerate(it.fuse.made) if (made.function, made.call) == (of, call))
    return Blow(at, is_after, error)


def wrong_with(it: BreakingWorld, *claims: tuple[bool, str]) -> list[str]:
    """What the invariants say, and which of these claims does not hold."""
    return [*it.faults(), *(text for holds, text in claims if not holds)]


def ends_as(it: BreakingWorld, *ends: str) -> tuple[bool, str]:
    return it.ends == ends, f"it ended as {it.ends}, and not as {ends}"


def _peers_fault() -> Any:
    return xid(79, node_id=PEER, instance_id=PEER, event_id="peer")


# Conditional writes ---------------------------------------------------------------------------------------------------


def two_want_the_last_spare() -> list[str]:
    it = world()
    won: list[str] = []

    def another_claims_it() -> None:
        claimed = claim_spare(it.node(PEER), "inc-of-another", it.plain, it.policy)
        won.append(claimed.node_id if claimed else "")

    it.fuse.meanwhile["replace_node", "nodes.save"] = another_claims_it
    it.reports(xid(74))
    return [] if it.node(SPARE).open_incident == "inc-of-another" else [f"{won} was claimed twice"]


def the_stand_in_is_taken_before_it_is_tested() -> list[str]:
    it = world(MOVES)
    it.fuse.meanwhile["run_diagnostics", "nodes.save"] = lambda: save_node(it.plain, it.node(SPARE), claimed_by="other")
    it.reports(xid(79))
    is_tested = ("diagnose", SPARE) in it.commands
    claims = (ends_as(it, *RECOVERED), (not is_tested, "accelerators of another job were tested"))
    return [text for holds, text in claims if not holds]


def a_stand_in_that_failed_is_no_spare() -> list[str]:
    """Its reboot does not help the broken node either: what has failed lately is not swapped in."""
    it = world(MOVES)
    it.diagnoses[SPARE] = it.diagnoses[BROKEN] = Verdict.FAILED
    it.reports(xid(79))
    claims = (ends_as(it, *HANDED_OVER), (SPARE not in it.job_nodes, "the job runs on a node that has failed"))
    tested = it.commands.count(("diagnose", SPARE))
    return wrong_with(it, *claims, (tested == 1, f"it was tested {tested} times"))


def a_pause_comes_with_the_isolation() -> list[str]:
    """It comes too late for the isolation, and in time for all that follows."""
    it = world()
    it.fuse.meanwhile["isolate_node", "nodes.save"] = lambda: pause_node(BROKEN, 10**6, "hands off", it.plain)
    it.reports(xid(79))
    claims = (ends_as(it, *HANDED_OVER), (it.commands == [], "it was touched, although paused"))
    return [text for holds, text in claims if not holds]


def two_faults_in_one_moment() -> list[str]:
    it = world()
    it.fuse.meanwhile["ingest", "incidents.open"] = lambda: ingest(xid(48), it.plain, it.policy)
    it._ingest(xid(79))
    it.walk_what_was_started()
    return wrong_with(it, ends_as(it, *RECOVERED))


def two_humans_answer() -> list[str]:
    it = world(pool(mode="approve"))

    def both(request: StepRequest) -> None:
        question = Question(request.incident_id, request.turn)
        it.fuse.meanwhile["answer_approval", "incidents.append"] = lambda: _answers(it, question, Answer.refuse)
        it.does("answer_approval", lambda: _answers(it, question, Answer.approve, fused=True))

    it.on_question = both
    it.reports(xid(79))
    said = [e.data for e in it.plain.incidents.history(it.incident_id).timeline if e.kind == "answer" and e.data]
    return wrong_with(it, (said == ["refuse"], f"{said} stand on record"), ends_as(it, *HANDED_OVER))


def _answers(it: BreakingWorld, question: Question, answer: Answer, *, fused: bool = False) -> None:
    answer_approval(question, answer, "ada" if fused else "bob", "", it.ports if fused else it.plain)


def a_turn_is_decided_twice() -> list[str]:
    it = world()
    first: list[str] = []

    def somebody_else_decides() -> None:
        ingest(xid(31, event_id="beside"), it.plain, it.policy)
        it.fuse.meanwhile.clear()
        first.append(it._decide({"Payload": {"incident_id": it.incident_id, "turn": 0}})["step"])

    it.fuse.meanwhile["decide_next_step", "incidents.advance"] = somebody_else_decides
    it._ingest(xid(31))
    it.incident_id = incident_id_of(xid(31))
    second = it._decide({"Payload": {"incident_id": it.incident_id, "turn": 0}})
    return (
        []
        if getattr(second, "name", "") == "NotAccepted"
        else [f"one turn was decided twice: {first}, {second['step']}"]
    )


def two_ranks_stop_in_one_moment() -> list[str]:
    it = world()
    stops = it._gang_stops

    def together(request: StepRequest) -> None:
        other = next(i for i, t in it.plain.scheduler.tasks.items() if t.node_id == PEER)  # type: ignore[attr-defined]
        it.fuse.meanwhile["wakeup.on_task_change", "jobs.save_run"] = lambda: _ends(it, other)
        stops(request)

    it._gang_stops = together  # type: ignore[method-assign]
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def _ends(it: BreakingWorld, task_id: str, status: str = "STOPPED") -> None:
    task = it.plain.scheduler.tasks[task_id]  # type: ignore[attr-defined]
    it._gone.add(task_id)
    number = int(task_id.split("-")[-2])
    wakeup.on_task_change(TaskChange("llama", number, task_id, task.placement, status, 143, ""), it.plain)


def a_job_is_launched_while_it_ends() -> list[str]:
    """A person stops the job in the very moment when it is launched again."""
    it = world()

    def is_stopped() -> None:
        job = it.plain.jobs.get("llama")
        assert job is not None
        it.plain.jobs.save(replace(job, state=JobState.CANCELLED))

    it.fuse.meanwhile["launch_gang", "jobs.save"] = is_stopped
    it.reports(xid(31))
    job = it.plain.jobs.get("llama")
    return [] if job is not None and job.state is JobState.CANCELLED else ["a job runs that a person has stopped"]


def a_pause_comes_with_the_breaker() -> list[str]:
    it = world()
    it.before_walk = [xid(79, node_id=n, instance_id=n, event_id=f"of-{n}") for n in ("mi-crowd-1", "mi-crowd-2")]
    it.fuse.meanwhile["decide_next_step", "pools.save"] = lambda: pause_pool("demo", 10**6, "hands off", it.plain)
    it.on_wait = lambda: None
    it._ingest(xid(79))
    it.incident_id = incident_id_of(xid(79))
    for more in it.before_walk:
        ingest(more, it.plain, it.policy)
    it._decide({"Payload": {"incident_id": it.incident_id, "turn": 0}})
    is_paused = bool(it.plain.pools.get("demo").why_paused(it.clock()))
    return [] if is_paused else ["the pause of the pool is lost"]


def a_newer_wait_is_stored() -> list[str]:
    it = world()
    blank = Wait("news", "inc", "old", "inc", it.clock(), result_json="")
    it.plain.waits.save(replace(blank, token="new"))
    it.plain.waits.drop(blank)
    return [] if it.plain.waits.get("news", "inc") else ["a wait was dropped by one that came before it"]


def an_email_is_announced_again_much_later() -> list[str]:
    """EventBridge delivers at least once, and the claim on the sending has run out meanwhile."""
    it = world()
    it.reports(xid(79))
    messenger: Any = it.plain.messenger
    _, first = messenger.announced[0]
    notify(first, it.plain)
    messenger.being_sent.clear()
    notify(first, it.plain)
    sent = [one.key for one in messenger.sent].count(first.key)
    return [] if sent == 1 else [f"an email went out {sent} times"]


def two_say_how_it_went() -> list[str]:
    it = world()
    it.on_question = lambda _: None
    diagnosed = it._diagnosed

    def twice(request: StepRequest) -> None:
        wait = it.plain.waits.get("diagnostics", f"{request.incident_id}-{request.turn}")
        diagnosed(request)
        if wait is not None:
            resume(it.plain, wait, read_result(wait).model_copy(update={"outcome": Outcome.FAILED, "reason": "late"}))

    it._diagnosed = twice  # type: ignore[method-assign]
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


# Leases, slots, attempts ----------------------------------------------------------------------------------------------


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
    it._ingest(_peers_fault())
    waiting = incident_id_of(_peers_fault())
    blank = _a_result(it, waiting)
    line = (pool_line("BUDGET", "demo"), "00#first")
    it.plain.waits.save(Wait("news", waiting, "token", waiting, it.clock(), result_json=blank, line=line))
    it._begun.append(waiting)
    passed: list[bool] = []
    it.on_wait = lambda: passed.append(False)
    it.reports(xid(79))
    return [] if passed else ["it has passed one that stood in line"]


def _a_result(it: BreakingWorld, incident_id: str) -> str:
    blank = StepResult(step=Step.WAIT, node_id=PEER, outcome=Outcome.DONE, reason="its turn", finished_at=it.clock())
    return blank.model_dump_json()


def the_sweep_passes_between_claim_and_mark() -> list[str]:
    it = world()
    it._ingest(_peers_fault())
    waiting = incident_id_of(_peers_fault())
    line = (pool_line("BUDGET", "demo"), "00#first")
    stands = Wait("news", waiting, "t", waiting, it.clock(), result_json=_a_result(it, waiting), line=line)
    it._begun.append(waiting)

    def passes() -> None:
        it.plain.waits.save(stands)
        wake_for_free_slots("demo", it.plain, it.policy)
        it.plain.waits.drop(stands)

    it.fuse.meanwhile["isolate_node", "nodes.save"] = passes
    it.reports(xid(79))
    return list(it.wrong)


def the_slot_is_gone() -> list[str]:
    it = world()
    it.meanwhile["reboot_node"] = [lambda: it.plain.pools.release("demo", BROKEN)]
    it.reports(xid(79))
    return list(it.wrong)


def the_last_attempt_goes_to_another() -> list[str]:
    it = world()
    it.meanwhile["reserve_attempt"] = [lambda: _spends_it(it)]
    it.reports(xid(79))
    return list(it.wrong)


def _spends_it(it: BreakingWorld) -> None:
    it.plain.attempts.reserve(f"node#{BROKEN}", "inc-of-another/1", it.policy.limits[Action.REBOOT])


def a_reservation_is_repeated() -> list[str]:
    it = world(ACTS, breaks("incidents.append", of="reserve_attempt", error=LostAnswer))
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def the_attempt_is_gone() -> list[str]:
    it = world()

    def is_taken() -> None:
        it.plain.attempts.counters.clear()  # type: ignore[attr-defined]
        _spends_it(it)

    it.meanwhile["reboot_node"] = [is_taken]
    it.reports(xid(79))
    return list(it.wrong)


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


# Whose node it is -----------------------------------------------------------------------------------------------------


def _changes(it: BreakingWorld, name: str = BROKEN, **to: Any) -> Callable[[], object]:
    return lambda: it.plain.nodes.save(replace(it.node(name), **to))


def the_node_is_given_back() -> list[str]:
    it = world()
    it.meanwhile["reboot_node"] = [_changes(it, state=NodeState.HEALTHY, open_incident=None)]
    it.reports(xid(79))
    return [why for why in it.wrong if why.startswith(("commands.", "reboot_node raised"))]


def the_node_is_anothers() -> list[str]:
    it = world()
    it.meanwhile["isolate_node"] = [_changes(it, open_incident="inc-of-another")]
    it.reports(xid(79))
    return [] if it.node().state is NodeState.HEALTHY else ["a node of another incident was isolated"]


def the_node_is_anothers_when_it_is_diagnosed() -> list[str]:
    it = world()
    it.meanwhile["run_diagnostics"] = [_changes(it, open_incident="inc-of-another", state=NodeState.HEALTHY)]
    it.reports(xid(79))
    return [] if ("diagnose", BROKEN) not in it.commands else ["accelerators in use were diagnosed"]


def the_node_is_anothers_when_its_evidence_is_saved() -> list[str]:
    it = world(ACTS.model_copy(update={"evidence": Evidence()}))
    it.meanwhile["freeze_evidence"] = [_changes(it, open_incident="inc-of-another")]
    it.reports(xid(79))
    return [] if ("collect", BROKEN) not in it.commands else ["a node of another incident was asked for its evidence"]


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
    it.meanwhile["return_to_service"] = [_changes(it, open_incident="inc-of-another")]
    it.reports(xid(79))
    return [] if it.node().state is not NodeState.PROBATION else ["a node of another incident was returned"]


def the_node_is_anothers_at_the_end() -> list[str]:
    it = world()
    it.meanwhile["end_incident"] = [_changes(it, open_incident="inc-of-another")]
    it.reports(xid(79))
    return [] if it.node().open_incident == "inc-of-another" else ["a node of another incident was let go"]


def another_repairs_it() -> list[str]:
    it = world(pool(), spare=False, machine=replace(TEMPLATE, other_owner=Owner.ec2_auto_recovery))
    it.reports(xid(74, **it.fault))
    return wrong_with(it, ends_as(it, *HANDED_OVER))


def another_job_has_come() -> list[str]:
    it = world()

    def comes() -> None:
        started_job(Job("guest", "demo", "training", "trainer:1", "trainer", 1), [it.node()], it.plain)

    it.meanwhile["isolate_node"] = [comes]
    it.reports(xid(79))
    return [] if it.node().state is NodeState.HEALTHY else ["the node was isolated under another job"]


def the_spare_has_work() -> list[str]:
    it = world()
    it.meanwhile["replace_node"] = [_changes(it, SPARE, job_id="guest")]
    it.reports(xid(74))
    return [] if it.commands == [] else ["a node that has work stands in for another"]


def a_human_releases_under_a_recovery() -> list[str]:
    it = world()
    it.meanwhile["run_diagnostics"] = [lambda: it.does("release_node", lambda: release_node(BROKEN, "", it.ports))]
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


# Boots ----------------------------------------------------------------------------------------------------------------


def an_old_boots_fault_comes_late() -> list[str]:
    """It was in the node's spool when somebody rebooted the node."""
    it = world()
    it.clock.advance(60)
    it._comes_up(BROKEN, "boot-2")
    it._ingest(xid(74, event_id="late"))
    it.walk_what_was_started()
    return [*it.wrong, *([] if it.ends == () else ["a node was treated for what its last boot had"])]


def a_fault_from_before_the_proof_comes_late() -> list[str]:
    it = world()
    diagnosed = it._diagnosed

    def later(request: StepRequest) -> None:
        it.clock.advance(60)
        diagnosed(request)

    it._diagnosed = later  # type: ignore[method-assign]
    it.reports(xid(79))
    it._ingest(xid(74, event_id="late", boot_id="boot-2", observed_at=it.clock() - timedelta(seconds=30)))
    it.walk_what_was_started()
    return wrong_with(it, ends_as(it, *RECOVERED))


def an_old_boot_is_told_late() -> list[str]:
    it = world()
    it.reports(xid(79))
    late = NodeBooted(
        **{**it._fact(BROKEN, "boot-1"), "event_id": "late", "observed_at": xid().observed_at},
        booted_at=xid().observed_at,
        address="127.0.0.1",
        accelerators=8,
    )
    it._wakes(wakeup.on_node_booted, late)
    return [] if it.node().boot_id == "boot-2" else ["an old boot was taken for a new one"]


def it_answers_before_it_went_down() -> list[str]:
    """Its agent has just started, and says so on the boot that the reboot is to end."""
    it = world(spare=False)
    it._boots = lambda request: it._comes_up(BROKEN, "boot-1")  # type: ignore[method-assign]
    it.reports(xid(63, verdict=Verdict.DEGRADED))
    return wrong_with(it, (it.ends != RECOVERED, "a reboot that nobody has seen was taken for done"))


def another_boot_was_diagnosed() -> list[str]:
    return _is_answered_by(lambda it: it._fact(BROKEN, "boot-9"))


def another_node_answers() -> list[str]:
    return _is_answered_by(lambda it: it._fact(PEER, it.node().boot_id))


def _is_answered_by(of: Callable[[BreakingWorld], dict[str, Any]]) -> list[str]:
    """Its own diagnosis fails; what says that it passed is not its own."""
    it = world(spare=False)
    it.diagnoses[BROKEN] = Verdict.FAILED
    diagnosed = it._diagnosed

    def before_it(request: StepRequest) -> None:
        request_id = f"{request.incident_id}-{request.turn}"
        passed = DiagnosticsFinished(**of(it), request_id=request_id, verdict=Verdict.OK, failed_tests=())
        it._wakes(wakeup.on_diagnostics_finished, passed)
        diagnosed(request)

    it._diagnosed = before_it  # type: ignore[method-assign]
    it.reports(xid(79))
    return wrong_with(it, (it.ends != RECOVERED, "another's diagnosis was taken for its own"))


def it_reboots_after_its_proof() -> list[str]:
    it = world(spare=False)

    def reboots() -> None:
        it.clock.advance(60)
        it._comes_up(BROKEN, "boot-3")

    it.meanwhile["return_to_service"] = [reboots]
    it.reports(xid(79))
    return wrong_with(it, (it.ends != RECOVERED, "a boot serves that has passed no diagnostics"))


def it_fails_again_before_its_return() -> list[str]:
    it = world(spare=False)
    again = xid(74, event_id="again", boot_id="boot-2", observed_at=NOW + timedelta(hours=1))
    it.meanwhile["return_to_service"] = [lambda: it._ingest(again)]
    it.reports(xid(79))
    return wrong_with(it, (it.told_of("returned") == [], "a node was returned that had failed again"))


def an_order_comes_again() -> list[str]:
    """SSM's agent wakes after hours, and delivers once more what it had."""
    it = world()
    it.reports(xid(79))
    name, boot_id, _ = it._orders[0]
    it.takes_order(name, boot_id, it.clock().timestamp() + 60)
    return it.faults()


def an_order_comes_too_late() -> list[str]:
    it = world()
    it.node_returns = False
    it.reports(xid(79))
    it.node_returns = True
    it.clock.advance(10**6)
    it.takes_order(*it._orders[0])
    return [] if not it.rebooted else ["an order was carried out that nobody waits for any more"]


def it_rebooted_while_it_waited() -> list[str]:
    it = STORIES[5].make(Fuse(writes_only=True))
    free = it.on_wait

    def reboots() -> None:
        it.clock.advance(60)
        it._comes_up(BROKEN, "boot-2")
        free()

    it.on_wait = reboots
    it.reports(xid(79))
    return [*it.wrong, *([] if it.ends == ("Observed only",) else ["what was seen on an older boot is acted on"])]


# Once -----------------------------------------------------------------------------------------------------------------


def two_faults_one_after_the_other() -> list[str]:
    it = world()
    it.before_walk = [xid(48)]
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_recovery_broke_before() -> list[str]:
    # A bug, which says so each time it is asked: a function that is merely gone is asked again.
    it = world(ACTS, breaks("incidents.advance", of="decide_next_step", error=RuntimeError))
    it.reports(xid(79))
    it._ingest(xid(79, event_id="again"))
    it.walk_what_was_started()
    return [] if it.ends == ("Recovery broke", "Recovered") else [f"after a recovery that broke: {it.ends}"]


def a_harmless_fault_repeats() -> list[str]:
    it = world()
    it.reports(xid(999))
    for number in range(3):
        it._ingest(xid(999, event_id=f"again-{number}"))
    it.walk_what_was_started()
    return wrong_with(it, ends_as(it, *HANDED_OVER))


def a_retired_node_reports() -> list[str]:
    it = world(pool(), spare=False, machine=TEMPLATE)
    it.reports(xid(74, **it.fault))
    it._ingest(xid(79, event_id="late", observed_at=it.clock(), **it.fault))
    it.walk_what_was_started()
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_fault_comes_at_the_end() -> list[str]:
    """It comes after the last decision, and is not swallowed by it."""
    it = world()
    it.meanwhile["end_incident"] = [
        lambda: it._ingest(xid(74, event_id="late", boot_id="boot-2", observed_at=it.clock()))
    ]
    it.reports(xid(79))
    it._heard.clear()  # it is told once: what a function has taken is not told again
    it.settle()
    return [] if len(it.ends) == 2 else ["a fault that came at the end was lost"]


def it_grows_worse() -> list[str]:
    it = world()
    it.on_wait = lambda: it._ingest(xid(79))
    it.reports(xid(63))
    return wrong_with(it, ends_as(it, *RECOVERED), _is_soon(it))


def _is_soon(it: BreakingWorld) -> tuple[bool, str]:
    return it.clock() - NOW < timedelta(hours=1), "it waited to its deadline"


def the_start_is_lost_and_told_again() -> list[str]:
    it = world(ACTS, breaks("incidents.open", of="ingest", error=Crash))
    it._ingest(xid(79))
    return [] if it.plain.workflows.started else ["the event was told again, and nothing was started"]  # type: ignore[attr-defined]


def the_start_is_lost_for_good() -> list[str]:
    """Each delivery of the event dies, and it ends in the dead-letter queue."""
    it = world(ACTS, *(Blow(at, is_after=True, error=Crash) for at in range(1, 8)))
    it._ingest(xid(79))
    it._later.clear()
    it._heard.clear()
    it.fuse.blows = ()
    wrong = it.faults()
    return wrong if it.ends == RECOVERED else [*wrong, f"after its start was lost: {it.ends}"]


def a_decision_is_asked_again() -> list[str]:
    it = world(ACTS, breaks("incidents.advance", of="decide_next_step", error=LostAnswer))
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def a_command_is_repeated() -> list[str]:
    it = world()
    last = [
        n for n, made in enumerate(_made_of(0)) if (made.function, made.call) == ("reboot_node", "incidents.append")
    ]
    it.fuse.blows = (Blow(last[-1], is_after=False, error=NotAccepted),)
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def _made_of(story: int) -> list[Any]:
    it = STORIES[story].make(Fuse(writes_only=True))
    STORIES[story].tell(it)
    return it.fuse.made


def ec2_is_asked_again() -> list[str]:
    of = [n for n, made in enumerate(_made_of(11)) if (made.function, made.call) == ("reboot_node", "incidents.append")]
    it = STORIES[11].make(Fuse((Blow(of[1], is_after=False, error=NotAccepted),), writes_only=True))
    it.reports(xid(79, **it.fault))
    asked = [order for order in it.plain.machines.ordered if order[1].value == "REBOOT"]  # type: ignore[attr-defined]
    return [] if len(asked) == 1 else ["EC2 was asked to reboot twice, which is bound to no boot"]


def a_reboot_is_repeated_after_it_worked() -> list[str]:
    last = [
        n for n, made in enumerate(_made_of(0)) if (made.function, made.call) == ("reboot_node", "incidents.append")
    ]
    it = world(ACTS, Blow(last[-1], is_after=False, error=NotAccepted))
    boots = it._boots
    it.meanwhile["reboot_node"] = [lambda: None, lambda: boots(_request_of(it))]
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def _request_of(it: BreakingWorld) -> StepRequest:
    history = it.plain.incidents.history(it.incident_id)
    return StepRequest(incident_id=it.incident_id, turn=history.incident.turn, decision=history.turns[-1].decision)


def a_launch_is_repeated() -> list[str]:
    of = [n for n, made in enumerate(_made_of(3)) if (made.function, made.call) == ("launch_gang", "scheduler.start")]
    it = world(ACTS, Blow(of[-1], is_after=True, error=NotAccepted))
    it.reports(xid(31))
    _, run = current_run("llama", it.plain)
    return wrong_with(it, ends_as(it, *RECOVERED), (run is not None and run.number == 2, "it was launched twice"))


def the_job_ends_before_the_wait() -> list[str]:
    it = world()
    it.meanwhile["wait_for_news"] = [it._gang_finishes]
    it.on_wait = lambda: None
    it.reports(xid(63))
    return wrong_with(it, ends_as(it, *RECOVERED), _is_soon(it))


# The job --------------------------------------------------------------------------------------------------------------


def a_gpu_is_lost() -> list[str]:
    it = world()
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED), (it.job_nodes == [BROKEN, PEER], "the job was not brought back"))


def a_person_has_restarted_it_elsewhere() -> list[str]:
    """While the node was healed. The gang is not there any more, so there is nothing to stop, and nothing to start."""
    it = world()

    def restarts() -> None:
        job = it.plain.jobs.get("llama")
        assert job is not None
        run = record_run(job, [it.node(SPARE), it.node(PEER)], "submitted again", it.plain)
        start_ranks(replace(job, current_run=run.number), run, it.plain, it.policy)
        it._gang_becomes("RUNNING")

    it.meanwhile["stop_gang"] = [restarts]
    it.reports(xid(79))
    return list(it.wrong)


def another_incident_has_restarted_it() -> list[str]:
    it = world()
    it._ingest(xid(31))
    it._ingest(xid(43, node_id=PEER, instance_id=PEER, event_id="peer"))
    it.clock.advance(60)
    it.walk_what_was_started()
    _, run = current_run("llama", it.plain)
    return wrong_with(it, (run is not None and run.number == 2, "one fault that two ranks report restarted twice"))


def a_rank_runs_after_it_stopped() -> list[str]:
    it = world()
    stops = it._gang_stops

    def and_is_said_to_run(request: StepRequest) -> None:
        stops(request)
        for task_id in list(it._gone):
            _ends(it, task_id, "RUNNING")

    it._gang_stops = and_is_said_to_run  # type: ignore[method-assign]
    it.reports(xid(31))
    return wrong_with(it, ends_as(it, *RECOVERED))


def an_older_task_stops() -> list[str]:
    it = world()
    task = next(iter(it.plain.scheduler.tasks.values()))  # type: ignore[attr-defined]
    it._wakes(wakeup.on_task_change, TaskChange("llama", 1, "task-of-before", task.placement, "STOPPED", 1, ""))
    _, run = current_run("llama", it.plain)
    return [] if run is not None and run.is_running else ["the end of another task was taken for the rank's"]


def a_machine_is_not_heard() -> list[str]:
    return _is_not_known(is_heard=False, seconds=7_200)


def a_task_is_not_known_yet() -> list[str]:
    return _is_not_known(is_heard=True, seconds=600)


def _is_not_known(*, is_heard: bool, seconds: float) -> list[str]:
    """One rank has ended, and the scheduler does not know the other one."""
    it = world()
    scheduler: Any = it.plain.scheduler
    (ended, first), (unknown, other) = scheduler.tasks.items()
    it._wakes(wakeup.on_task_change, TaskChange("llama", 1, ended, first.placement, "STOPPED", 1, ""))
    scheduler.seen[unknown] = RankSeen(unknown, "MISSING", is_connected=True)
    scheduler.disconnected |= set() if is_heard else {other.placement}
    it.clock.advance(seconds)
    ask_after_ranks(it.plain.watchlist.pools(), it.plain)
    _, run = current_run("llama", it.plain)
    return ["a rank that may still write was taken for ended"] if run is None or run.has_ended else []


# Humans ---------------------------------------------------------------------------------------------------------------


def the_pool_is_observed() -> list[str]:
    it = world(RecoveryPolicy().model_copy(update=QUIET))
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, "Observed only"))


def the_node_is_opted_out() -> list[str]:
    it = world(ACTS.model_copy(update={"opted_out": {BROKEN: "ours"}}))
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, "Observed only"))


def the_node_is_paused() -> list[str]:
    it = world()
    pause_node(BROKEN, 10**6, "hands off", it.plain)
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, "Observed only"))


def the_pool_is_paused() -> list[str]:
    it = world()
    pause_pool("demo", 10**6, "hands off", it.plain)
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, "Observed only"))


def it_is_paused_in_the_middle() -> list[str]:
    it = world()
    it.fuse.meanwhile["wakeup.on_task_change", "jobs.save"] = lambda: pause_pool("demo", 10**6, "hands off", it.plain)
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *HANDED_OVER))


def a_human_says_no() -> list[str]:
    return _is_answered(lambda it: Answer.refuse)


def a_human_answers_too_late() -> list[str]:
    def late(it: BreakingWorld) -> Answer:
        it.clock.advance(10**6)
        return Answer.approve

    return _is_answered(late)


def _is_answered(say: Callable[[BreakingWorld], Answer]) -> list[str]:
    it = world(pool(mode="approve"))
    it.on_question = lambda request: _answers(it, Question(request.incident_id, request.turn), say(it))
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *HANDED_OVER), (it.commands == [], "it was touched without a yes"))


def a_human_answers_between_two_calls() -> list[str]:
    """The question went out, and the function that asked it was throttled after that: it is called again."""
    asked = [n for n, made in enumerate(_made_of(4)) if made.call == "messenger.announce"]
    it = world(pool(mode="approve"), Blow(asked[0], is_after=True, error=NotAccepted))
    question = Question(incident_id_of(xid(79)), 1)
    it.meanwhile["wait_for_approval"] = [lambda: None, lambda: _answers(it, question, Answer.approve)]

    def says_yes_to_what_comes_after(request: StepRequest) -> None:
        if request.turn != question.turn:
            _answers(it, Question(request.incident_id, request.turn), Answer.approve)

    it.on_question = says_yes_to_what_comes_after
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED), _is_soon(it))


def a_human_resets_the_breaker_meanwhile() -> list[str]:
    it = world()

    def trips_and_is_reset() -> None:
        trip_breaker("demo", "the same", it.plain)
        it.clock.advance(1)
        reset_breaker("demo", "looked at", it.plain)

    it.fuse.meanwhile["decide_next_step", "pools.save"] = trips_and_is_reset
    it._ingest(xid(79))
    for name in ("mi-crowd-1", "mi-crowd-2"):
        ingest(xid(79, node_id=name, instance_id=name, event_id=f"of-{name}"), it.plain, it.policy)
    it._decide({"Payload": {"incident_id": incident_id_of(xid(79)), "turn": 0}})
    is_open = it.plain.pools.get("demo").is_tripped
    return ["the breaker opened again for what a human had looked at"] if is_open else []


def a_link_is_forged() -> list[str]:
    return _is_read(lambda query: {**query, "answer": "approve"}, 60)


def a_link_is_old() -> list[str]:
    return _is_read(lambda query: query, -60)


def _is_read(change: Callable[[dict[str, str]], dict[str, str]], seconds: int) -> list[str]:
    now = world().clock()
    link = LINKS.link(Question("inc-1", 3), Answer.refuse, now + timedelta(seconds=seconds))
    query = dict(part.split("=") for part in link.partition("?")[2].split("&"))
    try:
        LINKS.read(change(query), now)
    except LinkRefused:
        return []
    return ["a link was taken that must be refused"]


def many_fail_for_one_cause() -> list[str]:
    it = world()
    crowd = [f"mi-crowd-{n}" for n in range(3)]
    it.before_walk = [xid(79, event_id=f"of-{n}", node_id=n, instance_id=n) for n in crowd]
    it.on_wait = lambda: None
    it.reports(xid(79))
    return [] if it.commands == [] else ["nodes are touched one by one, though the cause is not in them"]
