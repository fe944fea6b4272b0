"""Commands and their invocations, in SSM's descriptions."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sandbox.aws_json import Json
from sandbox.events import wire_time
from sandbox.node import Node
from sandbox.ssm_agent import ENDED, Invocation
from sandbox.ssm_documents import Document

PLUGIN_OUTPUT_CHARACTERS = 2_500  # botocore's model of CommandPlugin
ERRORS = "\n----------ERROR-------\n"  # between the two outputs of a plugin

SILENT_AFTER_SECONDS = 300  # the ping is so slow that a rebooting node stays Online


@dataclass
class Command:
    """One SendCommand and its result on each node."""

    command_id: str
    document: Document
    parameters: dict[str, list[str]]
    comment: str
    requested_at: datetime
    expires_at: datetime
    invocations: list[Invocation]

    @property
    def status(self) -> str:
        """Return Pending, InProgress, or how it ended."""
        found = {invocation.status for invocation in self.invocations}
        if found <= ENDED:
            return next((bad for bad in ("Failed", "TimedOut", "Cancelled") if bad in found), "Success")
        return "Pending" if found == {"Pending"} else "InProgress"


def event_detail(command: Command, status: str) -> Json:
    """Return the detail of a command's events."""
    return {
        "command-id": command.command_id,
        "document-name": command.document.name,
        "expire-after": wire_time(command.expires_at),
        "parameters": command.parameters,
        "requested-date-time": wire_time(command.requested_at),
        "status": status,
    }


def describe_command(command: Command) -> Json:
    """Describe it as SendCommand and ListCommands do."""
    return {
        "CommandId": command.command_id,
        "DocumentName": command.document.name,
        "DocumentVersion": str(command.document.version),
        "Comment": command.comment,
        "ExpiresAfter": command.expires_at,
        "Parameters": command.parameters,
        "InstanceIds": [invocation.node_id for invocation in command.invocations],
        "RequestedDateTime": command.requested_at,
        "Status": command.status,
        "StatusDetails": command.status,
        "TargetCount": len(command.invocations),
        "CompletedCount": sum(invocation.status in ENDED for invocation in command.invocations),
    }


def summarise_invocation(invocation: Invocation, *, has_details: bool = False) -> Json:
    """Describe it as ListCommandInvocations does, with the one plugin of the document where details are requested."""
    return {
        **({"CommandPlugins": [_plugin(invocation)]} if has_details else {}),
        "CommandId": invocation.command_id,
        "InstanceId": invocation.node_id,
        "Comment": invocation.comment,
        "DocumentName": invocation.document.name,
        "DocumentVersion": str(invocation.document.version),
        "RequestedDateTime": invocation.requested_at,
        "Status": invocation.status,
        "StatusDetails": invocation.details,
    }


def _plugin(invocation: Invocation) -> Json:
    errors = f"{ERRORS}{invocation.errors}" if invocation.errors else ""
    return {
        "Name": invocation.document.plugin_name,
        "Status": invocation.status,
        "StatusDetails": invocation.details,
        "ResponseCode": invocation.response_code,
        "Output": f"{invocation.output}{errors}"[:PLUGIN_OUTPUT_CHARACTERS],
    }


def describe_invocation(invocation: Invocation) -> Json:
    """Describe it as GetCommandInvocation does."""
    started = wire_time(invocation.started_at) if invocation.started_at else ""
    ended = wire_time(invocation.ended_at) if invocation.ended_at and invocation.started_at else ""
    return {
        "CommandId": invocation.command_id,
        "InstanceId": invocation.node_id,
        "Comment": invocation.comment,
        "DocumentName": invocation.document.name,
        "DocumentVersion": str(invocation.document.version),
        "PluginName": invocation.document.plugin_name,
        "ResponseCode": invocation.response_code,
        "ExecutionStartDateTime": started,
        "ExecutionEndDateTime": ended,
        "Status": invocation.status,
        "StatusDetails": invocation.details,
        "StandardOutputContent": invocation.output,
        "StandardErrorContent": invocation.errors,
    }


def describe_node(node: Node) -> Json:
    """Describe it as DescribeInstanceInformation does."""
    last_seen = datetime.now(UTC) if node.is_up else node.last_seen
    silent = (datetime.now(UTC) - last_seen).total_seconds()
    return {
        "InstanceId": node.spec.node_id,
        "PingStatus": "ConnectionLost" if silent > SILENT_AFTER_SECONDS else "Online",
        "LastPingDateTime": last_seen,
        "AgentVersion": "3.3.0.0",
        "PlatformType": "Linux",
        "PlatformName": "Simulated Linux",
        "ResourceType": "EC2Instance" if node.spec.provider == "ec2" else "ManagedInstance",
        "IPAddress": node.spec.address,
        "ComputerName": node.spec.node_id,
        **({"IamRole": node.spec.role} if node.spec.role and node.spec.provider == "hybrid" else {}),
    }
