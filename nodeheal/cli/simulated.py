"""What came of a simulation, for people and for programs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nodeheal.cli.say import say, say_json, say_table

if TYPE_CHECKING:
    from nodeheal.simulation.report import Report
    from nodeheal.simulation.seen import Violation

VIOLATIONS_SHOWN = 20


def tell(report: "Report", command: str, as_json: bool) -> None:
    """All of it. Each violation comes with the command that replays it."""
    if as_json:
        known, again = report.as_json(), [_replay(command, *one) for one in report.violations]
        broken = [{**one, "replay": how} for one, how in zip(known["broken"], again, strict=True)]
        say_json({**known, "broken": broken})
        return
    say_table(("what", "how much"), _rows(report))
    for pool, one in report.violations[:VIOLATIONS_SHOWN]:
        say(f"{pool}: {one.invariant}: {one.about}: {one.text}")
        say(f"    {_replay(command, pool, one)}")
    if len(report.violations) > VIOLATIONS_SHOWN:
        say(f"and {len(report.violations) - VIOLATIONS_SHOWN} more; --json has them all")


def _replay(command: str, pool: str, broken: "Violation") -> str:
    """What shows it again, line by line, and a minute more."""
    only = "" if "--schedule" in command else f" --only {pool}"
    return f"{command}{only} --until {broken.at + 60:.0f} --trace {pool}.trace"


def tell_mass_failure(count: int, both: "tuple[Report, Report]", as_json: bool) -> None:
    """What a mass failure comes to with the breaker raised, and as it ships."""
    raised, shipped = both
    if as_json:
        say_json({"failed": count, "breaker_raised": raised.as_json(), "breaker_as_it_ships": shipped.as_json()})
        return
    rows = []
    for name, report in (("raised", raised), ("as it ships", shipped)):
        after = report.to_isolation
        rows.append((name, _isolated(after), str(len(after)), str(report.pages), str(len(report.violations))))
    say_table(("breaker", "fault to isolated", "isolated", "pages", "violations"), rows)
    for (name, *_), report in zip(rows, both, strict=True):
        for _, broken in report.violations[:VIOLATIONS_SHOWN]:
            say(f"{name}, after {broken.at:.0f} s: {broken.invariant}: {broken.about}: {broken.text}")


def _rows(report: "Report") -> list[tuple[str, str]]:
    return [
        ("nodes, days", f"{report.nodes:,}, {report.days:g}"),
        ("faults", f"{report.faults:,}"),
        ("incidents", f"{report.incidents:,} ({report.still_open} open)"),
        ("endings", _counts(report.endings)),
        ("actions", _counts(report.actions)),
        ("fault to isolated", _isolated(report.isolated_at_once)),
        ("isolated after a wait", _waited(report.isolated_after_wait)),
        ("pages, emails", f"{report.pages:,}, {report.emails:,}"),
        ("jobs that ended", _counts(report.jobs)),
        ("ETTR", "no job ran" if report.ettr is None else f"{report.ettr:.4f}"),
        ("lost node hours", f"{report.lost_node_hours:,.0f}"),
        ("cost", f"${sum(report.dollars.values()):,.2f}"),
        ("throttled", _counts(report.throttled)),
        ("functions struck", f"{report.struck:,}; {report.dead_letters} dead letters"),
        ("violations", f"{len(report.violations)}"),
    ]


def _isolated(after_seconds: list[float]) -> str:
    from nodeheal.simulation.report import spread

    return _counts({name: f"{seconds:.1f} s" for name, seconds in spread(after_seconds).items()})


def _waited(after_seconds: list[float]) -> str:
    """Some wait for their job's end, for a person, a slot, or until a pause is over: days, where they must."""
    from nodeheal.simulation.report import spread

    if not after_seconds:
        return "none"
    return f"{len(after_seconds):,} nodes, median {spread(after_seconds)['p50'] / 3_600:.1f} h"


def _counts(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
