"""Whose answer it is, to which question, and whether it may be believed.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nodeheal.contract.health_event import CheckpointFound, EvidenceFrozen
from nodeheal.contract.job_steps import JobRequest
from nodeheal.contract.results import Diagnosed
from nodeheal.contract.steps import StepRequest
from nodeheal.contract.vocabulary import CheckpointFormat, Outcome, Step
from nodeheal.domain.jobs.job import CheckAnswer, FoundCheckpoint
from nodeheal.domain.policy.policy_models import Evidence
from nodeheal.operations.steps import run_diagnostics
from nodeheal.ports.storage import Wait
from nodeheal.services.intake import wakeup
from nodeheal.services.jobs import check_nodes
from nodeheal.services.jobs.find_checkpoint import find_checkpoint
from nodeheal.services.jobs.see_directory import SIGHTS
from nodeheal.services.steps import no_diagnosis_yet
from tests.unit.builders import EVIDENCE, NOW, named, node, request_id_of, xid
from tests.workflows.breaking_world import ACTS
from tests.workflows.fake_cluster import BROKEN, PEER
from tests.workflows.job_cluster import NODES, JobCluster
from tests.workflows.scenarios.races import Moment
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
        name, directory, request_id = it.ports.commands.searches[-1]  # type: ignore[attr-defined]
        found = {"directory": directory, "format": CheckpointFormat.megatron, "path": path, "step": 9999}
        it._wakes(wakeup.on_checkpoint_found, CheckpointFound(**of(it, name), request_id=request_id, **found))
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


# Orders to the nodes of a gang


def _asked() -> tuple[Moment, Wait, list[str]]:
    """One node is asked one thing; and what was sent to it."""
    it, sent = Moment(), list[str]()
    blank = no_diagnosis_yet(node(BROKEN), it.plain).model_dump_json()
    wait = Wait(SIGHTS.question, "q", "token", "llama", NOW, frozenset({"order"}), result_json=blank)
    SIGHTS.ask(wait, it.plain)
    _give(it, wait, sent)
    return it, wait, sent


def _give(it: Moment, wait: Wait, sent: list[str]) -> None:
    def send(_: str) -> str:
        sent.append("sent")
        return f"command-{len(sent)}"

    SIGHTS.give(wait, "order", node(BROKEN), send, it.plain)


def another_node_answers_an_order() -> list[str]:
    it, _, _ = _asked()
    others = [(PEER, "boot-1"), (BROKEN, "boot-9")]
    request_id = named(SIGHTS.order, "order", it.plain)
    taken = [name for name, boot in others if SIGHTS.find(request_id, name, boot, it.plain) is not None]
    return [f"an answer of {name} was taken for another's" for name in taken]


def an_answer_names_no_random_part() -> list[str]:
    it, _, _ = _asked()
    taken = [name for name in ("order", f"order.{'0' * 32}") if SIGHTS.find(name, BROKEN, "boot-1", it.plain)]
    return [f"an answer under {name}, which anybody can make up, was taken" for name in taken]


def an_order_is_given_again() -> list[str]:
    it, wait, sent = _asked()
    _give(it, wait, sent)
    return [] if len(sent) == 1 else ["an order was sent twice"]


def an_order_that_was_answered_is_asked_again() -> list[str]:
    it, wait, _ = _asked()
    it.plain.job_notes.note_answer("llama", CheckAnswer("order", BROKEN, "boot-1", Outcome.DONE, "seen", NOW))
    return [f"{name} was answered" for name in SIGHTS.ask(wait, it.plain)]


def a_check_is_called_again() -> list[str]:
    it = JobCluster()
    checks = it._job_answers()["Check nodes"]

    def twice(arguments: dict[str, Any]) -> Any:
        first = JobRequest.model_validate(arguments["Payload"]).model_copy(update={"task_token": "lost"})
        check_nodes.check_nodes(first, it.ports, it.policy)
        return checks(arguments)

    it.job_breaks["Check nodes"] = twice
    it.submit()
    asked = [name for verb, name in it.commands if verb == "diagnose"]
    return [] if len(asked) == len(set(asked)) else [f"{asked} were asked, some of them twice"]


def an_earlier_round_has_an_answer() -> list[str]:
    it = Moment()
    it.plain.job_notes.note_answer("llama", CheckAnswer("llama-1-0", BROKEN, "boot-1", Outcome.DONE, "passed", NOW))
    wait = Wait(check_nodes.JOB_CHECK, "llama-1-1", "token", "llama", NOW, frozenset({BROKEN, PEER}))
    it.plain.waits.save(wait)
    it.does(lambda: check_nodes._strike_what_came_meanwhile(wait, it.ports))
    kept = it.plain.waits.get(check_nodes.JOB_CHECK, "llama-1-1")
    is_due = kept is not None and BROKEN in kept.outstanding
    return [] if is_due else ["what a node has said in an earlier round is taken for its answer"]


# Of one node


def evidence_is_said_to_be_elsewhere() -> list[str]:
    it = world(ACTS.model_copy(update={"evidence": Evidence()}))

    def elsewhere(request: StepRequest) -> None:
        request_id = named(EVIDENCE, request_id_of(request), it.plain)
        said = {"request_id": request_id, "object_key": "evidence/of/others.tar.gz", "size_bytes": 1, "items": 1}
        it._wakes(wakeup.on_evidence_frozen, EvidenceFrozen(**it._fact(BROKEN, "boot-1"), **said))

    it._evidence_arrives = elsewhere  # type: ignore[method-assign]
    it.reports(xid(79))
    turns = it.plain.incidents.history(it.incident_id).turns
    saved = [t.result for t in turns if t.result is not None and t.result.step is Step.FREEZE_EVIDENCE]
    return [f"taken for saved: {one.reason}" for one in saved if one.outcome is Outcome.DONE]


def a_node_names_a_test_that_is_none() -> list[str]:
    """What it has said goes into the next command."""
    it, mine = opened()
    diagnosed = mine.decision.model_copy(update={"step": Step.DIAGNOSE})
    found = no_diagnosis_yet(node(BROKEN), it.plain).model_copy(
        update={"facts": Diagnosed(failed_tests=("memory", "$(reboot)"))}
    )
    turned(it, mine, diagnosed, found)
    asks = mine.model_copy(update={"decision": diagnosed, "task_token": "token"})
    it.does(lambda: run_diagnostics(asks, it.ports, ACTS))
    [ask] = it.plain.commands.diagnoses  # type: ignore[attr-defined]
    return [] if ask.first == ("memory",) else [f"{ask.first} goes into a command"]


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
