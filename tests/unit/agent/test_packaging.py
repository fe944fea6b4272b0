"""What lies in packaging/ does what its pages say."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nodeheal.agent import units
from nodeheal.agent.commands.command_line import EXIT_CANNOT_START, EXIT_CONFIG
from nodeheal.agent.commands.copy_credentials import SOURCE
from nodeheal.agent.runtime.config import AgentConfig

PACKAGING = Path(__file__).parents[3] / "packaging"
UNIT_FOLDER = Path(units.__file__).parent
UNITS = [UNIT_FOLDER / name for name in units.NAMES]


@pytest.mark.parametrize("name", sorted(path.stem for path in (PACKAGING / "ssm").iterdir()))
def test_every_parameter_of_a_document_is_held_to_what_a_shell_can_take(name: str) -> None:
    document = json.loads((PACKAGING / "ssm" / f"{name}.json").read_text())

    assert document["schemaVersion"] == "2.2"
    for parameter in document["parameters"].values():
        # The bar between words is of the pattern; test_ssm_documents shows that no value may hold one.
        pattern = re.sub(r"\\([][])", r"\1", parameter.get("allowedPattern", "")).replace("|", "")
        allowed = "".join(parameter.get("allowedValues", [])) + pattern
        assert allowed
        assert not set("'\"$`\\;&|<> \n").intersection(allowed.removesuffix("$"))


def test_systemd_has_nothing_to_say_against_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/nodeheal/bin/nodeheal-agent", "/bin/true"))

    verified = systemd_analyze("verify", *(str(tmp_path / unit.name) for unit in UNITS))

    assert verified.stderr == ""  # a misspelt key is only complained about, not refused


# Of 10. Each systemd rates a little differently: 252 says 2.8 and 1.9.
@pytest.mark.parametrize(("unit", "exposure"), [("nodeheal-agent.service", 3.0), ("nodeheal-credentials.service", 2.0)])
def test_systemd_finds_the_units_as_little_exposed_as_they_can_be(unit: str, exposure: float) -> None:
    if "--offline" not in systemd_analyze("--help").stdout:
        pytest.skip("this systemd-analyze rates no files")

    rated = systemd_analyze("security", "--offline=true", "--no-pager", str(UNIT_FOLDER / unit))

    assert float(rated.stdout.rpartition(f"exposure level for {unit}: ")[2].split()[0]) <= exposure


def test_every_unit_goes_where_systemd_looks(tmp_path: Path) -> None:
    units.write_units(tmp_path / "system", "/srv/agent/bin/")

    assert {path.name for path in (tmp_path / "system").iterdir()} == {
        path.name for path in UNIT_FOLDER.iterdir() if path.name.startswith("nodeheal-")
    }
    assert "ExecStart=/srv/agent/bin/nodeheal-agent watch\n" in (tmp_path / "system" / UNITS[0].name).read_text()


def test_the_agent_has_one_power_of_roots() -> None:
    agent = (UNIT_FOLDER / "nodeheal-agent.service").read_text()

    assert "\nUser=nodeheal\n" in agent
    assert "\nAmbientCapabilities=CAP_SYSLOG\nCapabilityBoundingSet=CAP_SYSLOG\n" in agent


def test_the_agent_reads_the_copy_that_root_makes_where_no_task_can_see_it() -> None:
    agent, copies = ((UNIT_FOLDER / f"nodeheal-{name}.service").read_text() for name in ("agent", "credentials"))
    copy = "/run/nodeheal-agent/credentials"

    assert f"AWS_SHARED_CREDENTIALS_FILE={copy}\n" in agent
    assert f"--to {copy} --owner nodeheal\n" in copies
    assert not copy.startswith(str(Path(AgentConfig.checkpoint_dir).parent) + "/")  # tasks mount that


def test_every_rotation_may_start_the_copy_again() -> None:
    copies = (UNIT_FOLDER / "nodeheal-credentials.service").read_text()

    assert "\nStartLimitIntervalSec=0\n" in copies  # else five restarts of the agent end the path unit for good
    assert "RemainAfterExit" not in copies
    assert f"PathChanged={SOURCE}\n" in (UNIT_FOLDER / "nodeheal-credentials.path").read_text()


def test_an_agent_that_cannot_start_is_not_tried_every_two_seconds_but_again_some_day() -> None:
    agent, retry = ((UNIT_FOLDER / name).read_text() for name in ("nodeheal-agent.service", "nodeheal-retry.timer"))

    assert f"\nRestartPreventExitStatus={EXIT_CANNOT_START} {EXIT_CONFIG}\n" in agent
    assert "\nRestart=always\n" in agent  # whatever else it ends by
    assert "\nOnFailure=nodeheal-retry.timer\n" in agent.partition("[Service]")[0]
    assert "\nUnit=nodeheal-agent.service\n" in retry
    assert "\nPartOf=nodeheal-agent.service\n" in retry.partition("[Timer]")[0]  # who stops the agent, stops it all


def systemd_analyze(*arguments: str) -> "subprocess.CompletedProcess[str]":
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False)
