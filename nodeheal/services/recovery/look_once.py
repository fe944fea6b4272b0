"""At a deadline, look once before concluding: the event that should have come may be late, lost or never sent."""

from typing import TYPE_CHECKING

from nodeheal.contract.results import Isolated, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import NodeState, Outcome, Step
from nodeheal.operations.engine import conclude
from nodeheal.ports import Ports
from nodeheal.services.jobs.early_end import early_end, ended_early
from nodeheal.services.jobs.launch_gang import GANG_RUNNING, launch_id
from nodeheal.services.jobs.stop_gang import GANG_STOPPED, current_run, may_write, run_key, stop_key
from nodeheal.services.recovery.isolate_node import DRAINED
from nodeheal.services.recovery.look_at_replacement import look_at_replacement
from nodeheal.services.steps import entry_id, forget, node_of, result_of

if TYPE_CHECKING:
    from collections.abc import Callable

_RUNS_WAITED_FOR = 5  # of the newest: each submission of a job that is down is one


def look_once(request: StepRequest, ports: Ports) -> StepResult:
    """What can be seen of a step whose answer did not come. UNKNOWN where nothing can be told."""
    look: dict[Step, Callable[[StepRequest, Ports], StepResult]] = {
        Step.ISOLATE: _at_isolation,
        Step.REPLACE: look_at_replacement,
        Step.RESTART_WORKLOAD: _at_restart,
    }
    looker = look.get(request.decision.step)
    if looker is None:
        return conclude(request, ports)
    return looker(request, ports)


def _seconds(request: StepRequest) -> str:
    return f"{request.decision.deadline_seconds} s"


def _at_isolation(request: StepRequest, ports: Ports) -> StepResult:
    node = node_of(request.decision.node_id, ports)
    told = {entry.entry_id for entry in ports.incidents.history(request.incident_id).timeline}
    # The state is written before the drain; only the line after it says that the drain went through.
    ours = node.state is NodeState.ISOLATED and node.open_incident == request.incident_id
    drained = ours and entry_id(request, DRAINED) in told
    _, run = current_run(request.decision.job_id, ports)
    _forget_gang(request, ports)
    alive = [f"rank {task.rank} on {task.node_id}" for task in run.tasks if may_write(task, ports)] if run else []
    facts = Isolated(is_drained=drained)
    if drained and not alive:
        return result_of(request, ports, Outcome.DONE, "drained, and its gang has stopped", facts=facts)
    why = f"not seen to stop within {_seconds(request)}: {', '.join(alive)}" if drained else "it could not be drained"
    return result_of(request, ports, Outcome.TIMED_OUT if drained else Outcome.FAILED, why, facts=facts)


def _forget_gang(request: StepRequest, ports: Ports) -> None:
    """Nobody waits any more for ranks of the job to stop, or to run, on this incident's behalf: neither of its run nor
    of the ones before, for people may have submitted the job again since the wait began."""
    for run in ports.jobs.runs(request.decision.job_id or "")[-_RUNS_WAITED_FOR:]:
        stopping = stop_key(run.job_id, run.number, request.incident_id)
        for wait in (
            ports.waits.get(GANG_STOPPED, stopping),
            ports.waits.get(GANG_RUNNING, run_key(run.job_id, run.number)),
        ):
            if wait is not None and wait.incident_id == request.incident_id:
                forget(ports, wait)


def _at_restart(request: StepRequest, ports: Ports) -> StepResult:
    job, run = current_run(request.decision.job_id, ports)
    _forget_gang(request, ports)
    if run is not None and run.is_running and run.why == launch_id(request):
        return result_of(request, ports, Outcome.DONE, f"{run.job_id} runs as run {run.number}")
    dead = ended_early(run) if run is not None and run.why == launch_id(request) else []
    if run is not None and dead:
        return result_of(request, ports, *early_end(job, run, dead[0]))
    ranks = ", ".join(f"rank {task.rank} is {task.status}" for task in run.tasks) if run else "no run is recorded"
    return result_of(request, ports, Outcome.TIMED_OUT, f"not all ranks run after {_seconds(request)}: {ranks}")
