"""`nodeheal jobs`: submit, look, stop, wait and read, over a world in memory."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from nodeheal.cli import connect
from nodeheal.contract import names
from nodeheal.contract.job_spec import RestartLimits
from nodeheal.contract.training import NodeTraining
from nodeheal.contract.vocabulary import Action, EndCause, JobState, NodeState, Trouble
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.job_log import LogLine
from nodeheal.domain.jobs.owner import Owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.services.operators.operator_guardrails import pause_pool
from nodeheal.services.steps import save_node
from tests.support.builders import ACT, NOW, node, stored_job, stored_run
from tests.support.job_cluster import JobCluster, fails, is_recovered
from tests.support.jobs import ecs_job_of
from tests.support.jobs_command import FILE, TRAINER, World, put_in_place, run, submit, world

__all__ = ["world"]  # fixtures

IMAGE = FILE.replace("task_definition: trainer", "image: llama:3\ncommand: [python, train.py]\naccelerators: 4") + (
    "mounts: [{source: /fsx, target: /fsx}]\nenvironment: {A: b}\n"
)


def test_a_job_is_put_on_record_with_the_revision_that_was_checked_and_started(world: World, tmp_path: Path) -> None:
    said = submit(tmp_path, FILE)

    assert said.exit_code == 0, said.output
    assert "llama is submitted; nodes as they are now: mi-a, mi-b" in said.output
    assert (world.job.task_definition, world.job.cluster.name, world.job.state) == (
        "trainer:7",
        "training",
        JobState.SUBMITTED,
    )
    assert world.job.accelerators == 8  # as its tasks take, where the file does not say
    assert world.started == [("llama", 1)]


def test_of_an_image_a_task_definition_is_made_that_holds_command_and_environment(world: World, tmp_path: Path) -> None:
    submit(tmp_path, IMAGE)

    [spec] = world.definitions.registered
    assert spec.command == ("python", "train.py")
    assert world.job.task_definition == "nodeheal-llama:1"
    assert (world.job.command, world.job.environment, world.job.accelerators) == ((), {}, 4)


def test_a_dry_run_shows_everything_and_touches_nothing(world: World, tmp_path: Path) -> None:
    said = submit(tmp_path, IMAGE, "--dry-run").output

    told = json.loads(submit(tmp_path, IMAGE, "--dry-run", "--json").output)
    assert "llama: 2 nodes with 4 accelerators each of pool demo" in said
    assert "nodes now    mi-a, mi-b" in said
    assert len(said.splitlines()) <= 10
    assert told["task_definition"]["image"] == "llama:3"
    assert told["placement"]["nodes"] == ["mi-a", "mi-b"]
    assert world.ports.jobs.get("llama") is None
    assert (world.definitions.registered, world.started) == ([], [])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("nodes: 2", "nodes: 4"), "nodes: llama wants 4 nodes with 8 accelerators, and pool demo has 3 nodes"),
        (("nodes: 2", "nodes: 2\nspares: 2"), "with 2 more to be left free, and pool demo has 3 nodes"),
        (("nodes: 2", "nodes: 2\naccelerators: 16"), "accelerators: trainer:7 takes 8 accelerators on each node"),
        (("pool: demo", "pool: dmeo"), "no pool dmeo is known; did you mean demo?"),
        (("definition: trainer", "definition: trainr"), "task_definition: there is no trainr"),
        (("nodes: 2", "nodes: 2\ncontainer: trainr"), "trainer:7 has no container trainr, but trainer, proxy; did you"),
    ],
)
def test_what_no_waiting_can_mend_is_refused_at_once(
    world: World, tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    said = submit(tmp_path, FILE.replace(*change))

    assert said.exit_code == 1
    assert complaint in said.output
    assert (world.ports.jobs.get("llama"), world.started) == (None, [])


def test_a_task_definition_of_another_network_is_refused(world: World, tmp_path: Path) -> None:
    world.definitions.definitions["trainer"] = replace(TRAINER, has_host_network=False)

    assert "must have the network mode host" in submit(tmp_path, FILE).output
    assert world.started == []


def test_a_pool_that_is_paused_or_taken_is_waited_for_and_said_so(world: World, tmp_path: Path) -> None:
    pause_pool("demo", 3_600, "new switch", world.ports)
    paused = submit(tmp_path, FILE, "--dry-run").output
    pause_pool("demo", 0, "it is in", world.ports)
    save_node(world.ports, node("mi-a"), job_id="other")
    save_node(world.ports, node("mi-b"), job_id="other")

    said = submit(tmp_path, FILE)

    assert "new switch" in paused
    assert "it waits: llama wants 2 nodes; 1 of pool demo is free" in said.output
    assert world.started == [("llama", 1)]


def test_a_name_is_taken_once(world: World, tmp_path: Path) -> None:
    submit(tmp_path, IMAGE)

    again, dry = submit(tmp_path, IMAGE), submit(tmp_path, IMAGE, "--dry-run")

    assert (again.exit_code, dry.exit_code) == (1, 1)
    assert "name: job llama exists already (SUBMITTED); give another name, or --idempotent returns it" in again.output
    assert dry.output == again.output
    assert submit(tmp_path, IMAGE, "--dry-run", "--idempotent").exit_code == 0
    assert len(world.definitions.registered) == 1
    world.becomes(state=JobState.FAILED, trouble=Trouble.PROGRAM_FAILS)
    assert "`nodeheal jobs restart llama` runs the old one again as it was, and not this file" in (
        " ".join(submit(tmp_path, IMAGE).output.split())
    )
    assert "Where the job's file has to change, submit it under another name." in run("show", "llama").output


def test_an_idempotent_submission_makes_up_for_a_start_that_a_crash_has_lost(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    world.ports.workflows.jobs_started.clear()  # type: ignore[attr-defined]  # it crashed between record and start
    world.clock.advance(5)

    again = submit(tmp_path, FILE.replace("nodes: 2", "nodes: 3"), "--idempotent")

    assert again.exit_code == 0
    assert world.started == [("llama", 1)]
    assert world.job.nodes == 2
    assert "llama was submitted before and is SUBMITTED" in again.output
    assert "warning: the file differs from it in nodes; it runs as it was submitted" in again.output


@pytest.mark.parametrize("line", ["command: [python, other.py]", "environment: {EPOCHS: '9'}", "master_port: 29501"])
def test_what_an_idempotent_submission_does_not_change_is_said(world: World, tmp_path: Path, line: str) -> None:
    submit(tmp_path, FILE)
    world.clock.advance(5)

    again = submit(tmp_path, f"{FILE}{line}\n", "--idempotent")

    assert f"warning: the file differs from it in {line.partition(':')[0]}; it runs as it was submitted" in again.output


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("image: llama:3", "image: llama:4", "image"),
        ("[python, train.py]", "[python, other.py]", "command"),
        ("environment: {A: b}", "environment: {A: c}", "environment"),
        ("target: /fsx}", "target: /data}", "mounts"),
    ],
)
def test_a_job_of_an_image_is_compared_by_all_of_its_file(
    world: World, tmp_path: Path, before: str, after: str, named: str
) -> None:
    submit(tmp_path, IMAGE)
    world.clock.advance(5)

    again = submit(tmp_path, IMAGE.replace(before, after), "--idempotent")

    assert again.exit_code == 0
    assert f"the file differs from it in {named}; it runs as it was submitted" in again.output


def test_a_file_that_only_spells_it_otherwise_is_the_same(world: World, tmp_path: Path) -> None:
    submit(tmp_path, IMAGE)
    world.clock.advance(5)

    again = submit(tmp_path, f"{IMAGE}priority: 0\nstop_seconds: 30\n", "--idempotent")

    assert "differs" not in again.output


def test_a_job_is_submitted_though_nobody_knows_whether_its_owner_gets_emails(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(owner: Owner) -> bool:
        raise ClientError({"Error": {"Code": "AuthorizationError", "Message": "no"}}, "ListSubscriptionsByTopic")

    monkeypatch.setattr(world.owners, "is_confirmed", denied)

    answer = submit(tmp_path, f"{IMAGE}owner: ada@example.com\n")

    assert answer.exit_code == 0
    assert "llama is submitted" in answer.output


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["submit", "dry run"])
@pytest.mark.parametrize("directory", ["/fsx/llama", "/fsx/", "/fsx/llama/nested", "/fsx//./LLAMA"])
def test_a_directory_that_another_job_has_is_refused_at_once(
    world: World, tmp_path: Path, directory: str, more: tuple[str, ...]
) -> None:
    submit(tmp_path, FILE)

    second = submit(tmp_path, FILE.replace("llama", "gpt", 1).replace("/fsx/llama", directory), *more)

    said = " ".join(second.output.split())
    assert second.exit_code == 1
    mine = str(Path(directory))
    overlaps = "" if mine == "/fsx/llama" else f", which {mine} overlaps with"
    assert f"job llama writes its checkpoints to /fsx/llama{overlaps}; give gpt another one" in said
    assert world.ports.jobs.get("gpt") is None


def test_a_directory_of_a_job_that_is_over_is_free(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    world.becomes(state=JobState.COMPLETED)

    assert submit(tmp_path, FILE.replace("llama", "gpt", 1)).exit_code == 0


def test_an_owner_who_has_not_agreed_to_emails_is_named(world: World, tmp_path: Path) -> None:
    text = FILE + "owner: ada@example.com\n"

    before = submit(tmp_path, text).output
    world.owners.confirmed.add(Owner("ada@example.com"))
    after = submit(tmp_path, text, "--idempotent").output

    assert "ada@example.com has not confirmed emails: `nodeheal owners subscribe ada@example.com`" in before
    assert "has not agreed" not in after


def test_a_list_has_those_that_live_first(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    submit(tmp_path, FILE.replace("llama", "gpt", 1).replace("/fsx/llama", "/fsx/gpt"))
    job = stored_job(world.ports, "gpt")
    world.ports.jobs.save(replace(job, state=JobState.COMPLETED, summary="done"))

    rows = json.loads(run("list", "--json").output)
    live = json.loads(run("list", "demo", "--live", "--json").output)
    said = run("list").output

    assert [(row["job"], row["state"]) for row in rows] == [("llama", "SUBMITTED"), ("gpt", "COMPLETED")]
    assert [row["job"] for row in live] == ["llama"]
    assert said.endswith("2 jobs, 1 active\n")
    assert "no pool nowhere is known" in run("list", "nowhere").output


def test_a_job_that_nobody_knows_is_said_to_be_unknown(world: World) -> None:
    for words in (("show", "x"), ("stop", "x", "--why", "y"), ("restart", "x"), ("wait", "x"), ("logs", "x")):
        said = run(*words)

        assert said.exit_code == 1
        assert "no job x is known" in said.output


def test_a_stop_is_on_record_with_the_first_reason(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)

    said = run("stop", "llama", "--why", "wrong data")

    assert "is being stopped" in said.output
    assert world.job.stop_wanted.endswith(": wrong data")
    assert run("stop", "llama", "--why", "again").exit_code == 0
    assert world.job.stop_wanted.endswith(": wrong data")


def test_a_stop_without_a_reason_or_of_a_job_that_is_over_changes_nothing(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    assert run("stop", "llama", "--why", " ").exit_code == 2
    world.becomes(state=JobState.COMPLETED, summary="all ranks ended well")

    said = run("stop", "llama", "--why", "late")

    assert said.output == "llama is COMPLETED already: all ranks ended well\n"
    assert world.job.stop_wanted == ""


def test_a_job_that_is_over_is_submitted_again_and_one_that_is_not_is_not(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    early = run("restart", "llama")
    world.becomes(state=JobState.FAILED, trouble=Trouble.PROGRAM_FAILS, stop_wanted="ada: not worth it")

    late = run("restart", "llama")

    assert (early.exit_code, "stop it first" in early.output) == (1, True)
    assert "submission 2" in late.output
    assert world.started == [("llama", 1), ("llama", 2)]
    assert (world.job.stop_wanted, world.job.trouble) == ("", None)


@pytest.mark.parametrize(("state", "code"), [(JobState.COMPLETED, 0), (JobState.FAILED, 3), (JobState.CANCELLED, 4)])
def test_a_wait_tells_each_change_once_and_leaves_with_the_code_of_the_ending(
    world: World, tmp_path: Path, state: JobState, code: int
) -> None:
    submit(tmp_path, FILE)
    world.happenings = [
        lambda: world.becomes(state=JobState.RUNNING, summary="run 1 is under way"),
        lambda: None,
        lambda: world.becomes(state=state, summary="that is it"),
    ]

    said = run("wait", "llama")

    told = [line.split("UTC  ")[1] for line in said.output.splitlines()]
    assert said.exit_code == code
    assert told == ["SUBMITTED  submitted", "RUNNING  run 1 is under way", f"{state}  that is it"]


def test_a_wait_for_a_job_that_is_over_says_when_it_ended(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    world.becomes(state=JobState.CANCELLED, summary="stopped")
    never_ran = run("wait", "llama").output
    launched(world, 1)
    run_ = world.ports.jobs.get_run("llama", 1)
    assert run_ is not None
    world.ports.jobs.save_run(replace(run_, ended_at=NOW + timedelta(minutes=5)))
    world.becomes(current_run=1, state=JobState.COMPLETED, summary="run 1 is done")
    world.clock.advance(86_400)

    said = run("wait", "llama").output
    world.becomes(state=JobState.CANCELLED, summary="stopped")

    assert never_ran == "before  CANCELLED  stopped\n"
    assert run("wait", "llama").output == never_ran  # it may have been stopped long after its last run had ended
    assert said == f"{NOW + timedelta(minutes=5):%Y-%m-%d %H:%M:%S} UTC  COMPLETED  run 1 is done\n"


def test_a_wait_ends_when_its_time_is_up(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    world.happenings = [lambda: world.clock.advance(3_600)] * 2

    said = run("wait", "llama", "--timeout", "2h")

    assert said.exit_code == 5
    assert world.happenings == []
    assert run("wait", "llama", "--timeout", "soon").exit_code == 2


def test_a_wait_outlives_a_network_that_is_away_for_a_moment_and_no_more(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(tmp_path, FILE)
    world.becomes(state=JobState.COMPLETED)
    get, away = world.ports.jobs.get, [True] * 4

    def flaky(job_id: str) -> Job | None:
        if away and away.pop():
            raise EndpointConnectionError(endpoint_url="https://dynamodb")
        return get(job_id)

    monkeypatch.setattr(world.ports.jobs, "get", flaky)
    world.happenings = [lambda: None] * 4
    assert run("wait", "llama").exit_code == 0

    away[:] = [True] * 5
    world.happenings = [lambda: None] * 4
    assert run("wait", "llama").exit_code == 1


class Recovered:
    """A job whose program failed once, was restarted, and fails for good."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = JobCluster()
        self.world = World(self.cluster.ports, self.cluster.clock)
        put_in_place(self.world, monkeypatch)
        self.cluster.happenings = [fails(), is_recovered]


