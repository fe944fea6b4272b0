"""Runs many pools in several processes, with results in an order that does not depend on their number."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import active_children
from signal import SIG_IGN, SIGINT, signal

from nodeheal.contract.vocabulary import Provider
from nodeheal.simulation.injected_failures import NoSuchCall
from nodeheal.simulation.report import SimulationReport, report_of, together
from nodeheal.simulation.setting import DAY, Setting
from nodeheal.simulation.world import SimulatedPool

POOL_NODES = 500
PARTS = 100  # after each of which it is told how far the run has come


def pools_of(setting: Setting, pool_nodes: int = POOL_NODES) -> list[Setting]:
    """Split the fleet into pools of about equal size. Each has a seed of its own, and every second one is on EC2.

    Where the policy names pools, these are the pools, however large they become.
    """
    named = sorted(setting.policy.pools) if setting.policy is not None else []
    count = len(named) or max(1, -(-setting.nodes // pool_nodes))
    sizes = [setting.nodes // count + (number < setting.nodes % count) for number in range(count)]
    pools = named or [f"pool-{number:03d}" for number in range(count)]
    return [
        replace(setting, is_strict=False, nodes=size, pool=pool, provider=_provider(setting, number, count))
        for number, (size, pool) in enumerate(zip(sizes, pools, strict=True))
    ]


def _provider(setting: Setting, number: int, count: int) -> Provider:
    return setting.provider if count == 1 else Provider.ec2 if number % 2 else Provider.hybrid


def run_pool(setting: Setting) -> SimulationReport:
    """Run one pool from its beginning to its end."""
    return run_traced(setting)


def run_all(
    settings: list[Setting], processes: int | None = None, progress: Callable[[float], None] = lambda done: None
) -> SimulationReport:
    """Run all of them. `progress` gets how many are finished; of a single one, how much of it."""
    reports = []
    for number, report in enumerate(_each(settings, processes or os.cpu_count() or 1, progress), start=1):
        reports.append(report)
        progress(number)
    return together(reports)


def _each(settings: list[Setting], processes: int, progress: Callable[[float], None]) -> Iterator[SimulationReport]:
    if len(settings) == 1:
        yield run_traced(settings[0], progress=progress)
        return
    if processes == 1:
        yield from map(run_pool, settings)
        return
    with ProcessPoolExecutor(min(processes, len(settings)), initializer=signal, initargs=(SIGINT, SIG_IGN)) as workers:
        waiting = [workers.submit(run_pool, setting) for setting in settings][::-1]
        try:
            while waiting:
                yield waiting.pop().result()
        except BaseException:  # Ctrl-C, too: a worker would end its pool of hours, and begin the next
            for worker in active_children():
                worker.terminate()
            raise


def run_traced(
    setting: Setting,
    read: Callable[[str], object] | None = None,
    until: float | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> SimulationReport:
    """Run one pool with a trace, and stop after this many seconds where `until` is given. `progress`: see run_world."""
    return run_world(SimulatedPool(setting, read), until, progress)


def run_world(
    world: SimulatedPool, until: float | None = None, progress: Callable[[float], None] = lambda done: None
) -> SimulationReport:
    """Run a world to its end. Raises NoSuchCall for an injected failure that its call cannot have.

    It raises it also for a failure whose call has not come, but not where the run was stopped early. `progress` gets
    the share of the time that is simulated, again and again.
    """
    setting = world.setting
    end, cool_down = setting.days * DAY, setting.cool_down_days * DAY
    last = end + cool_down if until is None else until
    stop = min(end, last)
    for number in range(1, PARTS + 1):
        world.advance(stop * number / PARTS)
        progress(number / PARTS)
    # No fault comes after the end: the time of jobs and nodes is accounted before running work ends.
    spent, lost = world.work.so_far(), world.watch.out_of_service_seconds()
    if last > end:
        world.finish(min(cool_down, last - end))
    if world.hazards.beside_the_point:
        raise NoSuchCall(world.hazards.beside_the_point[0])
    if world.hazards.unstruck and until is None:
        raise NoSuchCall(f"{world.hazards.unstruck[0]}: there are {world.hazards.calls} calls in this run")
    return replace(report_of(world), job_seconds=spent, lost_node_hours=lost / 3_600)
