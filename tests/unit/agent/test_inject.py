"""`nodeheal-agent run inject`: a drill is written where the agent reads, and only where drills are taken."""

import base64
import json
import time
from pathlib import Path

import pytest

from nodeheal.contract.names import DRILL_MARK
from nodeheal.parsers.kernel_line import parse_message, parse_syslog_line
from sandbox.toml import toml
from tests.support.agent_fakes import NodeFolder
from tests.unit.agent.documents import Ended, run_document

REPOSITORY = Path(__file__).parents[3]
XID_79 = f'NVRM: Xid (PCI:0000:b9:00): 79, pid=<unknown>, name=<unknown>, it\'s a "drill"; $(reboot) {DRILL_MARK}'


def log_of(node: NodeFolder, kind: str = "file", drills: bool = True) -> Path:
    """The node's kernel log, with the configuration that names it."""
    log = node.directory / "injected.log"
    log.touch()
    changes = {"kernel_log": [{"kind": kind, "path": str(log)}], "drills": drills}
    node.config_file.write_text(toml(node.config() | changes))
    return log


def inject(node: NodeFolder, line: str | bytes = XID_79, boot: str = "boot-1", expires_in: float = 60) -> Ended:
    """As the SSM document does."""
    raw = line if isinstance(line, bytes) else line.encode()
    encoded = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    values = {"Line": encoded, "BootId": boot, "ExpiresAt": str(int(time.time() + expires_in))}
    return run_document(node, "inject-fault", values)


def test_a_drill_reads_as_the_kernels_own_line(node: NodeFolder) -> None:
    log = log_of(node)

    ended = inject(node)

    assert ended.returncode == 0, ended.stderr
    assert parse_syslog_line(log.read_bytes().rstrip(b"\n")) == parse_message(XID_79)
    assert json.loads(ended.stdout)["injected"] == XID_79


def test_to_the_device_it_is_one_record(node: NodeFolder) -> None:
    log = log_of(node, kind="kmsg")

    inject(node)

    assert log.read_text() == f"<3>{XID_79}\n"


@pytest.mark.parametrize(
    ("line", "boot", "expires_in", "drills", "why"),
    [
        (XID_79, "boot-2", 60, True, "meant for boot boot-2"),
        (XID_79, "boot-1", -1, True, "expired"),
        (XID_79, "boot-1", 60, False, "set `drills = true` in its configuration"),
        ("NVRM: Xid (PCI:0000:b9:00): 79", "boot-1", 60, True, "lacks the mark of a drill"),
        (f"{DRILL_MARK}\nNVRM: Xid (PCI:0000:b9:00): 79", "boot-1", 60, True, "not one of 1 to 800 printable"),
        (b"\xff\xfe", "boot-1", 60, True, "not one of 1 to 800 printable"),
        (DRILL_MARK * 60, "boot-1", 60, True, "not one of 1 to 800 printable"),
    ],
)
def test_what_is_stale_unwanted_or_no_drill_is_refused(
    node: NodeFolder, line: str | bytes, boot: str, expires_in: float, drills: bool, why: str
) -> None:
    log = log_of(node, drills=drills)

    ended = inject(node, line, boot, expires_in)

    assert (ended.returncode, why in ended.stderr) == (3, True), ended.stderr
    assert log.read_text() == ""
