"""Random schedules of an hour: a handful of nodes, a few faults, and everything that can fail in an account.

Each number is one setting and one run. `python -m nodeheal.simulation.schedules --minutes 60` does as many as it can.
"""

import argparse
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import time as time_of_day
from functools import partial
from itertools import count, islice
from random import Random
from signal import SIG_IGN, SIGINT, signal

from nodeheal.contract.vocabulary import Action, Provider, SchedulerKind
from nodeheal.domain.humanize import counted
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import (
    Breaker,
    Budget,
    MaintenanceWindow,
    Mode,
    Override,
    PoolPolicy,
    Weekday,
)
from nodeheal.domain.verbs import VERBS
from nodeheal.simulation.agenda import EPOCH
from nodeheal.simulation.report import SimulationReport
from nodeheal.simulation.runner import run_pool
from nodeheal.simulation.setting import (
    CALM,
    HARSH,
    NOBODY,
    Cloud,
    KubernetesWork,
    OperatorTimes,
    Others,
    Setting,
    SlurmJobs,
    Work,
    on_cluster,
)

HOURS, COOL_DOWN_HOURS = 4.0, 32.0
FAULTS = 2.5  # expected for one schedule
PANICS = 0.3  # of the faults that nodes report
SWITCHES_FAIL_A_DAY = 6.0  # once, in those few hours
AT_ONCE = 50
PROCESSES = 1_024  # no machine has more cores, and each process gets its numbers before it begins
BROKEN_OFF = 130  # the shell's code for Ctrl-C
POOL = "pool"
# Without RESET_GPU, which a schedule has only on request: another draw would change the run of each number.
_ACTIONS = tuple(action for action, verb in VERBS.items() if verb.has_mode and action is not Action.RESET_GPU)
_RESET_FIRST = ("xid/48", "xid/74", "xid/79", "xid/95", "xid/119")  # faults that the simulated GPUs have
_MODES = (Mode.act,) * 7 + (Mode.approve,) * 2 + (Mode.observe,)


def schedule(number: int, scheduler: SchedulerKind = SchedulerKind.ECS, *, resets: bool = False) -> Setting:
    """Return the setting of this number. A number is one run of ECS, under which it is recorded and replayed. On nodes
    of Slurm or Kubernetes it is another run, with the same faults; so is that with `resets`, where GPUs are reset
    before nodes are rebooted.
    """
    drawn = _schedule(number)
    drawn = (
        replace(drawn, policy=_with_resets(drawn.rules, Random(f"resets of schedule {number}"))) if resets else drawn
    )
    if scheduler is SchedulerKind.ECS:
        return drawn
    return on_cluster(drawn, _slurm_jobs(number) if scheduler is SchedulerKind.SLURM else _kubernetes_jobs(number))


def _schedule(number: int) -> Setting:
    draw = Random(f"schedule {number}")
    nodes, others = draw.randint(4, 12), _others(Random(f"others of schedule {number}"))
    return Setting(
        nodes=nodes,
        days=HOURS / 24,
        seed=number,
        pool=POOL,
        provider=draw.choice((Provider.hybrid, Provider.ec2)),
        faults_a_node_day=FAULTS / (nodes * HOURS / 24),
        cloud=draw.choice((CALM, Cloud(dies=0.000_5, interleaves=0.01), HARSH, HARSH)),
        work=Work(share=draw.choice((0.0, 0.5, 0.9)), gang_nodes=draw.randint(2, 4), days=draw.choice((0.1, 2.0))),
        operators=OperatorTimes(page_seconds=1_200, repair_seconds=7_200, round_seconds=21_600),
        policy=_with_others(_drawn_policy(number, draw, nodes), others),
        others=others,
        racks_of=4,
        switches_fail_a_day=Random(f"switches of schedule {number}").choice((0.0, SWITCHES_FAIL_A_DAY)),
        panics=Random(f"panics of schedule {number}").choice((0.0, PANICS)),
        cool_down_days=COOL_DOWN_HOURS / 24,
    )


