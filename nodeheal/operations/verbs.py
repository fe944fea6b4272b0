"""Which verb has which file, and which operation a step of a recovery is."""

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Action, Awaited, Step
from nodeheal.domain.operation import Operation, VerbName
from nodeheal.operations import (
    approve,
    await_nodes,
    check_node,
    diagnose,
    fan_out,
    find_checkpoint,
    freeze_evidence,
    isolate,
    late_capacity,
    launch_gang,
    launch_job,
    look_at_directory,
    network_test,
    new_node,
    reboot,
    replace,
    stop_gang,
    stop_job,
    stop_start,
    wait,
    watch_gang,
)
from nodeheal.operations.handler import Handler
from nodeheal.ports import Ports

HANDLERS: dict[VerbName, Handler] = {
    VerbName.APPROVE: approve.HANDLER,
    VerbName.CHECK_NODE: check_node.HANDLER,
    VerbName.DIAGNOSE: diagnose.HANDLER,
    VerbName.FAN_OUT: fan_out.HANDLER,
    VerbName.FIND_CHECKPOINT: find_checkpoint.HANDLER,
    VerbName.FREEZE_EVIDENCE: freeze_evidence.HANDLER,
    VerbName.ISOLATE: isolate.HANDLER,
    VerbName.LAUNCH_GANG: launch_gang.HANDLER,
    VerbName.LAUNCH_JOB: launch_job.HANDLER,
    VerbName.LOOK_AT_DIRECTORY: look_at_directory.HANDLER,
    VerbName.NEW_NODE: new_node.HANDLER,
    VerbName.STOP_GANG: stop_gang.HANDLER,
    VerbName.STOP_JOB: stop_job.HANDLER,
    VerbName.REBOOT: reboot.HANDLER,
    VerbName.STOP_START: stop_start.HANDLER,
    VerbName.REPLACE: replace.HANDLER,
    VerbName.LATE_CAPACITY: late_capacity.HANDLER,
    VerbName.AWAIT_NODES: await_nodes.HANDLER,
    VerbName.WATCH_GANG: watch_gang.HANDLER,
    VerbName.NETWORK_TEST: network_test.HANDLER,
    VerbName.WAIT: wait.HANDLER,
}


def operation_of(request: StepRequest, ports: Ports) -> Operation | None:
    """The operation that carries out this step, not stored; None: the step answers at once."""
    match request.decision.step:
        case Step.ISOLATE:
            return isolate.plan(request, ports)
        case Step.RESTART_WORKLOAD:
            return _half_of_restart(request, ports)
        case Step.DIAGNOSE:
            return diagnose.plan(request, ports)
        case Step.FREEZE_EVIDENCE:
            return freeze_evidence.plan(request, ports)
        case Step.REBOOT if request.decision.action is Action.STOP_START:
            return stop_start.plan(request, ports)
        case Step.REBOOT:
            return reboot.plan(request, ports)
        case Step.REPLACE:
            return replace.plan(request, ports)
        case Step.WAIT if request.decision.awaits is Awaited.APPROVAL:
            return approve.plan(request, ports)
        case Step.WAIT:
            return wait.plan(request, ports)
        case _:
            return None


def _half_of_restart(request: StepRequest, ports: Ports) -> Operation:
    """The stop of the gang while that is not over, else its launch."""
    stop = stop_gang.plan(request, ports)
    known = ports.operations.get(stop.owner, stop.operation_id)
    return known if known is not None and stop_gang.is_open(known) else launch_gang.plan(request, ports)
