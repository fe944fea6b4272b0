"""Tasks of others on a node: named, or stopped and started again once. Nothing is started that we did not stop."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import Action, Ending, IncidentState, Outcome, Phase, Step, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.holder import HeldByPerson
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.fleet.unmanaged_tasks import (
    stopped_tasks,
    tasks_left_running,
    tasks_not_restarted,
)
from nodeheal.domain.policy.policy_models import PoolPolicy
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.incident import incident_id_of
from nodeheal.domain.recovery.timeline import (
    AnswerRefused,
    Payload,
    TaskGone,
    TaskStarted,
    TaskStopped,
    TaskToStop,
    TimelineEntry,
    entries_with,
    payloads_of,
)
from nodeheal.domain.review.review import Accelerators, review_of
from nodeheal.ports.scheduler import NodePlacement
from nodeheal.services.notify.deliver_notification import notify
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.recovery.end_incident import end_incident
from tests.support.builders import ACT, NOW, REQUEUES, behave_as, behave_as_requeueing, scheduler_in, xid
from tests.support.crashes import CALLS_AT_MOST, Crash, crashing
from tests.support.fake_cluster import BROKEN, SPARE, FakeCluster
from tests.support.incident_steps import Incident
from tests.support.step_functions import isolate_node
from tests.support.unmanaged_tasks import EVALUATION, STOPS, STRANGER, cluster_with_unmanaged_tasks, unmanaged_tasks_of


def timeline_of(*payloads: Payload) -> list[TimelineEntry]:
    """A timeline of just these."""
    return [TimelineEntry(NOW, f"entry-{number}", "so", payload) for number, payload in enumerate(payloads)]


def stopped_in(timeline: Iterable[TimelineEntry]) -> list[str]:
    """The tasks whose stop was answered."""
    return [stop.short_id for stop in payloads_of(timeline, TaskStopped)]


def email_of(cluster: FakeCluster) -> str:
    """As one line: an email is wrapped for a phone."""
    return " ".join(cluster.ports.notifier.announced[-1][1].body.split())  # type: ignore[attr-defined]


def test_by_default_the_tasks_of_others_are_named_and_left_to_run() -> None:
    cluster = cluster_with_unmanaged_tasks(ACT)

    cluster.reports(xid(79))

    assert not PoolPolicy().stops_other_tasks
    assert set(unmanaged_tasks_of(cluster).unmanaged) == {EVALUATION.task_id, STRANGER.task_id, "elsewhere"}
    for task in ("nightly-eval:3 (1111, started by cron)", "notebook:1 (2222, started by somebody)"):
        assert f"Others: task {task} was left to run and ended with the reboot" in email_of(cluster)
    assert unmanaged_tasks_of(cluster).unmanaged_started == []


def test_one_that_was_left_to_run_and_ended_with_the_reboot_is_said_to_need_its_owner() -> None:
    cluster = cluster_with_unmanaged_tasks(ACT)

    cluster.reports(xid(79))

    told = email_of(cluster)
    assert "task notebook:1 (2222, started by somebody) was left to run and ended with the reboot; its owner" in told
    assert "Needed: tell the owners of the tasks of others that ended" in told
    assert "Needed: nothing" not in told


def test_one_on_a_node_that_a_spare_has_replaced_unrebooted_still_runs() -> None:
    cluster = cluster_with_unmanaged_tasks(ACT)

    cluster.reports(xid(74))

    assert "was left to run, and nodeheal has done nothing that would end it" in email_of(cluster)
    assert "tell the owners" not in email_of(cluster)


def test_one_on_a_node_that_never_came_back_may_have_ended() -> None:
    cluster = cluster_with_unmanaged_tasks(ACT)
    cluster.node_returns = False

    cluster.reports(xid(79))

    assert "was left to run and may have ended with the reboot" in email_of(cluster)


def test_the_email_names_what_was_started_again_before_it_was_written() -> None:
    cluster = cluster_with_unmanaged_tasks()

    cluster.reports(xid(79))

    assert f"task nightly-eval:3 (1111, started by cron) was started again on {BROKEN}." in email_of(cluster)


def test_where_the_pool_says_so_a_task_whose_owner_agrees_is_stopped_and_started_again_on_its_node() -> None:
    cluster = cluster_with_unmanaged_tasks()

    walked = cluster.reports(xid(79))

    assert walked.end == "Recovered"
    assert set(unmanaged_tasks_of(cluster).unmanaged) == {STRANGER.task_id, "elsewhere"}
    assert unmanaged_tasks_of(cluster).unmanaged_started == [(BROKEN, EVALUATION)]
    told = cluster.ports.incidents.history(cluster.incident_id)
    assert "Others: task nightly-eval:3 (1111, started by cron) was started again on" in email_of(cluster)
    assert told.incident.summary.endswith(
        "llama restarted as run 2, from its beginning unless its program finds a checkpoint"
    )  # and nothing of unmanaged_tasks
    assert tasks_left_running(told.timeline) == ["notebook:1 (2222, started by somebody)"]


def test_what_people_say_makes_no_unmanaged_task() -> None:
    said_no = AnswerRefused(Answer.refuse)
    said = TimelineEntry(NOW, "answer-0001", "refused by ada: task nightly-eval:3 is left to run", said_no)

    assert tasks_left_running([said]) == []


def test_after_a_swap_it_is_started_on_the_spare() -> None:
    cluster = cluster_with_unmanaged_tasks()
    cluster.diagnoses[BROKEN] = Verdict.FAILED

    cluster.reports(xid(79))

    assert unmanaged_tasks_of(cluster).unmanaged_started == [(SPARE, EVALUATION)]


def test_where_no_node_is_left_it_is_named_in_the_ending() -> None:
    cluster = cluster_with_unmanaged_tasks()
    cluster.diagnoses = {BROKEN: Verdict.FAILED, SPARE: Verdict.FAILED}

    cluster.reports(xid(79))

    assert unmanaged_tasks_of(cluster).unmanaged_started == []
    assert "no node is in service to start them on: nightly-eval:3 (1111, started by cron)" in email_of(cluster)


def test_one_whose_start_is_refused_is_named_in_the_ending_and_tried_once() -> None:
    cluster = cluster_with_unmanaged_tasks()
    unmanaged_tasks_of(cluster).unmanaged_refused = "RESOURCE:GPU"

    walked = cluster.reports(xid(79))

    assert walked.end == "Recovered"
    assert "could not be started again: nightly-eval:3 (1111, started by cron)" in email_of(cluster)


def test_one_that_nobody_can_start_again_is_named_in_the_ending() -> None:
    cluster = cluster_with_unmanaged_tasks()
    behave_as(cluster.ports, restarter=None)

    cluster.reports(xid(79))

    assert "could not be started again: nightly-eval:3 (1111, started by cron)" in email_of(cluster)


def test_one_that_ended_by_itself_before_it_could_be_stopped_is_not_started() -> None:
    cluster = cluster_with_unmanaged_tasks()
    unmanaged_tasks = unmanaged_tasks_of(cluster)
    on = unmanaged_tasks.unmanaged_tasks

    def ends_just_now(*where: object) -> object:
        found = on(*where)  # type: ignore[arg-type]
        unmanaged_tasks.unmanaged.pop(EVALUATION.task_id, None)
        unmanaged_tasks.unmanaged_ended.setdefault(EVALUATION.task_id, "Essential container in task exited")
        return found

    unmanaged_tasks.unmanaged_tasks = ends_just_now  # type: ignore[assignment, method-assign]

    cluster.reports(xid(79))

    assert unmanaged_tasks.unmanaged_started == []
    told = [entry.text for entry in cluster.ports.incidents.history(cluster.incident_id).timeline]
    assert not [text for text in told if "stopped, to be started again: nightly-eval" in text]


@pytest.mark.parametrize("crash_after", range(1, CALLS_AT_MOST))
def test_wherever_isolation_and_ending_crash_it_is_stopped_once_and_started_once(crash_after: int) -> None:
    it = Incident(policy=STOPS)
    unmanaged_tasks_of(it).unmanaged = {EVALUATION.task_id: (it.node().node_id, EVALUATION)}
    isolation = it.request()
    ports, _ = crashing(it.ports, crash_after)
    try:
        isolate_node(isolation, ports, STOPS)
    except Crash:
        isolate_node(isolation, it.ports, STOPS)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    it.resumed(), it.reboot(), it.diagnose(), it.give_back(), it.relaunch()

    ending = it.request()
    ports, _ = crashing(it.ports, crash_after)
    try:
        end_incident(ending, ports, STOPS)
    except Crash:
        end_incident(ending, it.ports, STOPS)

    assert unmanaged_tasks_of(it).unmanaged_started == [(it.node().node_id, EVALUATION)]
    assert unmanaged_tasks_of(it).unmanaged == {}


def test_one_whose_stop_was_begun_and_never_answered_is_named_in_the_ending() -> None:
    """The function died there for good, and whoever came after it was told to leave unmanaged_tasks alone."""
    it = Incident(policy=STOPS)
    unmanaged_tasks_of(it).unmanaged = {EVALUATION.task_id: (it.node().node_id, EVALUATION)}
    isolation = it.request()

    def dies(*_: object) -> bool:
        raise Crash

    unmanaged_tasks_of(it).stop_unmanaged_task = dies  # type: ignore[assignment, method-assign]
    with pytest.raises(Crash):
        isolate_node(isolation, it.ports, STOPS)
    isolate_node(isolation, it.ports, ACT)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    it.resumed(), it.reboot(), it.diagnose(), it.give_back(), it.relaunch()
    end_incident(it.request(), it.ports, ACT)

    summary = it.ports.incidents.history(isolation.incident_id).incident.summary
    assert "Look whether these tasks still run, a stop of them was begun: nightly-eval:3 (1111" in str(summary)
    assert unmanaged_tasks_of(it).unmanaged_started == []


def test_a_task_that_had_ended_by_itself_is_not_started_at_the_end_of_the_incident() -> None:
    it = Incident()
    scheduler, isolation = unmanaged_tasks_of(it), it.request()
    behave_as(it.ports, traits=REQUEUES)
    scheduler.unmanaged = {EVALUATION.task_id: (BROKEN, EVALUATION)}
    scheduler.stop_unmanaged_task = lambda *_: False  # type: ignore[method-assign]
    isolate_node(isolation, it.ports, ACT)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    it.resumed(), it.reboot(), it.diagnose(), it.give_back(), it.relaunch()

    end_incident(it.request(), it.ports, ACT)

    history = it.ports.incidents.history(it.id)
    assert scheduler.unmanaged_started == []
    assert "Look whether" not in str(history.incident.summary)


@pytest.mark.parametrize("refused", ["", "2 pods are ending"])
def test_a_task_that_has_stopped_after_the_isolation_is_started_at_the_end_of_the_incident(refused: str) -> None:
    it = Incident()
    scheduler, isolation = unmanaged_tasks_of(it), it.request()
    behave_as(it.ports, traits=REQUEUES)
    scheduler.unmanaged = {EVALUATION.task_id: (BROKEN, replace(EVALUATION, owner_email="ada@example.com"))}

    def is_late(node: Node, task: UnmanagedTask, reason: str) -> bool:
        raise NotAccepted("2 pods are ending")

    scheduler.stop_unmanaged_task = is_late  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        isolate_node(isolation, it.ports, ACT)
    it.clock.advance(isolation.decision.deadline_seconds)
    isolate_node(isolation, it.ports, ACT)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    it.resumed(), it.reboot(), it.diagnose(), it.give_back(), it.relaunch()
    scheduler.unmanaged_refused = refused
    for _ in range(2):  # it is repeated after a crash
        end_incident(it.request(), it.ports, ACT)

    history = it.ports.incidents.history(it.id)
    late = [entry.text for entry in entries_with(history.timeline, TaskStarted)]
    wanted = [] if refused else ["task nightly-eval:3 (1111, started by cron) has stopped late, and is started again"]
    assert late == wanted
    assert ("Look whether these tasks still run" in str(history.incident.summary)) is bool(refused)
    assert len(scheduler.unmanaged_started) == (not refused)
    assert [mail.owner for mail in owners_mails(it)] == ([] if refused else ["ada@example.com"])


def test_a_node_given_back_by_hand_says_nothing_of_tasks_that_its_workflow_still_starts() -> None:
    """It waits for a machine, and finds the node gone when it wakes."""
    it = Incident(policy=STOPS)
    unmanaged_tasks_of(it).unmanaged = {EVALUATION.task_id: (it.node().node_id, EVALUATION)}
    isolate_node(it.request(), it.ports, STOPS)
    it.ports.incidents.finish(replace(it.ports.incidents.history(it.id).incident, state=IncidentState.WAITING))

    release_node(it.node().node_id, "ada: it was the cable", it.ports)

    [line] = [e.text for e in it.ports.incidents.history(it.id).timeline if "given back by hand" in e.text]
    assert line.endswith("ada: it was the cable")


def test_what_we_have_stopped_and_nobody_has_started_is_not_back() -> None:
    ended, started = replace(EVALUATION, task_id="arn:task/3333"), replace(EVALUATION, task_id="arn:task/4444")
    stops: list[Payload] = [TaskToStop(task) for task in (EVALUATION, ended, started)]
    answers = [(EVALUATION, True), (ended, False), (started, True)]
    stops += [TaskStopped(task.short_id, by_us) for task, by_us in answers]
    stops += [TaskStarted(EVALUATION.short_id, ""), TaskStarted(started.short_id, "arn:task/5555")]

    assert tasks_not_restarted(timeline_of(*stops)) == [EVALUATION]


def test_the_same_unmanaged_task_under_another_mark_would_be_another_successor() -> None:
    """The mark is the task's own: two unmanaged_tasks of one definition are two successors."""
    twin = replace(EVALUATION, task_id="arn:task/training/3333")

    assert EVALUATION.mark != twin.mark
    assert len(EVALUATION.mark) < 128


