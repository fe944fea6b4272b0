"""The owner of a job is told what becomes of it, in words of his own: once when it stops, runs again, or stays down."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.notification import Notification
from nodeheal.contract.results import Isolated, StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Awaited, Ending, JobState, Outcome, Phase, Step, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.jobs.owner import Owner, parse_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.recovery.incident import Turn, incident_id_of
from nodeheal.domain.recovery.situation import Situation
from nodeheal.domain.review.console_links import ConsoleLinks
from nodeheal.operations.steps import launch_gang, stop_gang
from nodeheal.operations.verbs import conclude
from nodeheal.ports import Ports
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.notify.compose_owner import About, compose_runs_again
from nodeheal.services.notify.deliver_notification import notify
from nodeheal.services.notify.notify_job_owner import notify_owner_of_ending, notify_owner_of_step
from nodeheal.services.recovery.end_incident import end_incident
from nodeheal.services.steps import result_of
from tests.support.builders import ACT, NOW, scheduler_in, stored_job, stored_run, xid
from tests.support.incident_steps import A, B, C, Incident
from tests.support.policies import with_policy
from tests.support.recovery_story import Story
from tests.support.step_functions import isolate_node, replace_node
from tests.support.stop_start_incident import broken, stopped
from tests.support.two_nodes import OTHER

TWO_AT_ONCE = with_policy(default_pool={"mode": "act", "budget": {"max_nodes": 2, "max_percent": 100}})
ADA = Owner("ada@example.com", "Ada Lovelace")


class Owned(Incident):
    """The same incident, of a job that is Ada's."""

    def __init__(self, code: int = 79, owner: Owner | None = ADA, policy: RecoveryPolicy = ACT, **more: Any) -> None:
        super().__init__(code, policy=policy, **more)
        job = stored_job(self.ports, "llama")
        self.ports.jobs.save(replace(job, owner=owner))

    @property
    def letters(self) -> list[Notification]:
        return letters_of(self.ports)

    @property
    def phases(self) -> list[Phase]:
        return [letter.phase for letter in self.letters]

    def ends(self) -> None:
        end_incident(self.request(), self.ports, self.policy)


def letters_of(ports: Ports) -> list[Notification]:
    """What has gone out to owners, each once."""
    announced = [told for _, told in ports.notifier.announced]  # type: ignore[attr-defined]
    return list({told.key: told for told in announced if told.owner}.values())


def words(letter: Notification) -> str:
    """On one line: an email is wrapped."""
    return " ".join(letter.body.split())


# The phases


def test_an_owner_hears_that_the_job_has_stopped_and_that_it_runs_again() -> None:
    it = Owned()

    it.isolate(), it.reboot(), it.diagnose(), it.give_back(), it.relaunch()
    it.ends()

    assert it.phases == [Phase.STOPPED, Phase.RUNS_AGAIN]
    assert {letter.owner for letter in it.letters} == {"ada@example.com"}
    assert [letter.subject for letter in it.letters] == [
        "[nodeheal] llama has stopped: one of its nodes is being repaired",
        "[nodeheal] llama runs again",
    ]


def test_the_first_email_says_what_happens_next_and_that_nothing_is_to_be_done() -> None:
    it = Owned()

    it.isolate()
    it.request()

    [letter] = it.letters
    assert letter.body.startswith("Hello Ada Lovelace,\n")
    assert f"its node {A} broke down: XID 79 (GPU has fallen off the bus)." in words(letter)
    assert "It runs on 2 nodes together" in words(letter)
    assert "It was asked to write one just before" in words(letter)
    assert "Needed: nothing. Please do not start it yourself: it would run twice." in words(letter)  # no checkpoints


def test_no_checkpoint_is_claimed_to_be_asked_for_where_none_was() -> None:
    it = Owned(policy=ACT.model_copy(update={"checkpoint_seconds": 0}))

    isolate_node(it.request(), it.ports, it.policy)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    it.resumed()
    it.request()

    assert "asked to write one" not in words(it.letters[0])


