"""Measures the size of the functions' bundle, and the import time of a cold one.

The bundle's size is that of the deployed one. The import is measured with the same bundle built for this machine:
Lambda's processor share is smaller, and its disk differs, so the ratio to a bare interpreter's start, measured
alternately, is more meaningful than the milliseconds.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from stacks.bundling import build
from stacks.functions import FUNCTIONS
from stacks.settings import Settings, Stage

TURNS = 5
# The first step after a fault, the decision, and one that only writes.
IMPORTED = ("ingest", "decide_next_step", "operation")


def measure_functions() -> dict[str, float]:
    """Return sizes in MiB, imports in ms."""
    with tempfile.TemporaryDirectory() as directory:
        deployed, here = Path(directory) / "deployed", Path(directory) / "here"
        build(Settings(), deployed)
        build(Settings(stage=Stage.sandbox), here)
        return {"functions": len(FUNCTIONS), **_sizes(deployed), **_imports(here)}


def _sizes(bundle: Path) -> dict[str, float]:
    archive = bundle.with_suffix(".zip")
    files = [path for path in sorted(bundle.rglob("*")) if path.is_file()]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in files:
            packed.write(path, path.relative_to(bundle))
    unpacked = sum(path.stat().st_size for path in files)
    return {
        "bundle_mib": round(archive.stat().st_size / 2**20, 1),
        "bundle_unpacked_mib": round(unpacked / 2**20, 1),
    }


def _imports(bundle: Path) -> dict[str, float]:
    bare, cold = [], []
    for _ in range(TURNS):
        bare.append(_start("pass", bundle))
        cold.append(statistics.median(_start(f"import lambdas.{stem}", bundle) for stem in IMPORTED))
    interpreter, imported = statistics.median(bare), statistics.median(cold)
    return {
        "interpreter_start_ms": round(interpreter, 1),
        "cold_import_ms": round(imported - interpreter, 1),
        "cold_import_per_interpreter_start": round((imported - interpreter) / interpreter, 1),
    }


def _start(program: str, bundle: Path) -> float:
    """Return the milliseconds of a process that runs this. Only boto3 is not in the bundle: Lambda provides it."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(bundle), "AWS_DEFAULT_REGION": "us-east-1"}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], env=environment, cwd=bundle, check=True, timeout=60)
    return 1000 * (time.perf_counter() - began)