def test_a_scheduler_that_requeues_needs_no_consent_of_the_pool_and_nothing_is_started_for_it() -> None:
    cluster = cluster_with_unmanaged_tasks(ACT)
    behave_as_requeueing(cluster.ports)

    cluster.reports(xid(79))

    told = cluster.ports.incidents.history(cluster.incident_id).timeline
    [requeued] = entries_with(told, TaskStarted)
    assert requeued.text.endswith("was requeued: its scheduler starts it again")
    assert STRANGER.short_id not in stopped_in(told)  # its owner has not agreed
    assert unmanaged_tasks_of(cluster).unmanaged_started == []
    assert tasks_not_restarted(told) == []
    assert "could not be started again" not in email_of(cluster)
    assert "was requeued" in email_of(cluster)


def test_jobs_that_a_fault_has_stopped_are_named_wherever_the_incident_says_whose_work_it_touched() -> None:
    cluster = FakeCluster(ACT)
    scheduler = unmanaged_tasks_of(cluster)
    behave_as_requeueing(cluster.ports)
    gone = replace(STRANGER, before="had been requeued already")
    scheduler.unmanaged = {one.task_id: (SPARE, one) for one in (EVALUATION, gone)}
    fault = xid(79, node_id=SPARE, instance_id=SPARE)  # no job of nodeheal's runs there

    cluster.reports(fault)

    history = cluster.ports.incidents.history(incident_id_of(fault))
    review = review_of(history, Accelerators(), NOW)
    both = "notebook:1 (2222, started by somebody), nightly-eval:3 (1111, started by cron)"
    fates = "task notebook:1 (2222, started by somebody) had been requeued already; task nightly-eval:3 (1111, started"
    assert history.incident.summary.count(fates) == 1
    assert f"{both}: XID 79" in review.subject
    assert review.job == f"none of nodeheal's; of others: {both}"
    email = email_of(cluster)
    assert f"Job: {review.job} Why:" in email
    assert email.count(fates) == 1
    assert STRANGER.short_id not in stopped_in(history.timeline)


