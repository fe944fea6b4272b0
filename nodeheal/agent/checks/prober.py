"""Runs looks in processes of their own, with a deadline each: what the hardware does to one hangs only that one.

The prober is a process too. It is forked before the agent has threads and has loaded what it needs to speak with AWS:
so it is small, shares its memory with the agent, and may fork safely, once for each look. It ends with the agent.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence

from nodeheal.agent.checks.answer import READ_BYTES, Answer, Lines, answer_of
from nodeheal.agent.checks.check import Check, Place, State
from nodeheal.agent.checks.looks import live

READS_A_TURN = 16  # the agent has other things to do than to listen to one who never stops
CLOSE_SECONDS = 2.0  # for the prober to end its looks and itself
CLOSE_POLL_SECONDS = 0.01


class Prober:
    """The agent's end. `descriptor` becomes readable when there are answers."""

    def __init__(self, checks: Sequence[Check], place: Place) -> None:
        """Fork it. To be called before any thread is started."""
        ours, theirs = socket.socketpair()
        gc.freeze()  # what is never touched again stays shared
        self.checks = tuple(checks)
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            live(theirs, checks, place)
        theirs.close()
        self._socket = ours
        self._socket.setblocking(False)
        self._unsent = b""
        self._lines = Lines()

    @property
    def descriptor(self) -> int:
        """Where select hears news."""
        return self._socket.fileno()

    def ask(self, name: str, state: State) -> None:
        """Ask for a look; its answer comes later. A prober that is gone gives none."""
        self._unsent += json.dumps([name, state]).encode() + b"\n"
        self._send()

    def answers(self) -> Iterator[Answer]:
        """What has come since the last call. Raises EOFError when the prober has ended."""
        self._send()
        for _ in range(READS_A_TURN):
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError("the prober has ended")
            yield from map(answer_of, self._lines.of(data))

    def close(self) -> None:
        """End it, and what it has under way. One that does not end in its time is killed, and not waited for."""
        self._socket.close()
        until = time.monotonic() + CLOSE_SECONDS
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
                if time.monotonic() >= until:
                    os.kill(self._pid, signal.SIGKILL)
                    return
                time.sleep(CLOSE_POLL_SECONDS)

    def _send(self) -> None:
        """As much as the prober takes now; the rest goes with the next call."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
