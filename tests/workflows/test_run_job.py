"""A job from its submission to its end, through every branch of run_job."""

from dataclasses import replace

import pytest

from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.vocabulary import Action, Ending, JobState, NodeState, Outcome, Phase, Verdict
from nodeheal.domain.errors import PlacementRefused
from nodeheal.domain.fleet.node import PastRecovery
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Budget, Mode, PoolPolicy
from nodeheal.services.intake import wakeup
from nodeheal.services.jobs.end_job import end_job
from nodeheal.services.jobs.job_steps import save_job
from nodeheal.services.jobs.submit_job import restart_job, submit_job
from nodeheal.services.jobs.sweep_jobs import sweep_jobs
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool
from nodeheal.services.steps import save_node
from tests.support.builders import ACT, scheduler_in
from tests.support.job_cluster import (
    NODES,
    Happening,
    JobCluster,
    Json,
    fails,
    falls_off_the_bus,
    finishes,
    is_recovered,
    spec,
    wants_it_stopped,
)
from tests.support.jobs import ecs_job_of
from tests.support.policies import with_policy
from tests.support.walker import Error, walk

A, B, C, D = NODES
TO_THE_LAUNCH = [
    "Is the input valid?",
    "Initialize",
    "Choose nodes",
    "What next?",
    "Check nodes",
    "Evaluate diagnostics",
    "What next?",
    "Launch job",
]


def test_a_job_is_checked_launched_watched_and_ended() -> None:
    it = JobCluster()
    it.happenings = [finishes]

    seen = it.submit()

    after = ["What next?", "Watch gang", "What next?", "End job", "How did it end?", "Completed"]
    assert seen.path == [*TO_THE_LAUNCH, *after]
    assert it.job.state is JobState.COMPLETED
    assert [task.node_id for task in it.run.tasks] == [A, B]
    assert it.is_clean


def test_a_recent_pass_is_not_repeated() -> None:
    it = JobCluster()
    for name in (A, B):
        save_node(it.ports, it.node(name), passed_at=it.clock())
    it.happenings = [finishes]

    seen = it.submit()

    assert "Check nodes" not in seen.path
    assert seen.end == "Completed"


@pytest.mark.parametrize("what", ["older than recent_seconds", "of the boot before"])
def test_a_pass_that_proves_nothing_now_is_repeated(what: str) -> None:
    it = JobCluster()
    at = it.clock()
    it.clock.advance(90_000 if "older" in what else 60)
    for name in (A, B):
        booted = it.node(name).booted_at if "older" in what else it.clock()
        save_node(it.ports, it.node(name), passed_at=at, booted_at=booted)
    it.happenings = [finishes]

    assert "Check nodes" in it.submit().path


def test_without_a_preflight_nodes_are_not_checked() -> None:
    it = JobCluster(preflight={"level": 0})
    it.happenings = [finishes]

    assert "Check nodes" not in it.submit().path


def test_only_who_has_not_passed_lately_is_asked() -> None:
    it = JobCluster()
    save_node(it.ports, it.node(A), passed_at=it.clock())
    it.happenings = [finishes]

    it.submit()

    assert it.commands == [("run-diagnostics", B)]


