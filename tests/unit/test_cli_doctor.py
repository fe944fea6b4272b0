"""`nodeheal doctor` where there is no account to look at, and what it makes of single answers."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ProfileNotFound,
    UnauthorizedSSOTokenError,
)
from typer.testing import CliRunner

from nodeheal.adapters.aws.account import Account, examine
from nodeheal.adapters.aws.finding import BAD, GOOD, UNKNOWN, WARNING, DoctorFinding
from nodeheal.adapters.ecs.account_look import unregistered
from nodeheal.adapters.memory.ports import memory_ports
from nodeheal.adapters.slurm.account_look import slurm_look
from nodeheal.cli import connect, doctor
from nodeheal.cli.main import app
from nodeheal.contract import names
from nodeheal.contract.vocabulary import NodeState, Provider, SchedulerKind, Verdict
from nodeheal.domain.errors import NotAccepted, NotEnrolled
from nodeheal.domain.fleet.node import Node, ReportedDiagnosis
from nodeheal.parsers.slurm import SlurmNode
from nodeheal.parsers.slurm_report import NodeOut, SlurmReport
from tests.support.builders import ACT, NOW, FrozenClock, node

REGISTRATIONS = {SchedulerKind.ECS: unregistered}


class Answers:
    """Clients that answer what they are told; what is not told is denied."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def __call__(self, service: str) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        def call(**asked: Any) -> Any:
            answer = self.answers.get(name, _error("AccessDeniedException", name))
            answer = answer(**asked) if callable(answer) else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def get_paginator(self, name: str) -> Any:
        answer = self.answers.get(name, _error("AccessDeniedException", name))

        class Pages:
            def paginate(self, **asked: Any) -> Iterator[Any]:
                if isinstance(answer, Exception):
                    raise answer
                yield answer(**asked) if callable(answer) else answer

        return Pages()


def _error(code: str, operation: str = "op") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)


class Sts:
    """An STS that answers or raises."""

    def __init__(self, region: str | None, error: Exception | None = None) -> None:
        self.meta = type("Meta", (), {"region_name": region})
        self._error = error

    def get_caller_identity(self) -> dict[str, str]:
        if self._error is not None:
            raise self._error
        return {"Arn": "arn:aws:sts::111122223333:assumed-role/admin/ada"}


@pytest.mark.parametrize(
    ("sts", "said"),
    [
        (Sts(None), "FAIL     Region: no Region is set"),
        (Sts("aws-global"), "FAIL     Region: no Region is set"),
        (Sts("eu-central-1", NoRegionError()), "FAIL     Region: no Region is set"),
        (Sts("eu-central-1", NoCredentialsError()), "FAIL     credentials: Unable to locate credentials"),
        (Sts("eu-central-1", _error("ExpiredToken")), "FAIL     credentials: they have expired"),
        (Sts("eu-central-1", UnauthorizedSSOTokenError()), "→ sign in again (aws sso login"),
        (Sts("eu-central-1", _error("InvalidClientTokenId")), "the Region eu-central-1 is not enabled"),
        (Sts("eu-central-1", ProfileNotFound(profile="blue")), "→ list the profiles: aws configure list-profiles"),
    ],
)
def test_each_reason_why_no_call_succeeds_has_its_own_next_step(
    monkeypatch: pytest.MonkeyPatch, sts: Sts, said: str
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setattr(doctor, "client", lambda service: sts)

    answer = CliRunner().invoke(app, ["doctor"])

    assert said in answer.output
    assert answer.exit_code == 1


@pytest.mark.parametrize(
    ("region", "said"),
    [
        ("eu-central-1", "FAIL     network: "),
        ("eu-centrl-1", "did you mean eu-central-1?"),
        ("frankfurt", "FAIL     Region: 'frankfurt' is not a Region"),
    ],
)
def test_a_mistyped_region_is_told_apart_from_a_network_that_is_down(
    monkeypatch: pytest.MonkeyPatch, region: str, said: str
) -> None:
    unreachable = EndpointConnectionError(endpoint_url=f"https://sts.{region}.amazonaws.com/")
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    monkeypatch.setattr(doctor, "client", lambda service: Sts(region, unreachable))

    assert said in CliRunner().invoke(app, ["doctor"]).output


@pytest.mark.parametrize(
    ("words", "error"),
    [(["doctor"], NoCredentialsError()), (["status"], NoRegionError()), (["status"], NoCredentialsError())],
)
def test_where_neither_region_nor_credentials_are_set_both_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], error: Exception
) -> None:
    def fail(*_: object) -> Any:
        raise error

    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setattr(connect, "ports", fail)
    monkeypatch.setattr(doctor, "client", fail)

    said = CliRunner().invoke(app, words).output

    assert "export AWS_REGION=" in said
    assert "set AWS_PROFILE, or sign in" in said


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["nodes", "show", "mi-1"], NoRegionError(), "no Region is set; export AWS_REGION=eu-central-1, or"),
        (["nodes", "show", "mi-1"], NoRegionError(), "for the demo: paste the `export` line"),
        (["incidents", "list"], NoCredentialsError(), "set AWS_PROFILE, or sign in"),
        (["jobs", "list"], _error("ExpiredToken"), "they have expired"),
        (["status"], ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "Query"), "choose a context"),
    ],
)
def test_every_other_command_names_the_same_next_step(
    monkeypatch: pytest.MonkeyPatch, words: list[str], error: Exception, said: str
) -> None:
    def fail(*_: object) -> Any:
        raise error

    monkeypatch.setattr(connect, "ports", fail)

    answer = CliRunner().invoke(app, words)

    assert said in answer.output
    assert len(answer.output.splitlines()) == 1
    assert answer.exit_code == 1


