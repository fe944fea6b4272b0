"""The install document's script, run with sh against a folder that stands for the node's root.

Python and pip are stubs here; tests/infrastructure/test_agent_release.py runs the same script with the real ones.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nodeheal import __version__
from nodeheal.agent.units import NAMES
from sandbox.toml import toml
from tests.support.agent_fakes import NodeFolder
from tests.support.node_root import DOCUMENT, REPOSITORY, NodeRoot, executable, script_of

# The versions that the wheelhouse of these tests holds. pip cannot install BROKEN; the agent of CRASHES ends at once.
FIRST, SECOND, BROKEN, CRASHES = "1.0", "2.0", "3.0", "4.0"
PYTHON = """#!/bin/sh
case "$2 $3" in
  "-c "*) ;;
  "- "*) cp "$ROOT/wheelhouse.zip" "$7" ;;
  "-m zipfile")
    for version in 1.0 2.0 3.0 4.0; do
      : > "$6/requirements-$version.txt"; : > "$6/nodeheal-$version.whl"
    done
    : > "$6/pip-1.whl" ;;
  "-m venv")
    [ "$4" = --without-pip ] || { echo "ensurepip is not available" >&2; exit 1; }  # as Debian's Python says
    mkdir -p "$5/bin"
    cp "$0" "$5/bin/python"
    cp "$ROOT/agent-stub" "$5/bin/nodeheal-agent" ;;
  *"/pip-1.whl/pip --isolated")
    for requirements; do :; done
    version=${requirements##*requirements-}
    echo "$@" >> "$ROOT/pip.log"
    [ "$version" != 3.0.txt ] || { echo "hashes do not match" >&2; exit 1; }
    echo "${version%.txt}" > "${0%/bin/python}/package" ;;
  *) echo "not a call of the script: $*" >&2; exit 64 ;;
esac
"""
AGENT = f"""#!/bin/sh
[ "$1" = --version ] || exec {sys.executable} -m nodeheal.agent.main "$@"
echo "nodeheal-agent $(cat "$ROOT/opt/nodeheal/current/package")"
"""
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
ENABLED = "nodeheal-agent.service nodeheal-credentials.path nodeheal-after-boot.service"


class Machine(NodeRoot):
    """A node whose Python is a stub."""

    def __post_init__(self) -> None:
        super().__post_init__()
        executable(self.root / "python-stub", PYTHON)
        executable(self.root / "agent-stub", AGENT)
        (self.root / "wheelhouse.zip").write_text("the wheels")
        self.checksum = hashlib.sha256(b"the wheels").hexdigest()

    def has_python(self) -> None:
        shutil.copy(self.root / "python-stub", self.tools / "python3.11")

    def run(
        self, action: str = "install", version: str = FIRST, config: str | None = None, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """As the SSM agent does. No config: the node's own."""
        document = json.loads(DOCUMENT.read_text().replace("@SHA256@", self.checksum))
        return self.send(document, action, version, config, PYTHONPATH=str(REPOSITORY), **environment)

    @property
    def runs(self) -> str:
        """What was installed, where the units find it."""
        assert (self.base / "bin" / "nodeheal-agent").exists()
        return (self.base / "current" / "package").read_text().strip()


@pytest.fixture
def machine(tmp_path: Path, node: NodeFolder) -> Machine:
    it = Machine(tmp_path / "root", node.config())
    it.has_python()
    return it


def test_a_node_gets_the_agent_its_units_its_user_and_its_configuration(machine: Machine) -> None:
    ended = machine.run()

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == f"nodeheal-agent {FIRST}: active"
    assert {path.name for path in (machine.root / "etc/systemd/system").iterdir()} == set(NAMES)
    assert (machine.root / "users").read_text() == "nodeheal\n"
    assert (machine.settings / "agent.toml").read_text() == toml(machine.config)
    assert sorted(path.name for path in machine.settings.iterdir()) == ["agent.toml", "checks.d"]
    assert f"enable -q {ENABLED}" in machine.log("systemctl")


