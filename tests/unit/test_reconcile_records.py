"""What restored records say wrongly is set right by what is the case: each correction, and nothing beside."""

from dataclasses import replace
from typing import Any

import pytest

from nodeheal.contract.acts import Reconcile, RecordsReconciled
from nodeheal.contract.names import JOB_VARIABLE, RUN_VARIABLE
from nodeheal.contract.vocabulary import Action, IncidentState, JobState, NodeState, Provider, VerbName
from nodeheal.domain.errors import HalfDone, NotAccepted
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.operation import incident_owner, job_owner
from nodeheal.domain.records_epoch import Epoch
from nodeheal.ports.compute import Started
from nodeheal.services.operators.reconcile_records import reconcile_records
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.records_epoch import refuse_if_gone_back
from nodeheal.services.sweep import page_gone_back
from nodeheal.simulation.hazards import Died
from nodeheal.simulation.injected_failures import How, InjectedFailure
from tests.support.acts import ADA
from tests.support.builders import (
    ACT,
    NOW,
    node,
    scheduler_in,
    stored_job,
    under_way,
)
from tests.support.fuse import Fuse, fused
from tests.support.places import place_called, places
from tests.support.restored_records import HOUR, WHY, A, C, Restored

MODULE = "services/operators/reconcile_records.py"


def about(answer: RecordsReconciled) -> list[str]:
    return [correction.about for correction in answer.corrections]


def test_records_that_are_whole_are_left_alone() -> None:
    it = Restored()
    it.ports.epoch.in_table = NOW  # type: ignore[attr-defined]
    it.started(Started(node_id=A))

    assert it.reconcile() == RecordsReconciled(is_over=True)
    assert it.attempts(A) == 0


def test_nobody_acts_before_the_records_are_set_right_and_everybody_after() -> None:
    it = Restored()
    with pytest.raises(NotAccepted, match=r"the records went back to 2026-.*: nodeheal does nothing"):
        refuse_if_gone_back(it.ports)

    assert it.reconcile().is_over

    refuse_if_gone_back(it.ports)
    assert it.ports.epoch.read() == Epoch(NOW, NOW)


def test_people_are_paged_once_for_a_restore() -> None:
    it = Restored()
    epoch = it.ports.epoch.read()
    assert page_gone_back(epoch, it.ports)
    [(_, page)] = it.ports.notifier.announced  # type: ignore[attr-defined]
    it.ports.notifier.mark_sent(page.key)

    assert not page_gone_back(epoch, it.ports)
    assert page.severity == "PAGE"
    assert "nodeheal reconcile --dry-run" in page.body


def test_what_would_be_set_right_is_said_and_nothing_is_done() -> None:
    it = Restored()
    incident = it.incident()
    scheduler_in(it.ports).draining.add(A)

    answer = it.reconcile(is_to_apply=False)

    assert about(answer) == [A, incident, A]
    assert not answer.is_over
    assert it.node().state is NodeState.HEALTHY
    assert it.ports.incidents.incident(incident).state is IncidentState.OPEN
    assert it.ports.epoch.read().has_gone_back


def test_an_incident_that_is_open_on_record_is_a_humans_and_its_operations_end() -> None:
    it = Restored()
    incident = it.incident()
    under_way(it.ports, VerbName.WAIT, incident_id=incident)
    under_way(it.ports, VerbName.REBOOT, incident_id=incident, operation_id="reboot")
    other = under_way(it.ports, VerbName.REBOOT, incident_id="inc-other", operation_id="other")

    it.reconcile()

    after = it.ports.incidents.incident(incident)
    assert after.state is IncidentState.ESCALATED
    assert WHY in after.summary
    assert it.ports.operations.open_of(incident_owner(incident)) == []
    assert list(it.ports.operations.open_of(other.owner)) == [other]
    assert it.node().open_incident is None  # it is in service: its next fault is news
    assert it.ports.pools.holders("demo") == []


