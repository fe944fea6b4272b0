"""Simulates the SSM agent of a node, as amazon-ssm-agent 3.3 was observed.

It runs five commands at once, queues five more (which it reports as InProgress), and accepts no other until one ends.
Its own waits are scaled by `Behaviour.ssm_seconds_scale`; the order of events is not changed.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nodeheal.contract import names
from sandbox.behaviour import Behaviour
from sandbox.node import Node
from sandbox.ssm_documents import Document, ParameterRefused
from sandbox.ssm_script import REBOOT_CODE, Ended, run_script, shortened

WORKERS = 5
BUFFER = 5
# On exit code 194 the agent stops its modules (4.4 s were observed, 15 s is the maximum), and runs `shutdown -r +1`.
MODULES_STOP_SECONDS = 4.4
SHUTDOWN_SECONDS = 60.0
# A starting agent gives the worker process of an unfinished command this long to report.
LOST_WORKER_SECONDS = 61.0
LOST_WORKER = "document process failed unexpectedly"
# The script would write to /opt and to systemd of the computer that the sandbox runs on.
NOT_INSTALLED = "sandbox: its nodes are processes of this computer and run the checkout's agent; nothing is installed"
MOST_REBOOTS = 10  # a script that requests reboots without end would keep the node down

ENDED = frozenset({"Success", "Failed", "TimedOut", "Cancelled"})
_POLL_SECONDS = 0.02


@dataclass(eq=False)
class Invocation:
    """One command on one node."""

    command_id: str
    node_id: str
    document: Document
    parameters: dict[str, list[str]]
    delivery_seconds: int
    requested_at: datetime
    comment: str = ""
    status: str = "Pending"
    details: str = "Pending"
    response_code: int = -1
    output: str = ""
    errors: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)


Changed = Callable[[Invocation], None]


class SsmAgent:
    """Accepts the commands of one node and runs them. `changed` is called at every change of a status."""

    def __init__(self, node: Node, behaviour: Behaviour, changed: Changed) -> None:
        self._node = node
        self._behaviour = behaviour
        self._changed = changed
        self._lock = threading.Lock()
        self._sent: list[Invocation] = []  # in the service's queue
        self._buffered: list[Invocation] = []  # on the node's disk: a power cut does not lose them
        self._at_work: list[Invocation] = []
        self._leaving = ""  # the boot that a script has asked to end

    def send(self, invocation: Invocation) -> None:
        """Deliver a command, in the background."""
        with self._lock:
            self._sent.append(invocation)
        name = f"{invocation.node_id} ssm {invocation.command_id[:8]}"
        threading.Thread(target=self._carry_out, args=(invocation,), name=name, daemon=True).start()

    def _carry_out(self, invocation: Invocation) -> None:
        try:
            ended = self._taken_and_run(invocation)
            if ended is not None:
                self._end(invocation, ended)
        finally:
            with self._lock:
                self._sent = [each for each in self._sent if each is not invocation]
                self._buffered = [each for each in self._buffered if each is not invocation]
                if invocation.ended.is_set():  # a lost worker stays occupied until then
                    self._at_work = [each for each in self._at_work if each is not invocation]

    def _taken_and_run(self, invocation: Invocation) -> Ended | None:
        """Return how the command ends. None: nobody will ever report its end."""
        if not self._is_taken(invocation):
            return Ended(-1, "TimedOut", details="DeliveryTimedOut")
        if not invocation.cancelled.is_set():
            invocation.status = invocation.details = "InProgress"
            invocation.started_at = datetime.now(UTC)
            self._changed(invocation)
            if not self._wait(lambda: invocation.cancelled.is_set() or self._may_begin(invocation)):
                return None
        return Ended(-1, "Cancelled") if invocation.cancelled.is_set() else self._run_to_the_end(invocation)

    def _is_taken(self, invocation: Invocation) -> bool:
        """Wait until the agent accepts it, or it is cancelled. False: neither happened in time."""
        begins = time.monotonic() + self._behaviour.ssm_begin_seconds
        waited = (datetime.now(UTC) - invocation.requested_at).total_seconds()
        until = time.monotonic() + invocation.delivery_seconds - waited
        if self._wait(
            lambda: invocation.cancelled.is_set() or (time.monotonic() >= begins and self._takes(invocation)),
            until - time.monotonic(),
        ):
            return True
        time.sleep(max(0.0, until - time.monotonic()))  # a node that is gone permanently: the service keeps waiting
        return False

    def _takes(self, invocation: Invocation) -> bool:
        with self._lock:
            if not self._listens() or len(self._at_work) + len(self._buffered) >= WORKERS + BUFFER:
                return False
            if self._sent[0] is not invocation:
                return False
            self._sent.pop(0)
            self._buffered.append(invocation)
            return True

    def _may_begin(self, invocation: Invocation) -> bool:
        with self._lock:
            if not self._listens() or len(self._at_work) >= WORKERS or self._buffered[0] is not invocation:
                return False
            self._at_work.append(self._buffered.pop(0))
            return True

    def _listens(self) -> bool:
        """Whether the agent accepts commands: not between a script's request for a reboot and the boot."""
        return self._node.is_up and self._node.boot_id != self._leaving

    def _run_to_the_end(self, invocation: Invocation) -> Ended | None:
        """Run it, and again after each reboot that it asks for. None: nobody will ever report its end."""
        if invocation.document.name == names.INSTALL_DOCUMENT:
            return Ended(1, "Failed", errors=NOT_INSTALLED)
        try:
            script = invocation.document.script(invocation.parameters)
        except ParameterRefused as refusal:  # before any step: there is no result of one
            return Ended(-1, "Failed", str(refusal))
        output = errors = ""
        reboots = 0
        while True:
            boot_id = self._node.boot_id
            ended = run_script(
                script.text, script.execution_seconds, invocation.command_id, self._node, invocation.cancelled
            )
            if ended is None:
                if not self._wait(lambda: self._node.is_up):
                    return None
                continue
            if ended.was_cut:
                return self._lost(boot_id)
            output, errors = output + ended.output, errors + ended.errors
            if ended.code != REBOOT_CODE:
                break
            reboots += 1
            if reboots > MOST_REBOOTS:
                ended = Ended(ended.code, "Failed")
                break
            if not self._reboot(boot_id):
                return None
        # An unsent result is stored on the node's disk.
        return Ended(ended.code, ended.status, output, errors) if self._wait(lambda: self._node.is_up) else None

    def _reboot(self, boot_id: str) -> bool:
        """Run `shutdown -r +1`, unless something else ends this boot before. Returns whether another boot has come."""
        self._leaving = boot_id
        seconds = (MODULES_STOP_SECONDS + SHUTDOWN_SECONDS) * self._behaviour.ssm_seconds_scale
        if not self._wait(lambda: self._node.boot_id != boot_id or not self._node.is_up, seconds):
            self._node.reboot()
        return self._wait(lambda: self._node.is_up and self._node.boot_id != boot_id)

    def _lost(self, boot_id: str) -> Ended | None:
        """Handle a node that went down during the command. It is not run again, and fails a minute after the next boot,
        or never.
        """
        if not self._wait(lambda: self._node.is_up and self._node.boot_id != boot_id):
            return None
        if self._behaviour.ssm_orphans:
            return None
        while self._wait(lambda: self._node.is_up):
            if self._stays_up(LOST_WORKER_SECONDS * self._behaviour.ssm_seconds_scale):
                return Ended(1, "Failed", LOST_WORKER)
        return None

    def _stays_up(self, seconds: float) -> bool:
        """Whether the node stays up in this boot for this long."""
        boot_id = self._node.boot_id
        went_down = self._wait(lambda: not self._node.is_up or self._node.boot_id != boot_id, seconds)
        return not went_down and not self._node.is_off

    def _wait(self, is_so: Callable[[], bool], seconds: float = float("inf")) -> bool:
        """Whether the condition becomes true in time, and before the node is switched off permanently."""
        until = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() >= until or self._node.is_off:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _end(self, invocation: Invocation, ended: Ended) -> None:
        known = {"TimedOut": "ExecutionTimedOut"}
        invocation.output, invocation.errors = shortened(ended.output), shortened(ended.errors)
        invocation.response_code, invocation.status = ended.code, ended.status
        invocation.details = ended.details or known.get(ended.status, ended.status)
        invocation.ended_at = datetime.now(UTC)
        self._changed(invocation)
        invocation.ended.set()
