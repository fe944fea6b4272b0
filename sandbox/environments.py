"""What keeps the sandbox quick when a hundred workflows run at once, on a machine of a few cores."""

import gc
import os
import sys
import threading
from collections import defaultdict, deque
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


def parse_once() -> None:
    """The emulator parses a DynamoDB expression again for every item, and a role's policies for every request."""
    for pure in ("_tokenize", "_condition_syntax_error"):
        setattr(dynamodb, pure, lru_cache(maxsize=1_024)(getattr(dynamodb, pure)))
    parse = iam_evaluator.parse_policy_document
    parse_text = lru_cache(maxsize=1_024)(parse)

    def parse_policy(document: Any) -> Any:
        return parse_text(document) if isinstance(document, str) else parse(document)

    iam_evaluator.parse_policy_document = parse_policy


def answer_at_once() -> None:
    """One thread answers requests, beside those of a hundred workflows. It must not wait for its turn, nor for the
    garbage collector to look through all that was loaded at the start, which stays.
    """
    sys.setswitchinterval(_TURN_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_A_COLLECTION, 20, 20)
