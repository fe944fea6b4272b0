"""`nodeheal simulate`: a fleet that fails for days or years, under the real services and state machines."""

import shlex
import sys
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nodeheal.cli import simulated
from nodeheal.cli.say import read_policy, refuse
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.humanize import counted
from nodeheal.simulation import definition, injected_failures, mass_failure, runner, schedules
from nodeheal.simulation import latency as simulation_latency
from nodeheal.simulation import setting as simulation_setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from nodeheal.simulation.report import SimulationReport

BROKEN = 1


class LatencyName(StrEnum):
    """What the cloud takes by itself."""

    none = "none"
    aws = "aws"


class SchedulerName(StrEnum):
    """Whose nodes they are."""

    ecs = "ecs"
    slurm = "slurm"
    kubernetes = "kubernetes"


class BreakerSetting(StrEnum):
    """As it is in a mass failure."""

    raised = "raised"
    shipped = "shipped"


# More is a slip of the finger, or `inf`, and would never end.
NODES_AT_MOST, DAYS_AT_MOST, FAULTS_AT_MOST = 1_000_000, 36_500, 1_000
# The options that these two use. They bring a setting of their own, and would ignore any other option.
_OF_MASS_FAILURE = ("nodes", "seed", "mass_failure", "breaker", "latency", "trace", "until", "as_json")
_OF_SCHEDULE = (
    "schedule",
    "scheduler",
    "reset_gpu",
    "injected_failure",
    "latency",
    "trace",
    "until",
    "as_json",
)

Nodes = Annotated[int, typer.Option(min=1, max=NODES_AT_MOST, help="of the whole fleet")]
Days = Annotated[float, typer.Option(min=0.01, max=DAYS_AT_MOST, help="of virtual time")]
Seed = Annotated[int, typer.Option(help="the same seed is the same run, bit for bit")]
Faults = Annotated[
    float, typer.Option(min=0, max=FAULTS_AT_MOST, help="6.5 in 1,000 node-days is what Meta published for RSC-1")
]
PoolNodes = Annotated[
    int, typer.Option(min=2, help="nodes of a pool, where the policy names none; pools are simulated side by side")
]
Policy = Annotated[Path | None, typer.Option(help="a policy document; without one, the defaults in act mode")]
Harsh = Annotated[bool, typer.Option(help="functions die and events are lost far more often than in any cloud")]
Only = Annotated[str, typer.Option(help="this pool, and no other: for a replay")]
TraceFile = Annotated[Path | None, typer.Option(help="write what happened, line by line; needs one pool")]
Until = Annotated[float | None, typer.Option(min=0, help="break a replay off after so many seconds of virtual time")]
Number = Annotated[int | None, typer.Option(min=0, help="one random schedule, by its number, and nothing else")]
InjectedFailures = Annotated[
    list[str] | None,
    typer.Option("--inject-failure", help="CALL:HOW, as 4211:dies-after: what happens at one call of a schedule"),
]
Mass = Annotated[int, typer.Option(min=0, help="so many nodes fail within a second: breaker raised, and as it ships")]
Latencies = Annotated[LatencyName, typer.Option(help="aws: commands begin after 3 s, reboots 5 s after theirs")]
Schedulers = Annotated[
    SchedulerName, typer.Option(help="slurm, kubernetes: it starts all jobs itself, and nodeheal none")
]
Resets = Annotated[bool, typer.Option("--reset-gpu", help="in that schedule GPUs are reset before nodes are rebooted")]
OneBreaker = Annotated[BreakerSetting | None, typer.Option(help="only this of a mass failure's two runs: for a replay")]
Processes = Annotated[int | None, typer.Option(min=1, help="at once; without it, one a core")]
Json = Annotated[bool, typer.Option("--json", help="write JSON, for programs")]


