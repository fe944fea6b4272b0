"""Values for tests, each with one obvious default."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from nodeheal.adapters.memory.ports import memory_ports as ports_of
from nodeheal.adapters.memory.world import MemoryNodeCommands, MemoryScheduler, SentCommand
from nodeheal.contract import names
from nodeheal.contract.health_event import HealthEvent
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.results import StepResult
from nodeheal.contract.steps import Decision, StepRequest
from nodeheal.contract.vocabulary import Family, Provider, SchedulerKind, Step, VerbName, Verdict
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.job import Job, Run
from nodeheal.domain.operation import Operation, OperationState, incident_owner, job_owner, node_owner
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Budget, Evidence, Mode, PoolPolicy
from nodeheal.operations.gang import GangRecord
from nodeheal.ports import Ports
from nodeheal.ports.commands import CommandStatus
from nodeheal.ports.scheduler import Scheduler, SchedulerTraits
from nodeheal.services.jobs.start_gang import record_run, start_ranks

NOW = datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC)
T = TypeVar("T")
DIAGNOSTICS, EVIDENCE, CHECK = "DIAGNOSE", "FREEZE_EVIDENCE", "CHECK_NODE"  # what a node may be asked for, see `named`

ACT = RecoveryPolicy(
    # Quarantined nodes hold their slots: that they need not has tests of its own.
    default_pool=PoolPolicy(mode=Mode.act, budget=Budget(max_nodes=1, max_percent=100, quarantine_percent=100)),
    stable_seconds=0,  # time stands still in most tests
    move_job_seconds=90 * 86_400,  # jobs wait for their nodes; that they need not has tests of its own
    evidence=Evidence(enabled=False),  # a step of its own, with tests of its own
)


class FrozenClock:
    """A clock that moves only when it is told to."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def as_rank(job_id: str, run: int) -> dict[str, Any]:
    """What ECS tells of a task that nodeheal started as a rank: its mark, and the environment that it was given."""
    environment = [
        {"name": names.JOB_VARIABLE, "value": job_id},
        {"name": names.RUN_VARIABLE, "value": str(run)},
    ]
    overrides = {"containerOverrides": [{"name": "trainer", "environment": environment}]}
    return {"startedBy": names.started_by(job_id, run), "overrides": overrides}


# What the events of nodes of one pool have in common.
SHARED_FACTS = {"schema_version", "cluster", "pool", "provider", "scheduler", "agent_version"}


def xid(code: int = 79, /, **changes: Any) -> HealthEvent:
    """A fault as an agent reports it."""
    values: dict[str, Any] = {
        "schema_version": 1,
        "event_id": f"event-{code}",
        "node_id": "mi-0a1b2c3d4e5f60718",
        "cluster": "training",
        "pool": "demo",
        "provider": Provider.hybrid,
        "scheduler": SchedulerKind.ECS,
        "instance_id": "mi-0a1b2c3d4e5f60718",
        "boot_id": "boot-1",
        "observed_at": NOW,
        "source": "kernel_log",
        "family": Family.xid,
        "code": str(code),
        "component": "0000:b9:00.0",
        "verdict": Verdict.FAILED,
        "evidence": f"NVRM: Xid (PCI:0000:b9:00): {code}, pid=<unknown>, name=<unknown>",
        "agent_version": "0.1.0",
    }
    values |= {"instance_id": changes.get("node_id", values["node_id"])}
    return HealthEvent.model_validate({**values, **changes})


def node(node_id: str = "mi-0a1b2c3d4e5f60718", **changes: Any) -> Node:
    """A healthy node, seen an hour ago. `scheduler`, `cluster`: the kind and the name of its cluster."""
    kind, name = changes.pop("scheduler", SchedulerKind.ECS), changes.pop("cluster", "training")
    values: dict[str, Any] = {
        "node_id": node_id,
        "cluster": Cluster(kind, name),
        "pool": "demo",
        "provider": Provider.hybrid,
        "instance_id": node_id,
        "boot_id": "boot-1",
        "booted_at": NOW - timedelta(hours=1),
        "last_seen": NOW - timedelta(minutes=1),
        "address": "127.0.0.1",
    }
    return Node(**{**values, **changes})


