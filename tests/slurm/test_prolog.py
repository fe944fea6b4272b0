"""The prolog under a real Slurm: what its exit code does to the node and to the job."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.toml import toml
from tests.slurm.cluster import Slurm

REPOSITORY = Path(__file__).parents[2]
# As docs/slurm.md has it, but for the paths. Slurm gives it no PATH.
PROLOG = """\
export PYTHONPATH={repository} NODEHEAL_AGENT_CONFIG={config}
# in place of /opt/nodeheal/bin/nodeheal-agent:
agent="{python} -m nodeheal.agent.main"
$agent --version >/dev/null 2>&1 || exit 0
$agent prolog {options}
[ $? -ne 1 ]
"""
Configure = Callable[..., Path]


@pytest.fixture
def configure(slurm: Slurm, tmp_path: Path) -> Configure:
    def configure(name: str, options: str = "", text: str = "", **changes: object) -> Path:
        """A node's prolog and its agent's configuration: there is nothing to check, unless that is changed.

        Returns the agent's folder.
        """
        folder = tmp_path / name
        folder.mkdir()
        (folder / "boot_id").write_text("boot-1\n")
        known: dict[str, object] = {
            **{"node_id": "mi-0a1b2c3d4e5f67890", "cluster": "training", "pool": "h100", "provider": "hybrid"},
            **{"scheduler": "SLURM", "region": "eu-central-1", "endpoint_url": "http://127.0.0.1:9", "checks": []},
            **{"state_dir": str(folder / "state"), "orders_dir": str(folder / "orders")},
            "boot_id_file": str(folder / "boot_id"),
        }
        config = folder / "agent.toml"
        config.write_text(text or toml({**known, **changes}))
        words = {"repository": REPOSITORY, "config": config, "python": sys.executable, "options": options}
        slurm.prolog(name, PROLOG.format(**words))
        return folder

    return configure


def states_and_reasons(slurm: Slurm) -> list[tuple[str, str]]:
    rows = [line.split("|") for line in slurm.ask("sinfo", "-h", "-N", "-o", "%N|%T|%E").splitlines()]
    return [(state, reason) for name, state, reason in rows if name in slurm.names]


def test_a_node_whose_check_fails_is_drained_and_its_job_runs_elsewhere(slurm: Slurm, configure: Configure) -> None:
    first, second = slurm.take(2)
    configure(first, checks=["mounts"], mounts=["/nodeheal/fsx"])
    configure(second)
    slurm.ask("scontrol", "update", f"NodeName={second}", "Weight=9")  # Slurm takes the first one first

    job = slurm.submit('echo "$SLURMD_NODENAME"', "--requeue")

    slurm.run_until(job, "COMPLETED")
    told = (slurm.nodes_of(job), slurm.job(job, "Restarts"), slurm.output_of(job))
    assert told == ([second], "1", [second])
    assert states_and_reasons(slurm) == [("drained", "Prolog error"), ("idle", "none")]
    assert "the job must not start here" in (slurm.cluster.folder / f"{first}.log").read_text()


def test_a_job_starts_at_once_on_nodes_that_are_well(slurm: Slurm, configure: Configure) -> None:
    folders = {name: configure(name) for name in slurm.names}

    job = slurm.submit("true")

    slurm.run_until(job, "COMPLETED")
    [where] = slurm.nodes_of(job)
    assert slurm.job(job, "Restarts") == "0"
    assert (folders[where] / "orders" / "prolog-pass.json").exists()
    # Slurm 24.11 keeps the reason of a node that was resumed.
    slurm.wait(lambda: list(slurm.states().values()) == ["idle"] * 3, "all nodes are free")


@pytest.mark.parametrize(("text", "options"), [("what?", ""), ("", "--sekonds 10")])
def test_a_mistake_on_all_nodes_drains_none(slurm: Slurm, configure: Configure, text: str, options: str) -> None:
    for name in slurm.names:
        configure(name, options, text)

    job = slurm.submit("true")

    slurm.run_until(job, "COMPLETED")
    assert slurm.job(job, "Restarts") == "0"


def test_the_doctor_reads_the_settings_of_a_real_slurm(slurm: Slurm) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "nodeheal.agent.main", "slurm", "doctor"],
        env={**slurm.environment, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    states = {line[:24].strip(): line[24:31].strip() for line in ended.stdout.splitlines()}
    assert (ended.returncode, ended.stderr) == (0, "")
    assert states == {
        **dict.fromkeys(("slurmctld", "version", "SchedulerParameters", "PrologFlags"), "ok"),
        **{"Prolog": "poor", "PrologEpilogTimeout": "ok", "BatchStartTimeout": "poor", "ResumeTimeout": "poor"},
        **{"ReturnToService": "ok", "JobRequeue": "ok", "SuspendProgram": "-", "HealthCheckProgram": "-"},
    }
