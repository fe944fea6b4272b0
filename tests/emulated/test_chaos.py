"""The whole recovery while the functions' calls are refused, break, or are answered to nobody, and AWS's events come
twice and out of order: with IAM enforced it ends as it does on a quiet day, and leaves nothing behind."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from nodeheal.contract import names
from sandbox.client import Sandbox
from sandbox.report import judge, make_report
from sandbox.script import Script
from sandbox.stories import STORIES
from sandbox.story import Story
from tests.emulated.chaos import BROKEN, THROTTLED, UNANSWERED, Chaos, Plan, operation_of
from tests.support.builders import xid
from tests.support.until import until

pytestmark = pytest.mark.emulated

SEED = "a bad day"
OBSERVED_CODE = 92
# A job on two nodes, a question that a person answers by its link, a reboot, diagnostics, the restart: most of it all.
SCRIPT = replace(STORIES["approval-given"].script, boot_seconds=1.5, steps=120, step_seconds=0.06)
# A new machine is launched, proven and put in the broken one's place, which is terminated: what EC2 is asked for.
REPLACED = replace(
    STORIES["replaced-from-template"].script,
    pool="replaced",
    job="replaced",
    boot_seconds=1.5,
    steps=120,
    step_seconds=0.06,
)


@dataclass(frozen=True)
class Told:
    """What there is to look into when the story is over."""

    sandbox: Sandbox
    chaos: Chaos
    story: Story
    report: dict[str, Any]


class OnABadDay(Story):
    """The step that tells an owner of a start may find that a fault has stopped the job already: he hears that then."""

    @property
    def owner_mails(self) -> tuple[str, ...]:
        start, *rest = super().owner_mails
        was_told = any(subject.startswith(start) for subject, _ in self.told.owner_mails)
        return (start, *rest) if was_told else tuple(rest)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sandbox, Chaos]]:
    with Sandbox(tmp_path_factory.mktemp("chaos"), boot_seconds=SCRIPT.boot_seconds) as sandbox:
        sandbox.deploy()
        sandbox.behave(duplicate_events=True, reorder_events=True)
        with Chaos(sandbox, Plan(SEED)) as chaos:
            yield sandbox, chaos


def played(day: tuple[Sandbox, Chaos], script: Script) -> Told:
    """The story, to its end."""
    story = OnABadDay(day[0], script, lambda told, text: None)
    story.play()
    return Told(*day, story, make_report(story))


@pytest.fixture(scope="module")
def told(day: tuple[Sandbox, Chaos]) -> Told:
    return played(day, SCRIPT)


@pytest.fixture(scope="module")
def replaced(day: tuple[Sandbox, Chaos]) -> Told:
    return played(day, REPLACED)


@pytest.fixture(params=["told", "replaced"])
def each(request: pytest.FixtureRequest) -> Told:
    """Either of the two stories, which are played in one cloud, one after the other."""
    story: Told = request.getfixturevalue(request.param)
    return story


def items(sandbox: Sandbox) -> list[dict[str, Any]]:
    """Everything in the table."""
    pages = sandbox.client("dynamodb").get_paginator("scan").paginate(TableName=sandbox.outputs["TableName"])
    return [item for page in pages for item in page["Items"]]


def undelivered(sandbox: Sandbox) -> dict[str, list[str]]:
    """The messages of each queue that holds any, in flight or not ("in flight" for those that cannot be read now);
    those of people's mailboxes apart."""
    sqs = sandbox.client("sqs")
    bodies = {}
    for url in [url for url in sqs.list_queues()["QueueUrls"] if "mailbox" not in url]:
        held = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        if any(int(n) for name, n in held.items() if name.startswith("ApproximateNumber")):
            answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
            bodies[url.rpartition("/")[2]] = [m["Body"] for m in answer.get("Messages", [])] or ["in flight"]
    return bodies


def test_it_ends_as_on_a_quiet_day(told: Told) -> None:
    assert judge(told.story, told.report).wrong == ()
    assert told.report["attempts"] == {"REBOOT": 1}
    assert told.report["finished"] is True


def test_a_machine_is_replaced_as_on_a_quiet_day_and_one_is_launched(replaced: Told) -> None:
    broken, client = replaced.story.told.broken, replaced.sandbox.client("ec2")

    machines = [one for found in client.describe_instances()["Reservations"] for one in found["Instances"]]

    states = {one["InstanceId"]: one["State"]["Name"] for one in machines}
    launched = [one["InstanceId"] for one in machines if names.LAUNCH_TAG in {tag["Key"] for tag in one["Tags"]}]
    assert judge(replaced.story, replaced.report).wrong == ()
    assert (states.pop(broken), replaced.report["attempts"]) == ("terminated", {"REPLACE": 1})
    assert len(launched) == 1
    # No orphan: what runs is what the table knows, and serves.
    serving = {node.node_id for node in replaced.story.ports.nodes.in_pool(REPLACED.pool) if node.node_id != broken}
    assert ({name for name, state in states.items() if state == "running"}, len(serving)) == (serving, REPLACED.nodes)


def test_it_was_a_bad_day(told: Told) -> None:
    done = told.chaos.plan.done

    assert set(done) == {THROTTLED, BROKEN, UNANSWERED}
    assert sum(done.values()) > 20


