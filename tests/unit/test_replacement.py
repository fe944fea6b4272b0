"""Replacing EC2 nodes: by their Auto Scaling group, or from their launch template. Events come as they like."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from nodeheal.contract.names import OPERATOR_REQUEST, group_line
from nodeheal.contract.results import CallAgain, Isolated, Refused, Replaced, Returned, StepResult
from nodeheal.contract.vocabulary import (
    Ending,
    NodeState,
    Outcome,
    Provider,
    Refusal,
    SchedulerKind,
    Step,
    VerbName,
)
from nodeheal.domain.errors import MachineRefused, NotAccepted
from nodeheal.domain.fleet.machine import Alternative, ClusterReplacement, Launch, Machine, Remediator, Termination
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.fleet.pause import NO_PAUSES
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import InGroup
from nodeheal.domain.recovery.guardrails import keep_machine_reason
from nodeheal.domain.recovery.timeline import decision_entry, result_entry
from nodeheal.operations.engine import machine_gone
from nodeheal.operations.verbs import conclude
from nodeheal.ports import Ports
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool
from nodeheal.services.operators.release_node import release_node
from nodeheal.services.recovery import new_machine, new_node_places
from nodeheal.services.recovery.retire_broken import retire_broken
from nodeheal.services.recovery.return_to_service import return_to_service
from tests.support.builders import (
    ACT,
    NOW,
    behave_as,
    facts_of,
    memory_ports,
    node,
    scheduler_in,
    under_way,
    waiting,
    xid,
)
from tests.support.fake_cluster import FakeCluster
from tests.support.incident_steps import C, Incident
from tests.support.policies import with_policy
from tests.support.recovery_story import Story
from tests.support.replacement_pool import GROUP, TEMPLATE, A, B, M, N, Pool
from tests.support.replacement_pool import A as EC2
from tests.support.step_functions import as_step, isolate_node, replace_node

CLUSTER = "arn:aws:sagemaker:us-east-1:111122223333:cluster/7tg6o65u86i5"


class Crash(Exception):
    """The function dies there."""


def crash() -> NoReturn:
    """Die."""
    raise Crash


def outcome(answer: StepResult | None) -> Outcome:
    assert answer is not None
    return answer.outcome


# In a group ---------------------------------------------------------------------------------------------------------


def test_the_group_makes_the_new_node_and_its_own_boot_resumes_the_workflow() -> None:
    pool = Pool()

    pool.replaces()
    assert pool.given_back == [(A, Termination.TERMINATE)]
    assert pool.node().state is NodeState.RECOVERING
    pool.group_makes()
    pool.told_of_launch()
    assert pool.answer() is None
    pool.boots()

    answer = pool.answer()
    assert answer is not None
    assert (answer.outcome, answer.replacement_node_id, answer.boot_id) == (Outcome.DONE, N, "boot-1")
    assert pool.node(N).open_incident == pool.incident()
    assert pool.node().state is NodeState.QUARANTINED
    assert waiting(pool.ports) == []


def test_the_policy_may_leave_even_the_termination_to_the_group() -> None:
    pool = Pool(in_group=InGroup.mark_unhealthy)

    pool.replaces()

    assert pool.given_back == [(A, Termination.MARK_UNHEALTHY)]


def test_the_operation_is_stored_before_the_machine_is_given_up() -> None:
    pool = Pool()
    stored: list[Any] = []
    pool.machines.terminate_instance = lambda *_: stored.append(pool.operation())

    pool.replaces()

    assert stored[0].token == f"token-{A}-3"


@pytest.mark.parametrize("order", ["launch first", "boot first", "boot alone", "all twice"])
def test_the_order_the_number_and_the_loss_of_events_do_not_matter(order: str) -> None:
    pool = Pool()
    pool.replaces()
    pool.group_makes()

    if order != "boot first":
        pool.told_of_launch() if order != "boot alone" else None
    pool.boots()
    if order == "all twice":
        pool.told_of_launch()
        pool.boots()
    if order == "boot first":
        pool.told_of_launch()

    assert outcome(pool.answer()) is Outcome.DONE
    assert pool.node(N).open_incident == pool.incident()


def test_a_boot_that_ec2_cannot_place_yet_is_settled_by_the_launch_event() -> None:
    pool = Pool()
    pool.replaces()
    pool.boots()  # DescribeInstances lags: it knows no such instance
    assert pool.answer() is None
    pool.group_makes()

    pool.told_of_launch()

    assert outcome(pool.answer()) is Outcome.DONE


def test_a_replacement_never_takes_a_second_node() -> None:
    pool = Pool()
    pool.replaces()
    for name in (N, M):
        pool.group_makes(name)
    pool.ports.workflows.resume = lambda *_: crash()  # type: ignore[method-assign]
    with pytest.raises(Crash):
        pool.boots(N)
    del pool.ports.workflows.resume

    pool.boots(M)

    assert pool.node(M).open_incident is None
    assert pool.node(N).open_incident == pool.incident()


@pytest.mark.parametrize(
    "changes",
    [{"past_boots": ("boot-0",)}, {"job_id": "llama"}, {"open_incident": "inc-other"}, {"state": NodeState.SUSPECT}],
)
def test_a_node_that_is_not_new_or_not_free_is_not_taken(changes: dict[str, Any]) -> None:
    pool = Pool()
    pool.group_makes()
    pool.replaces()
    pool.ports.nodes.save(node(N, provider=Provider.ec2, booted_at=NOW + timedelta(hours=1), **changes))

    pool.told_of_launch()

    assert pool.answer() is None


def test_an_idle_sibling_that_the_group_made_before_is_not_taken() -> None:
    pool = Pool()
    pool.group_makes()
    pool.boots(N)
    asked = pool.replaces()

    pool.told_of_launch(N)

    assert pool.answer() is None
    assert conclude(asked, pool.ports).outcome is Outcome.TIMED_OUT


def test_a_group_without_capacity_says_so_and_the_attempt_is_there_again() -> None:
    pool = Pool()
    pool.replaces()

    pool.told_of_launch("", failed="We currently do not have sufficient p5.48xlarge capacity")

    answer = pool.answer()
    assert answer is not None
    assert answer.outcome is Outcome.REFUSED
    assert answer.facts == Refused(
        code=Refusal.NO_CAPACITY, missing="We currently do not have sufficient p5.48xlarge capacity"
    )
    assert pool.spent() == 0


def test_a_failure_from_before_the_replacement_says_nothing_about_it() -> None:
    pool = Pool()
    pool.replaces()

    pool.told_of_launch("", at=NOW - timedelta(hours=1), failed="no capacity")

    assert pool.answer() is None


def test_the_next_attempt_finds_what_the_group_has_made_in_the_meantime_and_terminates_nothing() -> None:
    pool = Pool()
    pool.replaces()
    pool.told_of_launch("", failed="no capacity")
    pool.group_makes()
    pool.boots()

    pool.replaces(turn=5)

    assert outcome(pool.answer(turn=5)) is Outcome.DONE
    assert pool.given_back == [(A, Termination.TERMINATE)]


@pytest.mark.parametrize("when", ["asked", "settled"])
def test_a_call_that_is_repeated_gives_up_nothing_twice_and_its_own_token_counts(when: str) -> None:
    pool = Pool()
    pool.replaces()
    pool.machines.machines[A] = pool.kind  # it takes its time to go
    pool.group_makes()
    if when == "settled":
        pool.boots()

    pool.replaces(token="token-again")
    if when == "asked":
        pool.boots()

    assert pool.ports.workflows.resumed["token-again"].replacement_node_id == N  # type: ignore[attr-defined]
    assert len(pool.given_back) == 1


def test_a_throttled_call_is_made_again() -> None:
    pool = Pool()
    give_back = pool.machines.terminate_instance

    def throttled(*_: object) -> None:
        pool.machines.terminate_instance = give_back
        raise NotAccepted("Throttling")

    pool.machines.terminate_instance = throttled
    with pytest.raises(NotAccepted):
        pool.replaces()

    pool.replaces(token="token-again")

    assert pool.given_back == [(A, Termination.TERMINATE)]


def test_a_deleted_group_is_told_and_nothing_is_spent() -> None:
    pool = Pool()
    pool.machines.groups.clear()

    pool.replaces()

    answer = pool.answer()
    assert answer is not None
    assert answer.outcome is Outcome.REFUSED
    assert "does not exist" in answer.reason
    assert (pool.spent(), waiting(pool.ports), list(pool.machines.machines)) == (0, [], [A, B])


# On Slurm -----------------------------------------------------------------------------------------------------------


def test_on_slurm_the_cluster_makes_the_new_node_which_serves_at_once() -> None:
    pool = Pool(group="", scheduler=SchedulerKind.SLURM, by_cluster=ClusterReplacement.power_down)
    pool.replaces()
    assert pool.scheduler.replaced_by_cluster == [(A, ClusterReplacement.power_down)]
    assert (pool.given_back, pool.answer()) == ([], None)

    pool.boots()

    answer = pool.answer()
    assert answer is not None
    assert (answer.outcome, answer.replacement_node_id) == (Outcome.DONE, N)
    assert answer.facts == Replaced(is_new_machine=True, serves_at_once=True)
    assert pool.node().state is NodeState.RETIRED
    assert A not in pool.ports.pools.holders("demo")
    assert waiting(pool.ports) == []


@pytest.mark.parametrize("scheduler", [SchedulerKind.SLURM, SchedulerKind.KUBERNETES])
def test_a_group_makes_the_new_node_where_the_policy_names_no_other_way(scheduler: SchedulerKind) -> None:
    pool = Pool(scheduler=scheduler)
    pool.replaces()
    pool.group_makes()

    pool.boots()

    answer = pool.answer()
    assert pool.given_back == [(A, Termination.TERMINATE)]
    assert answer is not None
    assert answer.facts == Replaced(is_new_machine=True, serves_at_once=True)
    assert pool.node().state is NodeState.RETIRED


def test_on_slurm_two_replacements_get_a_node_each_and_one_of_before_or_of_another_pool_is_none() -> None:
    pool = Pool(group="", scheduler=SchedulerKind.SLURM, by_cluster=ClusterReplacement.power_down)
    pool.boots("i-0eeeeeeeeeeeeeeee")
    pool.clock.advance(60)
    pool.replaces(A), pool.replaces(B)
    elsewhere = node("i-0ffffffffffffffff", provider=Provider.ec2, scheduler=SchedulerKind.SLURM, pool="other")
    new_machine.on_machine_booted(replace(elsewhere, booted_at=pool.clock()), pool.ports)
    assert pool.answer(A) is None

    for name in (N, M):
        pool.boots(name)

    assert {answer.replacement_node_id for name in (A, B) if (answer := pool.answer(name))} == {N, M}


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"group": ""}, "is in no Auto Scaling group, and pool demo has no replacement.by_cluster"),
        ({"group": "", "template": TEMPLATE, "prefer_spare": True}, "is in no Auto Scaling group"),
        ({"group": "", "by_cluster": ClusterReplacement.power_down}, "ada has it"),
    ],
)
def test_on_slurm_what_cannot_be_replaced_is_refused_and_unspent(knobs: dict[str, Any], told: str) -> None:
    pool = Pool(scheduler=SchedulerKind.SLURM, **knobs)
    pool.ports.nodes.save(node(N, provider=Provider.ec2, is_spare=True, scheduler=SchedulerKind.SLURM))
    pool.scheduler.replaces_none = "ada has it"

    pool.replaces()

    answer = pool.answer()
    assert answer is not None
    assert answer.outcome is Outcome.REFUSED
    assert told in answer.reason
    assert (pool.spent(), pool.given_back, pool.node(N).open_incident) == (0, [], None)


def test_on_slurm_an_order_that_was_not_answered_is_given_again() -> None:
    pool = Pool(group="", scheduler=SchedulerKind.SLURM, by_cluster=ClusterReplacement.power_down)
    order, late = pool.scheduler.have_replaced, [True]

    def answers_late(node: Node, how: ClusterReplacement, others: Collection[str]) -> None:
        order(node, how, others)
        if late.pop():
            late.append(False)
            raise NotAccepted("the controller has not answered")

    pool.scheduler.have_replaced = answers_late  # type: ignore[method-assign]
    with pytest.raises(NotAccepted):
        pool.replaces()

    pool.replaces()
    pool.boots()

    assert outcome(pool.answer()) is Outcome.DONE
    assert pool.spent() == 1


def test_a_scheduler_that_makes_no_machines_is_not_asked_for_one() -> None:
    pool = Pool(group="", scheduler=SchedulerKind.SLURM, by_cluster=ClusterReplacement.power_down)
    behave_as(pool.ports, machines=None)

    pool.replaces()

    answer = pool.answer()
    assert answer is not None
    told = f"{A} is in no Auto Scaling group, and SLURM makes no machines for its cluster"
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, told)
    assert pool.scheduler.replaced_by_cluster == []


def test_on_slurm_the_cluster_is_told_where_other_nodes_are() -> None:
    pool = Pool(group="", scheduler=SchedulerKind.SLURM, by_cluster=ClusterReplacement.power_down)
    pool.ports.nodes.save(replace(pool.node(B), address="10.0.0.8"))
    pool.ports.nodes.save(node("mi-1", scheduler=SchedulerKind.SLURM, pool="other", address="10.0.0.9"))
    pool.ports.nodes.save(node("mi-2", scheduler=SchedulerKind.SLURM, pool="other", cluster="far", address="10.0.0.10"))
    pool.ports.nodes.save(node("mi-3", scheduler=SchedulerKind.SLURM, state=NodeState.RETIRED, address="10.0.0.11"))
    pool.ports.nodes.save(node("mi-4", address="10.0.0.12"))  # of an ECS cluster that has the same name
    told: list[Collection[str]] = []
    pool.scheduler.have_replaced = lambda node, how, others: told.append(others)  # type: ignore[method-assign]

    pool.replaces()

    assert told == [{"10.0.0.8", "10.0.0.9"}]


def test_on_slurm_a_cluster_that_makes_no_machine_is_named_at_the_deadline() -> None:
    pool = Pool(group="", scheduler=SchedulerKind.SLURM, by_cluster=ClusterReplacement.power_down)
    asked = pool.replaces()

    ended = conclude(asked, pool.ports)

    assert (ended.outcome, ended.reason) == (
        Outcome.TIMED_OUT,
        "its cluster was asked for a machine; no new node has come up within 900 s",
    )
    assert pool.node().state is NodeState.RECOVERING


def test_on_slurm_a_new_node_whose_boot_was_lost_is_found_at_the_deadline() -> None:
    pool = Pool(group="", scheduler=SchedulerKind.SLURM, by_cluster=ClusterReplacement.power_down)
    asked = pool.replaces()
    late = NOW + timedelta(minutes=5)
    pool.ports.nodes.save(node(N, provider=Provider.ec2, scheduler=SchedulerKind.SLURM, booted_at=late))

    assert conclude(asked, pool.ports).replacement_node_id == N


# By Karpenter -------------------------------------------------------------------------------------------------------


def by_karpenter() -> Pool:
    pool = Pool(group="", scheduler=SchedulerKind.KUBERNETES, by_cluster=ClusterReplacement.delete_node_claim)
    pool.boots()  # made for the gang, which was restarted when the node was isolated
    pool.clock.advance(600)
    return pool


def test_karpenter_ends_the_machine_and_no_new_node_is_waited_for_or_taken() -> None:
    pool = by_karpenter()
    pool.replaces()
    pool.boots(M)
    assert pool.answer() is None

    machine_gone(A, pool.ports)

    answer = pool.answer()
    assert answer is not None
    assert pool.scheduler.replaced_by_cluster == [(A, ClusterReplacement.delete_node_claim)]
    assert (answer.outcome, answer.replacement_node_id) == (Outcome.DONE, None)
    assert answer.facts == Replaced(serves_at_once=True)
    assert [pool.node(name).open_incident for name in (N, M)] == [None, None]
    assert pool.node().state is NodeState.RETIRED
    assert A not in pool.ports.pools.holders("demo")
    assert waiting(pool.ports) == []


@pytest.mark.parametrize(
    ("is_gone", "outcome", "told"),
    [
        (True, Outcome.DONE, "its machine has ended; the cluster makes another where work needs one"),
        (False, Outcome.TIMED_OUT, f"{A} was left to its cluster to end, which has not done so in time"),
    ],
)
def test_a_machine_whose_end_was_not_reported_is_looked_for_at_the_deadline(
    is_gone: bool, outcome: Outcome, told: str
) -> None:
    pool = by_karpenter()
    asked = pool.replaces()
    if is_gone:
        del pool.machines.machines[A]

    ended = conclude(asked, pool.ports)

    assert (ended.outcome, ended.reason) == (outcome, told)
    assert pool.node().state is (NodeState.RETIRED if is_gone else NodeState.RECOVERING)


def test_a_machine_that_karpenter_may_not_end_is_not_waited_for() -> None:
    pool = by_karpenter()
    pool.scheduler.replaces_none = "its capacity is reserved"

    pool.replaces()

    answer = pool.answer()
    assert answer is not None
    assert (answer.outcome, answer.reason, pool.spent()) == (Outcome.REFUSED, "its capacity is reserved", 0)


# On HyperPod --------------------------------------------------------------------------------------------------------


def on_hyperpod(**knobs: Any) -> Pool:
    pool = Pool(scheduler=SchedulerKind.SLURM, provider=Provider.hyperpod, **knobs)
    pool.kind = replace(pool.kind, hyperpod_cluster=CLUSTER)
    for name in (A, B):
        pool.machines.machines[name] = replace(pool.kind, machine_id=name)
    return pool


@pytest.mark.parametrize("knobs", [{}, {"by_cluster": ClusterReplacement.power_down}])
def test_hyperpod_makes_the_new_node_which_serves_at_once(knobs: dict[str, Any]) -> None:
    pool = on_hyperpod(**knobs)
    asked = pool.replaces()
    given = [entry.text for entry in pool.ports.incidents.history(asked.incident_id).timeline]
    assert pool.given_back == [(A, Termination.TERMINATE)]
    assert f"{A} given to HyperPod to replace, with all its volumes ({CLUSTER})" in given
    pool.group_makes()

    pool.boots()

    answer = pool.answer()
    assert answer is not None
    assert (answer.outcome, answer.replacement_node_id) == (Outcome.DONE, N)
    assert answer.facts == Replaced(is_new_machine=True, serves_at_once=True)
    assert pool.node().state is NodeState.RETIRED
    assert pool.scheduler.replaced_by_cluster == []


def test_a_node_of_hyperpod_is_replaced_once_however_often_it_is_asked_for() -> None:
    pool = on_hyperpod()
    give_up = pool.machines.terminate_instance

    def dies(*asked: Any) -> None:
        give_up(*asked)
        raise Crash

    pool.machines.terminate_instance = dies
    with pytest.raises(Crash):
        pool.replaces()
    pool.machines.terminate_instance = give_up

    pool.replaces()
    pool.group_makes()
    pool.boots()

    assert pool.given_back == [(A, Termination.TERMINATE)]
    assert outcome(pool.answer()) is Outcome.DONE


def test_what_hyperpod_refuses_to_replace_goes_to_a_human_and_is_unspent() -> None:
    pool = on_hyperpod()

    def refuses(*_: Any) -> None:
        raise MachineRefused(f"NodeRecovery of {CLUSTER} is Automatic")

    pool.machines.terminate_instance = refuses

    pool.replaces()

    answer = pool.answer()
    assert answer is not None
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, f"NodeRecovery of {CLUSTER} is Automatic")
    assert (pool.spent(), pool.ports.machines.given_back) == (0, [])  # type: ignore[attr-defined]


# From a launch template ---------------------------------------------------------------------------------------------


def test_a_launch_that_is_repeated_launches_nothing_more() -> None:
    pool = Pool(group="", template=TEMPLATE)
    launch = pool.machines.launch

    def dies(*asked: Any) -> None:
        launch(*asked)
        crash()

    pool.machines.launch = dies
    with pytest.raises(Crash):
        pool.replaces()
    pool.machines.launch = launch

    pool.replaces(token="token-again")
    [new] = pool.machines.tokens.values()
    pool.boots(new)

    assert pool.ports.workflows.resumed["token-again"].replacement_node_id == new  # type: ignore[attr-defined]


def test_without_capacity_the_alternatives_are_tried_in_order() -> None:
    pool = Pool(group="", template=TEMPLATE, subnets=("subnet-2", "subnet-3"), instance_types=("p5en.48xlarge",))
    pool.machines.full = {Alternative("subnet-1", "p5.48xlarge"), Alternative("subnet-2", "p5.48xlarge")}

    pool.replaces()

    [new] = pool.machines.tokens.values()
    assert (pool.machines.machines[new].subnet, pool.machines.machines[new].instance_type) == (
        "subnet-3",
        "p5.48xlarge",
    )


def test_without_any_capacity_nothing_is_touched_and_nothing_spent() -> None:
    pool = Pool(group="", template=TEMPLATE, subnets=("subnet-2",))
    pool.machines.is_full = True

    pool.replaces()

    answer = pool.answer()
    assert answer is not None
    assert answer.outcome is Outcome.REFUSED
    assert "p5.48xlarge in subnet-1, p5.48xlarge in subnet-2" in facts_of(answer, Refused).missing
    assert (pool.spent(), pool.given_back, waiting(pool.ports)) == (0, [], [])
    assert pool.ports.pools.holders("demo#replacements") == []


def test_a_full_reservation_needs_the_broken_machine_to_go_first_and_says_so() -> None:
    pool = Pool(group="", template=TEMPLATE)
    pool.machines.machines[A] = replace(pool.kind, reservation="cr-1")
    pool.machines.is_full = True

    pool.replaces()

    answer = pool.answer()
    assert answer is not None
    assert "terminate_first" in answer.reason
    assert answer.refused_for(Refusal.NO_CAPACITY) is None  # to wait for it would be in vain


def test_where_policy_says_so_the_broken_machine_goes_first() -> None:
    pool = Pool(group="", template=TEMPLATE, terminate_first=True)

    pool.replaces()
    assert (pool.given_back, pool.machines.tokens) == ([(A, Termination.TERMINATE)], {})
    machine_gone(A, pool.ports)
    answer = pool.answer()
    assert answer is not None
    assert answer.facts == CallAgain()
    pool.machines.machines[A] = pool.kind  # EC2 says so for a while yet
    pool.replaces(token="token-again")
    [new] = pool.machines.tokens.values()
    pool.boots(new)

    assert pool.ports.workflows.resumed["token-again"].outcome is Outcome.DONE  # type: ignore[attr-defined]
    assert len(pool.given_back) == 1


@pytest.mark.parametrize(("is_first", "told"), [(True, "no machine was to be had"), (False, "nothing was touched")])
def test_an_attempt_that_has_terminated_the_machine_is_not_said_to_have_touched_nothing(
    is_first: bool, told: str
) -> None:
    pool = Pool(group="", template=TEMPLATE, terminate_first=is_first)
    pool.machines.is_full = True
    if is_first:
        pool.replaces()
        machine_gone(A, pool.ports)

    pool.replaces(token="token-again")

    lines = [line.text for line in pool.ports.incidents.history(pool.incident()).timeline]
    assert [told in line for line in lines if line.startswith("attempt given back")] == [True]


def test_a_full_reservation_is_no_capacity_once_the_broken_machine_is_gone() -> None:
    pool = Pool(group="", template=TEMPLATE, terminate_first=True)
    pool.machines.machines[A] = replace(pool.kind, reservation="cr-1")
    pool.machines.is_full = True
    pool.replaces()
    machine_gone(A, pool.ports)

    pool.replaces(token="token-again")

    answer = pool.ports.workflows.resumed["token-again"]  # type: ignore[attr-defined]
    assert answer.refused_for(Refusal.NO_CAPACITY)


def test_the_end_of_a_machine_that_nobody_waits_for_wakes_nobody() -> None:
    pool = Pool(group="", template=TEMPLATE)
    pool.replaces()

    for machine_id in (A, "i-elsewhere"):
        machine_gone(machine_id, pool.ports)

    assert pool.answer() is None


@pytest.mark.parametrize(
    ("broken", "told"),
    [("template", "does not exist"), ("gone", "is gone"), ("nothing", "nothing to make another from")],
)
def test_what_cannot_be_replaced_is_refused_with_the_reason_and_unspent(broken: str, told: str) -> None:
    pool = Pool(group="", template="" if broken == "nothing" else TEMPLATE)
    pool.machines.templates_gone.add(TEMPLATE)
    if broken == "gone":
        pool.machines.machines.clear()

    pool.replaces()

    answer = pool.answer()
    assert answer is not None
    assert answer.outcome is Outcome.REFUSED
    assert told in answer.reason
    assert (pool.spent(), waiting(pool.ports)) == (0, [])


# Spares and limits --------------------------------------------------------------------------------------------------


def test_a_pool_with_warm_spares_may_prefer_them() -> None:
    pool = Pool(prefer_spare=True)
    pool.ports.nodes.save(node(N, provider=Provider.ec2))

    pool.replaces(A), pool.replaces(B)

    answer = pool.answer()
    assert answer is not None
    assert answer.replacement_node_id == N
    assert pool.given_back == [(B, Termination.TERMINATE)]


def test_more_replacements_than_the_pool_allows_are_refused_and_unspent() -> None:
    pool = Pool(max_nodes=1)

    pool.replaces(A), pool.replaces(B)

    answer = pool.answer(B)
    assert answer is not None
    assert answer.facts == Refused(code=Refusal.REPLACEMENTS_FULL)
    assert (pool.spent(B), pool.given_back) == (0, [(A, Termination.TERMINATE)])


def test_the_next_replacement_begins_when_the_last_is_over_or_has_crashed() -> None:
    pool = Pool(max_nodes=1)
    pool.replaces(A)
    pool.ports.operations.save(pool.operation().delivered())

    pool.replaces(B)

    assert pool.given_back == [(A, Termination.TERMINATE), (B, Termination.TERMINATE)]


def test_a_node_that_was_given_up_since_the_attempt_was_reserved_costs_none() -> None:
    pool = Pool()
    asked = pool.request()
    pool.ports.nodes.save(replace(pool.node(), state=NodeState.RETIRED, open_incident=None))

    replace_node(asked, pool.ports, pool.policy)

    assert outcome(pool.answer()) is Outcome.REFUSED
    assert (pool.spent(), pool.given_back) == (0, [])


def test_an_attempt_whose_machine_was_given_up_stays_spent_whatever_a_repeated_call_finds() -> None:
    pool = Pool()
    pool.replaces()
    pool.ports.nodes.save(replace(pool.node(), state=NodeState.RETIRED, open_incident=None))

    pool.replaces(token="token-again")

    assert pool.spent() == 1


# Looking ------------------------------------------------------------------------------------------------------------


def test_at_the_deadline_a_new_node_is_found_whose_events_were_lost() -> None:
    pool = Pool()
    asked = pool.replaces()
    pool.boots()  # EC2 does not know it yet, and the launch event never comes
    pool.group_makes()

    seen = conclude(asked, pool.ports)

    assert (seen.outcome, seen.replacement_node_id) == (Outcome.DONE, N)


@pytest.mark.parametrize(
    ("launch", "expected", "told"),
    [
        (None, Outcome.TIMED_OUT, "has launched nothing"),
        (Launch(GROUP, NOW, N), Outcome.TIMED_OUT, f"has launched {N}"),
        (Launch(GROUP, NOW, "", "no capacity"), Outcome.REFUSED, "could not launch"),
    ],
)
def test_at_the_deadline_the_group_is_asked_what_it_did(launch: Launch | None, expected: Outcome, told: str) -> None:
    pool = Pool()
    asked = pool.replaces()
    pool.machines.launched_by = [launch] if launch else []

    seen = conclude(asked, pool.ports)

    assert seen.outcome is expected
    assert told in seen.reason
    launched = seen.facts.launched if isinstance(seen.facts, Replaced) else None
    assert launched == (N if told.endswith(N) else None)
    assert pool.ports.operations.queued(group_line(GROUP)) == []
    lines = [line.text for line in pool.ports.incidents.history(pool.incident()).timeline]
    assert f"{A} terminated in group {GROUP}, which makes another" in lines
    assert pool.ports.pools.holders("demo#replacements") == []


@pytest.mark.parametrize("failed", ["", "no capacity"], ids=["at the deadline", "after a failure"])
def test_a_machine_that_the_group_makes_too_late_is_a_new_node_and_nobodys_successor(failed: str) -> None:
    pool = Pool()
    asked = pool.replaces()
    if failed:
        pool.told_of_launch("", failed=failed)
    else:
        conclude(asked, pool.ports)

    pool.clock.advance(86_400)
    pool.group_makes()
    pool.boots()
    pool.told_of_launch()

    assert pool.ports.notifier.announced == []  # type: ignore[attr-defined]
    assert (pool.node(N).open_incident, pool.node(N).claimed_by, waiting(pool.ports)) == (None, None, [])
    assert pool.node(N).is_available(pool.clock(), NO_PAUSES)


@pytest.mark.parametrize("is_gone", [False, True])
def test_at_the_deadline_a_machine_that_was_to_go_first_is_no_successor(is_gone: bool) -> None:
    pool = Pool(group="", template=TEMPLATE, terminate_first=True)
    asked = pool.replaces()
    if is_gone:
        machine_gone(A, pool.ports)

    seen = conclude(asked, pool.ports)

    assert seen.outcome is Outcome.TIMED_OUT
    assert seen.reason == f"{A} was to be terminated first; its successor was not launched in time"


def test_at_the_deadline_a_machine_that_was_launched_is_named() -> None:
    pool = Pool(group="", template=TEMPLATE)
    asked = pool.replaces()
    [new] = pool.machines.tokens.values()
    assert pool.ports.operations.queued(group_line("")) == []  # of a group that there is not

    seen = conclude(asked, pool.ports)

    assert (seen.outcome, seen.facts) == (Outcome.TIMED_OUT, Replaced(launched=new))


# The broken one -----------------------------------------------------------------------------------------------------


def test_when_the_new_node_is_proven_the_broken_machine_goes_and_its_slot_is_free() -> None:
    pool = Pool(group="", template=TEMPLATE)
    asked = pool.replaces()
    [new] = pool.machines.tokens.values()
    pool.boots(new)

    assert [retire_broken(A, asked, pool.ports, ACT) for _ in range(2)] == ["", ""]

    assert pool.given_back == [(A, Termination.TERMINATE)]
    assert (pool.node().state, pool.ports.pools.holders("demo")) == (NodeState.RETIRED, [B])


def test_what_cannot_be_given_back_stays_quarantined_for_a_human() -> None:
    pool = Pool(group="", template=TEMPLATE)
    asked = pool.replaces()
    [new] = pool.machines.tokens.values()
    pool.boots(new)

    def refuses(*_: object) -> None:
        raise MachineRefused("OperationNotPermitted (termination protection)")

    pool.machines.terminate_instance = refuses

    assert "termination protection" in retire_broken(A, asked, pool.ports, ACT)
    assert pool.node().state is NodeState.QUARANTINED


@pytest.mark.parametrize("changes", [{"provider": Provider.hybrid}, {"open_incident": "inc-other"}])
def test_what_is_not_ours_to_give_back_is_kept(changes: dict[str, Any]) -> None:
    pool = Pool(group="", template=TEMPLATE)
    pool.ports.nodes.save(replace(pool.node(), **changes))

    assert retire_broken(A, pool.request(), pool.ports, ACT) != ""
    assert pool.given_back == []


HELD: dict[str, Callable[[Any], RecoveryPolicy]] = {
    "paused": lambda pool: _paused(pool),
    "opted out": lambda pool: ACT.model_copy(update={"opted_out": {A: "ours"}}),
    "observe mode": lambda pool: RecoveryPolicy(),
}


def _paused(pool: Any) -> RecoveryPolicy:
    pause_pool("demo", 3_600, "ada: in its rack", pool.ports)
    return ACT


@pytest.mark.parametrize("why", HELD)
def test_a_broken_machine_that_somebody_wants_hands_off_by_now_stays_for_a_human(why: str) -> None:
    pool = Pool(group="", template=TEMPLATE)
    asked = pool.replaces()
    [new] = pool.machines.tokens.values()
    pool.boots(new)

    kept = retire_broken(A, asked, pool.ports, HELD[why](pool))

    assert why in kept
    assert pool.given_back == []
    assert pool.node().state is NodeState.QUARANTINED
    assert any(why in entry.text for entry in pool.ports.incidents.history(asked.incident_id).timeline)


def test_what_an_operator_has_asked_for_goes_in_observe_mode_too() -> None:
    pool = Pool(group="", template=TEMPLATE)
    asked = pool.replaces()
    by_hand = replace(
        pool.ports.incidents.history(asked.incident_id).incident, root=xid(79, code=OPERATOR_REQUEST, family="host")
    )

    assert keep_machine_reason(by_hand, "", RecoveryPolicy(), NOW) == ""
    assert "paused" in keep_machine_reason(by_hand, "pool demo is paused", RecoveryPolicy(), NOW)


# One owner ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accepted", [(), (Remediator.neuron_node_recovery,)])
def test_a_node_that_its_cluster_replaces_by_itself_is_left_alone_unless_policy_accepts_it(
    accepted: tuple[Remediator, ...],
) -> None:
    pool = Pool(accept_owners=accepted)
    scheduler_in(pool.ports).repaired_by = Remediator.neuron_node_recovery
    asked = as_step(pool.request(), Step.ISOLATE)

    isolate_node(asked, pool.ports, pool.policy)

    answer = pool.answer()
    assert answer is not None
    assert (answer.refused_for(Refusal.EXTERNAL_REMEDIATOR) is None, pool.node().drained_by_us) == (
        bool(accepted),
        bool(accepted),
    )
    assert accepted or "npd.nodeRecovery.enabled=false" in answer.reason


@pytest.mark.parametrize("accepted", [(), (Remediator.eks_node_repair,)])
def test_a_node_that_somebody_else_repairs_is_left_alone_unless_policy_accepts_it(
    accepted: tuple[Remediator, ...],
) -> None:
    pool = Pool(accept_owners=accepted)
    owned = replace(pool.kind, external_remediator=Remediator.eks_node_repair, remediator_detail="node group ng-1")
    pool.machines.machines[A] = owned
    asked = as_step(pool.request(), Step.ISOLATE)

    isolate_node(asked, pool.ports, pool.policy)

    answer = pool.answer()
    assert answer is not None
    assert answer.outcome is (Outcome.DONE if accepted else Outcome.REFUSED)
    assert pool.node().drained_by_us is bool(accepted)
    assert accepted or "--node-repair-config enabled=false" in answer.reason
    assert (answer.refused_for(Refusal.EXTERNAL_REMEDIATOR) is not None) is not bool(accepted)


@pytest.mark.parametrize(
    ("bought", "is_reserved"),
    [
        ({}, False),
        ({"lifecycle": "spot"}, False),
        ({"lifecycle": "capacity-block"}, True),
        ({"reservation": "cr-1"}, True),
    ],
)
def test_the_isolation_records_whether_the_capacity_was_bought_ahead(bought: dict[str, Any], is_reserved: bool) -> None:
    pool = Pool()
    pool.machines.machines[A] = replace(pool.kind, **bought)

    isolate_node(as_step(pool.request(), Step.ISOLATE), pool.ports, pool.policy)

    answer = pool.answer()
    assert answer is not None
    assert answer.facts == Isolated(is_drained=True, has_reserved_capacity=is_reserved)


def test_a_node_that_a_human_has_paused_is_nobodys_replacement_node() -> None:
    it = Incident(code=74)
    pause_node(C, 3_600, "I work on it", it.ports)
    it.isolate()

    assert it.swap().outcome is Outcome.REFUSED
    assert it.node(C).open_incident is None


def test_a_node_that_is_opted_out_is_nobodys_replacement_node() -> None:
    cluster = FakeCluster(with_policy(opted_out={"mi-0cccccccccccccccc": "lab machine"}))

    cluster.reports(xid(74))

    assert ("run-diagnostics", "mi-0cccccccccccccccc") not in cluster.commands
    assert cluster.node("mi-0cccccccccccccccc").job_id is None


def test_a_broken_machine_that_ec2_will_not_give_up_is_left_to_a_human_and_not_called_recovered() -> None:
    story = Story(xid(74)).isolated().renewed().passed()
    story.then(
        Outcome.DONE, "mi-0spare is in service; mi-0a could not be given back", facts=Returned(is_broken_left=True)
    )
    story.then(Outcome.DONE, "llama runs again")

    assert story.next().ending is Ending.HANDED_TO_A_HUMAN
    assert "could not be given back" in story.next().reason


@pytest.mark.parametrize("retire", [False, True], ids=["given back", "retired"])
def test_a_new_node_of_the_group_is_not_for_one_that_a_human_has_taken_in_the_meantime(retire: bool) -> None:
    pool = Pool()
    pool.replaces()
    release_node(EC2, "it was the cable", pool.ports, retire=retire)
    pool.group_makes()

    pool.boots()

    assert pool.node(N).open_incident is None
    assert pool.node(EC2).state is (NodeState.RETIRED if retire else NodeState.HEALTHY)


@pytest.mark.parametrize("refuses", [False, True])
def test_whether_the_broken_machine_is_gone_is_told_with_the_return_of_its_successor(refuses: bool) -> None:
    pool = Pool(group="", template="lt-1")
    asked = pool.replaces()
    [new] = pool.machines.tokens.values()
    pool.boots(new)
    answer = pool.answer()
    assert answer is not None
    passed = answer.model_copy(update={"step": Step.DIAGNOSE, "node_id": new, "replacement_node_id": None})
    entries = []
    for turn, result in enumerate((answer, passed)):
        entries += [decision_entry(turn, asked.decision.model_copy(update={"step": result.step}), NOW)]
        entries += [result_entry(turn, result)]
    head = pool.ports.incidents.history(asked.incident_id).incident
    assert pool.ports.incidents.advance(replace(head, turn=1), entries)
    if refuses:
        pool.machines.terminate_instance = refused_by_ec2

    back = asked.decision.model_copy(update={"step": Step.RETURN, "node_id": new})
    result = return_to_service(asked.model_copy(update={"decision": back, "turn": 5}), pool.ports, pool.policy)

    assert (result.outcome, result.facts) == (Outcome.DONE, Returned(is_broken_left=refuses))
    assert (EC2 in pool.ports.pools.holders("demo")) is refuses


def refused_by_ec2(*_: object) -> None:
    raise MachineRefused("OperationNotPermitted (termination protection)")


def test_a_node_that_one_replacement_may_not_have_is_offered_to_the_next(
    three_nodes: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (under_way(memory_ports(), VerbName.REPLACE, incident_id=name) for name in ("inc-1", "inc-2"))
    offered: list[str] = []
    monkeypatch.setattr(three_nodes.machines, "describe", lambda _: Machine("i-1", group="trainers"))
    monkeypatch.setattr(three_nodes.operations, "queued", lambda line: [first, second] if "trainers" in line else [])
    monkeypatch.setattr(new_machine, "is_made_for", lambda *_: True)
    monkeypatch.setattr(new_machine, "has_taken", lambda operation, _: operation is second)
    monkeypatch.setattr(new_machine, "reconcile", lambda *_: None)

    def take(operation: Any, *_: Any) -> Any:
        offered.append(operation.incident_id)
        return operation

    monkeypatch.setattr(new_machine, "take_new_node", take)

    new_machine.on_machine_booted(node("i-1", provider=Provider.ec2), three_nodes)

    assert offered == ["inc-1", "inc-2"]


def test_a_place_that_nobody_needs_any_more_goes_to_the_next(three_nodes: Ports) -> None:
    first, second, _ = three_nodes.nodes.in_pool("demo")
    assert new_node_places.claim_place(first, 1, three_nodes)
    assert new_node_places.claim_place(second, 1, three_nodes)  # the first has no incident that would hold it
    assert not new_node_places.has_place(first, three_nodes)