def findings(**answers: Any) -> dict[str, tuple[str, str]]:
    """State and detail of each finding, by what it is about."""
    ports = memory_ports(FrozenClock())
    ports.nodes.save(node())
    made = Account(Answers(**answers), lambda: ports, ACT.model_dump_json, REGISTRATIONS)
    return {one.what: (one.state, one.detail) for one in examine(made)}


STACK = {"Stacks": [{"StackStatus": "UPDATE_COMPLETE", "Outputs": [{"OutputKey": "TopicArn", "OutputValue": "arn:t"}]}]}


def test_a_look_that_is_denied_hides_no_other() -> None:
    found = findings(describe_stacks=STACK, describe_alarms={"MetricAlarms": []})

    assert found["cdk bootstrap"][0] == UNKNOWN
    assert found["stack"][0] == GOOD
    assert found["alarms"] == (BAD, "the stack has no alarm")


@pytest.mark.parametrize(("limit", "state"), [(10, BAD), (99, BAD), (100, GOOD)])
def test_a_new_accounts_concurrency_is_too_little(limit: int, state: str) -> None:
    found = findings(get_account_settings={"AccountLimit": {"ConcurrentExecutions": limit}})

    assert found["Lambda concurrency"][0] == state


def test_what_is_not_in_this_region_may_be_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    answers = {"get_parameter": _error("ParameterNotFound"), "describe_stacks": _error("ValidationError")}
    made = Account(Answers(**answers), _never, _never, REGISTRATIONS)

    todo = {one.what: one.todo for one in examine(made)}

    assert todo["cdk bootstrap"] == "run `make bootstrap` once; or is AWS_REGION wrong? (now: eu-west-3)"
    assert todo["stack"] == "run `make deploy`; or is AWS_REGION wrong? (now: eu-west-3)"


@pytest.mark.parametrize("status", ["ROLLBACK_COMPLETE", "CREATE_FAILED", "UPDATE_ROLLBACK_FAILED", "DELETE_COMPLETE"])
def test_a_stack_that_is_not_whole_fails_and_nothing_behind_it_is_looked_at(status: str) -> None:
    found = findings(describe_stacks={"Stacks": [{"StackStatus": status}]})

    assert found["stack"][0] == BAD
    assert "alarms" not in found


