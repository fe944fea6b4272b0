"""Jobs, what is noted of them, and the directories that they hold: one specification over memory and DynamoDB."""

from dataclasses import replace
from datetime import timedelta

import boto3
import pytest

from nodeheal.adapters.memory.stores import MemoryJobNotes
from nodeheal.contract.job_spec import PARTS_AT_MOST
from nodeheal.contract.vocabulary import JobFindingKind, JobState, Outcome
from nodeheal.domain.jobs.job import CheckAnswer, GangTask, Hang, Job, Run
from nodeheal.domain.jobs.job_findings import JobFinding, NotedFinding, Suspect
from nodeheal.ports import Ports
from tests.support.builders import NOW
from tests.support.dynamo_tables import clock, ports
from tests.support.jobs import ecs_job

__all__ = ["clock", "ports"]  # the fixtures


def job(name: str, pool: str = "demo", **changes: object) -> Job:
    return replace(ecs_job(name, pool, "training", "trainer:1", "trainer", 2), **changes)  # type: ignore[arg-type]


def answer(request: str, node: str, outcome: Outcome = Outcome.DONE) -> CheckAnswer:
    return CheckAnswer(request, node, "boot-1", outcome, "all tests passed", NOW)


def names_of(jobs: "list[Job]") -> list[str]:
    return [one.job_id for one in jobs]


def test_a_job_comes_back_with_its_command(ports: Ports) -> None:
    saved = job("llama", command=("python", "train.py"), environment={"A": "b"})

    assert ports.jobs.save(saved)

    assert ports.jobs.get("llama") == replace(saved, version=1)


def test_a_pool_lists_its_own_jobs_by_name(ports: Ports) -> None:
    for one in (job("llama"), job("gpt"), job("other", "elsewhere")):
        assert ports.jobs.save(one)

    assert names_of([*ports.job_notes.in_pool("demo")]) == ["gpt", "llama"]
    assert names_of([*ports.job_notes.in_pool("nowhere")]) == []


def test_a_job_that_is_over_leaves_the_list_of_the_living_and_comes_back_when_it_is_restarted(ports: Ports) -> None:
    assert ports.jobs.save(job("llama"))
    over = job("llama", state=JobState.COMPLETED, version=1)

    assert ports.jobs.save(over)
    living, known = ports.job_notes.in_pool("demo", live_only=True), ports.job_notes.in_pool("demo")
    assert ports.jobs.save(replace(over, state=JobState.SUBMITTED, version=2))

    assert (names_of([*living]), names_of([*known])) == ([], ["llama"])
    assert names_of([*ports.job_notes.in_pool("demo", live_only=True)]) == ["llama"]


def test_jobs_are_read_on_behind_any_of_them_those_that_are_over_by_themselves(ports: Ports) -> None:
    for name in ("b", "a", "d", "c"):
        assert ports.jobs.save(job(name))
    assert ports.jobs.save(job("elsewhere", "other"))
    assert ports.jobs.save(job("c", state=JobState.COMPLETED, version=1))

    def names(after: str, *, is_over: bool) -> list[str]:
        return names_of([*ports.jobs.after("demo", after, is_over=is_over, page_size=1)])

    assert (names("", is_over=False), names("a", is_over=False)) == (["a", "b", "d"], ["b", "d"])
    assert (names("", is_over=True), names("c", is_over=True)) == (["c"], [])


def test_a_job_that_somebody_else_has_changed_is_not_written_over(ports: Ports) -> None:
    assert ports.jobs.save(job("llama"))

    assert not ports.jobs.save(job("llama"))
    assert not ports.jobs.save(job("llama", version=7))
    assert ports.jobs.save(job("llama", version=1, summary="run 1 is under way"))


def test_runs_come_in_order_and_only_those_of_the_job(ports: Ports) -> None:
    task = GangTask("mi-1", 0, "boot-1", "placement")
    for name, number in (("llama", 10), ("llama", 2), ("llama", 1), ("llama-2", 3)):
        assert ports.jobs.save_run(Run(name, number, NOW + timedelta(minutes=number), "why", (task,)))

    assert [run.number for run in ports.jobs.runs("llama")] == [1, 2, 10]
    assert ports.jobs.runs("nobody") == []


def test_the_newest_hang_of_a_run_is_known(ports: Ports) -> None:
    for node_id, incident_id in (("mi-1", "inc-1"), ("mi-2", "inc-2")):
        ports.job_notes.note_hang(Hang("llama/1", node_id, incident_id, NOW))

    assert ports.job_notes.hang_of("llama/1") == Hang("llama/1", "mi-2", "inc-2", NOW)
    assert ports.job_notes.hang_of("llama/2") is None


def test_what_is_wrong_with_a_run_is_kept_by_kind_and_only_of_that_run(ports: Ports) -> None:
    suspects = (Suspect("mi-1", 3, 1.25),)
    slow = NotedFinding(JobFinding("llama", 2, JobFindingKind.SLOW_RANK, 1.25, 0.8, 500, suspects), NOW)
    hung = NotedFinding(JobFinding("llama", 2, JobFindingKind.HUNG, 90.0, 1.0, 500), NOW, over_at=NOW)
    other = NotedFinding(JobFinding("llama", 1, JobFindingKind.HUNG, 90.0, 1.0), NOW)
    for each in (slow, hung, other, replace(slow, announced_at=NOW)):
        ports.job_findings.note(each)

    assert list(ports.job_findings.of("llama", 2)) == [hung, replace(slow, announced_at=NOW)]
    assert ports.job_findings.of("gpt", 2) == []


