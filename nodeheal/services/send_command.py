"""Send a command to a node once, with the wait for its answer stored before."""

from collections.abc import Callable
from dataclasses import replace

from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import Outcome
from nodeheal.ports import Ports, Wait
from nodeheal.services.steps import result_of

COMMAND = "command"


def send_once(wait: Wait, send: Callable[[], str], request: StepRequest, ports: Ports) -> str | None:
    """Store the wait, send, and keep the command's id with it. None: an earlier call has sent it already.

    A workflow that repeats a call, because something after the sending was throttled, comes with a new token: the
    wait then gets that one, and nothing is sent again.
    """
    known = ports.waits.get(wait.kind, wait.key)
    same = known is not None and (known.incident_id, known.boot_id) == (wait.incident_id, wait.boot_id)
    if known is not None and same and known.command_id:
        _keep(replace(known, token=wait.token), known.command_id, request, ports)
        return None
    ports.waits.save(wait)
    command_id = send()
    _keep(wait, command_id, request, ports)
    return command_id


def _keep(wait: Wait, command_id: str, request: StepRequest, ports: Ports) -> None:
    """The wait with its command, and a twin that the command's own failure resumes."""
    failed = result_of(request, ports, Outcome.FAILED, "the node refused the command or could not run it")
    ports.waits.save(replace(wait, command_id=command_id, twin=(COMMAND, command_id)))
    ports.waits.save(
        replace(
            wait,
            kind=COMMAND,
            key=command_id,
            command_id="",
            twin=(wait.kind, wait.key),
            result_json=failed.model_dump_json(),
        )
    )
