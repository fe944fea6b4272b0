"""The network between a job's nodes, tested before it starts: run_job walked, over real services."""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from nodeheal.contract.fabric import NO_PEER
from nodeheal.contract.health_event import DiagnosticsFinished
from nodeheal.contract.vocabulary import FabricRole, JobState, VerbName, Verdict
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.jobs.node_pairs import pairs_of, suspects
from nodeheal.domain.operation import Operation
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import Fabric
from nodeheal.ports import Ports
from nodeheal.ports.commands import Command
from nodeheal.services.intake import wakeup
from nodeheal.services.steps import save_node
from tests.support.builders import ACT, commands_in
from tests.support.job_cluster import NODES, JobCluster, finishes
from tests.support.policies import WITH_FABRIC

A, B, C, D = NODES
TESTED = [
    "Choose nodes",
    "What next?",
    "Check nodes",
    "Evaluate diagnostics",
    "What next?",
    "Check nodes",
    "Evaluate diagnostics",
]


def cluster(policy: RecoveryPolicy = WITH_FABRIC, **spec_of: Any) -> JobCluster:
    """A pool in which the network is tested, and a job that ends well once it runs."""
    it = JobCluster(policy=policy, **spec_of)
    it.happenings = [finishes]
    return it


def ways(it: JobCluster) -> list[tuple[str, str, str | None, int]]:
    """(node, role, peer, least MB/s) of each command."""
    found = []
    for sent in commands_in(it.ports).sent_of("test-fabric"):
        peer, least = sent.parameters["Peer"], int(sent.parameters["MinMbPerSecond"])
        found.append((sent.node_id, sent.parameters["Role"], None if peer == NO_PEER else peer, least))
    return found


def asked(ports: Ports) -> list[Operation]:
    """What single nodes were asked about the network between them."""
    found = ports.operations.operations.values()  # type: ignore[attr-defined]
    return [one for one in found if one.verb is VerbName.NETWORK_TEST]


def gang(it: JobCluster) -> list[str]:
    """Where it runs."""
    return [task.node_id for task in it.run.tasks]


def codes(it: JobCluster) -> list[tuple[str, str, Verdict]]:
    """(node, code, verdict) of every incident."""
    found = [
        it.ports.incidents.history(str(it.node(n).open_incident)).incident for n in NODES if it.node(n).open_incident
    ]
    return [(one.node_id, one.root.code, one.root.verdict) for one in found]


def test_the_ways_are_tested_when_every_node_has_passed() -> None:
    it = cluster()
    save_node(it.ports, it.node(A), address="10.0.0.1")

    seen = it.submit()

    assert seen.path[2:9] == TESTED
    assert seen.end == "Completed"
    assert ways(it) == [(A, "SERVE", None, 900), (B, "CONNECT", "10.0.0.1", 900)]
    assert it.is_clean


@pytest.mark.parametrize("nodes", [2, 3])
def test_the_sum_over_the_gpus_is_asked_for_where_the_pool_says_so(nodes: int) -> None:
    fabric = Fabric(tests=True, all_reduce=True, min_all_reduce_mb_per_second=7_000)
    pool = ACT.default_pool.model_copy(update={"fabric": fabric})
    it = cluster(ACT.model_copy(update={"default_pool": pool}), nodes=nodes)

    it.submit()

    sent = commands_in(it.ports).sent_of("test-fabric")
    assert {one.parameters["AllReduce"] for one in sent} == {"yes"}
    # Two sums over one node at a time share its links: speed tells nothing there.
    assert {one.parameters["MinAllReduceMbPerSecond"] for one in sent} == {"7000" if nodes == 2 else "0"}


def test_without_it_no_order_asks_for_a_sum() -> None:
    it = cluster()

    it.submit()

    assert {sent.parameters["AllReduce"] for sent in commands_in(it.ports).sent_of("test-fabric")} == {"no"}


def test_a_sum_without_the_tests_it_is_a_part_of_is_refused() -> None:
    with pytest.raises(ValueError, match="all_reduce is a part of the network tests: it needs tests = true"):
        Fabric(all_reduce=True)


def test_a_node_that_passed_lately_is_not_diagnosed_and_its_way_is_tested_all_the_same() -> None:
    it = cluster()
    for name in (A, B):
        save_node(it.ports, it.node(name), passed_at=it.clock())

    it.submit()

    assert [verb for verb, _ in it.commands] == ["test-fabric", "test-fabric"]


@pytest.mark.parametrize(
    ("policy", "spec_of"),
    [
        (ACT, {}),
        (WITH_FABRIC, {"preflight": {"fabric": False}}),
        (WITH_FABRIC, {"preflight": {"level": 0}}),
        (WITH_FABRIC, {"nodes": 1}),
    ],
    ids=["the pool does not allow it", "the job does not want it", "no preflight at all", "one node has no way"],
)
def test_nothing_is_tested_between_nodes_unless_pool_and_job_want_it(
    policy: RecoveryPolicy, spec_of: dict[str, Any]
) -> None:
    it = cluster(policy, **spec_of)

    seen = it.submit()

    assert seen.end == "Completed"
    assert ways(it) == []


def test_a_way_that_fails_accuses_both_nodes_and_the_job_starts_on_others() -> None:
    it = cluster()
    it.broken_links.add(frozenset((A, B)))

    seen = it.submit()

    assert seen.end == "Completed"
    assert gang(it) == [C, D]
    assert codes(it) == [(A, "preflight_way", Verdict.UNKNOWN), (B, "preflight_way", Verdict.UNKNOWN)]
    assert [verb for verb, name in it.commands if name in (A, B) and verb == "reboot-node"] == []
    assert it.is_clean


