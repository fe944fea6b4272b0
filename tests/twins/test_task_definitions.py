"""Task definitions and logs: one specification over memory and AWS (moto)."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from nodeheal.adapters.ecs.job_logs import EcsJobLogs
from nodeheal.adapters.ecs.task_definitions import EcsTaskDefinitions, definition_of
from nodeheal.adapters.memory.task_definitions import MemoryJobLogs, MemoryTaskDefinitions
from nodeheal.contract import names
from nodeheal.contract.job_spec import JobSpec, Mount
from nodeheal.domain.errors import NotFound
from nodeheal.domain.jobs.job import GangTask
from nodeheal.domain.jobs.job_log import LogLine, LogLocation
from nodeheal.ports.scheduler import JobLogs, TaskDefinitions
from tests.support.builders import NOW
from tests.support.jobs import ecs_job_of

ROLE = "arn:aws:iam::111122223333:role/trainer"
SPEC = JobSpec(
    name="llama",
    pool="demo",
    nodes=2,
    accelerators=8,
    image="llama:3",
    command=("python", "train.py"),
    environment={"B": "2", "A": "1"},
    mounts=(Mount(source="/fsx", target="/data"),),
    hang_seconds=900,
)
LOCATION = LogLocation(names.JOB_LOG_GROUP, "llama", "us-east-1")


@dataclass
class Side:
    """One of the twins, and how a log is written there."""

    definitions: TaskDefinitions
    logs: JobLogs
    logs_client: Any = None

    def writes(self, stream: str, *texts: str) -> None:
        """A container writes lines, one after the other."""
        if isinstance(self.logs, MemoryJobLogs):
            kept = self.logs.streams.setdefault(stream, [])
            kept += [LogLine(NOW.replace(second=len(kept) + i), text) for i, text in enumerate(texts)]
            return
        where = {"logGroupName": names.JOB_LOG_GROUP, "logStreamName": stream}
        if stream not in self._streams():
            self.logs_client.create_log_stream(**where)
        known = len(self.logs_client.get_log_events(**where)["events"])
        at = int(time.time() * 1000)  # CloudWatch Logs takes nothing that is older than two weeks
        events = [{"timestamp": at + known + i, "message": text} for i, text in enumerate(texts)]
        self.logs_client.put_log_events(**where, logEvents=events)

    def _streams(self) -> list[str]:
        found = self.logs_client.describe_log_streams(logGroupName=names.JOB_LOG_GROUP)["logStreams"]
        return [one["logStreamName"] for one in found]


@pytest.fixture(params=["memory", "aws"])
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Side]:
    if request.param == "memory":
        yield Side(definitions := MemoryTaskDefinitions(task_roles=(ROLE,)), MemoryJobLogs(definitions))
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        logs = boto3.client("logs", region_name="us-east-1")
        logs.create_log_group(logGroupName=names.JOB_LOG_GROUP)
        role = "arn:aws:iam::111122223333:role/nodeheal-job-execution-us-east-1"
        ecs = boto3.client("ecs", region_name="us-east-1")
        ecs.meta.events.register("provide-client-params.ecs.RegisterTaskDefinition", as_moto_takes_it)
        registry = EcsTaskDefinitions(lambda: ecs, lambda: role, (ROLE, role))
        yield Side(registry, EcsJobLogs(registry, lambda _: logs), logs)


def as_moto_takes_it(params: dict[str, Any], **_: object) -> None:
    """moto asks for a bound of memory where EC2 is named; ECS is content with a reservation."""
    params["requiresCompatibilities"] = ["EXTERNAL"]


def test_what_is_registered_is_found_with_its_revision(side: Side) -> None:
    first, second = side.definitions.register(SPEC), side.definitions.register(SPEC)

    assert first.name != second.name
    for made in (first, second):
        found = side.definitions.find(made.name)
        assert found == made
        container = found.container("trainer")
        assert container is not None
        assert container.accelerators == 8
        assert container.log is not None


EXECUTION_ROLE = f"arn:aws:iam::111122223333:role/{names.JOB_EXECUTION_ROLE.format(region='us-east-1')}"


@pytest.mark.parametrize("role", ["arn:aws:iam::111122223333:role/admin", EXECUTION_ROLE])
def test_a_program_gets_a_role_of_the_settings_and_never_the_execution_role(side: Side, role: str) -> None:
    with pytest.raises(ValueError, match=r"task_role: .* is not named in the setting task_role_arns"):
        side.definitions.register(SPEC.model_copy(update={"task_role": role}))
    with pytest.raises(NotFound):
        side.definitions.find("nodeheal-llama:1")

    assert side.definitions.register(SPEC.model_copy(update={"task_role": ROLE})).name


def test_a_definition_that_gives_the_program_the_execution_role_is_refused() -> None:
    with mock_aws():
        ecs = boto3.client("ecs", region_name="us-east-1", aws_access_key_id="t", aws_secret_access_key="t")
        container: Any = {"name": "trainer", "image": "x", "memory": 64}
        ecs.register_task_definition(family="mine", taskRoleArn=EXECUTION_ROLE, containerDefinitions=[container])

        with pytest.raises(ValueError, match="gives the program the execution role"):
            EcsTaskDefinitions(lambda: ecs, lambda: EXECUTION_ROLE).find("mine")


def test_what_nobody_has_registered_is_not_found(side: Side) -> None:
    with pytest.raises(NotFound, match="task_definition"):
        side.definitions.find("nobody:1")


def test_what_is_shown_names_the_jobs_family_and_registers_nothing(side: Side) -> None:
    shown = side.definitions.shown(SPEC)

    assert shown["family"] == "nodeheal-llama"
    with pytest.raises(NotFound):
        side.definitions.find("nodeheal-llama:1")


def test_a_job_has_a_log_where_its_definition_says_so_and_a_stream_for_each_rank(side: Side) -> None:
    job = ecs_job_of(SPEC, "training", side.definitions.register(SPEC).name, NOW)
    rank = GangTask("mi-a", 0, "boot-1", "arn", "arn:x:task/training/abc")

    location = side.logs.locate(job)

    assert (location.group, location.prefix) == (names.JOB_LOG_GROUP, "llama")
    assert side.logs.stream(location, job, rank) == "llama/trainer/abc"
    with pytest.raises(NotFound, match="output of proxy"):
        side.logs.locate(replace(job, container="proxy"))


def test_a_log_is_read_on_from_where_it_was_left(side: Side) -> None:
    stream = "llama/trainer/1"
    side.writes(stream, "step 1", "step 2")

    first = side.logs.read(LOCATION, stream)
    nothing = side.logs.read(LOCATION, stream, first.token)
    side.writes(stream, "step 3")
    more = side.logs.read(LOCATION, stream, nothing.token)

    assert [line.text for line in first.lines] == ["step 1", "step 2"]
    assert first.lines[0].at < first.lines[1].at
    assert nothing.lines == ()
    assert [line.text for line in more.lines] == ["step 3"]


def test_a_rank_that_has_written_nothing_yet_has_an_empty_log(side: Side) -> None:
    page = side.logs.read(LOCATION, "llama/trainer/none")

    assert page.lines == ()


def test_the_task_definition_says_all_that_the_file_says() -> None:
    with mock_aws():
        ecs = boto3.client("ecs", region_name="eu-central-1", aws_access_key_id="t", aws_secret_access_key="t")
        body: Any = EcsTaskDefinitions(
            lambda: ecs, lambda: "arn:aws:iam::111122223333:role/nodeheal-job-execution-us-east-1"
        ).shown(SPEC)

    [container] = body["containerDefinitions"]
    assert (body["networkMode"], body["requiresCompatibilities"]) == ("host", ["EXTERNAL", "EC2"])
    assert body["tags"] == [{"key": names.JOB_TAG, "value": "llama"}]
    assert container["command"] == ["python", "train.py"]
    assert container["environment"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert container["resourceRequirements"] == [{"type": "GPU", "value": "8"}]
    assert (container["memoryReservation"], container["stopTimeout"]) == (1_024, 30)
    sources = {volume["name"]: volume["host"]["sourcePath"] for volume in body["volumes"]}
    seen = [(sources[m["sourceVolume"]], m["containerPath"], m["readOnly"]) for m in container["mountPoints"]]
    assert seen == [
        ("/run/nodeheal", "/run/nodeheal", True),
        ("/run/nodeheal/progress", "/run/nodeheal/progress", False),
        ("/fsx", "/data", False),
    ]
    options = container["logConfiguration"]["options"]
    assert (options["awslogs-group"], options["awslogs-stream-prefix"]) == (names.JOB_LOG_GROUP, "llama")
    assert options["awslogs-region"] == "eu-central-1"


@pytest.mark.parametrize("hang_seconds", [None, 900])
def test_no_container_has_two_mounts_at_one_path(hang_seconds: int | None) -> None:
    """Docker refuses to create one that has: `Duplicate mount point`."""
    named_too = (
        Mount(source="/run/nodeheal", target="/run/nodeheal", read_only=True),
        Mount(source="/run/nodeheal/progress", target="/run/nodeheal/progress"),
    )
    spec = SPEC.model_copy(update={"mounts": (*SPEC.mounts, *named_too), "hang_seconds": hang_seconds})

    shown: Any = definition_of(spec, "us-east-1", "role")

    paths = [mount["containerPath"] for mount in shown["containerDefinitions"][0]["mountPoints"]]
    assert sorted(paths) == ["/data", "/run/nodeheal", "/run/nodeheal/progress"]


def test_a_device_of_the_file_is_in_the_container_at_its_own_path() -> None:
    spec = SPEC.model_copy(update={"devices": ("/dev/infiniband",)})

    shown: Any = definition_of(spec, "us-east-1", "role")

    [container] = shown["containerDefinitions"]
    [device] = container["linuxParameters"]["devices"]
    assert (device["hostPath"], device["containerPath"]) == ("/dev/infiniband", "/dev/infiniband")
    assert set(device["permissions"]) == {"read", "write", "mknod"}  # AWS Batch User Guide, EFA
    assert {"name": "memlock", "softLimit": -1, "hardLimit": -1} in container["ulimits"]


def test_a_file_without_devices_asks_for_none() -> None:
    shown: Any = definition_of(SPEC, "us-east-1", "role")

    assert "devices" not in shown["containerDefinitions"][0]["linuxParameters"]
