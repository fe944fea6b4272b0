"""What may happen at every call that a function makes: it dies, its call fails, or somebody else comes between.

A service runs at one moment of virtual time. Others come between its calls all the same: what is next on the agenda may
be played inside of a call, so that two services see each other's half-done work, as they do in an account.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from nodeheal.simulation.injected_failures import How, InjectedFailure, can_be_refused, refuse, throttle
from nodeheal.simulation.setting import Cloud

_DEEPEST = 3  # services inside of one another's calls


class Died(BaseException):
    """The function is gone: killed at its timeout, or with its machine. No `except Exception` sees it."""


class NoAnswer(Exception):
    """The call was carried out, and its answer was lost on the way."""


class Hazards:
    """Draws when the next of them comes, so that calls at which nothing happens cost next to nothing.

    `let_others_in` plays what comes next in the world, as long as the function that runs may take; False: nothing does.
    """

    def __init__(
        self,
        stream: Random,
        cloud: Cloud,
        let_others_in: Callable[[], bool],
        injected_failures: Sequence[InjectedFailure] = (),
    ) -> None:
        self._stream, self._cloud, self._let_others_in = stream, cloud, let_others_in
        self._rate = cloud.dies + cloud.breaks + cloud.interleaves
        self._aimed = {injected_failure.call: injected_failure.how for injected_failure in injected_failures}
        self.depth = 0  # functions that run now
        self.struck = 0
        self.calls = 0
        self.beside_the_point: list[str] = []  # injected failures whose call came, and cannot be struck like that: why
        self._left = self._draw()

    @property
    def unstruck(self) -> list[InjectedFailure]:
        """The injected failures whose call has not come."""
        return [InjectedFailure(call, how) for call, how in self._aimed.items()]

    def _draw(self) -> int:
        return int(self._stream.expovariate(self._rate)) + 1 if self._rate else -1

    def call(self, name: str, found: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """One call of a port (`nodes.save`), from within a function or not."""
        self.calls += 1
        if self.calls in self._aimed:
            return self._inject_aimed(self._aimed.pop(self.calls), name, lambda: found(*given, **named))
        self._left -= 1
        if self._left != 0 or not self.depth:
            if self._left == 0:
                self._left = 1
            return found(*given, **named)
        self._left = self._draw()
        return self._inject(found, given, named)

    def _inject(self, found: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
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

    def _inject_aimed(self, how: How, name: str, call: Callable[[], Any]) -> Any:
        self.struck += 1
        match how:
            case How.dies_before:
                raise Died
            case How.throttled:
                throttle(name)
            case How.refused if can_be_refused(name):
                return refuse(name, self.calls)
            case How.refused:  # an error of ours would be a service's surprise, and the run go on with it
                self.beside_the_point.append(f"{InjectedFailure(self.calls, how)}: {name} has no way to say no")
                return call()
            case How.is_late:
                self._wait()
                return call()
        call()
        if how is How.unanswered:
            raise NoAnswer
        if how is How.hangs:
            self._wait()
        raise Died

    def _wait(self) -> None:
        while self._let_others_in():
            pass


class FaultInjectingPort:
    """A port, every call of which (but the `plain` ones) is a moment at which something may happen.

    `values` are what it is, and no calls.
    """

    def __init__(
        self, name: str, port: Any, hazards: Hazards, plain: Sequence[str] = (), values: Sequence[str] = ()
    ) -> None:
        for value in values:
            setattr(self, value, getattr(port, value))
        for method in dir(type(port)):
            if not method.startswith("_") and callable(getattr(type(port), method)):
                found = getattr(port, method)
                seam = found if method in plain else with_faults(f"{name}.{method}", found, hazards)
                setattr(self, method, seam)


def with_faults(name: str, found: Callable[..., Any], hazards: Hazards) -> Callable[..., Any]:
    """The same call, of a port or one that is a port by itself, as such a moment."""

    def call(*given: Any, **named: Any) -> Any:
        return hazards.call(name, found, given, named)

    return call
