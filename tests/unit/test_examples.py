"""The examples: their job files are jobs, they are told what nodeheal tells, and those that can be run here are."""

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeheal.contract.job_spec import MOUNTS, JobSpec
from nodeheal.services.jobs.prepare_job import file_doubts
from stacks.settings import REPOSITORY
from tests.support.builders import scheduler_in
from tests.support.job_cluster import JobCluster, finishes

yaml = pytest.importorskip("yaml")
EXAMPLES = REPOSITORY / "examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/job.yaml"))
EACH = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
# Set by the node and not by the launch, or by torchrun for its own processes, or by the job file.
OF_OTHERS = {"NODEHEAL_CHECKPOINT_DIR", "LOCAL_RANK"}
NAMES = re.compile(r"\b(?:NODEHEAL_[A-Z_]+|N?NODES|NODE_RANK|NPROC_PER_NODE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK)\b")
Start = Callable[..., "list[subprocess.Popen[bytes]]"]


def spec_of(folder: Path) -> JobSpec:
    """As the command reads it: strictly, so that nothing is a number by accident."""
    return JobSpec.model_validate_json(
        json.dumps(yaml.safe_load((folder / "job.yaml").read_text("utf-8"))), strict=True
    )


def sources(folder: Path) -> str:
    return "\n".join(path.read_text("utf-8") for path in folder.iterdir() if path.suffix in (".py", ".sh"))


def told() -> set[str]:
    """Every name that a rank may find in its environment."""
    it = JobCluster(hang_seconds=60, checkpoints={"directory": "/fsx"})
    it.checkpoints = [("/fsx/iter_0000001", 1)]
    it.happenings = [finishes]
    it.submit()
    [environment, _] = scheduler_in(it.ports).environments.values()
    return set(environment)


def test_there_are_the_launchers_that_teams_use() -> None:
    assert [folder.name for folder in FOLDERS] == ["mpirun", "neuron", "numpy-trainer", "torchrun"]


@EACH
def test_a_job_file_is_a_job(folder: Path) -> None:
    spec = spec_of(folder)

    assert spec.checkpoints is not None
    assert spec.checkpoints.directory in " ".join(spec.command), "it writes where it says that it does"
    if spec.image is not None:
        seen = [*spec.mounts, *MOUNTS.values()]
        sees = [mount.target for mount in seen if not mount.read_only]
        assert "/run/nodeheal/progress" in sees, "or its hangs are never seen"
        assert any(spec.checkpoints.directory.startswith(target) for target in sees)


@EACH
def test_nothing_in_an_example_is_in_doubt(folder: Path) -> None:
    assert file_doubts(spec_of(folder)) == []


@EACH
def test_an_example_is_whole_and_its_page_is_one_screen(folder: Path) -> None:
    assert {"README.md", "Dockerfile", "job.yaml"} <= {path.name for path in folder.iterdir()}
    assert len((folder / "README.md").read_text("utf-8").splitlines()) <= 60
    dockerfile = (folder / "Dockerfile").read_text("utf-8")
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE):
        assert all((folder / name).is_file() for name in copied.split())


@EACH
def test_an_example_reads_nothing_that_nobody_sets(folder: Path) -> None:
    spec = spec_of(folder)
    read = set(NAMES.findall(sources(folder)))

    assert read - OF_OTHERS <= told() | set(spec.environment)
    assert "NODEHEAL_PROGRESS_FILE" in read


def test_the_task_definition_for_trainium_is_one() -> None:
    given = json.loads((EXAMPLES / "neuron" / "task-definition.json").read_text("utf-8"))
    [container] = given["containerDefinitions"]

    devices = [device["hostPath"] for device in container["linuxParameters"]["devices"]]
    spec = spec_of(EXAMPLES / "neuron")
    assert (given["family"], container["name"]) == (spec.task_definition, spec.container)
    assert len([name for name in devices if name.startswith("/dev/neuron")]) == spec.accelerators
    assert "/run/nodeheal/progress" in [mount["containerPath"] for mount in container["mountPoints"]]


