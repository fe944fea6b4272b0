"""The same seed is the same run, bit for bit, in any process."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from nodeheal.simulation.runner import run_pool
from nodeheal.simulation.setting import HARSH, Setting

SETTING = Setting(nodes=30, days=2, seed=7, cloud=HARSH, faults_a_node_day=0.3)
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
from tests.simulation.test_determinism import SETTING
from nodeheal.simulation.runner import run_pool
print(run_pool(SETTING).digests["pool-00"])
"""


def _digest_with(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return told.stdout.strip()


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run_pool(SETTING), run_pool(SETTING)

    assert first.incidents > 10
    assert first.digests == second.digests
    assert first == second


def test_another_seed_is_another_run() -> None:
    other = run_pool(replace(SETTING, seed=8))

    assert other.digests != run_pool(SETTING).digests


def test_no_order_of_hashes_moves_a_run() -> None:
    assert _digest_with("1") == _digest_with("2") == run_pool(SETTING).digests["pool-00"]
