"""What came of a simulation, for people and for programs."""

from collections.abc import Mapping
from typing import Any

from nodeheal.api.file_views import BrokenInvariant, MassFailureView, SimulationResults, SimulationView
from nodeheal.cli.say import say, say_json
from nodeheal.cli.table import say_table
from nodeheal.simulation.report import SimulationReport, spread
from nodeheal.simulation.seen import Violation

VIOLATIONS_SHOWN = 20
_RAISED_NAMED = 3
_BREAKERS = {"raised": "raised", "shipped": "as it ships"}


def tell(report: SimulationReport, command: str, as_json: bool, latency: str) -> None:
    """All of it, with the name of the latency. Each violation comes with the command that replays it."""
    if as_json:
        say_json(SimulationView(latency=latency, **dict(_results(report, command))))
        return
    say_table(("what", "how much"), [("latency", latency), *_rows(report)])
    _tell_violations(report, command)


def _results(report: SimulationReport, command: str) -> SimulationResults:
    shown = {name: value for name, value in vars(report).items() if name in SimulationResults.model_fields}
    broken = [
        BrokenInvariant(pool=pool, replay=_replay(command, pool, violation), **vars(violation))
        for pool, violation in report.violations
    ]
    return SimulationResults(
        **{**shown, "violations": len(broken)},
        ettr=report.ettr,
        dollars=report.dollars,
        broken=tuple(broken),
        isolated_after_seconds=spread(report.to_isolation),
        isolated_at_once_seconds=spread(report.isolated_at_once),
        isolated_after_wait_seconds=spread(report.isolated_after_wait),
    )


def _tell_violations(report: SimulationReport, command: str) -> None:
    for pool, violation in report.violations[:VIOLATIONS_SHOWN]:
        say(f"{pool}: {violation.invariant}: {violation.about}: {violation.text}")
        say(f"    {_replay(command, pool, violation)}")
    if len(report.violations) > VIOLATIONS_SHOWN:
        say(f"and {len(report.violations) - VIOLATIONS_SHOWN} more; --json has them all")


def _replay(command: str, pool: str, broken: Violation) -> str:
    """What shows it again, line by line, and a minute more."""
    of_one = any(option in command for option in ("--schedule", "--breaker"))
    only = "" if of_one else f" --only {pool}"
    return f"{command}{only} --until {broken.at + 60:.0f} --trace {pool}.trace"


def tell_mass_failure(
    count: int, reports: Mapping[str, SimulationReport], command: str, as_json: bool, latency: str
) -> None:
    """What a mass failure comes to with the breaker `raised`, and as it is `shipped`, or with one of the two."""
    if as_json:
        results = {name: _results(report, f"{command} --breaker {name}") for name, report in reports.items()}
        say_json(
            MassFailureView(
                failed=count,
                latency=latency,
                breaker_raised=results.get("raised"),
                breaker_as_it_ships=results.get("shipped"),
            )
        )
        return
    rows = []
    for name, report in reports.items():
        after = report.to_isolation
        rows.append(
            (_BREAKERS[name], latency, _isolated(after), *map(str, (len(after), report.pages, len(report.violations))))
        )
    say_table(("breaker", "latency", "fault to isolated", "isolated", "pages", "violations"), rows)
    for name, report in reports.items():
        _tell_violations(report, f"{command} --breaker {name}")


def _rows(report: SimulationReport) -> list[tuple[str, str]]:
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
        *([] if report.ettr is None else [("ETTR", f"{report.ettr:.4f}")]),  # of jobs that nodeheal started
        ("lost node hours", f"{report.lost_node_hours:,.0f}"),
        ("cost", f"${sum(report.dollars.values()):,.2f}"),
        ("throttled", _counts(report.throttled)),
        ("functions struck", f"{report.struck:,}; {report.dead_letters} dead letters"),
        ("services raised", _raised(report.unforeseen)),
        ("violations", f"{len(report.violations)}"),
    ]


def _raised(unforeseen: Mapping[str, int]) -> str:
    named = [f"{name} ({often})" for name, often in list(unforeseen.items())[:_RAISED_NAMED]]
    more = f"; and {len(unforeseen) - len(named)} more, see --json" if len(unforeseen) > len(named) else ""
    return "; ".join(named) + more or "nothing unforeseen"


def _isolated(after_seconds: list[float]) -> str:
    return _counts({name: f"{seconds:.1f} s" for name, seconds in spread(after_seconds).items()})


def _waited(after_seconds: list[float]) -> str:
    """Some wait for their job's end, for a person, a slot, or until a pause is over: days, where they must."""
    if not after_seconds:
        return "none"
    many = "1 node" if len(after_seconds) == 1 else f"{len(after_seconds):,} nodes"
    return f"{many}, median {spread(after_seconds)['p50'] / 3_600:.1f} h"


def _counts(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