# Those that can be run here


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the launcher of an example on two nodes of this machine; what is left of it at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def run(command: list[str], run: int, **more: str) -> "list[subprocess.Popen[bytes]]":
        shared = {
            "NNODES": "2",
            "WORLD_SIZE": "2",
            "NPROC_PER_NODE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "NODEHEAL_JOB": "example",
            "NODEHEAL_RUN": str(run),
            "NODEHEAL_PROGRESS_FILE": str(tmp_path / "progress"),
            "NODEHEAL_CHECKPOINT_DIR": str(tmp_path),
            "MPI_MEETING": str(tmp_path / "meeting"),
            "OMP_NUM_THREADS": "1",
            **more,
        }
        nodes = [{"RANK": str(n), "NODE_RANK": str(n), "OWN_ADDRESS": f"127.0.0.{n + 1}"} for n in range(2)]
        found = [
            subprocess.Popen(command, env={**os.environ, **shared, **node}, start_new_session=True) for node in nodes
        ]
        started.extend(found)
        return found

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


TORCHRUN = [str(EXAMPLES / "torchrun" / "launch.sh")]
MPIRUN = [sys.executable, str(EXAMPLES / "mpirun" / "launch_mpi.py"), sys.executable]
MPIRUN += [str(EXAMPLES / "mpirun" / "train_mpi.py")]
has_torch = importlib.util.find_spec("torch") is not None and shutil.which("torchrun") is not None
has_mpi = importlib.util.find_spec("mpi4py") is not None and shutil.which("mpirun") is not None
LAUNCHERS = [
    pytest.param(TORCHRUN, id="torchrun", marks=pytest.mark.skipif(not has_torch, reason="PyTorch is not installed")),
    pytest.param(MPIRUN, id="mpirun", marks=pytest.mark.skipif(not has_mpi, reason="Open MPI is not installed")),
]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_gang_that_is_stopped_goes_on_from_its_checkpoint_to_exactly_the_same_losses(
    launcher: list[str], tmp_path: Path, start: Start
) -> None:
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    train = str(EXAMPLES / "torchrun" / "train_ddp.py")
    assert ends(start(options(launcher, undisturbed), 1, TRAIN=train)) == [0, 0]

    stopped = start(options(launcher, disturbed, "--step-seconds", "0.05"), 2, TRAIN=train)
    wait_for(lambda: max(losses(disturbed), default=0) >= 35)
    for node in stopped:
        node.send_signal(signal.SIGTERM)
    assert ends(stopped)[0] != 0  # the first node tells how it went
    assert ends(start(options(launcher, disturbed), 3, TRAIN=train)) == [0, 0]

    resumed = [line["step"] for line in lines(disturbed) if line.get("event") == "resumed"]
    assert resumed
    assert resumed[0] >= 30
    assert losses(disturbed) == losses(undisturbed)
    assert (tmp_path / "progress").exists()


@pytest.mark.skipif(not has_torch, reason="PyTorch is not installed")
def test_fsdp_goes_on_from_its_checkpoint_to_exactly_the_same_losses(tmp_path: Path) -> None:
    undisturbed = fsdp(tmp_path / "undisturbed", steps=40)

    fsdp(tmp_path / "disturbed", steps=20)
    (tmp_path / "disturbed" / "step-000030").mkdir()  # one that a run has begun and not finished
    resumed = fsdp(tmp_path / "disturbed", steps=40)

    assert "goes on from step 20 of 40" in resumed
    last = [re.search(r"rank 0 step 40 of 40, loss (.+)", said) for said in (undisturbed, resumed)]
    assert last[0] and last[1] and last[0][1] == last[1][1]


def fsdp(directory: Path, steps: int) -> str:
    """What two processes of the trainer say, on processors."""
    torchrun = ["torchrun", "--standalone", "--nproc-per-node=2", str(EXAMPLES / "slurm" / "train_fsdp.py")]
    command = [*torchrun, "--steps", str(steps), "--save-every", "10", "--directory", str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def options(launcher: list[str], directory: Path, *more: str) -> list[str]:
    return [*launcher, "--steps", "80", "--checkpoint-every", "10", "--directory", str(directory), *more]


def ends(nodes: "list[subprocess.Popen[bytes]]") -> list[int]:
    return [node.wait(180) for node in nodes]


def lines(directory: Path) -> list[dict[str, Any]]:
    path = directory / "progress.jsonl"
    text = path.read_text("utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def losses(directory: Path) -> dict[int, float]:
    """By step; a step that was taken again must have come to the same, so the last one holds."""
    return {line["step"]: line["loss"] for line in lines(directory) if "loss" in line}


def wait_for(is_so: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
