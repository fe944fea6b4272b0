"""A function that ends at one of its calls, and writes and calls that are lost."""

from dataclasses import fields, replace
from typing import Any

from nodeheal.ports import Ports

# More calls than any of these steps makes: what is longer would not be crashed at its end.
CALLS_AT_MOST = 60


class Crash(BaseException):
    """The function is killed here: no service can catch that."""


class CrashingPort:
    """A port whose n-th call, counted over all ports, is made and its answer lost."""

    def __init__(self, port: Any, calls: "Calls") -> None:
        self._port, self._calls = port, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found

        def call(*args: object, **kwargs: object) -> object:
            answer = found(*args, **kwargs)
            self._calls.made(name)
            return answer

        return call


class Calls:
    """Counts calls and crashes after one of them."""

    def __init__(self, crash_after: int) -> None:
        self.names: list[str] = []
        self._crash_after = crash_after

    def made(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self._crash_after:
            raise Crash(name)


def crashing(ports: Ports, crash_after: int) -> tuple[Ports, Calls]:
    calls = Calls(crash_after)
    wrapped: dict[str, Any] = {
        f.name: CrashingPort(getattr(ports, f.name), calls)
        for f in fields(ports)
        if f.name not in ("clock", "schedulers")
    }
    wrapped["schedulers"] = {kind: CrashingPort(one, calls) for kind, one in ports.schedulers.items()}
    return replace(ports, **wrapped), calls


def _lost(*_: object) -> bool:
    """A conditional write that somebody else always wins."""
    return False


lost: Any = _lost


def lost_call(*_: object, **__: object) -> None:
    raise ConnectionError("the call is lost")
