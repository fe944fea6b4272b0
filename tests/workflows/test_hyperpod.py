"""Recoveries of HyperPod's nodes on Slurm: the real state machines, services and adapter over the sandbox's SageMaker.

No command reaches such a node. It boots, and its agent speaks.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from nodeheal.adapters.aws.hyperpod import HyperPodMachines
from nodeheal.adapters.memory.world import MemoryScheduler
from nodeheal.contract.names import INSTANCE_GONE, SWEEP_SOURCE
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import (
    Action,
    Awaited,
    Ending,
    Escalation,
    Family,
    NodeState,
    Outcome,
    Provider,
    SchedulerKind,
    Step,
)
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.liveness import TERMINATED, Heartbeat, liveness_of
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports.signals import Draft
from nodeheal.services.intake.heartbeats import record_missed_boots
from nodeheal.services.intake.take_signal import take_draft
from nodeheal.services.operators.request_action import request_action
from tests.support.builders import node, requeueing, xid
from tests.support.fake_cluster import FakeCluster, replace_time
from tests.support.hyperpod import NODE, OTHER, SUCCESSOR_ADDRESS, Region
from tests.support.policies import with_policy
from tests.support.walker import Walk

ACTS = with_policy(stable_seconds=600, default_pool={"mode": "act", "budget": {"max_nodes": 1, "max_percent": 100}})
BY_US = ("BatchRebootClusterNodes", "BatchReplaceClusterNodes")


class HyperPodCluster(FakeCluster):
    """Two nodes of one HyperPod cluster under Slurm. `persists`: the fault is there again on the next boot."""

    def __init__(self, policy: RecoveryPolicy = ACTS, *, persists: bool = False, code: int = 79) -> None:
        self.region, self.persists, self.code = Region(), persists, code
        super().__init__(policy)
        self.on_replace, self.on_wait = self._successor_boots, self._watched

    def _begin(self, names: Any) -> None:
        machines = HyperPodMachines(self.region.client, self.region.client, [self.region.cluster.arn])
        self.scheduler = MemoryScheduler()
        self.ports = replace(
            self.ports,
            hyperpod=machines,
            schedulers={SchedulerKind.SLURM: requeueing(self.scheduler, SchedulerKind.SLURM)},
        )
        for name in (NODE, OTHER):
            self.ports.nodes.save(node(name, provider=Provider.hyperpod, scheduler=SchedulerKind.SLURM))

    def breaks_down(self) -> Walk:
        return self.reports(self._fault("boot-1"))

    def _fault(self, boot_id: str) -> Any:
        known = {"provider": Provider.hyperpod, "scheduler": SchedulerKind.SLURM}
        event = xid(self.code, node_id=NODE, instance_id=NODE, boot_id=boot_id, event_id=f"fault-{boot_id}", **known)
        return replace_time(event, self.clock)

    def _boots(self, request: StepRequest) -> None:
        if not self.region.hardware.rebooted:
            return
        self.clock.advance(60)
        self._comes_up(NODE, "boot-2")

    def _watched(self) -> None:
        if self.persists and self.region.hardware.rebooted:
            self._ingest(self._fault("boot-2"))

    def _successor_boots(self, request: StepRequest) -> None:
        if not self.region.hardware.replaced:
            return
        self.region.hardware.arrive()
        self.clock.advance(600)
        [made] = self.region.cluster.instances.keys() - {NODE, OTHER}
        self.region.cluster.instances[made].launched_at = self.clock()
        self.successor = made
        self._comes_up(made, "boot-1")

    def _diagnosed(self, request: StepRequest) -> None:
        assert not self.commands

    def _fact(self, name: str, boot_id: str) -> dict[str, Any]:
        return {**super()._fact(name, boot_id), "provider": Provider.hyperpod, "scheduler": SchedulerKind.SLURM}

    @property
    def acts(self) -> list[str]:
        """What SageMaker was asked to do."""
        return [call for call in self.region.calls if call in BY_US]

    @property
    def results(self) -> list[tuple[Step, Outcome]]:
        turns = self.ports.incidents.history(self.incident_id).turns
        return [(turn.decision.step, turn.result.outcome) for turn in turns if turn.result is not None]

    @property
    def replaced_by(self) -> str | None:
        last = self.ports.incidents.history(self.incident_id).turns[-2].result
        return last.replacement_node_id if last is not None else None

    @property
    def ended(self) -> tuple[Ending | None, Escalation | None]:
        last = self.ports.incidents.history(self.incident_id).turns[-1].decision
        return last.ending, last.escalation


def test_a_reboot_that_no_diagnostics_can_prove_goes_to_a_human() -> None:
    cluster = HyperPodCluster()

    cluster.breaks_down()

    assert cluster.acts == ["BatchRebootClusterNodes"]
    assert cluster.results == [
        (Step.ISOLATE, Outcome.DONE),
        (Step.REBOOT, Outcome.DONE),
        (Step.WAIT, Outcome.DONE),
        (Step.DIAGNOSE, Outcome.UNKNOWN),
    ]
    assert cluster.ended == (Ending.HANDED_TO_A_HUMAN, Escalation.DIAGNOSTICS_UNCLEAR)
    assert NODE in cluster.scheduler.draining


def test_a_fault_that_a_reboot_does_not_end_has_hyperpod_replace_the_node() -> None:
    cluster = HyperPodCluster(persists=True)

    cluster.breaks_down()

    assert cluster.acts == ["BatchRebootClusterNodes", "BatchReplaceClusterNodes"]
    assert cluster.results[-1] == (Step.REPLACE, Outcome.DONE)
    assert cluster.replaced_by == cluster.successor
    assert cluster.ended == (Ending.RECOVERED, None)
    assert cluster.node(NODE).state is NodeState.RETIRED
    successor = cluster.node(cluster.successor)  # which has work already
    assert (successor.open_incident, successor.state) == (None, NodeState.HEALTHY)
    assert cluster.ports.hyperpod.describe(cluster.successor).address == SUCCESSOR_ADDRESS  # type: ignore[union-attr]
    assert cluster.ports.pools.holders("demo") == []
    assert not cluster.commands


def test_a_replacement_that_rests_on_the_nodes_word_alone_goes_to_a_human() -> None:
    cluster = HyperPodCluster(code=74)  # its ladder begins with the replacement

    cluster.breaks_down()

    assert cluster.acts == []
    assert cluster.ended == (Ending.HANDED_TO_A_HUMAN, Escalation.NOT_CONFIRMED)


class AutomaticCluster(HyperPodCluster):
    """The same where HyperPod repairs by itself: `on_wait` is its repair."""

    def __init__(self) -> None:
        super().__init__()
        self.region.cluster.recovery = "Automatic"
        self.waits: list[Outcome] = []

    def breaks_down(self) -> Walk:
        walk = super().breaks_down()
        turns = self.ports.incidents.history(self.incident_id).turns
        waits = [turn for turn in turns if turn.decision.awaits is Awaited.EXTERNAL_REPAIR]
        self.waits = [turn.result.outcome for turn in waits if turn.result is not None]
        assert self.acts == []
        assert self.scheduler.draining == set()
        return walk

    def is_rebooted(self) -> None:
        self.clock.advance(60)
        self._comes_up(NODE, "boot-2")

    def is_rebooted_and_only_its_heartbeat_says_so(self) -> None:
        self.clock.advance(60)
        beat = Heartbeat(f"AROA1:{NODE}", "boot-2", self.clock(), 60.0)
        assert record_missed_boots([liveness_of(self.node(NODE))], {NODE: beat}, self.ports) == [NODE]

    def fails_again_and_is_rebooted(self) -> None:
        self._ingest(self._fault("boot-1").model_copy(update={"event_id": "again", "code": "48"}))
        self.on_wait = self.is_rebooted

    def is_given_back(self) -> None:
        gone = Draft(
            instance_id=NODE,
            source=SWEEP_SOURCE,
            family=Family.host,
            code=INSTANCE_GONE,
            subcode=TERMINATED,
            key=NODE,
            observed_at=self.clock(),
            evidence="HyperPod: the machine no longer exists",
            takes_node_away=True,
        )
        take_draft(gone, self.ports, self.policy)


@pytest.mark.parametrize(
    ("repair", "waits"),
    [
        (AutomaticCluster.is_rebooted, 1),
        (AutomaticCluster.is_rebooted_and_only_its_heartbeat_says_so, 1),
        (AutomaticCluster.is_given_back, 1),
        (AutomaticCluster.fails_again_and_is_rebooted, 2),
    ],
)
def test_a_repair_by_the_cluster_itself_is_waited_for_and_counts_as_one(
    repair: Callable[[AutomaticCluster], None], waits: int
) -> None:
    cluster = AutomaticCluster()
    cluster.on_wait = partial(repair, cluster)

    cluster.breaks_down()

    assert cluster.waits == [Outcome.DONE] * waits
    assert cluster.ended == (Ending.RECOVERED, None)
    assert "repaired without nodeheal" in cluster.ports.incidents.incident(cluster.incident_id).summary
    assert cluster.node(NODE).open_incident is None


def test_a_cluster_that_was_to_repair_by_itself_and_has_not_goes_to_a_human() -> None:
    cluster = AutomaticCluster()
    cluster.on_wait = lambda: None

    cluster.breaks_down()

    assert cluster.waits == [Outcome.TIMED_OUT]
    assert cluster.ended == (Ending.HANDED_TO_A_HUMAN, Escalation.EXTERNAL_REMEDIATOR)


def test_what_a_person_asks_for_where_the_cluster_repairs_by_itself_goes_back_to_them() -> None:
    cluster = AutomaticCluster()

    cluster.reports(request_action(cluster.node(NODE), Action.REBOOT, "a word", cluster.ports, key="asked"))

    assert cluster.ended == (Ending.HANDED_TO_A_HUMAN, Escalation.EXTERNAL_REMEDIATOR)


@pytest.mark.parametrize("code", ["InstanceIdInUse", "InvalidInstanceStatus"])
def test_a_reboot_that_is_refused_as_too_early_is_asked_for_again_and_replaces_nothing(code: str) -> None:
    cluster = HyperPodCluster()
    cluster.region.behaviour.hyperpod_refuses = code

    with pytest.raises(NotAccepted):  # which Step Functions repeats
        cluster.breaks_down()

    assert cluster.acts == ["BatchRebootClusterNodes"]
    assert cluster.ports.attempts.spent(f"node#{NODE}", ACTS.limits[Action.REBOOT])[Action.REBOOT] == 1
