"""Plays the story of the demo and the emulated tests: a training job, a fault, and nodeheal's reaction.

It starts the job and breaks a node. From then on it only watches: the deployed control plane heals the node and
restarts the job.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodeheal.adapters.aws.items import Table, from_item
from nodeheal.adapters.aws.notifier import Destinations
from nodeheal.adapters.aws.ports import aws_ports
from nodeheal.contract import names
from nodeheal.contract.vocabulary import JobState
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.humanize import counted
from nodeheal.domain.jobs.owner import Owner
from nodeheal.domain.recovery.incident import History, Incident
from sandbox.client import NodeHandle, Sandbox
from sandbox.frozen_rank import freeze_rank
from sandbox.job_file import NotSubmitted, submit, typed, write_job_file
from sandbox.node import TOOLS
from sandbox.processes import NODE_MARK
from sandbox.script import GANG_NODES, Move, Script
from sandbox.training import Training

if TYPE_CHECKING:
    from nodeheal.ports import Ports

OWNER = Owner("ada@example.com", "Ada")
# Only what hangs comes to them: a machine that does other work beside it is many times as slow.
READY_SECONDS = 240.0
TRAINING_SECONDS = 240.0
STORY_SECONDS = 480.0
POLL_SECONDS = 0.05
HELD_SECONDS = 1.0  # a line is told so much later: one of before it may still be on its way through the cloud


class StoryError(Exception):
    """The story cannot continue; the message says at which point, and where to look."""


@dataclass
class Told:
    """What the story has seen so far. Times are seconds since the epoch."""

    script: Script
    broken: str = ""
    fault_at: float = 0.0
    step_at_fault: int = 0
    incident: Incident | None = None
    lines: list[tuple[float, str, str]] = field(default_factory=list)  # at, kind, text
    training: Training | None = None
    job_state: JobState | None = None
    mails: list[tuple[str, str]] = field(default_factory=list)
    owner_mails: list[tuple[str, str]] = field(default_factory=list)
    is_over: bool = False


Listener = Callable[[Told, str], None]  # called with news in words, or "" for a tick


class Story:
    """One playing of a script in a sandbox that is started and deployed."""

    def __init__(self, sandbox: Sandbox, script: Script, listener: Listener) -> None:
        self.sandbox = sandbox
        self.script = script
        self.told = Told(script)
        self._listen = listener
        self._handles: list[NodeHandle] = []
        self._table = Table(sandbox.client("dynamodb"), sandbox.outputs["TableName"])
        self._known: set[str] = set()
        self._held: list[tuple[float, str, str]] | None = None  # lines that are told in order; None: told at once
        self._left: list[Move] = []
        self._since = datetime.now(UTC)  # other stories may have been played in this sandbox before
        self._old_mails = len(sandbox.mails()), len(sandbox.owner_mails())
        self.ports: Ports = aws_ports(
            sandbox.outputs["TableName"],
            sandbox.outputs["RecoverNodeArn"],
            Destinations(sandbox.outputs["BusName"], sandbox.outputs["TopicArn"], sandbox.outputs["QuarantineUrl"]),
            sandbox.client,
            sandbox.client,
            run_job_arn=sandbox.outputs["RunJobArn"],
        )

    def play(self) -> Told:
        """Play from the first node to the last email. Raises StoryError when it does not get that far."""
        self.sandbox.subscribe_mailbox()
        self.sandbox.subscribe_owner(OWNER)
        self._boot_nodes()
        self._start_training()
        self._left = list(self.script.moves)
        for prepare in self.script.prepares:
            self._say(prepare(self))
        self._break_nodes()
        self._watch()
        return self.told

    @property
    def victim(self) -> str:
        """Return the node that is to break: the gang's second."""
        return self.victim_handle.node_id

    @property
    def victim_handle(self) -> NodeHandle:
        """Return the handle of that node."""
        return self._handles[1]

    def _boot_nodes(self) -> None:
        self._handles = self._made_nodes()
        self.sandbox.fire_schedules()  # warm-up pings come every five minutes; a demo does not wait
        self._await(lambda: len(self._nodes()) == self.script.nodes, READY_SECONDS, "all agents have reported")
        self._say(f"{self.script.nodes} {self.script.kind_of_nodes} are up, each with its agent")
        if self.script.dcgm_value:  # what a counter shows at its first reading is no fault
            followed = [handle.directory / "dcgm_followed" for handle in self._handles]
            self._await(lambda: all(map(Path.exists, followed)), READY_SECONDS, "each agent reads DCGM's counters")

    def _made_nodes(self) -> list[NodeHandle]:
        pool, count = self.script.pool, self.script.nodes
        if self.script.provider == "hybrid":
            return [self.sandbox.add_node(pool, checks=self.script.checks) for _ in range(count)]
        template = self.sandbox.add_template(pool)
        if self.script.provider == "group":
            names_of = self.sandbox.add_group(pool, template, count)
        else:
            names_of = [self.sandbox.add_machine(template) for _ in range(count)]
        known = {node["node_id"]: node for node in self.sandbox.nodes()}
        return [NodeHandle(name, pool, known[name]["address"], Path(known[name]["directory"]), "") for name in names_of]

    def _nodes(self) -> list[Node]:
        return [node for node in self.ports.nodes.in_pool(self.script.pool) if node.address]

    def _start_training(self) -> None:
        """Submit the job as a person does: with a file and the command."""
        script = self.script
        directory = self.sandbox.directory / "shared" / script.job
        directory.mkdir(parents=True, exist_ok=True)
        file = write_job_file(script, OWNER, directory, self.sandbox.directory)
        self._say(f"{file.name} is examples/{script.example}/job.yaml with what the sandbox sets, in {file.parent}")
        self._line(time.time(), "command", typed(file))
        try:
            said = submit(file, self.sandbox.environment())
        except NotSubmitted as refused:
            raise StoryError(str(refused)) from refused
        self.told.training = Training(directory)
        for line in said:
            self._say(line)
        self._say(f"{GANG_NODES} nodes are chosen, and prove by diagnostics that they are fit")
        self._await_training()

    def _await_training(self) -> None:
        """Wait until the job runs and has written two checkpoints. The nodes are in order of rank then."""
        script = self.script
        self._await(lambda: self._gang() is not None, READY_SECONDS, f"{script.job} has been launched")
        gang = self._gang() or []
        self._handles.sort(key=lambda handle: gang.index(handle.node_id) if handle.node_id in gang else GANG_NODES)
        self._say(f"{script.job} starts: {GANG_NODES} ranks, on {' and '.join(gang)}")
        enough = script.checkpoint_every * 2 + script.checkpoint_every // 2
        self._await(lambda: self._step() >= enough, TRAINING_SECONDS, f"the job has reached step {enough}")

    def _gang(self) -> list[str] | None:
        """Return the nodes of the job's first run, in order of rank."""
        run = self.ports.jobs.get_run(self.script.job, 1)
        return [task.node_id for task in run.tasks] if run else None

    def _step(self) -> int:
        assert self.told.training is not None
        return self.told.training.read().last_step

    def _break_nodes(self) -> None:
        """Break the second node of the gang first: rank 0, which writes the story's progress, runs on the first."""
        told, victim = self.told, self._handles[1]
        if self.script.overflows:  # all ranks show it: the first one is asked
            victim = self._handles[0]
        told.broken = victim.node_id
        if self.script.overflows:
            told.fault_at = self._overflow()
        elif self.script.freezes:
            told.fault_at = freeze_rank(victim.directory)
        else:
            told.fault_at = self._inject_into_dcgm(victim) if self.script.dcgm_value else self._inject(victim)
        for other in [handle for handle in self._handles if handle is not victim][: self.script.breaks - 1]:
            self._inject(other)
        assert told.training is not None
        told.step_at_fault = told.training.read().step_at(told.fault_at)
        where = "'s kernel log" if self.script.is_in_kernel_log else ""
        self._line(told.fault_at, "fault", f"{victim.node_id}{where}: {self.script.fault_line}")

    def _overflow(self) -> float:
        """Wait for the step whose update overflows; returns when it was done."""
        step = self.script.overflows
        self._await(lambda: self._step() > step, TRAINING_SECONDS, f"the job has gone beyond step {step}")
        assert self.told.training is not None
        return next(line.at for line in self.told.training.lines if line.step == step)

    def break_again(self, line: str) -> None:
        """Inject another fault into the broken node."""
        self._inject(self._handles[1], line)

    def _inject_into_dcgm(self, handle: NodeHandle) -> float:
        """Inject the value on the node, as a person there does. Nothing else of the node breaks."""
        assert self.script.dcgm_value is not None
        field, value = map(str, self.script.dcgm_value)
        command = [sys.executable, str(TOOLS / "dcgmi"), "test", "--inject", "--gpuid", "0", "-f", field, "-v", value]
        at = time.time()
        subprocess.run(command, env={NODE_MARK: str(handle.directory)}, check=True, stdout=subprocess.DEVNULL)
        return at

    def _inject(self, handle: NodeHandle, line: str = "") -> float:
        line, script = line or self.script.fault_line, self.script
        return self.sandbox.inject(
            handle, line, persists=script.persists, kill_rank=script.kills_rank, of_host=script.of_host
        )

    def _watch(self) -> None:
        """Wait until the incident has ended, its email has arrived, and the job has finished or has stopped."""
        self._held = []
        ended = "the incident has ended, its email has come and the job runs no more"
        try:
            self._await(self._look, STORY_SECONDS, ended)
        finally:
            self._tell(time.time())
            self._held = None
        self.told.is_over = True

    def _look(self) -> bool:
        """Read everything once, and tell the lines that are old enough."""
        is_over = self._is_over()
        self._tell(time.time() - HELD_SECONDS)
        return is_over

    def _tell(self, until: float) -> None:
        """Tell the lines that are held back, up to this time, in order."""
        held = sorted(self._held or [], key=lambda line: line[0])
        self._held = [line for line in held if line[0] > until]
        for line in held[: len(held) - len(self._held)]:
            self.told.lines.append(line)
            self._listen(self.told, line[2])

    def _is_over(self) -> bool:
        told = self.told
        told.incident = told.incident or self._find_incident()
        self._read_mails()
        if self._left:
            done = self._left[0](self)
            if done:
                self._left.pop(0)
                self._line(time.time(), "person", done)
        if told.incident is not None:
            self._read_timeline(told.incident.incident_id)
        told.job_state = self._job_state()
        self._read_training()
        if told.incident is None or told.incident.ending is None or self._left:
            return False
        is_told = len(told.mails) >= len(self.script.expected.mails) and len(told.owner_mails) >= len(self.owner_mails)
        return is_told and told.job_state is not JobState.RUNNING and not self._at_work()

    def _job_state(self) -> JobState | None:
        job = self.ports.jobs.get(self.script.job)
        return job.state if job else None

    def _at_work(self) -> list[str]:
        """Return the running executions: an ended incident is a few states before its workflow's end."""
        machines = (self.sandbox.outputs["RunJobArn"], self.sandbox.outputs["RecoverNodeArn"])
        find = self.sandbox.client("stepfunctions").list_executions
        return [
            run["name"] for arn in machines for run in find(stateMachineArn=arn, statusFilter="RUNNING")["executions"]
        ]

    def executions(self) -> list[dict[str, Any]]:
        """Return every execution since the story began, in order of its start. As JSON, see `executions`."""
        return executions(self.sandbox, self._since)

    def histories(self) -> list[History]:
        """Return every incident of the story: the pool is its own."""
        return [self.ports.incidents.history(incident.incident_id) for incident in self._incidents()]

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment in which the scheduler's own commands find this story's cluster."""
        return {}

    @property
    def own_commands(self) -> tuple[str, ...]:
        """Return commands of the scheduler's own that show its nodes and jobs."""
        return ()

    @property
    def owner_mails(self) -> tuple[str, ...]:
        """Return the expected beginnings of the emails to the job's owner: its start, actions on it, its end."""
        expected, subject = self.script.expected, f"[nodeheal] {self.script.job}"
        started, finished = f"{subject} has started", f"{subject} has finished"
        stopped = (f"{subject} has stopped",) if self._was_isolated else ()
        trains_badly = (f"{subject} seems to hang",) if self.script.freezes else ()
        if self.script.overflows:
            trains_badly = (f"{subject} has a loss that is not a number",)
        if expected.restarts:
            return (started, *trains_badly, *stopped, f"{subject} runs again", finished)
        return (started, finished) if expected.finishes else (started, *stopped, f"{subject} is down")

    @property
    def _was_isolated(self) -> bool:
        lines = [*self.told.lines, *(self._held or [])]
        return any(kind == "progress" and text.endswith("takes no new work (draining)") for _, kind, text in lines)

    def _find_incident(self) -> Incident | None:
        """Return the incident of the story's node; others may fail with it."""
        return next((incident for incident in self._incidents() if incident.node_id == self.told.broken), None)

    def _incidents(self) -> Iterator[Incident]:
        """Return those of its pool."""
        kind = names.incident_pk("")
        found = self._table.query_index(names.INDEX, names.pool_pk(self.script.pool), "incident#", kind=kind)
        return (from_item(Incident, item) for item in found)

    def _read_timeline(self, incident_id: str) -> None:
        history = self.ports.incidents.history(incident_id)
        opened = "opened", history.incident.opened_at, "opened", f"event accepted; incident {incident_id} is open"
        lines = [(entry.entry_id, entry.at, entry.kind.value, entry.text) for entry in history.timeline]
        for entry_id, at, kind, text in sorted([opened, *lines], key=lambda line: line[1]):
            if entry_id not in self._known:
                self._known.add(entry_id)
                self._line(at.timestamp(), kind, text)
        self.told.incident = history.incident

    def _read_training(self) -> None:
        """Report training's turning points; the steps between are the screen's updated line."""
        training = self.told.training
        assert training is not None
        for line in training.read().lines:
            key = f"training-{line.run}-{line.event}"
            if line.event and line.run > 1 and key not in self._known:
                self._known.add(key)
                lost = lost_steps(self.told.step_at_fault - line.step)
                turns = {
                    "resumed": f"run {line.run} goes on from the checkpoint at step {line.step}: {lost}",
                    "finished": f"run {line.run} has reached the last step, {line.step}",
                }
                self._line(line.at, "training", turns.get(line.event, f"run {line.run} {line.event}"))

    def _read_mails(self) -> None:
        for number, (subject, _) in enumerate(mails := self.sandbox.mails()[self._old_mails[0] :]):
            if number >= len(self.told.mails):
                self._line(time.time(), "mail", f"email: {subject}")
        self.told.mails = mails
        for number, (subject, _) in enumerate(owned := self.sandbox.owner_mails()[self._old_mails[1] :]):
            if number >= len(self.told.owner_mails):
                self._line(time.time(), "mail", f"email to {OWNER}, the owner of the job: {subject}")
        self.told.owner_mails = owned

    def _line(self, at: float, kind: str, text: str) -> None:
        if self._held is not None:
            self._held.append((at, kind, text))
            return
        self.told.lines.append((at, kind, text))
        self._listen(self.told, text)

    def _say(self, text: str) -> None:
        self._line(time.time(), "stage", text)

    def wait(self, is_true: Callable[[], bool], what: str) -> None:
        """Wait until the condition is true. Raises StoryError."""
        self._await(is_true, READY_SECONDS, what)

    def _await(self, is_true: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not is_true():
            if time.monotonic() > deadline:
                raise StoryError(f"after {seconds:.0f} s it is not so that {what}; look at {self.sandbox.directory}")
            self._listen(self.told, "")
            time.sleep(POLL_SECONDS)


def lost_steps(behind: int) -> str:
    """Describe the lost steps. The checkpoint may be later than the fault: the job runs on until its node is
    isolated.
    """
    if behind <= 0:
        return "no steps lost"
    return f"{counted(behind, 'step')} lost"


def executions(sandbox: Sandbox, since: datetime) -> list[dict[str, Any]]:
    """Return each execution since then, in that order: name, machine, status, its states without choices, its bill."""
    client = sandbox.client("stepfunctions")
    found = []
    for machine in client.list_state_machines()["stateMachines"]:
        for run in client.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]:
            if run["startDate"] < since:
                continue
            pages = client.get_paginator("get_execution_history").paginate(executionArn=run["executionArn"])
            events = [event for page in pages for event in page["events"]]
            told = {
                "name": run["name"],
                "machine": machine["name"],
                "status": run["status"],
                "path": [e["stateEnteredEventDetails"]["name"] for e in events if _has_news(e)],
                "transitions": _billed_transitions(events),
            }
            found.append((run["startDate"], told))
    return [run for _, run in sorted(found, key=lambda pair: pair[0])]


def _has_news(event: Mapping[str, Any]) -> bool:
    """Whether a state was entered that does something; what a choice has chosen is the next state's name."""
    return "stateEnteredEventDetails" in event and event["type"] != "ChoiceStateEntered"


def _billed_transitions(events: Sequence[Mapping[str, Any]]) -> int:
    """Count every state entered, and every retry: a task that is scheduled without its state being entered again."""
    kinds = Counter(event["type"] for event in events)
    entered = sum(times for kind, times in kinds.items() if kind.endswith("StateEntered"))
    return entered + max(0, kinds["TaskScheduled"] - kinds["TaskStateEntered"])
