"""What was seen, sent or proven on another boot of the node.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from nodeheal.contract.health_event import DiagnosticsFinished, EvidenceFrozen, NodeBooted
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.names import evidence_key
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Step, Verdict
from nodeheal.domain.policy.policy_models import Evidence
from nodeheal.services.intake import wakeup
from tests.unit.builders import CHECK, DIAGNOSTICS, EVIDENCE, NOW, named, request_id_of, turn_of, xid
from tests.workflows.breaking_world import ACTS, BreakingWorld
from tests.workflows.fake_cluster import BROKEN, SPARE
from tests.workflows.fuse import Fuse, throttled
from tests.workflows.job_cluster import JobCluster, finishes
from tests.workflows.scenarios.setup import (
    HANDED_OVER,
    RECOVERED,
    changes,
    ends_as,
    spent,
    steps_of,
    world,
    wrong_with,
)
from tests.workflows.stories import STORIES, TEMPLATE, pool


def an_old_boots_fault_comes_late() -> list[str]:
    """It was in the node's spool when somebody rebooted the node."""
    it = world()
    it.clock.advance(60)
    it._comes_up(BROKEN, "boot-2")
    it._ingest(xid(74, event_id="late"))
    it.walk_what_was_started()
    return [*it.wrong, *([] if it.ends == () else ["a node was treated for what its last boot had"])]


def history_is_told() -> list[str]:
    """By an agent that has just been installed: the fault is of this boot, and nobody knows what was done since."""
    it = world()
    it._ingest(xid(79, is_history=True))
    it.walk_what_was_started()
    return [*it.wrong, *([] if it.ends == () else ["a node was treated for what was before its agent"])]


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


def another_boot_was_diagnosed() -> list[str]:
    return _is_answered_by(lambda it: it._fact(BROKEN, "boot-9"))


def _is_answered_by(of: Callable[[BreakingWorld], dict[str, Any]]) -> list[str]:
    """Its own diagnosis fails; what says that it passed is not its own."""
    it = world(spare=False)
    it.diagnoses[BROKEN] = Verdict.FAILED
    diagnosed = it._diagnosed

    def before_it(request: StepRequest) -> None:
        request_id = named(DIAGNOSTICS, turn_of(request), it.plain)
        passed = DiagnosticsFinished(**of(it), request_id=request_id, verdict=Verdict.OK, failed_tests=())
        it._wakes(wakeup.on_answer, passed)
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


def another_boot_was_checked() -> list[str]:
    """A node of a job fails its preflight; what says that it passed is of a boot that it has no more."""
    it, bad = JobCluster(), list[str]()
    answer = it._nodes_answer

    def before_them(request: JobRequest) -> None:
        bad.extend(request.nodes[:1] if not bad else ())
        it.diagnoses[bad[0]] = Verdict.FAILED
        asked = f"{request.job_id}-{request.submission}-{request.round}-check"
        request_id = named(CHECK, asked, it.ports, bad[0])
        old = it._fact(bad[0], "boot-0")
        it._wakes(
            wakeup.on_answer,
            DiagnosticsFinished(**old, request_id=request_id, verdict=Verdict.OK, failed_tests=()),
        )
        answer(request)

    it._nodes_answer = before_them  # type: ignore[method-assign]
    it.happenings = [finishes]
    it.submit()
    on = [task.node_id for task in it.run.tasks]
    return [f"started on {on}, of which {bad} has failed its check"] if bad[0] in on else []


def a_node_is_written_while_its_boot_is_told() -> list[str]:
    it = world(spare=False)
    it.fuse.meanwhile["wakeup.on_node_booted", "nodes.save"] = changes(it, last_seen=NOW)
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED))


def another_boot_has_saved_evidence() -> list[str]:
    return _evidence_is_saved_by(lambda it: it._fact(BROKEN, "boot-9"))


def _evidence_is_saved_by(of: Callable[[BreakingWorld], dict[str, Any]]) -> list[str]:
    """Somebody else's answer comes before the node's own, and names the same place."""
    it = world(ACTS.model_copy(update={"evidence": Evidence()}))
    arrives = it._evidence_arrives

    def after_it(request: StepRequest) -> None:
        request_id = named(EVIDENCE, request_id_of(request), it.plain)
        key = evidence_key(request.incident_id, request_id_of(request))
        other = EvidenceFrozen(**of(it), request_id=request_id, object_key=key, size_bytes=1, items=1)
        it._wakes(wakeup.on_answer, other)
        arrives(request)

    it._evidence_arrives = after_it  # type: ignore[method-assign]
    it.reports(xid(79))
    turns = it.plain.incidents.history(it.incident_id).turns
    saved = [t.result.reason for t in turns if t.result is not None and t.result.step is Step.FREEZE_EVIDENCE]
    own = any("12" in why for why in saved)
    return wrong_with(it, ends_as(it, *RECOVERED), (own, f"another's evidence was taken for its own: {saved}"))


def it_comes_up_again_without_a_job() -> list[str]:
    """Before anything was decided: what its last boot had is over, and if it comes again that is news."""
    it = world()
    it.meanwhile["decide_next_step"] = [lambda: it._goes_down_and_comes_up(SPARE)]
    it.reports(xid(79, node_id=SPARE, instance_id=SPARE))
    return wrong_with(it, ends_as(it, "Observed only"))


