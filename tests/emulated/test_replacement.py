"""EC2 nodes through the deployed workflow, with the deployed permissions: an instance is rebooted, replaced by its
group, and replaced from its launch template. The agents are real; what boots is simulated."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from nodeheal.contract import names
from nodeheal.contract.results import Refused, StepResult
from nodeheal.contract.vocabulary import Ending, NodeState, Outcome, Step
from nodeheal.domain.fleet.node import Node
from nodeheal.domain.recovery.incident import History
from nodeheal.ports import Ports
from sandbox.client import NodeHandle, Sandbox
from tests.support.builders import facts_of, stored_node, xid
from tests.support.operators import Operator, deployed, operator
from tests.support.sandbox_stories import XID_73, XID_74
from tests.support.until import until

pytestmark = pytest.mark.emulated


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("replacement"), boot_seconds=0.5) as sandbox:
        sandbox.deploy()
        yield sandbox


@pytest.fixture(scope="module")
def ada(cloud: Sandbox) -> Operator:
    return operator(cloud, "ada", "OperatorPolicyArn")


@pytest.fixture
def ports(cloud: Sandbox) -> Ports:
    return deployed(cloud)


@pytest.fixture(autouse=True)
def behaves_again(cloud: Sandbox) -> Iterator[None]:
    yield
    cloud.behave(no_capacity=0, full_subnets=[], reservation_size=0, duplicate_events=False, reorder_events=False)


def has_booted(ports: Ports, name: str) -> Node:
    """The node, once its own agent has told of its boot."""

    def seen() -> Node | None:
        node = ports.nodes.get(name)
        return node if node is not None and node.address else None

    found: Node = until(seen, f"node {name}")
    return found


def breaks(cloud: Sandbox, ports: Ports, name: str, line: str, persists: bool = False) -> History:
    """Break the node; how its incident ended."""
    return end_of(ports, opens(cloud, ports, name, line, persists))


def end_of(ports: Ports, incident: str) -> History:
    """The incident, once it has ended."""

    def ended() -> History | None:
        history = ports.incidents.history(incident)
        return history if history.incident.ending is not None else None

    history: History = until(ended, "ending")
    return history


def opens(cloud: Sandbox, ports: Ports, name: str, line: str, persists: bool = False) -> str:
    """Break the node; its incident."""
    found = next(node for node in cloud.nodes() if node["node_id"] == name)
    handle = NodeHandle(name, found["pool"], found["address"], found["directory"], "")
    cloud.inject(handle, line, persists=persists, kill_rank=False)
    return str(until(lambda: (node := ports.nodes.get(name)) and node.open_incident, "incident"))


def breaks_and_is_approved(cloud: Sandbox, ports: Ports, ada: Operator, name: str) -> History:
    """Break a node of reserved capacity, whose replacement a person approves; how its incident ended."""
    incident = opens(cloud, ports, name, XID_74, persists=True)
    until(lambda: ada.types("approve", incident, "--why", "the reservation may go").returncode == 0, "question")
    return end_of(ports, incident)


def told(history: History) -> str:
    return "\n".join(entry.text for entry in history.timeline)


def replacement(history: History) -> tuple[Outcome, str | None]:
    """How its replacement went; one that terminates the machine first goes on in a second turn."""
    *_, turn = [turn for turn in history.turns if turn.decision.step is Step.REPLACE]
    assert turn.result is not None, told(history)
    return turn.result.outcome, turn.result.replacement_node_id


def test_an_instance_is_rebooted_by_ec2_and_proven_by_its_new_boot(cloud: Sandbox, ports: Ports) -> None:
    name = cloud.add_machine(cloud.add_template("rebooted", data={"MaintenanceOptions": {"AutoRecovery": "disabled"}}))
    before = has_booted(ports, name)

    history = breaks(cloud, ports, name, XID_73)

    assert history.incident.ending is Ending.RECOVERED, told(history)
    after = stored_node(ports, name)
    assert after.boot_id != before.boot_id
    assert "EC2 RebootInstances" in told(history)


@pytest.mark.parametrize("events", [{}, {"duplicate_events": True, "reorder_events": True}])
def test_a_group_replaces_a_broken_instance(cloud: Sandbox, ports: Ports, events: dict[str, Any]) -> None:
    pool = f"grouped{len(events)}"
    members = cloud.add_group(pool, cloud.add_template(pool), 2)
    for name in members:
        has_booted(ports, name)
    time.sleep(1.1)  # what is launched in the same second counts as new
    cloud.behave(**events)

    history = breaks(cloud, ports, members[0], XID_74)

    outcome, new = replacement(history)
    assert outcome is Outcome.DONE, told(history)
    assert new not in (None, *members)
    assert history.incident.ending is Ending.RECOVERED, told(history)
    broken = stored_node(ports, members[0])
    assert broken.state in (NodeState.QUARANTINED, NodeState.RETIRED)


def test_a_group_without_capacity_is_told_with_the_groups_own_words(cloud: Sandbox, ports: Ports) -> None:
    [name] = cloud.add_group("empty", cloud.add_template("empty"), 1)
    has_booted(ports, name)
    cloud.behave(no_capacity=-1)

    incident = opens(cloud, ports, name, XID_74)

    def refusals() -> list[StepResult]:
        turns = ports.incidents.history(incident).turns
        return [turn.result for turn in turns if turn.decision.step is Step.REPLACE and turn.result]

    refusal = until(refusals, "answer")[0]
    assert refusal.outcome is Outcome.REFUSED
    assert "There is no capacity for p5.48xlarge" in facts_of(refusal, Refused).missing


def test_a_new_machine_is_launched_from_the_template_before_the_broken_one_goes(cloud: Sandbox, ports: Ports) -> None:
    template = cloud.add_template("alone")
    name = cloud.add_machine(template)
    has_booted(ports, name)

    history = breaks(cloud, ports, name, XID_74)

    outcome, new = replacement(history)
    assert outcome is Outcome.DONE, told(history)
    made = ports.machines.describe(str(new))
    assert made is not None
    assert (made.launch_template, made.tags[names.MANAGED_TAG]) == (template, names.MANAGED_TAG_VALUE)
    story = told(history)
    assert story.index("launched from") < story.index("stands in for")


def test_a_machine_whose_container_instance_bears_no_tag_is_named_to_a_human_and_left_in_service(
    cloud: Sandbox, ports: Ports
) -> None:
    # The ECS agent passes no tags of EC2 on unless its configuration says so, as that of a plain template does not.
    name = cloud.add_machine(cloud.add_template("untagged", data={"UserData": ""}))
    has_booted(ports, name)

    history = breaks(cloud, ports, name, XID_74)

    assert history.incident.ending is Ending.HANDED_TO_A_HUMAN, told(history)
    assert f"nodeheal nodes enroll {name}" in told(history)
    node = stored_node(ports, name)
    assert not node.drained_by_us
    assert list(ports.pools.holders("untagged")) == []


def test_a_report_that_the_nodes_own_log_does_not_confirm_costs_no_machine(cloud: Sandbox, ports: Ports) -> None:
    # What a program with the node's credentials could send. The agent on the node knows nothing of such a fault.
    name = cloud.add_machine(cloud.add_template("accused"))
    node = has_booted(ports, name)
    event = xid(74, node_id=name, instance_id=name, boot_id=node.boot_id, observed_at=datetime.now(UTC))

    cloud.voices.says(event)
    incident = str(until(lambda: (known := ports.nodes.get(name)) and known.open_incident, "incident"))
    history = end_of(ports, incident)

    steps = [turn.decision.step for turn in history.turns]
    assert Step.REPLACE not in steps, told(history)
    assert Step.DIAGNOSE in steps, told(history)
    assert history.incident.ending is Ending.RECOVERED, told(history)
    after = stored_node(ports, name)
    assert (after.state, after.boot_id) == (NodeState.PROBATION, node.boot_id)


RESERVED = {"CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}}


def test_in_a_full_reservation_the_broken_machine_goes_first_where_the_policy_says_so(
    cloud: Sandbox, ports: Ports, ada: Operator
) -> None:
    cloud.behave(reservation_size=1)
    name = cloud.add_machine(cloud.add_template("reserved", data=RESERVED))
    has_booted(ports, name)

    history = breaks_and_is_approved(cloud, ports, ada, name)

    outcome, new = replacement(history)
    assert outcome is Outcome.DONE, told(history)
    made = ports.machines.describe(str(new))
    assert made is not None
    assert made.reservation == "cr-1"
    story = told(history)
    assert story.index("to make room for its successor") < story.index("launched from")
    assert history.incident.ending is Ending.RECOVERED, story


def test_a_full_reservation_is_told_as_that_where_nothing_may_go_first(
    cloud: Sandbox, ports: Ports, ada: Operator
) -> None:
    target = {"CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-2"}}}
    cloud.behave(reservation_size=1)
    name = cloud.add_machine(cloud.add_template("held", data=target))
    has_booted(ports, name)

    history = breaks_and_is_approved(cloud, ports, ada, name)

    assert replacement(history)[0] is Outcome.REFUSED
    assert "replacement.terminate_first" in told(history)
    assert ports.machines.describe(name) is not None
    assert history.incident.ending is Ending.HANDED_TO_A_HUMAN


def test_where_there_is_no_room_the_policys_other_subnets_are_tried_in_order(cloud: Sandbox, ports: Ports) -> None:
    name = cloud.add_machine(cloud.add_template("elsewhere"))
    has_booted(ports, name)
    cloud.behave(full_subnets=["subnet-sandbox", "subnet-full"])

    history = breaks(cloud, ports, name, XID_74)

    outcome, new = replacement(history)
    assert outcome is Outcome.DONE, told(history)
    made = ports.machines.describe(str(new))
    assert made is not None
    assert made.subnet == "subnet-free"
    assert history.incident.ending is Ending.RECOVERED, told(history)


def test_a_member_of_a_group_is_not_stopped_and_the_group_replaces_it(cloud: Sandbox, ports: Ports) -> None:
    [name] = cloud.add_group("moved", cloud.add_template("moved"), 1)
    has_booted(ports, name)
    time.sleep(1.1)  # what is launched in the same second counts as new

    history = breaks(cloud, ports, name, XID_73, persists=True)

    assert "which would replace it as soon as it is stopped" in told(history)
    assert replacement(history)[0] is Outcome.DONE, told(history)


def test_an_instance_that_ec2_recovers_by_itself_is_left_to_it(cloud: Sandbox, ports: Ports) -> None:
    name = cloud.add_machine(cloud.add_template("recovered", data={"InstanceType": "p3.2xlarge"}))
    has_booted(ports, name)

    history = breaks(cloud, ports, name, XID_73)

    assert history.incident.ending is Ending.HANDED_TO_A_HUMAN
    assert "ec2_auto_recovery" in told(history)
    after = stored_node(ports, name)
    assert after.state is NodeState.HEALTHY
