"""What may happen at every call that a function makes: it dies, its call fails, or somebody else comes between.

A service runs at one moment of virtual time. Others come between its calls all the same: what is next on the agenda may
be played inside of a call, so that two services see each other's half-done work, as they do in an account.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from nodeheal.simulation.setting import Cloud

_DEEPEST = 3  # services inside of one another's calls


class Died(BaseException):
    """The function is gone: killed at its timeout, or with its machine. No `except Exception` sees it."""


class NoAnswer(Exception):
    """The call was carried out, and its answer was lost on the way."""


class Hazards:
    """Draws when the next of them comes, so that calls at which nothing happens cost next to nothing."""

    def __init__(self, stream: Random, cloud: Cloud, let_others_in: Callable[[], None]) -> None:
        self._stream, self._cloud, self._let_others_in = stream, cloud, let_others_in
        self._rate = cloud.dies + cloud.breaks + cloud.interleaves
        self.depth = 0  # functions that run now
        self.struck = 0
        self.calls = 0
        self._left = self._draw()

    def _draw(self) -> int:
        return int(self._stream.expovariate(self._rate)) + 1 if self._rate else -1

    def call(self, found: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """One call of a port, from within a function or not."""
        self.calls += 1
        self._left -= 1
        if self._left != 0 or not self.depth:
            if self._left == 0:
                self._left = 1
            return found(*given, **named)
        self._left = self._draw()
        return self._strike(found, given, named)

    def _strike(self, found: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        drawn = self._stream.random() * self._rate
        if drawn < self._cloud.dies:
            self.struck += 1
            if self._stream.random() < 0.5:
                raise Died
            found(*given, **named)
            raise Died
        if drawn < self._cloud.dies + self._cloud.breaks:
            self.struck += 1
            found(*given, **named)
            raise NoAnswer
        if self.depth < _DEEPEST:
            self._let_others_in()
        return found(*given, **named)


class Seam:
    """A port, every call of which is a moment at which something may happen."""

    def __init__(self, port: Any, hazards: Hazards) -> None:
        for name in dir(type(port)):
            if not name.startswith("_") and callable(getattr(type(port), name)):
                setattr(self, name, _through(getattr(port, name), hazards))


def _through(found: Callable[..., Any], hazards: Hazards) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        return hazards.call(found, given, named)

    return call