def test_the_agents_user_may_read_the_configuration_and_write_its_state_and_nothing_else(machine: Machine) -> None:
    machine.run()

    modes = {
        path: (machine.root / path).stat().st_mode & 0o777
        for path in ("etc/nodeheal/agent.toml", "etc/nodeheal/checks.d", "var/lib/nodeheal", "var/lib/nodeheal-orders")
    }
    assert modes == {
        "etc/nodeheal/agent.toml": 0o640,
        "etc/nodeheal/checks.d": 0o755,
        "var/lib/nodeheal": 0o700,
        "var/lib/nodeheal-orders": 0o700,
    }
    given = [line.replace(str(machine.root), "") for line in machine.log("chown")]
    assert given == ["nodeheal:nodeheal /var/lib/nodeheal", "root:nodeheal /etc/nodeheal/.agent.toml.new"]


def test_a_second_run_of_the_same_restarts_nothing(machine: Machine) -> None:
    """State Manager runs it every day."""
    config = toml({key: value for key, value in machine.config.items() if key != "node_id"})
    given = {"config": config, "AWS_SSM_INSTANCE_ID": "mi-0a1b2c3d4e5f67890"}
    machine.run(**given)
    before = (machine.log("systemctl"), machine.log("pip"), (machine.base / "current").readlink())

    ended = machine.run(**given)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == f"nodeheal-agent {FIRST}: active, as it should be; nothing was changed"
    assert (machine.log("pip"), (machine.base / "current").readlink()) == before[1:]
    assert machine.log("systemctl")[len(before[0]) :] == ["is-active -q nodeheal-agent.service"]
    assert sorted(path.name for path in machine.settings.iterdir()) == ["agent.toml", "checks.d"]


@pytest.mark.parametrize("changed", ["version", "configuration", "wheelhouse"])
def test_what_is_not_the_present_one_is_installed(machine: Machine, changed: str) -> None:
    config = toml(machine.config)
    machine.run(config=config)
    before = (machine.base / "current").readlink()
    if changed == "wheelhouse":
        (machine.root / "wheelhouse.zip").write_text("other wheels")
        machine.checksum = hashlib.sha256(b"other wheels").hexdigest()
    more = toml({**machine.config, "accelerators": 4}) if changed == "configuration" else config

    ended = machine.run(version=SECOND if changed == "version" else FIRST, config=more)

    assert ended.returncode == 0, ended.stderr
    assert (machine.base / "current").readlink() != before
    assert (machine.settings / "agent.toml").read_text() == more


def test_repeated_it_upgrades_and_keeps_what_is_there(machine: Machine) -> None:
    machine.run()

    ended = machine.run(version=SECOND, config="")

    assert ended.returncode == 0, ended.stderr
    assert machine.runs == SECOND
    assert (machine.settings / "agent.toml").read_text() == toml(machine.config)
    assert len(list((machine.base / "versions").iterdir())) == 1
    assert len(machine.log("useradd")) == 1


@pytest.mark.parametrize(
    ("version", "config", "why"),
    [
        ("9.9", "", "does not hold nodeheal 9.9; it holds: nodeheal-1.0.whl nodeheal-2.0.whl"),
        (BROKEN, "", "pip cannot install nodeheal 3.0; its message is above"),
        (SECOND, "node = 1", "unknown key 'node'"),
        (CRASHES, "", "the version before it runs again"),
    ],
)
def test_an_upgrade_that_fails_leaves_the_old_agent_running(
    machine: Machine, version: str, config: str, why: str
) -> None:
    machine.run()

    ended = machine.run(version=version, config=config)

    assert ended.returncode != 0
    assert why in ended.stderr
    assert machine.runs == FIRST
    assert (machine.settings / "agent.toml").read_text() == toml(machine.config)
    assert len(list((machine.base / "versions").iterdir())) == 1
    restarted = [line for line in machine.log("systemctl") if line == "restart nodeheal-agent.service"]
    assert len(restarted) == (3 if version == CRASHES else 1)


def test_an_upgrade_heals_a_node_whose_agent_has_crashed_again_and_again(machine: Machine) -> None:
    machine.run()
    (machine.root / "restarts").write_text("NRestarts=57\n")  # systemd's count, which outlives a restart

    ended = machine.run(version=SECOND, config="")

    assert ended.returncode == 0, ended.stderr
    assert machine.runs == SECOND


def test_an_upgrade_that_crashes_with_a_new_configuration_goes_back_to_the_old_one(machine: Machine) -> None:
    machine.run()

    machine.run(version=CRASHES, config=toml({**machine.config, "pool": "b200"}))

    assert (machine.settings / "agent.toml").read_text() == toml(machine.config)


