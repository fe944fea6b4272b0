"""Plays a story on Slurm: the job is Slurm's own, started with sbatch, and Slurm restarts it when nodeheal
requeues it.
"""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from nodeheal.contract.vocabulary import JobState
from sandbox.client import NodeHandle, free_port
from sandbox.job_file import EXAMPLES
from sandbox.script import GANG_NODES
from sandbox.slurm import why_missing
from sandbox.story import READY_SECONDS, Story, StoryError
from sandbox.training import Training

BATCH = EXAMPLES / "slurm" / "train.sbatch"
TRAINER = EXAMPLES / "numpy-trainer" / "train.py"
COMMAND_SECONDS = 20.0
_STATES = {"COMPLETED": JobState.COMPLETED, "FAILED": JobState.FAILED, "CANCELLED": JobState.CANCELLED}


class SlurmStory(Story):
    """One playing of a script on a Slurm cluster."""

    _job_id = ""
    _restarts_told = _starts_told = 0
    _configuration = Path()
    _starts_nothing = False

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables by which Slurm's commands find this cluster, without DNS."""
        return {"SLURM_CONF": str(self._configuration)}

    @property
    def own_commands(self) -> tuple[str, ...]:
        """Return the command that shows Slurm's nodes."""
        return ("  sinfo --Node --long",)

    @property
    def owner_mails(self) -> tuple[str, ...]:
        """Return none: Slurm has no address of the job's submitter."""
        return ()

    def _made_nodes(self) -> list[NodeHandle]:
        missing = why_missing()
        if missing:
            raise StoryError(missing)
        nodes, self._configuration = self.sandbox.add_slurm(
            self.script.pool,
            self.script.nodes,
            checks=self.script.checks,
            hyperpod=self.script.provider == "hyperpod",
        )
        self._await(self._is_slurm_up, READY_SECONDS, "all nodes have registered with slurmctld")
        return nodes

    def _is_slurm_up(self) -> bool:
        return self.slurm_states() == ["idle"] * self.script.nodes

    def _start_training(self) -> None:
        script = self.script
        directory = self.sandbox.directory / "shared" / script.job
        directory.mkdir(parents=True, exist_ok=True)
        options = {
            "TRAINER": str(TRAINER),
            "TRAINER_STEPS": str(script.steps),
            "TRAINER_STEP_SECONDS": str(script.step_seconds),
            "TRAINER_CHECKPOINT_EVERY": str(script.checkpoint_every),
            "TRAINER_DIRECTORY": str(directory),
            "MASTER_PORT": str(free_port()),
        }
        command = ["sbatch", f"--job-name={script.job}", f"--nodes={GANG_NODES}", "--requeue"]
        self._line(time.time(), "command", shlex.join([*command, BATCH.name]))
        output = f"--output={directory}/%j.log"
        said = self.slurm(*command, output, f"--chdir={directory}", str(BATCH), extra=options)
        self._job_id = re.sub(r"\D", "", said)
        self._say(said.strip())
        self.told.training = Training(directory)
        self._await_training()

    def _break_nodes(self) -> None:
        """Break the node of a Slurm that starts no job until the node is drained.

        A job whose program dies requeues itself, and Slurm starts it again after `cred_expire`: 120 s by default, 5 s
        here. On a busy machine nodeheal drains the node later than that, and the job would start on it once more.
        """
        if self.script.kills_rank:
            self._let_jobs_start(is_allowed=False)
        super()._break_nodes()

    def _is_over(self) -> bool:
        if self._starts_nothing and self._is_drained(self.victim):
            self._let_jobs_start(is_allowed=True)
        return super()._is_over()

    def _let_jobs_start(self, *, is_allowed: bool) -> None:
        """Set the partition up or down. Down, it queues jobs, and those that run continue."""
        self.slurm("scontrol", "update", "PartitionName=gpu", f"State={'UP' if is_allowed else 'DOWN'}")
        self._starts_nothing = not is_allowed

    def _is_drained(self, node_id: str) -> bool:
        """Whether Slurm starts no job on the node."""
        state = self.slurm("sinfo", "-h", "-n", self.name_of(node_id), "-o", "%T").strip()
        return state.startswith(("drain", "fail", "down"))

    def _gang(self) -> list[str] | None:
        """Return the nodes of the job, in Slurm's order, which is that of its ranks."""
        placed = self.slurm("squeue", "-h", "-j", self._job_id, "-t", "R", "-o", "%N").strip()
        names_of = self.slurm("scontrol", "show", "hostnames", placed).split() if placed else []
        return [self._nodes_by_name()[name] for name in names_of] or None

    def _job_state(self) -> JobState | None:
        known = dict(re.findall(r"(\w+)=(\S+)", self.slurm("scontrol", "-o", "show", "job", self._job_id)))
        state, restarts = known.get("JobState", ""), int(known.get("Restarts", 0))
        if restarts > self._restarts_told:
            self._restarts_told = restarts
            by = "its batch script" if self._has_requeued_itself(restarts) else "nodeheal"
            told = f"{by} has Slurm requeue job {self._job_id} (restart {restarts})"
            self._line(time.time(), "training", told)
        elif state == "RUNNING" and restarts > self._starts_told:
            self._starts_told = restarts
            self._line(time.time(), "training", f"Slurm starts job {self._job_id} again, on {self._where(known)}")
        return _STATES.get(state, JobState.RUNNING)

    def _has_requeued_itself(self, restart: int) -> bool:
        """Whether the job's log has the line that the example's script writes before it requeues itself."""
        assert self.told.training is not None
        log = self.told.training.directory / f"{self._job_id}.log"
        return log.exists() and f"requeuing job {self._job_id}, restart {restart} of" in log.read_text("utf-8")

    def _where(self, known: Mapping[str, str]) -> str:
        names = self._nodes_by_name()
        hosts = self.slurm("scontrol", "show", "hostnames", known["NodeList"]).split()
        return " and ".join(names[host] for host in hosts)

    def slurm_states(self) -> list[str]:
        """Return the state of each node, in order. `*` would mean that it has not reported since it was resumed."""
        return [state.rstrip("*") for state in self.slurm("sinfo", "-h", "-N", "-o", "%T").split()]

    def slurm_reason(self, node_id: str) -> str:
        """Return Slurm's reason why a node is out of service."""
        return self.slurm("sinfo", "-h", "-n", self.name_of(node_id), "-o", "%E").strip()

    def name_of(self, node_id: str) -> str:
        """Return Slurm's name of the node."""
        return {node: name for name, node in self._nodes_by_name().items()}[node_id]

    def successor(self) -> NodeHandle | None:
        """Return the machine that HyperPod has made in the victim's place; None: none yet."""
        known = [handle.node_id for handle in self._handles]
        found = [one for one in self.sandbox.nodes() if one["pool"] == self.script.pool and one["node_id"] not in known]
        if not found:
            return None
        [new] = found
        return NodeHandle(new["node_id"], new["pool"], new["address"], Path(new["directory"]), "")

    def rejoin(self, new: NodeHandle) -> None:
        """Do what HyperPod does with Slurm's node when its new machine is up."""
        name = self.name_of(self.victim)
        self._handles.append(new)
        self.slurm("scontrol", "update", f"NodeName={name}", f"NodeAddr={new.address}", "State=RESUME")

        def is_back() -> bool:
            state = self.slurm("sinfo", "-h", "-n", name, "-o", "%T").strip()
            if state.startswith("down"):  # it registered just after that: for Slurm it has rebooted unexpectedly
                self.slurm("scontrol", "update", f"NodeName={name}", "State=RESUME")
            return state in ("idle", "allocated", "mixed")

        self.wait(is_back, "the new machine has registered under the old one's name")

    def restarts(self) -> int:
        """Return how often Slurm has restarted the job."""
        shown = re.search(r"Restarts=(\d+)", self.slurm("scontrol", "-o", "show", "job", self._job_id))
        return int(shown[1]) if shown else 0

    def _nodes_by_name(self) -> dict[str, str]:
        by_address = {handle.address: handle.node_id for handle in self._handles}
        rows = [line.split() for line in self.slurm("sinfo", "-h", "-N", "-o", "%N %o").splitlines()]
        return {name: by_address[address] for name, address in rows}

    def slurm(self, *command: str, extra: Mapping[str, str] | None = None) -> str:
        """Return the output of one of Slurm's commands, in this cluster. Raises StoryError."""
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            **self.variables,
            "PYTHONUNBUFFERED": "1",
            **(extra or {}),
        }
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
        if done.returncode != 0:
            raise StoryError(f"{shlex.join(command)}: {done.stderr.strip()}; look at {self._configuration.parent}")
        return done.stdout
