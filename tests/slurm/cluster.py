"""A real Slurm for one test: slurmctld and a slurmd for each node, as processes of the test."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from nodeheal.agent.checks.tools import run_tool
from nodeheal.agent.diagnostics.bench import Output
from nodeheal.agent.slurm import Controller
from sandbox import processes
from sandbox.slurm import SlurmCluster

PARTITION = "gpu"
NAMES = ("node1", "node2", "node3")
MARK = "NODEHEAL_SLURM_TEST"
PATIENCE_SECONDS = 60.0


class Slurm:
    """A cluster that runs. Its commands are asked with `ask`."""

    def __init__(self, folder: Path, prolog: str = "", more: str = "") -> None:
        self.addresses = {name: f"127.77.{os.getpid() % 250}.{number}" for number, name in enumerate(NAMES, 1)}
        self._mark = str(folder)
        marks = {name: {MARK: self._mark} for name in NAMES}
        self._cluster = SlurmCluster("lab", folder / "slurm", self.addresses, marks, prolog, more)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """All daemons, and wait until every node is idle."""
        self.start_controller()
        for name in NAMES:
            self._begin(name, self._cluster.daemon(name))
        self.wait(lambda: self.states() == dict.fromkeys(NAMES, "idle"), "all nodes are idle")

    def start_controller(self) -> None:
        """slurmctld, with the state that it had."""
        self._begin("slurmctld", self._cluster.controller())

    def stop_controller(self) -> None:
        """As a crash does."""
        self._daemons["slurmctld"].kill()
        self._daemons["slurmctld"].wait()

    def freeze_controller(self) -> None:
        """It takes connections and answers none."""
        self._daemons["slurmctld"].send_signal(signal.SIGSTOP)

    def close(self) -> None:
        """End every process of the cluster."""
        for daemon in self._daemons.values():
            with contextlib.suppress(ProcessLookupError):
                daemon.kill()
            daemon.wait()
        processes.kill_all(lambda: processes.with_mark(MARK, self._mark))

    def ask(self, *command: str) -> str:
        """What one of Slurm's commands says."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """Have sbatch take a job; its id."""
        folder = self._cluster.folder
        said = self.ask("sbatch", "--parsable", f"--output={folder}/%j.out", *options, "--wrap", script)
        return said.partition(";")[0]

    def states(self) -> dict[str, str]:
        """The state of each node, as sinfo has it. `*` would say that it was not heard since it was given back."""
        rows = [line.split() for line in self.ask("sinfo", "-h", "-N", "-o", "%N %T").splitlines()]
        return {name: state.rstrip("*") for name, state in rows}

    def state_of_job(self, job: str) -> str:
        """As squeue has it; empty: it knows no such job."""
        return self.ask("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")

    def wait(self, is_true: Callable[[], bool], what: str) -> None:
        """Until it is so that `what`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_true():
            assert time.monotonic() < deadline, f"it never was so that {what}: {self.states()}"
            time.sleep(0.1)

    def run_until(self, job: str, state: str) -> None:
        """Wait until the job has this state."""
        self.wait(lambda: self.state_of_job(job) == state, f"job {job} is {state}")

    @property
    def environment(self) -> Mapping[str, str]:
        """For a process that is to find the cluster."""
        return {**os.environ, **self._cluster.environment, MARK: self._mark}

    @property
    def controller(self) -> Controller:
        """The agent's view of it."""
        os.environ.update(self._cluster.environment)

        def run(command: object, seconds: float) -> Output:
            return run_tool(command, seconds)  # type: ignore[arg-type]

        return Controller(run)

    def _begin(self, name: str, command: list[str]) -> None:
        with (self._cluster.folder / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                command, env=dict(self.environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )


@contextlib.contextmanager
def running(folder: Path, prolog: str = "", more: str = "") -> Iterator[Slurm]:
    """A cluster for as long as the block lasts. `more`: further lines of its slurm.conf."""
    slurm = Slurm(folder, prolog, more)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.close()
