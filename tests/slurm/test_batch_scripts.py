"""The batch scripts of examples/slurm on a real Slurm. A stand-in for torchrun records how it was started."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.slurm import why_missing
from tests.slurm.cluster import Slurm, running
from tests.support.checkpoint_trees import core_folder, distributed_folder

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())
EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
SCRIPTS = sorted(EXAMPLES.glob("*.sbatch"))
# In the first $FAILURES runs the one on node $KILLED writes a checkpoint and is killed. The others wait for it, as a
# rank in a collective does.
TORCHRUN = """\
#!/bin/bash
python3 - "$@" >>"$RECORD" <<'END'
import json, os, sys
told = {name: os.environ.get(name, "") for name in ("SLURM_NODEID", "SLURM_RESTART_COUNT", "NODEHEAL_RESUME_FROM")}
sys.stdout.write(json.dumps({**told, "arguments": sys.argv[1:]}) + "\\n")
END
[ "${SLURM_RESTART_COUNT:-0}" -lt "$FAILURES" ] || exit 0
if [ "$SLURM_NODEID" = "$KILLED" ]; then
    while [ "$(wc -l <"$RECORD")" -lt "$SLURM_NNODES" ]; do sleep 0.1; done
    cp -r "$SAVED/." "$CHECKPOINTS"
    kill -9 $$
