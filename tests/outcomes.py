"""What came of seeded schedules and of every story: recorded once, so that a redesign shows each changed decision.

    python -m tests.outcomes record     # write tests/golden/outcomes
    python -m tests.outcomes compare    # what is different now, schedule by schedule; exit code 1 if anything is

The schedules are those of `nodeheal.simulation.schedules`, without injected failures: what they come to depends on
decisions, and not on which call was broken.
"""

import argparse
import csv
import io
import lzma
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

from nodeheal.contract.notification import Notification
from nodeheal.simulation.runner import run_world
from nodeheal.simulation.schedules import schedule
from nodeheal.simulation.setting import CALM
from nodeheal.simulation.world import SimulatedPool
from tests.support.fuse import Fuse
from tests.workflows.rare_stories import RARE_STORIES
from tests.workflows.stories import STORIES

SCHEDULES = 5_000
AT_ONCE = 25
RECORD = Path(__file__).parent / "golden" / "outcomes" / "schedules.csv.xz"
STORIES_RECORD = RECORD.with_name("stories.csv")
SHOWN = 20
_EMAIL_KEY = re.compile(r"^inc-\d{8}T\d{6}-(?P<node>.+)-[0-9a-f]{10}/(?P<word>[^/]+)(/\d+)?$")
# The records name commands by these words; a document that is not here is named by itself.
_VERBS = {
    "reboot-node": "reboot",
    "run-diagnostics": "diagnose",
    "freeze-evidence": "collect",
    "find-checkpoint": "find_checkpoint",
}
# What is done to a node and cannot be taken back: an isolation can.
DESTRUCTIVE = ("reboot", "stop", "replace", "launch")


@dataclass(frozen=True)
class Outcome:
    """One schedule or story. Each field is a list in one text, so that two are compared and read as they are."""

    name: str
    endings: str  # node family/code=ending
    acts: str  # node boot verb, of those that cannot be taken back
    restarts: str  # job=runs:state
    emails: str  # node word, or the key of what is about no incident

    def differs_from(self, other: "Outcome") -> list[str]:
        """Field by field: what only one of the two has."""
        told = []
        for name in ("endings", "acts", "restarts", "emails"):
            mine, theirs = (Counter(getattr(one, name).split("; ")) for one in (self, other))
            if mine != theirs:
                gone, new = sorted((theirs - mine).elements()), sorted((mine - theirs).elements())
                told.append(f"{name}: before {gone or '-'}, now {new or '-'}")
        return told


def play_stories() -> Iterator[Outcome]:
    """Every story of a recovery, without a break in it."""
    for story in (*STORIES, *RARE_STORIES):
        it = story.make(Fuse(writes_only=True))
        story.tell(it)
        incidents = it.ports.incidents.incidents.values()  # type: ignore[attr-defined]
        jobs = it.ports.jobs.jobs.values()  # type: ignore[attr-defined]
        yield Outcome(
            story.name,
            _line(f"{i.node_id} {i.root.family}/{i.root.code}={i.ending or i.state}" for i in incidents),
            _line(
                [*(f"{node} {_VERBS.get(what, what)}" for what, node in it.commands), *_of_machines(it.ports.machines)]
            ),
            _line(f"{job.job_id}={len(it.ports.jobs.runs(job.job_id))}:{job.state}" for job in jobs),
            _line(_about(told.key) for _, told in it.ports.notifier.announced),  # type: ignore[attr-defined]
        )


def _of_commands(commands: list[tuple[str, str]]) -> list[str]:
    return [f"{node} {_VERBS.get(document, document)}" for document, node in commands]


def _of_machines(machines: Any) -> Iterator[str]:
    """What EC2 was asked for."""
    yield from (f"{name} {power}" for name, power in machines.ordered)
    yield from (f"{name} {how}" for name, how in machines.given_back)
    yield from (f"{launch.machine_id or launch.failed} launched by {launch.group}" for launch in machines.launched_by)


def play(number: int) -> Outcome:
    """Run one schedule without injected failures."""
    world = SimulatedPool(replace(schedule(number), cloud=CALM))
    emails: list[str] = []
    read = world.operators.read

    def note(told: Notification) -> None:
        emails.append(_about(told.key))
        read(told)

    world.parts.notifier.on_send = note
    run_world(world)
    incidents = world.incidents.incidents.values()
    acts = (act for of_node in world.watch.acts.values() for act in of_node if act.verb in DESTRUCTIVE)
    return Outcome(
        str(number),
        _line(f"{i.node_id} {i.root.family}/{i.root.code}={i.ending or i.state}" for i in incidents),
        _line(f"{act.node_id} {act.boot_id.removeprefix(act.node_id + '-')} {act.verb}" for act in acts),
        _line(f"{job.job_id}={len(world.jobs.runs(job.job_id))}:{job.state}" for job in world.jobs.jobs.values()),
        _line(emails),
    )


def _line(found: Iterable[str]) -> str:
    return "; ".join(sorted(found))


def _about(key: str) -> str:
    """An email's key without what another pace would change: the time in an incident's id, the number of a turn."""
    known = _EMAIL_KEY.match(key)
    return f"{known['node']} {known['word']}" if known else key


def play_all(numbers: Iterable[int], processes: int = os.cpu_count() or 1) -> Iterator[Outcome]:
    """In order, in several processes."""
    with ProcessPoolExecutor(processes) as workers:
        yield from workers.map(play, numbers, chunksize=AT_ONCE)


def recorded(path: Path = RECORD) -> list[Outcome]:
    """The record, in order."""
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        return [Outcome(*row) for row in list(csv.reader(file))[1:]]


def record(outcomes: Iterable[Outcome], path: Path = RECORD) -> None:
    """Write the record. The same outcomes make the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(Outcome)]
    writer.writerow(names)
    writer.writerows([getattr(one, name) for name in names] for one in outcomes)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = text.getvalue().encode()
    path.write_bytes(lzma.compress(written, preset=9) if path.suffix == ".xz" else written)


def main(arguments: list[str] | None = None) -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.outcomes", description=__doc__)
    parser.add_argument("verb", choices=("record", "compare"))
    parser.add_argument("--schedules", type=int, default=SCHEDULES)
    given = parser.parse_args(arguments)
    if given.verb == "record":
        record(play_stories(), STORIES_RECORD)
        record(play_all(range(given.schedules)))
        sys.stdout.write(f"recorded every story and {given.schedules} schedules\n")
        return 0
    before = [*recorded(STORIES_RECORD), *recorded()[: given.schedules]]
    numbers = (int(one.name) for one in before if one.name.isdecimal())
    told = [
        f"{now.name}\n  " + "\n  ".join(now.differs_from(then))
        for then, now in zip(before, chain(play_stories(), play_all(numbers)), strict=True)
        if now != then
    ]
    more = f"\n... and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    sys.stdout.write("\n".join(told[:SHOWN]) + more + f"\n{len(told)} of {len(before)} end otherwise\n")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
