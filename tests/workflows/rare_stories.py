"""Stories of what is rare: what comes too late, is refused, or is said by others. Every break is tried in them, too."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from nodeheal.adapters.memory.marks import MemoryMarks
from nodeheal.contract.health_event import NodeBooted, NodeHardwareReported
from nodeheal.contract.names import node_pause_sk
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, Family, IncidentState, Provider, Verdict
from nodeheal.domain.fleet.enrolment import Enrolment
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.fleet.machine import STOPPED_BY_CALL, Launch
from nodeheal.domain.fleet.node_order import NodeOrder
from nodeheal.domain.fleet.pause import Pause
from nodeheal.domain.policy.policy_models import Evidence, NewNodes
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.timeline_fold import SAME_EVENTS_AT_MOST
from nodeheal.operations.engine import machine_stopped
from nodeheal.ports.signals import Draft
from nodeheal.ports.storage import SweepCursor
from nodeheal.services.intake.new_nodes import on_first_boot
from nodeheal.services.intake.node_rates import REPORTS_A_MINUTE
from nodeheal.services.intake.take_signal import take_signal
from nodeheal.services.intake.upsert_node import ASKED_AGAIN_SECONDS
from nodeheal.services.intake.wakeup import on_hardware_reported
from nodeheal.services.operators.answer_approval import answer_approval
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.recovery.new_machine import on_group_launch
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, node, scheduler_in, xid
from tests.support.enrolment import enroll, retire
from tests.support.fake_cluster import BROKEN, PEER, SPARE
from tests.support.fuse import Fuse, throttled
from tests.workflows.breaking_world import ACTS, BreakingWorld, Story
from tests.workflows.stories import MOVES, OTHER, TEMPLATE, group_launches, group_makes_another, pool, stops_and_starts

HEALTH = "aws.health"
UNTAGGED = "mi-00000000000000ffe"
_SLOTS = "demo#replacements"


def _fault(code: int) -> Callable[[BreakingWorld], object]:
    return lambda it: it.reports(xid(code, **it.fault))


def _two_answer(fuse: Fuse) -> BreakingWorld:
    """Ada says yes, and Bob no, a moment later."""
    it = BreakingWorld(fuse, pool(mode="approve"))

    def answer(request: StepRequest) -> None:
        question = Question(request.incident_id, request.turn)
        for who, said in (("ada", Answer.approve), ("bob", Answer.refuse)):
            it.does("answer_approval", partial(answer_approval, question, said, who, "", it.ports))

    it.on_question = answer
    return it


def _is_redriven(function: str, **said: object) -> Callable[[Fuse], BreakingWorld]:
    """The execution broke before this step, a human gave the node back, and then redrives the execution."""

    def make(fuse: Fuse) -> BreakingWorld:
        it = BreakingWorld(fuse, ACTS.model_copy(update=said))

        def given_back() -> None:
            it.paged.add(it.incident_id)
            it._left_to_a_human({})
            it.does("release_node", lambda: release_node(BROKEN, "it is well", it.ports))

        it.meanwhile[function] = [given_back]
        return it

    return make


def _hears(fuse: Fuse) -> BreakingWorld:
    """Agents keep an interval that the policy does not want any more."""
    it = BreakingWorld(fuse, ACT)
    for name in (BROKEN, PEER, SPARE):
        heartbeat = Heartbeat(f"AROA:{name}", "boot-1", it.clock(), every_seconds=300.0)
        it.plain.heartbeats.beats[heartbeat.who] = heartbeat  # type: ignore[attr-defined]
    return it


def _pool_falls_silent(fuse: Fuse) -> BreakingWorld:
    it = BreakingWorld(fuse, ACT)
    for number in range(12):
        it.plain.nodes.save(node(f"mi-0000000000000{number:04d}"))
    return it


def _nobody_is_heard(it: BreakingWorld) -> None:
    it.clock.advance(400)


def _without_spare(fuse: Fuse) -> BreakingWorld:
    return BreakingWorld(fuse, spare=False)


def _is_tagged_late(it: BreakingWorld) -> None:
    """A spare is announced, and another machine reports before anybody has tagged it."""
    said = Enrolment("elsewhere", why="ada: a new one", cluster="training", is_spare=True)
    it.does("enroll_node", lambda: enroll(OTHER, said, it.ports, MemoryMarks()))
    it._comes_up(OTHER, "boot-1")
    tags = it.plain.enrolment_tags
    tags.without.add(UNTAGGED)  # type: ignore[attr-defined]
    it._comes_up(UNTAGGED, "boot-1")
    tags.without.clear()  # type: ignore[attr-defined]
    it.clock.advance(ASKED_AGAIN_SECONDS + 1)
    it._comes_up(UNTAGGED, "boot-1")
    it.reports(xid(79))


def _repeats_itself(it: BreakingWorld) -> None:
    """The driver says the same thing again and again, until its lines are counted in one entry."""
    it.before_walk = [xid(79, **{**it.fault, "event_id": f"again-{n}"}) for n in range(SAME_EVENTS_AT_MOST + 3)]
    it.reports(xid(79, **it.fault))


def _is_well_again(fuse: Fuse) -> BreakingWorld:
    """While the incident waits for the job's end, the node says that the same thing is well."""
    it = BreakingWorld(fuse)

    def well() -> None:
        it.on_wait = it._gang_finishes
        it._ingest(xid(63, verdict=Verdict.OK, event_id="well", observed_at=it.clock()))

    it.on_wait = well
    return it


