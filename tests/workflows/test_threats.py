"""What a forged event can and cannot do to a node that is well. docs/security.md names these tests."""

from nodeheal.contract.health_event import NodeBooted, NodeFact
from nodeheal.contract.vocabulary import NodeState
from nodeheal.services.intake.ingest import Ingested, ingest
from nodeheal.services.intake.wakeup import on_node_booted
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE, FakeCluster

ACCUSED = BROKEN  # in these stories nothing is wrong with it


def test_a_node_that_is_falsely_accused_proves_itself_and_works_again() -> None:
    cluster = FakeCluster()

    walked = cluster.reports(xid(79))

    assert walked.end == "Recovered"
    assert cluster.node(ACCUSED).state in (NodeState.HEALTHY, NodeState.PROBATION)
    assert cluster.job_nodes == [ACCUSED, PEER]
    assert cluster.ports.pools.holders("demo") == []


def test_a_node_that_is_accused_again_is_not_rebooted_again() -> None:
    cluster = FakeCluster()

    for number in range(2):
        boot = cluster.node(ACCUSED).boot_id
        cluster.reports(xid(79, event_id=f"forged-{number}", boot_id=boot, observed_at=cluster.clock()))

    assert cluster.commands.count(("reboot-node", ACCUSED)) == 1
    assert cluster.node(ACCUSED).state is NodeState.QUARANTINED  # exchanged, and a human's to judge from now on
    assert cluster.job_nodes == [SPARE, PEER]


def test_a_whole_pool_that_is_accused_at_once_stays_as_it_is() -> None:
    cluster = FakeCluster()
    cluster.on_wait = lambda: None  # nobody resets the breaker
    cluster.before_walk = [xid(79, event_id=f"of-{name}", node_id=name, instance_id=name) for name in (PEER, SPARE)]

    cluster.reports(xid(79))

    assert cluster.commands == []
    assert cluster.job_nodes == [ACCUSED, PEER]
    assert {cluster.node(name).state for name in (ACCUSED, PEER, SPARE)} == {NodeState.HEALTHY}


def test_a_node_that_lies_about_its_boot_hides_what_it_says_until_it_boots() -> None:
    """Its own words only: test_identity.py shows that no other node can."""
    clock = FrozenClock()
    ports = memory_ports(clock)
    ports.nodes.save(node())
    said = xid(79).model_dump(include=set(NodeFact.model_fields))

    on_node_booted(NodeBooted(**{**said, "boot_id": "forged"}, booted_at=NOW, address="", accelerators=8), ports)
    clock.advance(60)
    hidden = ingest(xid(79, event_id="hidden", observed_at=clock()), ports, ACT)
    on_node_booted(NodeBooted(**{**said, "boot_id": "boot-2"}, booted_at=clock(), address="", accelerators=8), ports)
    clock.advance(60)
    heard = ingest(xid(79, event_id="heard", boot_id="boot-2", observed_at=clock()), ports, ACT)

    assert hidden is Ingested.HISTORY
    assert heard is Ingested.OPENED