def test_a_task_that_a_call_before_has_requeued_is_not_said_to_have_been_gone() -> None:
    it = Incident()
    request = it.request()
    scheduler = unmanaged_tasks_of(it)
    behave_as_requeueing(it.ports)
    scheduler.unmanaged = {EVALUATION.task_id: (BROKEN, EVALUATION)}
    stop = scheduler.stop_unmanaged_task

    def is_lost(node: Node, task: UnmanagedTask, reason: str) -> bool:
        stop(node, task, reason)
        raise NotAccepted("the answer of the controller is lost")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "stop_unmanaged_task", is_lost)
        with pytest.raises(NotAccepted):
            isolate_node(request, it.ports, ACT)
    scheduler.unmanaged = {EVALUATION.task_id: (BROKEN, replace(EVALUATION, before="had been requeued already"))}
    isolate_node(request, it.ports, ACT)

    told = it.ports.incidents.history(it.id).timeline
    assert [started.short_id for started in payloads_of(told, TaskStarted)] == [EVALUATION.short_id]
    assert payloads_of(told, TaskGone) == []


def test_a_node_that_others_have_taken_out_of_service_is_healed_and_said_to_be_left_to_them() -> None:
    cluster = FakeCluster(ACT)
    scheduler = scheduler_in(cluster.ports)
    behave_as_requeueing(cluster.ports)
    hers = NodePlacement("gpu-7", is_schedulable=False, held_by=HeldByPerson("ada", "ada looks"))
    scheduler.placement_of = lambda node: hers
    fault = xid(79, node_id=SPARE, instance_id=SPARE)  # no job of nodeheal's runs there

    cluster.reports(fault)

    told = cluster.ports.incidents.history(incident_id_of(fault))
    kept = "healed; its scheduler still gives it no work (drained by ada: ada looks)"
    assert (told.incident.ending, cluster.node(SPARE).drained_by_us) == (Ending.RECOVERED, False)
    assert kept in str(told.turns[-1].decision.reason)
    assert any("was out of service before (drained by ada: ada looks)" in entry.text for entry in told.timeline)
    assert any(f"is {kept}; on probation until" in entry.text for entry in told.timeline)
    assert kept in email_of(cluster)