@pytest.mark.parametrize(
    ("subscriptions", "state"),
    [
        ([], BAD),
        ([{"Endpoint": "a@example.com", "SubscriptionArn": "PendingConfirmation", "Protocol": "email"}], BAD),
        ([{"Endpoint": "a@example.com", "SubscriptionArn": "arn:signed", "Protocol": "email"}], GOOD),
        ([{"Endpoint": "a@example.com", "SubscriptionArn": "arn:clicked", "Protocol": "email"}], WARNING),
        ([{"Endpoint": "arn:aws:sqs:r:a:q", "SubscriptionArn": "arn:clicked", "Protocol": "sqs"}], GOOD),
    ],
)
def test_an_address_that_has_not_confirmed_or_that_anybody_could_unsubscribe_is_named(
    subscriptions: list[dict[str, str]], state: str
) -> None:
    """L4: the link at the end of an email needs no signature, so a forwarded page silences an operator."""

    def attributes(**asked: str) -> dict[str, dict[str, str]]:
        return {"Attributes": {"ConfirmationWasAuthenticated": str(asked["SubscriptionArn"] == "arn:signed").lower()}}

    found = findings(
        describe_stacks=STACK,
        list_subscriptions_by_topic={"Subscriptions": subscriptions},
        get_subscription_attributes=attributes,
    )

    assert found["alert emails"][0] == state
    assert all(one["Endpoint"] in found["alert emails"][1] for one in subscriptions if state == WARNING)


def test_an_alarm_that_rings_fails_with_its_own_description() -> None:
    ringing = {"AlarmName": "nodeheal-SweepGone", "StateValue": "ALARM", "AlarmDescription": "look at the sweep's log"}
    made = Account(
        Answers(describe_stacks=STACK, describe_alarms={"MetricAlarms": [ringing]}), _never, _never, REGISTRATIONS
    )

    [found] = [one for one in examine(made) if one.what == "alarm nodeheal-SweepGone"]

    assert (found.state, found.todo) == (BAD, "look at the sweep's log")


def _never() -> Any:
    raise _error("AccessDeniedException", "GetItem")


QUOTAS = {"L-EEB0151E": 2, "L-F59D302B": 20, "L-48F9B951": 2_048}


def granted(ServiceCode: str, QuotaCode: str) -> dict[str, Any]:
    """The answer of Service Quotas, by its own argument names."""
    assert ServiceCode == "appconfig"
    return {"Quota": {"Value": float(QUOTAS[QuotaCode])}}


def items(*named: str) -> dict[str, Any]:
    return {"Items": [{"Name": name, "Id": f"id{number}"} for number, name in enumerate(named)]}


AWS_STRATEGY = {"Items": [{"Name": "AppConfig.AllAtOnce", "Id": "AppConfig.AllAtOnce"}]}


@pytest.mark.parametrize(
    ("applications", "state"),
    [(("a",), GOOD), (("a", "b"), BAD), (("a", names.POLICY_APPLICATION), GOOD)],
)
def test_a_full_quota_of_appconfig_is_found_before_the_deployment(applications: tuple[str, ...], state: str) -> None:
    found = findings(
        describe_stacks=_error("ValidationError"),
        get_service_quota=granted,
        list_applications=items(*applications),
        list_deployment_strategies=AWS_STRATEGY,
    )

    assert found["AppConfig applications"][0] == state
    assert found["AppConfig deployment strategies"] == (GOOD, "0 of 20 deployment strategies are in use")


def test_where_service_quotas_has_no_value_for_the_account_the_default_holds() -> None:
    found = findings(
        describe_stacks=_error("ValidationError"),
        get_service_quota=_error("NoSuchResourceException"),
        get_aws_default_service_quota=granted,
        list_applications=items("a", "b"),
        list_deployment_strategies=AWS_STRATEGY,
    )

    assert found["AppConfig applications"] == (BAD, "2 of 2 applications are in use")


def test_a_denied_quota_is_unknown_and_not_good() -> None:
    found = findings(describe_stacks=_error("ValidationError"), list_applications=items())

    assert found["AppConfig quotas"][0] == UNKNOWN