def test_the_second_email_says_how_long_it_stood_and_where_it_runs() -> None:
    it = Owned()

    it.isolate(), it.reboot(), it.diagnose(), it.give_back(), it.relaunch()
    it.request()

    letter = it.letters[-1]
    assert "has been running again since 2026-03-01 03:01:00 UTC, after 1 min down. Needed: nothing." in words(letter)
    assert f"Goes on: as run 2, on {A}, {B}, from its beginning unless its program finds a checkpoint." in words(letter)
    assert "The node was rebooted and has passed its diagnostics since." in words(letter)


def test_what_was_lost_is_told_of_the_run_that_ran_and_not_of_a_launch_that_broke_off() -> None:
    it = Owned()
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    job, ran = stored_job(it.ports, "llama"), stored_run(it.ports, "llama", 1)
    assert ran.running_since is not None
    it.ports.jobs.save_run(replace(ran, last_step=1_200))
    it.ports.jobs.save_run(replace(ran, number=2, version=0, running_since=None))  # the scheduler refused it
    it.ports.jobs.save(replace(job, current_run=2))

    launch_gang(it.request(), it.ports, ACT)
    third = stored_run(it.ports, "llama", 3)
    assert it.ports.jobs.save_run(replace(third, resumed_step=1_000))
    for rank in (0, 1):
        it.task_is("RUNNING", rank, run=3)
    it.request()

    assert "200 steps: it had taken step 1200, and goes on from step 1000" in words(it.letters[-1])


def test_an_owner_hears_at_which_step_the_job_goes_on_where_that_is_known() -> None:
    resumed = {"resumed_from": "/fsx/llama/step-900.npz", "resumed_step": 900}

    told, untold = runs_again(broken().rebooted().passed(), **resumed), runs_again(broken().rebooted().passed())

    assert f"Goes on: as run 1, on {A}, {B}, from checkpoint /fsx/llama/step-900.npz (step 900)." in told
    assert "Its log says" not in told
    assert f"on {A}, {B}, from its beginning unless its program finds a checkpoint." in untold


def runs_again(story: Story, **run_of: Any) -> str:
    """The email to the owner when the story has brought the job back."""
    it = Owned()
    job, run = stored_job(it.ports, "llama"), stored_run(it.ports, "llama", 1)
    return words(compose_runs_again(About(ADA, job, replace(run, **run_of), Situation(story.history, story.policy))))


def test_after_a_stop_and_start_no_reboot_is_claimed_to_have_helped_and_what_the_host_took_is_named() -> None:
    story = stopped(broken().then(Outcome.TIMED_OUT, "no new boot id"), boot_id="boot-3").passed()

    told = runs_again(story)

    assert "The node could not be repaired by a reboot. It was stopped and started, on another host, and has" in told
    assert f"What lay on the own disks (instance store) of {A} is gone." in told
    assert "was rebooted" not in told


def test_a_stop_that_was_not_followed_by_a_start_has_taken_the_disks_too_and_a_refused_one_has_not() -> None:
    rebooted = broken().rebooted().failed()
    failed = stopped(rebooted, Outcome.FAILED, reason="no capacity to start it")
    refused = stopped(broken().rebooted().failed(), Outcome.REFUSED, reason="its root is on its own disks")

    assert "own disks (instance store)" in runs_again(failed.swapped().passed())
    assert "own disks (instance store)" not in runs_again(refused.swapped().passed())
    assert "own disks (instance store)" not in runs_again(broken().rebooted().passed())


def test_an_owner_hears_that_it_was_a_drill() -> None:
    drill = Story(xid(79, evidence=f"NVRM: Xid 79 {DRILL_MARK}")).isolated().rebooted().passed()
    it = Owned()
    job, run = stored_job(it.ports, "llama"), stored_run(it.ports, "llama", 1)

    letter = compose_runs_again(About(ADA, job, run, Situation(drill.history, drill.policy)))

    assert letter.subject.startswith("[nodeheal] drill: llama runs again")
    assert "That is a drill: an operator has injected this fault." in words(letter)


