"""Runs an agent as on a node, for the measurements. The kernel's device is a named pipe in packet mode (one record a
read, as from /dev/kmsg); the bus is a local one that accepts everything, over TLS, with a certificate of AWS's name.
"""

import compileall
import fcntl
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pynvml

from sandbox.toml import toml
from tests.support.agent_fakes import FakeEventBridge, NodeFolder, eventually
from tests.support.authority import Authority, found_authority

PIPE_BYTES = 1 << 20
F_SETPIPE_SZ = 1031
# The content of pip's script; running it as a module would also load `runpy`.
SCRIPT = "import sys; from nodeheal.agent.main import main; sys.exit(main())"
# The machine's certificate authorities in one file, the most expensive form: Amazon Linux has no other, Debian a copy.
UP_SECONDS = 3600.0  # checks that wait for a node's boot run at once
BUNDLES = ("/etc/pki/tls/cert.pem", "/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True)
class Furnished:
    """The special parts of a node: how its agent is started, and its environment."""

    script: str = SCRIPT
    environment: dict[str, str] = field(default_factory=dict)


class Device:
    """The agent's /dev/kmsg."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # so that it can be opened for writing at all
        self._writer = os.open(path, os.O_WRONLY)
        fcntl.fcntl(self._writer, fcntl.F_SETFL, fcntl.fcntl(self._writer, fcntl.F_GETFL) | os.O_DIRECT)
        fcntl.fcntl(self._writer, F_SETPIPE_SZ, PIPE_BYTES)
        self._sequence = 0

    def says(self, text: str) -> None:
        """Write one kernel record."""
        self._sequence += 1
        os.write(self._writer, f"3,{self._sequence},1,-;{text}\n".encode())

    def close(self) -> None:
        """Close both ends."""
        os.close(self._writer)
        os.close(self._reader)


class LogFile:
    """The file of a syslog daemon."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w", buffering=1)
        self._lines = 0

    def says(self, text: str) -> None:
        """Write one kernel line."""
        self._lines += 1
        stamp = f"{self._lines // 10_000:02}.{self._lines % 10_000:04}"
        self._file.write(f"2026-11-21T05:50:{stamp}56+00:00 gpu-7 kernel: [  1{stamp}56] {text}\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Journal:
    """A journal, and the `journalctl` that prints it as it comes, whose cost is not the agent's."""

    def __init__(self, folder: Path) -> None:
        pipe, tool = folder / "journal", folder / "journalctl"
        os.mkfifo(pipe)
        tool.write_text(f"#!/bin/sh\nexec cat {pipe}\n", "utf-8")
        tool.chmod(0o755)
        self.furnished = Furnished(environment={"PATH": f"{folder}:{os.environ['PATH']}"})
        self._pipe = os.open(pipe, os.O_RDWR)  # so that it can be opened before anybody reads
        fcntl.fcntl(self._pipe, F_SETPIPE_SZ, PIPE_BYTES)
        self._entries = 0

    def says(self, text: str) -> None:
        """Write one entry, with all fields of journalctl: every time, its cursor."""
        self._entries += 1
        at, boot = 0x6000000000000 + self._entries, "0a1b2c3d000040008000000000000002"
        fields = {
            "__CURSOR": f"s={'5b6f' * 8};i={self._entries:x};b={boot};m={self._entries:x};t={at:x};x=7f3a1c2d4e5b6a79",
            "__REALTIME_TIMESTAMP": str(at),
            "__MONOTONIC_TIMESTAMP": str(self._entries),
            "__SEQNUM": str(self._entries),
            "__SEQNUM_ID": "5b6f" * 8,
            "_BOOT_ID": boot,
            "_TRANSPORT": "kernel",
            "SYSLOG_FACILITY": "0",
            "SYSLOG_IDENTIFIER": "kernel",
            "MESSAGE": text,
        }
        os.write(self._pipe, json.dumps(fields, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._pipe)


@contextmanager
def running_agent(
    checks: tuple[str, ...],
    log: dict[str, str] | None = None,
    every_seconds: float = 60.0,
    furnished: Furnished | None = None,
) -> Iterator[tuple[psutil.Process, Device, FakeEventBridge]]:
    """Run a watching agent as on a node; yields its kernel device and its bus."""
    with device() as (kmsg, path), tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        authority = found_authority(folder, "Amazon Root CA of the bench")
        bus = FakeEventBridge(authority.server())
        bus.start()
        node = NodeFolder(folder, bus.url, every_seconds)
        told = {"checks": list(checks), "kernel_log": [log or {"kind": "kmsg", "path": str(path)}]}
        node.config_file.write_text(toml({**node.config(), **told}))
        os.utime(node.boot_id_file, (time.time() - UP_SECONDS,) * 2)
        environment = {**os.environ, **node.environment(), **_as_on_a_node(authority)}
        here = furnished or Furnished()
        command = [sys.executable, "-c", here.script, "watch"]
        agent = subprocess.Popen(command, env={**environment, **here.environment}, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: bus.details("Node Booted"))
            yield psutil.Process(agent.pid), kmsg, bus
        finally:
            agent.terminate()
            agent.wait()
            bus.stop()


def _as_on_a_node(authority: Authority) -> dict[str, str]:
    """Return the unit's environment, with the machine's authorities and the bench's own in one file."""
    compileall.compile_file(pynvml.__file__, quiet=1)
    compileall.compile_dir("nodeheal", quiet=1)  # as pip does: compiling at the start takes 1 MiB more
    machine = Path(
        next(name for name in (ssl.get_default_verify_paths().cafile, *BUNDLES) if name and Path(name).exists())
    )
    bundle = authority.certificate.with_name("bundle.pem")
    bundle.write_bytes(machine.read_bytes() + authority.certificate.read_bytes())
    return {"MALLOC_ARENA_MAX": "1", "SSL_CERT_FILE": str(bundle), "SSL_CERT_DIR": str(bundle.with_name("none"))}


@contextmanager
def device() -> Iterator[tuple[Device, Path]]:
    """Create a silent device; returns it with its path."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        path = Path(directory) / "kmsg"
        kmsg = Device(path)
        yield kmsg, path
        kmsg.close()
