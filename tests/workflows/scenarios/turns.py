"""Whose wait it is, of which turn and of which boot: what is another's must not be taken for one's own.

Each is one service and one moment, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta

from nodeheal.contract.names import group_line
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Awaited, IncidentState, NodeState, Provider, Step
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.policy.policy_models import Replacement
from nodeheal.domain.recovery.incident import decision_entry, result_entry
from nodeheal.ports.storage import Wait
from nodeheal.services.intake import liveness
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.recovery.late_machine import LATE, tell_of_late
from nodeheal.services.recovery.new_machine import ASKED, NEW_MACHINE, TERMINATED, welcome
from nodeheal.services.recovery.replace_machine import is_under_way, replace_machine
from nodeheal.services.recovery.replacement_slots import REPLACEMENT
from tests.unit.builders import ACT, NOW, node, xid
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN
from tests.workflows.scenarios.races import Moment
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


def another_incident_replaces_it() -> list[str]:
    it, mine = opened()
    it.plain.waits.save(waiting(REPLACEMENT, mine, incident_id="inc-of-another"))
    return ["another incident's replacement is taken for its own"] if is_under_way(mine, it.plain) else []


def an_earlier_turn_has_replaced_it() -> list[str]:
    it, mine = opened()
    it.plain.waits.save(waiting(REPLACEMENT, mine.model_copy(update={"turn": 0})))
    return ["another turn's replacement is taken for its own"] if is_under_way(mine, it.plain) else []


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
    silent = it.does(lambda: list(liveness._still_silent([BROKEN], beats, it.ports, ACT)))
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