def test_a_spare_that_has_taken_over_is_named() -> None:
    it = Owned(74)

    it.isolate(), it.swap(), it.diagnose(boot_id="boot-1", name=C), it.relaunch()
    it.ends()

    assert it.phases == [Phase.STOPPED, Phase.RUNS_AGAIN]  # the broken node is left to operators; the job is well
    assert f"{C} has taken its place, after passing its diagnostics." in words(it.letters[-1])


def test_an_owner_hears_that_the_job_stays_down() -> None:
    it = Owned(spare=False)

    hand_over(it)

    assert it.phases == [Phase.STOPPED, Phase.HANDED_OVER]
    assert "is down, and nodeheal does not start it again" in words(it.letters[-1])
    assert "Needed: nothing now. The operators have been told" in words(it.letters[-1])


def it_is_refused(it: Owned, request: StepRequest) -> StepResult:
    replace_node(request, it.ports, ACT)
    return it.resumed()


def test_a_fault_of_the_program_is_told_as_one_and_the_node_is_not_blamed() -> None:
    it = Owned(31)

    stop_and_launch(it)
    it.request()

    [letter] = it.letters
    assert letter.phase is Phase.RUNS_AGAIN
    assert f"its rank on {A} failed: XID 31" in words(letter)
    assert "mostly comes from the program" in words(letter)
    assert "Evidence: | NVRM: Xid (PCI:0000:b9:00): 31" in words(letter)


def stop_and_launch(it: Owned) -> None:
    request = it.request()
    stop_gang(request, it.ports, ACT)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    again = request.model_copy(update={"task_token": f"token-{it.turn}b"})
    launch_gang(again, it.ports, ACT)
    for rank in (0, 1):
        it.task_is("RUNNING", rank, run=2)
    it.last = it.ports.workflows.resumed[f"token-{it.turn}b"]  # type: ignore[attr-defined]


# Who hears nothing


def test_a_job_of_nobody_is_nobodys_news() -> None:
    it = Owned(owner=None)

    it.isolate()
    it.request()

    assert it.letters == []


def test_a_job_that_has_finished_by_itself_is_not_said_to_have_stopped() -> None:
    it = Owned()
    isolate_node(it.request(), it.ports, ACT)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=0)
    job = stored_job(it.ports, "llama")
    assert job.state is JobState.COMPLETED

    it.resumed()
    it.request()

    assert it.letters == []


@pytest.mark.parametrize("is_down", [False, True])
def test_a_node_that_was_not_isolated_has_stopped_nobody(is_down: bool) -> None:
    it = Owned()
    request = it.request()
    for rank in (0, 1) if is_down else ():
        it.task_is("STOPPED", rank, exit_code=1)
    scheduler_in(it.ports).unknown_nodes.add(A)

    isolate_node(request, it.ports, ACT)
    assert it.resumed().outcome is Outcome.FAILED
    it.request()

    assert it.letters == []


def test_a_job_that_another_has_brought_back_is_not_said_to_be_down() -> None:
    it = Owned(spare=False)
    it.isolate(), it.reboot(), it.diagnose(Verdict.FAILED)
    request = it.request()
    while request.decision.ending is None:
        it.last = it_is_refused(it, request)
        request = it.request()
    job = it.ports.jobs.get("llama")
    run = it.ports.jobs.get_run("llama", 1)
    assert job is not None
    assert run is not None
    tasks = tuple(replace(task, status="RUNNING") for task in run.tasks)
    it.ports.jobs.save_run(replace(run, number=2, why="by hand", tasks=tasks, end_awaited_by=(), version=0))
    it.ports.jobs.save(replace(job, current_run=2, state=JobState.RUNNING))

    end_incident(request, it.ports, ACT)

    assert it.phases == [Phase.STOPPED]


def test_a_job_that_somebody_else_has_launched_is_not_told_as_brought_back_by_us() -> None:
    it = Owned()
    it.isolate(), it.reboot(), it.diagnose(), it.give_back(), it.relaunch()
    run = stored_run(it.ports, "llama", 2)
    it.ports.jobs.save_run(replace(run, why="inc-other/7"))

    it.request()

    assert it.phases == [Phase.STOPPED]


