"""Memory and SageMaker keep one specification of HyperPod's nodes; and what only SageMaker says is read so."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from nodeheal.adapters.aws.enrolment_tags import AwsEnrolmentTags
from nodeheal.adapters.aws.hyperpod import HyperPodMachines
from nodeheal.adapters.memory.machines import MemoryMachines
from nodeheal.contract.vocabulary import Provider
from nodeheal.domain.errors import MachineRefused, NotAccepted
from nodeheal.domain.fleet.machine import Machine, Power, Remediator, Termination
from nodeheal.ports.compute import Machines
from tests.support.hyperpod import NODE, OTHER, Region

UNKNOWN = "i-0ffffffffffffffff"


@dataclass
class World:
    """Machines under test; which were rebooted, and which were replaced."""

    machines: Machines
    rebooted: Callable[[], list[str]]
    replaced: Callable[[], list[str]]


def memory_world() -> World:
    kind = Machine(NODE, "Running", "ml.p5.48xlarge", "arn/worker", hyperpod_cluster="arn", address="10.1.0.1")
    machines = MemoryMachines({NODE: kind}, groups={"arn/worker"})
    return World(machines, lambda: machines.rebooted, lambda: [name for name, _ in machines.given_back])


def aws_world(region: Region) -> World:
    machines = HyperPodMachines(region.client, region.client, [region.cluster.arn])
    return World(machines, lambda: region.hardware.rebooted, lambda: region.hardware.replaced)


@pytest.fixture(params=["memory", "aws"])
def world(request: pytest.FixtureRequest) -> World:
    return memory_world() if request.param == "memory" else aws_world(Region())


def described(machines: Machines, machine_id: str = NODE) -> Machine:
    found = machines.describe(machine_id)
    assert found is not None
    return found


# Both ---------------------------------------------------------------------------------------------------------------


def test_a_node_is_described_with_its_cluster_its_group_and_its_address(world: World) -> None:
    found = described(world.machines)

    assert (found.machine_id, found.state, found.instance_type) == (NODE, "Running", "ml.p5.48xlarge")
    assert found.group == f"{found.hyperpod_cluster}/worker"
    assert (found.address, found.external_remediator) == ("10.1.0.1", None)


def test_what_no_cluster_has_is_none(world: World) -> None:
    assert world.machines.describe(UNKNOWN) is None


def test_a_node_is_rebooted(world: World) -> None:
    world.machines.power(NODE, Power.REBOOT)

    assert (world.rebooted(), world.replaced()) == ([NODE], [])


@pytest.mark.parametrize("how", Termination)
def test_a_node_is_given_up_and_another_comes(world: World, how: Termination) -> None:
    world.machines.terminate_instance(described(world.machines), how)

    assert (world.rebooted(), world.replaced()) == ([], [NODE])
    assert world.machines.describe(NODE) is None


def test_what_no_cluster_has_is_neither_rebooted_nor_replaced(world: World) -> None:
    with pytest.raises(MachineRefused):
        world.machines.power(UNKNOWN, Power.REBOOT)
    with pytest.raises(MachineRefused):
        world.machines.terminate_instance(Machine(UNKNOWN), Termination.TERMINATE)

    assert world.rebooted() == world.replaced() == []


# SageMaker alone ----------------------------------------------------------------------------------------------------


def hyperpod() -> tuple[Region, HyperPodMachines]:
    region = Region()
    return region, HyperPodMachines(region.client, region.client, [region.cluster.arn])


ACTS: list[Callable[[HyperPodMachines], None]] = [
    lambda machines: machines.power(NODE, Power.REBOOT),
    lambda machines: machines.terminate_instance(Machine(NODE), Termination.TERMINATE),
]
each_act = pytest.mark.parametrize("act", ACTS, ids=["reboot", "replace"])


@each_act
@pytest.mark.parametrize(
    ("code", "raised"),
    [
        ("InstanceIdInUse", NotAccepted),
        ("InvalidInstanceStatus", NotAccepted),
        ("InstanceIdNotFound", MachineRefused),
        ("InternalServerError", RuntimeError),
    ],
)
def test_a_refusal_stands_in_an_answer_that_succeeds(
    act: Callable[[HyperPodMachines], None], code: str, raised: type[Exception]
) -> None:
    region, machines = hyperpod()
    region.behaviour.hyperpod_refuses = code

    with pytest.raises(raised, match=code):
        act(machines)

    assert region.hardware.rebooted == region.hardware.replaced == []


@each_act
@pytest.mark.parametrize("status", ["Pending", "SystemUpdating", "DeepHealthCheckInProgress"])
def test_a_node_that_hyperpod_works_on_is_not_even_asked_for(
    act: Callable[[HyperPodMachines], None], status: str
) -> None:
    region, machines = hyperpod()
    region.cluster.instances[NODE].status = status

    with pytest.raises(NotAccepted, match=status):
        act(machines)

    assert region.calls == ["DescribeClusterNode", "DescribeCluster"]


@each_act
@pytest.mark.parametrize("recovery", ["Automatic", None])
def test_a_cluster_that_does_not_say_that_it_leaves_its_nodes_alone_keeps_them(
    act: Callable[[HyperPodMachines], None], recovery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    region, machines = hyperpod()
    region.cluster.recovery = recovery

    with pytest.raises(MachineRefused, match="set the cluster's NodeRecovery to None"):
        act(machines)

    assert described(machines).external_remediator is Remediator.sagemaker_hyperpod
    assert {"BatchRebootClusterNodes", "BatchReplaceClusterNodes"}.isdisjoint(region.calls)


def test_a_node_of_a_training_plan_has_its_arn_for_a_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    region, machines = hyperpod()
    plan = "arn:aws:sagemaker:us-east-1:111122223333:training-plan/llama"
    describe = region.hyperpod.describe_cluster
    groups = [{"InstanceGroupName": "other"}, {"InstanceGroupName": "worker", "TrainingPlanArn": plan}]
    before = described(machines)

    def planned(caller: Any, asked: Any) -> Any:
        return {**describe(caller, asked), "InstanceGroups": groups}

    monkeypatch.setitem(region._service._operations, "DescribeCluster", planned)

    after = described(machines)
    assert (before.has_reserved_capacity, after.has_reserved_capacity, after.reservation) == (False, True, plan)


def test_a_replacement_that_is_asked_for_again_replaces_nothing_else() -> None:
    region, machines = hyperpod()
    broken = described(machines)
    machines.terminate_instance(broken, Termination.TERMINATE)
    region.hardware.arrive()

    with pytest.raises(MachineRefused, match=f"no HyperPod cluster of the settings has {NODE}"):
        machines.terminate_instance(broken, Termination.TERMINATE)

    assert region.hardware.replaced == [NODE]


def test_what_was_launched_in_a_group_since_then_is_listed() -> None:
    region, machines = hyperpod()
    group, now = described(machines).group, datetime.now(UTC)
    machines.terminate_instance(Machine(NODE), Termination.TERMINATE)
    [made] = region.cluster.instances.keys() - {NODE, OTHER}

    assert [launch.machine_id for launch in machines.launches(group, now)] == [made]
    assert [launch.failed for launch in machines.launches(group, now)] == [""]
    region.cluster.instances[made].status = "Failure"
    assert [launch.failed for launch in machines.launches(group, now)] == ["Failure"]
    assert machines.launches(f"{region.cluster.arn}/login", now) == []


@pytest.mark.parametrize("power", [Power.STOP, Power.START])
def test_hyperpod_can_neither_stop_nor_start_a_node(power: Power) -> None:
    region, machines = hyperpod()

    with pytest.raises(MachineRefused):
        machines.power(NODE, power)
    with pytest.raises(MachineRefused):
        machines.launch(Machine(NODE), "inc-1-3", ())

    assert region.calls == []


def test_an_id_that_sagemaker_would_call_malformed_is_asked_of_nobody() -> None:
    region, machines = hyperpod()

    assert machines.describe("mi-0123456789abcdef0") is None
    assert region.calls == []


@pytest.mark.parametrize(("node_id", "pool"), [(NODE, ""), (UNKNOWN, None)])
def test_the_nodes_of_a_cluster_that_the_settings_name_are_enrolled(node_id: str, pool: str | None) -> None:
    _, machines = hyperpod()

    assert AwsEnrolmentTags(_nobody, machines).pool_of(node_id, Provider.hyperpod) == pool


def test_without_a_cluster_in_the_settings_no_node_is_hyperpods() -> None:
    region = Region()

    assert HyperPodMachines(region.client, region.client, ()).describe(NODE) is None
    assert region.calls == []


def _nobody(service: str) -> Any:
    raise AssertionError(f"{service} was asked")
