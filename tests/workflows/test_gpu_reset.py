"""A GPU is reset before its node is rebooted, where the pool wants that. Whatever prevents it, a reboot follows."""

from collections.abc import Callable
from typing import Any

import pytest

from nodeheal.contract.vocabulary import Action, Outcome, Verdict
from nodeheal.domain.fleet.unmanaged_task import UnmanagedTask
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports.commands import CommandStatus
from tests.support.builders import commands_in, scheduler_in, xid
from tests.support.fake_cluster import BROKEN, PEER, FakeCluster
from tests.workflows.stories import pool

GPU = "0000:b9:00.0"
RESETS = pool(reset_gpu=True)
TRIED = ("reset-gpu", "reboot-node", "run-diagnostics")


class Cluster(FakeCluster):
    """A job whose one node has a GPU for which the driver wants a reset."""

    def __init__(self, policy: RecoveryPolicy = RESETS) -> None:
        super().__init__(policy)
        self.on_wait = lambda: None

    def asks_for_reset(self, **changes: Any) -> list[str]:
        """Returns what was done to the node for it, in order."""
        self.end = self.reports(xid(154, subcode="GPU_RESET", **{"component": GPU, **changes})).end
        return [what for what, node in self.commands if node == BROKEN and what in TRIED]

    def spent(self, action: Action) -> int:
        """Attempts of the node."""
        return self.ports.attempts.spent(f"node#{BROKEN}", self.policy.limits[action])[action]

    @property
    def reasons(self) -> list[str]:
        """Of each decision."""
        return [turn.decision.reason for turn in self.ports.incidents.history(self.incident_id).turns]

    @property
    def summary(self) -> str:
        """How its incident ended, in words."""
        return self.ports.incidents.history(self.incident_id).incident.summary


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_the_gpu_is_reset_and_proven_and_the_node_stays_on_its_boot(cluster: Cluster) -> None:
    done = cluster.asks_for_reset()

    assert done == ["reset-gpu", "run-diagnostics"]
    assert (cluster.end, cluster.node().boot_id, cluster.job_nodes) == ("Recovered", "boot-1", [BROKEN, PEER])
    assert (cluster.spent(Action.RESET_GPU), cluster.spent(Action.REBOOT)) == (1, 0)
    assert "GPU reset" in cluster.summary and "reboot" not in cluster.summary
    [asked] = [sent for sent in commands_in(cluster.ports).sent if sent.document == "reset-gpu"]
    assert asked.parameters["Gpu"] == GPU


def test_it_is_the_pools_choice() -> None:
    cluster = Cluster(pool())

    assert cluster.asks_for_reset() == ["reboot-node", "run-diagnostics"]
    assert cluster.end == "Recovered"


def refuses(cluster: Cluster) -> None:
    cluster.resets = Outcome.REFUSED


def fails(cluster: Cluster) -> None:
    cluster.resets = Outcome.FAILED


def keeps_silent(cluster: Cluster) -> None:
    cluster.resets = None


def knows_no_such_command(cluster: Cluster) -> None:
    """An agent of before."""
    cluster.resets = None
    cluster.ports.commands.look = lambda *_: CommandStatus("FAILED", exit_code=64)  # type: ignore[method-assign]


@pytest.mark.parametrize("is_in_the_way", [refuses, fails, keeps_silent, knows_no_such_command])
def test_where_it_comes_to_nothing_the_node_is_rebooted(
    cluster: Cluster, is_in_the_way: Callable[[Cluster], None]
) -> None:
    is_in_the_way(cluster)

    assert cluster.asks_for_reset() == ["reset-gpu", "reboot-node", "run-diagnostics"]
    assert (cluster.end, cluster.spent(Action.RESET_GPU), cluster.spent(Action.REBOOT)) == ("Recovered", 1, 1)
    assert "the GPU reset was not possible" in cluster.summary


