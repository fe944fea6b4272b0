"""Simulates the ECS agents of the nodes: they start containers as processes, watch them, and report to ECS.

An agent reports only while its node is up: it reports the effects of a reboot after it.
"""

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from sandbox import processes
from sandbox.behaviour import Behaviour
from sandbox.ecs_state import ContainerInstance, EcsState, Task, now
from sandbox.events import Emit, Event, event_detail
from sandbox.node import REPOSITORY, Node
from sandbox.task_logs import TaskLogs

IMAGES = REPOSITORY / "examples"  # an image is a folder: the container's file system, as far as the sandbox needs one
KILLED = 137  # the exit code of a container whose host goes down
ESSENTIAL_EXITED = "Essential container in task exited"

logger = logging.getLogger(__name__)


class NoSuchImage(OSError):
    """The image does not exist."""


class EcsAgents:
    """Runs and ends tasks. `lock` guards the state."""

    def __init__(
        self,
        state: EcsState,
        lock: threading.RLock,
        nodes: Mapping[str, Node],
        emit: Emit,
        logs: TaskLogs,
        behaviour: Behaviour,
    ) -> None:
        self._state = state
        self._lock = lock
        self._nodes = nodes
        self._emit = emit
        self._logs = logs
        self._behaviour = behaviour

    def launch(self, task: Task) -> None:
        """Start a task in the background."""
        self.tell(task)
        name = f"task {task.arn[-6:]}"
        threading.Thread(target=self._run, args=(task,), name=name, daemon=True).start()

    def stop(self, task: Task, reason: str) -> None:
        """Stop a task: SIGTERM, and SIGKILL after the grace period of its definition."""
        with self._lock:
            if not task.is_live or task.desired_status == "STOPPED":
                return
            task.desired_status, task.stopping_at = "STOPPED", now()
            task.stop_code, task.stopped_reason = "UserInitiated", reason
            self.tell(task, changed=True)
            process = task.process
        if process is not None:
            grace = task.definition.stop_seconds
            arguments = (process.pid, grace, lambda: process.poll() is not None)
            threading.Thread(target=processes.terminate_group, args=arguments, daemon=True).start()

    def abort_all(self, node_id: str) -> int:
        """Abort every task process of a node as CUDA does when its GPU is lost. Returns their number."""
        with self._lock:
            found = [task.process for task in self._live_tasks_of(node_id) if task.process is not None]
        for process in found:
            processes.abort_group(process.pid)
        return len(found)

    def node_went_down(self, node_id: str) -> None:
        """Record that the agent is gone. Nothing is known of the tasks."""
        with self._lock:
            for instance in self._instances_of(node_id):
                instance.agent_connected = False
                self.tell_instance(instance)

    def node_came_up(self, node_id: str) -> None:
        """Record that the agent is back; it reports that the tasks of the earlier boot have ended."""
        with self._lock:
            for instance in self._instances_of(node_id):
                instance.agent_connected = True
                self.tell_instance(instance)
            for task in self._live_tasks_of(node_id):
                self._stopped(task, KILLED if task.started_at else None)

    def node_is_gone(self, node_id: str) -> None:
        """Record that the instance is terminated: ECS ends its tasks by itself."""
        with self._lock:
            for task in self._live_tasks_of(node_id):
                task.stop_code, task.stopped_reason = "TerminationNotice", f"Host EC2 (instance {node_id}) terminated."
                self._stopped(task, KILLED if task.started_at else None)

    def tell(self, task: Task, changed: bool = False) -> None:
        """Emit a task's state; a change increments its version first."""
        with self._lock:
            task.version += changed
            detail = {**event_detail(task.describe()), "updatedAt": event_detail({"at": now()})["at"]}
        self._emit(Event("aws.ecs", "ECS Task State Change", (task.arn,), detail))

    def tell_instance(self, instance: ContainerInstance) -> None:
        """Emit a container instance's changed state."""
        with self._lock:
            instance.version += 1
            detail = event_detail(instance.describe(self._state.live_tasks(instance)))
        detail |= {"clusterArn": instance.arn.replace("container-instance", "cluster").rsplit("/", 1)[0]}
        detail |= {"updatedAt": event_detail({"at": now()})["at"]}
        self._emit(Event("aws.ecs", "ECS Container Instance State Change", (instance.arn,), detail))

    def _run(self, task: Task) -> None:
        node = self._nodes[task.instance.node_id]
        boot_id = node.boot_id
        time.sleep(self._behaviour.task_start_seconds)
        with self._lock:
            if task.desired_status == "STOPPED":
                self._stopped(task, None)
                return
            try:
                self._logs.open(task)
                task.process = node.run(*_container_of(task, node.directory), extra=task.environment)
            except OSError as error:
                task.stop_code, task.stopped_reason = "TaskFailedToStart", why_not_started(error)
                self._stopped(task, None)
                return
            if task.process is None:
                return  # the node went down first; its agent reports when it is back
            task.last_status, task.started_at = "RUNNING", now()
            self.tell(task, changed=True)
        self._logs.follow(task, log_of(task, node.directory))
        code = task.process.wait()
        if node.is_up and node.boot_id == boot_id:
            self._stopped(task, 128 - code if code < 0 else code)

    def _stopped(self, task: Task, exit_code: int | None) -> None:
        with self._lock:
            if not task.is_live:
                return
            task.last_status = task.desired_status = "STOPPED"
            task.exit_code, task.stopped_at = exit_code, now()
            task.stop_code = task.stop_code or ("EssentialContainerExited" if task.started_at else "TaskFailedToStart")
            task.stopped_reason = task.stopped_reason or ESSENTIAL_EXITED
            self.tell(task, changed=True)

    def _instances_of(self, node_id: str) -> list[ContainerInstance]:
        return [found for found in self._state.instances.values() if found.node_id == node_id]

    def _live_tasks_of(self, node_id: str) -> list[Task]:
        return [task for task in self._state.tasks.values() if task.is_live and task.instance.node_id == node_id]


def _container_of(task: Task, node_directory: Path) -> tuple[list[str], Path, Path]:
    """Return command, working directory and log of a task's container."""
    container = task.definition.container
    image = IMAGES / container["image"].rpartition("/")[2].partition(":")[0]
    command = [*container.get("entryPoint", []), *task.command]
    if not image.is_dir():
        raise NoSuchImage(f"{image.name} is not a folder of examples/")
    return command, image, log_of(task, node_directory)


def why_not_started(error: OSError) -> str:
    """Return the reason in the words of ECS and Docker."""
    if isinstance(error, NoSuchImage):
        return f"CannotPullContainerError: {error}"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f'CannotStartContainerError: exec: "{error.filename}": executable file not found in $PATH'
    return f"CannotStartContainerError: {error}"


def log_of(task: Task, node_directory: Path) -> Path:
    """Return the log file of a task's container."""
    return node_directory / "tasks" / f"{task.arn.rpartition('/')[2]}.log"
