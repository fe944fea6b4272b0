"""A machine is to be replaced: it is given up once, and one other comes in its place.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from typing import Any

from tests.support.replacement_pool import Pool


def _told(it: Pool) -> list[Any]:
    announced: list[Any] = it.ports.notifier.announced  # type: ignore[attr-defined]
    return announced
