"""A command goes the way of its node's scheduler, and its Job asks for what the SSM document would run."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from nodeheal.adapters.kubernetes.node_commands import VERBS, options
from nodeheal.adapters.node_commands import NodeCommandsByScheduler
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.fleet.node import Node
from nodeheal.ports.commands import Command, CommandStatus
from stacks.settings import REPOSITORY
from tests.support.builders import node

UNTIL = datetime(2026, 11, 29, 4, tzinfo=UTC)


class Way:
    """Takes commands, and names them after itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def send(self, node: Node, command: Command, expires_at: datetime) -> str:
        return f"{self.name}:{node.node_id}"

    def send_to_all(self, nodes: Sequence[Node], command: Command, expires_at: datetime) -> Sequence[str]:
        return [f"{self.name}:{'+'.join(node.node_id for node in nodes)}"]

    def look(self, node: Node, command_id: str) -> CommandStatus:
        return CommandStatus("SUCCEEDED", self.name)


def test_each_node_gets_its_commands_the_way_of_its_scheduler() -> None:
    commands = NodeCommandsByScheduler({SchedulerKind.KUBERNETES: lambda: Way("job")}, Way("ssm"))
    on_ecs, on_eks = node("mi-1"), node("i-2", scheduler=SchedulerKind.KUBERNETES)
    command = Command("run-diagnostics")

    sent = [commands.send(each, command, UNTIL) for each in (on_ecs, on_eks)]

    assert sent == ["ssm:mi-1", "job:i-2"]
    assert commands.send_to_all([on_ecs, on_eks, node("mi-3")], command, UNTIL) == ["ssm:mi-1+mi-3", "job:i-2"]
    assert commands.look(on_eks, "any").output == "job"


@pytest.mark.parametrize("document", sorted(VERBS))
def test_a_job_asks_the_agent_for_what_the_document_of_ssm_asks_for(document: str) -> None:
    text = (REPOSITORY / "packaging" / "ssm" / f"{document}.json").read_text("utf-8")
    asked = re.search(r"nodeheal-agent run ([a-z-]+)", text)
    by_ssm = dict(re.findall(r"--([a-z-]+)='\{\{ (\w+) \}\}'", text))
    parameters = {name: "x" for name in by_ssm.values() if name not in ("BootId", "BootIds", "ExpiresAt")}

    verb, *given = options(Command(document, parameters), "boot", UNTIL)

    assert asked is not None
    assert verb == asked[1]
    assert {word.removeprefix("--").partition("=")[0] for word in given} == set(by_ssm)


def test_the_ticket_of_an_upload_is_on_no_command_line() -> None:
    words = options(Command("freeze-evidence", {"Upload": "the-ticket", "Accused": "the-fault"}), "boot", UNTIL)

    assert "--upload=-" in words
    assert not any("the-ticket" in word or "the-fault" in word for word in words)
