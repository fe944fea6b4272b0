"""Runs the containers of one pod as local processes, and says how they are, in the words of a pod's status.

There are no images: a container is its command and its arguments. There is no DNS of the cluster: what waits for a name
there is not run, and reported as done.
"""

import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandbox import processes
from sandbox.kubernetes.volumes import Volumes, place_paths

POD_MARK = "NODEHEAL_SANDBOX_POD"  # with the pod's uid, of every process that a container has started
ADDRESS = "127.0.0.1"
# As containerd reports a container whose start has failed, and one that it did not see end: after a reboot.
START_FAILED, START_ERROR = 128, "StartError"
UNSEEN_END, UNSEEN_REASON = 255, "Unknown"

# Of training-operator, in the pod of a worker: it waits until the name of the first pod is in the cluster's DNS.
_WAITS_FOR_DNS = "init-pytorch"
_MASTER = "MASTER_ADDR"  # the name of a Service, whose pod is at the address of all pods here
TERMINATION_LOG, _MESSAGE_BYTES = "/dev/termination-log", 4096
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass
class _Container:
    """A container, its process while it runs, and how its last runs have ended."""

    spec: Mapping[str, Any]
    process: subprocess.Popen[bytes] | None = None
    started_at: str = ""
    end: dict[str, Any] | None = None
    ended: float = 0.0  # monotonic
    restarts: int = 0
    last_end: dict[str, Any] | None = None


