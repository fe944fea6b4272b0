"""EC2 and Auto Scaling of the embedded cloud: machines that boot, go, and are denied without their tag."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from nodeheal.adapters.aws.ec2 import Ec2Machines
from nodeheal.contract import names
from nodeheal.domain.errors import MachineRefused, NoCapacity
from nodeheal.domain.fleet.machine import Machine, Power, Termination, alternatives_of
from sandbox.client import NodeHandle, Sandbox, SandboxError
from tests.emulated.iam_lab import CLUSTER, IDLE, MANAGED, TAGGED_REQUEST, TAGGED_RESOURCE, Lab, allow, hello

pytestmark = pytest.mark.emulated

Json = dict[str, Any]
DOCUMENT = "say-hello"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Sandbox(tmp_path_factory.mktemp("cloud"), boot_seconds=0.3, cluster=CLUSTER) as sandbox:
        sandbox.client("ssm").create_document(Name=DOCUMENT, Content=hello(), DocumentType="Command")
        nobody = sandbox.add_node(agent=IDLE)
        yield Lab(sandbox, nobody, nobody)


@pytest.fixture
def machines(lab: Lab) -> Iterator[Ec2Machines]:
    def once(service: str) -> Any:
        return boto3.client(  # type: ignore[call-overload]
            service,
            endpoint_url=lab.sandbox.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}),
        )

    yield Ec2Machines(lab.sandbox.client, once)
    lab.sandbox.behave(no_capacity=0, launch_seconds=0.0, duplicate_events=False, reorder_events=False)


def test_an_instance_boots_joins_the_cluster_and_is_reached_by_ssm(lab: Lab, machines: Ec2Machines) -> None:
    template = lab.sandbox.add_template(agent=IDLE)

    name = lab.sandbox.add_machine(template)
    wait_for(lambda: state(machines, name) == "running")

    found = machines.describe(name)
    assert found is not None
    assert (found.instance_type, found.launch_template, found.external_remediator) == ("p5.48xlarge", template, None)
    assert arn_of(lab, name)
    assert said_hello(lab, name) == "hello\n"


def test_a_reboot_brings_another_boot(lab: Lab, machines: Ec2Machines) -> None:
    name = up(lab, machines)
    before = boot_id(lab, name)

    machines.power(name, Power.REBOOT)

    wait_for(lambda: boot_id(lab, name) not in ("", before))


def test_a_node_may_never_come_back_from_its_reboot(lab: Lab, machines: Ec2Machines) -> None:
    name = up(lab, machines)
    before = boot_id(lab, name)
    lab.sandbox.behave(stay_down=name)

    machines.power(name, Power.REBOOT)

    wait_for(lambda: not is_up(lab, name))
    time.sleep(1.0)
    assert (is_up(lab, name), boot_id(lab, name)) == (False, before)
    assert state(machines, name) == "running"  # EC2 sees no more of it than that


def test_a_stopped_instance_starts_as_another_boot(lab: Lab, machines: Ec2Machines) -> None:
    name, ec2 = up(lab, machines), lab.sandbox.client("ec2")
    before = boot_id(lab, name)

    [stopping] = ec2.stop_instances(InstanceIds=[name])["StoppingInstances"]
    assert stopping["CurrentState"]["Name"] in ("stopping", "stopped")
    wait_for(lambda: state(machines, name) == "stopped")
    assert (is_up(lab, name), machine(machines, name).state_reason) == (False, "Client.UserInitiatedShutdown: as asked")
    ec2.start_instances(InstanceIds=[name])

    wait_for(lambda: state(machines, name) == "running")
    assert (is_up(lab, name), boot_id(lab, name) != before) == (True, True)


def test_without_capacity_a_stopped_instance_stays_stopped(lab: Lab, machines: Ec2Machines) -> None:
    name = up(lab, machines)
    machines.power(name, Power.STOP)
    wait_for(lambda: state(machines, name) == "stopped")
    lab.sandbox.behave(no_capacity=1)

    with pytest.raises(NoCapacity, match="InsufficientInstanceCapacity"):
        machines.power(name, Power.START)

    assert state(machines, name) == "stopped"
    machines.power(name, Power.START)
    wait_for(lambda: state(machines, name) == "running")


@pytest.mark.parametrize(("of_host", "is_gone"), [(True, True), (False, False)])
def test_a_fault_of_the_host_stays_behind_and_another_comes_along(
    lab: Lab, machines: Ec2Machines, of_host: bool, is_gone: bool
) -> None:
    name = up(lab, machines)
    handle = NodeHandle(name, "demo", "", Path(known(lab, name)["directory"]), "")
    lab.sandbox.inject(handle, "Xid 79", persists=True, kill_rank=False, of_host=of_host)

    machines.power(name, Power.STOP)
    wait_for(lambda: state(machines, name) == "stopped")
    machines.power(name, Power.START)
    wait_for(lambda: state(machines, name) == "running")

    faults = json.loads((handle.directory / "faults.json").read_text())
    assert (faults["dcgm"] == "pass") is is_gone


def test_a_group_replaces_a_member_that_is_stopped(lab: Lab, machines: Ec2Machines) -> None:
    [old] = lab.sandbox.add_group("group-4", lab.sandbox.add_template(agent=IDLE), 1)
    wait_for(lambda: state(machines, old) == "running")

    machines.power(old, Power.STOP)

    wait_for(lambda: [name for name in members(lab, "group-4") if name != old])


def test_a_spot_instance_is_not_stopped(lab: Lab, machines: Ec2Machines) -> None:
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    name = lab.sandbox.add_machine(lab.sandbox.add_template(agent=IDLE, data=spot))
    wait_for(lambda: state(machines, name) == "running")

    with pytest.raises(MachineRefused, match="UnsupportedOperation"):
        machines.power(name, Power.STOP)

    assert machine(machines, name).lifecycle == "spot"


def test_a_terminated_instance_leaves_cluster_and_ssm_and_its_tasks_are_over(lab: Lab, machines: Ec2Machines) -> None:
    name = up(lab, machines)
    ecs = lab.sandbox.client("ecs")
    idle = {"name": "idle", "image": "numpy-trainer", "command": IDLE, "memory": 64}
    ecs.register_task_definition(family="doomed", containerDefinitions=[idle])
    where = {"cluster": CLUSTER, "taskDefinition": "doomed", "containerInstances": [arn_of(lab, name)]}
    task = ecs.start_task(**where)["tasks"][0]["taskArn"]
    found = machines.describe(name)
    assert found is not None

    machines.terminate_instance(found, Termination.TERMINATE)

    wait_for(lambda: described(lab, name)["State"]["Name"] == "terminated")
    assert machines.describe(name) is None
    assert arn_of(lab, name) == ""
    ended = ecs.describe_tasks(cluster=CLUSTER, tasks=[task])["tasks"][0]
    assert ended["lastStatus"] == "STOPPED"
    with pytest.raises(ClientError, match="InvalidInstanceId"):
        lab.sandbox.client("ssm").send_command(DocumentName=DOCUMENT, InstanceIds=[name])


def test_one_more_like_it_is_launched_once_for_a_token_and_not_without_capacity(
    lab: Lab, machines: Ec2Machines
) -> None:
    like = machines.describe(up(lab, machines))
    assert like is not None
    like = replace(like, placement_group="cluster-1", reservation="cr-0123456789abcdef0")
    lab.sandbox.behave(no_capacity=1)

    with pytest.raises(NoCapacity, match="InsufficientInstanceCapacity"):
        machines.launch(like, "inc-1-3", alternatives_of(like, (), ()))
    first, again = (machines.launch(like, "inc-1-3", alternatives_of(like, (), ())) for _ in range(2))

    assert first == again
    made = machines.describe(first)
    assert made is not None
    assert (made.placement_group, made.reservation) == ("cluster-1", "cr-0123456789abcdef0")
    assert made.tags[names.MANAGED_TAG] == names.MANAGED_TAG_VALUE


def test_a_group_replaces_what_is_given_up(lab: Lab, machines: Ec2Machines) -> None:
    began = datetime.now(UTC) - timedelta(seconds=1)
    [old] = lab.sandbox.add_group("group-1", lab.sandbox.add_template(agent=IDLE), 1)
    wait_for(lambda: state(machines, old) == "running")

    machines.terminate_instance(machine(machines, old), Termination.TERMINATE)

    new = wait_for(lambda: [name for name in members(lab, "group-1") if name != old])[0]
    wait_for(lambda: state(machines, new) == "running")
    assert machine(machines, new).group == "group-1"
    assert [launch.machine_id for launch in machines.launches("group-1", began)] == [old, new]


def test_a_group_tries_again_until_there_is_capacity_and_says_so(lab: Lab, machines: Ec2Machines) -> None:
    began = datetime.now(UTC) - timedelta(seconds=1)
    [old] = lab.sandbox.add_group("group-2", lab.sandbox.add_template(agent=IDLE), 1)
    wait_for(lambda: state(machines, old) == "running")
    lab.sandbox.behave(no_capacity=2, retry_seconds=0.1)

    machines.terminate_instance(machine(machines, old), Termination.MARK_UNHEALTHY)

    wait_for(lambda: [name for name in members(lab, "group-2") if name != old])
    failed = [bool(launch.failed) for launch in machines.launches("group-2", began)]
    assert failed == [False, True, True, False]


def test_events_tell_of_every_change_and_may_come_twice_and_in_another_order(lab: Lab, machines: Ec2Machines) -> None:
    queue = watched(lab)
    lab.sandbox.behave(duplicate_events=True, reorder_events=True)

    [name] = lab.sandbox.add_group("group-3", lab.sandbox.add_template(agent=IDLE), 1)

    def of_ours() -> list[Json]:
        return [event for event in queue() if name in str(event["detail"])]

    told = wait_for(lambda: len(seen := of_ours()) >= 6 and seen)
    kinds = [event["detail-type"] for event in told]
    assert kinds.count("EC2 Instance Launch Successful") == 2
    assert kinds.count("EC2 Instance State-change Notification") == 4
    [launched] = {
        event["detail"]["AutoScalingGroupName"]
        for event in told
        if event["detail-type"] == "EC2 Instance Launch Successful"
    }
    assert launched == "group-3"


def test_a_command_may_be_delivered_late(lab: Lab, machines: Ec2Machines) -> None:
    name = up(lab, machines)
    lab.sandbox.behave(ssm_begin_seconds=1.0)
    began = time.monotonic()

    said_hello(lab, name)
    lab.sandbox.behave(ssm_begin_seconds=0.0)

    assert time.monotonic() - began >= 1.0


def test_an_unknown_behaviour_is_named(lab: Lab) -> None:
    with pytest.raises(SandboxError, match="colour"):
        lab.sandbox.behave(colour="red")


# Permissions --------------------------------------------------------------------------------------------------------


def test_rebooting_and_terminating_need_a_grant_and_the_tag(lab: Lab, machines: Ec2Machines) -> None:
    template = lab.sandbox.add_template(agent=IDLE)
    ours, theirs = lab.sandbox.add_machine(template), lab.sandbox.add_machine(template, tags={})
    wait_for(lambda: state(machines, ours) == "running")
    nobody = lab.as_role("ec2-nobody", [], "ec2")
    verbs = [
        allow(verb, "*:instance/*", TAGGED_RESOURCE)
        for verb in ("ec2:RebootInstances", "ec2:StopInstances", "ec2:StartInstances", "ec2:TerminateInstances")
    ]
    healer = lab.as_role("ec2-healer", verbs, "ec2")

    for verb in ("reboot_instances", "stop_instances", "start_instances", "terminate_instances"):
        on_ours, on_theirs = (methodcaller(verb, InstanceIds=[name]) for name in (ours, theirs))
        assert refused(partial(on_ours, nobody)) == "UnauthorizedOperation"
        assert refused(partial(on_theirs, healer)) == "UnauthorizedOperation"
        assert refused(partial(on_ours, healer)) == ""
        wait_for(lambda: state(machines, ours) not in ("stopping", "pending"))


def test_giving_up_in_a_group_needs_a_grant_and_the_groups_tag(lab: Lab, machines: Ec2Machines) -> None:
    template = lab.sandbox.add_template(agent=IDLE)
    [ours] = lab.sandbox.add_group("ours", template, 1)
    [theirs] = lab.sandbox.add_group("theirs", template, 1, tags={})
    verbs = ["autoscaling:TerminateInstanceInAutoScalingGroup", "autoscaling:SetInstanceHealth"]
    on_groups = "arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/*"
    healer = lab.as_role("asg-healer", [allow(verb, on_groups, TAGGED_RESOURCE) for verb in verbs], "autoscaling")
    nobody = lab.as_role("asg-nobody", [], "autoscaling")

    def unhealthy(client: Any, name: str) -> str:
        return refused(lambda: client.set_instance_health(InstanceId=name, HealthStatus="Unhealthy"))

    def terminate(client: Any, name: str) -> str:
        verb = client.terminate_instance_in_auto_scaling_group
        return refused(lambda: verb(InstanceId=name, ShouldDecrementDesiredCapacity=False))

    assert (unhealthy(nobody, ours), unhealthy(healer, theirs)) == ("AccessDenied", "AccessDenied")
    assert (terminate(nobody, ours), terminate(healer, theirs)) == ("AccessDenied", "AccessDenied")
    assert terminate(healer, ours) == ""
    [next_one] = wait_for(lambda: [name for name in members(lab, "ours") if name != ours])
    assert unhealthy(healer, next_one) == ""


def test_launching_needs_a_tagged_template_and_marks_what_it_launches(lab: Lab) -> None:
    template, untagged = lab.sandbox.add_template(agent=IDLE), lab.sandbox.add_template(agent=IDLE, tags={})
    grants = [
        allow("ec2:RunInstances", "*:launch-template/*", TAGGED_RESOURCE),
        allow("ec2:RunInstances", "*:instance/*", TAGGED_REQUEST),
        allow("ec2:RunInstances", "*", {"ArnLike": {"ec2:LaunchTemplate": "arn:aws:ec2:*:*:launch-template/*"}}),
        allow("ec2:CreateTags", "*:instance/*", {"StringEquals": {"ec2:CreateAction": "RunInstances"}}),
    ]
    # The third statement is for the parts; as in the deployed policy it names them, and no instance and no template.
    grants[2]["Resource"] = [f"*:{part}/*" for part in ("network-interface", "security-group", "subnet", "volume")]
    image = allow("ec2:RunInstances", "*", {"Bool": {"ec2:IsLaunchTemplateResource": "true"}})
    image["Resource"] = ["*::image/*", "*:key-pair/*"]
    grants.insert(2, image)
    healer = lab.as_role("run-healer", grants, "ec2")
    untagging = lab.as_role("run-untagging", grants[:4], "ec2")
    nobody = lab.as_role("run-nobody", [], "ec2")

    def launch(client: Any, template_id: str, tags: dict[str, str], **others: str) -> str:
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        more: Json = {"TagSpecifications": [{"ResourceType": "instance", "Tags": listed}]} if listed else {}
        more |= others
        where = {"LaunchTemplateId": template_id}
        return refused(lambda: client.run_instances(LaunchTemplate=where, MinCount=1, MaxCount=1, **more))

    assert launch(nobody, template, MANAGED) == "UnauthorizedOperation"
    assert launch(healer, untagged, MANAGED) == "UnauthorizedOperation"
    assert launch(healer, template, {}) == "UnauthorizedOperation"
    assert launch(untagging, template, MANAGED) == "UnauthorizedOperation"
    assert launch(healer, template, MANAGED, ImageId="ami-0123456789abcdef0") == "UnauthorizedOperation"
    assert launch(healer, template, MANAGED, KeyName="mine") == "UnauthorizedOperation"
    assert launch(healer, template, MANAGED) == ""


def test_looking_needs_a_grant_too(lab: Lab) -> None:
    nobody = lab.as_role("look-nobody", [], "ec2")
    scaling = lab.as_role("look-nobody-scaling", [], "autoscaling")

    assert refused(nobody.describe_instances) == "UnauthorizedOperation"
    assert refused(scaling.describe_auto_scaling_groups) == "AccessDenied"


# Helpers ------------------------------------------------------------------------------------------------------------


def wait_for(is_true: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := is_true()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def up(lab: Lab, machines: Ec2Machines) -> str:
    name = lab.sandbox.add_machine(lab.sandbox.add_template(agent=IDLE))
    wait_for(lambda: state(machines, name) == "running")
    return name


def machine(machines: Ec2Machines, name: str) -> Machine:
    found = machines.describe(name)
    assert found is not None
    return found


def state(machines: Ec2Machines, name: str) -> str:
    found = machines.describe(name)
    return found.state if found else ""


def described(lab: Lab, name: str) -> Json:
    [reservation] = lab.sandbox.client("ec2").describe_instances(InstanceIds=[name])["Reservations"]
    found: Json = reservation["Instances"][0]
    return found


def members(lab: Lab, group: str) -> list[str]:
    [found] = lab.sandbox.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
        "AutoScalingGroups"
    ]
    return [member["InstanceId"] for member in found["Instances"]]


def known(lab: Lab, name: str) -> Json:
    return next((each for each in lab.sandbox.nodes() if each["node_id"] == name), {})


def boot_id(lab: Lab, name: str) -> str:
    return str(known(lab, name).get("boot_id", ""))


def is_up(lab: Lab, name: str) -> bool:
    return bool(known(lab, name).get("is_up"))


def arn_of(lab: Lab, name: str) -> str:
    ecs = lab.sandbox.client("ecs")
    found = ecs.list_container_instances(cluster=CLUSTER, filter=f"ec2InstanceId == {name}")["containerInstanceArns"]
    return found[0] if found else ""


def said_hello(lab: Lab, name: str) -> str:
    ssm = lab.sandbox.client("ssm")
    sent = ssm.send_command(DocumentName=DOCUMENT, InstanceIds=[name])["Command"]["CommandId"]

    def ended() -> Json | None:
        seen: Json = ssm.get_command_invocation(CommandId=sent, InstanceId=name)
        return seen if seen["Status"] == "Success" else None

    return str(wait_for(ended)["StandardOutputContent"])


def watched(lab: Lab) -> Callable[[], list[Json]]:
    """Every event of EC2 and Auto Scaling from now on."""
    sqs, events = lab.sandbox.client("sqs"), lab.sandbox.client("events")
    url = sqs.create_queue(QueueName="watched")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="watched", EventPattern=json.dumps({"source": ["aws.ec2", "aws.autoscaling"]}))
    events.put_targets(Rule="watched", Targets=[{"Id": "1", "Arn": arn}])
    found: list[Json] = []

    def read() -> list[Json]:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            found.append(json.loads(message["Body"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    return read


def refused(call: Callable[[], Any]) -> str:
    """The error code; empty where the call went through."""
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""