def test_a_node_in_service_on_record_that_a_recovery_has_drained_is_held_for_a_human() -> None:
    it = Restored()
    it.started(Started(node_id=A))
    scheduler_in(it.ports).draining.add(A)

    it.reconcile()

    held = it.node()
    assert (held.state, held.drained_by_us) == (NodeState.QUARANTINED, True)
    assert it.ports.incidents.incident(str(held.open_incident)).state is IncidentState.ESCALATED
    assert it.ports.pools.holders("demo") == [A]
    release_node(A, "ada: looked at it", it.ports)
    assert it.node().state is NodeState.HEALTHY
    assert scheduler_in(it.ports).draining == set()
    assert it.ports.pools.holders("demo") == []


def test_what_a_person_has_drained_stays_theirs() -> None:
    it = Restored()
    it.started(Started(node_id=C))
    scheduler_in(it.ports).draining |= {A, C}
    scheduler_in(it.ports).held_by_people.add(C)

    it.reconcile()

    assert it.node(A).state is NodeState.HEALTHY  # no recovery was at it
    assert it.node(C).state is NodeState.HEALTHY
    assert scheduler_in(it.ports).draining == {A, C}


def test_a_node_out_of_service_on_record_that_its_scheduler_has_in_service_is_in_service() -> None:
    it = Restored()
    incident = it.incident()
    it.change(state=NodeState.ISOLATED, drained_by_us=True, open_incident=incident)
    it.ports.pools.claim("demo", A, 1)

    it.reconcile()

    assert (it.node().state, it.node().open_incident, it.node().drained_by_us) == (NodeState.HEALTHY, None, False)
    assert it.ports.incidents.incident(incident).state is IncidentState.CLOSED
    assert it.ports.pools.holders("demo") == []


def test_a_node_that_is_isolated_and_drained_is_a_humans_with_its_incident() -> None:
    it = Restored()
    incident = it.incident()
    it.change(state=NodeState.ISOLATED, drained_by_us=True, open_incident=incident)
    scheduler_in(it.ports).draining.add(A)

    it.reconcile()

    assert (it.node().state, it.node().open_incident) == (NodeState.QUARANTINED, incident)


def test_a_machine_that_is_gone_is_retired_and_has_no_job() -> None:
    it = Restored()
    it.change(state=NodeState.ISOLATED, provider=Provider.ec2, instance_id="i-gone", job_id="llama")

    it.reconcile()

    assert (it.node().state, it.node().job_id) == (NodeState.RETIRED, None)


def test_all_attempts_of_a_node_that_a_recovery_was_at_count_as_spent_once() -> None:
    it = Restored()
    it.started(Started(node_id=A))
    it.started(Started(node_id="i-invented"))

    it.reconcile(is_to_apply=False)
    assert it.attempts(A) == 0
    it.reconcile()

    assert it.attempts(A) == ACT.limits[Action.REBOOT].limit
    assert it.attempts(C) == it.attempts("i-invented") == 0


def test_a_job_whose_workflow_watches_the_ranks_on_record_trains_on() -> None:
    it = Restored()
    it.job()

    answer = it.reconcile()

    assert about(answer) == []
    assert answer.is_over
    assert stored_job(it.ports, "llama").state is JobState.RUNNING
    assert scheduler_in(it.ports).stopped == {}


@pytest.mark.parametrize("how", ["ended", "another run", "not watched"])
def test_a_job_whose_workflow_is_elsewhere_is_a_humans_and_can_be_restarted(how: str) -> None:
    it = Restored()
    it.job()
    if how == "ended":
        it.ports.workflows.ended.add(("llama", 1))  # type: ignore[attr-defined]
    elif how == "another run":
        scheduler_in(it.ports).stopped["task-llama-1-0"] = "the recovery"
    else:
        [watch] = it.ports.operations.open_of(job_owner("llama"))
        assert it.ports.operations.save(watch.delivered())

    it.reconcile()

    job = stored_job(it.ports, "llama")
    assert job.waits_for_a_human
    assert WHY in job.summary
    assert job.submission == 2  # the old execution is superseded
    assert it.ports.operations.open_of(job_owner("llama")) == []


