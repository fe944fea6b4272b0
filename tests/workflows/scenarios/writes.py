"""Two who write in one moment: of a conditional write one of them hears that it came second.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from typing import Any

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.notify.deliver_notification import notify
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool
from nodeheal.services.recovery.spares import claim_spare
from tests.unit.builders import ACT, node, scheduler_in, xid
from tests.workflows.fake_cluster import BROKEN, PEER, SPARE
from tests.workflows.scenarios.setup import (
    HANDED_OVER,
    RECOVERED,
    answers,
    changes,
    ends_as,
    rank_ends,
    world,
    wrong_with,
)
from tests.workflows.stories import pool


def two_want_the_last_spare() -> list[str]:
    it = world()
    won: list[str] = []

    def another_claims_it() -> None:
        claimed = claim_spare(it.node(PEER), "inc-of-another", it.plain, it.policy)
        won.append(claimed.node_id if claimed else "")

    it.fuse.meanwhile["replace_node", "nodes.save"] = another_claims_it
    it.reports(xid(74))
    return [] if it.node(SPARE).open_incident == "inc-of-another" else [f"{won} was claimed twice"]


def two_want_the_first_of_two_spares() -> list[str]:
    """Whoever comes second takes the other one."""
    it = world()
    it.plain.nodes.save(node("mi-0dddddddddddddddd"))
    it.fuse.meanwhile["replace_node", "nodes.save"] = changes(it, SPARE, open_incident="inc-of-another")
    it.reports(xid(74))
    return [] if it.job_nodes == ["mi-0dddddddddddddddd", PEER] else [f"the job is on {it.job_nodes}"]


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
        it.fuse.meanwhile["answer_approval", "incidents.append"] = lambda: answers(it, question, Answer.refuse)
        it.does("answer_approval", lambda: answers(it, question, Answer.approve, fused=True))

    it.on_question = both
    it.reports(xid(79))
    said = [e.data for e in it.plain.incidents.history(it.incident_id).timeline if e.kind == "answer" and e.data]
    return wrong_with(it, (said == ["refuse"], f"{said} stand on record"), ends_as(it, *HANDED_OVER))


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
        other = next(i for i, t in scheduler_in(it.plain).tasks.items() if t.node_id == PEER)
        it.fuse.meanwhile["wakeup.on_task_change", "jobs.save_run"] = lambda: rank_ends(it, other)
        stops(request)

    it._gang_stops = together  # type: ignore[method-assign]
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


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
    is_over = job is not None and job.state is JobState.CANCELLED
    jobs: Any = it.plain.jobs
    runs = {number for _, number in jobs.kept_runs if scheduler_in(it.plain).tasks.get(f"task-llama-{number}-0")}
    return [] if is_over and runs == {1} else [f"runs {runs} of a job that a person has stopped"]


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


def an_email_is_announced_again_much_later() -> list[str]:
    """EventBridge delivers at least once, and the claim on the sending has run out meanwhile."""
    it = world()
    it.reports(xid(79))
    notifier: Any = it.plain.notifier
    _, first = notifier.announced[0]
    notify(first, it.plain, ACT)
    notifier.being_sent.clear()
    notify(first, it.plain, ACT)
    sent = [one.key for one in notifier.sent].count(first.key)
    return [] if sent == 1 else [f"an email went out {sent} times"]
