"""Scheduler on Slurm, through SSM: what is asked of whom, what the answers mean, and what no answer means."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nodeheal.adapters.memory.machines import MemoryMachines
from nodeheal.adapters.slurm.controller import ANSWER_SECONDS, SlurmController
from nodeheal.adapters.slurm.scheduler import SlurmScheduler, slurm_scheduler
from nodeheal.agent.slurm.controller import LOST, REQUEUED
from nodeheal.contract.vocabulary import Provider, SchedulerKind
from nodeheal.domain.errors import NotAccepted, NotEnrolled, NotFound, PlacementRefused
from nodeheal.domain.fleet.holder import HeldByNodeheal, HeldByPerson, person_holding
from nodeheal.domain.fleet.machine import ClusterReplacement, Machine
from nodeheal.domain.fleet.node import Node
from nodeheal.parsers.slurm import SlurmJob, SlurmNode
from nodeheal.parsers.slurm_report import pack
from nodeheal.ports.scheduler import Drained, NodePlacement
from nodeheal.services.scheduling import restarts_stopped
from tests.support.aws_world import Aws, aws, on_ssm
from tests.support.builders import NOW, node

__all__ = ["aws"]  # a fixture

HEAD = "i-0c0000000000000ff"
FIRST, SECOND = "i-0000000a", "i-0000000b"
WHERE = "10.0.0.7"
COMMAND = "5f9b1f6e-5a0c-4e0e-9c3e-2f1f1f1f1f1f"
IDLE = {
    "name": "gpu-7",
    "is_in_service": True,
    "is_by_person": False,
    "incident": "",
    "reason": "",
    "reason_by": "",
    "jobs": [],
}
HERS = {"state": "drained", "reason": "ada looks", "reason_by": "ada"}
DRAINED = {
    **IDLE,
    "is_in_service": False,
    "incident": "inc-1",
    "reason": "nodeheal inc-1",
    "reason_by": "slurm",
    "jobs": None,
}


def broken(**changes: Any) -> Node:
    return node("mi-0a", scheduler=SchedulerKind.SLURM, cluster="lab", open_incident="inc-1", **changes)


class Asked:
    """A controller whose SSM is stubbed, and what was waited for."""

    def __init__(self, ssm: Aws) -> None:
        self.ssm = ssm
        self.waited = 0.0
        self.ec2 = Aws("ec2")
        self.hyperpod = MemoryMachines()
        self.ec2.stub.activate()
        self.controller = SlurmController(ssm, ssm, self.ec2, self.hyperpod, lambda: NOW, self._sleep)
        self.scheduler = SlurmScheduler(self.controller)

    def _sleep(self, seconds: float) -> None:
        self.waited += seconds

    def knows(self, address: str | None = WHERE, node: Node | None = None) -> "Asked":
        """SSM knows where the node is, or knows no such node."""
        name = (node or broken()).instance_id
        rows = [{"InstanceId": name, "IPAddress": address}] if address else []
        asked = {"Filters": [{"Key": "InstanceIds", "Values": [name]}]}
        self.ssm.answers("describe_instance_information", {"InstanceInformationList": rows}, asked)
        return self

    def finds(self, *heads: tuple[str, str]) -> "Asked":
        """The machines with the tag of a controller, and whether SSM reaches them."""
        rows = [{"InstanceId": name, "PingStatus": ping} for name, ping in heads or ((HEAD, "Online"),)]
        asked = {"Filters": [{"Key": "tag:nodeheal:slurm-controller", "Values": ["lab"]}]}
        self.ssm.answers("describe_instance_information", {"InstanceInformationList": rows}, asked)
        return self

    def sends(self, verb: str, head: str = HEAD, where: str = WHERE, **options: str) -> "Asked":
        """The command that must be sent."""
        until = str(int(NOW.timestamp() + ANSWER_SECONDS))
        parameters = {"Verb": verb, "Addresses": where, "ExpiresAt": until, **options}
        asked = {
            "DocumentName": "nodeheal-slurm",
            "InstanceIds": [head],
            "TimeoutSeconds": 30,
            "Parameters": {name: [value] for name, value in parameters.items()},
        }
        self.ssm.answers("send_command", {"Command": {"CommandId": COMMAND}}, asked)
        return self

    def hears(self, answer: object, status: str = "Success", code: int = 0, errors: str = "") -> "Asked":
        """What became of it."""
        said = {
            "Status": status,
            "ResponseCode": code,
            "StandardOutputContent": answer if isinstance(answer, str) else json.dumps(answer),
            "StandardErrorContent": errors,
        }
        self.ssm.answers("get_command_invocation", said)
        return self


@pytest.fixture
def slurm(aws: Aws) -> Asked:
    return Asked(aws)


def nodes(**seen: object) -> dict[str, object]:
    return {"nodes": {WHERE: seen}}


@on_ssm
def test_a_node_is_found_by_the_address_that_ssm_knows(slurm: Asked) -> None:
    slurm.knows().finds().sends("nodes").hears(nodes(**IDLE))

    assert slurm.scheduler.placement_of(broken()) == NodePlacement("gpu-7", is_schedulable=True)


@on_ssm
@pytest.mark.parametrize(
    ("seen", "takes_work"),
    [
        (DRAINED, False),  # by nodeheal, for an incident before
        ({**IDLE, "is_in_service": False, "is_by_person": True, **HERS}, False),
        ({**IDLE, "is_in_service": False}, False),  # Slurm itself has found something
        (IDLE, True),
    ],
)
def test_what_a_person_has_drained_was_not_in_service(slurm: Asked, seen: dict[str, object], takes_work: bool) -> None:
    slurm.knows().finds().sends("nodes").hears(nodes(**seen))

    found = slurm.scheduler.placement_of(broken())

    assert found.is_schedulable is takes_work
    assert person_holding(found.held_by) == ("drained by ada: ada looks" if seen["is_by_person"] else "")


@on_ssm
def test_the_reason_names_the_incident(slurm: Asked) -> None:
    slurm.knows().finds().sends("drain", Incident="inc-1").hears(nodes(**DRAINED))

    assert slurm.scheduler.drain_all([broken()], ["gpu-7"]) == {
        "mi-0a": Drained("gpu-7", has_tasks=True, held_by=HeldByNodeheal("inc-1"))
    }


@on_ssm
def test_many_nodes_are_drained_by_one_command_each_for_its_own_incident(slurm: Asked) -> None:
    other = replace(broken(), node_id="mi-0b", instance_id="mi-0b", open_incident="inc-2")
    held = {**IDLE, **HERS, "is_in_service": False, "is_by_person": True}
    job = {"job_id": "7", "nodes": 2, "has_failed": False, "name": "llama", "partition": "gpu", "user": "ada"}
    listed = {**DRAINED, "jobs": [{**job, "restarts": 1, "may_requeue": True, "before": ""}]}
    slurm.knows().knows("10.0.0.8", other).finds()
    slurm.sends("drain", where=f"{WHERE},10.0.0.8", Incident="inc-1,inc-2")
    slurm.hears({"nodes": {WHERE: listed, "10.0.0.8": held}})

    nodes_there = [broken(), other]
    drained = slurm.scheduler.drain_all(nodes_there, [one.node_id for one in nodes_there])

    assert [task.task_id for task in drained["mi-0a"].tasks or ()] == ["7"]
    assert drained["mi-0b"] == Drained("gpu-7", has_tasks=False, tasks=(), held_by=HeldByPerson("ada", "ada looks"))


@on_ssm
def test_a_node_that_still_takes_work_is_not_drained(slurm: Asked) -> None:
    slurm.knows().finds().sends("drain", Incident="inc-1").hears(nodes(**IDLE))
    slurm.knows().finds().sends("drain", Incident="inc-1").hears({"nodes": {}})

    assert slurm.scheduler.drain_all([broken()], ["gpu-7"]) == {}
    with pytest.raises(NotFound, match=r"Slurm cluster lab has no node at 10\.0\.0\.7, the address of mi-0a"):
        slurm.scheduler.drain_all([broken()], ["gpu-7"])


@on_ssm
def test_a_machine_that_ssm_does_not_know_is_no_node_and_nobody_is_asked(slurm: Asked) -> None:
    for _ in range(3):
        slurm.knows(None)

    with pytest.raises(NotFound):
        slurm.scheduler.placement_of(broken())
    with pytest.raises(NotFound):
        slurm.scheduler.undrain(broken(), NodePlacement("gpu-7", is_schedulable=False))
    assert slurm.scheduler.unmanaged_tasks(broken(), NodePlacement("gpu-7", is_schedulable=False)) == []


@on_ssm
@pytest.mark.parametrize("is_there", [True, False])
def test_where_a_node_of_hyperpod_is_says_hyperpod(slurm: Asked, is_there: bool) -> None:
    machine = replace(broken(), provider=Provider.hyperpod, instance_id="i-0000000c")
    if is_there:
        slurm.hyperpod.machines["i-0000000c"] = Machine("i-0000000c", "Running", address=WHERE)
        slurm.finds().sends("nodes").hears(nodes(**IDLE))
        assert slurm.scheduler.placement_of(machine).name == "gpu-7"
    else:
        with pytest.raises(NotFound, match="no node like i-0000000c"):
            slurm.scheduler.placement_of(machine)


@on_ssm
@pytest.mark.parametrize("is_there", [True, False])
def test_where_a_machine_of_ec2_is_says_ec2(slurm: Asked, is_there: bool) -> None:
    machine = replace(broken(), provider=Provider.ec2, instance_id="i-0000000c")
    found = [{"Instances": [{"InstanceId": "i-0000000c", "PrivateIpAddress": WHERE}]}] if is_there else []
    asked = {"Filters": [{"Name": "instance-id", "Values": ["i-0000000c"]}]}
    slurm.ec2.answers("describe_instances", {"Reservations": found}, asked)
    if is_there:
        slurm.finds().sends("nodes").hears(nodes(**IDLE))
        assert slurm.scheduler.placement_of(machine).name == "gpu-7"
    else:
        with pytest.raises(NotFound):
            slurm.scheduler.placement_of(machine)


@on_ssm
def test_a_node_is_resumed(slurm: Asked) -> None:
    slurm.knows().finds().sends("resume", Incident="inc-1").hears(nodes(**IDLE))

    slurm.scheduler.undrain(broken(), NodePlacement("gpu-7", is_schedulable=False))


@on_ssm
def test_a_cluster_is_asked_for_another_machine(slurm: Asked) -> None:
    slurm.knows().finds().sends("replace", How="power_down").hears(nodes(**DRAINED, why_not=""))

    slurm.scheduler.have_replaced(broken(), ClusterReplacement.power_down, {"10.0.0.8"})


@on_ssm
def test_a_node_that_ssm_has_at_anothers_address_is_not_replaced(slurm: Asked) -> None:
    slurm.knows()

    with pytest.raises(PlacementRefused, match=r"10\.0\.0\.7 as the address of mi-0a, and another node's agent"):
        slurm.scheduler.have_replaced(broken(), ClusterReplacement.power_down, {WHERE})


@on_ssm
def test_slurm_deletes_no_node_claim(slurm: Asked) -> None:
    with pytest.raises(PlacementRefused, match="delete_node_claim, which Slurm does not know"):
        slurm.scheduler.have_replaced(broken(), ClusterReplacement.delete_node_claim, ())


@on_ssm
def test_a_node_that_a_person_has_drained_is_not_replaced(slurm: Asked) -> None:
    slurm.knows().finds().sends("replace", How="power_down").hears(
        nodes(**{**DRAINED, **HERS}, why_not="nodeheal has not drained gpu-7 (drained by ada: ada looks)")
    )

    with pytest.raises(PlacementRefused, match="drained by ada: ada looks"):
        slurm.scheduler.have_replaced(broken(), ClusterReplacement.power_down, ())


@on_ssm
def test_a_job_is_requeued_as_often_as_it_was_when_it_was_seen(slurm: Asked) -> None:
    job = {"job_id": "12_3", "user": "ada", "partition": "gpu", "nodes": 2, "restarts": 4, "may_requeue": True}
    job |= {"has_failed": False, "name": "llama/7\nx", "before": ""}
    theirs_too = [{**job, "job_id": "13", "may_requeue": False, "nodes": 1}]
    gone = [{**job, "job_id": "14", "before": before} for before in (LOST, REQUEUED)]
    slurm.knows().finds().sends("jobs", Incident="inc-1").hears({"jobs": [job, *theirs_too, *gone]})
    slurm.finds().sends("requeue", Job="12_3", Restarts="4").hears({"requeued": True, "is_held": False, "why": ""})

    mine, theirs, *before = slurm.scheduler.unmanaged_tasks(broken(), NodePlacement("gpu-7", is_schedulable=False))

    assert (str(mine), mine.may_be_stopped) == ("job llama_7_x of 2 nodes in gpu (12_3, started by ada)", True)
    assert (str(theirs), theirs.may_be_stopped) == ("job llama_7_x of 1 node in gpu (13, started by ada)", False)
    assert (mine.before, theirs.before) == ("", "")
    assert ["failed here" in before[0].before, "requeued already" in before[1].before] == [True, True]
    assert slurm.scheduler.stop_unmanaged_task(broken(), mine, "nodeheal: recovery inc-1") is True


@on_ssm
@pytest.mark.parametrize(
    ("heads", "asked"),
    [
        ([(SECOND, "Online"), (FIRST, "Online")], FIRST),
        ([(FIRST, "ConnectionLost"), (SECOND, "Online")], SECOND),  # the one that has taken over
    ],
)
def test_of_two_controllers_one_that_is_reached_is_asked(
    slurm: Asked, heads: Sequence[tuple[str, str]], asked: str
) -> None:
    slurm.knows().finds(*heads).sends("nodes", asked).hears(nodes(**IDLE))

    slurm.scheduler.placement_of(broken())


@on_ssm
def test_a_controller_that_ssm_does_not_reach_is_asked_later(slurm: Asked) -> None:
    slurm.knows().finds((HEAD, "ConnectionLost"))

    with pytest.raises(NotAccepted, match=f"SSM does not reach the Slurm controller of lab: {HEAD}"):
        slurm.scheduler.placement_of(broken())


@on_ssm
def test_a_cluster_without_a_tagged_machine_says_what_to_do(slurm: Asked) -> None:
    slurm.knows()
    slurm.ssm.answers("describe_instance_information", {"InstanceInformationList": []})

    with pytest.raises(NotFound, match="tag it with nodeheal:slurm-controller = lab"):
        slurm.scheduler.placement_of(broken())


@on_ssm
def test_the_answer_is_waited_for_and_not_for_ever(slurm: Asked) -> None:
    slurm.knows().finds().sends("nodes")
    slurm.ssm.refuses("get_command_invocation", "InvocationDoesNotExist")
    slurm.hears("", "InProgress").hears("", "Pending").hears("", "Delayed").hears(nodes(**IDLE))
    slurm.scheduler.placement_of(broken())
    assert slurm.waited == 5 * 0.25

    slurm.knows().finds().sends("nodes")
    for _ in range(60):
        slurm.hears("", "InProgress")
    with pytest.raises(NotAccepted, match=rf"the Slurm controller of lab \({HEAD}\) has not answered within 15 s"):
        slurm.scheduler.placement_of(broken())


@on_ssm
@pytest.mark.parametrize(
    ("answer", "status", "code", "errors", "why"),
    [
        (
            {"error": "sinfo: no answer within 10 s"},
            "Failed",
            75,
            "",
            "could not run `nodes`: sinfo: no answer within 10 s",
        ),
        ("", "Failed", 127, "nodeheal-agent is neither on PATH", "exit code 127: nodeheal-agent is neither on PATH"),
        ("no JSON", "Success", 0, "", "no JSON"),
        ({"nodes": {}}, "Failed", 1, "", "exit code 1"),
        ([], "Success", 0, "", "Success"),
        ("", "TimedOut", -1, "", "TimedOut, exit code -1"),
    ],
)
def test_what_is_no_answer_is_asked_again(
    slurm: Asked, answer: object, status: str, code: int, errors: str, why: str
) -> None:
    slurm.knows().finds().sends("nodes").hears(answer, status, code, errors)

    with pytest.raises(NotAccepted, match=why):
        slurm.scheduler.placement_of(broken())


@on_ssm
@pytest.mark.parametrize(
    ("code", "error"),
    [("AccessDeniedException", NotEnrolled), ("InvalidInstanceId", NotAccepted), ("Throttling", NotAccepted)],
)
def test_a_command_that_is_not_taken(slurm: Asked, code: str, error: type[Exception]) -> None:
    slurm.knows().finds()
    slurm.ssm.refuses("send_command", code, **({"Message": ""} if code == "AccessDeniedException" else {}))

    with pytest.raises(error):
        slurm.scheduler.placement_of(broken())


@on_ssm
def test_slurm_starts_and_restarts_its_jobs_itself(slurm: Asked) -> None:
    can = slurm_scheduler(slurm.controller)

    assert (can.registry, can.restarter, can.launcher) == (None, None, None)
    assert restarts_stopped(can)


JOB = SlurmJob("12_3", "RUNNING", "ada", True, 2, "gpu", 1, "gpu-7", name="llama", started_at=1_795_766_989)
SEEN = SlurmNode("gpu-7", WHERE, "drained", "new riser card", "ada", 1_795_766_989)


@on_ssm
def test_a_report_is_asked_for_by_one_command_and_read_as_it_was_packed(slurm: Asked) -> None:
    slurm.finds().sends("report", where="none").hears(pack([(SEEN, [WHERE])], [JOB]))

    report = slurm.controller.report("lab")

    [out] = report.nodes
    assert (out.name, out.addresses, out.reason_by, out.taken_by) == ("gpu-7", (WHERE,), "ada", "a person")
    assert (report.jobs, report.more_jobs, report.more_nodes) == ((JOB,), 0, 0)


@on_ssm
def test_a_node_is_read_as_slurm_has_it(slurm: Asked) -> None:
    slurm.finds().sends("nodes").hears(nodes(**{**IDLE, **vars(SEEN)}))
    slurm.finds().sends("nodes").hears({"nodes": {}})

    assert slurm.controller.node_at("lab", WHERE) == SEEN
    assert slurm.controller.node_at("lab", WHERE) is None


@on_ssm
@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"nodes": [], "jobs": []},
        {"nodes": {"fields": ["name"], "rows": [["a", "b"]], "more": 0}, "jobs": {"fields": [], "rows": [], "more": 0}},
        {"nodes": {"fields": [], "rows": [], "more": 0}, "jobs": {"fields": ["job_id"], "rows": [["1"]], "more": 0}},
        {"nodes": {"fields": [], "rows": [], "more": 0}, "jobs": {"fields": [], "rows": [], "more": "many"}},
    ],
)
def test_a_report_that_nobody_can_read_is_no_answer(slurm: Asked, answer: dict[str, object]) -> None:
    slurm.finds().sends("report", where="none").hears(answer)

    with pytest.raises(NotAccepted, match="the answer of the Slurm controller of lab is not valid"):
        slurm.controller.report("lab")
