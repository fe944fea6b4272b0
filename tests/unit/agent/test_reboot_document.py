"""The reboot document's script, run with sh as the SSM agent runs it."""

import json
import subprocess
import time
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[3] / "packaging" / "ssm" / "reboot-node.json"
REBOOT_REQUESTED = 194  # the SSM agent reboots the node and runs the script again


def reboot_script(boot_id: str, expires_at: int) -> str:
    document = json.loads(DOCUMENT.read_text())
    script = "\n".join(document["mainSteps"][0]["inputs"]["runCommand"])
    return script.replace("{{ BootId }}", boot_id).replace("{{ ExpiresAt }}", str(expires_at))


def run(script: str, boot_id_file: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-c", script],
        env={"NODEHEAL_BOOT_ID_FILE": str(boot_id_file), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def boot_id_file(tmp_path: Path) -> Path:
    path = tmp_path / "boot_id"
    path.write_text("11111111-2222-3333-4444-555555555555\n")
    return path


def test_the_boot_that_is_meant_is_ended(boot_id_file: Path) -> None:
    ended = run(reboot_script("11111111-2222-3333-4444-555555555555", int(time.time()) + 60), boot_id_file)

    assert ended.returncode == REBOOT_REQUESTED


def test_a_node_that_has_rebooted_is_left_alone_even_by_an_expired_command(boot_id_file: Path) -> None:
    for expires_at in (int(time.time()) + 60, 1):
        ended = run(reboot_script("99999999-2222-3333-4444-555555555555", expires_at), boot_id_file)

        assert (ended.returncode, ended.stdout.partition(":")[0]) == (0, "already rebooted")


def test_an_expired_command_is_refused(boot_id_file: Path) -> None:
    ended = run(reboot_script("11111111-2222-3333-4444-555555555555", int(time.time())), boot_id_file)

    assert ended.returncode == 3
    assert "expired" in ended.stderr


def test_a_node_whose_boot_is_unknown_is_not_rebooted(tmp_path: Path) -> None:
    ended = run(reboot_script("11111111-2222-3333-4444-555555555555", int(time.time()) + 60), tmp_path / "nowhere")

    assert ended.returncode == 1
