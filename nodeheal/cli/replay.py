"""`nodeheal replay`: past events through a policy: what would have been decided, done and refused."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodeheal.adapters.memory import ports
from nodeheal.api import replays
from nodeheal.cli.say import complaints, read_policy, refuse, say, say_json
from nodeheal.contract import health_event, names
from nodeheal.contract.json_text import read_json
from nodeheal.domain.humanize import counted
from nodeheal.services.operators import replay as replay_service

if TYPE_CHECKING:
    from nodeheal.api.file_views import ReplayView

_ENVELOPES = ("detail", "event")  # EventBridge's, and ours with the job beside the event
SHOWN = 40


def replay(
    events: Annotated[
        Path,
        typer.Argument(
            help="one health event a line, JSON: as it is, in EventBridge's envelope, or as "
            '{"event": …, "job_id": "the job that ran on the node"}'
        ),
    ],
    policy: Annotated[Path, typer.Option(help="the policy document to decide by")],
    as_json: Annotated[bool, typer.Option("--json", help="write JSON, with every decision")] = False,
    acting: Annotated[bool, typer.Option(help="as if every pool were in act mode")] = False,
) -> None:
    """Decide past events by a policy. Nothing is touched, and AWS is not asked."""
    from rich.console import Console
    from rich.progress import track

    document = read_policy(policy)
    if acting:
        document = document.acting()
    past = _read(events)
    console, is_quiet = Console(stderr=True), not sys.stderr.isatty()
    watch = partial(track, description="replaying", console=console, transient=True, disable=is_quiet)
    view = replays.replay(past, document, ports.memory_ports, watch)
    if as_json:
        say_json(view)
    else:
        _tell(view)


def _read(file: Path) -> "list[replay_service.Past]":
    """The events of the file. A line that is none is refused by its number."""
    past: list[replay_service.Past] = []
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    past += _parse(line, f"{file}:{number}")
    except OSError as error:
        refuse(f"{file}: {error.strerror}")
    return past


def _parse(line: bytes, where: str) -> "list[replay_service.Past]":
    """The event of a line; none for an archived event of another kind."""
    from pydantic import ValidationError

    try:
        document = read_json(line)
    except ValueError as error:
        refuse(f"{where}: not JSON: {error}")
    if not isinstance(document, dict):
        refuse(f"{where}: not a JSON object")
    if document.get("detail-type", names.NODE_HEALTH_REPORTED) != names.NODE_HEALTH_REPORTED:
        return []
    job_id = document.pop("job_id", None)
    inner = next((document[key] for key in _ENVELOPES if isinstance(document.get(key), dict)), document)
    try:
        return [
            replay_service.Past(health_event.HealthEvent.model_validate(inner), None if job_id is None else str(job_id))
        ]
    except ValidationError as error:
        refuse(*complaints(where, error, health_event.HealthEvent))


def _tell(view: "ReplayView") -> None:
    say(f"{counted(view.events, 'event')}, by policy {view.policy_version}")
    for row in view.decisions[:SHOWN]:
        say(f"  {row.at:%Y-%m-%d %H:%M:%S}  {row.node_id}  {row.step:<16} {row.outcome:<9} {row.reason}")
    if len(view.decisions) > SHOWN:
        say(f"  ... and {len(view.decisions) - SHOWN} more decisions; --json has them all")
    for label, counts in (("events", view.ingested), ("actions", view.actions), ("endings", view.endings)):
        listed = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
        say(f"{label:<18}{listed}")
    say(f"{'nodes touched':<18}{len(view.nodes_touched)}: {', '.join(view.nodes_touched) or '-'}")
    say(f"{'budget refused':<18}{len(view.budget_refused)}")
    say(f"{'attempts refused':<18}{len(view.attempts_refused)}")
    say(f"{'still waiting':<18}{len(view.still_waiting)}")
    say("each step is taken to work, a repair to last 15 minutes, and a human to give a node back after 8 hours;")
    say("an event without a job_id is taken to come from a node without a job, and a node to confirm what it reported")
