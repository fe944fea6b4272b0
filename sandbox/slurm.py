"""Runs a real Slurm on simulated nodes: Debian's slurmctld on a machine of its own, and a slurmd on each node.

Slurm's programs are not part of nodeheal: `make slurm` installs them.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from sandbox import processes
from sandbox.node import Node

_PORTS = (10_000, 32_000)  # below those that the kernel hands out
TOOLS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "squeue")
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])  # Debian has daemons there
# A requeued job may start once its credential has expired. Slurm's default is 120 s.
CRED_EXPIRE_SECONDS = 5
_CONFIGURATION = """\
ClusterName={name}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire={cred_expire}
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
TaskProlog={task_prolog}
SelectType=select/cons_tres
SchedulerType=sched/backfill
SchedulerParameters=nohold_on_prolog_fail,sched_interval=1,bf_interval=1
PrologFlags=Alloc
ReturnToService=0
SlurmdTimeout=300
KillWait=2
BatchStartTimeout=5
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
{settings}{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=EXCLUSIVE State=UP
"""


@dataclass(frozen=True)
class _Member:
    address: str
    port: int
    marks: Mapping[str, str]  # for the environment of its jobs' processes


def why_missing() -> str:
    """Return which part of Slurm is not installed here, and how to install it; empty: none."""
    absent = [tool for tool in TOOLS if shutil.which(tool, path=_PATH) is None]
    return f"{', '.join(absent)} not found: install Slurm with `make slurm`, or see docs/slurm.md" if absent else ""


class SlurmCluster:
    """The configuration of one cluster, and the commands of its daemons, which the caller starts and ends."""

    def __init__(
        self,
        name: str,
        folder: Path,
        members: Mapping[str, str],
        marks: Mapping[str, Mapping[str, str]],
        settings: str = "",
    ) -> None:
        """`members`: addresses by Slurm's names. `marks`: variables for the jobs' processes, by the same.

        `settings`: lines of slurm.conf; of a repeated one the last is used.
        """
        self.folder = folder
        (folder / "state").mkdir(parents=True)
        port, *ports = free_ports(1 + len(members))
        self._members = {
            node: _Member(address, own, marks.get(node, {}))
            for (node, address), own in zip(members.items(), ports, strict=True)
        }
        lines = [
            f"NodeName={node} NodeAddr={one.address} NodeHostname=localhost Port={one.port} CPUs=1 State=UNKNOWN"
            for node, one in self._members.items()
        ]
        task_prolog = folder / "task-prolog.sh"
        self._write_task_prolog()
        task_prolog.chmod(0o755)
        text = _CONFIGURATION.format(
            name=name,
            port=port,
            cred_expire=CRED_EXPIRE_SECONDS,
            user=_user(),
            folder=folder,
            task_prolog=task_prolog,
            settings=settings,
            nodes="\n".join(lines),
        )
        self.configuration.write_text(text, "utf-8")

    def move(self, name: str, address: str, marks: Mapping[str, str]) -> None:
        """Change the address of the node of this name. slurmctld continues with the old one."""
        known = self._members[name]
        text = self.configuration.read_text("utf-8")
        moved = text.replace(f"NodeName={name} NodeAddr={known.address} ", f"NodeName={name} NodeAddr={address} ")
        self.configuration.write_text(moved, "utf-8")
        self._members[name] = _Member(address, known.port, marks)
        self._write_task_prolog()

    def _write_task_prolog(self) -> None:
        (self.folder / "task-prolog.sh").write_text(_task_prolog(self._members), "utf-8")

    @property
    def configuration(self) -> Path:
        """The cluster's slurm.conf."""
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which Slurm's commands find the cluster."""
        return {"SLURM_CONF": str(self.configuration)}

    def controller(self) -> list[str]:
        """Return the command of slurmctld, which stays in the foreground."""
        return [_tool("slurmctld"), "-D", "-f", str(self.configuration)]

    def daemon(self, node: str) -> list[str]:
        """Return the command of a node's slurmd, which stays in the foreground. `-b`: the node has just booted."""
        return [_tool("slurmd"), "-D", "-b", "-f", str(self.configuration), "-N", node]


def run_on(cluster: SlurmCluster, head: Node, nodes: Mapping[str, Node]) -> None:
    """Start the cluster's daemons: on the head, and on each node now and after each of its boots."""
    head.variables.update(cluster.environment)
    _start(head, cluster.controller())
    for name, node in nodes.items():
        join(cluster, name, node)


def join(cluster: SlurmCluster, name: str, node: Node) -> None:
    """Start the node's daemon, now and after each of its boots."""
    node.variables.update(cluster.environment)
    begin = partial(_start, node, cluster.daemon(name))
    node.when_up = begin
    node.also_ends = stepds_of
    begin()


def stepds_of(found: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the daemons of these processes of jobs: they clear their environment, so no mark is visible."""
    daemons = []
    for process in found:
        try:
            parent = process.parent()
            if parent is not None and parent.name().startswith("slurmstepd"):
                daemons.append(parent)
        except psutil.Error:
            continue
    return daemons


def abort_tasks(node: Node) -> int:
    """Send SIGABRT to the training processes of Slurm's jobs on the node, as CUDA does when a GPU is gone; returns
    their number.
    """
    tasks = tasks_on(node.directory)
    for process in tasks:
        processes.send(process, signal.SIGABRT)
    return len(tasks)


def tasks_on(directory: Path) -> list[psutil.Process]:
    """Return the training processes of Slurm's jobs on the node with this directory."""
    return [process for process in processes.with_mark(processes.NODE_MARK, str(directory)) if _is_task(process)]


def _is_task(process: psutil.Process) -> bool:
    """Whether Slurm has started it as a rank: the batch script and srun are none."""
    try:
        told = process.environ()
        return "SLURM_PROCID" in told and "SLURM_STEP_ID" in told and "RANK" in told
    except psutil.Error:
        return False


def _start(node: Node, command: list[str]) -> None:
    node.run(command, node.directory, node.directory / "logs" / f"{Path(command[0]).name}.log")


def _tool(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise RuntimeError(why_missing())
    return found


def _user() -> str:
    return psutil.Process().username()


def _task_prolog(members: Mapping[str, _Member]) -> str:
    cases = [
        f"{node}) {'; '.join(f'echo export {key}={value}' for key, value in one.marks.items()) or ':'} ;;"
        for node, one in members.items()
    ]
    return "\n".join(["#!/bin/sh", 'case "$SLURMD_NODENAME" in', *cases, "esac", ""])


def free_ports(count: int) -> list[int]:
    """Return free ports that the kernel does not use for outgoing connections meanwhile."""
    found: set[int] = set()
    while len(found) < count:
        port = random.randrange(*_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            found.add(port)
    return list(found)


def marks_of(node: Node) -> dict[str, str]:
    """Return the variables that mark a process of a job as one of the node."""
    return {
        processes.NODE_MARK: str(node.directory),
        processes.SANDBOX_MARK: node.spec.sandbox_id,
        # On a real node a folder that jobs see; here processes share the node's.
        "NODEHEAL_CHECKPOINT_DIR": str(node.directory / "run"),
    }