@dataclass
class PodProcesses:
    """The processes of a pod; `folder` holds the log of each container, `variables` begin every environment."""

    pod: Mapping[str, Any]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    volumes: Volumes | None = None
    restart_seconds: float = 1.0

    def __post_init__(self) -> None:
        """Prepare the containers; none is started."""
        self._containers = [_Container(spec) for spec in self.pod["spec"]["containers"]]
        inits = self.pod["spec"].get("initContainers", [])
        self._inits = [_Container(spec) for spec in inits if spec["name"] != _WAITS_FOR_DNS]
        self._skipped = [spec for spec in inits if spec["name"] == _WAITS_FOR_DNS]
        self._started_at = _now()
        self._policy = self.pod["spec"].get("restartPolicy", "Always")

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return str(self.pod["metadata"]["uid"])

    def start(self) -> None:
        """Make the volumes, and start the first init container, or every container."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.volumes is not None:
            self.volumes.mount()
        for container in self._inits[:1] or self._containers:
            self._start(container)

    def poll(self, *, restarts: bool) -> None:
        """Note which containers have ended; with `restarts`, start those again that the pod's policy names, and those
        whose turn has come.
        """
        for container in (*self._inits, *self._containers):
            if container.process is not None and (code := container.process.poll()) is not None:
                _end(container, code if code >= 0 else 128 - code, "Completed" if code == 0 else "Error")
                container.end = {**(container.end or {}), **self._message(container)}
        if not restarts:
            return
        for container in self._inits:
            if container.end is None or container.end["exitCode"] != 0:
                self._start_again(container, is_wanted=self._policy != "Never")
                return
            following = self._inits.index(container) + 1
            if following < len(self._inits) and not self._inits[following].started_at:
                self._start(self._inits[following])
                return
        for container in self._containers:
            if not container.started_at:
                self._start(container)
            self._start_again(container, is_wanted=self._restarts(container))

    def _start_again(self, container: _Container, *, is_wanted: bool) -> None:
        """Start an ended container again, after a pause."""
        if is_wanted and container.end is not None and time.monotonic() - container.ended >= self.restart_seconds:
            container.restarts += 1
            container.last_end, container.end = container.end, None
            self._start(container)

    def _message(self, container: _Container) -> dict[str, str]:
        """Return what an ended container has left for the pod's status."""
        path = self._termination_log(container)
        text = path.read_bytes()[:_MESSAGE_BYTES].decode("utf-8", "replace") if path.exists() else ""
        return {"message": text} if text else {}

    def _termination_log(self, container: _Container) -> Path:
        return self.folder / f"{container.spec['name']}.termination"

    def is_running(self) -> bool:
        """Return whether a container's process runs."""
        return any(container.process is not None for container in (*self._inits, *self._containers))

    def terminate(self) -> None:
        """Ask every container to end, by SIGTERM."""
        for container in (*self._inits, *self._containers):
            if container.process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(container.process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill every process of the pod, and those that have left their container's group."""
        processes.kill_all(lambda: processes.with_mark(POD_MARK, self.uid))
        for container in (*self._inits, *self._containers):
            if container.process is not None:
                container.process.wait()

    def lose(self) -> None:
        """Kill every process, as a loss of power does: nobody sees how a container has ended."""
        self.kill()
        for container in (*self._inits, *self._containers):
            if container.process is not None:
                _end(container, UNSEEN_END, UNSEEN_REASON)
                container.ended = -math.inf  # the first start after a boot is not delayed

    def status(self) -> dict[str, Any]:
        """Return what a kubelet reports: the phase, the conditions, and how each container is."""
        phase = self._phase()
        is_ready = phase == "Running" and all(container.process is not None for container in self._containers)
        done = phase in ("Succeeded", "Failed")
        ready = {"status": "True" if is_ready else "False", **({"reason": "PodCompleted"} if done else {})}
        return {
            "phase": phase,
            "hostIP": ADDRESS,
            "podIP": ADDRESS,
            "podIPs": [{"ip": ADDRESS}],
            "startTime": self._started_at,
            "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "ContainersReady", **ready},
                {"type": "Ready", **ready},
            ],
            "initContainerStatuses": [
                *(self._initialized(spec) for spec in self._skipped),
                *(_status(container) for container in self._inits),
            ],
            "containerStatuses": [_status(container) for container in self._containers],
        }

    def _phase(self) -> str:
        """Return the pod's phase."""
        if any(_exit_code(container) != 0 for container in self._inits):
            has_failed = self._policy == "Never" and any(_exit_code(container) for container in self._inits)
            return "Failed" if has_failed else "Pending"
        if any(container.end is None or self._restarts(container) for container in self._containers):
            return "Running"
        return "Succeeded" if all(_exit_code(one) == 0 for one in self._containers) else "Failed"

    def _restarts(self, container: _Container) -> bool:
        """Return whether the pod's policy has an ended container start again."""
        if container.end is None or self._policy == "Never":
            return False
        return self._policy == "Always" or _exit_code(container) != 0

    def _start(self, container: _Container) -> None:
        """Start a container's process in a session of its own; one that cannot start has ended."""
        container.started_at = _now()
        variables = {
            name: ADDRESS if name == _MASTER else self._placed(container, value)
            for name, value in _environment(container.spec, self.pod).items()
        }
        command = [
            self._placed(container, _expand(word, variables))
            for part in ("command", "args")
            for word in container.spec.get(part, [])
        ]
        folder = container.spec.get("workingDir", self.folder)
        try:
            if not container.spec.get("command"):
                raise OSError("there are no images here: a container needs a command")
            with (self.folder / f"{container.spec['name']}.log").open("ab") as log:
                container.process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**self.variables, **variables, POD_MARK: self.uid},
                    cwd=folder,
                    start_new_session=True,
                )
        except OSError as error:
            _end(container, START_FAILED, START_ERROR, str(error))

    def _placed(self, container: _Container, text: str) -> str:
        """Return a text of a container with its paths as they are on this machine."""
        mounts = self.volumes.mounts(container.spec) if self.volumes is not None else {}
        return place_paths(text, {**mounts, TERMINATION_LOG: self._termination_log(container)})

    def _initialized(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the status of an init container, which is not run."""
        end = {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": self._started_at,
            "finishedAt": self._started_at,
        }
        return {**_described(spec), "restartCount": 0, "ready": True, "state": {"terminated": end}}


def _end(container: _Container, code: int, reason: str, message: str = "") -> None:
    """Note how a container has ended."""
    container.process = None
    container.ended = time.monotonic()
    container.end = {
        "exitCode": code,
        "reason": reason,
        "startedAt": container.started_at,
        "finishedAt": _now(),
        **({"message": message} if message else {}),
    }


def _exit_code(container: _Container) -> int | None:
    """Return the exit code of a container that has ended."""
    return container.end["exitCode"] if container.end is not None else None


def _status(container: _Container) -> dict[str, Any]:
    """Return the status of one container."""
    runs = container.process is not None
    state: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
    if runs:
        state = {"running": {"startedAt": container.started_at}}
    elif container.end is not None:
        state = {"terminated": container.end}
    return {
        **_described(container.spec),
        "restartCount": container.restarts,
        "ready": runs,
        "started": runs,
        "state": state,
        **({"lastState": {"terminated": container.last_end}} if container.last_end else {}),
    }


def _described(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the status of a container repeats of its description."""
    image = str(spec.get("image", ""))
    return {"name": spec["name"], "image": image, "imageID": "", "containerID": ""}


def _environment(spec: Mapping[str, Any], pod: Mapping[str, Any]) -> dict[str, str]:
    """Return a container's variables: literal ones, and those from the pod's fields."""
    variables: dict[str, str] = {}
    for one in spec.get("env", []):
        field_path = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        variables[one["name"]] = _field(pod, field_path) if field_path else _expand(one.get("value", ""), variables)
    return variables


def _field(pod: Mapping[str, Any], path: str) -> str:
    """Return a field of the pod, as the downward API names it; an unknown one is empty."""
    if found := _FIELD.fullmatch(path):
        return str(pod["metadata"].get(found[1], {}).get(found[2], ""))
    if path in ("status.podIP", "status.hostIP"):
        return ADDRESS
    part, _, name = path.partition(".")
    return str(pod.get(part, {}).get(name, ""))


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the variable, if it is known; `$$` is a dollar."""
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else variables.get(found[1], found[0]), text)


def _now() -> str:
    """Return the time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
