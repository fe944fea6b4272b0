"""`python -m nodeheal.agent.diagnostics.all_reduce`: an all-reduce over the GPUs of two nodes, by NVIDIA's NCCL.

The fabric test starts it as a separate process, so that a hang or a loaded library ends with that process. The serving
node creates the NCCL id and sends it to the connecting node. NCCL does the rest: it selects its network (EFA by the
plug-in aws-ofi-nccl, else InfiniBand, else sockets), and its bootstrap takes ports of its own choice. Signatures and
constants are those of nccl.h (2.x) and CUDA's driver_types.h.

It prints one line of JSON (parsers/all_reduce.py reads it). Errors go to standard error, with exit code 3 where a
library or a GPU is missing.
"""

import argparse
import ctypes
import json
import socket
import struct
import sys
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

NCCL = ("libnccl.so.2", "libnccl.so")
CUDA = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")
ID_BYTES = 128
FLOAT32, SUM = 7, 0
TO_DEVICE, TO_HOST = 1, 2
WARM_UP, ROUNDS = 2, 10
AGAIN_SECONDS = 0.5
MISSING = 3
_HELLO = struct.Struct("!4sI")
_MAGIC = b"nhar"


class Missing(Exception):
    """A library or a GPU that the test needs is missing."""


class Failed(Exception):
    """A library call failed. Carries the call's name and the library's error text."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId, passed by value."""

    _fields_ = [("internal", ctypes.c_char * ID_BYTES)]


class Library:
    """A shared library whose calls return 0 on success."""

    def __init__(self, loaded: ctypes.CDLL, words: str) -> None:
        self._loaded = loaded
        self._words = getattr(self._loaded, words)
        self._words.restype = ctypes.c_char_p

    def call(self, name: str, *given: object) -> None:
        """Call a function. Raises Failed where it does not return 0."""
        code = getattr(self._loaded, name)(*given)
        if code:
            raise Failed(f"{name}: {(self._words(code) or b'').decode('utf-8', 'replace')} ({code})")


def _load(names: Sequence[str]) -> ctypes.CDLL:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise Missing(f"none of {', '.join(names)} can be loaded")


def _cuda() -> tuple[Library, int]:
    """Return the CUDA runtime and the number of GPUs that it sees: the newest installed one that works with the
    driver.
    """
    why = ""
    for name in CUDA:
        count = ctypes.c_int()
        try:
            cuda = Library(_load([name]), "cudaGetErrorString")
            cuda.call("cudaGetDeviceCount", ctypes.byref(count))
        except Missing:
            continue
        except Failed as error:
            why = why or str(error)
            continue
        if count.value:
            return cuda, count.value
        why = why or "CUDA sees no GPU"
    raise Missing(why or f"none of {', '.join(CUDA)} can be loaded")


@dataclass
class Device:
    """One GPU: its send buffer, its receive buffer, and its communicator."""

    number: int
    own: ctypes.c_void_p
    summed: ctypes.c_void_p
    comm: ctypes.c_void_p


