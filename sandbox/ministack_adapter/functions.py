"""Corrects MiniStack's functions, and keeps a hundred workflows at once fast on a machine with few cores."""

import hashlib
import os
import re
import threading
import time
import weakref
import zipfile
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jsonata.parser import Parser as JsonataParser
from ministack.core import iam_evaluator, lambda_runtime
from ministack.services import dynamodb, lambda_svc

from sandbox.aws_json import Json
from sandbox.behaviour import Behaviour
from sandbox.ministack_adapter.private_names import attribute

# On AWS an invocation without an idle environment gets a new one, and a thousand start in parallel. Here each is a
# process whose start takes most of a second of processor time: more of them than cores only slow each other down.
CORES = max(2, os.cpu_count() or 1)
_FLATTENED = "Runtime.HandlerError"


@dataclass
class Line:
    """Invocations that wait for an environment, the longest first."""

    acquire: Callable[[str, Any, bytes, str], Any]  # an environment, or None where all of the function are in use
    most: int  # in use at once
    at_work: int = 0
    standing: list["_Place"] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, name: str, config: Any, code: bytes, qualifier: str) -> Any:
        """Wait for an environment of this function."""
        place = _Place((name, config, code, qualifier))
        with self.lock:
            self.standing.append(place)
            self._call()
        place.called.wait()
        return place.environment

    def leave(self) -> None:
        """Return an environment, which is idle again, or gone."""
        with self.lock:
            self.at_work -= 1
            self._call()

    def _call(self) -> None:
        """Admit all invocations that have room: none waits behind one whose own function is busy."""
        busy: set[str] = set()
        for place in list(self.standing):
            if self.at_work >= self.most:
                return
            name = place.asked[0]
            place.environment = None if name in busy else self.acquire(*place.asked)
            if place.environment is None:
                busy.add(name)
                continue
            self.at_work += 1
            self.standing.remove(place)
            place.called.set()


@dataclass(eq=False)
class _Place:
    asked: tuple[str, Any, bytes, str]
    called: threading.Event = field(default_factory=threading.Event)
    environment: Any = None


def share_environments(behaviour: Behaviour, a_function: int = CORES, at_once: int = CORES + 1) -> None:
    """Limit environments of a function, and invocations at once: later ones wait in a queue.

    It cannot deadlock as long as no function invokes another and waits for it, which none of nodeheal's does.
    """
    acquire, release = lambda_svc.acquire_worker, lambda_svc.release_worker

    def acquire_now(name: str, config: Any, code: bytes, qualifier: str) -> Any:
        worker, why = acquire(name, config, code, qualifier=qualifier, max_concurrency=a_function)
        return None if worker is None else (worker, why)

    line = Line(acquire_now, at_once)
    known: weakref.WeakSet[Any] = weakref.WeakSet()

    def acquire_in_turn(name: str, config: Any, code: bytes, qualifier: str = "$LATEST") -> Any:
        acquired = line.enter(name, config, code, qualifier)
        if acquired[0] not in known:  # it is new: a cold start
            known.add(acquired[0])
            time.sleep(behaviour.cold_start_seconds)
        return acquired

    def release_and_call(worker: Any) -> None:
        release(worker)
        line.leave()

    lambda_svc.acquire_worker, lambda_svc.release_worker = acquire_in_turn, release_and_call


def unpack_once(directory: Path) -> None:
    """Unpack the bundle once: the emulator does so for every environment, which takes longer than its start. On AWS the
    code is read-only, so one copy serves all. `directory`: of the copies.
    """
    lock = threading.Lock()

    class SharedZip(zipfile.ZipFile):
        def extractall(self, path: Any = None, members: Any = None, pwd: bytes | None = None) -> None:
            bundle = Path(str(self.filename))
            copy = directory / hashlib.sha256(bundle.read_bytes()).hexdigest()
            with lock:
                if not copy.exists():
                    super().extractall(copy)
            Path(path).rmdir()
            Path(path).symlink_to(copy)
            bundle.unlink()

    lambda_runtime.zipfile = SimpleNamespace(**{**vars(zipfile), "ZipFile": SharedZip})


class _Tokens(list[tuple[str, str]]):
    """The tokens of one expression, hashable by their values, unlike a list."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def parse_once() -> None:
    """Cache parsed expressions: the emulator parses a DynamoDB expression again for every item, a role's policies for
    every request, and a state's JSONata at every entry.
    """
    tokenize, project, parse = dynamodb._tokenize, dynamodb._project_item, iam_evaluator.parse_policy_document
    dynamodb._tokenize = _remembered(lambda expression: _Tokens(tokenize(expression)))
    for check in ("_condition_syntax_error", "_check_redundant_parens", "_check_reserved_keyword_usage"):
        setattr(dynamodb, check, _remembered(getattr(dynamodb, check)))
    parse_text = _remembered(parse)
    compile_text = JsonataParser.parse
    compiled = _remembered(lambda expression, *engine: compile_text(JsonataParser(), expression, *engine))
    JsonataParser.parse = lambda _, expression, *engine: compiled(expression, *engine)
    iam_evaluator.parse_policy_document = lambda policy: (
        parse_text(policy) if isinstance(policy, str) else parse(policy)
    )
    plain: dict[tuple[str, str], list[str]] = {}

    def project_item(item: Any, expression: str, aliases: dict[str, str]) -> Any:
        known = plain.get((expression, str(aliases)))
        if known is not None:
            return {name: item[name] for name in known if name in item}
        shown = project(item, expression, aliases)  # raises for an invalid one
        names = [aliases.get(path.strip(), ".") for path in expression.split(",")]
        if not any(set(".[") & set(name) for name in names):
            plain[expression, str(aliases)] = names
        return shown

    dynamodb._project_item = project_item


def _remembered(pure: Any) -> Any:
    """Cache the function's results for hashable arguments."""
    remembered = lru_cache(maxsize=1_024)(pure)

    def answer(what: Any, *more: Any) -> Any:
        return remembered(what, *more) if isinstance(what, Hashable) else pure(what, *more)

    return answer


def tell_errors_apart() -> None:
    """Report a failing function under its exception's class name, as AWS does, from the last line of its traceback. The
    emulator gives every failure one name, so no step would retry what was provably not accepted.
    """
    execute = attribute(lambda_svc, "_execute_function_with_config_scope")

    def execute_by_name(*arguments: Any, **named: Any) -> Json:
        result: Json = execute(*arguments, **named)
        body = result.get("body")
        if result.get("error") and isinstance(body, dict) and body.get("errorType") == _FLATTENED:
            body["errorType"] = name_in(result.get("log", ""), body.get("errorMessage", "")) or _FLATTENED
        return result

    lambda_svc._execute_function_with_config_scope = execute_by_name


def name_in(log: str, message: str) -> str:
    """Return the class of the exception with this message, without its module; empty where the log has none."""
    suffix = f": {re.escape(message)}" if message else ""
    names = re.findall(rf"^(?:\w+\.)*(\w+){suffix}\s*$", log, re.MULTILINE)
    return str(names[-1]) if names else ""