def test_the_first_answer_to_a_request_holds(ports: Ports) -> None:
    ports.job_notes.note_answer("llama", answer("llama-1-0", "mi-1"))
    ports.job_notes.note_answer("llama", answer("llama-1-0", "mi-1", Outcome.FAILED))
    ports.job_notes.note_answer("llama", answer("llama-1-0", "mi-2", Outcome.FAILED))
    ports.job_notes.note_answer("llama", answer("llama-1-1", "mi-1", Outcome.TIMED_OUT))
    ports.job_notes.note_answer("gpt", answer("gpt-1-0", "mi-1"))

    found = [(a.request_id, a.node_id, a.outcome) for a in ports.job_notes.answers("llama")]

    assert found == [
        ("llama-1-0", "mi-1", Outcome.DONE),
        ("llama-1-0", "mi-2", Outcome.FAILED),
        ("llama-1-1", "mi-1", Outcome.TIMED_OUT),
    ]
    assert ports.job_notes.answers("llama")[0] == answer("llama-1-0", "mi-1")


@pytest.mark.parametrize(
    "wanted",
    [
        *("/fsx/team", "/fsx", "/fsx/team/llama", "/fsx/team/llama/a/b"),
        *("//fsx/team/llama", "/fsx/team/llama/", "/fsx/./team//llama", "/fsx/x/../team/llama", "/FSX/Team/llama"),
    ],
)
def test_nobody_gets_a_directory_above_or_below_that_of_a_live_job(ports: Ports, wanted: str) -> None:
    """Once only equal paths were compared: two jobs wrote over one another."""
    notes = ports.job_notes
    notes.hold("/fsx/team/llama", "llama")

    refused = notes.hold(wanted, "gpt")
    beside = [notes.hold(other, other) for other in ("/fsx/team/llama2", "/fsx/team/lla", "/fsx/other")]
    for other in ("/fsx/team/llama2", "/fsx/team/lla", "/fsx/other"):
        notes.release_directory(other, other)
    notes.release_directory(wanted, "gpt")
    still = notes.hold(wanted, "gpt")
    notes.release_directory("/fsx/team/llama/", "llama")

    assert refused == still == "llama"
    assert beside == ["/fsx/team/llama2", "/fsx/team/lla", "/fsx/other"]
    assert notes.hold(wanted, "gpt") == "gpt"


def test_one_that_was_refused_leaves_nothing_that_keeps_others_out(ports: Ports) -> None:
    notes = ports.job_notes
    notes.hold("/fsx/team/llama", "llama")

    assert notes.hold("/fsx", "greedy") == "llama"

    assert notes.hold("/fsx/team/gpt", "gpt") == "gpt"


def test_a_directory_as_deep_as_the_file_allows_is_held_and_given_back(ports: Ports) -> None:
    deep = "/" + "/".join("abcdefghijklmnopqrstuvwx"[:PARTS_AT_MOST])

    assert ports.job_notes.hold(deep, "llama") == ports.job_notes.hold(deep, "llama") == "llama"
    assert ports.job_notes.hold("/a", "gpt") == "llama"
    ports.job_notes.release_directory(deep, "llama")
    assert ports.job_notes.hold("/a", "gpt") == "gpt"


def test_nothing_is_left_in_the_table_of_a_directory_that_was_given_back(ports: Ports) -> None:
    ports.job_notes.hold("/fsx/team/llama", "llama")
    ports.job_notes.hold("/fsx/team/gpt", "gpt")
    ports.job_notes.release_directory("/fsx/team/llama", "llama")

    assert leased(ports) <= {"/fsx", "/fsx/team", "/fsx/team/gpt"}
    ports.job_notes.release_directory("/fsx/team/gpt", "gpt")
    assert leased(ports) == set()


def leased(ports: Ports) -> set[str]:
    """The paths of which anything is kept."""
    if isinstance(ports.job_notes, MemoryJobNotes):
        return set(ports.job_notes.leases)
    items = boto3.client("dynamodb", region_name="us-east-1").scan(TableName="state")["Items"]
    return {item["pk"]["S"].removeprefix("lease#") for item in items if item["pk"]["S"].startswith("lease#")}


def test_a_directory_is_one_jobs_until_that_job_lets_go_of_it(ports: Ports) -> None:
    notes = ports.job_notes

    held = [notes.hold("/fsx/a", name) for name in ("llama", "gpt", "llama")]
    notes.release_directory("/fsx/a", "gpt")
    still = notes.hold("/fsx/a", "gpt")
    notes.release_directory("/fsx/a", "llama")
    notes.release_directory("/fsx/a", "llama")

    assert held == ["llama", "llama", "llama"]
    assert still == "llama"
    assert notes.hold("/fsx/a", "gpt") == "gpt"
    assert notes.hold("/fsx/b", "llama") == "llama"