def test_nothing_is_left_waiting_held_or_undelivered(each: Told) -> None:
    left = items(each.sandbox)

    operations = [item for item in left if item["pk"]["S"].startswith(names.OPERATIONS_PREFIX)]
    assert operations
    assert [item["pk"]["S"] for item in operations if item["token"]["S"]] == []  # no workflow waits for any
    assert [item["pk"]["S"] for item in left if item["sk"]["S"] == names.LEASE_SK] == []
    assert [item["pk"]["S"] for item in left if item["sk"]["S"].startswith(names.SLOT_PREFIX)] == []
    assert {run["status"] for run in each.report["executions"]} == {"SUCCEEDED"}
    # The last mail is in a mailbox a moment before the function that sent it returns, which deletes its message.
    until(lambda: not undelivered(each.sandbox), "set of queues that are all empty")


def test_each_thing_was_told_once(each: Told) -> None:
    subjects = [subject for subject, _ in (*each.story.told.mails, *each.story.told.owner_mails)]

    assert len(subjects) == len(set(subjects)) > 2


def test_nothing_that_is_kept_holds_a_token_a_signature_or_the_key(told: Told) -> None:
    secret = told.sandbox.outputs["ApprovalKeyArn"]
    key = told.sandbox.client("secretsmanager").get_secret_value(SecretId=secret)["SecretString"]
    links = [line for _, body in told.story.told.mails for line in body.split() if "signature=" in line]
    signatures = {link.partition("signature=")[2].strip(".>") for link in links}

    kept = {
        "the logs": logs(told.sandbox),
        "the table": json.dumps(items(told.sandbox)),
        "inputs and results of workflows": workflows(told.sandbox),
        "parameters of commands": "\n".join(told.chaos.parameters),
        "emails to the owner": json.dumps(told.story.told.owner_mails),
    }

    assert len(told.chaos.tokens) > 5
    assert len(signatures) > 1
    assert "step asked" in kept["the logs"]
    for where, text in kept.items():
        for secret in (key, *told.chaos.tokens, *signatures):
            assert secret not in text, where


def test_what_lies_in_the_dead_letter_queue_can_be_redriven(told: Told) -> None:
    sqs, node_id = told.sandbox.client("sqs"), f"mi-{uuid.uuid4().hex[:17]}"
    dead, events = (
        sqs.get_queue_url(QueueName=name)["QueueUrl"] for name in ("nodeheal-events-dead", "nodeheal-events")
    )
    event = xid(
        OBSERVED_CODE, node_id=node_id, instance_id=node_id, event_id=uuid.uuid4().hex, observed_at=datetime.now(UTC)
    )
    lost = {"source": names.AGENT_SOURCE, "detail-type": names.NODE_HEALTH_REPORTED}
    told.sandbox.voices.enrols(node_id)
    signed = told.sandbox.voices.signed(node_id, names.NODE_HEALTH_REPORTED, event.model_dump_json())
    sqs.send_message(QueueUrl=dead, MessageBody=json.dumps({**lost, "detail": json.loads(signed)}))

    for message in sqs.receive_message(QueueUrl=dead)["Messages"]:  # the emulator has no StartMessageMoveTask
        sqs.send_message(QueueUrl=events, MessageBody=message["Body"])
        sqs.send_message(QueueUrl=events, MessageBody=message["Body"])
        sqs.delete_message(QueueUrl=dead, ReceiptHandle=message["ReceiptHandle"])

    told.story.wait(lambda: told.story.ports.nodes.get(node_id) is not None, "the event has been taken")
    told.story.wait(lambda: "nodeheal-events-dead" not in undelivered(told.sandbox), "the dead-letter queue is empty")


def logs(sandbox: Sandbox) -> str:
    """Everything that functions and workflows have written down."""
    client, lines = sandbox.client("logs"), []
    for page in client.get_paginator("describe_log_groups").paginate():
        for group in page["logGroups"]:
            found = client.get_paginator("filter_log_events").paginate(logGroupName=group["logGroupName"])
            lines += [event["message"] for events in found for event in events["events"]]
    return "\n".join(lines)


def workflows(sandbox: Sandbox) -> str:
    """What every execution was started with, and what it answered."""
    client, found = sandbox.client("stepfunctions"), []
    for machine in client.list_state_machines()["stateMachines"]:
        for run in client.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]:
            described = client.describe_execution(executionArn=run["executionArn"])
            found += [described.get("input", ""), described.get("output", "")]
    return "\n".join(found)


@pytest.mark.parametrize(
    ("path", "target", "body", "operation"),
    [
        ("/", "DynamoDB_20120810.PutItem", b"{}", "PutItem"),
        ("/", "", b"Action=RunInstances&Version=1", "RunInstances"),
        ("/configurationsessions", "", b"{}", "configurationsessions"),
    ],
)
def test_the_proxy_knows_what_is_asked(path: str, target: str, body: bytes, operation: str) -> None:
    assert operation_of(path, target, body) == operation


def test_the_same_seed_is_the_same_day_and_spares_what_has_just_failed() -> None:
    one, other = Plan("seed", rate=0.5), Plan("seed", rate=0.5)

    days = [[plan.fault("PutItem") for _ in range(200)] for plan in (one, other)]

    assert days[0] == days[1]
    assert not any(first and second for first, second in zip(days[0], days[0][1:], strict=False))
    assert {Plan("seed", rate=1.0).fault("SendCommand"), THROTTLED} == {THROTTLED}


def test_what_has_failed_is_spared_when_it_is_asked_again_whatever_others_ask_between() -> None:
    plan = Plan("seed", rate=1.0)

    first, of_others, again = (plan.fault("PutItem", asked) for asked in (b"one", b"two", b"one"))

    assert (first is not None, of_others is not None, again) == (True, True, None)
