"""Breaks one chosen call of a story, in one of the simulation's ways, and counts the calls of its functions.

What the test itself asks of the ports does not count. Between two calls that only look nothing changes, so a story is
broken everywhere when it is broken around each call that changes something.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from nodeheal.domain.errors import NotAccepted
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.simulation.hazards import AnswerLost, Died
from nodeheal.simulation.injected_failures import How, InjectedFailure, throttle
from nodeheal.simulation.world_ports import with_fault_injection
from tests.support.reads import READS

NEVER = 10**9
BEFORE = (How.dies_before, How.throttled)


class Hang(Died):
    """The function hangs until its deadline kills it. Meanwhile the world goes on."""


@dataclass(frozen=True)
class Made:
    """A call that a function has made. `is_first`: of those that change something, in this run of the function."""

    function: str
    call: str
    is_first: bool

    def __str__(self) -> str:
        return f"{self.call} of {self.function}"


@dataclass
class Fuse:
    """Counts the calls that functions make, and blows at some of them. Whoever watches sees each before it is made.

    `meanwhile`: what others do, once, right before this call of this function.
    """

    injected_failures: tuple[InjectedFailure, ...] = ()
    writes_only: bool = False
    made: list[Made] = field(default_factory=list)
    watch: Callable[[str, tuple[Any, ...], dict[str, Any]], None] | None = None
    meanwhile: dict[tuple[str, str], Callable[[], object]] = field(default_factory=dict)
    function: str = ""  # the one that works now
    blown: list[InjectedFailure] = field(default_factory=list)
    _is_first: bool = True
    _next_is_throttled: bool = False

    @property
    def calls(self) -> int:
        """How many were made."""
        return len(self.made)

    @contextmanager
    def working(self, function: str = "a function") -> Iterator[None]:
        """While a function works, its calls count."""
        before = self.function
        self.function, self._is_first = function, True
        try:
            yield
            self._throttle_next()
        finally:
            self.function = before

    def throttles(self, function: str, call: str, nth: int = 1) -> None:
        """The nth call of its kind that this function makes is refused for its rate, once."""
        later = throttled if nth == 1 else lambda: self.throttles(function, call, nth - 1)
        self.meanwhile[function, call] = later

    def call(self, name: str, found: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Make one call of a port, with what is injected into it."""
        name = _of_command(name, given)
        if self.function:
            self._throttle_next()
        if not self.function or (self.writes_only and name.rpartition(".")[2] in READS):
            return found(*given, **named)
        self.made.append(Made(self.function, name, self._is_first))
        self._is_first = False
        hows = [(one, one.how) for one in self.injected_failures if one.call == self.calls]
        self._blow(one for one, how in hows if how in BEFORE)
        try:
            self.meanwhile.pop((self.function, name), _nothing)()
            if self.watch is not None:
                self.watch(name, given, named)
            return found(*given, **named)
        finally:  # of what was refused, too: the function dies as soon as it hears that
            self._blow(one for one, how in hows if how not in BEFORE)

    def _throttle_next(self) -> None:
        """Of what follows a call nothing may be written any more, but something is always looked at."""
        if self._next_is_throttled:
            self._next_is_throttled = False
            throttle("the next call")

    def _blow(self, injected: Iterator[InjectedFailure]) -> None:
        for one in injected:
            self.blown.append(one)
            about = f"{one}, {self.made[one.call - 1]}"
            match one.how:
                case How.throttled:
                    throttle(about)
                case How.throttled_after:
                    self._next_is_throttled = True
                    continue
                case How.hangs:
                    raise Hang(about)
                case How.answer_lost:
                    raise AnswerLost(about)
            raise Died(about)


def _of_command(name: str, given: tuple[Any, ...]) -> str:
    """`commands.reboot-node`: a command by its document."""
    command = next((one for one in given if isinstance(one, Command)), None)
    return name if command is None else f"commands.{command.document}"


def _nothing() -> None:
    """Nobody comes between."""


def fused(plain: Ports, fuse: Fuse) -> Ports:
    """The same ports, with the fuse in all of them."""
    return with_fault_injection(plain, fuse)


def throttled() -> None:
    """What others do before a call, in `meanwhile`: they have used its rate up."""
    raise NotAccepted("too many calls")
