"""Why a task ended, read from the words of ECS, of its agent and of the container runtime."""

import re

from nodeheal.contract.vocabulary import EndCause

# Begins the reason of a task that somebody asked ECS to stop: its stop code comes first (see `EcsTaskDetail`).
STOPPED_BY_REQUEST = "UserInitiated"
_HOST_LOST = re.compile(r"Host EC2 \(instance .*\) (?:terminated|stopped)")
_OUT_OF_MEMORY = re.compile(r"OutOfMemory|OOM", re.IGNORECASE)
# What no restart mends: the definition itself is wrong.
_CANNOT_START = re.compile(
    r"CannotPull\w*|CannotCreateContainer\w*|CannotCreateVolume\w*|InvalidParameter\w*|executable file not found"
    r"|exec format error|ResourceInitializationError"
)


def causes_of(stop_reason: str) -> tuple[EndCause, ...]:
    """What a stop reason says beside the exit code. A reason may hold several: one of each container."""
    if not stop_reason:
        return ()
    found = {
        EndCause.ON_REQUEST: stop_reason.startswith(STOPPED_BY_REQUEST),
        EndCause.NODE_LOST: _HOST_LOST.search(stop_reason),
        EndCause.OUT_OF_MEMORY: _OUT_OF_MEMORY.search(stop_reason),
        EndCause.CANNOT_START: _CANNOT_START.search(stop_reason),
    }
    return tuple(cause for cause, said in found.items() if said)
