"""PyTorch DDP under torchrun, on processors with gloo, across simulated nodes: killed, recovered, and exact."""

import importlib.util
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from nodeheal.contract.vocabulary import CheckpointFormat
from sandbox.client import Sandbox, free_port
from sandbox.job_file import EXAMPLES
from sandbox.report import judge, make_report
from sandbox.script import GANG_NODES, Script
from sandbox.stories import STORIES
from sandbox.story import Story
from sandbox.training import Training

has_torch = importlib.util.find_spec("torch") is not None and shutil.which("torchrun") is not None
pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(not has_torch, reason="PyTorch is not installed; test_stories plays this with NumPy alone"),
]

EXAMPLE = EXAMPLES / "torchrun"
# One process of one thread a node: two of them share this machine with the whole cloud.
ALONE = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
SCRIPT: Script = replace(
    STORIES["fixed-by-reboot"].script,
    job="ddp",
    pool="ddp",
    example=EXAMPLE.name,
    format=CheckpointFormat.torch_save,
    environment=ALONE,
    steps=160,
    step_seconds=0.06,
    boot_seconds=1.5,
)


def test_a_ddp_job_that_is_killed_and_recovered_comes_by_every_loss_of_one_that_was_not(tmp_path: Path) -> None:
    with Sandbox(tmp_path / "cloud", boot_seconds=SCRIPT.boot_seconds) as cloud:
        cloud.deploy()
        story = Story(cloud, SCRIPT, lambda told, text: None)
        story.play()
        report = make_report(story)

    assert judge(story, report).wrong == ()
    assert report["incident"]["ending"] == "RECOVERED"
    assert report["attempts"] == {"REBOOT": 1}
    assert 0 < report["step_at_fault"] - SCRIPT.checkpoint_every <= report["resumed_from_step"] < SCRIPT.steps
    assert len(report["losses"]) == SCRIPT.steps
    assert report["losses"] == pytest.approx(undisturbed(tmp_path / "undisturbed"), rel=1e-6)


def undisturbed(directory: Path) -> list[float]:
    """The loss after each step of the same gang, where nothing happens to it."""
    gang = {"NNODES": str(GANG_NODES), "NPROC_PER_NODE": "1", "MASTER_ADDR": "127.0.0.1"}
    port = {"MASTER_PORT": str(free_port()), "NODEHEAL_JOB": "undisturbed", "NODEHEAL_RUN": "1"}
    options = [f"--directory={directory}", f"--steps={SCRIPT.steps}", "--checkpoint-every=40"]
    nodes = [
        subprocess.Popen(
            ["./launch.sh", *options], cwd=EXAMPLE, env={**os.environ, **ALONE, **gang, **port, "NODE_RANK": str(rank)}
        )
        for rank in range(GANG_NODES)
    ]
    assert [node.wait(180) for node in nodes] == [0, 0]
    return Training(directory).read().losses
