"""What operators see of Kubernetes' jobs in nodeheal's own list; tests/kubernetes asks a real API server."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from nodeheal.adapters.kubernetes.api import ApiError
from nodeheal.adapters.kubernetes.jobs import KubernetesJob
from nodeheal.adapters.kubernetes.node_words import NodeWords
from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract.vocabulary import SchedulerKind
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.holder import HeldByNodeheal, HeldByPerson, HeldBySystem
from nodeheal.domain.fleet.node import Node
from tests.support.builders import ACT, NOW, memory_ports, node
from tests.support.job_cluster import spec
from tests.support.jobs import ecs_job_of

CREATED = datetime(2026, 11, 27, 8, tzinfo=UTC)
RUNS = KubernetesJob(
    "PyTorchJob", "team-a", "llama", "RUNNING", CREATED, ("gpu-2", "gpu-1"), 1, "ada@example.com", consents=True
)
DONE = KubernetesJob("Job", "team-b", "eval", "COMPLETED", CREATED)
WAITS = KubernetesJob("JobSet", "team-b", "sweep", "PENDING", CREATED)


class Clusters:
    """What clusters answer; one without an answer refuses."""

    def __init__(self) -> None:
        self.jobs, self.asked = {"training": [RUNS, DONE, WAITS]}, list[str]()

    def all(self, cluster: str) -> Sequence[KubernetesJob]:
        """As KubernetesJobs."""
        self.asked.append(cluster)
        if cluster not in self.jobs:
            raise ApiError(403, "Forbidden", 'jobs.batch is forbidden: User "ada" cannot list resource "jobs"')
        return self.jobs[cluster]


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Clusters:
    """A node of a Kubernetes cluster in its own pool, and a job of nodeheal's in another one."""
    ports, clusters = memory_ports(), Clusters()
    monkeypatch.setattr(connect, "ports", lambda table: ports)
    monkeypatch.setattr(connect, "kubernetes", lambda: clusters)
    ports.nodes.save(node("i-1", scheduler=SchedulerKind.KUBERNETES, cluster="training", pool="eks"))
    ports.nodes.save(node("mi-9", pool="demo"))
    ports.jobs.save(ecs_job_of(spec(pool="demo"), "ecs", "trainer:1", NOW))
    return clusters


def run(*words: str) -> Any:
    answer = CliRunner().invoke(app, ["jobs", "list", *words])
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exception
    return answer


@pytest.mark.usefixtures("clusters")
def test_jobs_of_kubernetes_stand_beside_nodeheals_own_in_one_list() -> None:
    said, rows = run(), json.loads(run("--json").stdout)

    assert [(row["job"], row["scheduler"], row["state"]) for row in rows] == [
        ("llama", "ECS", "SUBMITTED"),
        ("team-a/llama", "KUBERNETES", "RUNNING"),
        ("team-b/sweep", "KUBERNETES", "PENDING"),
        ("team-b/eval", "KUBERNETES", "COMPLETED"),
    ]
    found = rows[1]
    assert rows[0].keys() <= found.keys()
    assert (found["kind"], found["namespace"], found["name"], found["cluster"]) == (
        "PyTorchJob",
        "team-a",
        "llama",
        "training",
    )
    assert (found["ranks"], found["nodes"], found["node_names"]) == (2, 2, ["gpu-1", "gpu-2"])
    assert (found["run"], found["restarts"], found["owner"], found["may_restart"]) == (2, 1, "ada@example.com", True)
    assert (found["submitted_at"], rows[2]["run"]) == ("2026-11-27T08:00:00+00:00", 0)
    assert "PyTorchJob, 2 pods on gpu-1, gpu-2, restarted 1 time\n" in said.stdout
    assert "JobSet, may not be restarted\n" in said.stdout
    assert said.stdout.endswith("4 jobs, 3 active\n")
    assert (said.exit_code, said.stderr) == (0, "")


def test_of_many_nodes_the_first_ones_are_named(clusters: Clusters) -> None:
    clusters.jobs["training"] = [replace(RUNS, nodes=tuple(f"gpu-{number}" for number in range(5)), restarts=0)]

    assert "PyTorchJob, 5 pods on gpu-0, gpu-1, gpu-2 and 2 more\n" in run("eks").stdout


