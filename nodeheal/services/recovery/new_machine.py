"""Finds the replacement that a new machine belongs to, from its boot and from reports of EC2 and Auto Scaling."""

from nodeheal.contract.names import group_line, machine_line
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.fleet.machine import Launch
from nodeheal.domain.fleet.node import Node
from nodeheal.operations.engine import reconcile
from nodeheal.operations.replace import groups_of, has_taken, is_made_for, launch_failed, take_new_node
from nodeheal.ports import Ports


def on_machine_booted(node: Node, ports: Ports) -> None:
    """A node has come up. If a replacement waits for it, or for any new node of its group, it takes the place."""
    is_ec2 = node.provider is Provider.ec2
    launched = ports.operations.queued(machine_line(node.node_id)) if is_ec2 else ()
    for operation in launched:
        reconcile(take_new_node(operation, node, ports), ports)
    if launched or node.past_boots:  # one with past boots is no new machine
        return
    # A claimed node goes through the line, too: the claiming call may have crashed before it recorded that.
    machine = None if node.provider is Provider.hybrid else ports.machines_of(node).describe(node.instance_id)
    for group in groups_of(node, machine, ports):
        for waiting in ports.operations.queued(group_line(group)):
            if not is_made_for(waiting, node, machine):
                continue
            operation = take_new_node(waiting, node, ports)
            if has_taken(operation, node.node_id):
                reconcile(operation, ports)
                return


def on_group_launch(launch: Launch, ports: Ports) -> None:
    """A group has launched a machine, or could not."""
    if launch.failed:
        for operation in ports.operations.queued(group_line(launch.group)):
            reconcile(launch_failed(operation, launch, ports), ports)
        return
    node = ports.nodes.get(launch.machine_id)
    if node is not None:  # else its own boot is still to come, and finds the replacement by itself
        on_machine_booted(node, ports)
