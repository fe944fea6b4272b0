"""Whose answer it is, to which question, and whether it may be believed.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nodeheal.contract.health_event import CheckpointFound
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import CheckpointFormat
from nodeheal.domain.jobs.job import FoundCheckpoint
from nodeheal.services.intake import wakeup
from tests.unit.builders import xid
from tests.workflows.fake_cluster import PEER
from tests.workflows.job_cluster import NODES, JobCluster
from tests.workflows.scenarios.setup import world
from tests.workflows.test_find_checkpoint import DIRECTORY, NEWEST, told_to_ranks, training

FORGED = f"{DIRECTORY}/iter_0009999"


# Checkpoints


def _is_found(of: Callable[[JobCluster, str], dict[str, Any]], path: str) -> list[str]:
    """Somebody answers before the node that was asked, or it answers itself, with what it may not."""
    it = training()
    looks = it._node_looks

    def before_it() -> None:
        name, asked = it.asked_to_look()
        found = {**asked, "format": CheckpointFormat.megatron, "path": path, "step": 9999}
        it._wakes(wakeup.on_answer, CheckpointFound(**of(it, name), **found))
        looks()

    it._node_looks = before_it  # type: ignore[method-assign]
    it.submit()
    told = {where for where, _ in told_to_ranks(it)}
    return [] if told <= {NEWEST[0], None} else [f"a job was told to load {told}"]


def nobody_can_tell_any_more_where_it_goes_on() -> list[str]:
    """Before its first start: what had been found for the submission before is not there any more."""
    it = training()
    it.blind = set(NODES)

    def was_found(cluster: JobCluster) -> None:
        gone = FoundCheckpoint(f"{DIRECTORY}/iter_0000001", 1, cluster.clock())
        cluster.ports.jobs.save(replace(cluster.job, found=gone))

    it.before["Find checkpoint"] = was_found
    it.submit()
    told = {where for where, _ in told_to_ranks(it)}
    return [] if told == {None} else [f"a job was told to load {told}, which is gone"]


# Of one node


def the_first_of_two_ranks_stops() -> list[str]:
    it, early = world(), list[bool]()
    stops = it._gang_stops

    def one_by_one(request: StepRequest) -> None:
        it.deaf = {PEER}
        stops(request)
        early.append(request.task_token in it.plain.workflows.resumed)  # type: ignore[attr-defined]
        it.deaf = set()
        stops(request)

    it._gang_stops = one_by_one  # type: ignore[method-assign]
    it.reports(xid(79))
    return [] if early[:1] == [False] else ["it goes on while a rank may still write"]