@pytest.mark.parametrize(("requeues", "is_told"), [(True, True), (False, False)])
def test_a_scheduler_that_does_not_answer_leaves_a_line_in_the_incident(requeues: bool, is_told: bool) -> None:
    it = Incident()
    if requeues:
        behave_as_requeueing(it.ports)

    def hangs(node: Node) -> NodePlacement:
        raise NotAccepted("the controller has not answered in 15 s")

    scheduler_in(it.ports).placement_of = hangs
    with pytest.raises(NotAccepted):
        isolate_node(it.request(), it.ports, ACT)

    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline]
    assert ("not drained yet, to be tried again: the controller has not answered in 15 s" in told) is is_told


def test_an_isolation_that_is_done_is_believed_though_nobody_can_tell_whose_tasks_are_there() -> None:
    it = Incident()
    asked = it.request()

    def not_known(*_: object) -> list[UnmanagedTask]:
        raise NotAccepted("squeue: no answer within 10 s")

    unmanaged_tasks_of(it).unmanaged_tasks = not_known  # type: ignore[assignment,method-assign]
    with pytest.raises(NotAccepted):  # the workflow asks again
        isolate_node(asked, it.ports, ACT)
    it.clock.advance(asked.decision.deadline_seconds)
    isolate_node(asked, it.ports, ACT)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)

    assert it.resumed().outcome is Outcome.DONE
    assert "tasks of others on" in it.resumed().reason
    assert "may still run: squeue: no answer within 10 s" in it.resumed().reason