def test_a_node_that_fails_its_preflight_becomes_an_incident_and_another_is_chosen() -> None:
    it = JobCluster()
    it.diagnoses[A] = Verdict.FAILED
    it.happenings = [finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    assert [task.node_id for task in it.run.tasks] == [B, C]
    incident = it.ports.incidents.history(str(it.node(A).open_incident)).incident
    assert (incident.root.code, incident.root.verdict) == ("preflight_failed", Verdict.FAILED)
    assert it.is_clean


def test_a_node_that_does_not_answer_is_a_humans_and_another_is_chosen() -> None:
    it = JobCluster()
    it.hangs.add(A)
    it.happenings = [finishes]

    seen = it.submit()

    assert seen.path.count("Choose nodes") == 2
    assert [task.node_id for task in it.run.tasks] == [B, C]
    incident = it.ports.incidents.history(str(it.node(A).open_incident)).incident
    assert (incident.root.code, incident.root.verdict) == ("preflight_unanswered", Verdict.UNKNOWN)


def test_a_node_that_takes_no_command_does_not_hold_the_others_up() -> None:
    it = JobCluster()
    it.ports.commands.unknown_nodes.add(B)  # type: ignore[attr-defined]
    it.happenings = [finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    assert [task.node_id for task in it.run.tasks] == [A, C]


def test_a_command_that_fails_on_its_node_is_an_answer() -> None:
    it = JobCluster()
    it.hangs.add(A)
    it.before["Evaluate diagnostics"] = lambda _: None
    it.happenings = [finishes]
    answer = it._nodes_answer

    def first_a_refusal(request: JobRequest) -> None:
        wakeup.on_command_failed(A, "command-1", it.ports)
        answer(request)

    it._nodes_answer = first_a_refusal  # type: ignore[method-assign]

    it.submit()

    [told] = [answer for answer in it.ports.job_notes.answers("llama") if answer.node_id == A]
    assert (told.outcome, told.reason) == (Outcome.UNKNOWN, "the node refused the command or could not run it")


def test_when_too_few_pass_the_job_waits_for_nodes() -> None:
    it = JobCluster(pool_of=2)
    it.diagnoses[A] = Verdict.FAILED

    def mended(cluster: JobCluster) -> None:
        cluster.diagnoses.clear()
        cluster.recover_all()  # its reboot brings it back, and ends its incident

    it.while_waiting = [mended]
    it.happenings = [finishes]
    it.policy = it.policy.model_copy(update={"probation_seconds": 0})

    seen = it.submit()

    assert "Wait for nodes" in seen.path
    assert seen.end == "Completed"
    assert [task.node_id for task in it.run.tasks] == [A, B]


def test_rounds_of_choosing_end() -> None:
    it = JobCluster(pool_of=4)
    it.diagnoses = dict.fromkeys(NODES, Verdict.FAILED)
    it.before["Wait for nodes"] = wants_it_stopped

    seen = it.submit()

    assert seen.end == "Stopped"
    assert it.is_clean


def test_a_job_that_the_pool_can_never_hold_is_refused_at_once() -> None:
    it = JobCluster(pool_of=4, accelerators=16)

    seen = it.submit()

    assert seen.end == "Escalated"
    assert it.job.summary == (
        "llama wants 2 nodes with 16 accelerators, and pool demo has 0 nodes with 16 accelerators (of 4 in all)"
    )


def test_a_paused_pool_starts_no_job() -> None:
    it = JobCluster()
    pause_pool("demo", 3_600, "ada: maintenance", it.ports)
    it.while_waiting = [lambda cluster: cluster.clock.advance(3_601)]
    it.happenings = [finishes]

    seen = it.submit()

    assert seen.path[1:6] == ["Initialize", "Choose nodes", "What next?", "Wait for nodes", "Choose nodes"]
    assert seen.end == "Completed"


def test_when_a_pause_is_over_the_job_in_line_is_called_within_a_sweep() -> None:
    it = JobCluster()
    pause_pool("demo", 3_600, "ada: maintenance", it.ports)
    called: list[bool] = []

    def is_swept(cluster: JobCluster) -> None:
        sweep_jobs("demo", cluster.ports, cluster.policy)
        called.append(bool(cluster.ports.workflows.resumed))  # type: ignore[attr-defined]

    it.while_waiting = [is_swept, lambda cluster: cluster.clock.advance(3_601), is_swept]
    it.happenings = [finishes]
    seen = it.submit()

    assert called == [False, True]
    assert seen.end == "Completed"


def is_swept(it: JobCluster) -> None:
    """A minute passes."""
    sweep_jobs("demo", it.ports, it.policy)


def is_paused(it: JobCluster) -> None:
    """An operator wants hands off for an hour."""
    pause_pool("demo", 3_600, "ada: maintenance", it.ports)


def is_paused_at_the_rank(it: JobCluster) -> None:
    """The same of the node whose rank is to fail."""
    pause_node(B, 3_600, "ada: maintenance", it.ports)


def an_hour_passes(it: JobCluster) -> None:
    """The pause is over."""
    it.clock.advance(3_601)


@pytest.mark.parametrize("pause", [is_paused, is_paused_at_the_rank])
def test_a_failure_in_a_pause_is_seen_to_when_the_pause_is_over(pause: Happening) -> None:
    it = JobCluster()
    told: list[str] = []
    it.happenings = [pause, fails(), is_swept, lambda cluster: told.append(cluster.job.summary)]
    it.happenings += [an_hour_passes, is_swept, is_recovered, finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    assert told[0].startswith("waits for the end of a pause, and is handled then: ")
    assert f"(ada: maintenance); rank 1 on {B} ended with exit code 1" in told[0]
    [incident_id] = it.ports.workflows.started  # type: ignore[attr-defined]
    assert it.ports.incidents.history(incident_id).incident.ending is Ending.RECOVERED
    assert (it.run.number, it.job.held_at) == (2, None)
    assert it.is_clean


def test_a_pause_that_comes_between_the_incident_and_its_decision_loses_no_job() -> None:
    it = JobCluster()
    it.happenings = [fails(), is_paused, is_recovered, an_hour_passes, is_swept, is_recovered, finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    endings = [it.ports.incidents.history(name).incident.ending for name in it.ports.workflows.started]  # type: ignore[attr-defined]
    assert endings == [Ending.OBSERVED_ONLY, Ending.RECOVERED]
    assert it.is_clean


def test_two_pauses_one_after_the_other_hold_it_twice() -> None:
    it = JobCluster()
    between = [an_hour_passes, is_swept, is_paused, is_recovered]
    it.happenings = [is_paused, fails(), *between, an_hour_passes, is_swept, is_recovered, finishes]

    assert it.submit().end == "Completed"
    assert it.run.number == 2


def test_a_job_that_waits_for_the_end_of_a_pause_can_be_stopped() -> None:
    it = JobCluster()
    it.happenings = [is_paused, fails(), wants_it_stopped]

    assert it.submit().end == "Stopped"
    assert it.is_clean


def test_what_no_pause_mends_waits_for_none() -> None:
    it = JobCluster()
    it.happenings = [is_paused, fails(exit_code=127)]

    assert it.submit().end == "Escalated"


def test_a_failure_in_a_pool_that_is_only_observed_ends_the_job_and_says_so() -> None:
    it = JobCluster(policy=ACT.model_copy(update={"pools": {"demo": PoolPolicy(mode=Mode.observe)}}))
    it.happenings = [fails(), is_recovered]

    seen = it.submit()

    [incident_id] = it.ports.workflows.started  # type: ignore[attr-defined]
    assert seen.end == "Escalated"
    assert f"{incident_id} did not bring it back: " in it.job.summary
    assert "observe mode; in act mode nodeheal would restart the job; so the job is left to its owner" in it.job.summary
    [told] = [m.body for _, m in it.ports.notifier.announced if m.phase is Phase.HANDED_OVER]  # type: ignore[attr-defined]
    assert "nodeheal only observes there, so it is yours to bring back" in " ".join(told.split())
    assert "nodeheal jobs restart llama" in told
    assert it.is_clean


def test_a_job_that_was_restarted_is_said_to_be_under_way_again() -> None:
    it = JobCluster()
    told: list[str] = []
    it.happenings = [fails(), is_recovered, lambda cluster: told.append(cluster.job.summary), finishes]

    it.submit()

    assert told == ["run 2 is under way"]


@pytest.mark.parametrize(
    "state", ["Choose nodes", "Wait for nodes", "Evaluate diagnostics", "Launch job", "Watch gang"]
)
def test_a_job_that_a_person_wants_stopped_stops_wherever_it_is(state: str) -> None:
    it = JobCluster()
    if state == "Wait for nodes":
        for name in (A, B, C):
            save_node(it.ports, it.node(name), job_id="another")
    it.before[state] = wants_it_stopped

    seen = it.submit()

    assert seen.end == "Stopped"
    assert (it.job.state, it.job.summary) == (JobState.CANCELLED, "stopped by a person: ada: enough")
    assert it.is_clean


def test_a_failure_of_the_program_is_an_incident_of_its_own_that_restarts_the_gang() -> None:
    it = JobCluster()
    it.happenings = [fails(exit_code=1), is_recovered, finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    assert it.run.number == 2
    [incident_id] = it.ports.workflows.started  # type: ignore[attr-defined]
    incident = it.ports.incidents.history(incident_id).incident
    assert (incident.root.family, incident.root.code, incident.ending) == ("task", "exit_1", Ending.RECOVERED)
    assert {n.state for n in it.ports.nodes.in_pool("demo")} == {NodeState.HEALTHY}, "no node is touched for it"
    assert it.is_clean


def test_a_failure_waits_a_moment_for_the_finding_that_explains_it() -> None:
    it = JobCluster()
    it.happenings = [fails(exit_code=137), is_recovered, finishes]
    it.before["Attribute failure"] = lambda _: None

    def finding_arrives(cluster: JobCluster) -> None:
        cluster.before["Attribute failure"] = falls_off_the_bus(B)

    it.before["Watch gang"] = finding_arrives

    seen = it.submit()

    assert seen.end == "Completed"
    [incident_id] = it.ports.workflows.started  # type: ignore[attr-defined]
    assert it.ports.incidents.history(incident_id).incident.root.code == "79"


def test_where_the_exit_code_says_nothing_all_nodes_are_diagnosed() -> None:
    it = JobCluster()
    it.happenings = [fails(exit_code=139), is_recovered, finishes]

    seen = it.submit()

    after = seen.path[seen.path.index("Attribute failure") :]
    assert after[:11] == [
        "Attribute failure",
        "What next?",
        "Wait for late findings",
        "Attribute failure",
        "What next?",
        "Stop job",
        "What next?",
        "Check nodes",
        "Evaluate diagnostics",
        "What next?",
        "Attribute failure",
    ]
    assert [name for verb, name in it.commands if verb == "run-diagnostics"] == [A, B, A, B]
    [incident_id] = it.ports.workflows.started  # type: ignore[attr-defined]
    evidence = it.ports.incidents.history(incident_id).incident.root.evidence
    assert "ended with exit code 139" in evidence
    assert "All nodes of the gang have passed their diagnostics since" in evidence
    assert seen.end == "Completed"


def test_the_node_that_fails_that_diagnosis_is_healed_and_the_job_comes_back() -> None:
    it = JobCluster()

    def breaks(cluster: JobCluster) -> None:
        cluster.diagnoses[A] = Verdict.FAILED  # rank 0's node, and not the one whose rank fell first
        fails(rank=1, exit_code=134)(cluster)

    def healed(cluster: JobCluster) -> None:
        cluster.diagnoses.clear()
        cluster.recover_all()

    it.happenings = [breaks, healed, finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    [incident_id] = it.ports.workflows.started  # type: ignore[attr-defined]
    incident = it.ports.incidents.history(incident_id).incident
    assert (incident.node_id, incident.root.code, incident.job_id) == (A, "preflight_failed", "llama")
    assert it.run.number == 2


def test_a_node_that_is_being_recovered_explains_the_failure() -> None:
    it = JobCluster()

    def node_breaks(cluster: JobCluster) -> None:
        falls_off_the_bus(B)(cluster)
        fails(rank=1, exit_code=137)(cluster)

    it.happenings = [node_breaks, is_recovered, finishes]

    seen = it.submit()

    assert "Attribute failure" not in seen.path, "the wait goes on: somebody is at work on it"
    assert len(it.ports.workflows.started) == 1  # type: ignore[attr-defined]
    assert (seen.end, it.run.number) == ("Completed", 2)


def test_a_job_whose_recovery_is_handed_to_a_human_is_one_too_and_leaves_nothing() -> None:
    it = JobCluster(pool_of=2)
    it.diagnoses[B] = Verdict.OK

    def node_breaks(cluster: JobCluster) -> None:
        cluster.diagnoses[B] = Verdict.FAILED
        falls_off_the_bus(B)(cluster)
        cluster.recover_all()

    it.happenings = [node_breaks]

    seen = it.submit()

    assert seen.end == "Escalated"
    assert it.job.state is JobState.FAILED
    assert "was handed to a human" in it.job.summary
    assert it.is_clean


def test_a_rank_that_a_person_stops_takes_the_gang_down_and_nothing_is_started_against_it() -> None:
    it = JobCluster()
    it.happenings = [fails(rank=1, exit_code=143, reason="UserInitiated: Task stopped by user")]

    seen = it.submit()

    assert seen.end == "Stopped"
    assert it.job.summary.startswith(f"rank 1 on {B} was stopped by somebody else")
    assert it.ports.workflows.started == []  # type: ignore[attr-defined]
    assert it.is_clean


def test_failures_of_the_program_have_a_limit_of_their_own() -> None:
    it = JobCluster(restarts={"of_application": 1})
    it.happenings = [fails(), is_recovered, fails()]

    seen = it.submit()

    assert seen.end == "Escalated"
    assert "restarts.of_application" in it.job.summary
    assert len(it.ports.workflows.started) == 1  # type: ignore[attr-defined]
    assert it.is_clean


@pytest.mark.parametrize(
    ("exit_code", "reason"),
    [
        (None, "TaskFailedToStart: CannotPullContainerError: not found"),
        (127, "EssentialContainerExited"),
        (None, "CannotCreateContainerError: exec format error"),
    ],
)
def test_what_cannot_start_anywhere_is_not_tried_again(exit_code: int | None, reason: str) -> None:
    it = JobCluster()
    it.never_start = {A, B}
    started = it._ranks_start

    def dies(request: object) -> None:
        started(request)  # type: ignore[arg-type]
        it.becomes(0, "STOPPED", exit_code, reason)

    it._ranks_start = dies  # type: ignore[method-assign]

    seen = it.submit()

    assert seen.end == "Escalated"
    assert "nothing is tried again" in it.job.summary
    assert it.ports.workflows.started == []  # type: ignore[attr-defined]
    assert it.is_clean


def test_a_rank_that_never_starts_takes_the_others_down() -> None:
    it = JobCluster()
    it.never_start = {B}

    seen = it.submit()

    assert seen.end == "Escalated"
    assert it.job.summary == f"rank 1 on {B} of run 1 did not start in time"
    assert it.is_clean


def test_a_node_that_breaks_between_its_check_and_the_launch_is_exchanged() -> None:
    it = JobCluster()
    it.before["Launch job"] = falls_off_the_bus(A)
    it.happenings = [finishes]

    seen = it.submit()

    assert seen.end == "Completed"
    assert [task.node_id for task in it.run.tasks] == [B, C]
    assert it.is_clean


def test_a_rank_that_is_refused_takes_the_others_down_and_other_nodes_are_chosen() -> None:
    it = JobCluster()
    start = scheduler_in(it.ports).start_rank
    refused: list[str] = []

    def once(job, run, task, environment):  # type: ignore[no-untyped-def]
        if task.node_id == B and not refused:
            refused.append(B)
            raise PlacementRefused("RESOURCE:GPU")
        return start(job, run, task, environment)

    scheduler_in(it.ports).start_rank = once
    it.before["Choose nodes"] = lambda _: None

    def rank_0_stops(cluster: JobCluster) -> None:
        if cluster.job.current_run:
            cluster.all_become("STOPPED", 143, "UserInitiated: nodeheal: refused")

    it.before["Launch job"] = lambda cluster: cluster.before.update({"Choose nodes": rank_0_stops})
    it.happenings = [finishes]

    seen = it.submit()

    assert seen.path.count("Launch job") == 2
    assert seen.end == "Completed"
    assert it.run.number == 2
    assert it.is_clean


def test_two_jobs_never_write_to_one_directory() -> None:
    it = JobCluster(checkpoints={"directory": "/fsx/shared"})
    it.ports.job_notes.hold("/fsx/shared", "another")

    seen = it.submit()

    assert seen.end == "Escalated"
    assert it.job.summary.startswith("checkpoints.directory: job another writes its checkpoints to /fsx/shared")
    assert it.ports.job_notes.hold("/fsx/shared", "llama") == "another"


def test_two_jobs_share_no_node() -> None:
    it = JobCluster()
    other = ecs_job_of(spec(name="other"), "training", "trainer:1", it.clock())
    submit_job(other, it.ports)
    for name in (A, C):
        save_node(it.ports, it.node(name), claimed_by="other")
    it.happenings = [finishes]

    it.submit()

    assert [task.node_id for task in it.run.tasks] == [B, D]
    assert it.node(A).claimed_by == "other"


def test_nodes_are_left_free_for_spares() -> None:
    it = JobCluster(pool_of=3, spares=2)
    it.before["Wait for nodes"] = wants_it_stopped

    seen = it.submit()

    assert seen.end == "Stopped"
    assert "Launch job" not in seen.path


@pytest.mark.parametrize(
    "state",
    [
        "Choose nodes",
        "Wait for nodes",
        "Evaluate diagnostics",
        "Watch gang",
        "Attribute failure",
        "Stop job",
        "End job",
    ],
)
def test_a_function_that_breaks_pages_and_hands_the_job_over(state: str) -> None:
    it = JobCluster()
    if state == "Wait for nodes":
        for name in (A, B, C):
            save_node(it.ports, it.node(name), job_id="another")
    it.job_breaks[state] = Error("Lambda.Unknown")
    it.happenings = [fails()] if state in ("Attribute failure",) else [wants_it_stopped]

    seen = it.submit()

    assert seen.path[-3:] == ["Page operators", "Mark job escalated", "Job workflow failed"]
    assert seen.error == "HumanPaged"
    assert it.job.state is JobState.FAILED


def test_who_has_passed_before_this_job_need_not_before_the_next() -> None:
    it = JobCluster()
    it.happenings = [finishes]

    it.submit()

    assert {it.node(task.node_id).passed_at for task in it.ports.jobs.runs("llama")[0].tasks} == {it.clock()}


def is_submitted_again(it: JobCluster) -> None:
    save_job(it.ports, it.job.job_id, submission=it.job.submission + 1)


@pytest.mark.parametrize(
    "state", ["Choose nodes", "Evaluate diagnostics", "Watch gang", "Attribute failure", "End job"]
)
def test_the_workflow_of_an_older_submission_ends_and_pages_nobody(state: str) -> None:
    it = JobCluster()
    it.happenings = [fails()] if state == "Attribute failure" else [wants_it_stopped]
    it.before[state] = is_submitted_again

    seen = it.submit()

    assert seen.path[-2:] == [state, "Stopped"]
    assert seen.error is None
    assert it.job.state is not JobState.FAILED


def test_an_end_that_was_reached_is_not_taken_back_by_what_breaks_after_it() -> None:
    it = JobCluster()
    it.happenings = [finishes]

    def ends_and_breaks(arguments: Json) -> Error:
        end_job(JobRequest.model_validate(arguments["Payload"]), it.ports)
        return Error("Lambda.Unknown")

    it.job_breaks["End job"] = ends_and_breaks

    seen = it.submit()

    assert seen.end == "Job workflow failed"
    assert it.job.state is JobState.COMPLETED


@pytest.mark.parametrize("state", ["Check nodes", "Launch job"])
def test_what_may_have_acted_is_looked_at(state: str) -> None:
    it = JobCluster()
    it.job_breaks[state] = Error("Lambda.Unknown")
    it.before["Wait for nodes"] = wants_it_stopped  # no node has answered: there is none left

    seen = it.submit()

    follows = seen.path[seen.path.index(state) + 1]
    assert follows == {"Check nodes": "Evaluate diagnostics", "Launch job": "Attribute failure"}[state]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"job_id": "llama"},
        {"submission": 1},
        {"job_id": 7, "submission": 1},
        {"job_id": "llama", "submission": "1"},
        *({"job_id": name, "submission": 1} for name in ("", "-x", "x-", "x" * 64, "llama\n", "a b", "LLAMA", "a.b/c")),
    ],
    ids=str,
)
def test_an_execution_that_names_no_job_ends_before_anything_else(given: dict[str, object]) -> None:
    seen = walk("run_job", given, {})

    assert (seen.path, seen.error) == (["Is the input valid?", "Input refused"], "InvalidInput")


@pytest.mark.parametrize("name", ["a", "7", "llama-3", "x" * 63])
def test_every_name_that_a_job_file_may_give_is_taken(name: str) -> None:
    seen = walk("run_job", {"job_id": name, "submission": 1}, {"Choose nodes": Error("Superseded")})

    assert seen.end == "Stopped"


def test_a_job_that_is_over_may_be_submitted_again_and_goes_on_counting() -> None:
    it = JobCluster()
    it.happenings = [wants_it_stopped]
    it.submit()

    again = restart_job("llama", it.ports)
    it.happenings = [finishes]
    seen = it.walk_job(again.submission)

    assert seen.end == "Completed"
    assert (it.run.number, it.job.submission) == (2, 2)
    assert it.ports.workflows.jobs_started == [("llama", 1), ("llama", 2)]  # type: ignore[attr-defined]


def test_restarts_of_the_program_spend_attempts_of_the_job() -> None:
    it = JobCluster()
    it.happenings = [fails(), is_recovered, finishes]

    it.submit()

    limit = it.policy.limits[Action.RESTART_WORKLOAD]
    assert it.ports.attempts.spent("job#llama", limit)[Action.RESTART_WORKLOAD] == 1


MOVES = ACT.model_copy(update={"move_job_seconds": 60})


def with_spares(policy: RecoveryPolicy = MOVES, spares: int = 2) -> JobCluster:
    """A job on A and B; C (and D) are free, and have passed their diagnostics."""
    it = JobCluster(policy=policy)
    for name in (C, D)[:spares]:
        save_node(it.ports, it.node(name), passed_at=it.clock())
    it.happenings = [falls_off_the_bus(B), is_recovered, finishes]
    return it


def restarts(it: JobCluster) -> list[str]:
    """What the recovery did, in order."""
    [recovery] = [walk for walk in it.walked if walk.path[0] == "Open incident"]
    return [state for state in recovery.path if state in ("Isolate node", "Reboot node", "Stop gang")]


def test_where_a_recovery_takes_long_the_job_goes_on_elsewhere_at_once() -> None:
    it = with_spares()

    seen = it.submit()

    assert restarts(it) == ["Isolate node", "Stop gang", "Reboot node"]
    assert [task.node_id for task in it.run.tasks] == [A, C]
    assert (seen.end, it.run.number) == ("Completed", 2)
    assert it.node(B).job_id is None
    assert it.ports.incidents.history(it.incident_id).incident.ending is Ending.RECOVERED
    assert it.is_clean


def test_a_node_that_the_job_has_left_is_nobodys_and_the_others_stay_its_own() -> None:
    it = with_spares()
    marks: dict[str, tuple[str | None, str | None]] = {}

    def looked_at(cluster: JobCluster) -> None:
        marks.update({name: (cluster.node(name).job_id, cluster.node(name).claimed_by) for name in NODES})

    it.happenings.insert(2, looked_at)

    it.submit()

    assert marks == {A: ("llama", None), B: (None, None), C: ("llama", None), D: (None, None)}


def test_where_recoveries_are_known_to_be_short_it_waits_for_its_node() -> None:
    it = with_spares()
    past = tuple(PastRecovery(f"inc-{n}", it.clock(), seconds=45, rung=Action.REBOOT) for n in range(3))
    save_node(it.ports, it.node(D), recoveries=past)

    it.submit()

    assert restarts(it) == ["Isolate node", "Reboot node", "Stop gang"]
    assert [task.node_id for task in it.run.tasks] == [A, B]


@pytest.mark.parametrize("why_not", ["kept busy", "paused", "opted out and unproven", "policy"])
def test_without_free_nodes_it_waits_for_its_node(why_not: str) -> None:
    policies = {"policy": ACT, "opted out and unproven": MOVES.model_copy(update={"opted_out": {C: "hers", D: "hers"}})}
    it = with_spares(policies.get(why_not, MOVES))
    changes: dict[str, dict[str, object]] = {
        "kept busy": {"claimed_by": "another"},
        "opted out and unproven": {"passed_at": None},
    }
    for name in (C, D):
        save_node(it.ports, it.node(name), **changes.get(why_not, {}))
        if why_not == "paused":
            pause_node(name, 3_600, "ada: maintenance", it.ports)

    it.submit()

    assert restarts(it) == ["Isolate node", "Reboot node", "Stop gang"]


def did(it: JobCluster) -> list[str]:
    """What the recovery did, in order, its diagnoses included."""
    [recovery] = [walk for walk in it.walked if walk.path[0] == "Open incident"]
    steps = ("Isolate node", "Run diagnostics", "Reboot node", "Return to service", "Stop gang")
    return [state for state in recovery.path if state in steps]


def test_a_free_node_that_has_not_passed_lately_is_proven_first_and_the_job_goes_on_there() -> None:
    it = with_spares(spares=0)

    seen = it.submit()

    assert did(it)[:4] == ["Isolate node", "Run diagnostics", "Stop gang", "Reboot node"]
    assert [task.node_id for task in it.run.tasks] == [A, C]
    assert (seen.end, it.run.number) == ("Completed", 2)
    assert it.node(C).passed_at is not None
    assert it.node(C).open_incident is None
    [again] = [m.body for _, m in it.ports.notifier.announced if "runs again" in m.subject]  # type: ignore[attr-defined]
    assert f"{C} has taken its place, after passing diagnostics" in " ".join(again.split())
    assert "a reboot here may take 40 min" in " ".join(again.split())
    assert it.is_clean


def test_one_that_fails_its_diagnostics_gets_no_job_and_the_broken_node_brings_it_back() -> None:
    it = with_spares(spares=0)
    it.diagnoses[C] = Verdict.FAILED

    seen = it.submit()

    assert did(it) == ["Isolate node", "Run diagnostics", "Reboot node", "Run diagnostics", *did(it)[4:]]
    assert did(it)[4:] == ["Return to service", "Stop gang"]
    assert [task.node_id for task in it.run.tasks] == [A, B]
    assert (it.node(C).state, it.node(C).open_incident) == (NodeState.SUSPECT, None)
    assert f"{C} could not stand in for it" in it.ports.incidents.history(it.incident_id).incident.summary
    assert seen.end == "Completed"


def test_one_that_somebody_takes_before_it_is_diagnosed_is_left_alone() -> None:
    it = with_spares(spares=0)
    get = it.ports.nodes.get

    def snatched(name: str) -> object:
        turns = it.ports.incidents.history(it.incident_id).turns if hasattr(it, "incident_id") else ()
        free = get(C)
        if name == C and turns and turns[-1].decision.is_move and free is not None and free.claimed_by is None:
            it.ports.nodes.save(replace(free, claimed_by="another"))
        return get(name)

    it.ports.nodes.get = snatched  # type: ignore[method-assign,assignment]

    it.submit()

    assert (it.node(C).claimed_by, it.node(C).state) == ("another", NodeState.HEALTHY)
    assert [task.node_id for task in it.run.tasks] == [A, B]


def test_what_a_recovery_took_is_noted_by_what_brought_the_node_back() -> None:
    it = with_spares(ACT)

    it.submit()

    [past] = it.node(B).recoveries
    assert (past.rung, past.seconds, past.proof_seconds) == (Action.REBOOT, 60.0, 0.0)


def test_a_move_that_is_refused_spends_nothing_and_the_job_comes_back_with_its_node() -> None:
    it = with_spares(spares=1)
    taken = it.ports.nodes.in_pool

    def snatched(pool: str) -> object:
        """Between the decision and the launch somebody else takes the spare."""
        found = taken(pool)
        last = it.ports.incidents.history(it.incident_id).turns[-1].decision if hasattr(it, "incident_id") else None
        if last is not None and last.is_move:
            save_node(it.ports, it.node(C), claimed_by="another")
        return found

    it.ports.nodes.in_pool = snatched  # type: ignore[method-assign,assignment]

    seen = it.submit()

    assert restarts(it) == ["Isolate node", "Stop gang", "Reboot node", "Stop gang"]
    assert [task.node_id for task in it.run.tasks] == [A, B]
    assert seen.end == "Completed"
    limit = it.policy.limits[Action.RESTART_WORKLOAD]
    assert it.ports.attempts.spent("job#llama", limit)[Action.RESTART_WORKLOAD] == 1


def test_a_node_whose_job_has_moved_takes_no_spare_when_its_reboot_fails() -> None:
    it = with_spares()
    it.node_returns = False

    seen = it.submit()

    incident = it.ports.incidents.history(it.incident_id).incident
    assert incident.ending is Ending.HANDED_TO_A_HUMAN
    assert "goes on elsewhere" in incident.summary
    assert it.node(D).is_available(it.clock(), NO_PAUSES)
    assert seen.end == "Completed"


def test_a_report_that_comes_an_hour_late_stops_the_job_and_brings_it_back() -> None:
    """Its fault is older than the run that it stops: the network was away, say, or the agent."""
    it = JobCluster(policy=with_policy(default_pool={"mode": Mode.act, "budget": {"max_nodes": 2, "max_percent": 100}}))

    def an_hour_later(it: JobCluster) -> None:
        it.clock.advance(3_600)

    late = falls_off_the_bus(A)  # seen as early as that of B
    it.happenings = [an_hour_later, falls_off_the_bus(B), is_recovered, late, is_recovered, finishes]

    seen = it.submit()

    assert (seen.end, it.run.number) == ("Completed", 3)
    assert it.is_clean


def test_two_nodes_that_break_at_once_are_both_exchanged_in_one_restart() -> None:
    policy = MOVES.model_copy(
        update={"default_pool": PoolPolicy(mode=Mode.act, budget=Budget(max_nodes=2, max_percent=100))}
    )
    it = with_spares(policy)

    def both(cluster: JobCluster) -> None:
        falls_off_the_bus(A)(cluster)
        falls_off_the_bus(B)(cluster)

    it.happenings[0] = both

    seen = it.submit()

    assert [task.node_id for task in it.run.tasks] == [C, D]
    assert (seen.end, it.run.number) == ("Completed", 2)
    assert it.is_clean


def test_a_start_that_a_crash_has_lost_is_made_up_for() -> None:
    it = JobCluster()
    job = ecs_job_of(it.spec, "training", "trainer:1", it.clock())
    it.ports.jobs.save(job)

    early = sweep_jobs("demo", it.ports, it.policy)
    it.clock.advance(61)
    late = sweep_jobs("demo", it.ports, it.policy)

    assert (early, late) == ([], ["llama"])
    assert it.ports.workflows.jobs_started == [("llama", 1)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("state", ["Evaluate diagnostics", "Watch gang"])
def test_what_a_broken_workflow_has_left_is_cleared_away_when_no_rank_runs(state: str) -> None:
    it = JobCluster()
    it.job_breaks[state] = Error("Lambda.Unknown")
    it.submit()

    sweep_jobs("demo", it.ports, it.policy)
    while_it_runs = [n.node_id for n in it.ports.nodes.in_pool("demo") if n.job_id or n.claimed_by]
    if it.job.current_run:
        it.all_become("STOPPED", 1)
    after = [n.node_id for n in it.ports.nodes.in_pool("demo") if n.job_id or n.claimed_by]

    assert while_it_runs == ([A, B] if state == "Watch gang" else [])
    assert after == []


def test_a_job_whose_workflow_broke_while_it_ran_is_restarted_once_its_ranks_have_ended() -> None:
    it = JobCluster()
    it.job_breaks["Watch gang"] = Error("Lambda.Unknown")
    it.submit()
    it.job_breaks.clear()
    it.all_become("STOPPED", 1)

    it.happenings = [finishes]
    seen = it.walk_job(restart_job("llama", it.ports).submission)

    assert seen.end == "Completed"
    assert it.is_clean


def test_what_an_earlier_submission_has_left_is_stopped_before_its_nodes_are_chosen() -> None:
    it = JobCluster()
    it.job_breaks["Watch gang"] = Error("Lambda.Unknown")
    it.submit()
    it.job_breaks.clear()
    it.happenings = [finishes]

    walk = it.walk_job(restart_job("llama", it.ports).submission)

    first, second = it.ports.jobs.runs("llama")
    assert walk.path[:5] == ["Is the input valid?", "Initialize", "Choose nodes", "What next?", "Stop job"]
    assert [task.status for task in first.tasks] == ["STOPPED", "STOPPED"]
    assert first.ended_at is not None
    assert second.started_at >= first.ended_at
    assert (walk.end, it.is_clean) == ("Completed", True)


def test_no_second_run_starts_beside_one_that_still_runs() -> None:
    """Of a run that release 0.3.0 has recorded, nobody knows the submission."""
    it = JobCluster()
    it.job_breaks["Watch gang"] = Error("Lambda.Unknown")
    it.submit()
    it.job_breaks.clear()
    assert it.ports.jobs.save_run(replace(it.run, submission=0))

    walk = it.walk_job(restart_job("llama", it.ports).submission)

    assert walk.end == "Escalated"
    assert "may still be writing checkpoints" in it.job.summary
    assert [run.number for run in it.ports.jobs.runs("llama")] == [1]
    assert it.is_clean, "what still ran was stopped"


def test_a_job_whose_own_old_ranks_hold_the_nodes_does_not_wait_for_them() -> None:
    it = JobCluster(pool_of=2)
    it.job_breaks["Watch gang"] = Error("Lambda.Unknown")
    it.submit()
    it.job_breaks.clear()
    it.happenings = [finishes]

    walk = it.walk_job(restart_job("llama", it.ports).submission)

    assert (walk.end, "Wait for nodes" in walk.path) == ("Completed", False)