def _slurm_jobs(number: int) -> SlurmJobs:
    draw = Random(f"slurm of schedule {number}")
    return SlurmJobs(
        share=draw.choice((0.3, 0.8, 1.3)),
        days=draw.choice((0.05, 0.2, 1.0)),
        requeueable=draw.choice((0.5, 0.5, 1.0)),
        unanswered=draw.choice((0.0, 0.01, 0.2)),
        replaces=draw.random() < 0.5,
    )


def _kubernetes_jobs(number: int) -> KubernetesWork:
    draw = Random(f"kubernetes of schedule {number}")
    return KubernetesWork(
        share=draw.choice((0.3, 0.8, 1.3)),
        days=draw.choice((0.05, 0.2, 1.0)),
        requeueable=draw.choice((0.7, 1.0)),
        services=draw.choice((0, 2)),
        bare=draw.choice((0.0, 0.2)),
        refused=draw.choice((0.0, 0.01, 0.1)),
        cordons_a_day=draw.choice((0.0, 48.0, 200.0)),
        owners_act_a_day=draw.choice((0.0, 24.0)),
    )


def _drawn_policy(number: int, draw: Random, nodes: int) -> RecoveryPolicy:
    policy = _with_modes(_policy(draw, nodes), Random(f"modes of schedule {number}"))
    return _with_limits(policy, Random(f"limits of schedule {number}"))


def _with_limits(policy: RecoveryPolicy, draw: Random) -> RecoveryPolicy:
    """Choose limits: the usual ones in half of the schedules; otherwise a node may be tried more often than any of its
    accelerators.
    """
    if draw.random() < 0.5:
        return policy
    limits = {action: limit.model_copy(update={"limit": 3}) for action, limit in policy.limits.items()}
    of_accelerators = {a: limit.model_copy(update={"limit": 1}) for a, limit in policy.accelerator_limits.items()}
    return policy.model_copy(update={"limits": limits, "accelerator_limits": of_accelerators})


def _policy(draw: Random, nodes: int) -> RecoveryPolicy:
    pool = PoolPolicy(
        mode=draw.choice(_MODES),
        budget=Budget(max_nodes=draw.randint(1, 3), max_percent=100),
        stop_start=draw.random() < 0.3,
    )
    breaker = draw.choice((Breaker(), Breaker(min_nodes=nodes + 2, max_nodes=nodes + 2)))
    return RecoveryPolicy(default_pool=pool, breaker=breaker)


def _with_modes(policy: RecoveryPolicy, draw: Random) -> RecoveryPolicy:
    """Choose modes: in half of the schedules every action has the pool's mode; otherwise one of them differs."""
    if draw.random() < 0.5:
        return policy
    modes = {draw.choice(_ACTIONS): draw.choice(tuple(Mode))}
    return policy.model_copy(update={"default_pool": policy.default_pool.model_copy(update={"modes": modes})})


def _with_resets(policy: RecoveryPolicy, draw: Random) -> RecoveryPolicy:
    """Choose the mode of resets: in half of the schedules the pool's; otherwise it differs."""
    pool = policy.default_pool.model_copy(update={"reset_gpu": True})
    if draw.random() < 0.5:
        pool = pool.model_copy(update={"modes": {**pool.modes, Action.RESET_GPU: draw.choice(tuple(Mode))}})
    ladder = (Action.RESET_GPU, Action.REBOOT, Action.REPLACE)
    overrides = tuple(Override(fault=fault, ladder=ladder, why="simulated") for fault in _RESET_FIRST)
    return policy.model_copy(update={"default_pool": pool, "overrides": overrides})


def _others(draw: Random) -> Others:
    """Choose others: in half of the schedules none; otherwise many, with all their actions in these few hours."""
    if draw.random() < 0.5:
        return NOBODY
    return Others(
        unmanaged_tasks=draw.choice((0.0, 0.5)),
        drained=0.15,
        opted_out=0.15,
        repaired=0.15,
        pauses_a_day=draw.choice((0.0, 12.0)),
        observed_a_day=draw.choice((0.0, 12.0)),
        drills_a_day=draw.choice((0.0, 12.0)),
    )


