"""One recovery from the fault line to the first step of the resumed job: the demo's story, in a cloud of its own.

The emulator, its functions (a process each), the agents and the trainers share the machine's cores.
"""

import sys
import tempfile
from pathlib import Path

from nodeheal.simulation.latency import LATENCIES
from sandbox.client import Sandbox
from sandbox.report import judge, make_report
from sandbox.stories import STORIES
from sandbox.story import Story, Told

BOOT_SECONDS = 3.0


def measure_recovery(latency: str) -> dict[str, float]:
    """Seconds from the fault line, and how much of the recovery was the control plane's own, at one latency."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Sandbox(Path(directory) / "cloud", boot_seconds=BOOT_SECONDS) as cloud,
    ):
        cloud.deploy()
        cloud.behave(**LATENCIES[latency].of_sandbox())
        story = Story(cloud, STORIES["fixed-by-reboot"].script, say)
        story.play()
        report = make_report(story)
    verdict = judge(story, report)
    if not verdict.is_right:
        raise RuntimeError(f"the story did not end as it should: {'; '.join(verdict.wrong)}")
    return {
        "fault_to_opened_s": report["detected_seconds"],
        "fault_to_isolated_s": report["isolated_seconds"],
        "fault_to_first_step_s": report["recovered_seconds"],
        "control_plane_s": report["control_plane_seconds"],
        "control_plane_percent": round(100 * report["control_plane_seconds"] / report["recovered_seconds"], 1),
    }


def say(told: Told, text: str) -> None:
    """A line of the story, as progress."""
    if text:
        sys.stderr.write(f"    {text}\n")