def test_what_an_install_that_was_killed_has_left_is_gone_after_the_next(machine: Machine) -> None:
    machine.run()
    (machine.base / "versions" / "1-1" / "bin").mkdir(parents=True)
    (machine.base / ".current.new").symlink_to("versions/1-1")
    (machine.settings / ".agent.toml.new").write_text("half")
    (machine.settings / ".agent.toml.old").write_text("old")

    ended = machine.run(version=SECOND, config="")

    assert ended.returncode == 0, ended.stderr
    assert machine.runs == SECOND
    assert len(list((machine.base / "versions").iterdir())) == 1
    assert sorted(path.name for path in machine.settings.iterdir()) == ["agent.toml", "checks.d"]


def test_the_first_install_needs_a_configuration(machine: Machine) -> None:
    ended = machine.run(config="")

    assert ended.returncode == 1
    assert "/etc/nodeheal/agent.toml: give Config" in ended.stderr
    assert not (machine.root / "etc/systemd").exists()


def test_a_first_agent_that_does_not_stay_up_is_told_with_its_last_words(machine: Machine) -> None:
    ended = machine.run(version=CRASHES)

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-2:] == [
        "the last words",
        "nodeheal: the agent does not stay up; its log is above, and it is not installed",
    ]


def test_a_first_agent_that_does_not_stay_up_is_not_started_again_and_again(machine: Machine) -> None:
    machine.run(version=CRASHES)

    assert list((machine.root / "etc/systemd/system").iterdir()) == []
    assert f"disable --now {ENABLED}" in machine.log("systemctl")
    assert list((machine.base / "versions").iterdir()) == []
    assert not (machine.base / "bin").is_symlink()
    assert list(machine.settings.iterdir()) == []


def test_a_first_agent_that_does_not_stay_up_leaves_the_configuration_that_was_there(machine: Machine) -> None:
    machine.settings.mkdir(parents=True)
    (machine.settings / "agent.toml").write_text(toml(machine.config))

    machine.run(version=CRASHES, config=toml({**machine.config, "pool": "b200"}))

    assert (machine.settings / "agent.toml").read_text() == toml(machine.config)
    assert [path.name for path in machine.settings.iterdir()] == ["agent.toml"]


def test_after_a_first_agent_that_did_not_stay_up_the_next_is_installed(machine: Machine) -> None:
    machine.run(version=CRASHES)

    ended = machine.run()

    assert ended.returncode == 0, ended.stderr
    assert machine.runs == FIRST


def test_amazon_linux_brings_a_python_that_is_new_enough(machine: Machine) -> None:
    (machine.tools / "python3.11").unlink()
    (machine.root / "amazon-linux").touch()

    ended = machine.run()

    assert ended.returncode == 0, ended.stderr
    assert machine.runs == FIRST


def test_a_node_whose_distribution_has_no_new_python_is_told_so(machine: Machine) -> None:
    (machine.tools / "python3.11").unlink()

    ended = machine.run()

    assert ended.returncode == 1
    assert "needs Python 3.11 or newer, and the repositories of this distribution have none" in ended.stderr
    assert machine.left_versions == []


def test_a_download_that_is_not_the_wheelhouse_of_the_document_is_not_used(machine: Machine) -> None:
    machine.run()
    (machine.root / "wheelhouse.zip").write_text("other wheels")

    ended = machine.run(version=SECOND)

    assert ended.returncode == 1
    assert f"its SHA-256 is {hashlib.sha256(b'other wheels').hexdigest()}, expected {machine.checksum}" in ended.stderr
    assert machine.runs == FIRST
    assert len(machine.log("pip")) == 1


def test_pip_uses_no_index_and_asks_for_hashes(machine: Machine) -> None:
    machine.run()

    [words] = machine.log("pip")
    assert "--isolated install" in words
    assert " --no-index " in words
    assert " --require-hashes " in words


def test_the_script_leaves_the_ssm_agents_working_directory_before_it_runs_python() -> None:
    """The SSM agent runs it in /usr/bin, and an interpreter without -I looks for modules where it is started."""
    lines = script_of(DOCUMENT).splitlines()

    assert lines.index("cd /") < next(number for number, line in enumerate(lines) if "python" in line)


