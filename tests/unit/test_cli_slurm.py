"""What operators see of Slurm in nodeheal's own lists, and how a batch script is submitted."""

import io
import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from nodeheal.cli import connect, slurm_submit
from nodeheal.cli import slurm as shown
from nodeheal.cli.main import app
from nodeheal.contract.vocabulary import JobState, NodeState, SchedulerKind
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import Node
from nodeheal.parsers.slurm import SlurmJob, SlurmNode
from nodeheal.parsers.slurm_report import NodeOut, SlurmReport
from tests.support.acts import MemoryControlPlane
from tests.support.builders import ACT, NOW, memory_ports, node
from tests.support.job_cluster import spec
from tests.support.jobs import ecs_job_of

RUN = CliRunner()
RUNS = SlurmJob("12", "RUNNING", "ada", True, 1, "gpu", 2, "gpu[1-2]", name="llama", submitted_at=1_795_766_989)
DONE = replace(
    RUNS, job_id="9", state="FAILED", exit_code=7, signal=0, reason="NonZeroExitCode", restarts=0, name="gpt"
)
WAITS = SlurmJob("13_[0-3]", "PENDING", "bob", False, 0, "gpu", 1, "", reason="Resources", name="sweep")
INCIDENT = "inc-20261127T035044-mi-0a-0123456789"
OUT = NodeOut("gpu-1", ("10.0.0.1",), "drained", "new riser card", "ada", 1_795_766_989, "a person")


class Controllers:
    """What the controllers of clusters answer; one that has no report does not answer."""

    def __init__(self, **reports: SlurmReport) -> None:
        self.reports, self.asked = reports, list[str]()
        self.seen: SlurmNode | Exception | None = SlurmNode("gpu-1", "10.0.0.1", "idle")
        self.address = "10.0.0.1"
        self.together: threading.Barrier | None = None

    def report(self, cluster: str) -> SlurmReport:
        """As SlurmController."""
        self.asked.append(cluster)
        if self.together is not None:
            self.together.wait(timeout=20)
        if cluster not in self.reports:
            raise NotAccepted(f"the Slurm controller of {cluster} (i-0) has not answered in 15 s")
        return self.reports[cluster]

    def address_of(self, node: Node) -> str:
        """As SlurmController."""
        return self.address

    def node_at(self, cluster: str, address: str) -> SlurmNode | None:
        """As SlurmController."""
        self.asked.append(cluster)
        if isinstance(self.seen, Exception):
            raise self.seen
        return self.seen


