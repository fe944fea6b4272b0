"""Small rules: which moves a node's life allows, which policies are refused, what counts and what is written down."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from nodeheal.adapters.ecs.rank_change import task_change
from nodeheal.adapters.ecs.task import EcsTaskDetail
from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import Action, NodeState, Step, Verdict
from nodeheal.domain.fleet.node import BootView, moved
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.ports.scheduler import TaskChange
from nodeheal.services.intake.wakeup import on_task_change
from tests.support.builders import NOW, as_rank, node, stored_run, xid
from tests.support.incident_steps import Incident
from tests.support.recovery_story import Story


def test_a_move_that_a_nodes_life_does_not_allow_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot go from RETIRED to ISOLATED"):
        moved(node(state=NodeState.RETIRED), NodeState.ISOLATED, "broken", NOW)


def test_a_boot_without_an_address_keeps_the_one_that_is_known() -> None:
    known = node(address="10.0.0.1", accelerators=8)
    boots = [known.booted(boot, NOW + timedelta(minutes=1)) for boot in ("boot-1", "boot-2")]

    assert {(boot.address, boot.accelerators) for boot in boots} == {("10.0.0.1", 8)}
    moved_to = [known.booted(boot, NOW, "10.0.0.2", 4) for boot in ("boot-1", "boot-2")]
    assert {(boot.address, boot.accelerators) for boot in moved_to} == {("10.0.0.2", 4)}


def test_a_node_in_quarantine_is_no_spare_however_old_its_probation() -> None:
    assert not node(state=NodeState.QUARANTINED, probation_until=NOW).is_available(NOW, NO_PAUSES)
    assert not node(state=NodeState.PROBATION).is_available(NOW, NO_PAUSES)


@pytest.mark.parametrize("wrong", ["missing", "group"])
def test_a_policy_without_every_brake_is_refused(wrong: str) -> None:
    limits = dict(RecoveryPolicy().limits)
    if wrong == "missing":
        del limits[Action.REPLACE]
    if wrong == "group":
        limits[Action.REPLACE] = AttemptLimit(group=Action.REBOOT, limit=1, window_seconds=60)
    with pytest.raises(ValidationError):
        RecoveryPolicy(limits=limits)


def test_only_a_failed_check_speaks_against_a_repair() -> None:
    vague = xid(79, event_id="vague", boot_id="boot-2", verdict=Verdict.UNKNOWN)

    assert Story(xid(79)).isolated().rebooted().passed().reports(vague).next().step is Step.RETURN


def test_an_event_of_another_task_does_not_change_the_rank() -> None:
    it = Incident()
    run = stored_run(it.ports, "llama", 1)

    on_task_change(TaskChange("llama", 1, "another-task", run.tasks[0].placement, "STOPPED", 1, ""), it.ports)

    assert it.ports.jobs.get_run("llama", 1) == run


def test_an_unknown_boot_of_the_very_moment_of_the_current_one_is_past() -> None:
    assert node(booted_at=NOW).view("boot-x", NOW) is BootView.PAST
    assert node(booted_at=NOW).view("boot-x", NOW + timedelta(microseconds=1)) is BootView.NEWER


@pytest.mark.parametrize(
    ("last_status", "status"),
    [("PROVISIONING", "PENDING"), ("ACTIVATING", "PENDING"), ("STOPPING", "RUNNING"), ("STOPPED", "STOPPED")],
)
def test_a_rank_on_its_way_up_does_not_run_and_one_on_its_way_down_has_not_stopped(
    last_status: str, status: str
) -> None:
    mark = {"taskArn": "task", "containerInstanceArn": "placement", **as_rank("llama", 1)}

    change = task_change(EcsTaskDetail.model_validate({**mark, "lastStatus": last_status}))

    assert change is not None
    assert (change.status, change.job_id, change.run) == (status, "llama", 1)
