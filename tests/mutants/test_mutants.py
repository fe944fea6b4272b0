"""The sweep itself is long (`make mutants`); what it rests on is held here."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.aim import modules
from tests.mutants.choice import nearest
from tests.mutants.harmless import Row, all_sites, complaints, read_rows
from tests.mutants.kept import Kept
from tests.mutants.sites import ROOT, Site, find_sites
from tests.mutants.sweep import is_left_out

# Three guards. Tests ask what the first keeps from happening, what the second does is never looked at, and without the
# third there is no end.
PLANTED = """
def reboots(boot: str, meant_for: str, is_told: bool) -> list[str]:
    if boot != meant_for:
        return []
    done = ["reboot"]
    if is_told:
        done.append("log")
    return done

def waits(tries: int) -> int:
    while True:
        tries -= 1
        if tries < 0:
            return 0
"""
ITS_TESTS = """
from planted_guards import reboots, waits

def test_an_old_order_is_refused():
    assert "reboot" not in reboots("2", "1", False)

def test_an_order_is_carried_out_without_a_word():
    assert "reboot" in reboots("1", "1", False)

def test_it_ends():
    assert waits(3) == 0
"""
SWEEPS = """
import json, sys
from pathlib import Path
from tests.mutants import child
from tests.mutants import sweep as how
from tests.mutants.__main__ import sweep
from tests.mutants.kept import Kept
child.LEAST_SECONDS = 0.2
how.AT_MOST = dict.fromkeys(how.AT_MOST, int(sys.argv[1]))
kept = Kept(Path("kept"))
sweep({"planted_guards": Path("planted_guards.py").resolve()}, (str(Path("test_it.py").resolve()),), kept)
Path("found.json").write_text(json.dumps(kept.results))
"""


# Both tests notice that the guard says yes; only the second holds what happens at equality.
ASKS_ALL = """
import json
from pathlib import Path
from tests.mutants.__main__ import every_noticer
from tests.mutants.kept import Kept
sources = {"planted_guards": Path("planted_guards.py").resolve()}
found = every_noticer(sources, [str(Path("test_it.py").resolve())], Kept(Path("kept")), "", 1, 1.0).noticers
Path("found.json").write_text(json.dumps(found))
"""
PLANTED_LIMIT = """
def is_late(minutes: int) -> bool:
    return minutes > 10
"""
TESTS_OF_THE_LIMIT = """
from planted_guards import is_late

def test_some_minutes_are_not_late():
    assert not is_late(3)

def test_the_limit_itself_is_not_late():
    assert not is_late(10)
"""


def found(source: str) -> list[tuple[str, bool]]:
    """The guards of this function's body."""
    tree = ast.parse(f"def it(ports, node):\n{source}")
    return [(site.expression, site.becomes) for site, _ in find_sites("m", tree, ROOT / "m.py")]


@pytest.mark.parametrize(
    ("source", "guards"),
    [
        ("  if node.lost: return", [("node.lost", True), ("node.lost", False)]),
        (
            "  if node.lost or node.old: return",
            [("node.lost or node.old", True), ("node.lost", False), ("node.old", False)],
        ),
        (
            "  if node.lost and node.old: return",
            [("node.lost and node.old", False), ("node.lost", True), ("node.old", True)],
        ),
        (
            "  if not ports.nodes.save(node): return",
            [
                ("not ports.nodes.save(node)", True),
                ("not ports.nodes.save(node)", False),
                ("ports.nodes.save(node)", True),
            ],
        ),
        (
            "  if not ports.nodes.get(node): return",
            [("not ports.nodes.get(node)", True), ("not ports.nodes.get(node)", False)],
        ),
        ("  return [one for one in node if one.lost]", [("one.lost", True), ("one.lost", False)]),
        ("  return node.tasks if node.lost else ()", [("node.lost", True), ("node.lost", False)]),
        ("  return 'it is lost' if node.lost else ''", [("node.lost", False)]),
        ("  told = 'it is lost' if node.lost else ''", []),
        ("  return node.name or 'nobody'", []),
        ("  return node.why or node.is_lost", [("node.why", False), ("node.is_lost", False)]),
        ("  def is_in() -> bool:\n    return node.at > 1", [("node.at > 1", True), ("node.at > 1", False)]),
    ],
)
def test_guards_are_told_by_where_they_stand(source: str, guards: list[tuple[str, bool]]) -> None:
    assert found(source) == guards


def test_of_two_that_read_the_same_each_is_known() -> None:
    tree = ast.parse("def it(node):\n  if node.lost: return 1\n  if node.lost: return 2\n")

    sites = [site for site, _ in find_sites("m", tree, ROOT / "m.py")]

    assert [site.nth for site in sites] == [1, 1, 2, 2]
    assert len({site.key for site in sites}) == 4


