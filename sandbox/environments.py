"""What keeps the sandbox quick when a hundred workflows run at once, on a machine of a few cores."""

import gc
import os
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from ministack.core import iam_evaluator
from ministack.services import dynamodb, lambda_svc

# On AWS an invocation that finds no idle environment gets a new one, and a thousand start side by side. Here each is a
# process that starts with most of a second of processor: more of them than cores only slow each other down.
MOST_A_FUNCTION = max(2, os.cpu_count() or 1)
_OBJECTS_A_COLLECTION = 100_000
_TURN_SECONDS = 0.000_5  # of a thread that another one waits for; Python's default is ten times that


def share_environments(most: int = MOST_A_FUNCTION) -> None:
    """At most `most` environments a function: who comes while all are at work stands in line. AWS would start one.

    Safe from deadlock as long as no function invokes itself and waits: none of ours invokes any.
    """
    acquire, release = lambda_svc.acquire_worker, lambda_svc.release_worker
    freed = threading.Condition()
    lines: defaultdict[str, deque[object]] = defaultdict(deque)

    def acquire_or_wait(name: str, config: Any, code: bytes, qualifier: str = "$LATEST") -> Any:
        line, place = lines[name], object()
        with freed:
            line.append(place)
            while True:
                if line[0] is place:
                    worker, why = acquire(name, config, code, qualifier=qualifier, max_concurrency=most)
                    if worker is not None:
                        line.popleft()
                        freed.notify_all()
                        return worker, why
                freed.wait()

    def release_and_tell(worker: Any) -> None:
        release(worker)
        with freed:
            freed.notify_all()

    lambda_svc.acquire_worker, lambda_svc.release_worker = acquire_or_wait, release_and_tell


class _Tokens(list[tuple[str, str]]):
    """The tokens of one expression: found again by what they are, as a list is not."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def parse_once() -> None:
    """The emulator parses a DynamoDB expression again for every item, and a role's policies for every request."""
    tokenize, project, parse = dynamodb._tokenize, dynamodb._project_item, iam_evaluator.parse_policy_document
    dynamodb._tokenize = _remembered(lambda expression: _Tokens(tokenize(expression)))
    for check in ("_condition_syntax_error", "_check_redundant_parens", "_check_reserved_keyword_usage"):
        setattr(dynamodb, check, _remembered(getattr(dynamodb, check)))
    parse_text = _remembered(parse)
    iam_evaluator.parse_policy_document = lambda policy: (
        parse_text(policy) if isinstance(policy, str) else parse(policy)
    )
    plain: dict[tuple[str, str], list[str]] = {}

    def project_item(item: Any, expression: str, aliases: dict[str, str]) -> Any:
        known = plain.get((expression, str(aliases)))
        if known is not None:
            return {name: item[name] for name in known if name in item}
        shown = project(item, expression, aliases)  # which refuses what is wrong
        names = [aliases.get(path.strip(), ".") for path in expression.split(",")]
        if not any(set(".[") & set(name) for name in names):
            plain[expression, str(aliases)] = names
        return shown

    dynamodb._project_item = project_item


def _remembered(pure: Any) -> Any:
    """The function, asked once for what can be found again."""
    remembered = lru_cache(maxsize=1_024)(pure)

    def answer(what: Any, *more: Any) -> Any:
        return remembered(what, *more) if isinstance(what, Hashable) else pure(what, *more)

    return answer


def answer_at_once() -> None:
    """One thread answers requests, beside those of a hundred workflows. It must not wait for its turn, nor for the
    garbage collector to look through all that was loaded at the start, which stays.
    """
    sys.setswitchinterval(_TURN_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_A_COLLECTION, 20, 20)