@pytest.mark.parametrize(("is_behind_a_machine", "stopped"), [(False, [STRANGER.task_id]), (True, [])])
def test_a_task_that_cannot_be_stopped_yet_keeps_the_others_from_nothing(
    is_behind_a_machine: bool, stopped: list[str]
) -> None:
    """Behind a machine that does not answer, none of them would be answered in time."""
    it = Incident()
    behave_as_requeueing(it.ports)
    scheduler = unmanaged_tasks_of(it)
    behave_as(it.ports, traits=replace(REQUEUES, is_behind_a_machine=is_behind_a_machine))
    tasks = (EVALUATION, replace(STRANGER, may_be_stopped=True))
    scheduler.unmanaged = {task.task_id: (BROKEN, task) for task in tasks}
    stop = scheduler.stop_unmanaged_task

    def budget_of_first(node: Node, task: UnmanagedTask, reason: str) -> bool:
        if task.task_id == EVALUATION.task_id:
            raise NotAccepted("a disruption budget keeps pod default/eval")
        return stop(node, task, reason)

    scheduler.stop_unmanaged_task = budget_of_first  # type: ignore[method-assign]

    with pytest.raises(NotAccepted, match="a disruption budget keeps"):
        isolate_node(it.request(), it.ports, ACT)

    assert list(scheduler.unmanaged_ended) == stopped


