"""Orders to the agent, and commands that a job asks of it."""

import base64
import contextlib
import json
import socket
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nodeheal.contract.fabric import FabricTestRequest
from nodeheal.contract.names import DRILL_MARK
from nodeheal.contract.vocabulary import FabricRole
from sandbox.toml import toml
from tests.support.agent_documents import Ended, run_document
from tests.support.agent_fakes import NodeFolder


@pytest.fixture
def requests(node: NodeFolder) -> Path:
    """Where the node leaves its requests."""
    folder = node.directory / "run" / "checkpoint"
    node.config_file.write_text(toml(node.config() | {"checkpoint_dir": str(folder)}))
    return folder


def ask(node: NodeFolder, boots: str = "boot-0,boot-1", expires_in: float = 60) -> Ended:
    """As the SSM document asks."""
    values = {"Job": "llama", "BootIds": boots, "ExpiresAt": str(int(time.time() + expires_in))}
    return run_document(node, "checkpoint-now", values)


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


def order(**parameters: Any) -> FabricTestRequest:
    return FabricTestRequest(**{"role": FabricRole.SERVE, **parameters})


def free_port() -> int:
    """The first of five free ports in a row, below those that the kernel gives to whoever asks for any."""
    for first in Random().sample(range(20_000, 32_000, 5), 100):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + 5):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError("no five ports in a row are free")


ORDER = {"level": "2", "checks": "dcgm,efa", "first": "pcie", "request_id": "inc-1-2.0af", "expires_at": "1790000000"}


def packed(order: object = ORDER) -> str:
    return urlsafe_b64encode(json.dumps(order).encode()).decode().rstrip("=")