def _comes_back_meanwhile(fuse: Fuse) -> BreakingWorld:
    """What follows the reboot is throttled, and the node is back before the function is called again."""
    it = BreakingWorld(fuse)
    it.fuse.meanwhile["reboot_node", "nodes.save"] = throttled
    it.meanwhile["reboot_node"] = [lambda: None, lambda: it._goes_down_and_comes_up(BROKEN)]
    return it


def _one_new_node_at_once(fuse: Fuse) -> BreakingWorld:
    return BreakingWorld(fuse, pool(new_nodes=NewNodes(max_nodes=1)))


def _reboots_by_itself(fuse: Fuse) -> BreakingWorld:
    """A panic after the decision, and before the order: there is nothing left to be rebooted."""
    it = BreakingWorld(fuse)
    it.meanwhile["reboot_node"] = [lambda: it._goes_down_and_comes_up(BROKEN)]
    return it


def _comes_back_before_it_is_replaced(fuse: Fuse) -> BreakingWorld:
    """After the decision, and before anything was begun for its successor."""
    it = BreakingWorld(fuse)
    it.meanwhile["replace_node"] = [lambda: it._goes_down_and_comes_up(BROKEN)]
    return it


def _new_machine_comes_up_meanwhile(fuse: Fuse) -> BreakingWorld:
    """What follows the launch is throttled, and its machine is up before the function is called again."""
    it = BreakingWorld(fuse, pool(), spare=False, machine=TEMPLATE)
    it.fuse.throttles("replace_node", "incidents.append", nth=3)

    def comes_up() -> None:
        for name in it.plain.machines.tokens.values():  # type: ignore[attr-defined]
            it._comes_up(name, "boot-1")

    it.meanwhile["replace_node"] = [lambda: None, comes_up]
    return it


def _others_have_crashed(fuse: Fuse) -> BreakingWorld:
    """Every slot for a new machine is held for one that nobody waits for any more."""
    it = BreakingWorld(fuse, pool(), spare=False, machine=TEMPLATE)
    for number in range(pool().default_pool.replacement.max_nodes):
        assert it.plain.pools.claim(_SLOTS, f"mi-crashed-{number}", number + 1)
    return it


def _fails_then(it: BreakingWorld) -> None:
    it.reports(xid(74, **it.fault))
    for holder in it.plain.pools.holders(_SLOTS):
        if holder.startswith("mi-crashed"):  # where this one broke before it came to that, the next one sees to it
            it.plain.pools.release(_SLOTS, holder)


def _its_stop_is_not_reported(fuse: Fuse) -> BreakingWorld:
    """EC2's event is lost: that the machine has stopped is seen when the deadline has passed."""
    it = stops_and_starts(fuse)
    wakes, machines = it._wakes, it.plain.machines

    def tells(take: Any, told: Any) -> None:
        if take is machine_stopped:
            known = machines.machines[told]  # type: ignore[attr-defined]
            machines.machines[told] = replace(known, state="stopped", state_code=STOPPED_BY_CALL)  # type: ignore[attr-defined]
            return
        wakes(take, told)

    it._wakes = tells  # type: ignore[method-assign]
    return it


def _group_is_throttled(fuse: Fuse) -> BreakingWorld:
    it = group_makes_another(fuse)
    it.fuse.meanwhile["replace_node", "machines.terminate_instance"] = throttled
    return it


def _group_is_short(fuse: Fuse) -> BreakingWorld:
    """It says that it has none, and has one when it is asked again."""
    it = group_makes_another(fuse)
    it.on_wait = lambda: None
    launches = it.on_replace

    def has_none(_: StepRequest) -> None:
        it.on_replace = launches
        it.clock.advance(60)
        it._wakes(on_group_launch, Launch("asg", it.clock(), failed="no p5.48xlarge in eu-west-1a"))

    it.on_replace = has_none
    return it