@pytest.mark.parametrize(("before", "is_held"), [(9, False), (10, True)])
def test_a_task_that_was_requeued_too_often_is_held_for_a_person(before: int, is_held: bool) -> None:
    cluster = cluster_with_unmanaged_tasks(ACT)
    scheduler, limit = unmanaged_tasks_of(cluster), ACT.limits[Action.RESTART_WORKLOAD]
    behave_as_requeueing(cluster.ports)
    stop = scheduler.stop_unmanaged_task
    asked: list[bool] = []

    def stops(node: Node, task: UnmanagedTask, reason: str) -> bool:
        asked.append(task.is_held)
        return stop(node, task, reason)

    scheduler.stop_unmanaged_task = stops  # type: ignore[method-assign]
    for number in range(before):
        cluster.ports.attempts.reserve(
            f"job#{cluster.node(BROKEN).cluster.name}:{EVALUATION.short_id}", f"inc-{number}", limit
        )

    cluster.reports(xid(79))

    told = "was requeued and is held until a person releases it: 10 of 10 job restarts in 24 h are spent"
    assert asked == [is_held]
    assert (told in email_of(cluster)) is is_held


def test_a_task_that_had_ended_by_itself_is_counted_as_no_restart() -> None:
    cluster = cluster_with_unmanaged_tasks(ACT)
    scheduler, limit = unmanaged_tasks_of(cluster), ACT.limits[Action.RESTART_WORKLOAD]
    behave_as_requeueing(cluster.ports)
    scheduler.stop_unmanaged_task = lambda node, task, reason: False  # type: ignore[method-assign]

    cluster.reports(xid(79))

    scope = f"job#{cluster.node(BROKEN).cluster.name}:{EVALUATION.short_id}"
    assert cluster.ports.attempts.spent(scope, limit) == {Action.RESTART_WORKLOAD: 0}


def test_a_node_of_a_scheduler_that_requeues_is_not_swapped_for_one_that_may_have_jobs() -> None:
    cluster = cluster_with_unmanaged_tasks(ACT)
    behave_as_requeueing(cluster.ports)
    cluster.diagnoses = {BROKEN: Verdict.FAILED}

    cluster.reports(xid(79))

    told = cluster.ports.incidents.history(cluster.incident_id)
    [refused] = [turn.result for turn in told.turns if turn.result and turn.result.step is Step.REPLACE]
    assert (refused.outcome, told.incident.state) == (Outcome.REFUSED, IncidentState.ESCALATED)
    assert "has no replacement.by_cluster" in refused.reason
    assert refused.reason.endswith(": set it to power_down (ParallelCluster) or delete_node_claim (Karpenter)")
    assert cluster.node(SPARE).open_incident is None


@pytest.mark.parametrize("is_wanted", [True, False])
def test_only_at_the_deadline_and_where_the_pool_says_so_a_task_may_be_deleted(is_wanted: bool) -> None:
    pool = ACT.default_pool.model_copy(update={"deletes_blocked_pods": is_wanted})
    policy = ACT.model_copy(update={"default_pool": pool})
    it = Incident()
    scheduler, isolation = unmanaged_tasks_of(it), it.request()
    behave_as(it.ports, traits=REQUEUES)
    scheduler.unmanaged = {EVALUATION.task_id: (BROKEN, EVALUATION)}
    asked: list[bool] = []

    def is_kept(node: Node, task: UnmanagedTask, reason: str) -> bool:
        asked.append(task.may_be_deleted)
        if task.may_be_deleted:
            return True
        raise NotAccepted("a disruption budget keeps it")

    scheduler.stop_unmanaged_task = is_kept  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        isolate_node(isolation, it.ports, policy)
    it.clock.advance(isolation.decision.deadline_seconds)
    isolate_node(isolation, it.ports, policy)

    told = " ".join(entry.text for entry in it.ports.incidents.history(it.id).timeline)
    assert asked == [False, is_wanted]
    assert ("stopped at the deadline, past a disruption budget if one kept it" in told) is is_wanted
    assert ("may still run: a disruption budget keeps it" in told) is not is_wanted


