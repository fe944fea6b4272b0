"""What the prober has to say and the agent has not taken yet: one that waits for its disk takes nothing for a while."""

import contextlib
import socket

# All checks' answers at their longest; what more comes stays with the looks until there is room.
FULL_BYTES = 1024 * 1024


class Outbox:
    """Never waited for. Raises BrokenPipeError or ConnectionResetError where the agent is gone."""

    def __init__(self, agent: socket.socket) -> None:
        agent.setblocking(False)
        self._agent = agent
        self._unsent = b""

    @property
    def is_empty(self) -> bool:
        """Whether the agent has taken everything."""
        return not self._unsent

    @property
    def is_full(self) -> bool:
        """Whether nobody should be listened to who has more to say."""
        return len(self._unsent) >= FULL_BYTES

    def put(self, line: bytes) -> None:
        """Say it, now or when the agent takes it."""
        self._unsent += line + b"\n"
        self.send()

    def send(self) -> None:
        """As much as the agent takes now."""
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self._agent.send(self._unsent) :]