def test_only_clusters_of_the_pool_are_asked_and_with_the_first_page_only(clusters: Clusters) -> None:
    run("demo")
    assert clusters.asked == []

    first = json.loads(run("--json", "--limit", "1").stdout)

    assert [row["job"] for row in first["rows"]] == ["llama"]
    assert ([row["job"] for row in first["kubernetes"]], first["slurm"]) == (
        ["team-a/llama", "team-b/sweep", "team-b/eval"],
        [],
    )


def test_who_may_not_list_them_reads_one_line_and_no_empty_list(clusters: Clusters) -> None:
    clusters.jobs.clear()

    said, rows = run("eks"), json.loads(run("eks", "--json").stdout)

    assert said.exit_code == 6
    assert said.stdout == "no job of nodeheal's; those of Kubernetes cluster training are not known\n"
    assert said.stderr == (
        "Kubernetes cluster training is not shown: 403 Forbidden: "
        'jobs.batch is forbidden: User "ada" cannot list resource "jobs"\n'
    )
    [row] = rows
    assert (row["scheduler"], row["state"], row["cluster"]) == ("KUBERNETES", "UNKNOWN", "training")


@pytest.mark.usefixtures("clusters")
def test_what_lives_is_shown_alone() -> None:
    assert [row["state"] for row in json.loads(run("eks", "--live", "--json").stdout)] == ["RUNNING", "PENDING"]


def shown(*words: str) -> Any:
    answer = CliRunner().invoke(app, ["nodes", "show", "i-1", *words])
    assert (answer.exit_code, answer.stderr) == (0, "")
    return answer


def has(monkeypatch: pytest.MonkeyPatch, words: NodeWords | Exception) -> None:
    """The cluster answers so of the node."""

    def of(node: Node) -> NodeWords:
        assert node.node_id == "i-1"
        if isinstance(words, Exception):
            raise words
        return words

    monkeypatch.setattr(connect, "policy", lambda: ACT)
    monkeypatch.setattr(connect, "kubernetes_nodes", lambda: SimpleNamespace(of=of))


FAULTY = NodeWords(
    "hyperpod-i-1",
    False,
    HeldBySystem("HyperPod", "deep-health-check-status=Failed"),
    "UnschedulablePendingReplacement",
    "Failed",
    "NvidiaErrorTerminate",
    "XidHardwareFailure",
    "xid\x1b[2J 74",
)


@pytest.mark.usefixtures("clusters")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (NodeWords("gpu-1", True), "gpu-1 takes pods"),
        (NodeWords("gpu-1", False), "gpu-1 takes no pods"),
        (NodeWords("gpu-1", False, HeldByNodeheal("inc-1")), "gpu-1 is isolated by nodeheal for inc-1"),
        (NodeWords("gpu-1", False, HeldByNodeheal("")), "gpu-1 is isolated by nodeheal"),
        (NodeWords("gpu-1", False, HeldByPerson("kubectl", how="cordoned")), "gpu-1 is cordoned by kubectl"),
        (NodeWords("gpu-1", True, health="Schedulable"), "gpu-1 takes pods; HyperPod: node-health-status Schedulable"),
        (NotAccepted("it has not answered"), "not known: it has not answered"),
        (
            FAULTY,
            "hyperpod-i-1 is kept out of service by HyperPod: deep-health-check-status=Failed; HyperPod: "
            "node-health-status UnschedulablePendingReplacement, deep-health-check-status Failed, "
            "fault-types NvidiaErrorTerminate, fault-reasons XidHardwareFailure, fault-details xid\ufffd[2J 74",
        ),
    ],
)
def test_a_node_is_shown_as_kubernetes_has_it(
    monkeypatch: pytest.MonkeyPatch, words: NodeWords | Exception, said: str
) -> None:
    has(monkeypatch, words)

    assert shown().stdout.splitlines()[-1] == f"Kubernetes   {said}"


@pytest.mark.usefixtures("clusters")
def test_a_program_reads_hyperpods_words_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, FAULTY)

    found = json.loads(shown("--json").stdout)

    told = found["kubernetes"]
    assert (found["slurm"], told["name"], told["is_in_service"]) == (None, "hyperpod-i-1", False)
    assert told["held_by"] == "kept out of service by HyperPod: deep-health-check-status=Failed"
    assert (told["node_health_status"], told["deep_health_check_status"]) == (FAULTY.health, "Failed")
    assert (told["fault_types"], told["fault_reasons"], told["fault_details"]) == (
        "NvidiaErrorTerminate",
        "XidHardwareFailure",
        "xid\x1b[2J 74",
    )
