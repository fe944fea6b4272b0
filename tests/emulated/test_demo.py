"""`make demo ARGS="--keep"`: what was played can be looked at, as it tells, until Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytestmark = pytest.mark.emulated

REPOSITORY = Path(__file__).parents[2]
PATIENCE_SECONDS = 600.0  # only a demo that hangs comes to it


def _hears_ctrl_c() -> None:
    """A shell has its background jobs ignore Ctrl-C, and what they start as well: these tests, for example."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_what_is_kept_can_be_looked_at_until_it_is_ended() -> None:
    command = [sys.executable, "-u", "-m", "sandbox.demo", "--story", "paused", "--keep"]
    demo = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, preexec_fn=_hears_ctrl_c)
    assert demo.stdout is not None
    impatience = threading.Timer(PATIENCE_SECONDS, demo.kill)
    impatience.start()

    said = ""
    while "Ctrl-C ends all of it." not in said:
        line = demo.stdout.readline()
        assert line, said
        said += line
    environment = dict(re.findall(r"(AWS_\w+)=(\S+)", said))
    nodeheal = [sys.executable, "-c", "from nodeheal.cli.entry import main; main()", "incidents", "list"]
    looked = subprocess.run(
        nodeheal, env={**os.environ, **environment}, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    demo.send_signal(signal.SIGINT)

    assert "observed" in looked.stdout, looked
    assert looked.stdout.endswith("1 incident within 7d\n")
    assert demo.wait(timeout=60) == 0
    impatience.cancel()
