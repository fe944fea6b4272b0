"""The templates for clusters on AWS: their scripts run here, in a folder that stands for the machine's root."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nodeheal.agent.runtime import config
from nodeheal.contract import names

yaml = pytest.importorskip("yaml")
REPOSITORY = Path(__file__).parents[2]
PARALLELCLUSTER, HYPERPOD = REPOSITORY / "examples" / "parallelcluster", REPOSITORY / "examples" / "hyperpod"
CLUSTERMGTD = "etc/parallelcluster/slurm_plugin/parallelcluster_clustermgtd.conf"
CONFIGURED = "[clustermgtd]\ncluster_name = training\nregion = eu-central-1\ninstance_id = i-0a1b2c3d4e5f67890\n"
ARN = "arn:aws:sagemaker:eu-west-1:123456789012:cluster/2hd31rmi9mde"
# What the scripts call and this machine may not have; each call is recorded.
STANDS_IN = """\
#!/bin/bash
echo "$(basename "$0") $*" >>"$CALLS"
case "$(basename "$0") $1" in
    "aws s3") cp "$WHEELHOUSE" "$4" ;;
    "jq -r") echo "$ARN" ;;
    "systemctl is-active")
        case "$*" in *" slurm"*) [ "${!#}" = "$ACTIVE" ]; exit ;; esac
        exit "$INACTIVE" ;;
    "scontrol show") echo 'ClusterName             = training' ;;
    "id nodeheal") exit 1 ;;