@pytest.mark.parametrize(("kilobytes", "state"), [(2_048, GOOD), (1, WARNING)])
def test_a_policy_that_comes_near_the_size_limit_is_named(
    monkeypatch: pytest.MonkeyPatch, kilobytes: int, state: str
) -> None:
    monkeypatch.setitem(QUOTAS, "L-48F9B951", kilobytes)

    found = findings(describe_stacks=STACK, get_service_quota=granted)

    assert found["policy size"][0] == state


def test_a_table_that_does_not_exist_is_named_and_nothing_is_said_of_its_nodes() -> None:
    def missing() -> Any:
        raise _error("ResourceNotFoundException", "Query")

    made = Account(Answers(describe_stacks=STACK), missing, ACT.model_dump_json, REGISTRATIONS, "nope")

    found = {one.what: one for one in examine(made)}

    assert (found["state table"].state, "nope" in found["state table"].detail) == (BAD, True)
    assert f"the stack's table is {names.TABLE}" in found["state table"].todo
    assert not {"pools", "nodes", "SSM tier"} & found.keys()
    assert "alarms" in found


def test_a_network_that_fails_midway_is_unknown_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    made = Account(
        Answers(get_parameter=EndpointConnectionError(endpoint_url="https://ssm")), _never, _never, REGISTRATIONS
    )

    [found] = [one for one in examine(made) if one.what == "cdk bootstrap"]

    assert (found.state, found.todo.startswith("check this machine's network")) == (UNKNOWN, True)


ROLE_STACK = {
    "Stacks": [
        {
            "StackStatus": "UPDATE_COMPLETE",
            "Outputs": [
                {"OutputKey": "TopicArn", "OutputValue": "arn:t"},
                {"OutputKey": "NodeRoleArn", "OutputValue": "arn:aws:iam::111122223333:role/nodeheal-node-r"},
            ],
        }
    ]
}


def about_nodes(*nodes: Node, reads: list[str] | None = None, **answers: Any) -> list[DoctorFinding]:
    """What is found about the nodes of the pool demo."""
    subjects = ("nodes of demo", "nodes", "machines", "pool demo", "SSM tier")
    return [one for one in examined(*nodes, reads=reads, **answers) if one.what in subjects]


def examined(*nodes: Node, reads: list[str] | None = None, **answers: Any) -> list[DoctorFinding]:
    """All that is found where these nodes are."""
    ports = memory_ports(FrozenClock())
    for one in nodes:
        ports.nodes.save(one)
    in_pool = ports.nodes.in_pool

    def counted(pool: str) -> Any:
        (reads if reads is not None else []).append(pool)
        return in_pool(pool)

    ports.nodes.in_pool = counted  # type: ignore[method-assign]
    asked = {
        "describe_stacks": ROLE_STACK,
        "list_container_instances": {"containerInstanceArns": []},
        "describe_instance_information": {"InstanceInformationList": []},
        "get_service_setting": {"ServiceSetting": {"SettingValue": "standard"}},
        **answers,
    }
    made = Account(Answers(**asked), lambda: ports, ACT.model_dump_json, REGISTRATIONS)
    return list(examine(made))


def test_nodes_are_read_once() -> None:
    reads: list[str] = []

    found = about_nodes(node(), reads=reads)

    assert [one for one in found if one.what == "SSM tier"]
    assert reads == ["demo"]


SILENT = node("mi-0a1b2c3d4e5f60718", last_seen=NOW - timedelta(days=1), passed_at=NOW)
ON_EC2 = node("i-0a1b2c3d4e5f60718", provider=Provider.ec2, state=NodeState.ENROLLED)