class World:
    """Pools of nodes on Slurm, each in a cluster of its own, and the controllers there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, controllers: Controllers) -> None:
        self.ports = memory_ports()
        self.controllers = controllers
        monkeypatch.setattr(connect, "ports", lambda table: self.ports)
        monkeypatch.setattr(connect, "policy", lambda: ACT)
        monkeypatch.setattr(connect, "policy_copy", lambda table: ACT)
        monkeypatch.setattr(connect, "control_plane", lambda: MemoryControlPlane(self.ports, ACT))
        monkeypatch.setattr(connect, "slurm", lambda: controllers)

    def has(self, name: str, cluster: str = "lab", **changes: Any) -> "World":
        """A node on Slurm, in a pool that is called as its cluster."""
        facts = {"scheduler": SchedulerKind.SLURM, "cluster": cluster, "pool": cluster, "address": "10.0.0.1"}
        self.ports.nodes.save(node(name, **{**facts, **changes}))
        return self


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch, Controllers(lab=SlurmReport((OUT,), (RUNS, DONE, WAITS)))).has("mi-1")


def run(*words: str) -> Any:
    answer = RUN.invoke(app, list(words))
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exception
    return answer


def test_jobs_of_slurm_stand_beside_nodeheals_own_in_one_list(lab: World) -> None:
    lab.ports.nodes.save(node("mi-9", pool="demo"))
    lab.ports.jobs.save(ecs_job_of(spec(pool="demo"), "training", "trainer:1", NOW))

    said, rows = run("jobs", "list"), json.loads(run("jobs", "list", "--json").stdout)

    assert [(row["job"], row["scheduler"], row["state"]) for row in rows] == [
        ("llama", "ECS", "SUBMITTED"),
        ("12", "SLURM", "RUNNING"),
        ("13_[0-3]", "SLURM", "PENDING"),
        ("9", "SLURM", "FAILED"),
    ]
    assert {"name", "cluster", "partition", "node_list", "exit_code", "may_requeue"} <= rows[1].keys() - rows[0].keys()
    assert rows[0].keys() <= rows[1].keys()
    assert (rows[1]["run"], rows[1]["submitted_at"], rows[1]["pool"]) == (2, "2026-11-27T08:09:49+00:00", None)
    assert (rows[3]["exit_code"], rows[2]["run"]) == (7, 0)
    assert "lab/gpu" in said.stdout
    assert "llama of ada: runs on gpu[1-2], restarted 1 time\n" in said.stdout
    assert "gpt of ada: ran on gpu[1-2], exit code 7, Slurm says: NonZeroExitCode\n" in said.stdout
    assert "sweep of bob: waits: Resources, may not be requeued\n" in said.stdout
    assert said.stdout.endswith("4 jobs, 3 active\n")
    assert (said.exit_code, said.stderr) == (0, "")


def test_jobs_of_slurm_stand_beside_the_first_part_of_the_list(lab: World) -> None:
    lab.ports.nodes.save(node("mi-9", pool="demo"))
    for name in ("a", "b"):
        lab.ports.jobs.save(replace(ecs_job_of(spec(pool="demo"), "training", "trainer:1", NOW), job_id=name))

    first = json.loads(run("jobs", "list", "--json", "--limit", "1").stdout)
    rest = json.loads(run("jobs", "list", "--json", "--after", first["next"]).stdout)

    assert ([row["job"] for row in first["rows"]], [row["job"] for row in rest["rows"]]) == (["a"], ["b"])
    assert [row["job"] for row in first["slurm"]] == ["12", "13_[0-3]", "9"]
    assert (rest["slurm"], rest["next"], lab.controllers.asked) == ([], None, ["lab"])


def test_a_signal_is_told_instead_of_an_exit_code(lab: World) -> None:
    lab.controllers.reports["lab"] = SlurmReport((), (replace(DONE, exit_code=0, signal=9, reason=""),))

    assert "gpt of ada: ran on gpu[1-2], ended by signal 9\n" in run("jobs", "list").stdout


def test_what_a_user_or_a_controller_makes_up_is_text_and_breaks_no_list(lab: World) -> None:
    odd = replace(RUNS, name="x\x1b[2J\u202e\n99 SLURM RUNNING", submitted_at=10**18)
    lab.controllers.reports["lab"] = SlurmReport((replace(OUT, reason="\x1b[2J", since=10**18),), (odd,))

    said, nodes = run("jobs", "list").stdout, run("nodes", "list", "lab", "--slurm").stdout

    assert all(line.isprintable() for line in [*said.splitlines(), *nodes.splitlines()])
    assert not [line for line in said.splitlines() if line.startswith("99")]
    assert json.loads(run("jobs", "list", "--json").stdout)[0]["submitted_at"] is None


def test_a_list_of_one_pool_and_of_what_lives_holds_for_slurm_too(lab: World) -> None:
    lab.ports.nodes.save(node("mi-9", pool="demo"))

    live = json.loads(run("jobs", "list", "lab", "--live", "--json").stdout)
    asked = len(lab.controllers.asked)
    elsewhere = json.loads(run("jobs", "list", "demo", "--json").stdout)

    assert [row["job"] for row in live] == ["12", "13_[0-3]"]
    assert (elsewhere, len(lab.controllers.asked)) == ([], asked)


@pytest.mark.parametrize("command", ["jobs list", "nodes list training --slurm", "nodes show mi-9", "nodes list lab"])
def test_nobody_is_asked_where_no_node_is_on_slurm_or_nobody_wants_to_know(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    world = World(monkeypatch, Controllers())
    world.ports.nodes.save(node("mi-9", pool="training"))
    world.has("mi-1", state=NodeState.RETIRED)
    monkeypatch.setattr(connect, "slurm", lambda: pytest.fail("it would ask SSM"))

    said = run(*command.split())

    assert (said.exit_code, said.stderr) == (0, "")


def test_clusters_are_asked_at_once_and_one_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, Controllers(lab=SlurmReport((), (RUNS,)), far=SlurmReport((), (WAITS,), 0, 40)))
    world.has("mi-1").has("mi-2", "far").has("mi-3", "down").has("mi-4", "down")
    world.controllers.together = threading.Barrier(3)  # the first answer waits until all are asked

    said = run("jobs", "list", "--json")

    assert sorted(world.controllers.asked) == ["down", "far", "lab"]
    assert {row["cluster"] for row in json.loads(said.stdout) if row["job"]} == {"lab", "far"}
    assert said.stderr.splitlines() == [
        "Slurm cluster down is not shown: the Slurm controller of down (i-0) has not answered in 15 s",
        "Slurm cluster far: 0 nodes and 40 jobs had no room in its report; ask sinfo and squeue there",
    ]


def test_a_person_who_may_not_ask_sees_the_rest(lab: World, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = ClientError(
        {"Error": {"Code": "AccessDeniedException", "Message": "grace may not ssm:DescribeInstanceInformation"}},
        "DescribeInstanceInformation",
    )

    def deny(cluster: str) -> SlurmReport:
        raise denied

    monkeypatch.setattr(lab.controllers, "report", deny)

    said = run("jobs", "list")

    assert said.stdout == "no job of nodeheal's; those of Slurm cluster lab are not known\n"
    assert "Slurm cluster lab is not shown: " in said.stderr
    assert "grace may not ssm:DescribeInstanceInformation" in said.stderr


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (
            SlurmNode("gpu-1", "10.0.0.1", "drained", "new riser card", "ada", 1_795_766_989),
            "gpu-1 is drained by ada since 2026-11-27 08:09:49 UTC: new riser card",
        ),
        (
            SlurmNode("gpu-1", "h", "draining", f"nodeheal:{INCIDENT}", "root"),
            f"gpu-1 is draining by nodeheal: nodeheal:{INCIDENT}",
        ),
        (SlurmNode("gpu-1", "h", "down", "Not responding", "slurm"), "gpu-1 is set to DOWN by Slurm: Not responding"),
        (SlurmNode("gpu-1", "h", "fail", "new card", "root"), "gpu-1 is set to FAIL by root: new card"),
        (SlurmNode("gpu-1", "h", "drained", "new card", ""), "gpu-1 is drained by a person: new card"),
        (SlurmNode("gpu-1", "h", "mixed"), "gpu-1 is mixed"),
    ],
)
def test_a_node_is_shown_as_slurm_has_it(lab: World, seen: SlurmNode, words: str) -> None:
    lab.controllers.seen = seen

    said, told = run("nodes", "show", "mi-1"), json.loads(run("nodes", "show", "mi-1", "--json").stdout)

    assert said.stdout.splitlines()[-1] == f"Slurm        {words}"
    assert f"{told['slurm']['name']} is {told['slurm']['summary']}" == words
    assert told["slurm"]["taken_by"] == (seen.taken_by or None)


@pytest.mark.parametrize(
    ("address", "seen", "words"),
    [
        ("10.0.0.1", NotAccepted("SSM does not reach it"), "not known: SSM does not reach it"),
        ("10.0.0.7", None, "knows no node at 10.0.0.7 (cluster lab), or more than one"),
        ("", None, "not asked: nobody knows the address of mi-1"),
    ],
)
def test_a_node_of_which_slurm_says_nothing_is_shown_with_the_reason(
    lab: World, address: str, seen: Exception | None, words: str
) -> None:
    lab.controllers.address, lab.controllers.seen = address, seen

    said, told = run("nodes", "show", "mi-1"), json.loads(run("nodes", "show", "mi-1", "--json").stdout)

    assert (said.exit_code, said.stderr) == (0, "")
    assert said.stdout.splitlines()[-1] == f"Slurm        {words}"
    assert (told["slurm"]["summary"], told["slurm"]["state"]) == (words, None)
    assert bool(lab.controllers.asked) == bool(address)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (SlurmNode("gpu-1", "h", "draining", "riser, ada", "ada", 1_795_766_989), ["riser, ada"]),
        (SlurmNode("gpu-1", "h", "idle"), []),
        (NotAccepted("SSM does not reach it"), []),
    ],
)
def test_a_release_says_who_keeps_the_node_out_of_service(
    lab: World, seen: SlurmNode | Exception, said: list[str]
) -> None:
    lab.has("mi-2", state=NodeState.QUARANTINED)
    lab.controllers.seen = seen

    lines = run("nodes", "release", "mi-2", "--why", "new riser card").stdout.splitlines()

    assert lines[0] == "mi-2 is HEALTHY now; nothing has checked it: `nodeheal nodes diagnose mi-2 --why …` does"
    assert [line.rpartition(": ")[2] for line in lines[1:]] == said


def test_a_list_of_nodes_says_where_nothing_is_known_of_slurm(lab: World) -> None:
    lab.controllers.reports.clear()
    lab.has("mi-3", "lab", scheduler=SchedulerKind.ECS)

    said = run("nodes", "list", "lab", "--slurm")
    rows = {row["node"]: row["slurm"] for row in json.loads(run("nodes", "list", "lab", "--slurm", "--json").stdout)}

    assert said.exit_code == 0
    assert [line.split()[0] for line in said.stdout.splitlines() if "Slurm: not known" in line] == ["mi-1"]
    assert (rows["mi-1"]["summary"], rows["mi-3"]) == ("not known", None)


def test_a_reason_of_slurms_stands_alone_where_there_is_no_other(lab: World) -> None:
    lab.has("mi-2", state_reason="proven")

    said = run("nodes", "list", "lab", "--slurm").stdout

    assert "  Slurm: drained by ada since" in said
    assert "proven; Slurm: drained by ada since" in said


class Terminal(io.StringIO):
    """Where a person reads along, or not."""

    def __init__(self, is_there: bool) -> None:
        super().__init__()
        self._is_there = is_there

    def isatty(self) -> bool:
        """As a stream has it."""
        return self._is_there


@pytest.mark.parametrize(("is_there", "said"), [(True, "asking the Slurm controller of lab …\n"), (False, "")])
def test_only_a_terminal_is_told_that_a_controller_is_asked(
    lab: World, monkeypatch: pytest.MonkeyPatch, is_there: bool, said: str
) -> None:
    errors = Terminal(is_there)
    monkeypatch.setattr(sys, "stderr", errors)

    shown.reports_of(["lab"])

    assert errors.getvalue() == said


def test_jobs_that_are_not_known_are_no_empty_list(lab: World) -> None:
    lab.controllers.reports.clear()
    lab.ports.nodes.save(node("mi-9", pool="demo"))
    empty, rows = run("jobs", "list"), json.loads(run("jobs", "list", "--live", "--json").stdout)
    lab.ports.jobs.save(ecs_job_of(spec(pool="demo"), "training", "trainer:1", NOW))

    said = run("jobs", "list")

    assert empty.stdout == "no job of nodeheal's; those of Slurm cluster lab are not known\n"
    assert said.stdout.endswith("1 job, 1 active; those of Slurm cluster lab are not known\n")
    assert {empty.exit_code, said.exit_code, run("jobs", "list", "--json").exit_code} == {6}
    assert run("jobs", "list", "demo").exit_code == 0
    [row] = rows
    assert (row["job"], row["scheduler"], row["state"], row["cluster"]) == (None, "SLURM", "UNKNOWN", "lab")
    assert row["summary"].endswith("has not answered in 15 s")
    assert json.loads(run("jobs", "list", "demo", "--json").stdout)[0].keys() <= row.keys()


@pytest.mark.parametrize("command", ["show", "stop --why done", "logs", "wait", "restart"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("2", "`scontrol show job 2`, `scancel 2`"),
        ("12_3", "`scontrol show job 12_3`, `scancel 12_3`"),
        ("13_[0-3]", "`scontrol show job 13`, `scancel '13_[0-3]'`"),
        ("llama", "no job llama is known; see `nodeheal jobs list`"),
    ],
)
def test_a_job_of_slurms_is_pointed_to_slurms_commands(
    lab: World, monkeypatch: pytest.MonkeyPatch, command: str, name: str, told: str
) -> None:
    verb, *options = command.split()

    said = run("jobs", verb, name, *options)

    assert (said.exit_code, said.stdout) == (1, "")
    assert told in said.stderr
    assert ("on cluster lab: " in said.stderr) == (name != "llama")


def test_a_job_of_nodeheals_may_have_a_number_for_its_name(lab: World) -> None:
    lab.ports.nodes.save(node("mi-9", pool="demo"))
    lab.ports.jobs.save(replace(ecs_job_of(spec(pool="demo"), "training", "trainer:1", NOW), job_id="2"))

    assert lab.ports.jobs.get("2") == shown.our_job("2", lab.ports)


def test_where_no_node_is_on_slurm_a_number_is_no_job_of_slurms(monkeypatch: pytest.MonkeyPatch) -> None:
    World(monkeypatch, Controllers()).has("mi-1", scheduler=SchedulerKind.ECS)

    assert run("jobs", "wait", "2").stderr == "no job 2 is known; see `nodeheal jobs list`\n"


def test_a_job_that_waits_again_runs_nowhere(lab: World) -> None:
    again = replace(WAITS, node_list="gpu3", restarts=1)
    lab.controllers.reports["lab"] = SlurmReport((), (again,))

    assert "sweep of bob: waits: Resources, restarted 1 time, may not be requeued\n" in run("jobs", "list").stdout


def test_a_list_of_nodes_says_why_slurm_gives_one_no_work(lab: World) -> None:
    lab.has("mi-2", address="10.0.0.2").has("mi-3", "lab", scheduler=SchedulerKind.ECS)

    said = run("nodes", "list", "lab", "--slurm").stdout.splitlines()
    rows = {row["node"]: row["slurm"] for row in json.loads(run("nodes", "list", "lab", "--slurm", "--json").stdout)}

    [first] = [line for line in said if line.startswith("mi-1")]
    assert first.endswith("  Slurm: drained by ada since 2026-11-27 08:09:49 UTC: new riser card")
    assert not [line for line in said if "Slurm" in line and not line.startswith("mi-1")]
    assert rows["mi-1"]["reason_by"] == "ada"
    assert (rows["mi-2"], rows["mi-3"]) == (None, None)


class Sbatch:
    """A program of this name on PATH, which writes down what it was called with."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._calls = folder / "calls"
        self.script = folder / "train.sbatch"
        self.script.write_text("#!/bin/sh\n#SBATCH --requeue\n#SBATCH --open-mode=append\ntrue\n")
        self._program = folder / "bin" / "sbatch"
        self._program.parent.mkdir()
        self.says("echo 42")
        monkeypatch.setenv("PATH", f"{self._program.parent}{os.pathsep}{os.environ['PATH']}")
        for name in [name for name in os.environ if name.startswith(("SBATCH_", "AWS_"))]:
            monkeypatch.delenv(name)

    def says(self, commands: str) -> None:
        """What it does from now on."""
        self._program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >>{self._calls}\n{commands}\n")
        self._program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """The arguments of each call."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sbatch:
    return Sbatch(tmp_path, monkeypatch)


def submit(sbatch: Sbatch, *words: str) -> Any:
    """With options of ours, then after `--` those of sbatch before the script."""
    own, theirs = ([*words[: words.index("--")]], words[words.index("--") :]) if "--" in words else (words, ())
    return run("jobs", "submit", "--slurm", *own, *theirs, str(sbatch.script))


def test_a_script_is_submitted_so_that_it_may_be_requeued(sbatch: Sbatch) -> None:
    said = submit(sbatch, "--", "--nodes=2", "-N2")

    assert (said.exit_code, said.stdout) == (0, "job 42 is submitted; see `squeue --job=42`\n")
    assert sbatch.calls == [f"--parsable --requeue --nodes=2 -N2 {sbatch.script}"]


@pytest.mark.parametrize(
    "words", [("--", "--nodes=2", "SCRIPT", "--steps", "2 0", "-x"), ("SCRIPT", "--", "--steps", "2 0", "-x")]
)
def test_a_script_gets_its_arguments(sbatch: Sbatch, words: tuple[str, ...]) -> None:
    typed = [str(sbatch.script) if word == "SCRIPT" else word for word in words]

    said = run("jobs", "submit", "--slurm", *typed)
    told = json.loads(run("jobs", "submit", "--slurm", "--json", *typed).stdout)

    assert said.stdout == "job 42 is submitted, its script with --steps '2 0' -x; see `squeue --job=42`\n"
    assert told["arguments"] == ["--steps", "2 0", "-x"]
    options = "--nodes=2 " if "--nodes=2" in words else ""
    assert sbatch.calls == [f"--parsable --requeue {options}{sbatch.script} --steps 2 0 -x"] * 2


def test_a_programs_reader_gets_id_cluster_and_warnings(sbatch: Sbatch) -> None:
    sbatch.script.write_text("#!/bin/sh\n#SBATCH --requeue\ntrue\n")
    sbatch.says("echo '43;lab'; echo 'sbatch: this month is nearly spent' >&2")

    told = json.loads(submit(sbatch, "--json").stdout)

    assert (told["job"], told["cluster"], told["scheduler"]) == ("43", "lab", "SLURM")
    assert told["sbatch"] == "sbatch: this month is nearly spent"
    assert [warning.partition(":")[0] for warning in told["warnings"]] == ["no --open-mode=append"]


def test_a_dry_run_submits_nothing(sbatch: Sbatch) -> None:
    sbatch.script.write_text("#!/bin/sh\nsrun train\n")
    sbatch.says("echo 'sbatch: Job 7 to start at 2026-11-27T08:21:32' >&2")

    said = submit(sbatch, "--dry-run")

    assert sbatch.calls == [f"--test-only --requeue {sbatch.script}"]
    assert [line.partition(":")[0] for line in said.stdout.splitlines()] == ["warning"] * 3 + ["sbatch"]
    assert json.loads(submit(sbatch, "--dry-run", "--json").stdout)["job"] is None


def test_an_owner_who_says_no_is_heeded_and_told_what_follows(sbatch: Sbatch) -> None:
    said = submit(sbatch, "--", "--no-requeue")

    assert "warning: --no-requeue: its owner does not allow a restart" in said.stdout
    assert sbatch.calls == [f"--parsable --no-requeue {sbatch.script}"]


def test_what_sbatch_refuses_is_told_in_its_words(sbatch: Sbatch) -> None:
    sbatch.says("echo 'sbatch: error: invalid partition specified: gpus' >&2; exit 1")

    said = submit(sbatch, "--", "--partition=gpus")

    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.splitlines()[-1] == "sbatch: error: invalid partition specified: gpus"
    assert f"sbatch --parsable --requeue --partition=gpus {sbatch.script}" in said.stderr


@pytest.mark.parametrize("dry", [True, False])
def test_an_sbatch_that_hangs_is_given_up(sbatch: Sbatch, monkeypatch: pytest.MonkeyPatch, dry: bool) -> None:
    monkeypatch.setattr(slurm_submit, "SECONDS", 0.3)
    monkeypatch.setattr(slurm_submit, "QUIET_SECONDS", 0.1)
    sbatch.says("exec sleep 60")

    said = submit(sbatch, *["--dry-run"] * dry)

    waited, known, why, *look = said.stderr.splitlines()
    assert waited == "sbatch has not answered yet; it is ended after 0.3 s at the latest"
    assert (said.exit_code, known.partition(":")[0], len(look)) == (
        (1, "sbatch has not taken it", 0) if dry else (6, "it is not known whether the job is submitted", 1)
    )
    assert why == "sbatch had not ended in 0.3 s"


def test_where_sbatch_is_missing_or_broken_it_says_where_to_go(sbatch: Sbatch, monkeypatch: pytest.MonkeyPatch) -> None:
    (sbatch.script.parent / "bin" / "sbatch").write_text("#!/does/not/exist\n")
    monkeypatch.setenv("PATH", str(sbatch.script.parent / "bin"))
    broken = submit(sbatch)
    monkeypatch.setenv("PATH", str(sbatch.script.parent))

    missing = submit(sbatch)

    assert (broken.exit_code, broken.stderr) == (2, "sbatch: No such file or directory\n")
    assert missing.exit_code == 2
    assert missing.stderr.startswith("sbatch is not on PATH: run this where you would run sbatch")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--slurm", "SCRIPT", "--wait"), "--wait: not with --slurm"),
        (("--slurm", "SCRIPT", "--idempotent"), "--idempotent: not with --slurm"),
        (("--slurm", "SCRIPT", "--table", "other"), "--table: not with --slurm"),
        (("SCRIPT", "--", "--nodes=2"), "--nodes=2: not without --slurm"),
        (("--slurm", "--", "--nodes", "2", "SCRIPT"), "2: there is no such script; write a value of sbatch's with its"),
        (("--slurm", "--", "--nodes=2"), "name the batch script"),
        (("SCRIPT",), "train.sbatch: it is a batch script; with --slurm it is handed to sbatch"),
        (("OPTIONS",), "options.txt: it is a batch script; with --slurm"),
        (("YAML",), "pool: is missing"),
        (("--slurm", "NOWHERE"), "No such file or directory"),
        (("--slurm", "/dev/stdin"), "/dev/stdin: it is not a regular file"),
        (("--slurm", "FOLDER"), "it is not a regular file"),
        (("--slurm", "YAML"), "job.yaml: it is not a batch script: its first line must begin with #!"),
    ],
)
def test_what_does_not_apply_is_refused_by_name(sbatch: Sbatch, words: tuple[str, ...], told: str) -> None:
    yaml = sbatch.script.parent / "job.yaml"
    yaml.write_text("name: llama\n")
    bare = sbatch.script.parent / "options.txt"
    bare.write_text("#SBATCH --nodes=2\nsrun train\n")
    folder = str(sbatch.script.parent)
    files = {
        "SCRIPT": str(sbatch.script),
        "FOLDER": folder,
        "NOWHERE": "/nowhere",
        "YAML": str(yaml),
        "OPTIONS": str(bare),
    }

    said = run("jobs", "submit", *(files.get(word, word) for word in words))

    assert (said.exit_code, said.stdout, sbatch.calls) == (2, "", [])
    assert told in said.stderr


def test_a_job_of_nodeheals_that_is_over_stands_after_slurms_that_live(lab: World) -> None:
    lab.ports.nodes.save(node("mi-9", pool="demo"))
    job = ecs_job_of(spec(pool="demo"), "training", "trainer:1", NOW)
    lab.ports.jobs.save(replace(job, state=JobState.COMPLETED))

    rows = json.loads(run("jobs", "list", "--json").stdout)

    assert [row["job"] for row in rows] == ["12", "13_[0-3]", "llama", "9"]
