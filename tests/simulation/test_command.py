"""`nodeheal simulate`: what it prints, what it refuses, and how it fails."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nodeheal.cli.main import app
from nodeheal.cli.simulated import tell
from nodeheal.simulation import definition
from nodeheal.simulation.report import SimulationReport
from tests.simulation.cases import CASES


def _run(*given: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *given])


def test_it_prints_what_came_of_it_and_the_same_again_for_the_same_seed() -> None:
    given = ("--nodes", "30", "--days", "5", "--seed", "3", "--faults-per-node-day", "0.05", "--json")

    first, second = _run(*given), _run(*given)

    known: dict[str, Any] = json.loads(first.stdout)
    assert first.exit_code == 0
    assert known["violations"] == 0
    assert known["incidents"] > 3
    assert sum(known["dollars"].values()) > 0
    assert 0.5 < known["ettr"] < 1
    assert first.stdout == second.stdout


def test_a_node_that_waited_for_a_human_is_not_told_among_those_that_were_isolated_at_once(tmp_path: Path) -> None:
    given = ("--nodes", "30", "--days", "5", "--seed", "3", "--faults-per-node-day", "0.05")
    policy = tmp_path / "policy.json"
    policy.write_text('{"default_pool": {"mode": "approve"}}', "utf-8")

    found: dict[str, Any] = json.loads(_run(*given, "--policy", str(policy), "--json").stdout)
    told = _run(*given, "--policy", str(policy)).stdout

    assert found["isolated_at_once_seconds"] == {}
    assert found["isolated_after_wait_seconds"] == found["isolated_after_seconds"] != {}
    assert next(" ".join(line.split()) for line in told.splitlines() if "isolated" in line) == "fault to isolated none"


def test_a_violation_comes_with_the_command_that_replays_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_away, *_ = CASES["every_fault_is_accounted_for"]
    take_away(monkeypatch)

    found = _run("--nodes", "20", "--days", "3", "--faults-per-node-day", "1", "--processes", "1")

    assert found.exit_code == 1
    command = next(line for line in found.stdout.splitlines() if "nodeheal simulate" in line).split()[2:]
    trace = tmp_path / "again.trace"
    again = _run(*command[:-1], str(trace))
    assert again.exit_code == 1
    assert "VIOLATION" in trace.read_text("utf-8")


def test_a_violation_comes_with_that_command_for_programs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_away, *_ = CASES["every_fault_is_accounted_for"]
    take_away(monkeypatch)
    given = ("--nodes", "20", "--days", "3", "--faults-per-node-day", "1", "--processes", "1")
    found: dict[str, Any] = json.loads(_run(*given, "--json").stdout)
    command = found["broken"][0]["replay"].split()[2:]

    again: dict[str, Any] = json.loads(_run(*command[:-1], str(tmp_path / "again.trace"), "--json").stdout)

    assert again["broken"][0]["text"] == found["broken"][0]["text"]
    assert len(found["broken"]) == found["violations"]


def test_a_replay_that_is_broken_off_tells_of_what_was_simulated() -> None:
    given = ("--nodes", "20", "--days", "30", "--json")

    whole, part = (json.loads(_run(*given, *more).stdout) for more in ((), ("--until", "86400")))

    assert (whole["days"], part["days"]) == (30, 1)
    assert sum(part["dollars"].values()) < sum(whole["dollars"].values()) / 10


def test_the_command_that_replays_says_every_number_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_away, *_ = CASES["every_fault_is_accounted_for"]
    take_away(monkeypatch)
    policy = tmp_path / "a policy.json"
    policy.write_text('{"default_pool": {"mode": "act"}}', "utf-8")

    given = ("--nodes", "20", "--days", "3.0123456", "--faults-per-node-day", "1.0123456", "--policy", str(policy))
    found = _run(*given)

    assert found.exit_code == 1
    command = next(line for line in found.stdout.splitlines() if "nodeheal simulate" in line)
    for said in ("--days 3.0123456", "--faults-per-node-day 1.0123456", f"--policy '{policy}'"):
        assert said in command


def test_a_mass_failure_that_breaks_an_invariant_says_which_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    take_away, *_ = CASES["every_fault_is_accounted_for"]
    take_away(monkeypatch)

    found = _run("--nodes", "20", "--mass-failure", "10", "--seed", "2")

    assert found.exit_code == 1
    assert "every_fault_is_accounted_for" in found.stdout


def test_what_breaks_in_a_mass_failure_comes_with_the_command_that_replays_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_away, *_ = CASES["every_fault_is_accounted_for"]
    take_away(monkeypatch)
    both = json.loads(_run("--nodes", "20", "--mass-failure", "10", "--seed", "2", "--json").stdout)
    found = both["breaker_raised"]["broken"][0]
    *command, _ = found["replay"].split()[2:]
    trace = tmp_path / "again.trace"

    again = json.loads(_run(*command, str(trace), "--json").stdout)

    assert list(again) == ["failed", "latency", "breaker_raised"]
    assert again["breaker_raised"]["broken"][0]["text"] == found["text"]
    assert trace.read_text("utf-8").count("decide_next_step") >= 10


def test_one_of_the_two_is_as_it_was_beside_the_other() -> None:
    given = ("--nodes", "20", "--mass-failure", "10", "--json")

    both, one = (json.loads(_run(*given, *more).stdout) for more in ((), ("--breaker", "shipped")))

    assert one == {name: both[name] for name in ("failed", "latency", "breaker_as_it_ships")}


@pytest.mark.parametrize("latency", ["none", "aws"])
@pytest.mark.parametrize("kind", [("--days", "1"), ("--mass-failure", "2"), ("--schedule", "3")])
def test_table_and_json_name_the_latency_that_they_were_made_with(kind: tuple[str, str], latency: str) -> None:
    given = (*kind, "--latency", latency, *(() if kind[0] == "--schedule" else ("--nodes", "10")))

    table, known = _run(*given).stdout, json.loads(_run(*given, "--json").stdout)

    assert known["latency"] == latency
    assert "latency" in table
    assert latency in table.split()


def test_a_mass_failure_is_run_with_the_breaker_raised_and_as_it_ships() -> None:
    found = json.loads(_run("--nodes", "40", "--mass-failure", "20", "--json").stdout)

    raised, shipped = found["breaker_raised"], found["breaker_as_it_ships"]
    assert raised["actions"]["isolate"] == 20
    assert raised["isolated_after_seconds"]["p90"] < 60
    assert shipped["actions"].get("isolate", 0) < 5
    assert shipped["pages"] == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--only", "pool-777"), "pool-777: there is no such pool"),
        (("--nodes", "1200", "--trace", "x"), "name it with --only"),
        (("--nodes", "10", "--mass-failure", "11"), "--mass-failure 11: of 10 nodes"),
        (("--nodes", "1", "--mass-failure", "2"), "--mass-failure 2: of 1 node;"),
        (("--nodes", "10", "--mass-failure", "5", "--policy", "x", "--days", "2"), "not with --days, --policy"),
        (("--nodes", "10", "--mass-failure", "5", "--trace", "y"), "name it with --breaker raised or"),
        (("--breaker", "raised"), "--breaker goes with --mass-failure"),
        (
            ("--schedule", "7", "--seed", "4"),
            "--latency, --trace, --until, --json, and not with",
        ),
        (("--inject-failure", "60:dies-after"), "--inject-failure needs --schedule"),
        (("--schedule", "7", "--inject-failure", "9999999:throttled"), "--inject-failure 9999999:throttled: there are"),
        (("--schedule", "3", "--inject-failure", "5:refused"), "cannot refuse a call"),
        (("--schedule", "3", "--inject-failure", "5:refused", "--until", "90000"), "--inject-failure 5:refused: "),
        (
            ("--schedule", "3", "--inject-failure", "60:dies-after", "--inject-failure", "60:throttled"),
            "--inject-failure 60: give one failure for each call",
        ),
        (
            ("--schedule", "7", "--inject-failure", "60:explodes"),
            "--inject-failure 60:explodes: give the number of a call",
        ),
        (("--days", "inf"), "'--days'"),
        (("--faults-per-node-day", "inf"), "'--faults-per-node-day'"),
        (("--nodes", "100000000000"), "'--nodes'"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(given: tuple[str, ...], said: str) -> None:
    refused = _run(*given)

    assert refused.exit_code == 2
    assert said in refused.stderr


def test_the_pools_that_a_policy_names_are_simulated_by_their_own_rules(tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text('{"default_pool": {"mode": "observe"}, "pools": {"llama": {"mode": "act"}, "gpt": {}}}', "utf-8")
    given = ("--nodes", "60", "--days", "20", "--faults-per-node-day", "0.02", "--policy", str(policy), "--json")

    all_of_it, gpt = (json.loads(_run(*given, *more).stdout) for more in ((), ("--only", "gpt")))

    assert sorted(all_of_it["digests"]) == ["gpt", "llama"]
    assert (all_of_it["nodes"], gpt["nodes"]) == (60, 30)
    assert (bool(all_of_it["actions"]), gpt["actions"]) == (True, {})


_COMMAND = (sys.executable, "-c", "from nodeheal.cli.entry import main; main()", "simulate")


def _begin_to(told: Any, *given: str, before: Callable[[], object] | None = None) -> subprocess.Popen[str]:
    """As in a terminal: a group of its own, each line out at once."""
    unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        (*_COMMAND, *given),
        stdout=told,
        stderr=subprocess.PIPE,
        text=True,
        env=unbuffered,
        start_new_session=True,
        preexec_fn=before,
    )


def test_one_node_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    tell(SimulationReport(isolated_after_wait=[7_200.0]), "nodeheal simulate", as_json=False, latency="none")
    tell(SimulationReport(isolated_after_wait=[7_200.0] * 1_234), "nodeheal simulate", as_json=False, latency="none")

    told = capsys.readouterr().out
    assert "1 node, median 2.0 h" in told
    assert "1,234 nodes, median 2.0 h" in told


def test_what_cannot_be_written_is_said_in_a_line_and_is_no_violation() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        _, said = (begun := _begin_to(full, "--nodes", "2", "--days", "0.1")).communicate(timeout=60)

    assert begun.returncode == 2
    assert said == "the output cannot be written: No space left on device\n"


def test_ctrl_c_ends_it_at_once_however_many_pools_wait() -> None:
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - what runs in the background ignores it
    begun = _begin_to(subprocess.PIPE, "--nodes", "4000", "--days", "365", "--processes", "2", before=heard)
    children = Path(f"/proc/{begun.pid}/task/{begun.pid}/children")
    while len(children.read_text("utf-8").split()) < 2:
        assert begun.poll() is None
        time.sleep(0.05)
    time.sleep(1)  # until they are in the middle of their pools

    os.killpg(begun.pid, signal.SIGINT)

    try:
        assert begun.communicate(timeout=10)[1] == ""
        assert begun.returncode == 130
    finally:
        if begun.poll() is None:
            os.killpg(begun.pid, signal.SIGKILL)


def test_without_a_checkout_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition, "STATE_MACHINES", tmp_path)

    refused = _run("--nodes", "10")

    assert refused.exit_code == 2
    assert "come with a checkout" in refused.stderr


def test_an_injected_failure_strikes_and_stands_in_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    take_away, *_ = CASES["every_fault_is_accounted_for"]
    take_away(monkeypatch)

    found = _run("--schedule", "17", "--inject-failure", "60:dies-after", "--inject-failure", "90:throttled", "--json")

    broken = json.loads(found.stdout)["broken"]
    assert found.exit_code == 1
    assert "--schedule 17 --inject-failure 60:dies-after --inject-failure 90:throttled" in broken[0]["replay"]


def test_what_services_raised_is_told_to_people_but_for_answers_that_were_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    raised = {"ingest: NoAnswer: ": 7, "sweep: KeyError: 'a'": 2, **{f"notify: {n}": 1 for n in "abc"}}

    tell(SimulationReport(surprises=Counter(raised)), "nodeheal simulate", as_json=False, latency="none")
    tell(SimulationReport(), "nodeheal simulate", as_json=False, latency="none")

    one, other = (line for line in capsys.readouterr().out.splitlines() if line.startswith("services raised"))
    assert " ".join(one.split()) == (
        "services raised sweep: KeyError: 'a' (2); notify: a (1); notify: b (1); and 1 more, see --json"
    )
    assert other.endswith("nothing unforeseen")