@pytest.mark.parametrize(("node_id", "provider"), [("mi-0a1b2c3d4e5f67890", "hybrid"), ("i-0a1b2c3d4e5f67890", "ec2")])
def test_one_configuration_serves_many_nodes(machine: Machine, node_id: str, provider: str) -> None:
    shared = 'cluster = "training"\nscheduler = "ECS"\npool = "h100"\n\n[labels]\nregion = "not the key of the agent"\n'

    ended = machine.run(config=shared, AWS_SSM_INSTANCE_ID=node_id, AWS_SSM_REGION_NAME="eu-central-1")

    assert ended.returncode == 0, ended.stderr
    own = f'node_id = "{node_id}"\nregion = "eu-central-1"\nprovider = "{provider}"\n'
    assert (machine.settings / "agent.toml").read_text() == own + shared


def test_a_key_that_the_configuration_has_is_kept(machine: Machine) -> None:
    ended = machine.run(AWS_SSM_INSTANCE_ID="i-0a1b2c3d4e5f67890", AWS_SSM_REGION_NAME="us-east-1")

    assert ended.returncode == 0, ended.stderr

    assert (machine.settings / "agent.toml").read_text() == toml(machine.config)


def test_removed_it_leaves_nothing(machine: Machine) -> None:
    machine.run()
    for left in ("run/nodeheal/checkpoint", "run/nodeheal-agent", "etc/systemd/system/nodeheal-agent.service.d"):
        (machine.root / left).mkdir(parents=True)

    ended = machine.run("remove", config="")

    assert ended.returncode == 0, ended.stderr
    assert machine.left == []
    assert (machine.root / "users").read_text() == ""
    assert any(line.startswith("stop nodeheal-retry.timer ") for line in machine.log("systemctl"))
    assert f"disable --now {ENABLED}" in machine.log("systemctl")


def test_removed_it_is_not_wanted_any_more_though_its_units_were_gone_before(machine: Machine) -> None:
    machine.run()
    wants = machine.root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    for unit in (*NAMES, "ssh.service"):
        (wants / unit).symlink_to(f"/etc/systemd/system/{unit}")
    for unit in NAMES:
        (machine.root / "etc/systemd/system" / unit).unlink()

    ended = machine.run("remove", config="")

    assert ended.returncode == 0, ended.stderr
    assert [path.name for path in wants.iterdir()] == ["ssh.service"]


@pytest.mark.parametrize("process", ["one that ends", "one that the driver holds"])
def test_removed_it_leaves_no_user_whatever_he_still_runs(machine: Machine, process: str) -> None:
    machine.run()
    (machine.root / "processes").write_text(f"{process}\n")

    ended = machine.run("remove", config="")

    assert ended.returncode == 0, ended.stderr
    assert (machine.root / "users").read_text() == ""
    assert ("in use" in ended.stderr) == ("holds" in process)  # who can be ended is, and nothing is forced then
    assert machine.left == []


def test_removing_what_is_not_there_is_no_failure(machine: Machine) -> None:
    first, second = machine.run("remove", config=""), machine.run("remove", config="")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr


def test_a_folder_that_was_made_by_hand_is_not_replaced(machine: Machine) -> None:
    (machine.base / "bin").mkdir(parents=True)

    ended = machine.run()

    assert ended.returncode == 1
    assert "made by hand" in ended.stderr


def test_only_root_installs(machine: Machine) -> None:
    ended = machine.run(FAKE_UID="1000")

    assert (ended.returncode, ended.stderr) == (1, "nodeheal: needs root\n")


def test_this_version_is_installed_unless_another_is_named() -> None:
    parameters = json.loads(DOCUMENT.read_text())["parameters"]

    assert parameters["Version"]["default"] == __version__
    assert re.search(parameters["Version"]["allowedPattern"], parameters["Version"]["default"])
    for package in ("nodeheal", "--index-url=https://example.org", "1.0 other", "../1.0", "1'.0"):
        assert not re.search(parameters["Version"]["allowedPattern"], package)


def test_nothing_comes_from_a_public_index_or_a_release_page() -> None:
    text = DOCUMENT.read_text()

    assert re.findall(r"https?://|github|pypi|curl|wget|index-url", text) == []


@pytest.mark.skipif(SHELLCHECK is None, reason="needs shellcheck")
@pytest.mark.parametrize("name", sorted(path.stem for path in DOCUMENT.parent.iterdir()))
def test_shellcheck_has_nothing_to_say_against_the_script(name: str, tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text(script_of(DOCUMENT.with_name(f"{name}.json")))

    checked = subprocess.run([str(SHELLCHECK), str(script)], capture_output=True, text=True, timeout=60, check=False)

    assert checked.stdout == ""