def test_a_submission_that_is_not_on_record_leaves_its_name_to_nobody() -> None:
    """Step Functions starts no second execution of a name: the job would wait for ever."""
    it = Restored()
    it.job()
    it.started(Started(job_id="llama", submission=4))
    it.started(Started(job_id="lost", submission=1))

    answer = it.reconcile()

    assert stored_job(it.ports, "llama").submission == 5
    assert [one.text for one in answer.corrections if one.about == "lost"] == [
        "it is not on record: submit it again, under another name"
    ]


def test_a_rank_of_a_run_that_is_not_on_record_is_stopped_and_waited_for() -> None:
    it = Restored()
    run = it.job()
    scheduler = scheduler_in(it.ports)
    lost = replace(run, job_id="lost")
    job = replace(stored_job(it.ports, "llama"), job_id="lost")
    stop, scheduler.stop_rank = scheduler.stop_rank, lambda *named: None  # it has its grace
    rank = scheduler.start_rank(job, lost, run.tasks[0], {JOB_VARIABLE: "lost", RUN_VARIABLE: "1"})

    first = it.reconcile()
    assert first.waits_for == (f"{rank} of lost",)
    assert not first.is_over
    scheduler.stop_rank = stop
    it.reconcile()
    last = it.reconcile()

    assert last.is_over
    assert list(scheduler.stopped) == [rank]


def test_what_cannot_be_set_right_is_named_and_keeps_no_other_of_its_stage_from_it() -> None:
    it = Restored()
    scheduler_in(it.ports).draining |= {A, C}
    for node_id in (A, C):
        it.started(Started(node_id=node_id))
    claim, refused = it.ports.pools.claim, {A}

    def claims(pool: str, node_id: str, slots: int) -> bool:
        if node_id in refused:
            raise RuntimeError(f"{node_id} is denied")  # as an SDK's error
        return claim(pool, node_id, slots)

    it.ports.pools.claim = claims  # type: ignore[method-assign]

    with pytest.raises(HalfDone, match=rf"could not be set right: {A}: {A} is denied; the same command"):
        it.reconcile()
    states = {node_id: it.node(node_id).state for node_id in (A, C)}
    refused.clear()

    assert it.reconcile().is_over
    assert states == {A: NodeState.HEALTHY, C: NodeState.QUARANTINED}
    assert it.node(A).state is NodeState.QUARANTINED


def test_no_node_is_given_back_before_its_attempts_are_counted() -> None:
    """What gives it back takes away the sign by which the next call would know that attempts are owed."""
    it = Restored()
    it.change(state=NodeState.ISOLATED, drained_by_us=True, open_incident="inc-gone")
    reserve = it.ports.attempts.reserve

    def throttled(*_: object) -> tuple[bool, int]:
        raise NotAccepted("throttled")

    it.ports.attempts.reserve = throttled  # type: ignore[method-assign,assignment]
    with pytest.raises(HalfDone, match="throttled"):
        it.reconcile()
    it.ports.attempts.reserve = reserve  # type: ignore[method-assign]

    assert it.node().state is NodeState.ISOLATED
    assert it.reconcile().is_over
    assert it.attempts(A) == ACT.limits[Action.REBOOT].limit


def test_a_machine_that_is_not_on_record_is_named_for_a_person() -> None:
    it = Restored()
    it.started(Started(node_id="mi-new"))
    beat = Heartbeat("AROA1:mi-new", "boot-1", NOW, 60.0)
    it.ports.heartbeats.beats[beat.who] = beat  # type: ignore[attr-defined]

    answer = it.reconcile()

    assert "mi-new" in about(answer)
    assert it.attempts("mi-new") == ACT.limits[Action.REBOOT].limit
    assert it.ports.nodes.get("mi-new") is None