fi
sleep 600
"""


@dataclass
class Submitted:
    """A job of one of the scripts, and its folder."""

    slurm: Slurm
    job: str
    folder: Path

    @property
    def checkpoints(self) -> Path:
        """Where it has its checkpoints."""
        return self.folder / "checkpoints"

    @property
    def log(self) -> list[str]:
        """The lines of its output, of all its runs."""
        return (self.folder / "log").read_text("utf-8").splitlines()

    @property
    def starts(self) -> list[dict[str, Any]]:
        """How torchrun was started, by run and node."""
        lines = [json.loads(line) for line in (self.folder / "record").read_text("utf-8").splitlines()]
        return sorted(lines, key=lambda one: (one["SLURM_RESTART_COUNT"], one["SLURM_NODEID"]))

    def shown(self, name: str) -> str:
        """One of its values in `scontrol show job`."""
        found = re.search(rf"\b{name}=(\S+)", self.slurm.ask("scontrol", "--oneliner", "show", "job", self.job))
        assert found is not None
        return found[1]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with running(tmp_path_factory.mktemp("batch"), 3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def jobs(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Submitted]:
    """All at once, since each one waits for its credential to expire."""
    root = tmp_path_factory.mktemp("jobs")
    for step in (500, 1000, 1500):
        core_folder(root / "megatron" / "saved" / f"iter_{step:07d}")
    (root / "megatron" / "saved" / "latest_checkpointed_iteration.txt").write_text("1500")
    (root / "megatron" / "saved" / "iter_0001500" / "__1_0.distcp").unlink()
    distributed_folder(root / "fsdp" / "saved" / "step-000500")
    for name in ("used up", "cancelled", "no trainer"):
        (root / name / "saved").mkdir(parents=True)
    return {
        "cancelled": submit(slurm, "fsdp.sbatch", root / "cancelled", nodes=1, KILLED="nobody", FAILURES=9),
        "megatron": submit(slurm, "megatron.sbatch", root / "megatron", nodes=2, KILLED=1, FAILURES=1),
        "fsdp": submit(slurm, "fsdp.sbatch", root / "fsdp", nodes=2, KILLED=1, FAILURES=1),
        "no trainer": submit(slurm, "train.sbatch", root / "no trainer", nodes=1, TRAINER="train.py"),
        "used up": submit(slurm, "fsdp.sbatch", root / "used up", nodes=1, KILLED=0, FAILURES=9, MAX_RESTARTS=1),
    }


def submit(slurm: Slurm, script: str, folder: Path, nodes: int, **variables: object) -> Submitted:
    """With the stand-in on the job's PATH before everything else. The cluster's nodes have no GPUs."""
    torchrun = folder / "bin" / "torchrun"
    torchrun.parent.mkdir()
    torchrun.write_text(TORCHRUN, "utf-8")
    torchrun.chmod(0o755)
    folders = {"RECORD": folder / "record", "CHECKPOINTS": folder / "checkpoints", "SAVED": folder / "saved"}
    path = os.pathsep.join([str(torchrun.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    told = {"PATH": path, "TRAINER": torchrun, **folders, **variables}
    options = ["--export=" + ",".join(["ALL", *(f"{name}={value}" for name, value in told.items())])]
    options += [f"--chdir={folder}", f"--nodes={nodes}", "--gpus-per-node=0", f"--output={folder}/log"]
    return Submitted(slurm, slurm.ask("sbatch", "--parsable", *options, str(EXAMPLES / script)), folder)


def test_a_job_whose_trainer_is_not_there_is_not_restarted(slurm: Slurm, jobs: dict[str, Submitted]) -> None:
    job = jobs["no trainer"]

    slurm.run_until(job.job, "FAILED")

    assert (job.shown("Restarts"), job.shown("ExitCode")) == ("0", "2:0")
    assert "there is no file train.py on" in job.log[-1]


def test_a_script_gets_the_arguments_that_stand_after_it(slurm: Slurm, tmp_path: Path) -> None:
    script, got = tmp_path / "steps.sbatch", tmp_path / "got"
    script.write_text(f"#!/bin/bash\n#SBATCH --requeue\nprintf '%s\\n' \"$@\" $SLURM_JOB_NAME >{got}\n", "utf-8")
    program = str(Path(sys.executable).with_name("nodeheal"))

    said = slurm.ask(
        *(program, "jobs", "submit", "--slurm", "--json", "--", "--job-name=named", f"--output={tmp_path}/log"),
        *(str(script), "--steps", "20 000", "--job-name=other"),
    )
    slurm.run_until(json.loads(said)["job"], "COMPLETED")

    assert got.read_text("utf-8").splitlines() == ["--steps", "20 000", "--job-name=other", "named"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_bash_and_ends_as_the_others_do(script: Path) -> None:
    text = script.read_text("utf-8")

    subprocess.run(["bash", "-n", script], check=True)

    assert {"#SBATCH --requeue", "#SBATCH --open-mode=append"} <= set(text.splitlines())
    texts = [one.read_text("utf-8") for one in SCRIPTS]
    assert len({text.partition("code=$?\n")[2] for text in texts}) == 1
    assert len({text.partition("# A wrong path")[2].partition("fi\n")[0] for text in texts}) == 1


def test_a_job_that_its_owner_cancels_is_not_restarted(slurm: Slurm, jobs: dict[str, Submitted]) -> None:
    job = jobs["cancelled"]
    slurm.wait(lambda: (job.folder / "record").exists(), "the job has begun")

    slurm.ask("scancel", job.job)
    slurm.run_until(job.job, "CANCELLED")

    assert job.shown("Restarts") == "0"
    assert not any("requeuing" in line for line in job.log)


def test_megatron_of_which_a_rank_was_killed_goes_on_from_its_newest_whole_checkpoint(
    slurm: Slurm, jobs: dict[str, Submitted]
) -> None:
    job = jobs["megatron"]

    slurm.run_until(job.job, "COMPLETED")

    assert job.shown("Restarts") == "1"
    # The second node's was killed (137), then the first one's was ended (143): srun has the highest code.
    assert f"failed with exit code 143: requeuing job {job.job}, restart 1 of 5" in job.log
    first, _, *again = [arguments_of(start) for start in job.starts]
    assert "--ckpt-step" not in first
    assert [one["--node-rank"] for one in again] == ["0", "1"]
    folder = str(job.checkpoints)
    assert {"--save": folder, "--load": folder, "--ckpt-step": "1000", "--nnodes": "2"}.items() <= again[0].items()


def test_fsdp_of_which_a_rank_was_killed_goes_on_from_the_checkpoint_that_it_has_written(
    slurm: Slurm, jobs: dict[str, Submitted]
) -> None:
    job = jobs["fsdp"]

    slurm.run_until(job.job, "COMPLETED")

    assert job.shown("Restarts") == "1"
    resumed_from = [start["NODEHEAL_RESUME_FROM"] for start in job.starts]
    assert resumed_from == ["", ""] + [str(job.checkpoints / "step-000500")] * 2


def test_a_job_whose_restarts_are_used_up_stays_failed_and_says_so_last(
    slurm: Slurm, jobs: dict[str, Submitted]
) -> None:
    job = jobs["used up"]

    slurm.run_until(job.job, "FAILED")

    assert job.log[-1] == "failed with exit code 137: not requeued, 1 of 1 restarts are used up"
    assert (job.shown("Restarts"), job.shown("ExitCode")) == ("1", "137:0")


def arguments_of(start: dict[str, Any]) -> dict[str, str]:
    """Each option with the word after it."""
    words = start["arguments"]
    return {word: words[at + 1] for at, word in enumerate(words[:-1]) if word.startswith("--")}