def _group_is_late(fuse: Fuse) -> BreakingWorld:
    """Its machine comes up when nobody waits for it any more."""
    it = group_makes_another(fuse)
    it.on_replace = lambda _: None
    it.on_wait = lambda: None
    return it


def _comes_late(it: BreakingWorld) -> None:
    it.reports(xid(74, **it.fault))
    it.clock.advance(600)
    group_launches(it)


def _comes_when_it_is_not_wanted(it: BreakingWorld) -> None:
    it._gang_finishes()
    it.reports(xid(74, **it.fault))
    it.does("release_node", lambda: release_node(BROKEN, "repaired", it.ports))
    group_launches(it)


def _retires(it: BreakingWorld) -> None:
    it.does("retire_node", lambda: retire(SPARE, "sold", it.ports, MemoryMarks()))


def _replacement_node_breaks(fuse: Fuse) -> BreakingWorld:
    """The free node that is to prove itself gets a fault of its own a moment before."""
    it = BreakingWorld(fuse, MOVES)
    own = xid(79, node_id=SPARE, instance_id=SPARE, event_id="spare")
    it.meanwhile["run_diagnostics"] = [lambda: it._ingest(own)]
    return it


def _health(it: BreakingWorld, version: int | None, verdict: Verdict, **said: Any) -> None:
    """AWS Health says something about the broken node's machine."""
    known: dict[str, Any] = {
        "instance_id": BROKEN,
        "source": HEALTH,
        "family": Family.host,
        "code": "scheduled_event",
        "key": f"health/{version}",
        "observed_at": it.clock(),
        "verdict": verdict,
        "topic": "event/1",
        "version": version,
        **said,
    }
    draft = Draft(**known)
    it._is_told("take_signal", lambda: take_signal([draft], it.ports, it.policy))


def _health_says_late(it: BreakingWorld) -> None:
    """The end of an event comes before its beginning."""
    _health(it, 2, Verdict.OK)
    _health(it, 1, Verdict.DEGRADED)


def _departs(it: BreakingWorld) -> None:
    """A machine that nobody needs is terminated."""
    gone = {"code": "instance_gone", "subcode": "terminated", "takes_node_away": True}
    _health(it, None, Verdict.FAILED, instance_id=SPARE, **gone)


def _says_too_much(it: BreakingWorld) -> None:
    """The node has sent all that is taken of it in this minute. What the bus delivers once more later is taken."""
    now = it.clock()
    for _ in range(REPORTS_A_MINUTE):
        it.plain.nodes.count_report(BROKEN, f"{now:%Y-%m-%dT%H:%M}", now)
    it._ingest(xid(79, observed_at=now))


def _is_swept_after_a_storm(it: BreakingWorld) -> None:
    """The last minute had more emails than are sent, and the last sweep came to no end."""
    it.plain.notifier.folded_in[it.clock() - timedelta(minutes=1), "email"] = 7  # type: ignore[attr-defined]
    it.plain.fleet_index.save_cursor(SweepCursor(due="z"))
    it.does("sweep", lambda: sweep(it.ports, ACTS))


def _is_ordered_while_it_is_paused(it: BreakingWorld) -> None:
    """A person's mark on a node of HyperPod: the order waits, and is on record as one that waits."""
    order = NodeOrder(SPARE, Action.REBOOT, "somebody who may label nodes", "a label", is_authorised=True)
    scheduler_in(it.plain).ordered.append(order)
    it.plain.nodes.save(replace(it.node(SPARE), provider=Provider.hyperpod))
    it.plain.pauses.save(node_pause_sk(SPARE), Pause(it.clock() + timedelta(hours=1), "new driver"))
    it.does("sweep", lambda: sweep(it.ports, ACTS))


def _is_not_enrolled(fuse: Fuse) -> BreakingWorld:
    """Its container instance does not bear the operator's tag."""
    it = BreakingWorld(fuse)
    scheduler_in(it.plain).not_enrolled.add(BROKEN)
    return it


def _boots_for_the_first_time(it: BreakingWorld, name: str) -> None:
    it._comes_up(name, "boot-1")
    fact = it._fact(name, "boot-1")
    booted = NodeBooted(**fact, booted_at=it.clock(), address="127.0.0.1", accelerators=8)
    it._is_told("on_first_boot", lambda: on_first_boot(booted, it.ports, lambda: it.policy))


def _hardware_is_reported(it: BreakingWorld) -> None:
    """It is kept, and the node breaks all the same."""
    fact = it._fact(BROKEN, it.node(BROKEN).boot_id)
    report = NodeHardwareReported(**fact, machine="p5.48xlarge", accelerators=())
    it._is_told("wakeup.on_hardware_reported", lambda: on_hardware_reported(report, it.ports))
    it.reports(xid(79, **it.fault))