def with_pool(policy: RecoveryPolicy = ACT, /, **changes: object) -> RecoveryPolicy:
    """The policy with these changes for every pool."""
    return policy.model_copy(update={"default_pool": policy.default_pool.model_copy(update=changes)})


def memory_ports(clock: FrozenClock | None = None) -> Ports:
    """A whole world in memory, at a time that stands still."""
    return ports_of(clock or FrozenClock())


def stored_node(ports: Ports, node_id: str) -> Node:
    """A node that must be known."""
    found = ports.nodes.get(node_id)
    assert found is not None
    return found


def stored_job(ports: Ports, job_id: str) -> Job:
    """A job that must be known."""
    found = ports.jobs.get(job_id)
    assert found is not None
    return found


def stored_run(ports: Ports, job_id: str, number: int) -> Run:
    """A run that must be known."""
    found = ports.jobs.get_run(job_id, number)
    assert found is not None
    return found


def scheduler_in(ports: Ports) -> Any:
    """The one scheduler in memory, with all that it remembers, that stands for each kind in this world."""
    return next(iter(ports.schedulers.values())).gate


# Of a scheduler that restarts what nodeheal stops and gives its nodes work by itself, asked as quickly as AWS.
REQUEUES = SchedulerTraits(
    restarts_stopped=True,
    owner_consents_alone=True,
    fills_idle_nodes=True,
    checks_new_nodes=True,
    records_holder=True,
    is_behind_a_machine=True,
)


def requeueing(memory: MemoryScheduler, kind: SchedulerKind) -> Scheduler:
    """A scheduler that behaves by REQUEUES, and has machines made."""
    return replace(memory.as_scheduler(kind), traits=REQUEUES, restarter=None, machines=memory)


def behave_as(ports: Ports, **changes: Any) -> None:
    """The schedulers of this world are so from now on."""
    served = cast("dict[SchedulerKind, Scheduler]", ports.schedulers)
    served |= {kind: replace(one, **changes) for kind, one in served.items()}


def behave_as_requeueing(ports: Ports) -> None:
    """The schedulers of this world restart by themselves what is stopped, from now on."""
    behave_as(ports, traits=REQUEUES, restarter=None, machines=scheduler_in(ports))


def commands_in(ports: Ports) -> MemoryNodeCommands:
    """The commands of this world, in memory, which remember what was sent; behind a fuse too."""
    return cast("MemoryNodeCommands", ports.commands)


def take_diagnostics(ports: Ports) -> None:
    """The node says that it has taken what its last reboot brings along, as agents of this version do."""
    commands = commands_in(ports)
    [*_, (number, sent)] = [(n, one) for n, one in enumerate(commands.sent, 1) if one.document == "reboot-node"]
    order = json.loads(urlsafe_b64decode(f"{sent.parameters['AfterBoot']}=="))
    said = {"rebooting": sent.boot_id, "diagnoses": order["request_id"]}
    commands.statuses[f"command-{number}"] = CommandStatus("SUCCEEDED", json.dumps(said))


def searches_in(ports: Ports) -> list[SentCommand]:
    """Each search for a checkpoint, without the looks at its directory."""
    return [one for one in commands_in(ports).sent_of("find-checkpoint") if "SightAfter" not in one.parameters]


def started_job(job: Job, nodes: Sequence[Node], ports: Ports) -> Run:
    """A job whose first run has been started on these nodes, as run_job does it, and no workflow to watch it."""
    assert ports.jobs.save(job)
    run = record_run(replace(job, version=1), nodes, "submitted", ports)
    start_ranks(replace(job, version=1), run, ports, RecoveryPolicy())
    return run


def named(kind: str, key: str, ports: Ports, node_id: str = "") -> str:
    """The request id under which a node was asked, this one where several were; the bare key where none was.

    `key`: the operation, or the turn that goes on with it.
    """
    operations = ports.operations.operations.values()  # type: ignore[attr-defined]
    asked = (one for one in operations if one.verb == kind and key in (one.operation_id, _turn_of(one)))
    return next((str(one.request_id) for one in asked if node_id in ("", one.node_id)), key)


