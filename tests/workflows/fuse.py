"""Makes a function die in the middle of its work: right before or right after one of its calls of a port.

The calls of functions are counted; what the test itself asks of the ports is not. Between two calls that only look
nothing changes, so a story is broken everywhere when it is broken around each call that changes something.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from nodeheal.domain.errors import NotAccepted
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from tests.workflows.reads import READS

NOT_PORTS = ("channels", "clock", "console_links", "decide", "sign_upload")
VERBS = ("has_confirmed",)  # ports that are one call
NEVER = 10**9


class Crash(BaseException):
    """The function is gone, in the middle of its work."""


class LostAnswer(Crash):
    """The function may have done all its work: its answer is lost on the way, and the caller knows only that."""


class Hang(Crash):
    """The function hangs until its deadline kills it. Meanwhile the world goes on."""


@dataclass(frozen=True)
class InjectedFailure:
    """The fuse blows around this call, with this error."""

    at: int
    is_after: bool
    error: type[BaseException] = Crash

    def __str__(self) -> str:
        return f"{self.error.__name__} {'after' if self.is_after else 'before'} call {self.at}"


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
        finally:
            self.function = before

    def throttles(self, function: str, call: str, nth: int = 1) -> None:
        """The nth call of its kind that this function makes is refused for its rate, once."""
        later = throttled if nth == 1 else lambda: self.throttles(function, call, nth - 1)
        self.meanwhile[function, call] = later

    def around(self, call: Any, whole_name: str) -> Any:
        """The same call, with the fuse in it."""

        def fused(*given: Any, **named: Any) -> Any:
            name = _of_command(whole_name, given)
            if not self.function or (self.writes_only and name.rpartition(".")[2] in READS):
                return call(*given, **named)
            number = self.calls
            self.made.append(Made(self.function, name, self._is_first))
            self._is_first = False
            self._blow(number, is_after=False)
            try:
                self.meanwhile.pop((self.function, name), _nothing)()
                if self.watch is not None:
                    self.watch(name, given, named)
                return call(*given, **named)
            finally:  # of what was refused, too: the function dies as soon as it hears that
                self._blow(number, is_after=True)

        return fused

    def _blow(self, number: int, *, is_after: bool) -> None:
        for injected_failure in self.injected_failures:
            if (injected_failure.at, injected_failure.is_after) == (number, is_after):
                self.blown.append(injected_failure)
                raise injected_failure.error(f"{injected_failure}, {self.made[number]}")


def _of_command(name: str, given: tuple[Any, ...]) -> str:
    """`commands.reboot-node`: a command by its document."""
    command = next((one for one in given if isinstance(one, Command)), None)
    return name if command is None else f"commands.{command.document}"


def _nothing() -> None:
    """Nobody comes between."""


class Fused:
    """A port with the fuse in each of its calls."""

    def __init__(self, port: Any, name: str, fuse: Fuse) -> None:
        self._port, self._name, self._fuse = port, name, fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        return self._fuse.around(found, f"{self._name}.{name}") if callable(found) else found


def fused(plain: Ports, fuse: Fuse) -> Ports:
    """The same ports, with the fuse in all of them."""
    ports: dict[str, Any] = {each.name: getattr(plain, each.name) for each in fields(Ports)}
    for name in ports.keys() - {*NOT_PORTS, "schedulers"}:
        ports[name] = fuse.around(ports[name], name) if name in VERBS else Fused(ports[name], name, fuse)
    ports["schedulers"] = {kind: Fused(one, "scheduler", fuse) for kind, one in plain.schedulers.items()}
    return Ports(**ports)


def throttled() -> None:
    """What others do before a call, in `meanwhile`: they have used its rate up."""
    raise NotAccepted("too many calls")