@pytest.mark.parametrize(
    ("role", "of", "is_named"),
    [("ecsAnywhereRole", SILENT, True), ("nodeheal-node-r", SILENT, False), ("ecsAnywhereRole", node(), False)],
)
def test_a_mute_hybrid_node_with_another_role_is_named_with_that_role(role: str, of: Node, is_named: bool) -> None:
    known = {"InstanceId": of.instance_id, "PingStatus": "Online", "IamRole": role}

    found = about_nodes(of, describe_instance_information={"InstanceInformationList": [known]})

    told = f"its role is {role}, which is not the stack's: {of.node_id}"
    assert (told in [one.detail for one in found]) == is_named


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ({}, "it has no role: no instance profile"),
        ({"IamInstanceProfile": {"Arn": "arn:aws:iam::1:instance-profile/web"}}, "its role is web-role, which is not"),
    ],
)
def test_a_mute_ec2_node_without_our_role_is_named(profile: dict[str, Any], said: str) -> None:
    machine = {"InstanceId": ON_EC2.instance_id, **profile}

    found = about_nodes(
        ON_EC2,
        describe_instances={"Reservations": [{"Instances": [machine]}]},
        get_instance_profile={"InstanceProfile": {"Roles": [{"RoleName": "web-role"}]}},
    )

    assert [one for one in found if one.detail.startswith(said) and ON_EC2.node_id in one.detail]


@pytest.mark.parametrize(
    ("reported", "passed_at", "said"),
    [
        (None, None, "never diagnosed"),
        (ReportedDiagnosis(NOW, Verdict.OK), None, ""),
        (ReportedDiagnosis(NOW, Verdict.UNKNOWN, "dcgm: dcgmi cannot be run"), None, "UNKNOWN (dcgm: dcgmi cannot"),
        (ReportedDiagnosis(NOW, Verdict.UNKNOWN, "dcgm: dcgmi cannot be run"), NOW + timedelta(hours=1), ""),
        (ReportedDiagnosis(NOW, Verdict.FAILED, "pcie"), NOW - timedelta(hours=1), "FAILED (pcie)"),
    ],
)
def test_a_node_whose_newest_diagnosis_has_not_passed_is_named_with_the_reason(
    reported: ReportedDiagnosis | None, passed_at: Any, said: str
) -> None:
    found = about_nodes(replace(node(), last_diagnosis=reported, passed_at=passed_at))

    told = [one.detail for one in found if "diagnos" in one.detail]
    assert len(told) == bool(said)
    assert all(said in one for one in told)


def published(machine: str, *keys: str, role: str = "AROA1") -> dict[str, dict[str, str]]:
    """An item of the heartbeat table."""
    return {"who": {"S": f"{role}:{machine}"}, **{f"key_{key}": {"S": f"{key} 1795290959"} for key in keys}}


def _run(status: str, day: int) -> dict[str, Any]:
    at = NOW.replace(day=day)
    return {"Status": status, "CreatedTime": at, "ResourceCountByStatus": "{Success=9, Failed=1}"}


@pytest.mark.parametrize(
    ("runs", "state"),
    [
        ([_run("Failed", 1), _run("Success", 2)], GOOD),
        ([_run("Failed", 2), _run("Success", 1)], BAD),
        ([_run("InProgress", 2)], WARNING),
        ([], UNKNOWN),
    ],
)
def test_the_last_rollout_of_the_agent_is_judged(runs: list[dict[str, Any]], state: str) -> None:
    found = examined(
        list_associations={
            "Associations": [{"AssociationId": "a-1", "AssociationName": "nodeheal-install-agent-h100"}]
        },
        describe_association_executions={"AssociationExecutions": runs},
    )

    [told] = [one for one in found if one.what == "agent rollout nodeheal-install-agent-h100"]
    assert told.state == state
    assert ("A rollout that failed" in told.todo) is (state in (BAD, WARNING))


KEY = "arn:aws:kms:eu-central-1:111122223333:key/0a1b"