def _with_others(policy: RecoveryPolicy, others: Others) -> RecoveryPolicy:
    """Return the policy with unmanaged tasks that may be stopped, drills, and an hour of maintenance."""
    if others == NOBODY:
        return policy
    day = list(Weekday)[EPOCH.weekday()]
    window = MaintenanceWindow(days=(day,), starts_at=time_of_day(2), minutes=60, why="new firmware")
    known = policy.default_pool
    pool = known.model_copy(update={"stops_other_tasks": True, "drills": True, "maintenance": (window,)})
    return policy.model_copy(update={"default_pool": pool})


def run_schedule(
    number: int, scheduler: SchedulerKind = SchedulerKind.ECS, *, resets: bool = False
) -> SimulationReport:
    """Run one schedule to its end, which `nodeheal simulate --schedule` replays."""
    return run_pool(schedule(number, scheduler, resets=resets))


def run_some(
    numbers: Iterable[int], scheduler: SchedulerKind = SchedulerKind.ECS, *, resets: bool = False
) -> tuple[int, int, list[str], Counter[str]]:
    """Return (schedules, incidents, violations, exceptions of services)."""
    done, incidents, broken, surprises = 0, 0, list[str](), Counter[str]()
    option = "" if scheduler is SchedulerKind.ECS else f" --scheduler {scheduler.lower()}"
    option += " --reset-gpu" if resets else ""
    for number in numbers:
        done, again = done + 1, f"nodeheal simulate --schedule {number}{option} --trace {number}.trace"
        try:
            report = run_schedule(number, scheduler, resets=resets)
        except Exception as error:  # of the simulation itself: the others are run nevertheless
            broken.append(f"the simulation failed: {type(error).__name__}: {error}\n {again}")
            continue
        incidents += report.incidents
        surprises.update(dict.fromkeys(report.unforeseen, 1))
        broken += [
            f"{violation.invariant}: {violation.about}: {violation.text}\n    {again}"
            for _, violation in report.violations
        ]
    return done, incidents, broken, surprises


def main(arguments: list[str] | None = None) -> int:
    """Run until the time is over, or Ctrl-C; returns the numbers of schedules and violations."""
    given = _options(arguments)
    end = time.monotonic() + given.minutes * 60
    done, incidents, broken, surprises, is_cut_short = 0, 0, list[str](), Counter[str](), False
    numbers, run = (
        count(given.first),
        partial(run_some, scheduler=SchedulerKind(given.scheduler.upper()), resets=given.reset_gpu),
    )
    # Ctrl-C reaches every process of a terminal: the workers finish what they have begun, and only this one reacts.
    with ProcessPoolExecutor(given.processes, initializer=signal, initargs=(SIGINT, SIG_IGN)) as workers:
        try:
            while not done or time.monotonic() < end:
                batches = [list(islice(numbers, AT_ONCE)) for _ in range(given.processes)]
                for some, opened, lines, raised in workers.map(run, batches):
                    done, incidents = done + some, incidents + opened
                    broken += lines
                    surprises += raised
        except KeyboardInterrupt:  # the results of an hour are printed nevertheless
            is_cut_short = True
    cut_short = ", broken off" if is_cut_short else ""
    totals = (counted(done, "schedule"), counted(incidents, "incident"), counted(len(broken), "violation"))
    output = [f"{', '.join(totals)}{cut_short}", *broken]
    output += [f"raised {counted(often, 'time')}: {name}" for name, often in surprises.most_common(10)]
    sys.stdout.write("\n".join(output) + "\n")
    return 1 if broken else BROKEN_OFF if is_cut_short else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m nodeheal.simulation.schedules", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="begun batches are finished")
    parser.add_argument("--first", type=int, default=1_000_000, help="the first number")
    kinds = [kind.lower() for kind in SchedulerKind]
    parser.add_argument("--scheduler", choices=kinds, default=kinds[0], help="the scheduler of the nodes")
    parser.add_argument("--reset-gpu", action="store_true", help="GPUs are reset before nodes are rebooted")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args(arguments)
    if not 0 < given.minutes < math.inf:  # without any schedule there is no result
        parser.error(f"--minutes {given.minutes:g}: a number above 0")
    if given.first < 0 or not 1 <= given.processes <= PROCESSES:
        parser.error(f"--first is 0 or more, --processes 1 to {PROCESSES}")
    return given


if __name__ == "__main__":
    sys.exit(main())
