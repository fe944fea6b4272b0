"""A simulated accelerator node: a folder, a kernel log, a boot id, and real processes."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import psutil

from nodeheal.agent.runtime import orders
from nodeheal.contract.names import PROGRESS_VARIABLE
from nodeheal.contract.vocabulary import SchedulerKind
from sandbox import processes
from sandbox.iam import REGION, Credentials
from sandbox.toml import toml

REPOSITORY = Path(__file__).resolve().parent.parent
TOOLS = REPOSITORY / "sandbox" / "tools"
# The agent's tools for a reboot. Without the stand-ins it would find the real ones.
REBOOT_TOOLS = ("systemd-run", "systemctl", "reboot")
AGENT = (sys.executable, "-m", "nodeheal.agent.main", "watch")
KERNEL_BANNER = "Linux version 6.1.0-sandbox (nodeheal) #1 SMP PREEMPT_DYNAMIC"
SECONDS_SCALE = "NODEHEAL_SANDBOX_SECONDS_SCALE"  # for the stand-in of systemd among the tools
CREDENTIALS_REFRESH_SECONDS = 1200  # the SSM agent rotates them well before their hour is over

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeSpec:
    """The fixed properties of a node."""

    node_id: str
    pool: str
    cluster: str
    gpus: int
    address: str
    endpoint_url: str
    directory: Path
    sandbox_id: str
    provider: str = "hybrid"
    heartbeat_seconds: float = 60.0
    role: str = ""  # the name of its role
    scheduler: SchedulerKind = SchedulerKind.ECS
    checks: tuple[str, ...] = ()  # of its agent; those of the host's state would see the host that all nodes share


@dataclass(frozen=True)
class Faults:
    """What the fake tools of a node answer with."""

    dcgm: str = "pass"  # pass, fail, hang, or down: its host engine does not run
    diag_seconds: float = 1.5
    persists: bool = False  # a reboot does not help
    of_host: bool = False  # a persistent fault of the host: on another one it is gone
    line: str = ""
    hangs_shutdown: bool = False  # a process that cannot be ended keeps the node from going down, until it is forced


class Node:
    """One node. `is_up` is false from the moment it goes down until it has booted again."""

    def __init__(
        self,
        spec: NodeSpec,
        boot_seconds: float,
        agent: Sequence[str],
        credentials: Callable[[], Credentials] | None,
        seconds_scale: Callable[[], float] = lambda: 1.0,
    ) -> None:
        unusable = [tool for tool in REBOOT_TOOLS if not os.access(TOOLS / tool, os.X_OK)]
        if unusable:
            raise RuntimeError(f"{TOOLS / unusable[0]} cannot be run: a simulated reboot would reboot this machine")
        self.spec = spec
        self._boot_seconds = boot_seconds
        self._agent = tuple(agent)
        self._credentials = credentials
        self._seconds_scale = seconds_scale
        self._power = threading.RLock()  # held while a process is started, so that none survives a reboot
        self._up = threading.Event()
        self._off = threading.Event()  # permanently: the sandbox closes
        self._rebooting = threading.Lock()
        self._booted_monotonic = time.monotonic()
        self.last_seen = datetime.now(UTC)
        self.stays_down = False  # it will not come back from its next reboot
        self.before_down: Callable[[], None] = lambda: None  # before its processes end
        self.when_down: Callable[[], None] = lambda: None
        self.when_up: Callable[[], None] = lambda: None
        self.variables: dict[str, str] = {}  # for the environment of every process here
        # further processes that end with the node and cannot be found by its mark. They end first.
        self.also_ends: Callable[[list[psutil.Process]], list[psutil.Process]] = lambda found: []

    @property
    def directory(self) -> Path:
        """The node's own folder."""
        return self.spec.directory

    @property
    def kernel_log(self) -> Path:
        """The node's kernel log, in syslog style."""
        return self.directory / "kernel.log"

    @property
    def boot_id(self) -> str:
        """The current boot; empty before the first one."""
        path = self.directory / "boot_id"
        return path.read_text().strip() if path.exists() else ""

    @property
    def is_up(self) -> bool:
        """Whether the node runs."""
        return self._up.is_set()

    @property
    def is_off(self) -> bool:
        """Whether the node is down permanently."""
        return self._off.is_set()

    def start(self) -> None:
        """Boot for the first time, at once."""
        for name in ("logs", "state", "tasks", "ssm", "run", "progress", "systemd"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        os.mkfifo(self._power_switch)
        threading.Thread(target=self._obey_power_switch, name=f"{self.spec.node_id} power", daemon=True).start()
        _write(self.directory / "agent.toml", toml(self._agent_config()))
        self.set_faults(Faults())
        if self._credentials is not None:
            self._write_credentials()
            threading.Thread(target=self._rotate_credentials, name=f"{self.spec.node_id} ssm keys", daemon=True).start()
        self._boot()

    def start_after(self, seconds: float) -> bool:
        """Boot for the first time, after this time. False: it was switched off permanently before."""
        if self._off.wait(seconds):
            return False
        self.start()
        return True

    def reboot(self) -> None:
        """Go down with all processes and come up as another boot. Returns once the node is up."""
        if not self._rebooting.acquire(blocking=False):
            self._up.wait(self._boot_seconds * 2)  # it is rebooting already
            return
        try:
            self.go_down()
            self.when_down()
            if not self._off.wait(self._boot_seconds) and not self.stays_down:
                self._boot()
        finally:
            self._rebooting.release()

    def stop(self) -> None:
        """Go down and stay down, until `power_on`."""
        self.go_down()
        self.when_down()

    def power_on(self) -> None:
        """Come up as another boot, on another host."""
        if not self._off.wait(self._boot_seconds):
            if self.faults().of_host:
                self.set_faults(Faults())
            self._boot()

    def go_down(self) -> None:
        """End every process of the node, as a power loss does."""
        with self._power:
            self._up.clear()
            self.last_seen = datetime.now(UTC)
        self.before_down()
        processes.kill_all(self._processes)

    def _processes(self) -> list[psutil.Process]:
        found = processes.with_mark(processes.NODE_MARK, str(self.directory))
        return [*self.also_ends(found), *found]

    def power_off(self) -> None:
        """Go down permanently."""
        self._off.set()
        self.go_down()
        if self._power_switch.exists():
            switch = os.open(self._power_switch, os.O_RDWR)  # does not block without a reader
            os.write(switch, b"off\n")
            os.close(switch)

    def run(
        self, command: Sequence[str], cwd: Path, log: Path, extra: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes] | None":
        """Start a process on the node in its own process group, with its output in `log`. None: the node is down."""
        variables = {**self.environment(), **(extra or {})}
        if file := variables.get(PROGRESS_VARIABLE):  # where the mount of a real node's folder leads
            variables[PROGRESS_VARIABLE] = str(self.progress_folder / Path(file).name)
        with log.open("ab") as output:
            return self.spawn(command, cwd, variables, output, subprocess.STDOUT)

    def spawn(
        self,
        command: Sequence[str],
        cwd: Path | str,
        environment: Mapping[str, str],
        stdout: IO[bytes] | int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> "subprocess.Popen[bytes] | None":
        """Start a process with this environment and with pipes, or with these instead."""
        with self._power:
            if not self.is_up:
                return None
            return subprocess.Popen(
                list(command),
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                process_group=0,
            )

    @property
    def progress_folder(self) -> Path:
        """Return where the jobs of this node show their steps."""
        return self.directory / "progress"

    def environment(self) -> dict[str, str]:
        """Return the environment of a process on the node, without this machine's settings and credentials."""
        return {
            "PATH": os.pathsep.join([str(TOOLS), str(Path(sys.executable).parent), os.defpath]),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            processes.NODE_MARK: str(self.directory),
            processes.SANDBOX_MARK: self.spec.sandbox_id,
            SECONDS_SCALE: str(self._seconds_scale()),
            # On a real node a folder that the task definition mounts; here processes share the node's.
            "NODEHEAL_CHECKPOINT_DIR": str(self.directory / "run"),
            "NODEHEAL_AGENT_CONFIG": str(self.directory / "agent.toml"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.directory / "credentials"),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.spec.endpoint_url,
            **self.variables,
        }

    def set_faults(self, faults: Faults) -> None:
        """Set what the fake tools answer from now on."""
        _write(self.directory / "faults.json", json.dumps(asdict(faults)))

    def faults(self) -> Faults:
        """Return what the fake tools answer."""
        return Faults(**json.loads((self.directory / "faults.json").read_text()))

    def append_kernel_line(self, text: str) -> float:
        """Write a line as the kernel does; returns the time (seconds since the epoch) of the write."""
        moment = datetime.now(UTC)
        uptime = time.monotonic() - self._booted_monotonic
        host = f"node-{self.spec.node_id[-6:]}"
        stamp = moment.isoformat(timespec="microseconds")
        with self.kernel_log.open("a", encoding="utf-8") as log:
            log.write(f"{stamp} {host} kernel: [{uptime:12.6f}] {text}\n")
        return moment.timestamp()

    def _boot(self) -> None:
        if not self.faults().persists:
            self.set_faults(Faults())
        if self.kernel_log.exists():
            self.kernel_log.replace(self.kernel_log.with_name("kernel.log.1"))
        _write(self.directory / "boot_id", str(uuid.uuid4()))
        self._booted_monotonic = time.monotonic()
        self.append_kernel_line(KERNEL_BANNER)
        with self._power:
            if self._off.is_set():
                return
            self._up.set()
        self.when_up()
        process = self.run(self._agent, self.directory, self.directory / "logs" / "agent.log")
        if process is not None:
            name = f"{self.spec.node_id} agent"
            threading.Thread(target=self._note_agent_end, args=(process,), name=name, daemon=True).start()
        # As the unit of the same name does; without a stored command it does nothing.
        if (self.directory / "orders" / orders.FILE).exists():
            self.run((*AGENT[:-1], "after-boot"), self.directory, self.directory / "logs" / "after-boot.log")

    @property
    def _power_switch(self) -> Path:
        """Read the reboot requests of the stand-in of systemd: a pipe with `VERB BOOT_ID` a line."""
        return self.directory / "power"

    def _obey_power_switch(self) -> None:
        # A descriptor that can write as well never reads an end of file.
        with os.fdopen(os.open(self._power_switch, os.O_RDWR), encoding="utf-8") as switch:
            for line in switch:
                verb, _, boot_id = line.strip().partition(" ")
                if verb == "off":
                    return
                is_held = verb == "reboot" and self.faults().hangs_shutdown
                if boot_id == self.boot_id and self.is_up and not is_held:
                    self.reboot()

    def _note_agent_end(self, process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        if self.is_up:
            logger.error("the agent of %s ended with %s; see %s", self.spec.node_id, code, self.directory / "logs")

    def _agent_config(self) -> dict[str, object]:
        return {
            "node_id": self.spec.node_id,
            "cluster": self.spec.cluster,
            "pool": self.spec.pool,
            "provider": self.spec.provider,
            "region": REGION,
            "endpoint_url": self.spec.endpoint_url,
            "kernel_log": [{"kind": "file", "path": str(self.kernel_log)}],
            "boot_id_file": str(self.directory / "boot_id"),
            "state_dir": str(self.directory / "state"),
            "orders_dir": str(self.directory / "orders"),
            "checkpoint_dir": str(self.directory / "run"),
            "progress_dir": str(self.progress_folder),
            "dcgm_drills_file": str(self.directory / "dcgm-drills.json"),
            "address": self.spec.address,
            "accelerators": self.spec.gpus,
            "checks": list(self.spec.checks),
            "heartbeat_seconds": self.spec.heartbeat_seconds,
            "drills": True,
            "scheduler": self.spec.scheduler.value,
        }

    def _rotate_credentials(self) -> None:
        while not self._off.wait(CREDENTIALS_REFRESH_SECONDS):
            self._write_credentials()

    def _write_credentials(self) -> None:
        if self._credentials is None:
            return
        found = self._credentials()
        lines = [
            "[default]",
            f"aws_access_key_id = {found.access_key}",
            f"aws_secret_access_key = {found.secret_key}",
            f"aws_session_token = {found.session_token}",
        ]
        _write(self.directory / "credentials", "\n".join(lines) + "\n")


def _write(path: Path, text: str) -> None:
    """Replace a file atomically."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o600)
    fresh.replace(path)
