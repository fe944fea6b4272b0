"""Which nodes of a pool a job gets."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.vocabulary import NodeState
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.jobs.job import Job
from nodeheal.domain.jobs.placement import Placement, choose, never_fits
from tests.support.builders import NOW, node
from tests.support.jobs import ecs_job
from tests.support.pauses import pause_of_node, pause_of_pool

JOB = ecs_job("llama", "demo", "training", "trainer:1", "trainer", 2, accelerators=8)


def some(*names: str, **changes: Any) -> list[Node]:
    """Free nodes with eight accelerators each."""
    return [replace(node(name), accelerators=8, **changes) for name in names]


def chosen(known: list[Node], job: Job = JOB, **given: Any) -> list[str]:
    """The names of what is chosen."""
    return [found.node_id for found in placed(known, job, **given).nodes]


def placed(known: list[Node], job: Job = JOB, **given: Any) -> Placement:
    """What is chosen, or why nothing is."""
    values: dict[str, Any] = {"pauses": NO_PAUSES, "unfit": (), "opted_out": (), "now": NOW, **given}
    return choose(job, known, values["pauses"], values["unfit"], values["opted_out"], values["now"])


def test_ranks_are_in_order_of_name() -> None:
    assert chosen(some("mi-c", "mi-a", "mi-b")) == ["mi-a", "mi-b"]


@pytest.mark.parametrize(
    "changes",
    [
        {"is_spare": True},
        {"job_id": "other"},
        {"claimed_by": "other"},
        {"open_incident": "inc-1"},
        {"state": NodeState.SUSPECT},
        {"state": NodeState.ISOLATED},
        {"state": NodeState.QUARANTINED},
        {"state": NodeState.PROBATION, "probation_until": NOW + timedelta(seconds=1)},
        {"accelerators": 7},
    ],
)
def test_a_node_that_something_speaks_against_is_not_taken(changes: dict[str, Any]) -> None:
    bad = [replace(found, **changes) for found in some("mi-a")]

    assert chosen(bad + some("mi-b", "mi-c")) == ["mi-b", "mi-c"]


def test_a_paused_node_is_not_taken() -> None:
    pauses = pause_of_node("mi-a", NOW + timedelta(seconds=1))

    assert chosen(some("mi-a", "mi-b", "mi-c"), pauses=pauses) == ["mi-b", "mi-c"]
    assert placed(some("mi-a", "mi-b"), pauses=pauses).why.endswith("not free: mi-a paused")


def test_a_node_whose_probation_or_pause_is_over_is_taken() -> None:
    back = some("mi-a", state=NodeState.PROBATION, probation_until=NOW)

    assert chosen(back + some("mi-b"), pauses=pause_of_node("mi-b", NOW)) == ["mi-a", "mi-b"]


def test_who_did_not_pass_is_not_taken() -> None:
    assert chosen(some("mi-a", "mi-b", "mi-c"), unfit=("mi-a",)) == ["mi-b", "mi-c"]


def test_one_rack_is_better_than_two_and_the_smallest_that_fits_is_best() -> None:
    known = some("mi-a", rack="r1") + some("mi-b", "mi-c", "mi-d", rack="r2") + some("mi-e", "mi-f", rack="r3")

    assert chosen(known) == ["mi-e", "mi-f"]


def test_where_no_rack_is_large_enough_as_few_as_possible_are_used() -> None:
    known = some("mi-a", rack="r1") + some("mi-b", "mi-c", rack="r2") + some("mi-d", rack="r3")

    assert chosen(known, replace(JOB, nodes=3)) == ["mi-b", "mi-c", "mi-a"]


def test_nodes_that_are_not_healed_come_last() -> None:
    assert chosen(some("mi-a", "mi-b", "mi-c"), opted_out=("mi-a",)) == ["mi-b", "mi-c"]
    by_rack = some("mi-a", "mi-b", rack="r1") + some("mi-c", "mi-d", "mi-e", rack="r2")
    assert chosen(by_rack, opted_out=("mi-a",)) == ["mi-c", "mi-d"]
    assert chosen(some("mi-a", "mi-b"), opted_out=("mi-a",)) == ["mi-b", "mi-a"]


def test_too_few_free_nodes_may_become_more() -> None:
    found = placed(some("mi-a") + some("mi-b", job_id="other"))

    assert (found.nodes, found.may_change) == ((), True)
    assert found.why == "llama wants 2 nodes; 1 of pool demo is free; not free: mi-b has job other"


def test_spares_are_left_free() -> None:
    job = replace(JOB, spares=1)

    assert chosen(some("mi-a", "mi-b", "mi-c"), job) == ["mi-a", "mi-b"]
    assert placed(some("mi-a", "mi-b"), job).why.startswith("llama wants 2 nodes, with 1 more to be left free; 2 of")


@pytest.mark.parametrize("state", [NodeState.RETIRED, NodeState.ENROLLED])
def test_a_pool_that_is_too_small_never_changes(state: NodeState) -> None:
    found = placed(some("mi-a") + some("mi-b", state=state))

    assert found.may_change is False
    assert found.why == "llama wants 2 nodes with 8 accelerators, and pool demo has 1 node with 8 accelerators"


def test_a_paused_pool_gets_no_job() -> None:
    found = placed(some("mi-a", "mi-b"), pauses=pause_of_pool())

    assert (found.nodes, found.may_change) == ((), True)
    assert found.why.startswith("pool demo is paused until")


def test_many_reasons_are_cut() -> None:
    busy = some(*(f"mi-{n:02}" for n in range(9)), job_id="other")

    assert placed(busy).why.endswith("mi-05 has job other and 3 more")


@pytest.mark.parametrize(
    ("known", "spares", "why"),
    [
        (some("mi-a", "mi-b", "mi-c"), 1, ""),
        (some("mi-a", "mi-b", job_id="other"), 0, ""),
        (some("mi-a", "mi-b"), 1, "with 1 more to be left free, and pool demo has 2 nodes with 8 accelerators"),
        (some("mi-a") + some("mi-b", is_spare=True), 0, "has 1 node with 8 accelerators (of 2 in all), 1 spare not"),
        (some("mi-a") + some("mi-b", state=NodeState.RETIRED), 0, "has 1 node"),
        (some("mi-a") + [replace(found, accelerators=7) for found in some("mi-b")], 0, "has 1 node"),
    ],
)
def test_what_no_waiting_brings_is_known_before_it_waits(known: list[Node], spares: int, why: str) -> None:
    """Also what is left free, and what is kept: a job that waits for ever holds up the line behind it."""
    told = never_fits(replace(JOB, spares=spares), known)

    assert (why in told) if why else not told


def test_a_node_on_probation_says_until_when() -> None:
    until = NOW + timedelta(hours=1)
    found = placed(some("mi-a") + some("mi-b", state=NodeState.PROBATION, probation_until=until))

    proves = "`nodeheal nodes diagnose mi-b --why …` proves it now"
    assert found.why.endswith(f"mi-b is on probation until {until:%Y-%m-%d %H:%M:%S} UTC ({proves})")


def test_a_node_whose_probation_was_broken_off_says_what_it_is_now() -> None:
    broken_off = some("mi-b", state=NodeState.SUSPECT, probation_until=NOW + timedelta(hours=1))

    assert placed(some("mi-a") + broken_off).why.endswith("mi-b is SUSPECT")
    assert placed(some("mi-a") + some("mi-b", state=NodeState.PROBATION)).why.endswith("mi-b is PROBATION")


def test_a_job_runs_only_on_nodes_that_its_file_allows() -> None:
    known = some("mi-a", "mi-b", "mi-c", "mi-d")

    assert chosen(known, replace(JOB, exclude_nodes=("mi-b",))) == ["mi-a", "mi-c"]
    assert chosen(known, replace(JOB, only_nodes=("mi-d", "mi-c"))) == ["mi-c", "mi-d"]
    assert JOB.may_run_on("mi-b")
    assert "has 1 node with 8 accelerators (of 4 in all) that its file lets it run on" in never_fits(
        replace(JOB, only_nodes=("mi-d", "mi-x")), known
    )