def simulate(
    context: typer.Context,
    nodes: Nodes = 100,
    days: Days = 30.0,
    seed: Seed = 1,
    faults_per_node_day: Faults = 0.0065,
    pool_nodes: PoolNodes = 500,
    policy: Policy = None,
    harsh: Harsh = False,
    only: Only = "",
    trace: TraceFile = None,
    until: Until = None,
    schedule: Number = None,
    reset_gpu: Resets = False,
    injected_failure: InjectedFailures = None,
    mass_failure: Mass = 0,
    breaker: OneBreaker = None,
    latency: Latencies = LatencyName.none,
    scheduler: Schedulers = SchedulerName.ecs,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Simulate a fleet for days or years. AWS is not asked. Exit code 1: an invariant was broken."""
    _must_be_installed()

    failures = injected_failure or []
    given: dict[str, Any] = {"nodes": nodes, "days": days, "seed": seed, "faults_a_node_day": faults_per_node_day}
    given["latency"] = simulation_latency.LATENCIES[latency]
    if mass_failure:
        _refuse_unused_options(context, "--mass-failure", _OF_MASS_FAILURE)
        _fail_together(given, mass_failure, breaker, (trace, until), as_json, latency)
        return
    if breaker is not None:
        refuse("--breaker goes with --mass-failure")
    if schedule is not None:
        _refuse_unused_options(context, "--schedule", _OF_SCHEDULE)
    elif reset_gpu:
        refuse("--reset-gpu goes with --schedule; else a policy document says it")
    elif failures:
        refuse("--inject-failure needs --schedule: calls are numbered within one run")
    settings = (
        [replace(_schedule(schedule, failures, scheduler, reset_gpu), latency=simulation_latency.LATENCIES[latency])]
        if schedule is not None
        else _pools(given, pool_nodes, policy, harsh, only, scheduler)
    )
    if trace is not None or until is not None or schedule is not None:
        if len(settings) > 1:
            refuse("--trace and --until need one pool: name it with --only")

        try:
            report = _traced(settings[0], trace, until)
        except injected_failures.NoSuchCall as missed:
            refuse(f"--inject-failure {missed}")
    else:
        report = _run(settings, processes)
    again = f"nodeheal simulate --nodes {nodes} --days {days} --seed {seed} --pool-nodes {pool_nodes}"
    again += f" --faults-per-node-day {faults_per_node_day}"
    again += (f" --policy {shlex.quote(str(policy))}" if policy else "") + (" --harsh" if harsh else "")
    if schedule is not None:
        again = f"nodeheal simulate --schedule {schedule}" + " --reset-gpu" * reset_gpu
        again += "".join(f" --inject-failure {failure}" for failure in failures)
    again += _as_option(latency) + ("" if scheduler is SchedulerName.ecs else f" --scheduler {scheduler}")
    simulated.tell(report, again, as_json, latency)
    if report.violations:
        raise typer.Exit(BROKEN)


def _as_option(latency: LatencyName) -> str:
    return "" if latency is LatencyName.none else f" --latency {latency}"


def _must_be_installed() -> None:
    import jsonata  # noqa: F401  # before anything is computed

    try:
        definition.load("recover_node", definition.STATE_MACHINES)
    except definition.NoStateMachines as missing:
        refuse(str(missing))


def _refuse_unused_options(context: typer.Context, name: str, used: tuple[str, ...]) -> None:
    """Refuse the options given beside `name` that it would ignore."""
    of = {option.name: option.opts[0] for option in context.command.params if option.name is not None}
    options = [known for known in of if _is_said(context, known)]
    unused = [of[known] for known in options if known not in used]
    if unused:
        others = ", ".join(of[known] for known in used if of[known] != name)
        refuse(f"{name} goes with {others}, and not with {', '.join(unused)}")


def _is_said(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _pools(
    given: dict[str, Any], pool_nodes: int, policy: Path | None, harsh: bool, only: str, scheduler: SchedulerName
) -> "list[simulation_setting.Setting]":
    document = read_policy(policy) if policy is not None else None
    setting = simulation_setting.Setting(
        **given,
        policy=document,
        cloud=simulation_setting.HARSH if harsh else simulation_setting.Cloud(),
        others=simulation_setting.Others(),
    )
    if scheduler is not SchedulerName.ecs:
        setting = simulation_setting.on_cluster(
            setting,
            simulation_setting.SlurmJobs() if scheduler is SchedulerName.slurm else simulation_setting.KubernetesWork(),
        )
    pools = runner.pools_of(setting, pool_nodes)
    wanted = [candidate for candidate in pools if only in ("", candidate.pool)]
    if not wanted:
        there = " to ".join(dict.fromkeys([pools[0].pool, pools[-1].pool]))
        refuse(f"--only {only}: there is no such pool; there is {there}")
    return wanted


def _schedule(
    number: int, failures: list[str], scheduler: SchedulerName, reset_gpu: bool
) -> "simulation_setting.Setting":
    try:
        aimed = tuple(map(injected_failures.parse_injected_failure, failures))
    except ValueError as wrong:
        refuse(f"--inject-failure {wrong}")
    calls = [failure.call for failure in aimed]
    twice = next((call for call in calls if calls.count(call) > 1), None)
    if twice is not None:
        refuse(f"--inject-failure {twice}: give one failure for each call")
    drawn = schedules.schedule(number, SchedulerKind(scheduler.upper()), resets=reset_gpu)
    return replace(drawn, injected_failures=aimed)


def _fail_together(
    given: dict[str, Any],
    count: int,
    breaker: BreakerSetting | None,
    replay: tuple[Path | None, float | None],
    as_json: bool,
    latency: LatencyName,
) -> None:
    if count > given["nodes"]:
        refuse(f"--mass-failure {count}: of {counted(given['nodes'], 'node')}; give more with --nodes")
    if breaker is None and replay != (None, None):
        refuse("--trace and --until need one run: name it with --breaker raised or --breaker shipped")
    trace, until = replay
    reports = {
        name: _written(trace, partial(mass_failure.run_mass_failure, setting, until=until))
        for name, setting in mass_failure.settings_of(simulation_setting.Setting(**given, mass_failure=count)).items()
        if breaker in (None, name)
    }
    again = f"nodeheal simulate --nodes {given['nodes']} --seed {given['seed']} --mass-failure {count}"
    again += _as_option(latency)
    simulated.tell_mass_failure(count, reports, again, as_json, latency)
    if any(report.violations for report in reports.values()):
        raise typer.Exit(BROKEN)


def _run(settings: "list[simulation_setting.Setting]", processes: int | None) -> "SimulationReport":
    from rich.console import Console
    from rich.progress import Progress

    console, is_quiet = Console(stderr=True), not sys.stderr.isatty()
    with Progress(console=console, transient=True, disable=is_quiet) as progress:
        task = progress.add_task(f"simulating {counted(len(settings), 'pool')}", total=len(settings))
        return runner.run_all(settings, processes, lambda done: progress.update(task, completed=done))


def _traced(setting: "simulation_setting.Setting", trace: Path | None, until: float | None) -> "SimulationReport":
    return _written(trace, partial(runner.run_traced, setting, until=until))


def _written(trace: Path | None, run: "Callable[[Callable[[str], object]], SimulationReport]") -> "SimulationReport":
    """What comes of it, and line by line in this file where there is one."""
    if trace is None:
        return run(lambda line: None)
    try:
        with trace.open("w", encoding="utf-8") as file:
            return run(lambda line: file.write(f"{line}\n"))
    except OSError as error:
        refuse(f"{trace}: {error.strerror}")
