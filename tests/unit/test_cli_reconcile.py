"""`nodeheal reconcile`: it says first what it will set right, and its exit code says whether nodeheal acts again."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract.acts import RecordsReconciled
from tests.support.acts import MemoryControlPlane
from tests.support.builders import ACT
from tests.support.restored_records import A, Restored

RUN = CliRunner()


@pytest.fixture
def it(monkeypatch: pytest.MonkeyPatch) -> Restored:
    it = Restored()
    monkeypatch.setattr(connect, "control_plane", lambda: MemoryControlPlane(it.ports, ACT))
    return it


def run(*words: str) -> Any:
    return RUN.invoke(app, ["reconcile", *words])


def test_a_dry_run_says_what_would_be_set_right_and_does_nothing(it: Restored) -> None:
    incident = it.incident()

    answered = run("--dry-run")

    assert answered.exit_code == 0
    assert f"{incident}: it is OPEN on record" in answered.output
    assert "the records do not know what was done from 2026-" in answered.output
    assert it.ports.epoch.read().has_gone_back


def test_it_sets_right_what_it_says_and_nodeheal_acts_again(it: Restored) -> None:
    it.incident()

    answered = run("--why", "restored to 11:00")

    assert answered.exit_code == 0
    assert answered.output.endswith("the records are set right: nodeheal acts again\n")
    assert not it.ports.epoch.read().has_gone_back
    [handed_over] = it.ports.incidents.incidents.values()  # type: ignore[attr-defined]
    assert "restored to 11:00" in handed_over.summary


def test_it_says_what_it_will_do_and_asks_first(it: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    incident = it.incident()
    monkeypatch.setattr(
        "nodeheal.cli.reconcile.goes_on", lambda told, **how: not any(incident in line for line in told)
    )

    answered = run("--why", "restored")

    assert answered.exit_code == 0
    assert it.ports.epoch.read().has_gone_back


def test_it_is_to_be_run_again_while_a_rank_is_still_to_end(it: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = RecordsReconciled(lost_since=it.ports.clock(), lost_until=it.ports.clock(), waits_for=("task-1 of llama",))
    monkeypatch.setattr(connect, "do", lambda act, result: waits)

    answered = run("--why", "restored")

    assert answered.exit_code == 1
    assert "run the command again when these have ended:\n  task-1 of llama" in answered.output


def test_whole_records_are_left_alone(it: Restored) -> None:
    it.ports.epoch.in_table = it.ports.clock()  # type: ignore[attr-defined]

    assert run("--why", "to be sure").output == "the records are whole: nothing was done\n"


def test_programs_read_json(it: Restored) -> None:
    it.incident()
    told = json.loads(run("--dry-run", "--json").output)
    done = json.loads(run("--why", "restored", "--json").output)

    assert (told["is_over"], done["is_over"]) == (False, True)
    assert told["corrections"] == done["corrections"]
    assert told["corrections"][-1]["about"] == A
