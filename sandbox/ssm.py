"""Implements Systems Manager for hybrid nodes: documents, commands, and the nodes' records."""

import json
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sandbox.aws_json import AwsError, Caller, Json, Operation
from sandbox.behaviour import Behaviour
from sandbox.events import Emit, Event
from sandbox.iam import ACCOUNT, REGION, resource_tags
from sandbox.node import Node
from sandbox.ssm_agent import ENDED, Invocation, SsmAgent
from sandbox.ssm_commands import (
    Command,
    describe_command,
    describe_invocation,
    describe_node,
    event_detail,
    summarise_invocation,
)
from sandbox.ssm_documents import Document, document_arn, parse_document
from sandbox.ssm_tags import NodeTags, node_arn

TARGET_LIMIT = 50
DEFAULT_DELIVERY_SECONDS = 3600


class Ssm:
    """The node operations. The emulator serves the rest of SSM."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        node_tags: Mapping[str, dict[str, str]],
        emit: Emit,
        behaviour: Behaviour | None = None,
    ) -> None:
        self._behaviour = behaviour or Behaviour()
        self._nodes = nodes
        self._node_tags = node_tags
        self.tags = NodeTags(nodes, node_tags)
        self._emit = emit
        self._lock = threading.RLock()
        self._commands: dict[str, Command] = {}
        self._agents: dict[str, SsmAgent] = {}
        self.documents: dict[str, Document] = {}

    def operations(self) -> dict[str, Operation]:
        """Return the served operations, by name."""
        return {
            "CreateDocument": self.create_document,
            "GetDocument": self.get_document,
            "DescribeDocument": self.describe_document,
            "DeleteDocument": self.delete_document,
            "SendCommand": self.send_command,
            "CancelCommand": self.cancel_command,
            "GetCommandInvocation": self.get_command_invocation,
            "ListCommands": self.list_commands,
            "ListCommandInvocations": self.list_command_invocations,
            "DescribeInstanceInformation": self.describe_instance_information,
            "GetServiceSetting": self.get_service_setting,
            "ListAssociations": self.list_associations,
            "AddTagsToResource": self.tags.add_tags_to_resource,
            "RemoveTagsFromResource": self.tags.remove_tags_from_resource,
            "ListTagsForResource": self.tags.list_tags_for_resource,
        }

    def provision(self, name: str, properties: Json) -> None:
        """Create or change a document of a stack."""
        self.put_document(name, properties["Content"], {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])})

    def unprovision(self, name: str) -> None:
        """Delete a document of a stack."""
        self.documents.pop(name, None)

    def put_document(self, name: str, content: str | Json, tags: dict[str, str]) -> Document:
        """Create a document, or its next version."""
        made = parse_document(name, content, tags)
        with self._lock:
            if name in self.documents:
                made.version = self.documents[name].version + 1
            self.documents[name] = made
        return made

    def create_document(self, caller: Caller, request: Json) -> Json:
        """CreateDocument."""
        tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
        caller.must_be_allowed(
            "ssm:CreateDocument", document_arn(request["Name"]), resource_tags(tags, "aws:RequestTag/")
        )
        if request["Name"] in self.documents:
            raise AwsError("DocumentAlreadyExists", f"Document {request['Name']} already exists.")
        return {"DocumentDescription": self.put_document(request["Name"], request["Content"], tags).describe()}

    def get_document(self, caller: Caller, request: Json) -> Json:
        """GetDocument."""
        found = self._document(request["Name"])
        caller.must_be_allowed("ssm:GetDocument", found.arn, resource_tags(found.tags))
        return {
            "Name": found.name,
            "DocumentVersion": str(found.version),
            "Status": "Active",
            "Content": json.dumps(found.content),
            "DocumentType": "Command",
            "DocumentFormat": "JSON",
        }

    def describe_document(self, caller: Caller, request: Json) -> Json:
        """DescribeDocument."""
        found = self._document(request["Name"])
        caller.must_be_allowed("ssm:DescribeDocument", found.arn, resource_tags(found.tags))
        return {"Document": found.describe()}

    def delete_document(self, caller: Caller, request: Json) -> Json:
        """DeleteDocument."""
        found = self._document(request["Name"])
        caller.must_be_allowed("ssm:DeleteDocument", found.arn, resource_tags(found.tags))
        self.documents.pop(found.name, None)
        return {}

    def _takes_commands(self, name: str) -> bool:
        """Whether it is a managed node. SSM has HyperPod's for sessions only, by another kind of target."""
        return name in self._nodes and self._nodes[name].spec.provider != "hyperpod"

    def send_command(self, caller: Caller, request: Json) -> Json:
        """SendCommand to nodes named by id."""
        targets = request.get("InstanceIds", [])
        if not targets or len(targets) > TARGET_LIMIT or request.get("Targets"):
            raise AwsError("ValidationException", f"The sandbox sends to 1 to {TARGET_LIMIT} InstanceIds.")
        self._authorise(caller, request["DocumentName"], targets)
        document = self._document(request["DocumentName"])
        unknown = [target for target in targets if not self._takes_commands(target)]
        if unknown:
            raise AwsError("InvalidInstanceId", f"Instances {unknown} not in a valid state for account {ACCOUNT}")
        command = self._made(document, targets, request)
        with self._lock:
            self._commands[command.command_id] = command
        self._tell_command(command)
        for invocation in command.invocations:
            self._agent(invocation.node_id).send(invocation)
        return {"Command": describe_command(command)}

    def cancel_command(self, caller: Caller, request: Json) -> Json:
        """CancelCommand, on all of its nodes or on the named ones."""
        caller.must_be_allowed("ssm:CancelCommand", "*")
        command = self._commands.get(request["CommandId"])
        if command is None:
            raise AwsError("InvalidCommandId", f"There is no command {request['CommandId']}.")
        wanted = request.get("InstanceIds") or [invocation.node_id for invocation in command.invocations]
        for invocation in command.invocations:
            if invocation.node_id in wanted and invocation.status not in ENDED:
                invocation.cancelled.set()
        return {}

    def get_command_invocation(self, caller: Caller, request: Json) -> Json:
        """GetCommandInvocation."""
        caller.must_be_allowed("ssm:GetCommandInvocation", "*")
        command = self._commands.get(request["CommandId"])
        wanted = request["InstanceId"]
        found = [each for each in command.invocations if each.node_id == wanted] if command else []
        if not found:
            raise AwsError("InvocationDoesNotExist", "")
        return describe_invocation(found[0])

    def list_commands(self, caller: Caller, request: Json) -> Json:
        """ListCommands, all of them or one by id, or those of one node."""
        caller.must_be_allowed("ssm:ListCommands", "*")
        return {"Commands": [describe_command(command) for command in self._wanted(request)]}

    def list_command_invocations(self, caller: Caller, request: Json) -> Json:
        """ListCommandInvocations."""
        caller.must_be_allowed("ssm:ListCommandInvocations", "*")
        wanted = request.get("InstanceId")
        found = [
            summarise_invocation(invocation, has_details=bool(request.get("Details")))
            for command in self._wanted(request)
            for invocation in command.invocations
            if wanted in (None, invocation.node_id)
        ]
        return {"CommandInvocations": found}

    def describe_instance_information(self, caller: Caller, request: Json) -> Json:
        """DescribeInstanceInformation, with the filter InstanceIds."""
        caller.must_be_allowed("ssm:DescribeInstanceInformation", "*")
        wanted: set[str] = set()
        for each in request.get("Filters", []):
            wanted.update(each["Values"] if each["Key"] == "InstanceIds" else [])
        for each in request.get("InstanceInformationFilterList", []):
            wanted.update(each["valueSet"] if each["key"] == "InstanceIds" else [])
        tagged = {each["Key"][4:]: each["Values"] for each in request.get("Filters", []) if each["Key"][:4] == "tag:"}
        found = [
            node
            for name, node in self._nodes.items()
            if self._takes_commands(name)
            and (not wanted or name in wanted)
            and all(self._node_tags.get(name, {}).get(key) in values for key, values in tagged.items())
        ]
        return {"InstanceInformationList": [describe_node(node) for node in found]}

    def list_associations(self, caller: Caller, request: Json) -> Json:
        """ListAssociations: none, since the sandbox installs its agents itself and creates no association."""
        caller.must_be_allowed("ssm:ListAssociations", "*")
        return {"Associations": []}

    def get_service_setting(self, caller: Caller, request: Json) -> Json:
        """GetServiceSetting: the tier of a new account."""
        setting = request["SettingId"]
        resource = f"arn:aws:ssm:{REGION}:{ACCOUNT}:servicesetting{setting}"
        caller.must_be_allowed("ssm:GetServiceSetting", resource)
        if setting != "/ssm/managed-instance/activation-tier":
            raise AwsError("ServiceSettingNotFound", f"the sandbox has no setting {setting}")
        return {"ServiceSetting": {"SettingId": setting, "SettingValue": "standard", "ARN": resource}}

    def _made(self, document: Document, targets: list[str], request: Json) -> Command:
        parameters = request.get("Parameters", {})
        document.must_accept(parameters)
        seconds = request.get("TimeoutSeconds", DEFAULT_DELIVERY_SECONDS)
        moment = datetime.now(UTC)
        command_id, comment = str(uuid.uuid4()), request.get("Comment", "")
        invocations = [Invocation(command_id, name, document, parameters, seconds, moment, comment) for name in targets]
        expires_at = moment + timedelta(seconds=seconds + document.execution_seconds)
        return Command(command_id, document, parameters, comment, moment, expires_at, invocations)

    def _agent(self, node_id: str) -> SsmAgent:
        with self._lock:
            if node_id not in self._agents:
                self._agents[node_id] = SsmAgent(self._nodes[node_id], self._behaviour, self._changed)
            return self._agents[node_id]

    def _authorise(self, caller: Caller, document_name: str, targets: list[str]) -> None:
        known = self.documents.get(document_name.rpartition("/")[2])
        name = document_arn(document_name.rpartition("/")[2])
        caller.must_be_allowed("ssm:SendCommand", name, resource_tags(known.tags if known else {}))
        for target in targets:
            tags = self._node_tags.get(target, {})
            resource = node_arn(target)
            context = resource_tags(tags) | resource_tags(tags, "ssm:resourceTag/")
            caller.must_be_allowed("ssm:SendCommand", resource, context)

    def _document(self, name: str) -> Document:
        found = self.documents.get(name.rpartition("/")[2])
        if found is None:
            raise AwsError("InvalidDocument", f"Document with name {name} does not exist.")
        return found

    def _wanted(self, request: Json) -> list[Command]:
        with self._lock:
            commands = list(self._commands.values())
        return [command for command in commands if request.get("CommandId") in (None, command.command_id)]

    def _changed(self, invocation: Invocation) -> None:
        with self._lock:
            command = self._commands[invocation.command_id]
        where = node_arn(invocation.node_id)
        detail = event_detail(command, invocation.status) | {"instance-id": invocation.node_id}
        self._emit(Event("aws.ssm", "EC2 Command Invocation Status-change Notification", (where,), detail))
        self._tell_command(command)

    def _tell_command(self, command: Command) -> None:
        detail = event_detail(command, command.status)
        self._emit(Event("aws.ssm", "EC2 Command Status-change Notification", (), detail))