def _new_node_comes(it: BreakingWorld) -> None:
    _boots_for_the_first_time(it, OTHER)
    it.walk_what_was_started()


def _new_nodes_come(it: BreakingWorld) -> None:
    """The first one's workflow breaks off, an operator takes the second one, and the third one gets the place."""
    names = [f"mi-0000000000000{number:04d}" for number in range(3)]
    for name in names:
        _boots_for_the_first_time(it, name)
    first = it.plain.incidents.incident(str(it.node(names[0]).open_incident))
    it._begun.append(first.incident_id)
    it.plain.incidents.finish(replace(first, state=IncidentState.ESCALATED))
    it.paged.add(first.incident_id)
    it.plain.nodes.save(replace(it.node(names[1]), healthy_since=it.clock()))
    it.does("sweep", lambda: sweep(it.ports, it.policy))
    it.walk_what_was_started()


RARE_STORIES = (
    Story("hardware is reported", BreakingWorld, _hardware_is_reported, only=("wakeup.on_hardware_reported",)),
    Story("a new node comes", BreakingWorld, _new_node_comes, only=("on_first_boot", "end_incident")),
    Story("new nodes come", _one_new_node_at_once, _new_nodes_come, only=("on_first_boot", "sweep")),
    Story("it says too much in one minute", BreakingWorld, _says_too_much, only=("ingest",)),
    Story("it is swept after a storm of emails", BreakingWorld, _is_swept_after_a_storm, (), ("sweep",)),
    Story("it is ordered while it is paused", BreakingWorld, _is_ordered_while_it_is_paused, (), ("sweep",)),
    Story("it may not be drained", _is_not_enrolled, _fault(79), ("Escalated",), ("isolate_node",)),
    Story("two people answer", _two_answer, _fault(79), only=("answer_approval",)),
    Story("agents are asked for another interval", _hears, lambda it: None, (), ("sweep",)),
    Story("a pool falls silent", _pool_falls_silent, _nobody_is_heard, (), ("sweep",)),
    Story(
        "a machine is tagged after it has reported",
        _without_spare,
        _is_tagged_late,
        ("Recovered",),
        ("wakeup.on_node_booted",),
    ),
    Story("it repeats itself", BreakingWorld, _repeats_itself, only=("ingest",)),
    Story("it is well again while it waits", _is_well_again, _fault(63), only=("ingest",)),
    Story("it is back before its reboot is asked for again", _comes_back_meanwhile, _fault(79), only=("reboot_node",)),
    Story("it reboots by itself first", _reboots_by_itself, _fault(79), only=("reboot_node",)),
    Story("it is back before it is replaced", _comes_back_before_it_is_replaced, _fault(74), only=("replace_node",)),
    Story(
        "redriven before its reboot",
        _is_redriven("reboot_node"),
        _fault(79),
        ("Escalated",),
        only=("reboot_node",),
    ),
    Story(
        "redriven before its replacement",
        _is_redriven("replace_node"),
        _fault(74),
        ("Escalated",),
        only=("replace_node",),
    ),
    Story(
        "redriven before its evidence",
        _is_redriven("freeze_evidence", evidence=Evidence()),
        _fault(79),
        ("Escalated",),
        only=("freeze_evidence",),
    ),
    Story(
        "its new machine is up before it is asked for again",
        _new_machine_comes_up_meanwhile,
        _fault(74),
        only=("replace_node",),
    ),
    Story("others have crashed with its slot", _others_have_crashed, _fails_then, only=("replace_node",)),
    Story("its stop is not reported", _its_stop_is_not_reported, _fault(79), only=("reboot_node", "decide_next_step")),
    Story("EC2 is too busy to terminate it", _group_is_throttled, _fault(74), only=("replace_node",)),
    Story(
        "its group has none at first",
        _group_is_short,
        _fault(74),
        only=("wakeup.on_group_launch", "wakeup.on_node_booted", "replace_node"),
    ),
    Story(
        "its group is late", _group_is_late, _comes_late, ("Escalated",), ("decide_next_step", "wakeup.on_node_booted")
    ),
    Story(
        "its group is late, and it was given back",
        _group_is_late,
        _comes_when_it_is_not_wanted,
        ("Escalated",),
        ("wakeup.on_node_booted",),
    ),
    Story("a spare is sold", BreakingWorld, _retires, (), ("retire_node",)),
    Story(
        "the replacement node breaks first",
        _replacement_node_breaks,
        _fault(79),
        ("Recovered", "Recovered"),
        ("run_diagnostics",),
    ),
    Story("AWS Health tells in the wrong order", BreakingWorld, _health_says_late, (), ("take_signal",)),
    Story("a machine that nobody needs departs", BreakingWorld, _departs, (), ("take_signal",)),
)
