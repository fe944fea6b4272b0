"""Whose wait it is, of which turn and of which boot: what is another's must not be taken for one's own.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.names import group_line
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Awaited, IncidentState, NodeState, Outcome, Provider, Step
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.policy.policy_models import Replacement
from nodeheal.domain.recovery.approval_links import Answer, Question
from nodeheal.domain.recovery.incident import TimelineEntry, decision_entry, result_entry
from nodeheal.ports import Wait
from nodeheal.services import hear_silence
from nodeheal.services.answer_approval import answer_approval
from nodeheal.services.boot_wait import BOOT, LEFT, STARTING, is_started, note_boot
from nodeheal.services.ingest import ingest
from nodeheal.services.late_machine import LATE, tell_of_late
from nodeheal.services.launch_gang import GANG_RUNNING
from nodeheal.services.look_once import look_once
from nodeheal.services.new_machine import ASKED, NEW_MACHINE, TERMINATED, welcome
from nodeheal.services.recorded_answer import answer_id
from nodeheal.services.replace_machine import is_under_way, replace_machine
from nodeheal.services.replacement_slots import REPLACEMENT
from nodeheal.services.steps import no_diagnosis_yet
from nodeheal.services.stop_gang import run_key
from nodeheal.services.stop_start import is_begun
from nodeheal.services.wait_for_approval import APPROVAL, approval_key
from tests.unit.builders import ACT, NOW, node, started_job, xid
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, SPARE
from tests.workflows.scenarios.races import JOB, Moment
from tests.workflows.stories import NEW, TEMPLATE


def opened() -> tuple[Moment, StepRequest]:
    """An incident is open on a node, and is at its second turn."""
    it = Moment()
    ingest(xid(79), it.plain, ACTS)
    broken = it.plain.nodes.get(BROKEN)
    assert broken is not None
    mine = str(broken.open_incident)
    decision = Decision(step=Step.REBOOT, reason="it failed", node_id=BROKEN, job_id="llama")
    return it, StepRequest(incident_id=mine, turn=1, decision=decision)


def waiting(kind: str, mine: StepRequest, **said: object) -> Wait:
    known = {"command_id": ASKED, "request_json": mine.model_dump_json(), **said}
    return replace(Wait(kind, BROKEN, "token", mine.incident_id, NOW), **known)  # type: ignore[arg-type]


def another_incident_waits_for_a_boot() -> list[str]:
    it, mine = opened()
    it.plain.waits.save(waiting(BOOT, mine, incident_id="inc-of-another", boot_id="boot-1"))
    it.does(lambda: look_once(mine, it.ports))
    return [] if it.plain.waits.get(BOOT, BROKEN) is not None else ["what another incident waits for is forgotten"]


def another_incident_waits_for_the_gang() -> list[str]:
    it, mine = opened()
    started_job(JOB, [node(SPARE, version=1)], it.plain)
    key = run_key("llama", 1)
    it.plain.waits.save(waiting(GANG_RUNNING, mine, key=key, incident_id="inc-of-another"))
    again = mine.model_copy(update={"decision": mine.decision.model_copy(update={"step": Step.RESTART_WORKLOAD})})
    it.does(lambda: look_once(again, it.ports))
    return [] if it.plain.waits.get(GANG_RUNNING, key) is not None else ["what another waits for is forgotten"]


def another_incident_replaces_it() -> list[str]:
    it, mine = opened()
    it.plain.waits.save(waiting(REPLACEMENT, mine, incident_id="inc-of-another"))
    return ["another incident's replacement is taken for its own"] if is_under_way(mine, it.plain) else []


def an_earlier_turn_has_replaced_it() -> list[str]:
    it, mine = opened()
    it.plain.waits.save(waiting(REPLACEMENT, mine.model_copy(update={"turn": 0})))
    return ["another turn's replacement is taken for its own"] if is_under_way(mine, it.plain) else []


def another_incident_has_stopped_it() -> list[str]:
    it, mine = opened()
    it.plain.waits.save(waiting(BOOT, mine, incident_id="inc-of-another", command_id=STARTING))
    return ["another incident's stop is taken for its own"] if is_begun(mine, it.plain) else []


def an_earlier_turn_has_stopped_it() -> list[str]:
    it, mine = opened()
    it.plain.waits.save(waiting(BOOT, mine.model_copy(update={"turn": 0}), command_id=STARTING))
    return ["another turn's stop is taken for its own"] if is_begun(mine, it.plain) else []


def it_had_booted_right_before_its_start() -> list[str]:
    """The boot that is to be left began seconds before."""
    it, mine = opened()
    young = node(BROKEN, boot_id="boot-2", booted_at=NOW)
    note_boot(mine, young, it.plain, LEFT)
    return ["a boot that was to be left is taken for the next one"] if is_started(mine, young, it.plain) else []


def a_boot_of_before_its_start_is_told_after_it() -> list[str]:
    it, mine = opened()
    note_boot(mine, node(BROKEN, boot_id="boot-1"), it.plain, LEFT)
    told = node(BROKEN, boot_id="boot-2", booted_at=NOW - timedelta(minutes=5))
    return ["a boot of before the start is taken for one after"] if is_started(mine, told, it.plain) else []


def an_earlier_turns_machine_comes_up() -> list[str]:
    """The turn that launched it is over, and another one waits for another machine."""
    it, mine = opened()
    it.is_written(state=NodeState.RECOVERING)
    it.plain.waits.save(waiting(REPLACEMENT, mine, token="of this turn", line=(group_line("asg"), "1")))
    it.plain.waits.save(waiting(NEW_MACHINE, mine, key=NEW, twin=(REPLACEMENT, BROKEN), token="of an earlier turn"))
    new = node(NEW, provider=Provider.ec2)
    it.plain.nodes.save(new)
    it.does(lambda: welcome(new, it.ports))
    resumed = it.plain.workflows.resumed  # type: ignore[attr-defined]
    return ["a machine of an earlier turn has ended this one's wait"] if resumed else []


def a_human_has_given_it_back_when_the_late_machine_comes() -> list[str]:
    it, mine = opened()
    it.is_written(open_incident=None)
    owed = waiting(LATE, mine)
    it.plain.waits.save(owed)
    return ["nobody misses it, and a human is told"] if tell_of_late(owed, node(NEW), "asg", it.plain) else []


def its_workflow_will_look_for_the_late_machine() -> list[str]:
    it, mine = opened()
    waits = Decision(step=Step.WAIT, reason="none to be had", node_id=BROKEN, awaits=Awaited.CAPACITY)
    turned(it, mine, waits)
    owed = waiting(LATE, mine)
    return ["a human is told of what comes by itself"] if tell_of_late(owed, node(NEW), "asg", it.plain) else []


def turned(it: Moment, mine: StepRequest, decision: Decision, result: StepResult | None = None) -> None:
    """Its first turn is on record, and how that went."""
    incident = it.plain.incidents.history(mine.incident_id).incident
    entries = [decision_entry(0, decision, NOW), *([result_entry(0, result)] if result is not None else [])]
    it.plain.incidents.advance(replace(incident, turn=1, state=IncidentState.WAITING), entries)


def a_silent_node_is_written_while_it_is_looked_at() -> list[str]:
    it = Moment("nodes.save", lambda it: it.is_written(last_seen=NOW + timedelta(hours=3)))
    beats = {BROKEN: Heartbeat(f"role:{BROKEN}", "boot-1", NOW + timedelta(seconds=90), 30.0)}
    it.plain.clock.advance(3 * 3_600)  # type: ignore[attr-defined]
    silent = it.does(lambda: list(hear_silence._still_silent([BROKEN], beats, it.ports, ACT)))
    return [f"{one.node_id} has just been heard" for one in silent]


def ec2_still_shows_a_machine_that_this_turn_has_terminated() -> list[str]:
    it, mine = opened()
    it.is_written(state=NodeState.RECOVERING)
    it.plain.machines.machines[BROKEN] = TEMPLATE  # type: ignore[attr-defined]
    it.plain.waits.save(waiting(REPLACEMENT, mine, command_id=TERMINATED))
    broken, again = node(BROKEN, provider=Provider.ec2), mine.model_copy(update={"task_token": "token"})
    knobs = Replacement(terminate_first=True)
    it.does(lambda: replace_machine(again, broken, it.ports, knobs))
    return ["it was terminated twice"] if it.plain.machines.given_back else []  # type: ignore[attr-defined]


def the_first_answer_was_recorded_by_a_call_that_died() -> list[str]:
    """Who says no after a yes is told that the yes holds, although nobody has acted on it yet."""
    it, mine = opened()
    question = Question(mine.incident_id, 1)
    blank = no_diagnosis_yet(node(BROKEN), it.plain).model_dump_json()
    later = NOW + timedelta(hours=1)
    it.plain.waits.save(waiting(APPROVAL, mine, key=approval_key(question), deadline_at=later, result_json=blank))
    yes = TimelineEntry(NOW, "answer", answer_id(question), "approved by ada", Answer.approve.value)
    it.plain.incidents.append(mine.incident_id, yes)
    told = answer_approval(question, Answer.refuse, "bob", "", it.plain)
    return ["he is told that his answer holds, and another one does"] if told.is_taken else []


def the_answer_comes_when_its_workflow_has_given_up() -> list[str]:
    it, mine = opened()
    asked = Decision(step=Step.WAIT, reason="may it be touched?", node_id=BROKEN, awaits=Awaited.APPROVAL)
    blank = no_diagnosis_yet(node(BROKEN), it.plain)
    turned(it, mine, asked, blank.model_copy(update={"outcome": Outcome.TIMED_OUT, "reason": "nobody answered"}))
    question, later = Question(mine.incident_id, 1), NOW + timedelta(hours=1)
    known = {"key": approval_key(question), "deadline_at": later, "result_json": blank.model_dump_json()}
    it.plain.waits.save(waiting(APPROVAL, mine, **known))
    it.plain.workflows.expired.add("token")  # type: ignore[attr-defined]
    told = answer_approval(question, Answer.approve, "ada", "", it.plain)
    return ["he is told that his yes counts, and it came too late"] if told.is_taken else []
