"""The names under which nodes are asked, and under which they answer: a wait's key, and a random part kept with it.

The key follows from the incident and the turn, so that a repeated call finds its wait. The random part follows from
nothing: only the command that was sent names it.
"""

import re
from dataclasses import replace
from uuid import uuid4

from nodeheal.ports import Ports
from nodeheal.ports.storage import Wait

_RANDOM_PART = re.compile(r"\.[0-9a-f]{32}")
_CHARACTERS = 33


def named_at_random(wait: Wait, known: Wait | None) -> Wait:
    """The wait with a random part: that of `known`, if it is the same question to the same boot, else a new one."""
    if known is not None and (known.incident_id, known.boot_id) == (wait.incident_id, wait.boot_id):
        return replace(wait, nonce=known.nonce)
    return replace(wait, nonce=uuid4().hex)


def request_id_of_wait(wait: Wait) -> str:
    """The request id that the node is given, and echoes. A wait of version 0.1 has no random part."""
    return f"{wait.key}.{wait.nonce}" if wait.nonce else wait.key


def wait_for_answer(kind: str, request_id: str, ports: Ports) -> Wait | None:
    """The wait that an answer with this request id is for; None: nothing of that name is waited for."""
    has_random_part = _RANDOM_PART.fullmatch(request_id[-_CHARACTERS:]) is not None
    wait = ports.waits.get(kind, request_id[:-_CHARACTERS] if has_random_part else request_id)
    return wait if wait is not None and request_id_of_wait(wait) == request_id else None
