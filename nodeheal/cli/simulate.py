"""`nodeheal simulate`: a fleet that fails for days or years, under the real services and state machines."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from nodeheal.cli.say import read_policy, refuse, say, say_json, say_table
from nodeheal.domain.counted import counted

if TYPE_CHECKING:
    from nodeheal.simulation.report import Report
    from nodeheal.simulation.setting import Setting

VIOLATIONS_SHOWN = 20
BROKEN = 1


def simulate(
    nodes: Annotated[int, typer.Option(min=1, help="of the whole fleet")] = 100,
    days: Annotated[float, typer.Option(min=0.01, help="of virtual time")] = 30.0,
    seed: Annotated[int, typer.Option(help="the same seed is the same run, bit for bit")] = 1,
    faults_per_node_day: Annotated[
        float, typer.Option(min=0, help="6.5 in 1,000 node-days is what Meta published for RSC-1")
    ] = 0.0065,
    pool_nodes: Annotated[int, typer.Option(min=2, help="nodes of a pool; pools are simulated side by side")] = 500,
    policy: Annotated[
        Path | None, typer.Option(help="a policy document; without one, the defaults in act mode")
    ] = None,
    harsh: Annotated[
        bool, typer.Option(help="functions die, events are lost: far more often than in any cloud")
    ] = False,
    only: Annotated[str, typer.Option(help="this pool, and no other: for a replay")] = "",
    trace: Annotated[Path | None, typer.Option(help="write what happened, line by line; needs one pool")] = None,
    until: Annotated[
        float, typer.Option(help="stop the replay after so many seconds of virtual time; 0: do not")
    ] = 0.0,
    processes: Annotated[int, typer.Option(min=0, help="0: one a core")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Simulate a fleet. Nothing is touched, and no cloud is asked. Fails where an invariant was broken."""
    given = {"nodes": nodes, "days": days, "seed": seed, "faults_a_node_day": faults_per_node_day}
    settings = _settings(given, pool_nodes, policy, harsh)
    settings = [one for one in settings if one.pool == only] if only else settings
    if not settings:
        refuse(f"--only {only}: there is no such pool; the first is pool-000")
    if trace is not None or until:
        if len(settings) > 1:
            refuse("--trace and --until are of one pool: name it with --only")
        report = _traced(settings[0], trace, until)
    else:
        report = _run(settings, processes)
    command = (
        f"nodeheal simulate --nodes {nodes} --days {days:g} --seed {seed} --faults-per-node-day {faults_per_node_day:g}"
    )
    command += f" --pool-nodes {pool_nodes}" + (f" --policy {policy}" if policy else "") + (" --harsh" if harsh else "")
    _tell(report, command, as_json)
    if report.violations:
        raise typer.Exit(BROKEN)


def _settings(given: dict[str, Any], pool_nodes: int, policy: Path | None, harsh: bool) -> "list[Setting]":
    try:
        import jsonata  # noqa: F401
    except ImportError:
        refuse("nodeheal simulate evaluates the state machines: install the extra, nodeheal[simulate]")
    from nodeheal.simulation.definition import STATE_MACHINES, NoStateMachines, load
    from nodeheal.simulation.runner import pools_of
    from nodeheal.simulation.setting import HARSH, Cloud, Setting

    try:
        load("recover_node", STATE_MACHINES)
    except NoStateMachines as missing:
        refuse(str(missing))
    document = read_policy(policy) if policy is not None else None
    setting = Setting(**given, policy=document, cloud=HARSH if harsh else Cloud())
    return pools_of(setting, pool_nodes)


def _run(settings: "list[Setting]", processes: int) -> "Report":
    from nodeheal.simulation.runner import run_all

    console, is_quiet = Console(stderr=True), not sys.stderr.isatty()
    with Progress(console=console, transient=True, disable=is_quiet) as progress:
        task = progress.add_task(f"simulating {counted(len(settings), 'pool')}", total=len(settings))
        return run_all(settings, processes or None, lambda done: progress.update(task, completed=done))


def _traced(setting: "Setting", trace: Path | None, until: float) -> "Report":
    from nodeheal.simulation.runner import run_traced

    if trace is None:
        return run_traced(setting, lambda line: None, until)
    try:
        with trace.open("w", encoding="utf-8") as file:
            return run_traced(setting, lambda line: file.write(f"{line}\n"), until)
    except OSError as error:
        refuse(f"{trace}: {error.strerror}")


def _tell(report: "Report", command: str, as_json: bool) -> None:
    if as_json:
        say_json(report.as_json())
        return
    say_table(("what", "how much"), _rows(report))
    for pool, broken in report.violations[:VIOLATIONS_SHOWN]:
        say(f"{pool}: {broken.invariant}: {broken.about}: {broken.text}")
        say(f"    {command} --only {pool} --until {broken.at + 60:.0f} --trace {pool}.trace")
    if len(report.violations) > VIOLATIONS_SHOWN:
        say(f"and {len(report.violations) - VIOLATIONS_SHOWN} more; --json has them all")


def _rows(report: "Report") -> list[tuple[str, str]]:
    from nodeheal.simulation.report import spread

    isolated = {name: f"{seconds:.1f} s" for name, seconds in spread(report.to_isolation).items()}
    rows = [
        ("nodes, days", f"{report.nodes:,}, {report.days:g}"),
        ("faults", f"{report.faults:,}"),
        ("incidents", f"{report.incidents:,} ({report.still_open} open)"),
        ("endings", _counts(report.endings)),
        ("actions", _counts(report.actions)),
        ("fault to isolated", _counts(isolated)),
        ("pages, emails", f"{report.pages:,}, {report.emails:,}"),
        ("jobs", _counts(report.jobs)),
        ("ETTR", "no job ran" if report.ettr is None else f"{report.ettr:.4f}"),
        ("lost node hours", f"{report.lost_node_hours:,.0f}"),
        ("cost", f"${sum(report.dollars.values()):,.2f}"),
        ("throttled", _counts(report.throttled)),
        ("functions struck", f"{report.struck:,}; {report.dead_letters} dead letters"),
        ("violations", f"{len(report.violations)}"),
    ]
    return rows


def _counts(counts: Any) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
