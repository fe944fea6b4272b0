"""Whose answer it is, to which question, and whether it may be believed.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nodeheal.contract.health_event import CheckpointFound, EvidenceFrozen
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.results import Diagnosed, StepResult
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import CheckpointFormat, Outcome, Step
from nodeheal.domain.jobs.job import FoundCheckpoint
from nodeheal.domain.policy.policy_models import Evidence
from nodeheal.services.intake import wakeup
from nodeheal.services.jobs.find_checkpoint import find_checkpoint
from tests.unit.builders import EVIDENCE, NOW, commands_in, named, request_id_of, xid
from tests.unit.step_functions import run_diagnostics
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.job_cluster import NODES, JobCluster
from tests.workflows.scenarios.setup import world
from tests.workflows.scenarios.turns import opened, turned
from tests.workflows.test_find_checkpoint import DIRECTORY, NEWEST, searches, told_to_ranks, training

FORGED = f"{DIRECTORY}/iter_0009999"


# Checkpoints


def another_boot_has_found_a_checkpoint() -> list[str]:
    return _is_found(lambda it, name: it._fact(name, "boot-9"), FORGED)


def another_node_has_found_a_checkpoint() -> list[str]:
    return _is_found(lambda it, name: it._fact(NODES[3], "boot-1"), FORGED)


def a_node_names_a_file_of_others() -> list[str]:
    return _is_found(lambda it, name: it._fact(name, "boot-1"), "/mnt/others/iter_0000001")


def a_node_names_a_way_to_a_file_of_others() -> list[str]:
    return _is_found(lambda it, name: it._fact(name, "boot-1"), f"{DIRECTORY}/../others/iter_0000001")


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


def a_search_is_called_again() -> list[str]:
    it = training()
    finds = it._job_answers()["Find checkpoint"]

    def twice(arguments: dict[str, Any]) -> Any:
        first = JobRequest.model_validate(arguments["Payload"]).model_copy(update={"task_token": "lost"})
        find_checkpoint(first, it.ports, it.policy)
        return finds(arguments)

    it.job_breaks["Find checkpoint"] = twice
    it.submit()
    return [] if len(searches(it)) == 1 else [f"{searches(it)} were asked, for one answer"]


# Of one node


def evidence_is_said_to_be_elsewhere() -> list[str]:
    it = world(ACTS.model_copy(update={"evidence": Evidence()}))

    def elsewhere(request: StepRequest) -> None:
        request_id = named(EVIDENCE, request_id_of(request), it.plain)
        said = {"request_id": request_id, "object_key": "evidence/of/others.tar.gz", "size_bytes": 1, "items": 1}
        it._wakes(wakeup.on_answer, EvidenceFrozen(**it._fact(BROKEN, "boot-1"), **said))

    it._evidence_arrives = elsewhere  # type: ignore[method-assign]
    it.reports(xid(79))
    turns = it.plain.incidents.history(it.incident_id).turns
    saved = [t.result for t in turns if t.result is not None and t.result.step is Step.FREEZE_EVIDENCE]
    return [f"taken for saved: {one.reason}" for one in saved if one.outcome is Outcome.DONE]


def a_node_names_a_test_that_is_none() -> list[str]:
    """What it has said goes into the next command."""
    it, mine = opened()
    diagnosed = mine.decision.model_copy(update={"step": Step.DIAGNOSE})
    found = StepResult(
        step=Step.DIAGNOSE,
        node_id=BROKEN,
        outcome=Outcome.UNKNOWN,
        reason="it has failed",
        finished_at=NOW,
        facts=Diagnosed(failed_tests=("memory", "$(reboot)")),
    )
    turned(it, mine, diagnosed, found)
    asks = mine.model_copy(update={"decision": diagnosed, "task_token": "token"})
    it.does(lambda: run_diagnostics(asks, it.ports, ACTS))
    [sent] = commands_in(it.plain).sent
    first = sent.parameters["First"]
    return [] if first == "memory" else [f"{first} goes into a command"]


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
