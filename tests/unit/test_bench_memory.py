"""`bench.memory`: a page that several processes share is counted, and counted once."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from bench.memory import resident_bytes
from tests.support.agent_fakes import eventually

MIB = 2**20
SHARED_MIB = 32
# The one that is started has nothing of it; its child makes it and shares it with a child of its own.
FAMILY = f"""
import os, time
if os.fork() == 0:
    shared = bytearray({SHARED_MIB} * {MIB})
    os.fork()
time.sleep(60)
"""


@pytest.fixture
def family() -> Iterator[list[psutil.Process]]:
    parent = subprocess.Popen([sys.executable, "-c", FAMILY])
    first = psutil.Process(parent.pid)
    eventually(lambda: len(first.children(recursive=True)) == 2)
    eventually(lambda: all(one.memory_info().rss > SHARED_MIB * MIB for one in first.children(recursive=True)))
    everybody = [first, *first.children(recursive=True)]
    yield everybody
    for process in reversed(everybody):
        process.kill()
    parent.wait()


def test_what_a_child_shares_with_its_own_child_alone_is_counted_once(family: list[psutil.Process]) -> None:
    first, *_ = family

    more = resident_bytes(family) - first.memory_info().rss

    assert 0 <= more - SHARED_MIB * MIB < 8 * MIB
