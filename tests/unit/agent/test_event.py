"""The agent's events are the contract's events."""

import dataclasses
import json
import os

import pytest

from nodeheal.agent.transport import event as said
from nodeheal.contract import health_event as contract
from nodeheal.contract.vocabulary import Check, Family, Verdict
from nodeheal.parsers.finding import Finding, ToolReport
from tests.support.agent_fakes import IDENTITY, START, XID_79

EVENT_FACTORY = said.EventFactory(IDENTITY, "boot-1")
FINDING = Finding(Family.xid, "79", "0000:b9:00.0", XID_79)


def found(position: str = "7:120", evidence: str = XID_79) -> said.HealthEvent:
    return EVENT_FACTORY.found(FINDING, source="kernel_log", position=position, at=START, evidence=evidence)


@pytest.mark.parametrize(
    "name", ["HealthEvent", "NodeBooted", "DiagnosticsFinished", "EvidenceFrozen", "CheckpointFound"]
)
def test_the_agent_and_the_contract_name_the_same_fields(name: str) -> None:
    model: type[contract.Frozen] = getattr(contract, name)

    fields = [field.name for field in dataclasses.fields(getattr(said, name))]

    assert sorted(fields) == sorted(model.model_fields)


def test_a_finding_is_a_valid_health_event() -> None:
    event = found()

    received = contract.HealthEvent.model_validate_json(event.to_json())

    assert (received.family, received.code, received.component) == (Family.xid, "79", "0000:b9:00.0")
    assert (received.verdict, received.suggested_action) == (Verdict.FAILED, None)
    assert received.observed_at == START


@pytest.mark.parametrize(
    ("code", "verdict"), [("79", Verdict.FAILED), ("63", Verdict.DEGRADED), ("999", Verdict.UNKNOWN)]
)
def test_the_catalog_says_how_grave_a_finding_is(code: str, verdict: Verdict) -> None:
    finding = Finding(Family.xid, code, "0000:b9:00.0", XID_79)

    event = EVENT_FACTORY.found(finding, source="kernel_log", position="1", at=START, evidence="")

    assert event.verdict is verdict


def test_a_finding_carries_its_sub_code_and_what_the_node_shares_with_others() -> None:
    identity = dataclasses.replace(IDENTITY, product="H100", labels={"rack": "r7"})
    finding = Finding(Family.xid, "154", "0000:b9:00.0", "…", subcode="NODE_REBOOT")

    event = said.EventFactory(identity, "boot-1").found(finding, source="k", position="1", at=START, evidence="")

    received = contract.HealthEvent.model_validate_json(event.to_json())
    assert (received.subcode, received.product, received.labels) == ("NODE_REBOOT", "H100", {"rack": "r7"})


def test_every_other_event_is_valid_too() -> None:
    contract.HealthEvent.model_validate_json(EVENT_FACTORY.alive(START).to_json())
    contract.NodeBooted.model_validate_json(EVENT_FACTORY.booted(START, "10.0.0.7" * 99, 8, START).to_json())
    gpu = said.Accelerator(0, "GPU 0", "a ‮model" * 99, "s\nerial", "u", 81_920, 0, 0, 18, 18, 41.0)
    hardware = contract.NodeHardwareReported.model_validate_json(
        EVENT_FACTORY.hardware("p5.48xlarge", [gpu] * 100, START).to_json()
    )
    assert (len(hardware.accelerators), hardware.accelerators[0].serial) == (64, "s_erial")
    many = {f"number_{number}": 1.0 for number in range(100)}
    report = ToolReport(Verdict.FAILED, ("pcie",), measured=many, undone_tests=("memory",))
    part = said.DiagnosticResult(Check.dcgm, Verdict.FAILED, "x" * 9_999, 1.5)
    diagnosed = EVENT_FACTORY.diagnosed("incident/3", report, (part,), "{" * 20_000, START)

    received = contract.DiagnosticsFinished.model_validate_json(diagnosed.to_json())

    assert (received.failed_tests, received.undone_tests) == (("pcie",), ("memory",))
    assert (received.checks[0].check, len(received.measured)) == (Check.dcgm, 64)


def test_a_tool_that_names_tests_without_end_is_still_heard_of() -> None:
    named = tuple(str(number) * 999 for number in range(100_000))

    diagnosed = EVENT_FACTORY.diagnosed(
        "incident/3", ToolReport(Verdict.FAILED, named, undone_tests=named), (), "", START
    )

    received = contract.DiagnosticsFinished.model_validate_json(diagnosed.to_json())
    assert len(diagnosed.to_json()) < 64 * 1024
    assert (len(received.failed_tests), len(received.undone_tests)) == (64, 64)


def test_long_evidence_is_cut_and_says_so() -> None:
    event = found(evidence="é" * 10_000)

    received = contract.HealthEvent.model_validate_json(event.to_json())

    assert len(received.evidence) == contract.EVIDENCE_BYTES
    assert received.evidence.endswith("[cut]")


def test_bytes_that_are_no_text_still_make_valid_json() -> None:
    event = found(evidence=b"NVRM: \xff\x00\x1b".decode("utf-8", "replace"))

    assert json.loads(event.to_json())["evidence"] == "NVRM: \ufffd\x00\x1b"


def test_what_is_no_character_is_kept_and_told_as_a_question_mark() -> None:
    event = found(evidence=json.loads(r'"half a pair: \ud83d"') + os.fsdecode(b", a file's name: \xff"))

    received = contract.HealthEvent.model_validate_json(event.to_json().encode())

    assert received.evidence == "half a pair: ?, a file's name: ?"


def test_the_same_fact_has_the_same_id_and_another_fact_another() -> None:
    assert found().event_id == found().event_id
    assert found().event_id != found(position="7:121").event_id
    assert found().event_id != found(evidence="another line").event_id
    assert EVENT_FACTORY.booted(START, "a", 1, START).event_id == EVENT_FACTORY.booted(START, "b", 2, START).event_id
    assert (
        EVENT_FACTORY.booted(START, "a", 1, START).event_id
        != said.EventFactory(IDENTITY, "boot-2").booted(START, "a", 1, START).event_id
    )
