"""docs/screens.md: what the commands print on a terminal of 80 columns.

    python -m tests.screens     # write the page again, after a change that is meant; `make reference` does it, too

A job is submitted and walked through a broken node in memory, by the real state machines and services. While it runs,
the commands are run as on a terminal.
"""

import io
import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from botocore.exceptions import ClientError

from nodeheal.adapters.memory.task_definitions import MemoryJobLogs, MemoryTaskDefinitions
from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.training import NodeTraining
from nodeheal.contract.vocabulary import Action, JobState, Step, Trouble, Verdict
from nodeheal.domain.fleet.liveness import Heartbeat
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.task_definition import Container, TaskDefinition
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Mode
from nodeheal.domain.recovery.incident import short_id
from nodeheal.services.jobs.look_at_training import look_at_training
from nodeheal.services.recovery.pool_size import note_running_jobs
from stacks.settings import REPOSITORY
from tests.emails import ADA
from tests.support.builders import behave_as, node, xid
from tests.support.hardware import reports_hardware
from tests.support.job_cluster import NODES, JobCluster, Json, finishes, is_recovered, spec
from tests.support.jobs import ecs_job_of
from tests.support.policies import with_policy

PAGE = REPOSITORY / "docs" / "screens.md"
COLUMNS = 80  # of the page
REGION = "eu-west-1"
SPARE = "mi-0000000e"
POOL = with_policy(
    evidence={"enabled": True},
    default_pool={"mode": Mode.act, "budget": {"max_nodes": 1, "max_percent": 20}},
)
ASKING = with_policy(default_pool={"mode": Mode.act, "modes": {Action.REBOOT: Mode.approve}})
JOB = """\
name: mistral
pool: demo
nodes: 2
task_definition: trainer
owner: ada@example.com
checkpoints: {directory: /fsx/mistral}
"""
BAD_JOB = """\
name: "Bad Name!"
nodes: two
acelerators: 4
checkpoints: {directory: fsx/llama}
environment: {EPOCHS: 3}
"""
POLICY = '{"default_pool": {"mode": "approve"}, "pools": {"demo": {"mode": "act", "budget": {"max_nodes": 2}}}}\n'
BAD_POLICY = '{"default_pool": {"mode": "observed", "budgets": {"max_nodes": 2}}}\n'
KERNEL_LOG = (
    "[ 9141.22] NVRM: Xid (PCI:0000:b9:00): 79, pid=<unknown>, name=<unknown>, GPU has fallen off the bus.\n"
    "[ 9141.30] systemd[1]: Started Session 4 of User ada.\n"
)
SECONDS = {Step.ISOLATE: 12, Step.FREEZE_EVIDENCE: 8, Step.DIAGNOSE: 140, Step.RESTART_WORKLOAD: 25}
FILES = {
    "mistral.yaml": JOB,
    "bad.yaml": BAD_JOB,
    "policy.json": POLICY,
    "bad.json": BAD_POLICY,
    "kernel.log": KERNEL_LOG,
}
LOOK = (
    ("status", "What stands where, and what waits for you."),
    ("pools list", "Each pool with its mode, budget and breaker."),
    ("nodes list", "Each node. The last column says why it is not healthy."),
    (f"nodes show {NODES[1]}", "One node in full."),
    ("incidents list", "What happened within seven days."),
    ("incidents show {recovered}", "One incident, from the fault to the end."),
    ("jobs list", "Each job."),
    ("jobs top", "How far each active job has come."),
    ("jobs show llama", "One job: what became of each run."),
)
ACTS = (
    (f"nodes isolate {NODES[0]} --why 'smell of smoke' --dry-run", "What an act would stop, before it is done."),
    (f"nodes drain {NODES[0]} --why 'new cables' --dry-run", "No new work, and the job ends first."),
    ("jobs submit mistral.yaml --dry-run", "The plan of a job."),
    ("breaker show demo", "Whether anything in the pool may be touched."),
)
WAITING = (
    ("status", "The same in a pool that asks before it reboots, with a job that failed."),
    ("incidents show {waiting}", "What is asked, until when, and what each answer does."),
    ("jobs show mixtral", "A job that failed: what is needed."),
)
WITHOUT_AN_ACCOUNT = (
    ("-h", "The commands."),
    ("explain xid 79", "What nodeheal does about a fault, and why."),
    ("classify kernel.log", "Which lines of a kernel log are faults."),
    ("jobs validate bad.yaml", "What is wrong with a job file."),
    ("policy check bad.json", "What is wrong with a policy."),
    ("policy diff policy.json policy-2.json", "What another policy changes."),
)


