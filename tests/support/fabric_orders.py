"""Orders of a fabric test."""

import contextlib
import socket
from random import Random
from typing import Any

from nodeheal.contract.fabric import FabricTestRequest
from nodeheal.contract.vocabulary import FabricRole


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