def test_a_job_is_shown_with_its_ranks_its_runs_its_incidents_and_what_it_has_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = Recovered(monkeypatch)
    it.cluster.submit()
    it.world.owners.confirmed.add(Owner("ada@example.com"))

    said = run("show", "llama").output
    told = json.loads(run("show", "llama", "--json").output)

    own = "1 of 3 in 24 h for failures of its program (restarts.of_application)"
    total = "Restarts    1 of 100 since it was submitted\n            1 of 10 in 24 h\n"
    assert f"{total}            {own}\n" in said
    assert "Owner       ada@example.com gets emails about it" in said
    assert f"Ranks of run 2 (in ECS started by {names.started_by('llama', 2)}):" in said
    assert "ended with exit code 1" in said
    assert "https://console.example/llama-1" in said
    [incident] = told["incidents"]
    assert incident["execution"] == f"https://console.example/{incident['incident']}"
    assert incident["incident"] in said
    assert [one["run"] for one in told["runs"]] == [1, 2]
    assert [one["started_by"] for one in told["runs"]] == [names.started_by("llama", n) for n in (1, 2)]
    assert [rank["exit_code"] for rank in told["runs"][0]["ranks"]] == [143, 1]
    assert (told["restarts"]["total"], told["restarts"]["of_application"], told["owner_confirmed"]) == (1, 1, True)


