"""Reads why a task ended from the texts of ECS, its agent and the container runtime."""

import re

from nodeheal.contract.vocabulary import EndCause

# The prefix of the reason of a task that somebody stopped by ECS: its stop code comes first (see `EcsTaskDetail`).
STOPPED_BY_REQUEST = "UserInitiated"
_HOST_LOST = re.compile(r"Host EC2 \(instance .*\) (?:terminated|stopped)")
_OUT_OF_MEMORY = re.compile(r"OutOfMemory|OOM", re.IGNORECASE)
# Errors that no restart fixes: the definition itself is wrong.
_CANNOT_START = re.compile(
    r"CannotPull\w*|CannotCreateContainer\w*|CannotCreateVolume\w*|InvalidParameter\w*|executable file not found"
    r"|exec format error|ResourceInitializationError"
)


def causes_of(stop_reason: str) -> tuple[EndCause, ...]:
    """Return the causes in a stop reason. A reason may contain one for each container."""
    if not stop_reason:
        return ()
    evidence = {
        EndCause.ON_REQUEST: stop_reason.startswith(STOPPED_BY_REQUEST),
        EndCause.NODE_LOST: _HOST_LOST.search(stop_reason),
        EndCause.OUT_OF_MEMORY: _OUT_OF_MEMORY.search(stop_reason),
        EndCause.CANNOT_START: _CANNOT_START.search(stop_reason),
    }
    return tuple(cause for cause, sign in evidence.items() if sign)