def test_a_run_that_somebody_else_has_launched_since_is_not_told_to_have_stopped() -> None:
    it = Owned()
    it.isolate()
    job, run = stored_job(it.ports, "llama"), stored_run(it.ports, "llama", 1)
    tasks = tuple(replace(task, status="RUNNING") for task in run.tasks)
    it.ports.jobs.save_run(replace(run, number=2, why="by hand", tasks=tasks, end_awaited_by=(), version=0))
    it.ports.jobs.save(replace(job, current_run=2, state=JobState.RUNNING))

    it.request()

    assert it.letters == []


def test_a_job_whose_node_is_only_isolated_hears_once_that_it_is_down() -> None:
    isolate = {"fault": "xid/79", "ladder": ["ISOLATE"], "why": "we look at these ourselves"}
    it = Owned(policy=with_policy(overrides=[isolate]))

    it.isolate()
    it.ends()

    assert it.phases == [Phase.HANDED_OVER]


def test_a_job_that_has_finished_is_not_said_to_be_down() -> None:
    isolate = {"fault": "xid/79", "ladder": ["ISOLATE"], "why": "we look at these ourselves"}
    it = Owned(policy=with_policy(overrides=[isolate]))
    isolate_node(it.request(), it.ports, it.policy)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=0)
    it.resumed()

    it.ends()

    assert it.letters == []


def test_a_job_whose_ranks_have_just_finished_is_not_said_to_be_down() -> None:
    it = Owned(policy=with_policy(default_pool={"mode": "observe"}))
    job = stored_job(it.ports, "llama")
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=0)
    # Its workflow writes COMPLETED a moment after the last rank's end.
    it.ports.jobs.save(replace(job, version=stored_job(it.ports, "llama").version))
    request = it.request()
    handed_over = request.decision.model_copy(update={"ending": Ending.HANDED_TO_A_HUMAN})

    end_incident(request.model_copy(update={"decision": handed_over}), it.ports, it.policy)

    assert it.letters == []
    assert "is down" not in " ".join(told.subject for _, told in it.ports.notifier.announced)  # type: ignore[attr-defined]


def test_a_job_that_does_not_stop_when_it_is_told_to_is_said_to_be_down() -> None:
    it = Owned(spare=False)
    request = it.request()
    isolate_node(request, it.ports, ACT)
    it.last = conclude(request, it.ports)
    assert it.last.outcome is Outcome.TIMED_OUT
    it.reboot(), it.diagnose(Verdict.FAILED)
    request = it.request()
    while request.decision.ending is None:
        it.last = it_is_refused(it, request)
        request = it.request()

    end_incident(request, it.ports, ACT)

    assert it.phases == [Phase.STOPPED, Phase.HANDED_OVER]


def test_what_waited_for_the_job_to_end_has_not_stopped_it() -> None:
    it = Owned(63)
    assert it.request().decision.awaits is Awaited.JOB_END
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=1)
    it.last = None
    isolate_node(it.request(), it.ports, ACT)
    it.resumed()
    it.request()

    assert it.letters == []


# Once, and never in the way


def test_each_run_has_letters_of_its_own() -> None:
    it = Owned()

    it.isolate(), it.reboot(), it.diagnose(), it.give_back(), it.relaunch()
    it.ends()

    assert [letter.key for letter in it.letters] == ["owner/llama/1/STOPPED", "owner/llama/2/RUNS_AGAIN"]


def test_two_nodes_of_one_job_are_one_email() -> None:
    it = Owned(policy=TWO_AT_ONCE)
    ingest(OTHER, it.ports, it.policy)
    isolate_node(it.request(), it.ports, it.policy)
    mine, it.id, it.turn = (it.id, it.turn), incident_id_of(OTHER), 0

    isolate_node(it.request(task_token="theirs"), it.ports, it.policy)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=143)
    ended = dict(it.ports.workflows.resumed)  # type: ignore[attr-defined]
    for (it.id, it.turn), token in ((mine, "token-1"), ((incident_id_of(OTHER), 1), "theirs")):
        it.last = ended[token]
        it.request()

    announced = [told for _, told in it.ports.notifier.announced]  # type: ignore[attr-defined]
    assert [notify(told, it.ports, ACT) for told in announced] == [True, False]


