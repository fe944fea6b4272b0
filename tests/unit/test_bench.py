"""`make bench`: the table says what was measured, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as bench
from bench.table import as_markdown, as_text, figures, unit_of, with_table


def measured(**sections: dict[str, float]) -> dict[str, Any]:
    where = {"day": "2026-11-22", "cores": 2, "processor": "some", "python": "3.11.7", "kernel": "6.18"}
    return {
        **sections,
        "spread": {name: {key: [value, value] for key, value in of.items()} for name, of in sections.items()},
        "runs": dict.fromkeys(sections, 1),
        "machine": dict.fromkeys(sections, where),
    }


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two sections that take no time; the first says something else each time."""
    said = iter([30.0, 10.0, 20.0] * 9)
    fake = {"agent": lambda: {"rss_mib": next(said)}, "incident": lambda: {"reboot_transitions": 33}}
    monkeypatch.setattr(bench, "sections", lambda idle_seconds: fake)
    monkeypatch.setattr(bench, "WRITTEN", tmp_path / "build" / "bench.json")
    monkeypatch.setattr(bench, "PUBLISHED", tmp_path / "benchmarks.json")
    return tmp_path / "build" / "bench.json"


def test_every_row_is_of_a_section_and_names_its_unit() -> None:
    known = bench.sections(0)

    for row in figures():
        section, _, name = row["key"].partition(".")
        assert section in known
        assert unit_of(name) is not None
        assert row["what"]
        assert bool(row["published"]) == bool(row["source"]), row["key"]


def test_a_figure_without_its_unit_in_its_name_is_refused() -> None:
    with pytest.raises(ValueError, match="latency: a figure's name ends in its unit"):
        unit_of("latency")


def test_medians_are_kept_with_least_and_most(fast: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["agent"]) == 0

    kept = json.loads(fast.read_text())
    assert kept["agent"] == {"rss_mib": 20.0}
    assert kept["spread"]["agent"] == {"rss_mib": [10.0, 30.0]}
    assert kept["runs"]["agent"] == 3
    assert "20 MiB  10 to 30, 3 runs" in capsys.readouterr().out


def test_a_section_alone_keeps_the_figures_of_the_others(fast: Path) -> None:
    bench.main(["agent"])
    bench.main(["incident"])

    assert {"agent", "incident"} <= set(json.loads(fast.read_text()))


@pytest.mark.parametrize(
    "given", [["nonsense"], ["--runs", "-1"], ["--runs", "0"], ["--idle-seconds", "0"], ["--idle-seconds", "nan"]]
)
def test_options_that_make_no_sense_are_refused(fast: Path, given: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        bench.main(given)

    assert refused.value.code == 2
    assert not fast.exists()


def test_the_page_gets_the_table_between_its_marks_and_keeps_the_rest() -> None:
    page = "before\n<!-- measured: make bench -->\nold\n<!-- /measured -->\nafter\n"

    made = with_table(page, measured(agent={"rss_mib": 28.8}))

    assert made.startswith("before\n")
    assert made.endswith("<!-- /measured -->\nafter\n")
    assert "old" not in made
    assert "| agent over TLS, resident, all checks on, no NVIDIA GPU | 28.8 MiB | one run |" in made


def test_the_page_shows_the_published_figures() -> None:
    page = bench.PAGE.read_text("utf-8")

    assert with_table(page, json.loads(bench.PUBLISHED.read_text("utf-8"))) == page


def test_a_recovery_has_a_row_for_each_leg_with_its_floor_at_both_latencies() -> None:
    both = {f"{functions}_{leg}_s": 1.0 for functions in ("cold", "warm") for leg in ("detect", "proof")}
    both["cold_wait_s"] = 0.0

    told = as_markdown(measured(recovery=both, recovery_aws=both))

    cell = "1.00 (1.00 to 1.00)"
    assert "| leg | cold, none | warm, none | cold, aws | warm, aws | floor, none | floor, aws |  |" in told
    assert f"| proof | {cell} | {cell} | {cell} | {cell} | 0.00 | 0.13 | one event |" in told
    assert "| boot |" not in told
    assert "proof   1.00 (1.00 to 1.00)" in as_text(measured(recovery=both))
