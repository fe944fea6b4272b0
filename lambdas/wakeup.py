"""wakeup: what the world answers, from the buses. See nodeheal/services/intake/wakeup.py."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import ValidationError

from lambdas.composition import Event, explain, is_ping, logger, policy, ports, quarantine, records
from lambdas.deciding import deciding_ports
from lambdas.signatures import proven, read_fact
from nodeheal.adapters.aws.translate.machine import GroupLaunchDetail, MachineStateDetail, group_launch
from nodeheal.adapters.aws.translate.ssm_command import SsmInvocationDetail
from nodeheal.adapters.rank_changes import RANK_CHANGES
from nodeheal.contract import names
from nodeheal.contract.health_event import NodeBooted, NodeHardwareReported
from nodeheal.operations import engine
from nodeheal.operations.verbs import ANSWERS
from nodeheal.ports import Ports
from nodeheal.services.intake import wakeup
from nodeheal.services.intake.new_nodes import on_first_boot
from nodeheal.services.intake.verify_event import Forged
from nodeheal.services.recovery import new_machine

_OF_NODES = {names.NODE_BOOTED, names.NODE_HARDWARE_REPORTED, *ANSWERS}


def handler(event: Event, context: object) -> None:
    """One EventBridge event. One that cannot be read goes to quarantine; a kind that is not known is left alone."""
    if is_ping(event):
        return
    source, kind, detail = event.get("source"), event.get("detail-type"), event.get("detail", {})
    logger().info("event received", extra={"kind": kind, "event_id": event.get("id")})
    try:
        act = _read(source, kind, detail)
    except (ValidationError, Forged) as error:
        why = explain(error) if isinstance(error, ValidationError) else str(error)
        return quarantine("wakeup", json.dumps(event), f"{kind}: {why}")
    records().must_be_whole(ports())
    act(deciding_ports())


def _read(source: Any, kind: Any, detail: Event) -> Callable[[Ports], None]:
    """Returns the action for the event. Raises ValidationError for one that is not what it says, Forged for one that
    its node has not signed, NotAccepted for one that cannot be verified yet.

    A node may name any kind, and no source but its own: nobody but AWS can name AWS's.
    """
    if source == names.AGENT_SOURCE and kind in _OF_NODES:
        return _about_node(kind, detail)
    return _from_aws(kind, detail) if str(source).startswith("aws.") else _ignored(kind)


def _from_aws(kind: Any, detail: Event) -> Callable[[Ports], None]:
    match kind:
        case _ if kind in RANK_CHANGES:
            change = RANK_CHANGES[kind](detail)
            return partial(wakeup.on_task_change, change) if change is not None else _nothing
        case names.SSM_INVOCATION_CHANGE:
            return _about_command(SsmInvocationDetail.model_validate(detail))
        case names.GROUP_LAUNCHED | names.GROUP_LAUNCH_FAILED:
            launch = group_launch(GroupLaunchDetail.model_validate(detail), kind == names.GROUP_LAUNCH_FAILED)
            return partial(new_machine.on_group_launch, launch)
        case names.MACHINE_STATE_CHANGE:
            return _about_machine(MachineStateDetail.model_validate(detail))
        case _:
            return _ignored(kind)


def _ignored(kind: Any) -> Callable[[Ports], None]:
    logger().warning("event of an unknown kind ignored", extra={"kind": kind})
    return _nothing


def _about_node(kind: str, detail: Event) -> Callable[[Ports], None]:
    told = proven(detail, kind)
    if kind == names.NODE_BOOTED:
        return partial(_on_node_booted, read_fact(NodeBooted, told))
    if kind == names.NODE_HARDWARE_REPORTED:
        return partial(wakeup.on_hardware_reported, read_fact(NodeHardwareReported, told))
    return partial(wakeup.on_answer, read_fact(ANSWERS[kind], told))


def _on_node_booted(event: NodeBooted, ports: Ports) -> None:
    wakeup.on_node_booted(event, ports)
    on_first_boot(event, ports, policy)


def _about_command(invocation: SsmInvocationDetail) -> Callable[[Ports], None]:
    if not invocation.has_failed:
        return _nothing
    return partial(wakeup.on_command_failed, invocation.instance_id, invocation.command_id)


def _about_machine(detail: MachineStateDetail) -> Callable[[Ports], None]:
    if detail.has_stopped:
        return partial(engine.machine_stopped, detail.machine_id)
    return partial(engine.machine_gone, detail.machine_id) if detail.is_gone else _nothing


def _nothing(_: Ports) -> None:
    """There is nothing to wake."""