def it_comes_up_again_and_its_job_is_down() -> list[str]:
    """It must prove that it is well before its job goes on there, and is not given up for what is over."""
    it = world(pool(), spare=False, machine=TEMPLATE)
    it.meanwhile["decide_next_step"] = [lambda: it._goes_down_and_comes_up(BROKEN)]
    it.reports(xid(74, **it.fault))
    given_up = it.plain.machines.given_back  # type: ignore[attr-defined]
    untouched = given_up == [] and Step.REPLACE not in steps_of(it)
    return wrong_with(it, ends_as(it, *RECOVERED), (untouched, "a machine that had come back was to be given up"))


def it_fails_again_on_a_boot_of_its_own() -> list[str]:
    """Only its job was to be restarted; it boots by itself meanwhile, and falls off the bus."""
    it = world()
    again = xid(79, event_id="again", boot_id="boot-2")

    def fails() -> None:
        it._goes_down_and_comes_up(BROKEN)
        it._ingest(again.model_copy(update={"observed_at": it.clock()}))

    it.meanwhile["launch_gang"] = [fails]
    it.reports(xid(31))
    is_seen_to = it.node().healthy_since is not None or it.node().open_incident is not None
    return wrong_with(it, (is_seen_to, "what it showed on its new boot was lost"))


def it_comes_up_again_before_it_is_replaced() -> list[str]:
    """It was decided, and the attempt reserved: it is looked at first, and given up only if that speaks against it."""
    it = world(pool(), spare=False, machine=TEMPLATE)
    it.meanwhile["replace_node"] = [lambda: it._goes_down_and_comes_up(BROKEN)]
    it.reports(xid(74, **it.fault))
    given_up = it.plain.machines.given_back  # type: ignore[attr-defined]
    untouched = (given_up, spent(it)) == ([], 0)
    return wrong_with(it, ends_as(it, *RECOVERED), (untouched, "a machine that had come back was given up"))


def it_comes_up_again_before_its_spare_is_claimed() -> list[str]:
    it = world()
    it.meanwhile["replace_node"] = [lambda: it._goes_down_and_comes_up(BROKEN)]
    it.reports(xid(74))
    return wrong_with(it, ends_as(it, *RECOVERED), (spent(it) == 0, "the attempt was not given back"))


def its_call_breaks_and_it_comes_up_again(call: str, nth: int = 1, **said: Any) -> BreakingWorld:
    """It was being replaced."""
    it = world(pool(), **said)
    it.fuse.throttles("replace_node", call, nth)
    it.meanwhile["replace_node"] = [lambda: None, lambda: it._goes_down_and_comes_up(BROKEN)]
    it.reports(xid(74, **it.fault))
    return it


def it_comes_up_again_when_its_spare_is_claimed() -> list[str]:
    it = its_call_breaks_and_it_comes_up_again("operations.save")
    return wrong_with(it, ends_as(it, *HANDED_OVER), (Step.REPLACE in steps_of(it), "it was not replaced"))


def it_comes_up_again_when_its_successor_is_asked_for() -> list[str]:
    it = its_call_breaks_and_it_comes_up_again("machines.launch", spare=False, machine=TEMPLATE)
    given_up = it.plain.machines.given_back  # type: ignore[attr-defined]
    return wrong_with(it, ends_as(it, *RECOVERED), (len(given_up) == 1, "the new machine was forgotten"))


def it_comes_up_again_before_it_is_isolated() -> list[str]:
    """It was decided: without a job that needs it, there is nothing to isolate it for any more."""
    it = world()
    it.meanwhile["isolate_node"] = [lambda: it._goes_down_and_comes_up(SPARE)]
    it.reports(xid(79, node_id=SPARE, instance_id=SPARE))
    return wrong_with(it, ends_as(it, "Observed only"))


def it_comes_up_again_once_it_is_isolated() -> list[str]:
    """The call broke, and comes again: what was begun is brought to its end."""
    it = world()
    it.fuse.meanwhile["isolate_node", "scheduler.stop_rank"] = throttled
    it.meanwhile["isolate_node"] = [lambda: None, lambda: it._goes_down_and_comes_up(BROKEN)]
    it.reports(xid(79))
    refused = [turn for turn in it.plain.incidents.history(it.incident_id).turns if turn.is_refused]
    return wrong_with(it, ends_as(it, *RECOVERED), (refused == [], "it was isolated, and told that it was not"))


def it_fails_again_while_it_stands_in_line() -> list[str]:
    """Refused for want of a slot, it boots by itself, and falls off the bus once more."""
    story = next(story for story in STORIES if story.name == "the budget is full")
    it = story.make(Fuse(writes_only=True))
    free = it.on_wait

    def fails() -> None:
        it._goes_down_and_comes_up(BROKEN)
        it._ingest(xid(79, event_id="again", boot_id=it.node().boot_id, observed_at=it.clock()))
        free()

    it.on_wait = fails
    it.reports(xid(79))
    return wrong_with(it, ends_as(it, *RECOVERED), (spent(it) == 1, "what it showed on its new boot was lost"))