class Reduction:
    """This node's part of the all-reduce: one rank for each GPU."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.nccl = Library(_load(NCCL), "ncclGetErrorString")
        self.cuda, gpus = _cuda()
        self.devices = [Device(n, ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()) for n in range(gpus)]

    def draw_id(self) -> bytes:
        """Create the NCCL id of this test."""
        drawn = UniqueId()
        self.nccl.call("ncclGetUniqueId", ctypes.byref(drawn))
        return bytes(drawn)

    def join(self, meeting: bytes, first_rank: int, ranks: int) -> None:
        """Fill each rank's buffer with its rank number plus one, then join the communicator; blocks until all ranks
        have joined.
        """
        size = ctypes.c_size_t(4 * self.count)
        for device in self.devices:
            self.cuda.call("cudaSetDevice", device.number)
            for buffer in (device.own, device.summed):
                self.cuda.call("cudaMalloc", ctypes.byref(buffer), size)
            own = (array("f", [first_rank + device.number + 1]) * self.count).tobytes()
            self.cuda.call("cudaMemcpy", device.own, own, size, TO_DEVICE)
        self.nccl.call("ncclGroupStart")
        for device in self.devices:
            self.cuda.call("cudaSetDevice", device.number)
            named = UniqueId.from_buffer_copy(meeting)
            self.nccl.call("ncclCommInitRank", ctypes.byref(device.comm), ranks, named, first_rank + device.number)
        self.nccl.call("ncclGroupEnd")

    def sum_up(self) -> None:
        """Run one all-reduce and wait until it has ended on every GPU here."""
        self.nccl.call("ncclGroupStart")
        for it in self.devices:
            self.cuda.call("cudaSetDevice", it.number)
            given = (it.own, it.summed, ctypes.c_size_t(self.count), FLOAT32, SUM, it.comm, ctypes.c_void_p())
            self.nccl.call("ncclAllReduce", *given)
        self.nccl.call("ncclGroupEnd")
        for it in self.devices:
            self.cuda.call("cudaSetDevice", it.number)
            self.cuda.call("cudaDeviceSynchronize")

    def wrong(self, ranks: int) -> list[int]:
        """Return the GPUs whose result differs from the sum over all ranks."""
        right = (array("f", [ranks * (ranks + 1) / 2]) * self.count).tobytes()
        buffer, size = ctypes.create_string_buffer(len(right)), ctypes.c_size_t(len(right))
        bad = []
        for device in self.devices:
            self.cuda.call("cudaSetDevice", device.number)
            self.cuda.call("cudaMemcpy", buffer, device.summed, size, TO_HOST)
            if buffer.raw != right:
                bad.append(device.number)
        return bad


def main(arguments: list[str] | None = None) -> int:
    """Return 0 and print a line of JSON; 1: a call failed; 3: a library or a GPU is missing."""
    given = _options(arguments)
    try:
        reduction = Reduction(given.megabytes * 2**20 // 4)
        meeting, first_rank, ranks = _meet(given.peer, given.port, given.seconds, reduction)
        sys.stdout.write(json.dumps(_measure(reduction, meeting, first_rank, ranks)) + "\n")
    except Missing as missing:
        sys.stderr.write(f"{missing}\n")
        return MISSING
    except (Failed, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nodeheal.agent.diagnostics.all_reduce")
    parser.add_argument("--peer", default="", help="the node that serves; empty: this one serves")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--megabytes", type=int, default=64, help="that each GPU reduces")
    return parser.parse_args(arguments)


def _measure(reduction: Reduction, meeting: bytes, first_rank: int, ranks: int) -> dict[str, object]:
    """Measure bus bandwidth as nccl-tests defines it: 2 (n - 1) / n of the data, over the time."""
    reduction.join(meeting, first_rank, ranks)
    for _ in range(WARM_UP):
        reduction.sum_up()
    began = time.monotonic()
    for _ in range(ROUNDS):
        reduction.sum_up()
    seconds = (time.monotonic() - began) / ROUNDS
    size = 4 * reduction.count
    speed = 2 * (ranks - 1) / ranks * size / 1e6 / max(seconds, 1e-9)
    return {"ranks": ranks, "bytes": size, "bus_mb_per_s": round(speed, 1), "wrong_gpus": reduction.wrong(ranks)}


def _meet(peer: str, port: int, seconds: float, reduction: Reduction) -> tuple[bytes, int, int]:
    """Exchange the NCCL id: (id, this node's first rank, ranks of both nodes). Raises OSError where the other node does
    not connect.
    """
    mine = len(reduction.devices)
    if not peer:
        meeting = reduction.draw_id()
        with _accept(port, seconds) as other:
            other.sendall(_HELLO.pack(_MAGIC, mine) + meeting)
            return meeting, 0, mine + _hello(other)
    with _connect(peer, port, time.monotonic() + seconds) as other:
        theirs = _hello(other)
        meeting = _read(other, ID_BYTES)
        other.sendall(_HELLO.pack(_MAGIC, mine))
        return meeting, theirs, theirs + mine


def _accept(port: int, seconds: float) -> socket.socket:
    with socket.create_server(("", port)) as server:
        server.settimeout(seconds)
        other, _ = server.accept()
        other.settimeout(seconds)
        return other


def _connect(peer: str, port: int, until: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection((peer, port), timeout=max(1.0, until - time.monotonic()))
        except OSError:
            if time.monotonic() + AGAIN_SECONDS >= until:
                raise
            time.sleep(AGAIN_SECONDS)


def _hello(other: socket.socket) -> int:
    magic, gpus = _HELLO.unpack(_read(other, _HELLO.size))
    if magic != _MAGIC or not 0 < gpus <= 64:
        raise OSError("the process at the other end is not an agent that tests an all-reduce")
    return int(gpus)


def _read(other: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = other.recv(size - len(got))
        if not more:
            raise OSError("the other node closed the connection")
        got += more
    return got


if __name__ == "__main__":
    sys.exit(main())
