"""The agent as a process of its own."""

import os
import signal
import subprocess
import sys

from tests.support.agent_fakes import (
    PATIENCE_SECONDS,
    NodeFolder,
)


class AgentProcess:
    """A real `nodeheal-agent watch`."""

    def __init__(self, node: NodeFolder) -> None:
        self._node = node
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        command = [sys.executable, "-m", "nodeheal.agent.main", "watch"]
        self._process = subprocess.Popen(command, env={**os.environ, **self._node.environment()})

    def ends(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(PATIENCE_SECONDS)

    def exit_code(self) -> int:
        assert self._process is not None
        return self._process.wait(PATIENCE_SECONDS)

    def clean_up(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