@pytest.mark.parametrize(
    ("key", "named", "state"),
    [
        (KEY, "none", BAD),
        (KEY, KEY, GOOD),
        ("0a1b", KEY, GOOD),
        (f"{KEY}9", KEY, BAD),
        ("arn:aws:kms:eu-central-1:111122223333:alias/aws/s3", "none", GOOD),
        (None, "none", GOOD),
    ],
)
def test_a_staging_bucket_with_a_key_that_nodes_may_not_use_is_named(key: str | None, named: str, state: str) -> None:
    outputs = {"TopicArn": "arn:topic", "AgentBucketName": "cdk-assets", "AgentBucketKeyArn": named}
    stack = {
        "Stacks": [
            {
                **ROLE_STACK["Stacks"][0],
                "Outputs": [{"OutputKey": name, "OutputValue": value} for name, value in outputs.items()],
            }
        ]
    }
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key} if key else {}}
    configured = {"ServerSideEncryptionConfiguration": {"Rules": [rule]}}

    found = examined(describe_stacks=stack, get_bucket_encryption=configured)

    [told] = [one for one in found if one.what == "staging bucket"]
    assert told.state == state


@pytest.mark.parametrize(
    ("items", "state"),
    [
        ([published("i-1", "a"), published("i-2", "b", "c")], GOOD),
        ([published("i-1", "a"), published("i-1", "a", role="AROA2")], GOOD),
        ([published("i-1", "a"), published("i-2", "b", "a"), published("i-3", "c")], BAD),
        ([published("i-1", "a"), {"who": {"S": "AROA1:i-2"}, "key_a": {"N": "1"}}], GOOD),
    ],
)
def test_two_machines_that_have_published_one_signing_key_are_named(items: list[Any], state: str) -> None:
    [told] = [one for one in examined(scan={"Items": items}) if one.what == "signing keys"]

    assert told.state == state
    assert ("i-1, i-2" in told.detail) is (state == BAD)


def test_what_is_to_do_is_a_command_that_does_no_more() -> None:
    found = {one.what: one.todo for one in about_nodes(node())}

    assert "nodeheal nodes diagnose NODE --why" in found["nodes of demo"]
    assert "nodeheal pools sweep POOL --why" in found["nodes of demo"]
    assert "nodeheal policy apply FILE --merge" in found["pool demo"]


def test_a_retired_node_that_ssm_still_knows_is_known() -> None:
    retired = node(state=NodeState.RETIRED)
    machines = {"InstanceInformationList": [{"InstanceId": retired.instance_id, "PingStatus": "Online"}]}

    found = about_nodes(retired, describe_instance_information=machines)
    without = about_nodes(describe_instance_information=machines)

    assert [one.what for one in found if one.what in ("machines", "nodes")] == ["nodes"]
    assert "machines" in [one.what for one in without]


HEAD = "i-0c0000000000000ff"
ON_SLURM = node(scheduler=SchedulerKind.SLURM, cluster="lab", address="10.0.0.7", passed_at=NOW)


class Controllers:
    """The controllers of clusters, of which each gives this answer."""

    def __init__(self, answer: SlurmNode | Exception | None) -> None:
        self.answer, self.asked = answer, list[tuple[str, str]]()
        self.heads: dict[str, str] = {}
        self.out: tuple[NodeOut, ...] = ()

    def machines(self, cluster: str) -> dict[str, bool]:
        """As SlurmController."""
        return {name: ping == "Online" for name, ping in self.heads.items() if cluster == "lab"}

    def node_at(self, cluster: str, address: str) -> SlurmNode | None:
        """As SlurmController."""
        self.asked.append((cluster, address))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def report(self, cluster: str) -> SlurmReport:
        """As SlurmController."""
        return SlurmReport(self.out, ())


def about_slurm(controllers: Controllers, heads: dict[str, str], *nodes: Node) -> list[DoctorFinding]:
    """What is found where these nodes are, and these machines bear the tag of cluster lab. No ECS cluster exists."""
    ports = memory_ports(FrozenClock())
    for one in nodes:
        ports.nodes.save(one)

    controllers.heads = heads
    managed = [{"InstanceId": one.instance_id, "PingStatus": "Online"} for one in nodes]
    answers = Answers(
        describe_stacks=ROLE_STACK,
        describe_instance_information={"InstanceInformationList": managed},
        list_container_instances=_error("ClusterNotFoundException", "ListContainerInstances"),
    )
    made = Account(answers, lambda: ports, ACT.model_dump_json, REGISTRATIONS)
    look = slurm_look(lambda: controllers)  # type: ignore[arg-type, return-value]
    return [one for one in examine(made, (look,)) if "nodes" in one.what or "Slurm" in one.what]


