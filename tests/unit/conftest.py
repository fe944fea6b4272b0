"""What many tests begin with."""

import pytest

from tests.support.builders import FrozenClock
from tests.support.three_nodes import three_nodes

__all__ = ["three_nodes"]  # a fixture


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()
