"""What comes between a look and a wait, or is there already when a function is called again.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace

from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import NodeState, Step, Verdict
from nodeheal.domain.jobs.job import GangTask
from nodeheal.ports.messaging import Message
from nodeheal.services.intake.take_signal import take_draft
from nodeheal.services.jobs.ask_for_checkpoint import ask_for_checkpoint
from nodeheal.services.notify.deliver_notification import notify
from nodeheal.services.notify.warn_job import warn_job
from nodeheal.services.operators.release_node import release_node
from tests.unit.builders import ACT, commands_in, node, started_job, xid
from tests.unit.step_functions import reboot_node
from tests.workflows.breaking_world import ACTS, BreakingWorld
from tests.workflows.fake_cluster import BROKEN, SPARE
from tests.workflows.fuse import Fuse
from tests.workflows.scenarios.news import draft_of
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.scenarios.setup import RECOVERED, ends_as, is_soon, world, wrong_with
from tests.workflows.scenarios.turns import opened
from tests.workflows.stories import OTHER, STORIES

# Before the wait is stored


def a_slot_becomes_free_before_it_waits() -> list[str]:
    it = STORIES[5].make(Fuse(writes_only=True))
    it.meanwhile["wait_for_news"] = [lambda: release_node(OTHER, "a new riser card", it.plain)]
    return _does_not_wait(it, 79)


def _does_not_wait(it: BreakingWorld, code: int) -> list[str]:
    it.on_wait = lambda: None
    it.reports(xid(code))
    return wrong_with(it, ends_as(it, *RECOVERED), is_soon(it))


# When it is called again


def a_swap_is_called_again() -> list[str]:
    """There is a second spare, and one broken node."""
    it = world()
    it.plain.nodes.save(node(OTHER))

    it.fuse.throttles("replace_node", "operations.save")  # which names the spare
    it.reports(xid(74))
    held = [name for name in (SPARE, OTHER) if it.node(name).job_id or it.node(name).open_incident]
    return wrong_with(it, (held == [SPARE], f"{held} stand in for one"))


def a_free_node_is_nobodys_spare_yet() -> list[str]:
    """The other nodes of its pool are healthy, and none of them is held by its incident."""
    it = world(spare=False)
    it.reports(xid(74))
    swapped = it.told_of("swapped")
    return [f"a node stands in that nobody has claimed: {text}" for text in swapped]


def a_reboot_was_decided_without_a_limit() -> list[str]:
    it, mine = opened()
    it.is_written(state=NodeState.ISOLATED)
    it.plain.pools.claim("demo", BROKEN, 1)
    it.does(lambda: reboot_node(mine.model_copy(update={"task_token": "token"}), it.ports))
    sent = commands_in(it.plain).sent
    return [f"{one.document} for {one.node_id}, and nobody has counted it" for one in sent]


def an_email_is_being_sent_by_one_who_dies() -> list[str]:
    it = Moment()
    told = Notification(key="page", subject="broken", body="broken", severity="PAGE", pool="demo")
    it.plain.notifier.send(Message(told), 1)
    it.plain.notifier.sent.clear()  # type: ignore[attr-defined]
    notify(told, it.plain, ACT)
    return ["an email counts as sent that nobody has sent"] if it.plain.notifier.was_sent(told.key) else []


def something_older_is_said_while_something_newer_is_written() -> list[str]:
    newer = draft_of(topic="agent", version=2, verdict=Verdict.OK)
    older = draft_of(topic="agent", version=1, verdict=Verdict.FAILED)
    it = Moment("nodes.save", lambda it: take_draft(newer, it.plain, ACTS))
    it.does(lambda: take_draft(older, it.ports, ACTS))
    kept = it.plain.nodes.get(BROKEN)
    started = it.plain.workflows.started  # type: ignore[attr-defined]
    is_newest = kept is not None and kept.signal_versions == {"agent": 2} and not started
    return [] if is_newest else ["what was said before is taken for the newest word"]


# Checkpoints that are asked for


def a_job_was_warned_before() -> list[str]:
    it, mine = opened()
    _runs(it)
    decision = mine.decision.model_copy(update={"step": Step.WAIT, "checkpoint_seconds": 60, "fault": "XID 63"})
    for turn in (1, 2):
        warn_job(mine.model_copy(update={"decision": decision, "turn": turn}), it.plain)
    return _asked(it, 1)


def only_the_broken_node_has_a_rank() -> list[str]:
    it, mine = opened()
    tasks = _runs(it)
    it.does(lambda: ask_for_checkpoint(JOB, tasks, mine, it.ports, ACTS))
    return _asked(it, 0)


def _runs(it: Moment) -> list[GangTask]:
    run = started_job(JOB, [node(BROKEN)], it.plain)
    tasks = tuple(replace(task, status="RUNNING") for task in run.tasks)
    stored = it.plain.jobs.get_run("llama", 1)
    assert stored is not None
    it.plain.jobs.save_run(replace(stored, tasks=tasks))
    return list(tasks)


def _asked(it: Moment, times: int) -> list[str]:
    asked = commands_in(it.plain).sent_to_all
    return [] if len(asked) == times else [f"it was asked {len(asked)} times for a checkpoint, and not {times}"]
