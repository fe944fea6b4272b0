"""What an agent of this version puts on the bus, recorded from the agent itself.

At a release, and at no other time: `python -m tests.unit.agent.record_events` writes its file in
tests/golden/agent_events.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodeheal import __version__
from sandbox.toml import toml
from tests.support import checkpoint_trees as trees
from tests.support.agent_fakes import FakeEventBridge, NodeFolder, eventually, kernel_line, xid
from tests.support.agent_process import AgentProcess
from tests.support.evidence_bucket import FakeBucket

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
RECORDS = GOLDEN / "agent_events"
SHARED = {"product": "NVIDIA H100 80GB HBM3", "labels": {"rack": "r7", "switch": "leaf-3"}}
OUT_OF_MEMORY = "Out of memory: Killed process 4711 (python3) total-vm:9000000kB, anon-rss:8000000kB"
# Where the kernel's own words begin in a recorded line, whatever its log has put before them.
_WORDS = re.compile(r"(NVRM|nvidia-|nvidia_|mlx5_core|neuron|pcieport|mce|EDAC|Memory failure|efa|Out of memory).*")


def faults() -> list[str]:
    """A line of each fault in the recorded logs, as a node's own log would have it."""
    lines = []
    for expected in sorted((GOLDEN / "kernel_logs").glob("*.expected")):
        said = expected.with_suffix(".log").read_text("utf-8").splitlines()
        for entry in expected.read_text("utf-8").splitlines():
            words = _WORDS.search(said[int(entry.split()[0]) - 1])
            if words:
                lines.append(kernel_line(words[0]))
    return list(dict.fromkeys(lines))


def record() -> Iterator[dict[str, Any]]:
    """Every event of a node's two boots, with its orders, as the bus got them."""
    bus, bucket = FakeEventBridge(), FakeBucket()
    bus.start()
    bucket.start()
    with tempfile.TemporaryDirectory() as folder:
        node = NodeFolder(Path(folder), bus.url, heartbeat_seconds=1)
        node.config_file.write_text(toml(node.config() | SHARED))
        _two_boots(node, bus)
        _diagnoses(node)
        _evidence(node, bucket)
        looked_into = _checkpoints(node)
    bus.stop()
    for entry in bus.accepted:
        yield {**entry, "Detail": json.loads(entry["Detail"].replace(looked_into, "/mnt/llama"))}


def _two_boots(node: NodeFolder, bus: FakeEventBridge) -> None:
    agent = AgentProcess(node)
    agent.start()
    eventually(lambda: bus.details("Node Booted"))
    _beats_over_the_bus(bus, 1)
    for line in faults():
        node.logs(line)
    node.logs(kernel_line(OUT_OF_MEMORY) + xid(13) * 5)
    eventually(lambda: "13" in bus.codes())
    agent.ends(signal.SIGKILL)
    node.logs(xid(48))
    node.reboots("boot-2")
    agent.start()
    eventually(lambda: "48" in bus.codes() and len(bus.details("Node Booted")) == 2)
    eventually(lambda: any(detail["count"] > 1 for detail in bus.details()))
    _beats_over_the_bus(bus, 2)
    agent.ends(signal.SIGTERM)


def _beats_over_the_bus(bus: FakeEventBridge, boot: int) -> None:
    """One heartbeat of this boot, which the table refuses and the bus takes."""
    bus.table.refusal = "AccessDeniedException"
    said = f'"boot_id": "boot-{boot}"'
    eventually(lambda: any('"heartbeat"' in one["Detail"] and said in one["Detail"] for one in bus.accepted))
    bus.table.refusal = ""


def _diagnoses(node: NodeFolder) -> None:
    for number, tool in enumerate(sorted((GOLDEN / "tools").glob("dcgm_diag_*.json"))):
        dcgmi = node.directory / "dcgmi"
        dcgmi.write_text(f"#!/bin/sh\ncat {tool}\n")
        dcgmi.chmod(0o755)
        _order(node, "diag", number, "--level", "2")
    (node.directory / "dcgmi").unlink()
    _order(node, "diag", 90, "--level", "1", "--checks", "dcgm,neuron,efa")


def _evidence(node: NodeFolder, bucket: FakeBucket) -> None:
    for number, status in enumerate((204, 403), 100):
        bucket.status = status
        _order(node, "evidence", number, "--upload", bucket.ticket)


def _checkpoints(node: NodeFolder) -> str:
    """One that is whole behind one that is not, and a directory that is not there; where that was."""
    with tempfile.TemporaryDirectory(prefix="llama-") as folder:
        trees.torch_save(Path(folder), 100, 200)
        (Path(folder) / "epoch_200.pt").write_bytes(b"PK")
        for number, directory in enumerate((folder, f"{folder}-gone"), 110):
            _order(node, "find-checkpoint", number, "--directory", directory)
        return folder


def _order(node: NodeFolder, order: str, number: int, *more: str) -> None:
    named = ["--request-id", f"inc-1-{number}", "--boot-id", "boot-2", "--expires-at", str(time.time() + 30)]
    subprocess.run(
        [sys.executable, "-m", "nodeheal.agent.main", "run", order, *named, *more],
        env={**node.environment(), "PATH": f"{node.directory}:{os.defpath}"},
        check=True,
        capture_output=True,
        timeout=120,
    )


if __name__ == "__main__":
    RECORDS.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(event, ensure_ascii=False, sort_keys=True) + "\n" for event in record())
    (RECORDS / f"{__version__}.jsonl").write_text(text, encoding="utf-8")
