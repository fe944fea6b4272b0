"""A sample of the guards is taken out in each run of the tests, and each must be missed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.aim import modules
from tests.mutants.harmless import all_sites
from tests.mutants.sample import choose, read_noticed, write_noticed
from tests.mutants.sites import ROOT

GUARDS = 40


@pytest.mark.timeout(600)
def test_a_sample_of_the_guards_is_missed() -> None:
    asked = [sys.executable, "-m", "tests.mutants", "--sample", str(GUARDS), "--processes", "1"]

    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)

    assert f"\n{GUARDS} guards were out, 0 of them unnoticed\n" in done.stdout, done.stdout[-3000:]
    assert done.returncode == 0


def test_what_a_sweep_has_found_is_read_again_and_what_nobody_noticed_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "noticed.csv"

    write_noticed({"b": {"by": "test_b"}, "a, or c": {"by": "test_a"}, "d": {"by": ""}}, path)

    assert read_noticed(path) == {"a, or c": "test_a", "b": "test_b"}


def test_only_guards_of_which_it_is_known_who_notices_are_taken_out() -> None:
    sites = all_sites(modules())
    one = next(site for site in sites if site.key in read_noticed())

    assert choose(sites, {one.key: "test_x"}, 5) == [one]
