"""The network between two nodes: who is asked what, and what the answers come to."""

from dataclasses import replace

import pytest

from nodeheal.contract.fabric import FabricTestRequest
from nodeheal.contract.job_steps import JobResult
from nodeheal.contract.vocabulary import FabricRole, Outcome, VerbName, Verdict
from nodeheal.domain.jobs.node_pairs import Pair
from nodeheal.domain.operation import Operation, OperationState
from nodeheal.domain.policy.policy_models import Fabric
from nodeheal.operations import fan_out, network_test
from nodeheal.operations.diagnose import DiagnosisAnswer
from nodeheal.operations.handler import OperationFacts, VerbContext
from nodeheal.ports import Ports
from tests.support.builders import ACT, NOW, FrozenClock, commands_in, job_under_way, memory_ports, node
from tests.support.incident_steps import A, B

WANTED = Fabric(min_mb_per_second=1_000, min_all_reduce_mb_per_second=500)


@pytest.fixture
def ports() -> Ports:
    made = memory_ports(FrozenClock())
    for name in (A, B):
        made.nodes.save(node(name))
    return made


def part(ports: Ports, role: FabricRole, *, address: str = "10.0.0.1", is_shared: bool = False) -> Operation:
    question = replace(job_under_way(ports, VerbName.FAN_OUT), state=OperationState.PLANNED, version=0)
    nodes = {A: node(A, address=address or None), B: node(B)}
    return network_test.plan(question, Pair(0, A, B, is_shared=is_shared), role, nodes, WANTED)


def order_of(operation: Operation) -> FabricTestRequest:
    return FabricTestRequest.model_validate_json(operation.data_json)


def test_the_one_that_connects_is_told_where_the_other_serves(ports: Ports) -> None:
    serves, connects = (part(memory_ports(), role) for role in (FabricRole.SERVE, FabricRole.CONNECT))

    assert (serves.node_id, order_of(serves).peer) == (A, None)
    assert (connects.node_id, order_of(connects).peer) == (B, "10.0.0.1")


@pytest.mark.parametrize(("is_shared", "least"), [(True, (0, 0)), (False, (1_000, 500))])
def test_a_node_in_two_pairs_at_once_need_not_be_fast(ports: Ports, is_shared: bool, least: tuple[int, int]) -> None:
    order = order_of(part(ports, FabricRole.CONNECT, is_shared=is_shared))

    assert (order.min_mb_per_second, order.min_all_reduce_mb_per_second) == least


@pytest.mark.parametrize("role", [FabricRole.SERVE, FabricRole.CONNECT])
def test_without_an_address_the_one_that_connects_is_not_asked(ports: Ports, role: FabricRole) -> None:
    operation = part(ports, role, address="")

    network_test.HANDLER.start(operation, VerbContext(ports, ACT))

    is_asked = role is FabricRole.SERVE
    assert [one.document for one in commands_in(ports).sent] == ["test-fabric"] * is_asked
    result = network_test.HANDLER.observe(operation, OperationFacts(NOW))
    assert (result is None) is is_asked
    if isinstance(result, JobResult):
        assert (result.outcome, result.reason) == (Outcome.UNKNOWN, f"no address of {A} is known")


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [(Verdict.OK, Outcome.DONE), (Verdict.FAILED, Outcome.FAILED), (Verdict.DEGRADED, Outcome.UNKNOWN)],
)
def test_what_a_node_has_found_is_what_its_part_comes_to(ports: Ports, verdict: Verdict, outcome: Outcome) -> None:
    answer = DiagnosisAnswer(verdict=verdict, failed_tests=("pingpong",), output="slow\nmore").model_dump_json()
    operation = replace(part(ports, FabricRole.CONNECT), answer_json=answer)

    result = network_test.HANDLER.observe(operation, OperationFacts(NOW))

    assert isinstance(result, JobResult)
    assert (result.outcome, result.reason) == (outcome, "slow (pingpong)")


def test_of_a_pair_that_was_not_asked_nothing_is_known(ports: Ports) -> None:
    question, pair = job_under_way(ports, VerbName.FAN_OUT), Pair(0, A, B)

    assert network_test._found(question, pair, FabricRole.SERVE, ports) is None


def test_what_was_found_before_the_deadline_is_kept(ports: Ports) -> None:
    operation = part(ports, FabricRole.SERVE)
    result = fan_out.part_result(operation, NOW, Outcome.FAILED, "slow").model_dump_json()
    assert ports.operations.save(replace(operation, state=OperationState.DONE, result_json=result))
    question = ports.operations.get(*operation.parent) if operation.parent else None

    found = network_test._found(question, Pair(0, A, B), FabricRole.SERVE, ports)

    assert found is not None and (found.verdict, found.reason) == (Verdict.FAILED, "slow")