esac
"""
PIP = "import os, sys\nwith open(os.environ['CALLS'], 'a') as file:\n    print('pip', *sys.argv[1:], file=file)\n"


class Machine:
    """A folder in which a script finds its paths, and the calls that it has made."""

    def __init__(self, root: Path) -> None:
        self.root, self._calls, programs = root, root / "calls", root / "programs"
        programs.mkdir()
        for name in ("aws", "dnf", "apt-get", "jq", "systemctl", "sleep", "id", "useradd", "chown", "scontrol"):
            (programs / name).write_text(STANDS_IN, "utf-8")
            (programs / name).chmod(0o755)
        (programs / "python3.11").symlink_to(sys.executable)
        wheel = root / "pip.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("pip/__main__.py", PIP)
        # As `make wheelhouse` makes it: the wheel is a zip within the zip.
        with zipfile.ZipFile(root / "nodeheal-agent-0.3.0.zip", "w") as archive:
            archive.write(wheel, "pip-26.3-py3-none-any.whl")
            archive.writestr("requirements-0.3.0.txt", "")
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CALLS": str(self._calls),
            "WHEELHOUSE": str(root / "nodeheal-agent-0.3.0.zip"),
            "ARN": ARN,
        }

    def has_only_python(self, name: str) -> None:
        """No other Python is on the PATH; empty: none at all."""
        programs, tools = self.root / "programs", self.root / "tools"
        (programs / "python3.11").unlink()
        tools.mkdir()
        for tool in ("bash", "cat", "chmod", "cut", "dirname", "grep", "install", "mktemp", "rm", "sed"):
            (tools / tool).symlink_to(str(shutil.which(tool)))
        if name:
            (programs / name).symlink_to(sys.executable)
        self._environment["PATH"] = f"{programs}:{tools}"

    def run(
        self, script: Path, *arguments: str, inactive: int = 0, stream: str = "stdout", active: str = "slurmd"
    ) -> str:
        """What it prints; it must succeed. `active`: Slurm's daemon that runs here."""
        text = re.sub(r"(?<![\w.\"])/(?=(opt|etc|var|sys)/)", f"{self.root}/", script.read_text("utf-8"))
        environment = {**self._environment, "INACTIVE": str(inactive), "ACTIVE": active}
        command = ["bash", "-c", text, script.name, *arguments]
        done = subprocess.run(command, env=environment, cwd=self.root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return str(getattr(done, stream))

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def read(self, name: str) -> str:
        """With the paths that it would have."""
        return (self.root / name).read_text("utf-8").replace(str(self.root), "")

    @property
    def calls(self) -> list[str]:
        return self.read("calls").splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def documented_scripts() -> dict[str, str]:
    """The page's scripts, by their places on a node."""
    page = (REPOSITORY / "docs" / "slurm.md").read_text("utf-8")
    return dict(re.findall(r"at `(/etc/slurm/\S+)`:\n\n```sh\n(.*?)```", page, re.DOTALL))


def documented_prolog() -> str:
    return documented_scripts()["/etc/slurm/nodeheal-prolog"]


@pytest.mark.parametrize("place", ["/etc/slurm/nodeheal-prolog", "/etc/slurm/nodeheal-health"])
def test_a_script_of_the_page_can_be_started_as_slurm_does_it(tmp_path: Path, place: str) -> None:
    """Without a shell: execve(2) takes no script that does not name its own."""
    script, agent = tmp_path / "script", tmp_path / "nodeheal-agent"
    script.write_text(documented_scripts()[place].replace("/opt/nodeheal/bin", str(tmp_path)))
    agent.write_text('#!/bin/sh\necho "$*"\n')
    for program in (script, agent):
        program.chmod(0o755)

    done = subprocess.run([script], env={}, capture_output=True, text=True, check=True)

    assert done.stdout in ("prolog\n", "check\n")


def test_the_head_node_gets_the_package_the_prolog_and_its_tag_and_hands_its_nodes_over(machine: Machine) -> None:
    machine.write(CLUSTERMGTD, CONFIGURED)
    (machine.root / "opt/slurm/etc/scripts/prolog.d").mkdir(parents=True)

    for _ in range(2):  # when the cluster is made, and when it is updated
        machine.run(PARALLELCLUSTER / "head.sh", "s3://your-bucket/nodeheal/nodeheal-agent-0.3.0.zip")

    handed_over = ["terminate_drain_nodes = False", "terminate_down_nodes = False", "disable_ec2_health_check = True"]
    assert machine.read(CLUSTERMGTD).splitlines() == CONFIGURED.splitlines() + handed_over
    assert machine.read("opt/slurm/etc/scripts/prolog.d/50_nodeheal") == documented_prolog()
    assert os.access(machine.root / "opt/slurm/etc/scripts/prolog.d/50_nodeheal", os.X_OK)
    assert [call.split()[:3] for call in machine.calls if call.startswith("pip")] == [
        ["pip", "install", "--no-index"]
    ] * 2
    tag = f"Key={names.SLURM_CONTROLLER_TAG},Value=training"
    told = f"aws ec2 create-tags --region eu-central-1 --resources i-0a1b2c3d4e5f67890 --tags {tag}"
    assert machine.calls[-1] == told


@pytest.mark.parametrize(("inactive", "looks"), [(0, 1), (3, 180)])
def test_a_compute_node_waits_for_its_agent_and_starts_without_one(machine: Machine, inactive: int, looks: int) -> None:
    said = machine.run(PARALLELCLUSTER / "compute.sh", inactive=inactive)

    assert sum(call.startswith("systemctl") for call in machine.calls) == looks
    assert ("starts without it" in said) is bool(inactive)


def test_the_cluster_has_the_tags_and_leaves_the_prolog_to_its_folder() -> None:
    cluster = yaml.safe_load((PARALLELCLUSTER / "cluster.yaml").read_text("utf-8"))

    queue = cluster["Scheduling"]["SlurmQueues"][0]
    tags = {tag["Key"]: tag["Value"] for tag in queue["Tags"]}
    settings = {key for one in cluster["Scheduling"]["SlurmSettings"]["CustomSlurmSettings"] for key in one}
    assert tags == {names.MANAGED_TAG: names.MANAGED_TAG_VALUE, names.AGENT_POOL_TAG: "h100"}
    assert settings == {"PrologFlags", "BatchStartTimeout", "JobRequeue"}
    assert queue["HealthChecks"]["Gpu"]["Enabled"] is False


def test_hyperpods_controller_runs_the_prolog_and_holds_no_job_for_it(machine: Machine) -> None:
    machine.write("opt/slurm/etc/slurm.conf", "PrologFlags=Contain\nSchedulerParameters=bf_interval=30\n")

    machine.run(HYPERPOD / "on_create_nodeheal.sh", "controller", "training")

    assert machine.read("opt/slurm/etc/slurm.conf").splitlines() == [
        "PrologFlags=Contain",
        "SchedulerParameters=nohold_on_prolog_fail,bf_interval=30",
        "Prolog=/etc/slurm/nodeheal-prolog",
        "BatchStartTimeout=200",
        "JobRequeue=1",
    ]


def test_hyperpods_compute_nodes_take_the_python_that_they_have(machine: Machine) -> None:
    machine.write("sys/devices/virtual/dmi/id/board_asset_tag", "i-0a1b2c3d4e5f67890\n")
    machine.has_only_python("python3.12")

    machine.run(HYPERPOD / "on_create_nodeheal.sh", "compute", "training")

    assert any(call.startswith("pip install --no-index") for call in machine.calls)
    assert not [call for call in machine.calls if call.startswith("apt-get")]


@pytest.mark.parametrize("arguments", [("compute", "training"), ("compute",), ("controller", "training")])
def test_what_fails_on_a_node_of_hyperpod_fails_no_cluster(machine: Machine, arguments: tuple[str, ...]) -> None:
    """There is no Python, no name of the cluster, or no slurm.conf. A prolog that is missing would drain the node."""
    machine.has_only_python("")

    told = machine.run(HYPERPOD / "on_create_nodeheal.sh", *arguments, stream="stderr")

    assert "nodeheal: not set up on this node (exit code " in told
    if arguments == ("compute", "training"):
        assert machine.read("etc/slurm/nodeheal-prolog") == documented_prolog()
        assert "there is no Python 3.11 or newer here" in told


@pytest.mark.parametrize(("active", "kind"), [("slurmctld", "controller"), ("slurmd", "compute"), ("none", "")])
def test_after_its_initialisation_a_node_of_hyperpod_knows_by_itself_what_it_is(
    machine: Machine, active: str, kind: str
) -> None:
    (machine.root / "on_create_nodeheal.sh").write_text('echo "on_create $*" >>"$CALLS"\n')

    machine.run(HYPERPOD / "on_init_complete_nodeheal.sh", active=active)

    assert [call for call in machine.calls if call.startswith("on_create")] == [f"on_create {kind} training"] * bool(
        kind
    )
    assert ("scontrol reconfigure" in machine.calls) is (kind == "controller")


def test_hyperpods_compute_nodes_get_the_package_the_prolog_and_a_configuration(machine: Machine) -> None:
    machine.write("sys/devices/virtual/dmi/id/board_asset_tag", "i-0a1b2c3d4e5f67890\n")

    machine.run(HYPERPOD / "on_create_nodeheal.sh", "compute", "training")

    assert machine.read("etc/slurm/nodeheal-prolog") == documented_prolog()
    loaded = config.load(machine.root / "etc/nodeheal/agent.toml")
    assert (loaded.node_id, loaded.cluster, loaded.region) == ("i-0a1b2c3d4e5f67890", "training", "eu-west-1")
    assert any(call.startswith("pip install --no-index") for call in machine.calls)
    assert (machine.root / "var/lib/nodeheal").is_dir()
    assert [call.split()[0] for call in machine.calls if call.endswith("nodeheal")] == ["id", "useradd", "chown"]
