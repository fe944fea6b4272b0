"""Measures a recovery from the fault line to the first step of the resumed job: the demo's story, twice in one cloud,
and twice on a real Slurm.

First with cold functions, as after a quiet night: only those that a schedule of the stack pings have an environment.
Then with warm ones: each has served the recovery before. The emulator, its functions (a process each, kept once it has
started), the agents and the trainers share the machine's cores.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.simulation.latency import LATENCIES
from sandbox.client import Sandbox
from sandbox.demo import deploy_for, story_of
from sandbox.report import judge, make_report
from sandbox.script import Move
from sandbox.stories import STORIES, fallen
from sandbox.story import Story, Told

BOOT_SECONDS = 3.0
STEPS = 400  # the job must not finish while its functions cool down


def measure_recovery(latency: str) -> dict[str, float]:
    """Return the seconds of each leg and of the whole, `cold_` and `warm_`, at one latency."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Sandbox(Path(directory) / "cloud", boot_seconds=BOOT_SECONDS) as cloud,
    ):
        cloud.deploy()
        cloud.behave(**LATENCIES[latency].of_sandbox())
        return {**_recovered(cloud, latency, "cold", _cool_down), **_recovered(cloud, latency, "warm")}


def measure_slurm(latency: str) -> dict[str, float]:
    """Measure on a real Slurm: seconds until the node is drained, and until the job resumes."""
    report = recovered_on(SchedulerKind.SLURM, latency)
    return {
        "fault_to_drained_s": report["isolated_seconds"],
        "fault_to_first_step_s": report["recovered_seconds"],
    }


def recovered_on(scheduler: SchedulerKind, latency: str) -> dict[str, Any]:
    """Return the report of a recovery on this scheduler, at one latency. Functions are warm: another recovery precedes
    it. Raises StoryError where the scheduler is not installed here.
    """
    with (
        tempfile.TemporaryDirectory() as directory,
        Sandbox(Path(directory) / "cloud", boot_seconds=BOOT_SECONDS) as cloud,
    ):
        deploy_for(scheduler, cloud)
        cloud.behave(**LATENCIES[latency].of_sandbox())
        for pool in ("before", "measured"):
            script = replace(fallen(), scheduler=scheduler, pool=pool, job=pool, steps=STEPS)
            report = played(story_of(cloud, script, say))
    return report


def _recovered(cloud: Sandbox, latency: str, functions: str, *prepares: Move) -> dict[str, float]:
    script = STORIES["fixed-by-reboot"].script
    script = replace(script, pool=functions, job=f"llama-{functions}", steps=STEPS, prepares=prepares)
    report = played(Story(cloud, script, say))
    measured = {f"{leg['name']}_s": leg["seconds"] for leg in report["legs"]}
    measured |= {
        "wait_s": measured.get("wait_s", 0.0),  # it depends on the machine's speed whether a node waits to be stable
        "fault_to_isolated_s": report["isolated_seconds"],
        "fault_to_first_step_s": report["recovered_seconds"],
        "control_plane_s": report["control_plane_seconds"],
        "control_plane_percent": round(100 * report["control_plane_seconds"] / report["recovered_seconds"], 1),
    }
    return {f"{functions}_{name}": value for name, value in measured.items()}


def played(story: Story) -> dict[str, Any]:
    """Return the report of a story that ended as it should. Raises RuntimeError for another end."""
    story.play()
    report = make_report(story)
    verdict = judge(story, report)
    if not verdict.is_right:
        raise RuntimeError(f"the story did not end as it should: {'; '.join(verdict.wrong)}")
    return report


def _cool_down(story: Story) -> str:
    """End every function's environments, as Lambda does after quiet minutes, then send the schedules' pings."""
    cloud = story.sandbox
    # It would interrupt running functions: this email is the last effect of a start.
    story.wait(lambda: bool(cloud.owner_mails()), "the owner has been notified that the job runs")
    functions = cloud.client("lambda")
    for page in functions.get_paginator("list_functions").paginate():
        for function in page["Functions"]:
            # Setting a function's configuration gives it new environments, even with the same value.
            functions.update_function_configuration(
                FunctionName=function["FunctionName"], MemorySize=function["MemorySize"]
            )
    cloud.fire_schedules(is_waiting=True)
    return "every function is cold but those that a schedule keeps warm"


def say(told: Told, text: str) -> None:
    """Print a line of the story, as progress."""
    if text:
        sys.stderr.write(f"    {text}\n")
