"""`nodeheal parse`: the operator's view of a tool's output."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nodeheal.cli.parse import app
from nodeheal.contract.vocabulary import Family
from nodeheal.domain.faults.catalog import find
from nodeheal.parsers import dcgm_diag, dcgm_health, dcgm_injected, efa_tools, neuron_tools, nvidia_smi
from nodeheal.parsers.dcgm_errors import NAMES
from tests.support.goldens import DIRECTORY, golden, names

RUN = CliRunner()
COMMANDS = {
    "dcgm_diag": "dcgm-diag",
    "dcgm_health": "dcgm-health",
    "nvidia_smi": "nvidia-smi",
    "neuron": "neuron",
    "efa": "efa",
    "ib": "efa",
}
RECORDINGS = names(*(f"{prefix}_*" for prefix in COMMANDS))
EMITTED = (
    dcgm_diag.CODES | dcgm_injected.CODES | dcgm_health.CODES | nvidia_smi.CODES | neuron_tools.CODES | efa_tools.CODES
)
FINDING_KEYS = ["family", "code", "subcode", "component", "verdict", "action", "reason", "message"]


def parsed(*arguments: str, stdin: bytes = b"") -> dict[str, Any]:
    result = RUN.invoke(app, list(arguments), input=stdin)
    answer: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == ["OK", "DEGRADED", "FAILED", "UNKNOWN"].index(answer["verdict"]), result.output
    return answer


def command(recording: str) -> str:
    return next(name for prefix, name in COMMANDS.items() if recording.startswith(prefix))


def sysfs(directory: Path, listing: str) -> Path:
    """A tree of files, from what `grep -r .` would list of it."""
    for line in listing.splitlines():
        path, _, text = line.partition(":")
        if path.startswith("/sys/"):
            file = directory / path.removeprefix("/sys/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
    return directory


def test_the_answer_has_the_promised_shape() -> None:
    answer = parsed("nvidia-smi", str(DIRECTORY / "nvidia_smi_table_sick.txt"))

    assert list(answer) == ["verdict", "failed_tests", "undone_tests", "failed_components", "findings", "reason"]
    assert answer["verdict"] == "FAILED"
    assert all(list(finding) == FINDING_KEYS for finding in answer["findings"])


@pytest.mark.parametrize("recording", RECORDINGS)
def test_every_recording_is_answered_and_every_code_is_listed(recording: str) -> None:
    answer = parsed(command(recording), str(DIRECTORY / recording))

    spelled = ["/".join(filter(None, (f["family"], f["code"], f["subcode"]))) for f in answer["findings"]]
    assert set(spelled) <= EMITTED


def test_the_list_of_codes_is_the_one_that_the_parsers_emit() -> None:
    assert (DIRECTORY / "codes.txt").read_text("utf-8").split() == sorted(EMITTED)
    assert len(EMITTED) > len(NAMES)


def test_a_fault_is_explained_by_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    row = find(Family.xid, "79")
    assert row is not None
    monkeypatch.setattr("nodeheal.domain.faults.catalog.find", lambda family, code, subcode: row)

    [finding, *_] = parsed("nvidia-smi", "-", stdin=b"No devices were found\n")["findings"]

    assert (finding["verdict"], finding["action"], finding["reason"]) == (row.verdict, row.action, row.why)


def test_a_fault_that_the_catalog_does_not_know_goes_to_a_human(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeheal.domain.faults.catalog.find", lambda family, code, subcode: None)

    [finding] = parsed("nvidia-smi", "-", stdin=b"No devices were found\n")["findings"]

    assert (finding["verdict"], finding["action"]) == ("UNKNOWN", "ESCALATE")
    assert "a human must look" in finding["reason"]


@pytest.mark.parametrize("name", sorted(set(COMMANDS.values())))
def test_standard_input_is_read_and_nothing_is_not_health(name: str) -> None:
    assert parsed(name, "-")["verdict"] == "UNKNOWN"
    assert parsed(name, "-", stdin=b"\xff\xfe\x00 garbage \x80")["verdict"] == "UNKNOWN"


def test_an_expectation_finds_the_missing_gpu() -> None:
    recording = str(DIRECTORY / "nvidia_smi_csv_healthy.csv")

    assert parsed("nvidia-smi", recording, "--expect", "8")["verdict"] == "OK"
    assert parsed("nvidia-smi", recording, "--expect", "9")["findings"][0]["code"] == "GPU_MISSING"
    assert parsed("dcgm-diag", str(DIRECTORY / "dcgm_diag_4_healthy.json"), "--expect", "9")["verdict"] == "FAILED"


@pytest.mark.parametrize("name", sorted(set(COMMANDS.values())))
def test_a_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    result = RUN.invoke(app, [name, str(tmp_path / "nothing")])

    assert result.exit_code == 2
    assert "nothing" in result.stderr
    assert "No such file" in result.stderr


def test_a_directory_is_no_output_of_dcgm(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["dcgm-diag", str(tmp_path)])

    assert result.exit_code == 2
    assert "directory" in result.stderr


def test_a_tree_of_neuron_devices_is_read(tmp_path: Path) -> None:
    healthy = sysfs(tmp_path / "healthy", golden("neuron_sysfs_healthy.txt"))
    sick = sysfs(tmp_path / "sick", golden("neuron_sysfs_sick.txt"))

    assert parsed("neuron", str(healthy / "devices/virtual/neuron_device"))["verdict"] == "OK"
    assert parsed("neuron", str(sick / "devices/virtual/neuron_device"))["verdict"] == "FAILED"
    assert (
        parsed("neuron", str(healthy / "devices/virtual/neuron_device/neuron0"), "--expect", "2")["verdict"] == "FAILED"
    )


def test_a_tree_of_links_that_go_in_circles_is_read_once(tmp_path: Path) -> None:
    devices = sysfs(tmp_path / "sys", golden("efa_sysfs_sick.txt")) / "class" / "infiniband"
    links = tmp_path / "class"
    links.mkdir()
    for device in devices.iterdir():
        (links / device.name).symlink_to(device)
        (device / "subsystem").symlink_to(links)

    answer = parsed("efa", str(links))

    assert [finding["code"] for finding in answer["findings"]] == ["rdma_write_wr_err", "LINK_DOWN"]


def test_a_device_is_not_left_by_its_link_to_the_bus(tmp_path: Path) -> None:
    devices = sysfs(tmp_path / "sys", golden("efa_sysfs_sick.txt")) / "class" / "infiniband"
    healthy = devices / "rdmap80s0"
    (healthy / "device").symlink_to(devices)

    assert parsed("efa", str(healthy))["verdict"] == "OK"


def test_an_empty_tree_is_not_health(tmp_path: Path) -> None:
    assert parsed("neuron", str(tmp_path))["verdict"] == "UNKNOWN"
    assert parsed("efa", str(tmp_path))["verdict"] == "UNKNOWN"


def test_a_link_that_is_down_leads_to_an_act_only_where_the_links_are_up(tmp_path: Path) -> None:
    file = tmp_path / "health.json"
    system = {"NVLink system": {"overflow": ["GPU 6's NvLink link 2 is currently down"], "value": "Failure"}}
    gpu = {"children": {"Errors": {"children": system}}, "value": "Failure"}
    body = {"GPU": {"children": {"6": gpu}}, "Overall Health": {"value": "Failure"}}
    file.write_text(json.dumps({"body": body}))

    def told(*options: str) -> list[tuple[str, str]]:
        findings = parsed("dcgm-health", str(file), *options)["findings"]
        return [(finding["verdict"], finding["action"]) for finding in findings]

    assert told() == [("UNKNOWN", "ESCALATE")]
    assert told("--nvlinks", "up") == [("FAILED", "REBOOT")]
    assert told("--nvlinks", "absent") == []
    left_out = "errors of NVLinks are left out, as this machine has no NVLinks; the host engine sees no other fault"
    assert parsed("dcgm-health", str(file), "--nvlinks", "absent")["reason"] == left_out