@pytest.mark.parametrize(
    ("heads", "answer", "state", "told", "todo"),
    [
        ({}, None, BAD, "SSM knows no machine with the tag nodeheal:slurm-controller = lab", "tag the machine"),
        ({HEAD: "ConnectionLost"}, None, BAD, f"SSM does not reach its controller: {HEAD}", "amazon-ssm-agent"),
        ({HEAD: "Online"}, NotAccepted("not in 15 s"), BAD, "not in 15 s", "nodeheal-agent slurm doctor"),
        ({HEAD: "Online"}, NotEnrolled("denied"), UNKNOWN, "you may not query its", "nodeheal-operator-REGION"),
        ({HEAD: "Online"}, None, WARNING, "answers, but has no node at 10.0.0.7", "NodeAddr"),
        ({HEAD: "Online"}, SlurmNode("gpu7", "10.0.0.7", "idle"), GOOD, f"its controller answers: {HEAD}", ""),
    ],
)
def test_a_slurm_cluster_has_a_controller_that_is_tagged_reached_and_answers(
    heads: dict[str, str], answer: SlurmNode | Exception | None, state: str, told: str, todo: str
) -> None:
    controllers = Controllers(answer)

    [found] = [one for one in about_slurm(controllers, heads, ON_SLURM) if "Slurm" in one.what]

    assert (found.what, found.state) == ("Slurm cluster lab", state)
    assert told in found.detail
    assert todo in found.todo
    assert bool(found.todo) == (state != GOOD)
    assert controllers.asked == ([("lab", "10.0.0.7")] if "Online" in heads.values() else [])


def test_a_node_out_of_service_that_nodeheal_does_not_know_is_a_warning() -> None:
    controllers = Controllers(SlurmNode("gpu7", "10.0.0.7", "idle"))
    controllers.out = tuple(
        NodeOut(name, (address,), "down", "Not responding", "slurm", None, "Slurm")
        for name, address in (("gpu7", "10.0.0.7"), ("cpu1", "10.0.0.8"))
    )

    [found] = [one for one in about_slurm(controllers, {HEAD: "Online"}, ON_SLURM) if "Slurm" in one.what]

    assert found.state == WARNING
    assert "that nodeheal does not know, and repairs none of: cpu1" in found.detail


def test_a_controller_is_not_asked_before_a_node_has_said_where_it_is() -> None:
    controllers = Controllers(None)

    found = about_slurm(controllers, {HEAD: "Online"}, replace(ON_SLURM, address="", state=NodeState.ENROLLED))

    assert [one.state for one in found if "Slurm" in one.what] == [UNKNOWN]
    assert controllers.asked == []


def test_ecs_is_asked_only_about_clusters_of_its_nodes() -> None:
    other = replace(
        ON_SLURM,
        instance_id="mi-0f",
        node_id="mi-0f",
        pool="ecs",
        cluster=replace(ON_SLURM.cluster, kind=SchedulerKind.ECS),
    )

    only_slurm = about_slurm(Controllers(None), {}, ON_SLURM)
    both = about_slurm(Controllers(None), {}, ON_SLURM, other)

    assert not [one for one in only_slurm if "ListContainerInstances" in one.detail or "ECS" in one.detail]
    assert [one.state for one in both if "ListContainerInstances" in one.detail] == [UNKNOWN]


def test_where_no_node_is_on_slurm_it_is_not_mentioned() -> None:
    retired = replace(ON_SLURM, state=NodeState.RETIRED, instance_id="mi-0f", node_id="mi-0f")

    assert not [one for one in about_slurm(Controllers(None), {}, node(), retired) if "Slurm" in one.what]
