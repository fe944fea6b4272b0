"""Before each start a node is asked where the job goes on; whatever comes of that, the job starts."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodeheal.contract.health_event import CheckpointFound
from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Action, CheckpointFormat, JobState, NodeState, Step
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import FoundCheckpoint
from nodeheal.ports.commands import Command
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.ingest import ingest
from nodeheal.services.jobs.find_checkpoint import find_checkpoint, search_ahead
from nodeheal.services.jobs.submit_job import submit_job
from nodeheal.services.steps import save_node
from tests.support.builders import NOW, scheduler_in, searches_in, stored_job, stored_run, waiting, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE, FakeCluster
from tests.support.job_cluster import NODES, JobCluster, fails, finishes, is_recovered
from tests.support.jobs import ecs_job_of
from tests.support.walker import Error

A, B, C, D = NODES
DIRECTORY = "/mnt/llama"
NEWEST = (f"{DIRECTORY}/iter_0002000", 2000)
FAULT = xid(79, node_id=BROKEN, instance_id=BROKEN)


def training(**spec: Any) -> JobCluster:
    it = JobCluster(checkpoints={"directory": DIRECTORY, "format": "megatron"}, **spec)
    it.happenings = [finishes]
    it.checkpoints = [NEWEST]
    return it


def recovering(**of_job: Any) -> FakeCluster:
    """A job with checkpoints on two nodes, one of which is about to break."""
    it = FakeCluster()
    job = stored_job(it.ports, "llama")
    where = Checkpoints(directory=DIRECTORY, format=CheckpointFormat.megatron)
    assert it.ports.jobs.save(replace(job, **{"checkpoints": where, **of_job}))
    it.checkpoints = [NEWEST]
    return it


def progress_files(it: FakeCluster) -> list[str | None]:
    """Of each search: the file in which the run before has shown its steps."""
    return [sent.parameters.get("Progress") for sent in searches_in(it.ports)]


def searches(it: FakeCluster) -> list[str]:
    return [sent.node_id for sent in searches_in(it.ports)]


def before_its_diagnosis(it: FakeCluster, happens: Callable[[], object]) -> None:
    """What happens once the node is back, before its diagnostics answer."""
    diagnosed = it._diagnosed

    def late(request: StepRequest) -> None:
        happens()
        diagnosed(request)

    it._diagnosed = late  # type: ignore[method-assign]


def told_to_ranks(it: FakeCluster) -> list[tuple[str | None, str | None]]:
    """What the ranks that were started last were told."""
    job = it.ports.jobs.get("llama")
    environments = list(scheduler_in(it.ports).environments.values())
    newest = [one for one in environments if job is not None and one["NODEHEAL_RUN"] == str(job.current_run)]
    return [(one.get("NODEHEAL_RESUME_FROM"), one.get("NODEHEAL_RESUME_STEP")) for one in newest]


def timeline(it: FakeCluster) -> list[str]:
    return [entry.text for entry in it.ports.incidents.history(it.incident_id).timeline]


def test_a_job_that_was_trained_before_goes_on_from_its_newest_checkpoint() -> None:
    it = training()

    seen = it.submit()

    assert seen.end == "Completed"
    assert searches(it) == [A]
    assert told_to_ranks(it) == [(NEWEST[0], "2000")] * 2
    assert it.run.resumed_step == 2000


@pytest.mark.parametrize(
    ("mounts", "inside"),
    [
        ([("/mnt", "/data")], "/data"),
        ([("/mnt", "/data"), (DIRECTORY, "/ckpt")], "/ckpt"),
        ([(DIRECTORY, "/ckpt"), ("/mnt", "/data")], "/ckpt"),
        ([("/elsewhere", "/ckpt")], DIRECTORY),
        ([(f"{DIRECTORY}-2", "/ckpt")], DIRECTORY),
    ],
    ids=["above it", "the innermost", "in any order", "none", "a name that only begins so"],
)
def test_ranks_are_told_where_they_see_the_checkpoint(mounts: list[tuple[str, str]], inside: str) -> None:
    made_of = {"image": "trainer:1", "task_definition": None, "command": ["train"]}
    seen_as = [{"source": source, "target": target} for source, target in mounts]
    it = training(**made_of, mounts=seen_as)

    it.submit()

    rest = NEWEST[0].removeprefix("/mnt" if inside == "/data" else DIRECTORY)
    assert told_to_ranks(it) == [(inside + rest, "2000")] * 2
    assert it.run.resumed_from == NEWEST[0]


def test_a_job_without_checkpoints_asks_nobody() -> None:
    it = JobCluster()
    it.happenings = [finishes]

    assert "Find checkpoint" not in it.submit().path


def test_a_directory_without_a_checkpoint_is_an_answer_and_nobody_else_is_asked() -> None:
    it = training()
    it.checkpoints = []

    it.submit()

    assert searches(it) == [A]
    assert told_to_ranks(it) == [(None, None)] * 2
    assert it.job.found is None


def test_while_it_is_not_launched_the_job_says_where_it_will_go_on() -> None:
    it, said = training(), list[str]()
    it.before["Launch job"] = lambda it: said.append(it.job.summary)

    it.submit()

    assert said == [f"llama goes on from {NEWEST[0]}, step 2000, as {A} sees it"]


def test_a_job_whose_directory_is_empty_says_that_it_starts_from_its_beginning() -> None:
    it, said = training(), list[str]()
    it.checkpoints = []
    it.before["Launch job"] = lambda it: said.append(it.job.summary)

    it.submit()

    assert said == [f"llama starts from its beginning: there is no checkpoint yet, as {A} sees it"]


def test_a_job_that_has_no_checkpoints_any_more_is_not_held_up() -> None:
    it = JobCluster()
    submit_job(ecs_job_of(it.spec, "training", "trainer:1", it.clock()), it.ports)

    find_checkpoint(JobRequest(job_id="llama", submission=1, round=1, task_token="token"), it.ports, it.policy)

    assert it.ports.workflows.resumed["token"].reason == "there is no checkpoint to look for"  # type: ignore[attr-defined]


@pytest.mark.parametrize("why", ["it is over", "another incident has relaunched it"])
def test_where_nothing_is_to_be_started_nobody_is_asked(why: str) -> None:
    it = recovering(**({"state": JobState.CANCELLED} if why == "it is over" else {}))
    decision = Decision(step=Step.RESTART_WORKLOAD, reason="so", node_id=BROKEN, job_id="llama", fault_at=NOW)
    run = stored_run(it.ports, "llama", 1)
    if why != "it is over":
        it.ports.jobs.save_run(replace(run, why="inc-other/3", started_at=NOW + timedelta(seconds=1)))
    ingest(FAULT, it.ports, it.policy)
    incident_id = str(it.node(BROKEN).open_incident)

    request = StepRequest(incident_id=incident_id, turn=1, decision=decision, task_token="token")
    find_checkpoint(request, it.ports, it.policy)

    assert searches(it) == []
    assert "token" in it.ports.workflows.resumed  # type: ignore[attr-defined]


def test_a_node_that_knows_of_no_steps_does_not_make_what_another_has_seen_forgotten() -> None:
    it = recovering()
    run = stored_run(it.ports, "llama", 1)
    it.ports.jobs.save_run(replace(run, last_step=2037))

    it.reports(FAULT)

    before = stored_run(it.ports, "llama", 1)
    assert before.last_step == 2037


@pytest.mark.parametrize("how", ["blind", "hangs", "unknown"])
def test_a_node_that_cannot_tell_costs_nothing_and_the_next_is_asked(how: str) -> None:
    it = training(preflight={"level": 0})
    it.hangs |= {A} if how == "hangs" else set()
    it.blind |= {A} if how == "blind" else set()
    if how == "unknown":
        it.ports.commands.unknown_nodes.add(A)  # type: ignore[attr-defined]

    seen = it.submit()

    assert seen.path.count("Find checkpoint") == 3
    assert searches(it) == ([B] if how == "unknown" else [A, B])
    assert told_to_ranks(it) == [(NEWEST[0], "2000")] * 2


@pytest.mark.parametrize("breaks", [False, True])
def test_where_no_node_can_tell_the_job_starts_without(breaks: bool) -> None:
    it = training(preflight={"level": 0})
    it.blind |= {A, B}
    it.job_breaks = {"Find checkpoint": Error("Runtime.ImportModuleError")} if breaks else {}

    seen = it.submit()

    assert seen.end == "Completed"
    assert seen.path.count("Find checkpoint") == (5 if breaks else 4)
    assert told_to_ranks(it) == [(None, None)] * 2


def test_a_command_that_the_node_refuses_is_an_answer() -> None:
    it = training(preflight={"level": 0})
    looks, asked, said = it._node_looks, [], list[str]()

    def refused_first() -> None:
        asked.append(1)
        if len(asked) == 1:
            [search] = it.ports.operations.all_open()  # type: ignore[attr-defined]
            wakeup.on_command_failed(search.node_id, search.reference, it.ports)
            said.append(next(iter(it.ports.workflows.resumed.values())).reason)  # type: ignore[attr-defined]
        else:
            looks()

    it._node_looks = refused_first  # type: ignore[method-assign]

    it.submit()

    assert said == [f"{A} refused to look for checkpoints, or could not run it"]
    assert searches(it) == [A, B]
    assert told_to_ranks(it) == [(NEWEST[0], "2000")] * 2


@pytest.mark.parametrize("path", ["/etc/passwd", f"{DIRECTORY}-other/x", f"{DIRECTORY}/../etc"])
def test_a_node_that_names_another_directory_is_not_believed(path: str) -> None:
    it = training(preflight={"level": 0})
    it.checkpoints = [(path, 1)]

    it.submit()

    assert searches(it) == [A, B]
    assert told_to_ranks(it) == [(None, None)] * 2


def test_a_recovery_asks_the_healthy_node_while_the_broken_one_is_away() -> None:
    it = recovering()

    it.reports(FAULT)

    [recovery] = [walk for walk in it.walked if "Stop gang" in walk.path]
    start = recovery.path.index("Stop gang")
    assert recovery.path[start : start + 3] == ["Stop gang", "Search for a checkpoint?", "Launch gang"]
    assert searches(it) == [PEER]
    assert [what for what, _ in it.commands if what != "freeze-evidence"] == [
        "reboot-node",
        "find-checkpoint",
        "run-diagnostics",
    ]
    assert told_to_ranks(it) == [(NEWEST[0], "2000")] * 2
    assert f"llama goes on from {NEWEST[0]}, step 2000, as {PEER} sees it" in timeline(it)


def test_a_search_that_comes_too_late_is_made_again() -> None:
    it = recovering()
    it.hangs.add(PEER)
    before_its_diagnosis(it, lambda: it.hangs.remove(PEER))

    it.reports(FAULT)

    assert searches(it) == [PEER, PEER]
    assert told_to_ranks(it) == [(NEWEST[0], "2000")] * 2


def test_while_a_rank_may_still_write_nobody_is_asked() -> None:
    it = recovering()
    decision = Decision(step=Step.REBOOT, action=Action.REBOOT, node_id=BROKEN, job_id="llama", reason="-")

    search_ahead(StepRequest(incident_id="inc-1", turn=3, decision=decision), it.ports)

    assert it.commands == []


def test_a_search_that_is_throttled_keeps_no_node_from_its_reboot() -> None:
    it = recovering()
    commands = it.ports.commands
    send = commands.send

    def throttled(node: Node, command: Command, expires_at: datetime) -> str:
        if command.document == "find-checkpoint" and "run-diagnostics" not in dict(it.commands):
            raise NotAccepted("SendCommand: ThrottlingException")
        return send(node, command, expires_at)

    commands.send = throttled  # type: ignore[method-assign]

    it.reports(FAULT)

    assert [what for what, _ in it.commands][-2:] == ["run-diagnostics", "find-checkpoint"]
    assert told_to_ranks(it) == [(NEWEST[0], "2000")] * 2


def test_a_recovery_searches_before_the_restart_where_nobody_could_tell_before() -> None:
    it = recovering()
    it.blind.add(PEER)
    before_its_diagnosis(it, lambda: it.blind.remove(PEER))

    it.reports(FAULT)

    [recovery] = [walk for walk in it.walked if "Stop gang" in walk.path]
    start = recovery.path.index("Stop gang")
    assert recovery.path[start : start + 5] == [
        "Stop gang",
        "Search for a checkpoint?",
        "Find checkpoint",
        "Search for a checkpoint?",
        "Launch gang",
    ]
    assert recovery.deadlines["Find checkpoint"] == 60
    assert searches(it) == [PEER, PEER]
    assert told_to_ranks(it) == [(NEWEST[0], "2000")] * 2


def test_the_last_step_of_the_run_that_broke_is_asked_for_with_its_checkpoint() -> None:
    it = training(hang_seconds=900)
    it.happenings = [fails(), is_recovered, finishes]
    it.shown_step = 2037

    assert it.submit().end == "Completed"

    assert progress_files(it) == [None, "llama.1.900.json"]
    before, after = it.ports.jobs.runs("llama")
    assert (before.last_step, after.resumed_step, after.last_step) == (2037, 2000, None)
    letters = [told.body for _, told in it.ports.notifier.announced if told.key.endswith("RUNS_AGAIN")]  # type: ignore[attr-defined]
    assert "37 steps: it had taken step 2037, and goes on from step 2000." in " ".join(letters[0].split())


def test_a_job_whose_hangs_are_not_to_be_noticed_has_shown_its_steps_too() -> None:
    it = training()
    it.happenings = [fails(), is_recovered, finishes]

    it.submit()

    assert progress_files(it) == [None, "llama.1.steps"]


def test_what_is_skipped_stands_in_the_incident() -> None:
    torn = "; skipped: iter_0003000: it was not finished"

    [told] = [text for text in skipping({"path": NEWEST[0], "step": NEWEST[1]}) if "goes on from" in text]
    nothing = [text for text in skipping({}) if text.startswith("llama starts from its beginning: ")]

    assert told.endswith(torn)
    assert nothing[0].startswith("llama starts from its beginning: no checkpoint is whole, as ")
    assert nothing[0].endswith(torn)


def skipping(found: dict[str, Any]) -> list[str]:
    """What a recovery tells where the node has found this, and a torn one."""
    it = recovering()
    looks = CheckpointFound.model_validate

    def with_skipped() -> None:
        name, asked = it.asked_to_look()
        fact = {**it._fact(name, it.node(name).boot_id), **asked}
        torn = ("iter_0003000: it was not finished",)
        event = {**fact, "format": "megatron", **found, "skipped": torn}
        wakeup.on_answer(looks(event), it.ports)

    it._node_looks = with_skipped  # type: ignore[method-assign]

    it.reports(FAULT)
    return timeline(it)


def test_a_recovery_goes_on_to_the_healed_node_where_the_peer_cannot_tell() -> None:
    it = recovering()
    it.blind.add(PEER)

    it.reports(FAULT)

    assert searches(it) == [PEER, PEER, BROKEN]
    assert told_to_ranks(it) == [(NEWEST[0], "2000")] * 2
    assert f"{PEER} could not tell where llama goes on: the file system did not answer within 40 s" in timeline(it)


def test_what_was_found_for_the_run_before_is_no_hint_for_the_next() -> None:
    it = recovering(found=FoundCheckpoint(f"{DIRECTORY}/iter_0000001", 1, NOW))
    it.blind |= {PEER, BROKEN, SPARE}

    it.reports(FAULT)

    job = stored_job(it.ports, "llama")
    assert (job.state, job.current_run, job.found) == (JobState.RUNNING, 2, None)
    assert told_to_ranks(it) == [(None, None)] * 2


def test_a_node_that_is_out_of_service_is_not_asked() -> None:
    it = training(preflight={"level": 0})
    it.before["Find checkpoint"] = lambda it: save_node(it.ports, it.node(A), state=NodeState.ISOLATED)

    it.submit()

    assert searches(it)[0] == B


def test_an_answer_of_another_boot_or_of_another_node_is_not_taken() -> None:
    it = training(preflight={"level": 0})
    seen: list[bool] = []

    def others_answer() -> None:
        name, asked = it.asked_to_look()
        for who, boot in ((name, "boot-0"), (C, "boot-1")):
            fact = it._fact(who, boot)
            event = CheckpointFound(**fact, **asked, format=CheckpointFormat.megatron, path=NEWEST[0])
            wakeup.on_answer(event, it.ports)
        seen.append(bool(it.ports.operations.all_open()))  # type: ignore[attr-defined]

    it._node_looks = others_answer  # type: ignore[method-assign]

    it.submit()

    assert all(seen)
    assert told_to_ranks(it) == [(None, None)] * 2


def test_a_repeated_call_sends_nothing_again_and_the_answer_goes_to_the_newer_one() -> None:

    it = training()
    submit_job(ecs_job_of(it.spec, "training", "trainer:1", it.clock()), it.ports)
    last: dict[str, Any] = {"step": "CHOOSE", "job_id": "llama", "outcome": "DONE", "then": "LAUNCH", "reason": "r"}
    last |= {"finished_at": it.clock(), "nodes": (A,)}
    ask: dict[str, Any] = {"job_id": "llama", "submission": 1, "round": 1, "last": last}

    for token in ("first", "second"):
        find_checkpoint(JobRequest.model_validate({**ask, "task_token": token}), it.ports, it.policy)
    it._node_looks()

    assert searches(it) == [A]
    assert list(it.ports.workflows.resumed) == ["second"]  # type: ignore[attr-defined]
    assert waiting(it.ports) == []


def test_an_answer_that_is_quicker_than_the_record_of_its_command_leaves_nothing_behind() -> None:
    it = training()
    submit_job(ecs_job_of(it.spec, "training", "trainer:1", it.clock()), it.ports)
    last: dict[str, Any] = {"step": "CHOOSE", "job_id": "llama", "outcome": "DONE", "then": "LAUNCH", "reason": "r"}
    last |= {"finished_at": it.clock(), "nodes": (A,)}
    request = {"job_id": "llama", "submission": 1, "round": 1, "last": last, "task_token": "token"}
    sent = it.ports.commands.send

    def sends(*given: Any) -> str:
        command_id = sent(*given)
        it._node_looks()
        return command_id

    it.ports.commands.send = sends  # type: ignore
    find_checkpoint(JobRequest.model_validate(request), it.ports, it.policy)

    assert list(it.ports.workflows.resumed) == ["token"]  # type: ignore[attr-defined]
    assert waiting(it.ports) == []
