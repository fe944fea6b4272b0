"""Fixtures of the agent's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_fakes import FakeEventBridge, FakeTime, NodeFolder


@pytest.fixture
def bus() -> Iterator[FakeEventBridge]:
    """EventBridge, up."""
    server = FakeEventBridge()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def node(tmp_path: Path, bus: FakeEventBridge) -> NodeFolder:
    """A node whose agent talks to that bus."""
    return NodeFolder(tmp_path, bus.url)


@pytest.fixture
def time() -> FakeTime:
    """Time that stands still until the test moves it."""
    return FakeTime()
