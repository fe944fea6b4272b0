"""A real Slurm for tests: slurmctld and a slurmd for each node, as processes of the test.

The tests share it. Each has nodes of its own, and Slurm's commands show it no others.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from sandbox import processes
from sandbox.slurm import SlurmCluster

MARK = "NODEHEAL_SLURM_TEST"
PATIENCE_SECONDS = 120.0  # on a machine that runs other tests as well
SETTINGS = """\
Prolog={prolog}
ReturnToService=1
"""
PROLOG = """\
#!/bin/sh
# In place of one that runs `nodeheal-agent prolog`: what a test has written for this node.
own={folder}/$SLURMD_NODENAME.prolog
[ ! -e "$own" ] || exec sh "$own"
"""


class Slurm:
    """A cluster that runs. Its commands are asked with `ask`. `names`: the nodes of this test."""

    def __init__(self, folder: Path, size: int, more: str = "") -> None:
        names = [f"node{number}" for number in range(1, size + 1)]
        self.addresses = {name: f"127.77.{os.getpid() % 250}.{number}" for number, name in enumerate(names, 1)}
        self.names: list[str] = []
        self.folder = folder
        self._mark = str(folder)
        prolog = folder / "prolog.sh"
        prolog.write_text(PROLOG.format(folder=folder), "utf-8")
        prolog.chmod(0o755)
        marks = {name: {MARK: self._mark} for name in names}
        settings = SETTINGS.format(prolog=prolog) + more
        self.cluster = SlurmCluster("lab", folder / "slurm", self.addresses, marks, settings)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """All daemons, and wait until every node is idle."""
        self.start_controller()
        for name in self.addresses:
            self.start_node(name)
        self.wait(lambda: len(self._idle()) == len(self.addresses), "all nodes are idle")

    def start_controller(self) -> None:
        """slurmctld, with the state that it had."""
        self.begin("slurmctld", self.cluster.controller())

    def start_node(self, name: str) -> None:
        """Its slurmd, after a boot."""
        self.begin(name, self.cluster.daemon(name))

    def kill(self, name: str) -> None:
        """End a daemon as a crash does: a node's name, or slurmctld."""
        self._daemons[name].kill()
        self._daemons[name].wait()

    def vanish(self, name: str) -> None:
        """A node loses its power: its slurmd is gone, and what that has started."""
        started = psutil.Process(self._daemons[name].pid).children(recursive=True)
        self.kill(name)
        for process in started:
            processes.send(process, signal.SIGKILL)

    def forget_nodes(self) -> None:
        """slurmctld, when it starts again, knows no more of its nodes than its configuration says."""
        for saved in (self.cluster.folder / "state").glob("node_state*"):
            saved.unlink()

    def prolog(self, name: str, script: str) -> None:
        """What runs on a node of this test before a job."""
        (self.folder / f"{name}.prolog").write_text(script, "utf-8")

    def freeze_controller(self) -> None:
        """It takes connections and answers none."""
        self._daemons["slurmctld"].send_signal(signal.SIGSTOP)

    def thaw_controller(self) -> None:
        """It goes on, with what it was asked meanwhile."""
        self._daemons["slurmctld"].send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End every process of the cluster."""
        for daemon in self._daemons.values():
            with contextlib.suppress(ProcessLookupError):
                daemon.kill()
            daemon.wait()
        processes.kill_all(lambda: [*processes.with_mark(MARK, self._mark), *self._stepds()])

    def take(self, count: int) -> list[str]:
        """So many nodes that are free, for a test alone."""
        self.wait(lambda: len(self._idle()) >= count, f"{count} nodes are free")
        self.names = self._idle()[:count]
        return self.names

    def give_back(self) -> None:
        """End the test's jobs and put its nodes into service. Nobody waits: the next test has other nodes."""
        self.ask("scancel", "--quiet", "--user", str(os.getuid()))
        for name, state in self.states().items():
            (self.folder / f"{name}.prolog").unlink(missing_ok=True)
            if state.startswith(("drain", "down", "fail")):
                self.ask("scontrol", "update", f"NodeName={name}", "State=RESUME")

    def ask(self, *command: str) -> str:
        """What one of Slurm's commands says."""
        done = self.attempt(*command)
        done.check_returncode()
        return done.stdout.strip()

    def attempt(self, *command: str) -> subprocess.CompletedProcess[str]:
        """The same where the command may fail."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=20, check=False)

    def submit(self, script: str, *options: str) -> str:
        """Have sbatch take a job for the test's nodes; its id."""
        output = f"--output={self.folder}/%j.out"
        said = self.ask(
            "sbatch", "--parsable", "--open-mode=append", output, self.only_mine, *options, "--wrap", script
        )
        return said.partition(";")[0]

    @property
    def only_mine(self) -> str:
        """The option that keeps a job to the test's nodes."""
        return f"--exclude={','.join(self.addresses.keys() - set(self.names))}"

    def output_of(self, job: str) -> list[str]:
        """The lines that the job has printed, in all its runs."""
        output = self.folder / f"{job}.out"
        return output.read_text("utf-8").splitlines() if output.exists() else []

    def states(self) -> dict[str, str]:
        """The state of each node, as sinfo has it. `*` would say that it was not heard since it was given back."""
        rows = [line.split() for line in self.ask("sinfo", "-h", "-N", "-o", "%N %T").splitlines()]
        return {name: state.rstrip("*") for name, state in rows if name in self.names}

    def job(self, job: str, field: str) -> str:
        """A field of `scontrol show job`."""
        known = dict(word.partition("=")[::2] for word in self.ask("scontrol", "show", "job", job).split())
        return known[field]

    def nodes_of(self, job: str) -> list[str]:
        """Those on which it runs."""
        return self.ask("scontrol", "show", "hostnames", self.job(job, "NodeList")).split()

    def wait(self, is_true: Callable[[], object], what: str) -> None:
        """Until it is so that `what`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_true():
            if time.monotonic() > deadline:
                raise AssertionError(f"it never was so that {what}: {self._heard()}")
            time.sleep(0.1)

    def run_until(self, job: str, state: str) -> None:
        """Wait until the job has this state."""
        self.wait(lambda: self.job(job, "JobState") == state, f"job {job} is {state}")

    @property
    def environment(self) -> Mapping[str, str]:
        """For a process that is to find the cluster."""
        return {**os.environ, **self.cluster.environment, MARK: self._mark}

    def begin(self, name: str, command: list[str]) -> None:
        """Start a daemon, which ends with the cluster."""
        with (self.folder / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                command, env=dict(self.environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _heard(self) -> str:
        """What Slurm says of its nodes, if it answers, and the last lines of its daemons."""
        asked = self.attempt("sinfo", "-N", "-l")
        logs = {path.name: path.read_text("utf-8", "replace").splitlines()[-30:] for path in self.folder.rglob("*.log")}
        ended = {name: daemon.poll() for name, daemon in self._daemons.items() if daemon.poll() is not None}
        told = [asked.stdout + asked.stderr, f"ended: {ended}"]
        return "\n".join([*told, *(f"--- {name}\n" + "\n".join(lines) for name, lines in sorted(logs.items()))])

    def _stepds(self) -> list[psutil.Process]:
        """Those of its jobs: without an environment, but with its logs open. One that cannot tell slurmctld of the end
        of a job tries again, for hours.
        """
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.name().startswith("slurmstepd"):
                    opened = [Path(file.path) for file in process.open_files()]
                    found += [process] * any(path.is_relative_to(self.folder) for path in opened)
        return found

    def _idle(self) -> list[str]:
        rows = [line.split() for line in self.ask("sinfo", "-h", "-N", "-o", "%N %T").splitlines()]
        return [name for name, state in rows if state == "idle"]


# Makes a cluster for one test: of so many nodes, with these further lines in its slurm.conf.
Alone = Callable[[int, str], Slurm]


@contextlib.contextmanager
def running(folder: Path, size: int, more: str = "") -> Iterator[Slurm]:
    """A cluster for as long as the block lasts. `more`: further lines of its slurm.conf."""
    slurm = Slurm(folder, size, more)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.close()
