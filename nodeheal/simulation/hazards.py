"""Injects failures into the calls of a function: it dies, its call fails, or another function runs in between.

A service runs at one moment of virtual time. To interleave functions nevertheless, a call may run the next event of the
agenda, so that two services see each other's partial work, as they do in an account.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from random import Random
from typing import Any, Protocol

from nodeheal.simulation.injected_failures import How, InjectedFailure, can_be_refused, refuse, throttle
from nodeheal.simulation.setting import Cloud

_DEEPEST = 3  # nesting depth of services inside one another's calls


class Died(BaseException):
    """The function is gone: killed at its timeout, or with its machine. `except Exception` does not catch it."""


class AnswerLost(Died):
    """The function may have done all its work: its own answer is lost, and its caller learns only that."""


class NoAnswer(Exception):
    """The call was carried out, and its answer was lost."""


class Hazards:
    """Draws when the next failure comes, so that calls without one cost next to nothing.

    `let_others_in` runs the world's next events, as long as the running function may take; False: there are none.
    """

    def __init__(
        self,
        stream: Random,
        cloud: Cloud,
        let_others_in: Callable[[], bool],
        injected_failures: Sequence[InjectedFailure] = (),
        refuse_in_outage: Callable[[str], None] = lambda port_call: None,
    ) -> None:
        self._refuse_in_outage = refuse_in_outage
        self._stream, self._cloud, self._let_others_in = stream, cloud, let_others_in
        self._rate = cloud.dies + cloud.breaks + cloud.interleaves
        self._aimed = {injected_failure.call: injected_failure.how for injected_failure in injected_failures}
        self.depth = 0  # running functions
        self.struck = 0
        self.calls = 0
        self.beside_the_point: list[str] = []  # injected failures that cannot apply to their call: why
        self._next_is_throttled = False
        self._left = self._draw()

    @property
    def unstruck(self) -> list[InjectedFailure]:
        """The injected failures whose call has not come."""
        return [InjectedFailure(call, how) for call, how in self._aimed.items()]

    def _draw(self) -> int:
        return int(self._stream.expovariate(self._rate)) + 1 if self._rate else -1

    def call(self, name: str, method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Make one call of a port (`nodes.save`), from within a function or not."""
        self.calls += 1
        if self.depth:
            self._refuse_in_outage(name)
        if self._next_is_throttled and self.depth:
            self._next_is_throttled = False
            throttle(name)
        if self.calls in self._aimed:
            return self._inject_aimed(self._aimed.pop(self.calls), name, lambda: method(*given, **named))
        self._left -= 1
        if self._left != 0 or not self.depth:
            if self._left == 0:
                self._left = 1
            return method(*given, **named)
        self._left = self._draw()
        return self._inject(method, given, named)

    def _inject(self, method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        drawn = self._stream.random() * self._rate
        if drawn < self._cloud.dies:
            self.struck += 1
            if self._stream.random() < 0.5:
                raise Died
            method(*given, **named)
            raise Died
        if drawn < self._cloud.dies + self._cloud.breaks:
            self.struck += 1
            method(*given, **named)
            raise NoAnswer
        if self.depth < _DEEPEST:
            self._let_others_in()
        return method(*given, **named)

    def _inject_aimed(self, how: How, name: str, call: Callable[[], Any]) -> Any:
        self.struck += 1
        match how:
            case How.dies_before:
                raise Died
            case How.throttled:
                throttle(name)
            case How.throttled_after:
                self._next_is_throttled = True
                return call()
            case How.refused if can_be_refused(name):
                return refuse(name, self.calls)
            case How.refused:  # a service would treat an internal error as a failed call, and the run would go on
                self.beside_the_point.append(f"{InjectedFailure(self.calls, how)}: {name} cannot refuse a call")
                return call()
            case How.is_late:
                self._wait()
                return call()
        call()
        if how is How.unanswered:
            raise NoAnswer
        if how is How.hangs:
            self._wait()
        raise AnswerLost if how is How.answer_lost else Died

    def _wait(self) -> None:
        while self._let_others_in():
            pass


class Injector(Protocol):
    """Makes the calls of ports, and may let them fail."""

    def call(self, name: str, method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Make one call (`nodes.save`). Raises what the call raises, or what is injected."""


class FaultInjectingPort:
    """A port whose calls (but the `plain` ones) may fail. Its attributes are those of the port."""

    def __init__(self, name: str, port: Any, injector: Injector, plain: Sequence[str] = ()) -> None:
        self._name, self._port, self._injector = name, port, injector
        self._may_fail = _methods_of(port.__class__).difference(plain)

    def __getattr__(self, name: str) -> Any:
        """Return what the port has. A run makes thousands of worlds, so a call is wrapped when it is first used."""
        if name not in self._may_fail:
            return getattr(self._port, name)
        call = with_faults(f"{self._name}.{name}", partial(getattr, self._port, name), self._injector)
        setattr(self, name, call)
        return call


@cache
def _methods_of(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name)))


def with_faults(name: str, find: Callable[[], Callable[..., Any]], injector: Injector) -> Callable[..., Any]:
    """Wrap a call of a port, or a port that is a function, so that failures may be injected. `find` returns it."""

    def call(*given: Any, **named: Any) -> Any:
        return injector.call(name, find(), given, named)

    return call