def test_an_answer_that_was_lost_is_read_from_the_commands_output(cluster: Cluster) -> None:
    cluster.resets = None
    printed = 'a warning\n{"outcome": "DONE", "reason": "GPU 00000000:B9:00.0 was reset", "request_id": "whatever"}\n'
    cluster.ports.commands.look = lambda *_: CommandStatus("SUCCEEDED", printed)  # type: ignore[method-assign]

    assert cluster.asks_for_reset() == ["reset-gpu", "run-diagnostics"]
    assert cluster.end == "Recovered"


@pytest.mark.parametrize("printed", ["", "no JSON", '{"outcome": "BETTER_THAN_EVER", "reason": ""}', "[]"])
def test_an_output_that_is_no_answer_is_none(cluster: Cluster, printed: str) -> None:
    cluster.resets = None
    cluster.ports.commands.look = lambda *_: CommandStatus("SUCCEEDED", printed)  # type: ignore[method-assign]

    assert cluster.asks_for_reset()[:2] == ["reset-gpu", "reboot-node"]


def test_a_reset_that_diagnostics_do_not_prove_is_followed_by_a_reboot(cluster: Cluster) -> None:
    cluster.diagnoses[BROKEN] = Verdict.FAILED
    boots = cluster._comes_up

    def well_after_boot(name: str, boot_id: str) -> None:
        cluster.diagnoses[BROKEN] = Verdict.OK
        boots(name, boot_id)

    cluster._comes_up = well_after_boot  # type: ignore[method-assign]

    assert cluster.asks_for_reset() == ["reset-gpu", "run-diagnostics", "reboot-node", "run-diagnostics"]
    assert cluster.end == "Recovered"
    assert "the GPU reset did not help (diagnostics failed: memory)" in cluster.summary


def test_a_fault_that_the_node_reports_after_it_says_that_it_did_not_help(cluster: Cluster) -> None:
    cluster.after_reset = [xid(95, component=GPU, event_id="after")]

    assert cluster.asks_for_reset()[-2:] == ["reboot-node", "run-diagnostics"]
    assert any("the GPU reset did not help (XID 95" in reason for reason in cluster.reasons)


def test_beside_a_task_that_had_to_be_left_nothing_is_reset_and_no_attempt_is_spent(cluster: Cluster) -> None:
    scheduler_in(cluster.ports).unmanaged["eval"] = (BROKEN, UnmanagedTask("eval", "eval:1"))

    assert cluster.asks_for_reset() == ["reboot-node", "run-diagnostics"]
    assert cluster.spent(Action.RESET_GPU) == 0
    assert "tasks of others were left to run on the node: eval:1 (eval)" in cluster.summary


@pytest.mark.parametrize("component", [None, "GPU 3", "0000:b9:00.0 --help", "nvidia-nvswitch3"])
def test_what_is_no_gpu_by_its_address_is_sent_to_no_node(cluster: Cluster, component: str | None) -> None:
    assert "reset-gpu" not in cluster.asks_for_reset(component=component)
    assert (cluster.end, cluster.spent(Action.RESET_GPU)) == ("Recovered", 0)


def test_once_in_the_window_it_is_tried_and_not_after_a_reboot_in_it(cluster: Cluster) -> None:
    cluster.ports.attempts.reserve(f"node#{BROKEN}", "before", cluster.policy.limits[Action.RESET_GPU])
    again = Cluster()
    again.ports.attempts.reserve(f"node#{BROKEN}", "before", again.policy.limits[Action.REBOOT])

    assert cluster.asks_for_reset()[0] == "reboot-node"
    assert any("1 of 1 GPU resets in 24 h are spent; next is a reboot" in reason for reason in cluster.reasons)
    assert "reset-gpu" not in again.asks_for_reset()


def test_a_pool_may_ask_before_it() -> None:
    cluster = Cluster(pool(reset_gpu=True, modes={"RESET_GPU": "approve"}))

    assert cluster.asks_for_reset() == []
    assert cluster.node().drained_by_us is False  # silence is no yes
