"""The prolog under a real Slurm: what its exit code does to the node and to the job."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.slurm import SlurmCluster, why_missing
from sandbox.toml import toml

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())

REPOSITORY = Path(__file__).parents[2]
PATIENCE_SECONDS = 45.0
# As docs/slurm.md has it, but for the paths. Slurm gives it no PATH.
PROLOG = """\
#!/bin/sh
export PYTHONPATH={repository} NODEHEAL_AGENT_CONFIG={folder}/$SLURMD_NODENAME.toml
# in place of /opt/nodeheal/bin/nodeheal-agent:
agent="{python} -m nodeheal.agent.main"
$agent --version >/dev/null 2>&1 || exit 0
$agent prolog {options}
[ $? -ne 1 ]
"""


@dataclass
class Slurm:
    """Two nodes, of which each has a configuration of the agent, and the cluster's daemons."""

    folder: Path
    options: str = ""
    daemons: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        prolog = self.folder / "prolog.sh"
        words = {"repository": REPOSITORY, "folder": self.folder, "python": sys.executable, "options": self.options}
        prolog.write_text(PROLOG.format(**words))
        prolog.chmod(0o755)
        addresses = {"n1": "127.0.0.1", "n2": "127.0.0.1"}
        self.cluster = SlurmCluster("prolog", self.folder / "slurm", addresses, {}, str(prolog))
        self.environment = {**os.environ, **self.cluster.environment}

    def node(self, name: str, **changes: object) -> None:
        """The agent's configuration on the node: there is nothing to check, unless that is changed."""
        (self.folder / "boot_id").write_text("boot-1\n")
        known: dict[str, object] = {
            **{"node_id": f"mi-0a1b2c3d4e5f6789{name[-1]}", "cluster": "training", "pool": "h100"},
            **{"provider": "hybrid", "region": "eu-central-1", "endpoint_url": "http://127.0.0.1:9", "checks": []},
            **{"state_dir": str(self.folder / name / "state"), "orders_dir": str(self.folder / name / "orders")},
            "boot_id_file": str(self.folder / "boot_id"),
        }
        (self.folder / f"{name}.toml").write_text(toml({**known, **changes}))

    def start(self) -> None:
        for command in (self.cluster.controller(), self.cluster.daemon("n1"), self.cluster.daemon("n2")):
            log = (self.folder / f"daemon-{len(self.daemons)}.log").open("wb")
            with log:
                self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))
        eventually(lambda: self.nodes() == {"n1": ("idle", "none"), "n2": ("idle", "none")})

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(20)

    def run(self, *command: str) -> str:
        ended = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=False, cwd=self.folder
        )
        return ended.stdout if ended.returncode == 0 else f"{ended.stdout}{ended.stderr}"

    def nodes(self) -> dict[str, tuple[str, str]]:
        """State and reason of each node."""
        lines = self.run("sinfo", "--Node", "--noheader", "--format", "%N|%T|%E").splitlines()
        found = [line.split("|") for line in lines if line.count("|") == 2]
        return {name: (state, reason) for name, state, reason in found}

    def submit(self) -> str:
        """A job that says where it ran; its id."""
        said = self.run("sbatch", "--parsable", "--output", "job.out", "--wrap", 'echo "$SLURMD_NODENAME"')
        return said.strip()

    def job(self, number: str) -> dict[str, str]:
        words = self.run("scontrol", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def log_of(self, node: str) -> str:
        return (self.folder / "slurm" / f"{node}.log").read_text()


def eventually(claim: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not claim():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.2)


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    it = Slurm(tmp_path)
    yield it
    it.stop()


def test_a_node_whose_check_fails_is_drained_and_its_job_runs_elsewhere(slurm: Slurm) -> None:
    slurm.node("n1", checks=["mounts"], mounts=[str(slurm.folder / "fsx")])
    slurm.node("n2")
    slurm.start()

    job = slurm.submit()

    eventually(lambda: slurm.job(job)["JobState"] == "COMPLETED")
    told = slurm.job(job)
    assert (told["NodeList"], told["Restarts"], (slurm.folder / "job.out").read_text()) == ("n2", "1", "n2\n")
    assert slurm.nodes() == {"n1": ("drained", "Prolog error"), "n2": ("idle", "none")}
    assert "the job must not start here" in slurm.log_of("n1")


def test_a_job_starts_at_once_on_nodes_that_are_well(slurm: Slurm) -> None:
    slurm.node("n1")
    slurm.node("n2")
    slurm.start()
    began = time.monotonic()

    job = slurm.submit()

    eventually(lambda: slurm.job(job)["JobState"] == "COMPLETED")
    assert time.monotonic() - began < 15
    assert (slurm.job(job)["NodeList"], slurm.job(job)["Restarts"]) == ("n1", "0")
    assert (slurm.folder / "n1" / "orders" / "prolog-pass.json").exists()
    assert {state for state, _ in slurm.nodes().values()} == {"idle"}


@pytest.mark.parametrize(("text", "options"), [("what?", ""), ("", "--sekonds 10")])
def test_a_mistake_on_all_nodes_drains_none(tmp_path: Path, text: str, options: str) -> None:
    slurm = Slurm(tmp_path, options)
    try:
        for name in ("n1", "n2"):
            slurm.node(name)
            if text:
                (tmp_path / f"{name}.toml").write_text(text)
        slurm.start()

        job = slurm.submit()

        eventually(lambda: slurm.job(job)["JobState"] == "COMPLETED")
        assert slurm.job(job)["Restarts"] == "0"
    finally:
        slurm.stop()


def test_the_doctor_reads_the_settings_of_a_real_slurm(slurm: Slurm) -> None:
    slurm.node("n1")
    slurm.node("n2")
    slurm.start()

    ended = subprocess.run(
        [sys.executable, "-m", "nodeheal.agent.main", "slurm", "doctor"],
        env={**slurm.environment, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    states = {line[:24].strip(): line[24:31].strip() for line in ended.stdout.splitlines()}
    assert (ended.returncode, ended.stderr) == (0, "")
    assert states == {
        **dict.fromkeys(("slurmctld", "version", "Prolog", "SchedulerParameters", "PrologFlags"), "ok"),
        **{"PrologEpilogTimeout": "ok", "BatchStartTimeout": "poor", "ResumeTimeout": "poor"},
        **{"ReturnToService": "ok", "JobRequeue": "ok", "HealthCheckProgram": "-"},
    }