def _turn_of(operation: Operation) -> str:
    request = operation.request
    return turn_of(request) if isinstance(request, StepRequest) else ""


def turn_of(request: StepRequest) -> str:
    """The turn, by which `named` finds an operation, too."""
    return f"{request.incident_id}-{request.turn}"


def request_id_of(request: StepRequest) -> str:
    """The operation of a step, as its node is asked: a random part comes after it."""
    return f"{request.incident_id}-{request.operation_turn}"


def waiting(ports: Ports) -> list[object]:
    """Everything that some workflow still waits for."""
    found = ports.operations.all_open()  # type: ignore[attr-defined]
    # What a reboot has left on a node has no workflow yet.
    return [one for one in found if one.token or one.verb is not VerbName.DIAGNOSE]


def facts_of(result: StepResult, kind: type[T]) -> T:
    """The facts of a result, which must be of this kind."""
    assert isinstance(result.facts, kind)
    return result.facts


STEP_OF = {
    VerbName.REBOOT: Step.REBOOT,
    VerbName.STOP_START: Step.REBOOT,
    VerbName.REPLACE: Step.REPLACE,
    VerbName.WAIT: Step.WAIT,
    VerbName.DIAGNOSE: Step.DIAGNOSE,
    VerbName.FREEZE_EVIDENCE: Step.FREEZE_EVIDENCE,
    VerbName.ISOLATE: Step.ISOLATE,
    VerbName.STOP_GANG: Step.RESTART_WORKLOAD,
    VerbName.LAUNCH_GANG: Step.RESTART_WORKLOAD,
}


def under_way(ports: Ports, verb: VerbName, **changes: Any) -> Operation:
    """An operation of turn 1 of an incident, that was sent and has no result yet."""
    node_id, incident_id = changes.get("node_id", xid().node_id), changes.get("incident_id", "inc-1")
    decision = Decision(
        step=STEP_OF[verb],
        reason="as the test wants it",
        node_id=node_id,
        awaits=changes.pop("awaits", None),
        job_id=changes.pop("job_id", None),
    )
    request = StepRequest(incident_id=incident_id, turn=1, decision=decision)
    is_wait = verb is VerbName.WAIT
    known = {
        "owner": incident_owner(incident_id) if is_wait else node_owner(node_id),
        "operation_id": f"{incident_id}-1",
        "verb": verb,
        "token": "token",
        "incident_id": incident_id,
        "deadline_at": ports.clock() + timedelta(hours=1),
        "request_json": request.model_dump_json(exclude={"task_token"}),
        "state": OperationState.STARTED,
        "node_id": node_id,
        "boot_id": "boot-1",
    }
    made = Operation(**{**known, **changes})
    assert ports.operations.save(made)
    return replace(made, version=made.version + 1)


def job_under_way(ports: Ports, verb: VerbName, job_id: str = "llama", **changes: Any) -> Operation:
    """An operation of a job's first round, that has begun and has no result yet."""
    request = JobRequest(job_id=job_id, submission=1, round=0)
    known = {
        "owner": job_owner(job_id),
        "operation_id": f"{job_id}-1-0-{verb.lower()}",
        "verb": verb,
        "token": "token",
        "incident_id": f"{job_id}-1-0",
        "deadline_at": ports.clock() + timedelta(hours=1),
        "request_json": request.model_dump_json(exclude={"task_token"}),
        "state": OperationState.STARTED,
    }
    made = Operation(**{**known, **changes})
    assert ports.operations.save(made)
    return replace(made, version=made.version + 1)


def gang_under_way(ports: Ports, verb: VerbName, run: Run, *, incident_id: str = "inc-1", **changes: Any) -> Operation:
    """The same for all ranks of a run: they were asked to stop, or are being started."""
    record = GangRecord(run=run.number, is_asked=True, outstanding=tuple(task.placement for task in run.tasks))
    known = {"owner": job_owner(run.job_id), "data_json": record.model_dump_json()}
    known["operation_id"] = f"{incident_id}-1{'-stop' if verb is VerbName.STOP_GANG else ''}"
    return under_way(ports, verb, incident_id=incident_id, **{**known, **changes}, job_id=run.job_id)