def test_a_turn_that_dies_after_telling_tells_the_same_again() -> None:
    it = Owned()
    it.isolate()
    advance = it.ports.incidents.advance
    it.ports.incidents.advance = lambda *_: False  # type: ignore[method-assign]

    with pytest.raises(NotAccepted):
        it.request()
    it.ports.incidents.advance = advance  # type: ignore[method-assign]
    it.resumed()
    it.request()

    told = [told for _, told in it.ports.notifier.announced if told.owner]  # type: ignore[attr-defined]
    assert len(told) == 2
    assert len(it.letters) == 1


def test_an_email_that_cannot_be_told_holds_no_recovery_up() -> None:
    it = Owned()
    it.isolate()

    class Mute:
        def announce(self, *_: object) -> None:
            raise NotAccepted("PutEvents: slow down")

    it.ports = replace(it.ports, notifier=Mute())  # type: ignore[arg-type]
    request = it.request()

    told = [entry.text for entry in it.ports.incidents.history(it.id).timeline if "owner" in entry.entry_id]
    assert request.decision.step.value == "REBOOT"
    assert told == ["the owner of llama could not be told: PutEvents: slow down"]


# Whose it is


@pytest.mark.parametrize(
    ("text", "address", "name"),
    [
        ("ada@example.com", "ada@example.com", ""),
        (" Ada@Example.COM ", "ada@example.com", ""),
        ("Ada Lovelace <ada@example.com>", "ada@example.com", "Ada Lovelace"),
        ('"Lovelace,  Ada" <ada+gpu@lab.example.co.uk>', "ada+gpu@lab.example.co.uk", "Lovelace, Ada"),
    ],
)
def test_an_owner_is_an_address_and_perhaps_a_name(text: str, address: str, name: str) -> None:
    assert parse_owner(text) == Owner(address, name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ada",
        "ada@localhost",
        "a b@example.com",
        "<>",
        "Ada <ada@example.com> <x@y.de>",
        "x" * 80 + "@b.de",
        f"ada@{'lab.' * 64}de",
    ],
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not an email address"):
        parse_owner(text)


def test_a_name_that_is_too_long_is_refused() -> None:
    assert parse_owner(f"{'a' * 80} <ada@example.com>").name == "a" * 80
    with pytest.raises(ValueError, match="at most 80 characters"):
        parse_owner(f"{'a' * 81} <ada@example.com>")


def test_a_name_of_odd_characters_is_refused() -> None:
    with pytest.raises(ValueError, match="printable"):
        parse_owner("Ada\x07 <ada@example.com>")


# What is no news


def told_to_owner(it: Owned) -> list[str]:
    """What the incident says of it."""
    timeline = it.ports.incidents.history(it.id).timeline
    return [entry.text for entry in timeline if "owner" in entry.entry_id]


def test_of_a_job_of_nobody_the_incident_does_not_say_that_nobody_could_be_told() -> None:
    it = Owned(owner=None, spare=False)

    hand_over(it)

    assert (it.letters, told_to_owner(it)) == ([], [])


def hand_over(it: Owned) -> None:
    """Neither a reboot nor a spare helps."""
    it.isolate(), it.reboot(), it.diagnose(Verdict.FAILED)
    request = it.request()
    while request.decision.ending is None:
        it.last = it_is_refused(it, request)
        request = it.request()
    end_incident(request, it.ports, ACT)


def test_only_a_step_that_stops_or_starts_a_job_is_told() -> None:
    it = Owned()
    isolated = it.isolate()
    it.request()
    it.ports.notifier.announced.clear()  # type: ignore[attr-defined]

    for step in Step:
        told = isolated.model_copy(update={"step": step})
        notify_owner_of_step(Situation(it.ports.incidents.history(it.id), ACT), told, it.ports)
        assert it.phases == [Phase.STOPPED] * (step is Step.ISOLATE), step
        it.ports.notifier.announced.clear()  # type: ignore[attr-defined]


