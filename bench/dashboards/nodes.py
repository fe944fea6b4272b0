"""Runs nodes for the pictures: real agents, each with eight simulated GPUs, and a story."""

import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.gpus import COUNT, furnished
from sandbox.toml import toml
from tests.fakes.nvml import FakeGpus
from tests.support.agent_fakes import FakeEventBridge, NodeFolder, kernel_line

CHECKS = ("gpu_state", "host_load", "disk", "memory", "progress")
POOLS = ("h100", "h100", "h100", "h100", "inference", "inference")
LARGE, SMALL = "llama-70b", "qwen-32b"
STEP_LIMIT_SECONDS = 300
SICK, LOST_GPU, HOT, HOT_GPU = 1, 5, 4, 2
NVML_LOST = 15
GIB, MIB, WATT = 1 << 30, 1 << 20, 1000


@dataclass
class SimulatedNode:
    """One agent, its GPUs, and what it has sent to the bus and CloudWatch."""

    number: int
    folder: NodeFolder
    gpus: FakeGpus
    bus: FakeEventBridge
    port: int
    process: "subprocess.Popen[bytes]"
    is_ill: set[int] = field(default_factory=set)

    @property
    def node_id(self) -> str:
        """Return the node's id."""
        return self.bus.table.node_id

    @property
    def puts(self) -> list[dict[str, Any]]:
        """Return its metrics in CloudWatch."""
        return self.bus.table.metrics

    def works(self, share: float, chance: random.Random) -> None:
        """Set each GPU's load, with a matching temperature."""
        for gpu in range(COUNT):
            busy = max(0.0, min(1.0, share + chance.uniform(-0.03, 0.03))) if share else 0.0
            said = {
                "utilisation": round(100 * busy),
                "temperature": round(34 + 32 * busy + (gpu % 4) + chance.uniform(-1, 1)),
                "power": round((75 + 580 * busy + chance.uniform(-8, 8)) * WATT),
                "memory_used": round((2 + 66 * (busy > 0)) * GIB + chance.uniform(0, 200) * MIB),
            }
            if gpu in self.is_ill:
                said["temperature"] = 96
            self.gpus.set(**{f"gpu{gpu}_{name}": value for name, value in said.items()})

    def steps(self, job: str, run: int) -> None:
        """Report a step of the job on this node."""
        progress = self.folder.directory / "progress"
        progress.mkdir(exist_ok=True)
        (progress / f"{job}.{run}.{STEP_LIMIT_SECONDS}.json").touch()

    def ends(self, job: str, run: int) -> None:
        """Remove the job's file."""
        (self.folder.directory / "progress" / f"{job}.{run}.{STEP_LIMIT_SECONDS}.json").unlink(missing_ok=True)

    def says(self, xid: int, gpu: int, words: str) -> None:
        """Log an XID of the driver."""
        self.folder.logs(kernel_line(f"NVRM: Xid (PCI:0000:{gpu + 16:02x}:00): {xid}, pid=4711, name=python, {words}"))


class Story:
    """The events of the story, by the share of the time that has passed. Each happens once."""

    def __init__(self, nodes: list[SimulatedNode], seed: int = 7) -> None:
        self._nodes = nodes
        self._chance = random.Random(seed)
        self._happened: set[str] = set()
        self._run = 1
        self._jobs = {LARGE: (0, 1, 2), SMALL: (4,)}

    def goes_on(self, share: float) -> None:
        """Run everything that is due, and a step of each job."""
        sick, hot = self._nodes[SICK], self._nodes[HOT]
        if self._is_due("application fault", share, 0.2):
            hot.says(31, 0, "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC0 faulted @ 0x7f10_00000000")
        if self._is_due("lost", share, 0.4):
            sick.gpus.set(**{f"gpu{LOST_GPU}_error": NVML_LOST})
            sick.says(79, LOST_GPU, "GPU has fallen off the bus.")
            for node in self._of(LARGE):
                node.ends(LARGE, self._run)
        if self._is_due("hot", share, 0.55):
            hot.is_ill.add(HOT_GPU)
        if self._is_due("restarted", share, 0.65):
            self._run = 2
            self._jobs[LARGE] = (0, 2, 3)
        is_down = "lost" in self._happened and "restarted" not in self._happened
        for node in self._nodes:
            jobs = [job for job, numbers in self._jobs.items() if node.number in numbers]
            is_busy = bool(jobs) and not (is_down and jobs == [LARGE])
            node.works(0.94 if jobs == [LARGE] and is_busy else 0.7 if is_busy else 0.0, self._chance)
            for job in jobs if is_busy else ():
                node.steps(job, self._run if job == LARGE else 1)

    def _of(self, job: str) -> list[SimulatedNode]:
        return [self._nodes[number] for number in self._jobs[job]]

    def _is_due(self, what: str, share: float, at: float) -> bool:
        if share < at or what in self._happened:
            return False
        self._happened.add(what)
        return True


@contextmanager
def running(folder: Path, started: datetime) -> Iterator[list[SimulatedNode]]:
    """Run the nodes, until the end. `started`: their boots were an hour before, so that no check waits for them."""
    with ExitStack() as stack:
        nodes = []
        for number, pool in enumerate(POOLS):
            node = _started(folder / str(number), number, pool, started)
            stack.callback(node.bus.stop)
            stack.callback(node.process.wait)
            stack.callback(node.process.terminate)
            nodes.append(node)
        yield nodes


def _started(folder: Path, number: int, pool: str, started: datetime) -> SimulatedNode:
    folder.mkdir(parents=True)
    bus = FakeEventBridge()
    bus.start()
    place = NodeFolder(folder, bus.url)
    here, gpus = furnished(folder / "gpus")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    node_id = f"mi-0a1b2c3d4e5f6000{number}"
    bus.table.node_id = node_id
    settings = {
        "node_id": node_id,
        "pool": pool,
        "product": "H100",
        "checks": list(CHECKS),
        "progress_dir": str(folder / "progress"),
        "prometheus_port": port,
        "cloudwatch_metrics": "gpus",
        "heartbeat_seconds": 30.0,
    }
    place.config_file.write_text(toml({**place.config(), **settings}))
    os.utime(place.boot_id_file, (started.timestamp() - 3600,) * 2)
    environment = {**os.environ, **place.environment(), **here.environment}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", here.script, "watch"], env=environment, stderr=log)
    return SimulatedNode(number, place, gpus, bus, port, process)