@dataclass(frozen=True)
class Screen:
    """What one command prints."""

    command: str
    about: str
    lines: tuple[str, ...]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(command: str, columns: int) -> tuple[str, ...]:
    """The lines that a terminal of so many columns shows. Colours are off."""
    terminal = _Terminal()
    size = {"COLUMNS": str(columns), "TERMINAL_WIDTH": str(columns), "NO_COLOR": "1", "TERM": "dumb"}
    environment = patch.dict(os.environ, {**size, "AWS_REGION": REGION})
    with environment, redirect_stdout(terminal), redirect_stderr(terminal), suppress(SystemExit):
        app(shlex.split(command), prog_name="nodeheal")
    return tuple(line.rstrip() for line in terminal.getvalue().rstrip("\n").split("\n"))


def screens(columns: int = COLUMNS) -> list[Screen]:
    """Every screen. The files that commands name are in a folder of their own."""
    found: list[Screen] = []

    def look(it: JobCluster) -> None:
        it.clock.advance(120)
        _beat(it)
        _count_jobs(it)
        reports_hardware(it.ports, NODES[1])
        for command, about in (*LOOK, *ACTS):
            command = command.format(recovered=short_id(it.recovered[0]))
            found.append(Screen(command, about, shown(command, columns)))

    def look_while_it_asks(request: StepRequest) -> None:
        _beat(it)
        _count_jobs(it)
        for command, about in WAITING:
            command = command.format(waiting=short_id(request.incident_id))
            found.append(Screen(command, about, shown(command, columns)))

    with tempfile.TemporaryDirectory() as folder, chdir(folder), ExitStack() as patches:
        for name, text in FILES.items():
            Path(name).write_text(text, "utf-8")
        Path("policy-2.json").write_text(POLICY.replace('"max_nodes": 2', '"max_nodes": 4'), "utf-8")
        it = _cluster(patches)
        it.happenings = [_an_hour, _broken_for_good, is_recovered, _an_hour, _broken, is_recovered, look, finishes]
        it.submit()
        it = _cluster(patches, ASKING)
        it.ports.jobs.save(_failed(it))
        it.happenings, it.on_question = [_an_hour, _broken, is_recovered], look_while_it_asks
        it.submit()
        found += [Screen(command, about, shown(command, columns)) for command, about in WITHOUT_AN_ACCOUNT]
        patches.enter_context(patch.object(connect, "ports", _not_there))
        found.append(Screen("nodes list", "Not deployed here.", shown("nodes list", columns)))
    return found


class _Owners:
    def is_confirmed(self, owner: object) -> bool:
        return True


class _Cluster(JobCluster):
    """One in which each step takes its time."""

    def _decide(self, arguments: Json) -> Json:
        self.clock.advance(1)
        return super()._decide(arguments)

    def _waits(self, service: Any, react: Callable[[StepRequest], object], *more: Any) -> Callable[[Json], Any]:
        def reacts(request: StepRequest) -> None:
            self.clock.advance(SECONDS.get(request.decision.step, 3))
            react(request)

        return super()._waits(service, reacts, *more)