@pytest.mark.parametrize("ending", [Ending.RECOVERED, Ending.HANDED_TO_A_HUMAN])
def test_only_what_is_handed_over_is_told_to_stay_down(ending: Ending) -> None:
    it = Owned()
    it.isolate()
    decided = it.request().decision.model_copy(update={"ending": ending})
    it.ports.notifier.announced.clear()  # type: ignore[attr-defined]
    history = it.ports.incidents.history(it.id)

    notify_owner_of_ending(Situation(history, ACT), decided, it.ports)

    assert it.phases == [Phase.HANDED_OVER] * (ending is Ending.HANDED_TO_A_HUMAN)


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.TIMED_OUT])
def test_only_a_start_that_has_worked_is_told(outcome: Outcome) -> None:
    it = Owned()
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    launched = it.relaunch()
    it.ports.notifier.announced.clear()  # type: ignore[attr-defined]

    told = launched.model_copy(update={"outcome": outcome})
    notify_owner_of_step(Situation(it.ports.incidents.history(it.id), ACT), told, it.ports)

    assert it.phases == [Phase.RUNS_AGAIN] * (outcome is Outcome.DONE)


def test_a_job_stood_still_from_when_its_first_rank_had_ended() -> None:
    it = Owned()
    it.isolate(), it.reboot(), it.diagnose(), it.give_back()
    run = stored_run(it.ports, "llama", 1)
    it.ports.jobs.save_run(replace(run, ended_at=NOW - timedelta(minutes=9)))
    it.relaunch()
    it.request()

    assert "after 10 min down." in words(it.letters[-1])


@pytest.mark.parametrize(("code", "is_told"), [(79, True), (63, False)])
def test_a_job_that_is_down_already_comes_back_where_its_fault_does_not_wait_for_its_end(
    code: int, is_told: bool
) -> None:
    it = Owned(code)
    for rank in (0, 1):
        it.task_is("STOPPED", rank, exit_code=1)
    isolated = result_of(it.request(), it.ports, Outcome.DONE, "drained", facts=Isolated(is_drained=True))
    it.last = isolated.model_copy(update={"step": Step.ISOLATE})

    history = it.ports.incidents.history(it.id)
    decided = Decision(step=Step.ISOLATE, reason="it failed", node_id=A)
    told = replace(history, turns=(Turn(decided, it.last),))
    notify_owner_of_step(Situation(told, ACT), it.last, it.ports)

    assert it.phases == [Phase.STOPPED] * is_told


def test_what_was_down_and_stays_down_is_told_though_nobody_has_waited_for_its_end() -> None:
    it = Owned(spare=False)
    it.isolate()
    run = stored_run(it.ports, "llama", 1)
    it.ports.jobs.save_run(replace(run, end_awaited_by=()))
    it.request()
    it.ports.notifier.announced.clear()  # type: ignore[attr-defined]
    history = it.ports.incidents.history(it.id)
    decided = Decision(step=Step.ESCALATE, reason="it is a human's", node_id=A, ending=Ending.HANDED_TO_A_HUMAN)

    notify_owner_of_ending(Situation(history, ACT), decided, it.ports)

    assert it.phases == [Phase.HANDED_OVER]


def test_each_email_to_the_owner_links_to_its_recovery() -> None:
    it = Owned()
    arn = "arn:aws:states:eu-west-1:111122223333:stateMachine:nodeheal-recover-node"
    it.ports = replace(it.ports, console_links=ConsoleLinks(workflow_arn=arn))

    it.isolate(), it.reboot(), it.diagnose(), it.give_back(), it.relaunch()
    it.request()

    assert len(it.letters) == 2
    for letter in it.letters:
        link = letter.body.split("Its recovery, step by step:\n")[1]
        assert link.startswith("https://eu-west-1.console.aws.amazon.com/states/home?region=eu-west-1#/v2/executions/")
        assert it.id in link