@pytest.mark.parametrize(
    ("own", "before", "limit"),
    [
        ({}, 0, "9 more in 24 h (the policy's limits.RESTART_WORKLOAD)"),
        ({}, 20, "no more in 24 h (the policy's limits.RESTART_WORKLOAD)"),
        ({"in_window": 3, "window_seconds": 7_200}, 0, "2 more in 2 h (its own restarts.in_window)"),
        ({"total": 4}, 0, "3 more since it was submitted (its own restarts.total)"),
    ],
)
def test_a_job_says_which_limit_of_restarts_it_reaches_next(
    own: dict[str, int], before: int, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Recovered(monkeypatch)
    for number in range(before):  # of an earlier submission: only the policy counts them
        it.world.ports.attempts.reserve("job#llama", f"before-{number}", ACT.limits[Action.RESTART_WORKLOAD])
    it.cluster.submit()
    it.world.becomes(restarts=RestartLimits(**own))

    assert f"            next limit: {limit}\n" in run("show", "llama").output
    assert json.loads(run("show", "llama", "--json").output)["restarts"]["next_limit"] == limit


def test_who_may_not_read_the_policy_is_shown_that_it_limits_restarts_too(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(table: str) -> RecoveryPolicy:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetItem")

    submit(tmp_path, FILE)
    monkeypatch.setattr(connect, "policy_copy", refuses)

    assert "            the policy limits them too: nodeheal policy show\n" in run("show", "llama").output
    assert json.loads(run("show", "llama", "--json").output)["restarts"]["next_limit"] is None


def test_a_job_that_waits_says_for_what(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    fresh = run("show", "llama").output
    world.becomes(summary="waits for nodes: 1 of pool demo is free")

    waiting = json.loads(run("show", "llama", "--json").output)

    assert "Waits for   its workflow, which starts within a minute" in fresh
    assert "Owner       nobody; only the operators are told" in fresh
    assert waiting["waits_for"] == "waits for nodes: 1 of pool demo is free"
    assert "Waits for" not in run("show", "llama").output, "the state has said it already"


@pytest.mark.parametrize("code", ["AccessDeniedException", "InternalServerError"])
def test_who_may_not_read_incidents_is_shown_the_job_without_what_its_incident_waits_for(code: str) -> None:
    def refuses() -> str:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, "Query")

    if code == "AccessDeniedException":
        assert connect.if_allowed(refuses) == ""
    else:
        with pytest.raises(ClientError):
            connect.if_allowed(refuses)


def launched(world: World, number: int, *, ended: bool = False) -> None:
    """The job's next run, whose ranks write two lines each."""
    from nodeheal.services.jobs.start_gang import record_run

    record_run(
        world.job,
        [world.ports.nodes.get(name) or node(name) for name in ("mi-a", "mi-b")],
        f"run {number}",
        world.ports,
    )
    run_ = stored_run(world.ports, "llama", number)
    status = "STOPPED" if ended else "RUNNING"
    tasks = tuple(replace(t, task_id=f"task/{number}{t.rank}", status=status, exit_code=0) for t in run_.tasks)
    world.ports.jobs.save_run(replace(run_, tasks=tasks))
    for task in tasks:
        lines = [LogLine(NOW.replace(second=2 * i + task.rank), f"run {number} step {i}") for i in (1, 2)]
        world.logs.streams[f"llama/trainer/{number}{task.rank}"] = lines


def ends(world: World, number: int) -> None:
    """Every rank of the run stops."""
    run_ = stored_run(world.ports, "llama", number)
    world.ports.jobs.save_run(replace(run_, tasks=tuple(replace(t, status="STOPPED") for t in run_.tasks)))


def test_what_ranks_have_written_comes_in_the_order_of_time(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    assert "none has begun yet" in run("logs", "llama").output
    launched(world, 1)

    assert run("logs", "llama").stdout.splitlines() == [
        "[0] run 1 step 1",
        "[1] run 1 step 1",
        "[0] run 1 step 2",
        "[1] run 1 step 2",
    ]
    assert run("logs", "llama", "--rank", "1").stdout.splitlines() == ["run 1 step 1", "run 1 step 2"]
    assert "run 1 of llama has no rank 2, but 0 to 1" in run("logs", "llama", "--rank", "2").output
    assert "llama has no run 7; its newest is 1" in run("logs", "llama", "--run", "7").output


def test_who_has_written_nothing_is_said_to_and_where_it_was_looked_for(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    launched(world, 1)
    world.logs.streams.clear()

    silent = run("logs", "llama")

    assert silent.exit_code == 0
    assert silent.stdout == ""
    assert "run 1 of llama has written nothing yet: log group /nodeheal/jobs, streams llama/trainer/10" in silent.stderr


def test_a_definition_that_logs_elsewhere_is_said_to(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE.replace("nodes: 2", "nodes: 2\ncontainer: proxy"))
    launched(world, 1)

    assert "trainer:7 does not store the output of proxy" in run("logs", "llama").output


def test_who_follows_sees_what_is_new_once_and_goes_on_with_the_next_run(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    launched(world, 1)
    more = LogLine(NOW.replace(second=50), "run 1 step 3")
    world.happenings = [
        lambda: world.logs.streams["llama/trainer/10"].append(more),
        lambda: ends(world, 1),
        *[lambda: None] * 3,
        lambda: launched(world, 2, ended=True),
        *[lambda: None] * 2,
        lambda: world.becomes(state=JobState.COMPLETED),
        *[lambda: None] * 4,
    ]

    said = run("logs", "llama", "-f", "--rank", "0").output.splitlines()

    assert said == [
        "--- run 1 of 1 of llama ---",
        "run 1 step 1",
        "run 1 step 2",
        "run 1 step 3",
        "--- run 2 of 2 of llama ---",
        "--- run 1 before it: every rank ended well (nodeheal jobs logs llama --run 1) ---",
        "run 2 step 1",
        "run 2 step 2",
    ]


def test_the_log_says_which_run_it_is_and_how_the_one_before_it_ended(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    launched(world, 1)
    broken = stored_run(world.ports, "llama", 1)
    tasks = tuple(replace(task, status="STOPPED", exit_code=134) for task in broken.tasks)
    world.ports.jobs.save_run(replace(broken, tasks=tasks))
    launched(world, 2)

    newest, first = run("logs", "llama"), run("logs", "llama", "--run", "1")

    assert newest.stderr.splitlines()[0] == "--- run 2 of 2 of llama ---"
    assert "--- run 1 before it: rank 0" in newest.stderr
    assert "(nodeheal jobs logs llama --run 1) ---" in newest.stderr
    assert first.stderr.splitlines() == ["--- run 1 of 2 of llama ---"]
    assert first.stdout.splitlines()[0] == "[0] run 1 step 1"


def test_a_node_that_was_only_announced_does_not_make_a_pool(world: World, tmp_path: Path) -> None:
    for name in ("mi-a", "mi-b", "mi-c"):
        save_node(world.ports, node(name), state=NodeState.ENROLLED)

    assert "pool: demo has no node that its agent has reported" in submit(tmp_path, FILE).output


def test_a_job_of_a_file_keeps_what_only_overrides_can_carry() -> None:
    from tests.support.job_cluster import spec

    job = ecs_job_of(spec(command=("python", "x.py"), environment={"A": "b"}), "training", "trainer:1", NOW)

    assert (job.command, job.environment) == (("python", "x.py"), {"A": "b"})


def breaks(world: World, number: int, rank: int) -> None:
    """One rank of the run ends with exit code 1; the others are stopped."""
    run_ = world.ports.jobs.get_run("llama", number)
    assert run_ is not None
    stopped = {True: (), False: (EndCause.ON_REQUEST,)}
    tasks = tuple(
        replace(t, status="STOPPED", exit_code=1, end_causes=stopped[t.rank == rank], stopped_at=NOW)
        for t in run_.tasks
    )
    world.ports.jobs.save_run(replace(run_, tasks=tasks))
    world.becomes(current_run=number, state=JobState.FAILED, summary="run 1 has failed")


def test_what_the_rank_that_broke_wrote_last_is_shown(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    launched(world, 1)
    lines = [LogLine(NOW, f"line {number}") for number in range(20)]
    world.logs.streams["llama/trainer/11"] = [*lines, LogLine(NOW, "RuntimeError: CUDA error")]
    breaks(world, 1, rank=1)

    shown, waited = run("show", "llama").output, run("wait", "llama")

    for said in (shown, waited.output):
        assert "Rank 1 wrote last (`nodeheal jobs logs llama --run 1 --rank 1`):" in said
        assert "  | line 19\n  | RuntimeError: CUDA error\n" in said
        assert "line 12" not in said
    assert waited.exit_code == 3


def test_a_log_that_cannot_be_read_hides_nothing_else(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE.replace("nodes: 2", "nodes: 2\ncontainer: proxy"))
    launched(world, 1)
    breaks(world, 1, rank=0)

    said = run("show", "llama")

    assert said.exit_code == 0
    assert "What rank 0 wrote could not be read (trainer:7 does not store the output of proxy" in said.output


def test_how_far_a_job_has_come_is_shown_and_left_out_where_nobody_knows(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE + "steps: 400\n")
    launched(world, 1)
    world.becomes(current_run=1, state=JobState.RUNNING, summary="run 1 trains")
    unknown = run("top").output
    trainings = {"llama/1": NodeTraining("llama/1", 100)}
    beat = Heartbeat("role:mi-a", "boot-1", world.clock(), 60.0, trainings=trainings)
    world.ports.heartbeats.beats["role:mi-a"] = beat  # type: ignore[attr-defined]

    [row] = json.loads(run("list", "--json").output)

    assert (row["step"], row["steps"], row["seconds_left"]) == (100, 400, None)
    assert "Progress    step 100 of 400 (25%)" in run("show", "llama").output
    assert [line.split()[5:7] for line in run("top").output.splitlines()] == [["STEP", "DONE"], ["100", "25%"]]
    assert unknown.splitlines()[1].split()[5:] == ["-"] * 6
    world.becomes(state=JobState.COMPLETED)
    assert run("top").output == "no active job\n"
