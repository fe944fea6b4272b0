"""Runs the containers of one pod as local processes, and says how they are, in the words of a pod's status.

There are no images: a container is its command and its arguments. Init containers are not run, and reported as done.
"""

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

POD_MARK = "NODEHEAL_SANDBOX_POD"  # with the pod's uid, of every process that a container has started
ADDRESS = "127.0.0.1"
# As containerd reports a container whose start has failed, and one that it did not see end: after a reboot.
START_FAILED, START_ERROR = 128, "StartError"
UNSEEN_END, UNSEEN_REASON = 255, "Unknown"

_RESTART_SECONDS = 1.0  # a kubelet begins with 10 s, and doubles them
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
    """The processes of a pod; `folder` holds the log of each container, `variables` join every environment."""

    pod: Mapping[str, Any]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the containers; none is started."""
        self._containers = [_Container(spec) for spec in self.pod["spec"]["containers"]]
        self._started_at = _now()
        self._policy = self.pod["spec"].get("restartPolicy", "Always")

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return str(self.pod["metadata"]["uid"])

    def start(self) -> None:
        """Start every container."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for container in self._containers:
            self._start(container)

    def poll(self, *, restarts: bool) -> None:
        """Note which containers have ended; with `restarts`, start those again that the pod's policy names."""
        for container in self._containers:
            if container.process is not None and (code := container.process.poll()) is not None:
                _end(container, code if code >= 0 else 128 - code, "Completed" if code == 0 else "Error")
            waited = time.monotonic() - container.ended
            if restarts and self._restarts(container) and waited >= _RESTART_SECONDS:
                container.restarts += 1
                container.last_end, container.end = container.end, None
                self._start(container)

    def is_running(self) -> bool:
        """Return whether a container's process runs."""
        return any(container.process is not None for container in self._containers)

    def terminate(self) -> None:
        """Ask every container to end, by SIGTERM."""
        for container in self._containers:
            if container.process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(container.process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill every process of the pod, and those that have left their container's group."""
        processes.kill_all(lambda: processes.with_mark(POD_MARK, self.uid))
        for container in self._containers:
            if container.process is not None:
                container.process.wait()

    def lose(self) -> None:
        """Kill every process, as a loss of power does: nobody sees how a container has ended."""
        self.kill()
        for container in self._containers:
            if container.process is not None:
                _end(container, UNSEEN_END, UNSEEN_REASON)

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
            "initContainerStatuses": [self._initialized(spec) for spec in self.pod["spec"].get("initContainers", [])],
            "containerStatuses": [_status(container) for container in self._containers],
        }

    def _phase(self) -> str:
        """Return the pod's phase."""
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
        variables = _environment(container.spec, self.pod)
        command = [_expand(word, variables) for part in ("command", "args") for word in container.spec.get(part, [])]
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
                    env={**os.environ, **self.variables, **variables, POD_MARK: self.uid},
                    cwd=folder,
                    start_new_session=True,
                )
        except OSError as error:
            _end(container, START_FAILED, START_ERROR, str(error))

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
    state = {"running": {"startedAt": container.started_at}} if runs else {"terminated": container.end}
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
