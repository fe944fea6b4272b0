"""What the witnesses on AWS are asked about a silent node, and what their answers mean."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.adapters.aws.liveness_probes import AwsLivenessProbes
from nodeheal.adapters.ecs.scheduler import ecs_scheduler
from nodeheal.adapters.memory.fleet_index import MemoryLivenessProbes
from nodeheal.adapters.memory.machines import MemoryMachines
from nodeheal.contract.vocabulary import Provider, SchedulerKind
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.fleet.liveness import STOPPED, TERMINATED, ProbeAnswer
from nodeheal.domain.fleet.machine import Machine
from nodeheal.domain.fleet.node import Node
from tests.support.aws_world import ARN, Aws
from tests.support.builders import NOW, node

HYBRID = node()
MACHINE = node("i-0123456789abcdef0", provider=Provider.ec2)


class Said:
    """Three stubbed services. Each knows nothing of the node until it is told."""

    def __init__(self) -> None:
        self.ecs, self.ssm, self.ec2 = Aws("ecs"), Aws("ssm"), Aws("ec2")
        self.hyperpod = MemoryMachines()

    def about(self, asked: Node) -> dict[str, ProbeAnswer]:
        stubs = [service.stub for service in (self.ecs, self.ssm, self.ec2)]
        for stub in stubs:
            stub.activate()
        schedulers = {SchedulerKind.ECS: ecs_scheduler(self.ecs, self.ecs)}
        answers = AwsLivenessProbes(schedulers, self.ssm, self.ec2, self.hyperpod, lambda: NOW).ask(asked)
        for stub in stubs:
            stub.assert_no_pending_responses()
        return {answer.witness: answer for answer in answers}

    def ecs_says(self, asked: Node, connected: bool | None) -> "Said":
        of_node = f"ec2InstanceId == {asked.instance_id}"
        looks = [(f"{of_node} and agentConnected == true", connected is True)]
        if not connected:
            looks.append((of_node, connected is False))
        for expression, is_there in looks:
            arns = {"containerInstanceArns": [ARN] if is_there else []}
            self.ecs.answers("list_container_instances", arns, {"cluster": "training", "filter": expression})
        return self

    def ssm_says(self, asked: Node, status: str = "", seconds_ago: int = 0) -> "Said":
        at = NOW - timedelta(seconds=seconds_ago)
        found = [{"PingStatus": status, "LastPingDateTime": at}] if status else []
        filters = {"Filters": [{"Key": "InstanceIds", "Values": [asked.instance_id]}]}
        self.ssm.answers("describe_instance_information", {"InstanceInformationList": found}, filters)
        return self

    def ec2_says(self, state: str, system: str = "ok", instance: str = "ok") -> "Said":
        status: dict[str, Any] = {"InstanceState": {"Name": state}}
        status |= {"SystemStatus": {"Status": system}, "InstanceStatus": {"Status": instance}}
        asked = {"InstanceIds": [MACHINE.instance_id], "IncludeAllInstances": True}
        self.ec2.answers("describe_instance_status", {"InstanceStatuses": [status]}, asked)
        return self


@pytest.fixture
def said() -> Iterator[Said]:
    yield Said()


@pytest.mark.parametrize(("connected", "is_up"), [(True, True), (False, False), (None, None)])
def test_ecs_knows_whether_its_agent_is_connected(said: Said, connected: bool | None, is_up: bool | None) -> None:
    answers = said.ecs_says(HYBRID, connected).ssm_says(HYBRID).about(HYBRID)

    assert answers["ECS"].is_up is is_up


@pytest.mark.parametrize(
    ("status", "seconds_ago", "is_up"),
    [("Online", 0, True), ("Online", 300, True), ("Online", 301, None), ("ConnectionLost", 600, False), ("", 0, None)],
)
def test_a_ping_of_long_ago_is_no_heartbeat(said: Said, status: str, seconds_ago: int, is_up: bool | None) -> None:
    answers = said.ecs_says(HYBRID, None).ssm_says(HYBRID, status, seconds_ago).about(HYBRID)

    assert answers["SSM"].is_up is is_up


def test_a_node_outside_ec2_that_ssm_has_lost_takes_no_command(said: Said) -> None:
    lost = said.ecs_says(HYBRID, None).ssm_says(HYBRID, "ConnectionLost").about(HYBRID)["SSM"]
    machine = Said().ecs_says(MACHINE, None).ssm_says(MACHINE, "ConnectionLost").ec2_says("running").about(MACHINE)

    assert (lost.is_unreachable, machine["SSM"].is_unreachable) == (True, False)


@pytest.mark.parametrize(
    ("state", "system", "instance", "is_up", "gone"),
    [
        ("running", "ok", "ok", None, ""),
        ("running", "impaired", "ok", False, ""),
        ("running", "ok", "impaired", False, ""),
        ("running", "initializing", "insufficient-data", None, ""),
        ("pending", "not-applicable", "not-applicable", None, ""),
        ("stopping", "not-applicable", "not-applicable", False, STOPPED),
        ("stopped", "not-applicable", "not-applicable", False, STOPPED),
        ("shutting-down", "not-applicable", "not-applicable", False, TERMINATED),
        ("terminated", "not-applicable", "not-applicable", False, TERMINATED),
    ],
)
def test_ec2_knows_whether_the_machine_runs_and_not_whether_the_node_lives(
    said: Said, state: str, system: str, instance: str, is_up: bool | None, gone: str
) -> None:
    said.ecs_says(MACHINE, None).ssm_says(MACHINE).ec2_says(state, system, instance)

    answer = said.about(MACHINE)["EC2"]

    assert (answer.is_up, answer.gone) == (is_up, gone)


def test_hyperpod_says_how_its_node_is_and_ssm_is_not_asked(said: Said) -> None:
    lost, hyperpods = "no cluster of the settings has the node", node(MACHINE.node_id, provider=Provider.hyperpod)
    for told in (lost, "the node is Running"):
        answers = said.ecs_says(hyperpods, connected=None).about(hyperpods)

        assert answers.keys() == {"ECS", "HyperPod"}
        assert answers["HyperPod"] == ProbeAnswer("HyperPod", None, told)
        said.hyperpod.machines[MACHINE.node_id] = Machine(MACHINE.node_id, "Running")


def test_a_machine_that_ec2_has_forgotten_is_gone(said: Said) -> None:
    said.ecs_says(MACHINE, None).ssm_says(MACHINE).ec2.refuses("describe_instance_status", "InvalidInstanceID.NotFound")

    assert said.about(MACHINE)["EC2"].gone == TERMINATED


@pytest.mark.parametrize("of_ssm", ["InvalidInstanceId", "InvalidInstanceInformationFilterValue"])
@pytest.mark.parametrize(
    "of_ecs",
    # The last: the node names another cluster than the one that the sweep may look into.
    ["ClusterNotFoundException", "InvalidParameterException", "AccessDeniedException"],
)
def test_a_service_that_refuses_a_nodes_name_cannot_tell_and_ends_no_sweep(
    said: Said, of_ecs: str, of_ssm: str
) -> None:
    said.ecs.refuses("list_container_instances", of_ecs)
    said.ssm.refuses("describe_instance_information", of_ssm)
    said.ec2.refuses("describe_instance_status", "InvalidInstanceID.Malformed")

    assert {answer.is_up for answer in said.about(MACHINE).values()} == {None}


def test_a_throttle_is_no_answer(said: Said) -> None:
    said.ecs.refuses("list_container_instances", "ThrottlingException")

    with pytest.raises(NotAccepted, match="ListContainerInstances"):
        said.about(HYBRID)


def test_witnesses_in_memory_say_what_they_are_told_and_nothing_else() -> None:
    lost = ProbeAnswer("ECS", is_up=False, text="agent not connected")
    liveness_probes = MemoryLivenessProbes({HYBRID.node_id: (lost,)})

    assert (list(liveness_probes.ask(HYBRID)), list(liveness_probes.ask(MACHINE))) == ([lost], [])


def test_a_scheduler_that_this_deployment_does_not_serve_cannot_tell() -> None:
    said = Said()

    answer = AwsLivenessProbes({}, said.ssm, said.ec2, said.hyperpod, lambda: NOW)._ask_scheduler(HYBRID)

    assert (answer.witness, answer.is_up) == ("ECS", None)
