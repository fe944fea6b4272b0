"""What many tests begin with."""

import pytest

from tests.support.builders import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()
