"""What verbs send: each command is one that its document, and so the node, takes."""

import json
import re
from base64 import urlsafe_b64decode
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.adapters.memory.evidence import sign_upload
from nodeheal.contract.fabric import FabricTestRequest
from nodeheal.contract.job_spec import Checkpoints
from nodeheal.contract.steps import Accusation
from nodeheal.contract.vocabulary import Check, CheckpointFormat, FabricRole, Family
from nodeheal.operations import diagnose, find_checkpoint, freeze_evidence, reset_gpu
from nodeheal.ports.commands import Command
from nodeheal.services.jobs import ask_for_checkpoint
from stacks.settings import REPOSITORY
from tests.support.aws_world import LLAMA
from tests.support.builders import NOW

ACCUSED = Accusation(family=Family.xid, code="74", component="0000:b9:00.0", boot_id="boot-1", source="kernel_log")
UPLOAD = sign_upload("incidents/inc-1/inc-1-2.tar.gz", 1_000, NOW + timedelta(seconds=90))
TICKET = "eyJhIjoiYiJ9"  # as the real one spells it: Base64
WHERE = Checkpoints(directory="/mnt/llama", format=CheckpointFormat.megatron)
CONNECT = FabricTestRequest(role=FabricRole.CONNECT, peer="10.0.0.1")
BY_SENDER = {"BootId": "boot-1", "BootIds": "boot-1,boot-2", "ExpiresAt": "1790000000", "RequestId": "inc-1-2.0af"}
COMMANDS = {
    "diagnostics": diagnose.command(3, (Check.dcgm, Check.efa), ("pcie", "memory")),
    "diagnostics, nothing failed before": diagnose.command(1, (Check.dcgm,)),
    "evidence": freeze_evidence.command(UPLOAD, ACCUSED, with_bug_report=True),
    "no evidence is wanted": freeze_evidence.command(None, ACCUSED, with_bug_report=False),
    "evidence of no fault": freeze_evidence.command(UPLOAD, None, with_bug_report=False),
    "a checkpoint, and the steps of the run": find_checkpoint.command(WHERE, Progress="llama.1.900.json"),
    "a directory": find_checkpoint.command(Checkpoints(directory="/mnt/llama"), SightAfter="35"),
    "a test as server": Command("test-fabric", FabricTestRequest(role=FabricRole.SERVE).parameters()),
    "a test as client": Command("test-fabric", CONNECT.parameters()),
    "a checkpoint now": ask_for_checkpoint.command(LLAMA),
    "a reboot": Command("reboot-node"),
    "a GPU reset": reset_gpu.command("0000:b9:00.0"),
}


def document(command: Command) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((REPOSITORY / "packaging" / "ssm" / f"{command.document}.json").read_text())
    return found


@pytest.mark.parametrize("what", COMMANDS)
def test_a_document_takes_the_command(what: str) -> None:
    command = COMMANDS[what]
    known = document(command)["parameters"]
    given = {**{name: value for name, value in BY_SENDER.items() if name in known}, **command.parameters}
    if given.get("Upload") == UPLOAD.ticket:
        given["Upload"] = TICKET

    assert given.keys() <= known.keys()
    assert [name for name, one in known.items() if "default" not in one and name not in given] == []
    for name, value in given.items():
        assert re.search(known[name].get("allowedPattern", ""), value), name


def test_the_node_is_told_which_fault_it_is_to_confirm() -> None:
    asked = freeze_evidence.command(UPLOAD, ACCUSED, with_bug_report=True).parameters

    assert (asked["Upload"], asked["MaxBytes"], asked["BugReport"]) == (UPLOAD.ticket, "1000", "yes")
    assert Accusation.model_validate_json(urlsafe_b64decode(asked["Accused"] + "==")) == ACCUSED
    assert freeze_evidence.command(None, None, with_bug_report=False).parameters["Accused"] == "none"


def test_where_no_evidence_is_wanted_the_node_is_asked_all_the_same() -> None:
    asked = freeze_evidence.command(None, ACCUSED, with_bug_report=False).parameters

    assert (asked["Upload"], asked["MaxBytes"], asked["BugReport"]) == ("none", "0", "no")