def test_a_node_that_does_not_answer_in_time_has_no_way() -> None:
    it = cluster()
    for name in NODES:
        save_node(it.ports, it.node(name), passed_at=it.clock())
    it.hangs.add(B)

    it.submit()

    assert gang(it) == [C, D]


def test_several_ways_that_fail_are_the_networks_and_no_node_is_accused() -> None:
    it = cluster(nodes=4)
    it.broken_links |= {frozenset((A, B)), frozenset((C, D))}

    seen = it.submit()

    assert it.job.state is JobState.FAILED
    assert seen.path.count("Choose nodes") == 1
    assert codes(it) == []
    assert "security group" in it.job.summary
    assert it.is_clean


def test_of_two_ways_that_fail_the_node_that_they_share_is_accused() -> None:
    it = cluster(nodes=3)
    it.broken_links |= {frozenset((A, B)), frozenset((B, C))}

    seen = it.submit()

    assert codes(it) == [(B, "preflight_way", Verdict.UNKNOWN)]
    assert seen.end == "Completed"
    assert gang(it) == [A, C, D]


def test_a_shared_node_is_not_held_to_a_speed() -> None:
    it = cluster(nodes=3)

    it.submit()

    assert {least for _, _, _, least in ways(it)} == {0}


def test_a_node_without_an_address_cannot_be_reached() -> None:
    it = cluster()
    save_node(it.ports, it.node(A), address=None)

    it.submit()

    assert gang(it) == [C, D]


@pytest.mark.parametrize("wrong", ["another node's", "of another boot", "of nobody's question"])
def test_an_answer_that_is_not_the_asked_nodes_changes_nothing(wrong: str) -> None:
    it = cluster()
    answered: list[Any] = []
    truth = it._ways_answer

    def lies(one: JobCluster) -> None:
        one._ways_answer = truth  # type: ignore[method-assign]
        sent = commands_in(one.ports).sent_of("test-fabric")[0]
        name = C if "another node" in wrong else sent.node_id
        fact = one._fact(name, "boot-9" if "boot" in wrong else sent.boot_id)
        request_id = "llama-1-9-network-0-serve" if "nobody" in wrong else sent.request_id
        event = DiagnosticsFinished(**fact, request_id=request_id, verdict=Verdict.OK)
        wakeup.on_answer(event, one.ports)
        answered.extend(one.operation_id for one in asked(one.ports) if one.is_over)

    it._ways_answer = lambda: lies(it)  # type: ignore[method-assign]

    it.submit()

    assert answered == []
    assert gang(it) == [C, D]


def test_a_command_that_a_node_refuses_is_no_answer_to_wait_for() -> None:
    it = cluster()
    truth = it._ways_answer

    def refuse() -> None:
        it._ways_answer = truth  # type: ignore[method-assign]
        for number, sent in enumerate(commands_in(it.ports).sent):
            if sent.parameters.get("Role") == FabricRole.CONNECT:
                wakeup.on_command_failed(sent.node_id, f"command-{number + 1}", it.ports)
        tests = commands_in(it.ports).sent_of("test-fabric")
        served = [sent for sent in tests if sent.parameters["Role"] == FabricRole.SERVE][-1]
        told = {"request_id": served.request_id, "verdict": Verdict.OK}
        event = DiagnosticsFinished(**it._fact(served.node_id, served.boot_id), **told)
        wakeup.on_answer(event, it.ports)

    it._ways_answer = refuse  # type: ignore[method-assign]

    it.submit()

    assert codes(it) == [(A, "preflight_way", Verdict.UNKNOWN), (B, "preflight_way", Verdict.UNKNOWN)]
    assert "refused the command" in it.ports.incidents.history(str(it.node(A).open_incident)).incident.root.evidence


def test_a_repeated_call_asks_nobody_twice() -> None:
    it = cluster()
    it.ports = replace(it.ports)
    again = it._job_wait

    def twice(state: str, serve: Any, react: Any) -> Any:
        def serve_twice(request: Any) -> None:
            serve(request)
            serve(request)

        return again(state, serve_twice, react)

    it._job_wait = twice  # type: ignore[method-assign]

    it.submit()

    assert len(ways(it)) == 2


@pytest.mark.parametrize(("count", "pairs"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (256, 128)])
def test_every_node_is_in_a_pair_and_no_way_is_tested_twice(count: int, pairs: int) -> None:
    names = [f"mi-{number}" for number in range(count)]

    made = pairs_of(names)

    assert len({frozenset(pair.nodes) for pair in made}) == len(made) == pairs
    assert {name for pair in made for name in pair.nodes} == (set(names) if count > 1 else set())
    assert len({pair.serves for pair in made}) == len(made)  # two servers on one node would want the same port
    assert [pair.number for pair in made if pair.is_shared] == ([pairs - 2, pairs - 1] if count in (3, 5) else [])


def test_nobody_is_a_suspect_where_nothing_failed() -> None:
    assert suspects([]) == ()


def test_an_order_whose_sending_was_throttled_is_sent_by_the_call_that_repeats_it() -> None:
    it, throttled = cluster(), [True]
    send, again = it.ports.commands.send, it._job_wait

    def sends(node: Node, command: Command, expires_at: datetime) -> str:
        if node.node_id == B and command.document == "test-fabric" and throttled:
            throttled.clear()
            raise NotAccepted("SendCommand was throttled")
        return send(node, command, expires_at)

    def repeats(state: str, serve: Any, react: Any) -> Any:
        def serves(request: Any) -> None:
            with suppress(NotAccepted):
                serve(request)
            serve(request)

        return again(state, serves, react)

    it.ports.commands.send, it._job_wait = sends, repeats  # type: ignore[method-assign]

    seen = it.submit()

    assert [name for name, *_ in ways(it)] == [A, B]
    assert seen.end == "Completed"