@pytest.mark.parametrize("at_first", [24, 0], ids=["asked at first", "asked when nobody has noticed"])
def test_a_guard_that_is_missed_is_told_from_one_that_is_not(at_first: int, tmp_path: Path) -> None:
    (tmp_path / "planted_guards.py").write_text(PLANTED, "utf-8")
    (tmp_path / "test_it.py").write_text(ITS_TESTS, "utf-8")

    sweeps, on_both = [sys.executable, "-c", SWEEPS, str(at_first)], {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    subprocess.run(sweeps, cwd=tmp_path, env=on_both, check=True, timeout=120)

    kept = json.loads((tmp_path / "found.json").read_text("utf-8"))
    outcomes = {key.partition(": ")[2]: (one["outcome"], one["tried"]) for key, one in kept.items()}
    assert kept["planted_guards.waits: tries < 0 -> False #1"]["wrong"] == "it does not end"
    assert outcomes == {
        "boot != meant_for -> True #1": ("simulation", 1),
        "boot != meant_for -> False #1": ("simulation", 1),
        "is_told -> True #1": ("survived", 1),
        "is_told -> False #1": ("survived", 0),  # no test would be told
        "tries < 0 -> True #1": ("survived", 1),
        "tries < 0 -> False #1": ("simulation", 0),
    }


def test_all_tests_that_notice_a_guard_or_a_boundary_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "planted_guards.py").write_text(PLANTED_LIMIT, "utf-8")
    (tmp_path / "test_it.py").write_text(TESTS_OF_THE_LIMIT, "utf-8")

    asks, on_both = [sys.executable, "-c", ASKS_ALL], {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    subprocess.run(asks, cwd=tmp_path, env=on_both, check=True, timeout=120)

    found = json.loads((tmp_path / "found.json").read_text("utf-8"))
    noticers = {
        key.partition(": ")[2]: sorted(name.partition("::test_")[2] for name in names) for key, names in found.items()
    }
    assert noticers == {
        "minutes > 10 -> True #1": ["some_minutes_are_not_late", "the_limit_itself_is_not_late"],
        "minutes > 10 -> False #1": [],
        "minutes > 10 -> True at equality #1": ["the_limit_itself_is_not_late"],
    }


@pytest.mark.parametrize(
    ("test", "is_asked"),
    [
        ("test_scenarios.py::test_nothing_goes_wrong[a_gpu_is_lost]", True),
        ("test_co_tenants.py::test_without_its_guard_it_would_be_and_is_noticed", False),
        ("test_steps.py::test_without_isolation_slot_and_attempt_nothing_is_rebooted[slot]", True),
    ],
)
def test_only_tests_that_take_guards_out_themselves_are_not_asked(test: str, is_asked: bool) -> None:
    assert is_left_out(test) is not is_asked


def test_whose_file_is_named_after_the_module_is_asked_first_and_one_of_each_function_before_the_second_of_any() -> (
    None
):
    recorded = {
        "tests/unit/test_a.py::test_x[1]": {"mattered": [1]},
        "tests/unit/test_a.py::test_x[2]": {"mattered": [1, 2]},
        "tests/unit/test_a.py::test_y": {"mattered": [1, 2, 3]},
        "tests/unit/test_ingest.py::test_z": {"mattered": [1, 2, 3, 4]},
    }

    asked = nearest("nodeheal.services.intake.ingest", recorded, recorded)

    assert [test.partition("::test_")[2] for test in asked] == ["z", "x[1]", "y", "x[2]"]


def test_what_was_found_is_found_again_until_a_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.mutants.kept.digest", lambda: "now")
    Kept(tmp_path).keep("a guard", {"by": "a test"})
    with (tmp_path / "now/results.jsonl").open("a") as broken_off:
        broken_off.write('["another guard", {"by"')
    again = Kept(tmp_path)
    monkeypatch.setattr("tests.mutants.kept.digest", lambda: "later")
    later = Kept(tmp_path)

    assert (again.results, again.asked_first("a guard")) == ({"a guard": {"by": "a test"}}, "")
    assert (later.results, later.asked_first("a guard")) == ({}, "a test")


def test_every_row_of_the_harmless_ones_names_a_guard_that_stands_there() -> None:
    assert complaints(read_rows(), all_sites(modules()), {}) == []


def test_a_row_is_refused_that_stands_there_no_more_or_is_noticed() -> None:
    site = Site("m", "f", "node.lost", False, 1, "m.py", 1)
    gone = Row("m.f", "node.old", "False", "1", "it saves work only")
    noticed = Row("m.f", "node.lost", "False", "1", "it saves work only")

    told = complaints([gone, noticed], [site], {site.key: {"by": "test_x"}})

    assert [line.partition(": ")[2] for line in told] == [
        "node.old -> False #1: stands there no more; say what it is now",
        "node.lost -> False #1: is noticed by now, by test_x; take it out of harmless.csv",
    ]


@pytest.mark.parametrize(
    ("rows", "why"), [("a,b,False,1,\n", "no reason"), ("a,b,False,1,x\na,b,False,1,x\n", "listed twice")]
)
def test_a_row_has_a_reason_and_stands_once(rows: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "harmless.csv"
    path.write_text("where,expression,becomes,nth,why\n" + rows, "utf-8")

    with pytest.raises(ValueError, match=why):
        read_rows(path)
