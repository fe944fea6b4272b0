"""Who stands in line before a job, and since when: `jobs submit` and `jobs show`, for people and for programs."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nodeheal.contract.names import NODES_LINE, pool_line
from nodeheal.contract.vocabulary import JobState, VerbName
from nodeheal.services.jobs.job_line import NAMED
from nodeheal.services.jobs.job_nodes import place_of
from tests.support.builders import NOW, job_under_way
from tests.support.jobs import ecs_job
from tests.support.jobs_command import FILE, World, run, submit, world

__all__ = ["world"]  # the fixture


def stands(world: World, name: str, minutes: int = 10, **changes: Any) -> None:
    """A job waits for nodes, submitted so long ago."""
    at = NOW - timedelta(minutes=minutes)
    known = {"state": JobState.SUBMITTED, "submission": 1, "submitted_at": at, **changes}
    job = ecs_job(name, "demo", "training", "trainer:7", "trainer", 3, **known)
    if world.ports.jobs.get(name) is None:
        world.ports.jobs.save(job)
    line = (pool_line(NODES_LINE, "demo"), place_of(job))
    job_under_way(world.ports, VerbName.AWAIT_NODES, name, line=line)


def test_who_submits_is_told_who_stands_before_him_and_since_when(world: World, tmp_path: Path) -> None:
    stands(world, "eval", minutes=10)
    stands(world, "urgent", minutes=5, priority=7)
    stands(world, "patient", minutes=60, priority=-1)

    said = submit(tmp_path, FILE)

    assert (
        "2 jobs stand in line before it: urgent (wants 3 nodes, priority 7, since 2026-03-01 02:55:00 UTC), "
        "eval (wants 3 nodes, since 2026-03-01 02:50:00 UTC)\n"
    ) in said.output


def test_where_nobody_stands_nothing_is_said(world: World, tmp_path: Path) -> None:
    assert "in line" not in submit(tmp_path, FILE).output


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_programs_are_told_all_of_it(world: World, tmp_path: Path, more: list[str]) -> None:
    stands(world, "eval")

    said = submit(tmp_path, FILE, "--json", *more)

    told = json.loads(said.output)
    assert told["in_line_before"] == [
        {"job": "eval", "since": "2026-03-01T02:50:00+00:00", "priority": 0, "nodes": 3},
    ]
    assert told["placement"]["nodes"] == ["mi-a", "mi-b"]


def test_what_was_submitted_is_told_to_programs_with_what_differs(world: World, tmp_path: Path) -> None:
    first = json.loads(submit(tmp_path, FILE, "--json").output)
    world.clock.advance(60)
    again = json.loads(submit(tmp_path, FILE + "spares: 1\n", "--json", "--idempotent").output)

    assert (first["job"], first["is_new"], first["differs_in"]) == ("llama", True, [])
    assert (first["owner_confirmed"], len(first["warnings"])) == (None, 0)
    assert (again["is_new"], again["differs_in"]) == (False, ["spares"])


def test_lines_for_people_and_json_do_not_go_together(world: World, tmp_path: Path) -> None:
    said = submit(tmp_path, FILE, "--json", "--wait")

    assert said.exit_code == 2
    assert "--json: not with --wait" in said.output
    assert world.ports.jobs.get("llama") is None


def test_a_job_that_waits_is_shown_with_who_comes_first(world: World, tmp_path: Path) -> None:
    submit(tmp_path, FILE)
    stands(world, "eval")
    stands(world, "later", minutes=-5)
    stands(world, "llama", minutes=0)
    world.becomes(chosen_at=NOW)  # nodes that did not pass: it waits for others

    assert "In line     1 job stands in line before it: eval (" in run("show", "llama").output
    assert [one["job"] for one in json.loads(run("show", "llama", "--json").output)["in_line_before"]] == ["eval"]


@pytest.mark.parametrize("change", [{"state": JobState.RUNNING}, {"chosen_at": NOW}])
def test_one_that_has_its_nodes_stands_in_no_line(world: World, tmp_path: Path, change: dict[str, Any]) -> None:
    submit(tmp_path, FILE)
    stands(world, "eval")
    world.becomes(**change)

    assert "In line" not in run("show", "llama").output


def test_one_that_had_its_nodes_when_it_was_submitted_before_stands_behind_others_again(
    world: World, tmp_path: Path
) -> None:
    submit(tmp_path, FILE)
    stands(world, "eval")
    world.becomes(chosen_at=NOW - timedelta(hours=1), submission=2)

    assert "In line     1 job stands" in run("show", "llama").output


def test_of_a_long_line_the_first_are_named(world: World, tmp_path: Path) -> None:
    for number in range(NAMED + 2):
        stands(world, f"job-{number}", minutes=60 - number)

    said = submit(tmp_path, FILE).output

    assert f"{NAMED + 2} jobs stand in line before it: job-0 (" in said
    assert "and 2 more" in said