def owners_mails(it: Incident | FakeCluster) -> list[Notification]:
    """The emails to owners, each once."""
    announced = [mail for _, mail in it.ports.notifier.announced if mail.owner]  # type: ignore[attr-defined]
    return list({mail.key: mail for mail in announced}.values())


HERS = replace(EVALUATION, name="PyTorchJob team/llama, which queues again at Kueue", owner_email="ada@example.com")


def test_the_owner_of_a_job_that_its_scheduler_starts_again_is_told_once_and_nobody_else() -> None:
    cluster = FakeCluster(ACT)
    behave_as_requeueing(cluster.ports)
    unowned = replace(EVALUATION, task_id="arn:task/3333", started_by="bob@example.com")
    left = replace(STRANGER, owner_email="eve@example.com")  # its owner has not agreed to a restart
    unmanaged_tasks_of(cluster).unmanaged = {task.task_id: (BROKEN, task) for task in (HERS, unowned, left)}

    cluster.reports(xid(79))

    [mail] = owners_mails(cluster)
    assert (mail.owner, mail.key) == (HERS.owner_email, f"owner/{HERS.task_id}/{cluster.incident_id}/restarted")
    assert (mail.severity, mail.phase, mail.job_id) == ("INFO", Phase.RUNS_AGAIN, None)
    told = " ".join(mail.body.split())
    assert f"is started again: {HERS.name}. At " in told
    assert f"its node {BROKEN} broke down: XID 79" in told
    assert "Goes on: on other nodes" in told


def test_the_owner_of_a_job_that_is_held_is_not_told_that_it_is_restarted() -> None:
    cluster = FakeCluster(ACT)
    behave_as_requeueing(cluster.ports)
    unmanaged_tasks_of(cluster).unmanaged = {HERS.task_id: (BROKEN, HERS)}
    limit = ACT.limits[Action.RESTART_WORKLOAD]
    for number in range(limit.limit):
        cluster.ports.attempts.reserve(f"job#training:{HERS.short_id}", f"inc-{number}", limit)

    cluster.reports(xid(79))

    timeline = cluster.ports.incidents.history(cluster.incident_id).timeline
    assert any("is held until a person releases it" in entry.text for entry in timeline)
    assert owners_mails(cluster) == []


def test_an_owner_who_has_not_confirmed_costs_one_email_to_the_operators_for_all_jobs() -> None:
    """Whoever may write an annotation must not be able to flood anybody."""
    cluster = FakeCluster(ACT)
    behave_as_requeueing(cluster.ports)
    cluster.ports.has_confirmed.deaf.add("ada@example.com")  # type: ignore[attr-defined]
    jobs = [replace(HERS, task_id=f"arn:task/{number}", name=f"Job team/{number}") for number in range(3)]
    unmanaged_tasks_of(cluster).unmanaged = {job.task_id: (BROKEN, job) for job in jobs}
    cluster.reports(xid(79))

    for mail in owners_mails(cluster):
        notify(mail, cluster.ports, ACT)

    sent = [message.notification.key for message in cluster.ports.notifier.sent]  # type: ignore[attr-defined]
    assert [key for key in sent if key.startswith("unconfirmed/")] == ["unconfirmed/ada@example.com/a job"]


def test_a_task_that_was_started_again_is_owed_no_second_start() -> None:
    task = UnmanagedTask("arn:aws:ecs:eu-central-1:111122223333:task/training/abc", "grace's notebook")
    stops = TaskToStop(task), TaskStopped(task.short_id, by_us=True)

    [before] = stopped_tasks(timeline_of(*stops))
    [after] = stopped_tasks(timeline_of(*stops, TaskStarted(task.short_id, "its successor")))

    assert (before.is_owed, after.is_owed) == (True, False)