def _failed(it: JobCluster) -> Job:
    begun = it.clock() - timedelta(hours=3)
    failed = ecs_job_of(spec(name="mixtral"), "training", "trainer:7", begun)
    told = "rank 0 on mi-0000000d ended with exit code 1; it cannot start as it is defined; nothing is tried again"
    return replace(failed, state=JobState.FAILED, submission=1, trouble=Trouble.CANNOT_START, summary=told)


def _cluster(patches: ExitStack, policy: RecoveryPolicy = POOL) -> JobCluster:
    it = _Cluster(owner=ADA, steps=4_000, accelerators=8, checkpoints={"directory": "/fsx/llama"}, policy=policy)
    for name in NODES:
        it.ports.nodes.save(replace(it.node(name), accelerators=8))
    it.ports.nodes.save(node(SPARE, is_spare=True, accelerators=8))
    trainer = TaskDefinition("trainer:7", (Container("trainer", 8),))
    definitions = MemoryTaskDefinitions({"trainer": trainer, "trainer:1": trainer, "trainer:7": trainer})
    behave_as(it.ports, definitions=definitions, job_logs=MemoryJobLogs(definitions))
    console = f"https://{REGION}.console.aws.amazon.com/states/home"
    for name, stands_in in {
        "ports": lambda table: it.ports,
        "policy": lambda: it.policy,
        "policy_copy": lambda table: it.policy,
        "owners": _Owners,
        "execution_url": lambda incident: f"{console}#/{incident}",
        "job_execution_url": lambda job, number: f"{console}#/{job}-{number}",
    }.items():
        patches.enter_context(patch.object(connect, name, stands_in))
    return it


def _an_hour(it: JobCluster) -> None:
    """The job trains, and then writes a checkpoint."""
    it.clock.advance(3_600)
    step = 500 + (it.checkpoints[-1][1] if it.checkpoints else 0)
    it.checkpoints.append((f"/fsx/llama/step-{step}", step))


def _broken(it: JobCluster, rank: int = 0) -> None:
    name = it.run.tasks[rank].node_id
    it._ingest(xid(79, node_id=name, instance_id=name, event_id=f"fault-of-{name}", observed_at=it.clock()))


def _broken_for_good(it: JobCluster) -> None:
    it.diagnoses[it.run.tasks[1].node_id] = Verdict.FAILED
    _broken(it, rank=1)


def _beat(it: JobCluster) -> None:
    for one in it.ports.nodes.in_pool("demo"):
        run = f"llama/{it.job.current_run}"
        trainings = {run: NodeTraining(run, 1_200)} if one.job_id else {}
        at = it.clock() - timedelta(seconds=20)
        beat = Heartbeat(f"role:{one.node_id}", one.boot_id, at, 60.0, trainings=trainings)
        it.ports.heartbeats.beats[beat.who] = beat  # type: ignore[attr-defined]


def _count_jobs(it: JobCluster) -> None:
    """As a sweep does."""
    look = look_at_training(["demo"], it.ports.heartbeats.newest(), it.ports, it.policy)
    note_running_jobs("demo", look.running["demo"], it.ports)


def _not_there(table: str) -> None:
    told = {"Error": {"Code": "ResourceNotFoundException", "Message": "Requested resource not found"}}
    raise ClientError(told, "Query")  # type: ignore[arg-type]


def render(found: Sequence[Screen]) -> str:
    """The page of these screens."""
    lines = [
        "# What the commands print",
        "",
        "Generated by `make reference`; do not edit.",
        "",
        f"Each screen is of a terminal of {COLUMNS} columns, without its colours. Tables use the width that yours has.",
        "What each command does: [the command](commands.md). In this pool a job has lost a GPU twice within two hours:",
        "one node was repaired, the other waits for a human.",
    ]
    for screen in found:
        lines += ["", f"## nodeheal {screen.command}", "", screen.about, "", "```text", *screen.lines, "```"]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(render(screens()), encoding="utf-8")
