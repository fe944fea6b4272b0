"""`nodeheal-agent run evidence`, run as the SSM document runs it, with tools that answer what a test wants."""

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodeheal.agent.node_commands.evidence import LONGEST_SECONDS, FreezeEvidenceCommand, freeze_evidence
from nodeheal.agent.runtime import probe
from nodeheal.agent.runtime.clock import Clock
from nodeheal.agent.runtime.compose import event_bus, open_spool
from nodeheal.agent.runtime.config import load
from nodeheal.agent.transport.upload import BadTicket, NotUploaded, Ticket, read_ticket, upload
from nodeheal.contract.health_event import EvidenceFrozen
from nodeheal.contract.steps import Accusation
from nodeheal.contract.vocabulary import Confirmation
from nodeheal.domain.policy.policy_models import Evidence
from tests.support.agent_fakes import PATIENCE_SECONDS, XID_79, FakeEventBridge, NodeFolder, kernel_line
from tests.support.evidence_bucket import KEY, FakeBucket, bucket

__all__ = ["bucket"]  # fixtures

REPOSITORY = Path(__file__).parents[3]
XID_74 = "NVRM: Xid (PCI:0000:b9:00): 74, pid=1, NVLink: fatal error detected on link 3"
MIB = 1024 * 1024


@dataclass
class Witness:
    """One node with tools, and where its evidence goes."""

    node: NodeFolder
    bucket: FakeBucket

    def __post_init__(self) -> None:
        self.tools = self.node.directory / "tools"
        self.tools.mkdir()

    def has(self, name: str, script: str) -> None:
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(
        self, *more: str, boot_id: str = "boot-1", seconds: float = 20, ticket: str | None = None, accused: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        order = ["--request-id", "inc-1-2", "--boot-id", boot_id, "--expires-at", str(time.time() + seconds)]
        return subprocess.run(
            [sys.executable, "-m", "nodeheal.agent.main", "run", "evidence", *order, "--upload", "-", *more],
            env={**self.node.environment(), "PATH": f"{self.tools}:{os.defpath}", "NODEHEAL_ACCUSED": accused},
            input=ticket or self.bucket.ticket,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def witness(node: NodeFolder, bucket: FakeBucket) -> Witness:
    return Witness(node, bucket)


def accused_of(code: str, **changes: str) -> str:
    """A fault as the control plane names it in a command."""
    known = {"family": "xid", "code": code, "component": "0000:b9:00.0", "boot_id": "boot-1", "source": "kernel_log"}
    asked = Accusation.model_validate({**known, **changes}).model_dump_json().encode()
    return base64.urlsafe_b64encode(asked).decode().rstrip("=")


def reported(bus: FakeEventBridge) -> EvidenceFrozen:
    [event] = bus.details("Evidence Frozen")
    return EvidenceFrozen.model_validate(event)


def test_what_the_node_can_tell_is_uploaded_under_the_one_key_and_reported(
    witness: Witness, bucket: FakeBucket, bus: FakeEventBridge
) -> None:
    witness.node.logs(kernel_line(XID_79))
    witness.has("nvidia-smi", "echo '<nvidia_smi_log/>'")

    ended = witness.run()

    assert ended.returncode == 0, ended.stderr
    event = reported(bus)
    assert (event.request_id, event.boot_id, event.object_key) == ("inc-1-2", "boot-1", KEY)
    assert event.size_bytes == len(bucket.forms[0]["file"])
    assert list(bucket.forms[0])[-1] == "file"  # S3 takes no notice of what comes behind it
    names = bucket.archive().getnames()
    assert {"manifest.json", "kernel-log-0.txt", "nvidia-smi.xml", "processes.txt", "mounts.txt"} <= set(names)
    assert event.items == len(names) - 1
    assert json.loads(ended.stdout)["object_key"] == KEY


def test_the_ticket_is_in_no_process_list_and_in_no_archive(witness: Witness, bucket: FakeBucket) -> None:
    witness.has("nvidia-smi", "ps axo args")

    witness.run()

    archive = bucket.archive()
    texts = [file.read() for name in archive.getnames() if (file := archive.extractfile(name))]
    assert any(b"nodeheal.agent.main run evidence" in text for text in texts)
    assert not any(bucket.ticket.encode() in text for text in texts)


def test_a_tool_that_hangs_is_given_up_and_named(witness: Witness, bucket: FakeBucket, bus: FakeEventBridge) -> None:
    witness.has("dcgmi", "sleep 300")

    ended = witness.run(seconds=5)

    assert ended.returncode == 0, ended.stderr
    assert bucket.item("dcgm-health.json")["error"].startswith("no answer within")
    assert {"dcgm-health.json", "dcgm-fields.txt"} <= set(reported(bus).failed)


def test_a_tool_that_talks_for_ever_is_cut_off_and_says_so(
    witness: Witness, bucket: FakeBucket, bus: FakeEventBridge
) -> None:
    witness.has("dmesg", "exit 0")
    witness.has("nvidia-smi", 'case "$1" in nvlink) exec cat /dev/zero;; esac')

    witness.run()

    item = bucket.item("nvlink-errors.txt")
    assert (item["truncated"], item["bytes"]) == (True, 2 * MIB)
    assert "nvlink-errors.txt" in reported(bus).failed


def test_an_archive_that_gets_too_big_goes_without_its_biggest_files(
    witness: Witness, bucket: FakeBucket, bus: FakeEventBridge
) -> None:
    witness.has("nvidia-smi", "head -c 1000000 /dev/urandom")

    witness.run("--max-bytes", "200000")

    assert len(bucket.forms[0]["file"]) <= 200_000
    assert bucket.item("nvidia-smi.xml")["error"] == "left out: no room in the archive"
    assert "nvidia-smi.xml" not in bucket.archive().getnames()
    assert "nvidia-smi.xml" in reported(bus).failed


def test_a_tool_that_is_not_there_is_no_failure(witness: Witness, bucket: FakeBucket, bus: FakeEventBridge) -> None:
    witness.run()

    assert bucket.item("neuron-ls.json")["error"] == "not installed"
    assert "neuron-ls.json" not in reported(bus).failed


@pytest.mark.parametrize("end", ['"}]}]', ""])  # whole, and cut off
def test_the_commands_that_neuron_ls_names_lose_their_arguments(
    witness: Witness, bucket: FakeBucket, node: NodeFolder, end: str
) -> None:
    said = r'[{"neuron_processes": [{"pid": 7, "command": "/opt/bin/python t.py --say \"hi\" --token s3cret'
    (node.directory / "listed").write_text(said + end)
    witness.has("neuron-ls", f"cat {node.directory / 'listed'}")

    witness.run()

    kept = bucket.archive().extractfile("neuron-ls.json")
    assert kept is not None
    assert kept.read().decode() == said.partition(" t.py")[0] + end


def test_the_bug_report_is_made_only_where_it_is_asked_for(witness: Witness, bucket: FakeBucket) -> None:
    witness.has("nvidia-bug-report.sh", "echo hello > nvidia-bug-report.log.gz")

    witness.run()
    before = bucket.archive().getnames()
    witness.run("--bug-report", "yes")

    assert "nvidia-bug-report.log.gz" not in before
    assert "nvidia-bug-report.log.gz" in bucket.archive().getnames()


def test_a_bucket_that_refuses_is_reported_with_its_own_words(
    witness: Witness, bucket: FakeBucket, bus: FakeEventBridge
) -> None:
    bucket.status = 403

    ended = witness.run()

    event = reported(bus)
    assert ended.returncode == 0
    assert (event.object_key, event.size_bytes) == (None, 0)
    assert "403" in event.reason
    assert "AccessDenied" in event.reason


@dataclass
class Dripper:
    """One who never ends what it does, and is never silent for long. `takes`: it reads what it is sent, to the end."""

    takes: bool

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.is_patient, self.has_heard_the_end = threading.Event(), threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def ticket(self) -> Ticket:
        return Ticket(f"http://127.0.0.1:{self._listener.getsockname()[1]}/evidence", {"key": KEY})

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, contextlib.suppress(OSError):
            while self.takes and not connection.recv(1 << 20).endswith(b"--\r\n"):
                pass
            while True:
                self.is_patient.wait(0.05)
                if self.takes:
                    connection.sendall(b"H")
                elif not connection.recv(1024):
                    break
        self.has_heard_the_end.set()


@pytest.mark.parametrize(
    ("takes", "came_to"), [(True, "all was sent and no whole answer came"), (False, "of 20971520 bytes were taken")]
)
def test_one_who_drips_is_given_up_in_time_and_told_of(tmp_path: Path, takes: bool, came_to: str) -> None:
    archive, dripper, began = tmp_path / "evidence.tar.gz", Dripper(takes), time.monotonic()
    archive.write_bytes(bytes(20 * MIB))

    with pytest.raises(NotUploaded) as given_up:
        upload(archive, dripper.ticket, 1.0)

    assert 1.0 <= time.monotonic() - began < PATIENCE_SECONDS
    assert str(given_up.value).startswith("127.0.0.1: given up after 1 s, ")
    assert came_to in str(given_up.value)
    dripper.is_patient.set()
    assert dripper.has_heard_the_end.wait(PATIENCE_SECONDS)


def test_evidence_that_a_dripping_bucket_holds_up_is_answered_when_its_time_is_over(
    witness: Witness, bus: FakeEventBridge
) -> None:
    ticket = Dripper(takes=True).ticket
    text = json.dumps({"url": ticket.url, "fields": ticket.fields})
    began = time.time()

    ended = witness.run(seconds=8, ticket=base64.urlsafe_b64encode(text.encode()).decode())

    assert ended.returncode == 0, ended.stderr
    assert time.time() < began + 8 + 4  # of a busy machine
    event = reported(bus)
    assert (event.object_key, event.size_bytes) == (None, 0)
    assert "given up after" in event.reason
    assert event.items > 0


def test_a_clock_that_was_set_back_gives_evidence_no_more_time_than_the_policy_may(
    witness: Witness, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(
        "nodeheal.agent.node_commands.evidence.upload", lambda file, ticket, seconds: asked.append(seconds)
    )
    monkeypatch.setattr("nodeheal.agent.node_commands.evidence.evidence_commands", lambda *_: [])
    config, clock = load(witness.node.config_file), Clock()
    order = FreezeEvidenceCommand("inc-1-2", "boot-1", time.time() + 86_400, bucket.ticket, MIB)

    assert freeze_evidence(order, config, open_spool(config), event_bus(config, clock), clock) == 0

    assert 0 < asked[0] <= LONGEST_SECONDS
    [most] = [rule.le for rule in Evidence.model_fields["seconds"].metadata if hasattr(rule, "le")]
    assert most == LONGEST_SECONDS


def test_a_ticket_that_cannot_be_read_is_reported(witness: Witness, bus: FakeEventBridge) -> None:
    ended = witness.run(ticket="no-ticket-at-all")

    assert ended.returncode == 0
    assert "ticket" in reported(bus).reason


@pytest.mark.parametrize("stale", [{"boot_id": "another"}, {"seconds": -1}])
def test_a_stale_order_is_refused_and_not_answered(
    witness: Witness, bucket: FakeBucket, bus: FakeEventBridge, stale: dict[str, Any]
) -> None:
    ended = witness.run(**stale)

    assert ended.returncode == 3
    assert bus.details("Evidence Frozen") == []
    assert bucket.forms == []


def test_nothing_is_left_on_the_node(witness: Witness) -> None:
    killed, running = (witness.node.orders_dir / "evidence" / name for name in ("killed", "running"))
    for folder in (killed, running):
        folder.mkdir(parents=True)
    os.utime(killed, (0, 0))

    witness.run()

    assert list((witness.node.orders_dir / "evidence").iterdir()) == [running]


def test_a_disk_that_cannot_be_written_is_an_answer(witness: Witness, bus: FakeEventBridge) -> None:
    witness.node.orders_dir.mkdir(exist_ok=True)
    (witness.node.orders_dir / "evidence").write_text("a file where a folder should be")

    ended = witness.run()

    assert ended.returncode == 0
    assert "evidence" in reported(bus).reason


@pytest.mark.parametrize("text", ["", "%%%", "e30", base64.urlsafe_b64encode(b'{"url": "file:///x", "fields": {}}')])
def test_only_a_ticket_for_a_bucket_is_a_ticket(text: Any) -> None:
    with pytest.raises(BadTicket):
        read_ticket(text if isinstance(text, str) else text.decode())


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 40_000,
        b'{"secret": "AKID\xff"}',
        b'{"url": "http://[::1", "fields": {"key": "secret"}}',
        b'{"url": "http://host:port/", "fields": {"key": "secret"}}',
    ],
    ids=["deep", "bytes", "bracket", "port"],
)
def test_what_is_no_ticket_is_refused_without_being_shown(content: bytes) -> None:
    with pytest.raises(BadTicket) as refused:
        read_ticket(base64.urlsafe_b64encode(content).decode())

    assert "secret" not in str(refused.value)


def test_a_probe_that_cannot_be_run_says_why(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("")

    assert probe.run([str(tmp_path / "tool")], tmp_path / "out", 1, 10).error == "Permission denied"


def test_what_a_probe_complains_about_is_bounded_like_what_it_says(tmp_path: Path) -> None:
    complains = ["sh", "-c", "head -c 100000 /dev/zero >&2; exec sleep 60"]

    ran = probe.run(complains, tmp_path / "out", PATIENCE_SECONDS, 1000, tmp_path / "errors")

    assert (ran.is_truncated, ran.has_hung) == (True, False)
    assert (tmp_path / "errors").stat().st_size == 1000


def test_the_ssm_document_runs_the_agent(witness: Witness, bus: FakeEventBridge) -> None:
    witness.has("nodeheal-agent", f'exec {sys.executable} -m nodeheal.agent.main "$@"')
    document = json.loads((REPOSITORY / "packaging" / "ssm" / "freeze-evidence.json").read_text())
    script = "\n".join(document["mainSteps"][0]["inputs"]["runCommand"])
    values = {"RequestId": "inc-1-2", "BootId": "boot-1", "ExpiresAt": str(int(time.time()) + 20)}
    values |= {"Upload": witness.bucket.ticket, "MaxBytes": str(MIB), "BugReport": "no"}
    values |= {"Accused": accused_of("74")}
    witness.node.logs(kernel_line(XID_74))
    for name, value in values.items():
        script = script.replace("{{ " + name + " }}", value)

    ended = subprocess.run(
        ["sh", "-c", script],
        env={**witness.node.environment(), "PATH": f"{witness.tools}:{os.defpath}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert reported(bus).object_key == KEY
    assert reported(bus).confirmation is Confirmation.CONFIRMED
    assert sorted(document["parameters"]) == sorted(values)


# Whether the node shows the fault that was reported of it


def test_the_answer_says_whether_the_node_shows_its_fault(witness: Witness, bus: FakeEventBridge) -> None:
    witness.node.logs(kernel_line(XID_74))

    ended = witness.run(accused=accused_of("74"))

    event = reported(bus)
    assert event.confirmation is Confirmation.CONFIRMED, ended.stderr
    assert "Xid (PCI:0000:b9:00): 74" in event.confirmed_by
    assert json.loads(ended.stdout)["confirmation"] == "CONFIRMED"


def test_a_fault_that_the_kernel_has_not_logged_is_denied(witness: Witness, bus: FakeEventBridge) -> None:
    witness.node.logs(kernel_line(XID_79))

    witness.run(accused=accused_of("74"))

    assert reported(bus).confirmation is Confirmation.DENIED


def test_without_leave_to_upload_the_node_answers_all_the_same(
    witness: Witness, bucket: FakeBucket, bus: FakeEventBridge
) -> None:
    witness.node.logs(kernel_line(XID_74))

    witness.run(ticket="none", accused=accused_of("74"))

    event = reported(bus)
    assert (event.confirmation, event.object_key, event.items) == (Confirmation.CONFIRMED, None, 0)
    assert bucket.forms == []


def test_an_order_of_version_0_1_asks_about_no_fault(witness: Witness, bus: FakeEventBridge) -> None:
    witness.run()

    event = reported(bus)
    assert (event.confirmation, event.object_key) == (Confirmation.UNKNOWN, KEY)


@pytest.mark.parametrize("accused", ["bm9uZQ", "W10", "e30", "eyJmYW1pbHkiOiA3fQ", "_w"])
def test_a_fault_that_cannot_be_read_costs_no_evidence(witness: Witness, bus: FakeEventBridge, accused: str) -> None:
    ended = witness.run(accused=accused)

    event = reported(bus)
    assert (event.confirmation, event.object_key) == (Confirmation.UNKNOWN, KEY), ended.stderr
    assert "the fault that the command names" in event.confirmed_by
