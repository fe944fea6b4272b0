"""The fleet report: right statistics, runs that are found again, and tables that are its numbers."""

import json
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from bench.fleet import runs
from bench.fleet.__main__ import main, tell
from bench.fleet.confidence import _T, estimate
from bench.fleet.plan import BY_HAND, FLEETS, GPUS_A_NODE, POLL, Case, fleets, mtbf_seconds, sweeps
from bench.fleet.runs import run_case
from bench.fleet.tables import BEGIN, END, percent, tables
from nodeheal.contract.job_steps import GANG_AT_MOST

DOCS = Path(__file__).resolve().parents[2] / "docs"
SMALL = Case(nodes=16, days=3.0, seeds=2, spares=4)


def test_an_estimate_is_the_t_interval_of_the_mean() -> None:
    found = estimate([2, 4, 4, 4, 5, 5, 7, 9])

    assert found.mean == 5
    assert found.margin == pytest.approx(1.7875, abs=1e-3)  # 2.365 × 2.13809 / √8


def test_one_sample_has_no_margin() -> None:
    assert estimate([0.9]).margin is None
    assert percent({"mean": 0.9, "margin": None}) == "90.00"


def test_the_quantiles_fall_towards_the_normal_ones() -> None:
    assert list(_T) == sorted(_T, reverse=True)
    assert _T[-1] == pytest.approx(NormalDist().inv_cdf(0.975), rel=0.05)


def test_every_fleet_is_one_of_pools_whose_jobs_nodeheal_takes() -> None:
    for case in [*fleets(), *(case for cases in sweeps().values() for case in cases)]:
        pools = list(case.settings(seed=1))
        assert sum(pool.nodes for pool in pools) == case.nodes
        assert all(pool.work.gang_nodes <= GANG_AT_MOST for pool in pools)
        for pool in pools:
            jobs = int(pool.nodes * pool.work.share) // pool.work.gang_nodes
            assert jobs >= 1
            assert pool.nodes - jobs * pool.work.gang_nodes >= case.spares
    assert [GPUS_A_NODE * nodes for nodes in FLEETS] == [1_024, 9_600, 16_384, 100_000]


def test_only_faults_that_end_a_job_come_between_its_failures() -> None:
    every_fault = 86_400 / (0.0065 * 120)

    assert every_fault < mtbf_seconds(120, "RSC-1") < 1.2 * every_fault


@pytest.mark.parametrize("keeper", ["nodeheal", BY_HAND, POLL])
def test_a_seed_is_run_once_and_found_again(keeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(keeper=keeper, nodes=16, days=3.0, spares=4)
    first = run_case(case, 1, tmp_path)
    monkeypatch.setattr(runs, "_run", lambda case, setting: pytest.fail("it is run again"))

    again = run_case(case, 1, tmp_path)

    assert again == first
    assert 0.5 < first.ettr < 1
    assert first.goodput < first.ettr


def test_other_sources_are_run_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_case(SMALL, 1, tmp_path)
    monkeypatch.setattr(runs, "sources_digest", lambda: "others")

    run_case(SMALL, 1, tmp_path)

    assert len(list(tmp_path.glob("*.json"))) == 2


def test_the_command_writes_numbers_plots_and_tables_and_the_same_again(tmp_path: Path) -> None:
    given = ["--quick", "--seeds", "2", "--kept", str(tmp_path / "kept")]

    assert main([*given, "--out", str(tmp_path / "one")]) == 0
    assert main([*given, "--out", str(tmp_path / "two")]) == 0

    names = {"report.json", "fleets.svg", "interval.svg", "spares.svg", "budget.svg"}
    assert {path.name for path in (tmp_path / "one" / "fleet").iterdir()} == names
    for name in (*(f"fleet/{name}" for name in names), "fleet.md"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(
    ("given", "said"), [(["--seeds", "0"], "at least 1"), (["--quick"], "docs/ keeps the full report")]
)
def test_what_cannot_be_done_is_refused(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(given)

    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_a_broken_invariant_is_told_and_fails_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    case = {"keeper": "nodeheal", "nodes": 128, "mix": "jobs of 8 nodes", "violations": ["1/pool-000: some_promise: x"]}

    code = tell({"sources": "x", "fleets": [case]}, tmp_path)

    assert code == 1
    assert "1/pool-000: some_promise: x" in capsys.readouterr().err


def test_the_pages_tables_are_its_numbers() -> None:
    report: dict[str, Any] = json.loads((DOCS / "fleet" / "report.json").read_text("utf-8"))
    page = (DOCS / "fleet.md").read_text("utf-8")

    assert page.partition(BEGIN)[2].partition(END)[0].strip() == tables(report)


def test_the_page_shows_every_plot() -> None:
    page = (DOCS / "fleet.md").read_text("utf-8")

    for plot in (DOCS / "fleet").glob("*.svg"):
        assert f"(fleet/{plot.name})" in page
