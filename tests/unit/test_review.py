"""An incident read back: its phases, its decisions, what it cost, and what many of them add up to."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodeheal.contract.names import DRILL_MARK, JOB_SOURCE
from nodeheal.contract.results import EvidenceSaved, StepResult
from nodeheal.contract.steps import Decision
from nodeheal.contract.vocabulary import Awaited, Ending, Family, IncidentState, Outcome, Step
from nodeheal.domain.jobs.job import GangTask, Run
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.incident import History, Incident, read_history
from nodeheal.domain.recovery.timeline import (
    ApprovalAnswered,
    AttemptReserved,
    NodeReleased,
    Payload,
    TimelineEntry,
    decision_entry,
    event_entry,
    result_entry,
)
from nodeheal.domain.review.incident_stats import spread, summarize
from nodeheal.domain.review.review import Accelerators, Review, review_of
from nodeheal.services.operators.review_incidents import list_incidents, review_incident
from nodeheal.services.steps import save_node
from tests.support.builders import NOW, FrozenClock, memory_ports, node, xid
from tests.support.jobs import ecs_job

EIGHT = Accelerators(node=8, others=16)
END = NOW + timedelta(hours=10)


APPROVED = ApprovalAnswered(Answer.approve)


class Told:
    """An incident as its timeline tells it; times are seconds after the fault."""

    def __init__(self, evidence: str = "NVRM: Xid", job_id: str | None = "llama") -> None:
        root = xid(evidence=evidence, component_serial="1650")
        self.incident = Incident("inc-1", root.node_id, "demo", root, at(4), "policy-1", job_id=job_id)
        self.entries = [event_entry(root)]
        self.turns = 0

    def step(
        self,
        step: Step,
        began: float,
        ended: float,
        outcome: Outcome = Outcome.DONE,
        awaits: Awaited | None = None,
        facts: EvidenceSaved | None = None,
    ) -> "Told":
        decision = Decision(step=step, reason=f"for {step}", node_id="mi-1", awaits=awaits, fault="XID 79 (off bus)")
        result = StepResult(step=step, node_id="mi-1", outcome=outcome, reason="ok", finished_at=at(ended), facts=facts)
        self.entries += [decision_entry(self.turns, decision, at(began)), result_entry(self.turns, result)]
        self.turns += 1
        return self

    def said(
        self, entry_id: str, seconds: float, text: str, payload: Payload | None = None, turn: int | None = None
    ) -> "Told":
        self.entries.append(TimelineEntry(at(seconds), entry_id, text, payload, turn))
        return self

    def ended(self, seconds: float, ending: Ending = Ending.RECOVERED) -> "Told":
        state = IncidentState.ESCALATED if ending is Ending.HANDED_TO_A_HUMAN else IncidentState.CLOSED
        self.incident = replace(self.incident, state=state, ending=ending, closed_at=at(seconds))
        return self

    @property
    def history(self) -> History:
        return read_history(self.incident, self.entries)

    def review(self, accelerators: Accelerators = EIGHT) -> Review:
        return review_of(self.history, accelerators, END)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def recovered() -> Told:
    """A reboot recovery: isolated at 5, back at 3605, the job running at 7205."""
    told = Told().step(Step.ISOLATE, 5, 25).step(Step.REBOOT, 25, 325).step(Step.DIAGNOSE, 325, 600)
    return told.step(Step.RETURN, 600, 3605).step(Step.RESTART_WORKLOAD, 3605, 7205).ended(7210)


def test_each_part_has_its_time() -> None:
    found = recovered().review().phase_seconds

    assert found == {
        "detected": 4,
        "isolated": 20,
        "rebooted": 300,
        "diagnosed": 275,
        "returned": 3005,
        "job running again": 3600,
    }


def test_what_came_twice_is_added_up_and_waits_say_what_for() -> None:
    told = Told().step(Step.WAIT, 1, 11, awaits=Awaited.JOB_END).step(Step.DIAGNOSE, 11, 21)
    told.step(Step.DIAGNOSE, 30, 35).step(Step.WAIT, 40, 41, awaits=Awaited.APPROVAL)

    found = told.review().phase_seconds

    assert found == {"detected": 4, "waited for job end": 10, "diagnosed": 15, "waited for approval": 1}


def test_a_step_that_was_refused_has_no_time_and_a_wait_that_ended_so_has() -> None:
    told = Told().step(Step.ISOLATE, 5, 25, Outcome.REFUSED).step(Step.REBOOT, 25, 35, Outcome.TIMED_OUT)
    told.step(Step.WAIT, 40, 45, Outcome.REFUSED, awaits=Awaited.APPROVAL)

    found = told.review().phase_seconds

    assert found == {"detected": 4, "rebooted": 10, "waited for approval": 5}


def test_a_step_that_is_under_way_has_no_time_yet() -> None:
    decision = Decision(step=Step.REBOOT, reason="first escalation step", node_id="mi-1", policy_version="policy-2")
    told = Told().step(Step.ISOLATE, 5, 25)
    told.entries.append(decision_entry(1, decision, at(25)))

    review = told.review()

    assert "rebooted" not in review.phase_seconds
    assert (review.decisions[1].outcome, review.decisions[1].policy_version) == ("", "policy-2")
    assert review.decisions[0].policy_version == "policy-1"


def test_the_node_is_lost_until_its_return_and_the_others_until_the_job_runs() -> None:
    assert recovered().review().lost_accelerator_hours == 8 * 1 + 16 * 2


def test_without_a_job_only_the_node_is_lost() -> None:
    told = Told(job_id=None).step(Step.ISOLATE, 5, 25).step(Step.RETURN, 25, 3605).ended(3605)

    assert told.review(Accelerators(node=8)).lost_accelerator_hours == 8


def test_where_only_the_job_is_restarted_all_are_lost_until_it_runs() -> None:
    told = Told().step(Step.RESTART_WORKLOAD, 0, 1800).ended(1801)

    assert told.review().lost_accelerator_hours == 12


def test_where_nothing_is_touched_nothing_is_lost() -> None:
    told = Told().ended(3600, Ending.OBSERVED_ONLY)
    refused = Told().step(Step.ISOLATE, 0, 3600, Outcome.REFUSED).ended(3600, Ending.OBSERVED_ONLY)

    assert told.review().lost_accelerator_hours == 0
    assert refused.review(Accelerators(node=8)).lost_accelerator_hours == 0


def test_a_node_that_stays_out_is_lost_until_a_human_gives_it_back() -> None:
    told = Told(job_id=None).step(Step.ISOLATE, 0, 20).ended(60, Ending.HANDED_TO_A_HUMAN)

    assert told.review(Accelerators(node=8)).lost_accelerator_hours == 80
    told.said("released-20260301T040000", 3600, "mi-1 given back by hand: board exchanged", NodeReleased())
    assert told.review(Accelerators(node=8)).lost_accelerator_hours == 8


def test_the_story_has_answers_attempts_and_links() -> None:
    links = {"link": "s3://bucket/inc-1.tar.gz", "console": "https://console.example"}
    told = Told().said("answer-0000", 9, "approved by ada: go", APPROVED)
    told.said("attempt-reserved-0001", 10, "attempt reserved: 1 of 1", AttemptReserved())
    told.step(Step.FREEZE_EVIDENCE, 10, 12, facts=EvidenceSaved(**links, size_bytes=77))

    review = told.review()

    assert review.told.answers == ("approved by ada: go",)
    assert review.told.attempts == ("attempt reserved: 1 of 1",)
    assert review.told.evidence == tuple(links.values())
    assert review.told.timeline[-1].seconds == 12
    assert review.fault_page == "docs/reference/faults.md#xid-79"


def test_of_one_time_an_event_comes_first_and_a_decision_before_its_result() -> None:
    told = Told().step(Step.ISOLATE, 0, 0).step(Step.REBOOT, 0, 5).said("reboot-sent-0001", 0, "sent", turn=1)
    told.said("isolated-0000", 0, "draining", turn=0).said("owner-not-told", 0, "no email")

    history = read_history(told.incident, list(reversed(told.entries)))

    kinds = [entry.entry_id.rpartition("-")[0] for entry in history.timeline]
    assert kinds[0].startswith("event")
    assert kinds[1:] == ["decision", "isolated", "result", "decision", "reboot-sent", "owner-not", "result"]


def test_the_subject_says_how_it_stands_where_and_why() -> None:
    node = xid().node_id

    assert recovered().review().subject == f"recovered: {node}, llama: XID 79 (off bus)"
    assert Told(job_id=None).review().subject.startswith(f"open: {node}, no job of ours: XID 79 (")


def test_times_to_recover_are_spread() -> None:
    found = spread([100, 10, 20, 30, 40, 50, 60, 70, 80, 90])

    assert (found.incidents, found.mean, found.median, found.p90) == (10, 55, 55, 90)
    with pytest.raises(ValueError, match="nothing"):
        spread([])


def test_a_tally_counts_causes_endings_and_who_comes_again() -> None:
    first = recovered().review()
    second = replace(first, incident_id="inc-2", closed_at=at(10))
    third = replace(first, incident_id="inc-3", node_id="mi-other", ending=Ending.HANDED_TO_A_HUMAN, serial="2")

    stats = summarize([first, second, third])

    assert (stats.incidents, stats.drills) == (3, 0)
    assert stats.time_to_recover is not None
    assert (stats.time_to_recover.incidents, stats.time_to_recover.mean) == (2, 3610)
    assert stats.by_cause == {"XID 79 (off bus)": 3}
    assert stats.by_ending == {"RECOVERED": 2, "HANDED_TO_A_HUMAN": 1}
    assert stats.accelerators_again == {"1650": 2}
    assert stats.nodes_again == {first.node_id: 2}


def test_a_tally_counts_racks_and_each_day_from_the_first_to_the_last() -> None:
    first = replace(recovered().review(), rack="r1")
    later = first.opened_at + timedelta(days=2)
    handed = replace(first, incident_id="inc-2", opened_at=later, ending=Ending.HANDED_TO_A_HUMAN)
    of_program = replace(first, incident_id="inc-3", opened_at=later, is_of_program=True)

    stats = summarize([first, handed, of_program])

    assert stats.by_rack == {"r1": 2}
    assert [(day.incidents, day.recovered) for day in stats.days] == [(1, 1), (0, 0), (2, 1)]
    assert stats.days[0].day == first.opened_at.date()
    assert stats.days[2].lost_accelerator_hours == pytest.approx(2 * first.lost_accelerator_hours)


def test_what_a_human_has_approved_was_not_recovered_by_nodeheal_alone() -> None:
    approved = recovered().said("answer-0001", 90, "approved by ada: go", APPROVED).review()

    stats = summarize([recovered().review(), replace(approved, incident_id="inc-2")])

    assert approved.seconds_to_recover is None
    assert stats.time_to_recover is not None
    assert stats.time_to_recover.incidents == 1
    assert stats.by_ending == {"RECOVERED": 2}


def test_a_node_does_not_come_again_for_failures_of_a_program_on_it() -> None:
    def failed(step: Step) -> Review:
        told = Told().step(step, 5, 25).ended(60)
        root = told.incident.root.model_copy(update={"source": JOB_SOURCE, "family": Family.task, "code": "exit_1"})
        told.incident = replace(told.incident, root=root)
        return told.review()

    restarted, isolated = failed(Step.RESTART_WORKLOAD), failed(Step.ISOLATE)

    stats = summarize([restarted, restarted, recovered().review()])
    assert (stats.incidents, stats.nodes_again, stats.accelerators_again) == (3, {}, {})
    assert summarize([isolated, recovered().review()]).nodes_again == {isolated.node_id: 2}


def test_what_was_asked_for_is_counted_apart_and_only_in_the_hours_lost() -> None:
    first = recovered().review()
    asked = replace(first, incident_id="inc-2", is_found=False)

    stats = summarize([first, asked, replace(asked, incident_id="inc-3")])

    assert (stats.incidents, stats.asked, stats.nodes_again, stats.accelerators_again) == (1, 2, {}, {})
    assert stats.time_to_recover is not None
    assert stats.time_to_recover.incidents == 1
    assert (stats.by_cause, stats.by_ending) == ({"XID 79 (off bus)": 1}, {"RECOVERED": 1})
    assert stats.lost_accelerator_hours == pytest.approx(3 * first.lost_accelerator_hours)


def test_a_drill_is_counted_as_one_and_in_nothing_else() -> None:
    drill = Told(evidence=f"NVRM: Xid 79 {DRILL_MARK}").ended(5).review()

    stats = summarize([drill])

    assert drill.is_drill
    assert (stats.incidents, stats.drills, stats.time_to_recover, stats.by_cause) == (0, 1, None, {})


@pytest.mark.parametrize(("run_at", "hours"), [(-60, 12), (30, 8)], ids=["struck", "launched after the fault"])
def test_the_other_nodes_are_those_of_the_run_that_the_fault_struck(run_at: float, hours: float) -> None:
    clock = FrozenClock()
    ports = memory_ports(clock)
    told = Told().step(Step.ISOLATE, 5, 25)
    for name, accelerators in ((told.incident.node_id, 8), ("mi-peer", 4), ("mi-idle", 16)):
        ports.nodes.save(node(name, accelerators=accelerators))
    assert ports.incidents.open(told.incident, replace(node(told.incident.node_id), version=1))
    save_node(ports, node(told.incident.node_id), accelerators=8)
    for entry in told.entries:
        ports.incidents.append("inc-1", entry)
    tasks = tuple(GangTask(name, rank, "boot-1", "here") for rank, name in enumerate((xid().node_id, "mi-peer")))
    ports.jobs.save(ecs_job("llama", "demo", "training", "trainer", "main", 2, current_run=1))
    ports.jobs.save_run(Run("llama", 1, at(run_at), "submitted", tasks))

    clock.advance(5 + 3_600)

    assert review_incident("inc-1", ports).lost_accelerator_hours == hours


def test_of_those_that_are_a_humans_none_is_listed_that_is_under_way() -> None:
    ports = memory_ports()
    heads: Any = ports.incidents
    for state in IncidentState:
        heads.incidents[state] = replace(Told().incident, incident_id=state, state=state)

    found = list_incidents(ports, ["demo"], [IncidentState.ESCALATED], NOW - timedelta(hours=1))

    assert [one.incident_id for one in found] == [IncidentState.ESCALATED]
