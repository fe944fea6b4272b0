"""What lies in packaging/ does what its pages say."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGING = Path(__file__).parents[3] / "packaging"
UNIT = PACKAGING / "systemd" / "nodeheal-agent.service"


@pytest.mark.parametrize(
    "name", ["checkpoint-now", "freeze-evidence", "inject-dcgm", "inject-fault", "reboot-node", "run-diagnostics"]
)
def test_every_parameter_of_a_document_is_held_to_what_a_shell_can_take(name: str) -> None:
    document = json.loads((PACKAGING / "ssm" / f"{name}.json").read_text())

    assert document["schemaVersion"] == "2.2"
    for parameter in document["parameters"].values():
        allowed = "".join(parameter.get("allowedValues", [])) + parameter.get("allowedPattern", "")
        assert allowed
        assert not set("'\"$`\\;&|<> \n").intersection(allowed.removesuffix("$"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_has_nothing_to_say_against_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/nodeheal/bin/nodeheal-agent", "/bin/true"))

    verified = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )

    assert verified.stderr == ""  # a misspelt key is only complained about, not refused