class Broken(Restored):
    """One of everything that is to be set right, and a command that breaks at one of its writes."""

    def __init__(self, *failures: InjectedFailure) -> None:
        super().__init__()
        self.fuse = Fuse(failures, writes_only=True)
        self.places: set[tuple[str, str]] = set()
        incident = self.incident()
        self.ports.pools.claim("demo", A, 9)
        under_way(self.ports, VerbName.WAIT, incident_id=incident)
        others: dict[str, dict[str, Any]] = {
            "mi-held": {},
            "mi-isolated": {"state": NodeState.ISOLATED, "drained_by_us": True, "open_incident": "inc-handed"},
            "mi-gone": {"state": NodeState.RECOVERING, "provider": Provider.ec2, "instance_id": "i-gone"},
            "mi-back": {"state": NodeState.QUARANTINED, "drained_by_us": True},
            "mi-trains": {},
        }
        for node_id, changes in others.items():
            self.ports.nodes.save(node(node_id, accelerators=8, **changes))
        handed = replace(self.ports.incidents.incident(incident), incident_id="inc-handed", node_id="mi-isolated")
        self.ports.incidents.incidents["inc-handed"] = replace(handed, state=IncidentState.ESCALATED)  # type: ignore[attr-defined]
        self.ports.incidents.entries["inc-handed"] = {}  # type: ignore[attr-defined]
        scheduler_in(self.ports).draining |= {"mi-held", "mi-isolated"}
        self.started(Started(node_id="mi-held"))
        run = self.job()
        self.ports.workflows.ended.add(("llama", 1))  # type: ignore[attr-defined]
        lost = replace(stored_job(self.ports, "llama"), job_id="lost")
        variables = {JOB_VARIABLE: "lost", RUN_VARIABLE: "1"}
        scheduler_in(self.ports).start_rank(lost, replace(run, job_id="lost"), run.tasks[0], variables)
        self.fuse.watch = self.note

    def note(self, call: str, given: object, named: object) -> None:
        place = place_called(call)
        self.places |= {(place.module, place.call)} if place is not None else set()

    def command(self) -> RecordsReconciled:
        with self.fuse.working():
            act = Reconcile(why=WHY, is_to_apply=True)
            return reconcile_records(act, ADA, fused(self.ports, self.fuse), ACT)

    def outcome(self) -> object:
        """What is on record afterwards. Whether a human closes an incident or has one left, depends on the break."""
        nodes = {one.node_id: (one.state, one.drained_by_us) for one in self.ports.nodes.in_pool("demo")}
        live = [i for i in self.ports.incidents.incidents.values() if i.is_under_way]  # type: ignore[attr-defined]
        spent = {name: self.attempts(name) for name in nodes}
        waits = self.ports.operations.all_open()  # type: ignore[attr-defined]
        job = stored_job(self.ports, "llama")
        holders = self.ports.pools.holders("demo")
        stopped = sorted(scheduler_in(self.ports).stopped)
        return nodes, live, spent, waits, (job.state, job.submission), holders, stopped


def test_wherever_the_command_breaks_the_next_one_sets_the_rest_right() -> None:
    whole = Broken()
    assert whole.command().is_over
    writes = whole.fuse.calls
    written = {(place.module, place.call) for place in places() if place.module == MODULE} - {(MODULE, "epoch.renew")}
    assert written <= whole.places

    for number in range(1, writes + 1):
        for how in (How.dies_before, How.dies_after):
            it = Broken(InjectedFailure(number, how))
            with pytest.raises(Died):
                it.command()
            assert it.ports.epoch.read().has_gone_back  # nobody acts by what is half right
            it.fuse.injected_failures = ()
            assert it.command().is_over
            assert it.outcome() == whole.outcome(), f"broken at {it.fuse.made[number - 1]}, {how}"


def test_a_sweep_in_between_that_began_before_the_restore_hides_nothing() -> None:
    it = Restored()

    assert not it.ports.epoch.renew(Epoch(NOW, NOW), NOW + HOUR)

    assert it.ports.epoch.read().has_gone_back
