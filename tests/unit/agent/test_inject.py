"""`nodeheal-agent run inject`: a drill is written where the agent reads, and only where drills are taken."""

import json
from pathlib import Path

import pytest

from nodeheal.contract.names import DRILL_MARK
from nodeheal.parsers.kernel_line import parse_message, parse_syslog_line
from tests.support.agent_commands import XID_79, inject, log_of
from tests.support.agent_fakes import NodeFolder

REPOSITORY = Path(__file__).parents[3]


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
