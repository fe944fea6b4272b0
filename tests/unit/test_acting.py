"""What people have the functions do: who asks, what is refused with which code, and what a repeat does."""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws

from lambdas import acting, composition, do_act, reconcile_records, request_job
from nodeheal.adapters.aws import calls
from nodeheal.api.acts import new_key
from nodeheal.contract import names
from nodeheal.contract.acts import ACT_BYTES, KEY_HEADER, WHY_CHARACTERS
from nodeheal.contract.vocabulary import ActKind, JobState, NodeState
from nodeheal.domain.errors import HalfDone, NotAccepted
from nodeheal.domain.records_epoch import Epoch
from nodeheal.services.operators import do_act as service
from stacks.acts_api import FUNCTION_OF
from tests.support.acts import ADA, http_request
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, stored_job, stored_node

FUNCTIONS = {"do_act": do_act, "request_job": request_job, "reconcile_records": reconcile_records}
SPEC = {"name": "llama", "pool": "demo", "nodes": 1, "image": "llama:3"}
A = "mi-0a1b2c3d4e5f60718"
ISOLATE = {"node": A, "why": "it smells"}
KEY = "0" * 32


class Context:
    """Of an invocation, with all its time left."""

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


class World:
    """The functions over ports in memory, and the table in which they remember what was asked for."""

    def __init__(self) -> None:
        self.ports = memory_ports(FrozenClock())
        self.ports.nodes.save(node(A, accelerators=8))

    def asks(self, kind: ActKind, body: Any, key: str = "", caller: str = ADA.id) -> tuple[int, Any]:
        """Status and body."""
        text = body if isinstance(body, str) else json.dumps(body)
        answer = FUNCTIONS[FUNCTION_OF[kind]].handler(http_request(kind, text, key or new_key(), caller), Context())
        assert answer is not None
        return answer["statusCode"], json.loads(answer["body"])

    @property
    def incidents(self) -> list[Any]:
        return list(self.ports.incidents.incidents.values())  # type: ignore[attr-defined]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    it = World()
    for module in FUNCTIONS.values():
        monkeypatch.setattr(module, "ports", lambda: it.ports)
        monkeypatch.setattr(module, "policy", lambda: ACT)
    monkeypatch.setattr(acting, "ports", lambda: it.ports)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv(names.ENV_TABLE, "state")
    caches = (calls.client, acting._remembers, composition.records)
    with mock_aws():
        for cached in caches:
            cached.cache_clear()
        boto3.client("dynamodb").create_table(
            TableName="state",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            BillingMode="PAY_PER_REQUEST",
        )
        yield it
    for cached in caches:
        cached.cache_clear()


def test_the_act_is_done_and_on_record_for_whom_aws_names(world: World) -> None:
    status, answer = world.asks(ActKind.ISOLATE, ISOLATE)

    [incident] = world.incidents
    assert (status, answer) == (
        200,
        {"kind": "RECOVERY_REQUESTED", "incident": incident.incident_id, "is_own": True},
    )
    assert incident.root.evidence == "ada: it smells"


def test_a_log_names_actor_and_act_and_holds_no_secret_of_a_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[Any] = []
    monkeypatch.setattr(composition.logger(), "info", lambda text, extra: logged.append(extra))

    world.asks(ActKind.SUBMIT_JOB, {"spec": {**SPEC, "environment": {"TOKEN": "s3cret"}}})

    assert [(line["actor"], line["act"]["kind"]) for line in logged] == [(ADA.id, "SUBMIT_JOB")]
    assert "s3cret" not in json.dumps(logged)


@pytest.mark.parametrize("name", ["actor", "who", "by"])
def test_nobody_can_say_who_they_are(world: World, name: str) -> None:
    status, answer = world.asks(ActKind.ISOLATE, {**ISOLATE, name: "root"})

    assert (status, answer["code"]) == (400, "INVALID")
    assert name in answer["text"]
    assert world.incidents == []


def test_without_a_caller_nothing_is_done(world: World) -> None:
    request = http_request(ActKind.ISOLATE, json.dumps(ISOLATE), KEY)
    request["requestContext"].pop("authorizer")

    answer = do_act.handler(request, Context())

    assert answer is not None
    assert answer["statusCode"] == 422
    assert world.incidents == []


DEEP = '{"spec": ' * 20_000


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ActKind.ISOLATE, ""),
        (ActKind.ISOLATE, "[]"),
        (ActKind.ISOLATE, {}),
        (ActKind.ISOLATE, {"node": A}),
        (ActKind.ISOLATE, {"node": A, "why": "  "}),
        (ActKind.ISOLATE, {"node": A, "why": "x" * (WHY_CHARACTERS + 1)}),
        (ActKind.ISOLATE, {"node": "node#i-1\n", "why": "x"}),
        (ActKind.ISOLATE, {**ISOLATE, "kind": "REPLACE"}),
        (ActKind.DIAGNOSE, {**ISOLATE, "level": "4"}),
        (ActKind.DIAGNOSE, {**ISOLATE, "level": 5}),
        (ActKind.APPROVE, {"incident": "incident#1", "turn": 1, "why": "x"}),
        (ActKind.APPROVE, {"incident": "inc-1", "turn": -1, "why": "x"}),
        (ActKind.ENROLL, {**ISOLATE, "pool": "pool#x"}),
        (ActKind.ENROLL, {**ISOLATE, "pool": "demo", "state": "HEALTHY"}),
        (ActKind.RESET_BREAKER, {"pool": "", "why": "x"}),
        (ActKind.RECONCILE, {"why": "x", "is_to_apply": "yes"}),
        (ActKind.SUBMIT_JOB, {}),
        (ActKind.SUBMIT_JOB, {"spec": {**SPEC, "state": "RUNNING"}}),
        (ActKind.SUBMIT_JOB, {"spec": {**SPEC, "current_run": 3}}),
        (ActKind.SUBMIT_JOB, {"spec": {**SPEC, "nodes": "2"}}),
        (ActKind.SUBMIT_JOB, {"spec": {**SPEC, "nodes": 0}}),
        (ActKind.SUBMIT_JOB, {"spec": {**SPEC, "name": "llama\nNeeded: click http://x.example"}}),
        (ActKind.SUBMIT_JOB, {"spec": SPEC, "task_token": "t"}),
        (ActKind.SUBMIT_JOB, {"spec": {**SPEC, "command": ["\ud800"]}}),
        (ActKind.SUBMIT_JOB, DEEP),
        (ActKind.STOP_JOB, {"job": "llama", "why": ""}),
        (ActKind.STOP_JOB, {"job": "job#llama", "why": "x"}),
        (ActKind.RESTART_JOB, {"job": "llama", "submission": 7}),
        (ActKind.RESTART_JOB, {"job": "x" * 200}),
    ],
    ids=lambda value: value if isinstance(value, ActKind) else None,
)
def test_what_is_no_act_is_refused_as_invalid_and_nothing_is_done(world: World, kind: ActKind, body: Any) -> None:
    status, answer = world.asks(kind, body)

    assert (status, answer["kind"], answer["code"]) == (400, "REFUSED", "INVALID")
    assert answer["text"]
    assert (world.incidents, world.ports.jobs.get("llama")) == ([], None)


def test_a_body_that_is_too_large_is_not_parsed(world: World) -> None:
    status, answer = world.asks(ActKind.ISOLATE, json.dumps({**ISOLATE, "why": "x" * ACT_BYTES}))

    assert (status, answer["text"]) == (422, f"the request has more than {ACT_BYTES} bytes")


@pytest.mark.parametrize("key", ["", "1", "g" * 32, "0" * 33])
def test_an_act_needs_a_key(world: World, key: str) -> None:
    answer = do_act.handler(http_request(ActKind.ISOLATE, json.dumps(ISOLATE), key), Context())

    assert answer is not None
    assert (answer["statusCode"], KEY_HEADER in answer["body"]) == (400, True)
    assert world.incidents == []


def test_a_function_knows_only_the_routes_of_its_own_acts(world: World) -> None:
    with pytest.raises(KeyError):
        request_job.handler(http_request(ActKind.ISOLATE, json.dumps(ISOLATE), KEY), Context())

    assert world.incidents == []


def test_an_act_that_is_sent_again_is_done_once_and_answers_as_before(world: World) -> None:
    first, again = world.asks(ActKind.ISOLATE, ISOLATE, KEY), world.asks(ActKind.ISOLATE, ISOLATE, KEY)

    assert first == again
    assert len(world.incidents) == 1


@pytest.mark.parametrize("broken", ["its answer", "workflows.start"])
def test_an_act_whose_function_died_before_it_answered_is_found_by_its_key(
    world: World, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    with monkeypatch.context() as patched:
        if broken == "workflows.start":
            patched.setattr(world.ports.workflows, "start", dies)
        else:
            patched.setattr(service, "taken_by", dies)
        with pytest.raises(RuntimeError, match="it died"):
            world.asks(ActKind.ISOLATE, ISOLATE, KEY)

    status, answer = world.asks(ActKind.ISOLATE, ISOLATE, KEY)

    [incident] = world.incidents
    assert (status, answer["incident"], answer["is_own"]) == (200, incident.incident_id, True)
    assert incident.incident_id in world.ports.workflows.started  # type: ignore[attr-defined]


def dies(*asked: Any) -> Any:
    raise RuntimeError("it died")


@pytest.mark.parametrize("kind", [ActKind.SUBMIT_JOB, ActKind.RESTART_JOB])
def test_a_submission_whose_function_died_is_found_by_its_key(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: ActKind
) -> None:
    body: dict[str, Any] = {"spec": SPEC}
    if kind is ActKind.RESTART_JOB:
        world.asks(ActKind.SUBMIT_JOB, body)
        job = stored_job(world.ports, "llama")
        world.ports.jobs.save(replace(job, state=JobState.COMPLETED))
        body = {"job": "llama"}
    with monkeypatch.context() as patched:
        patched.setattr(world.ports.workflows, "run_job", dies)
        with pytest.raises(RuntimeError, match="it died"):
            world.asks(kind, body, KEY)

    status, answer = world.asks(kind, body, KEY)

    job = stored_job(world.ports, "llama")
    assert (status, answer["submission"], job.submitted_by) == (200, job.submission, "ada")
    assert world.ports.workflows.jobs_started[-1] == ("llama", job.submission)  # type: ignore[attr-defined]


def test_a_machine_without_the_tag_is_not_recorded(world: World) -> None:
    world.ports.enrolment_tags.without.add("i-0abc")  # type: ignore[attr-defined]

    enroll = {"node": "i-0abc", "pool": "demo", "cluster": "training", "scheduler": "ECS", "why": "new"}
    status, answer = world.asks(ActKind.ENROLL, enroll)

    assert (status, answer["code"]) == (503, "NOT_NOW")
    assert "i-0abc carries no tag nodeheal:managed" in answer["text"]
    assert world.ports.nodes.get("i-0abc") is None


def test_an_answer_to_what_was_never_asked_leaves_no_trace(world: World) -> None:
    world.asks(ActKind.ISOLATE, ISOLATE)
    [incident] = world.incidents

    status, answer = world.asks(ActKind.APPROVE, {"incident": incident.incident_id, "turn": 99, "why": "yes"})

    assert (status, answer["code"]) == (409, "CONFLICT")
    assert all(entry.kind != "answer" for entry in world.ports.incidents.history(incident.incident_id).timeline)


def test_a_body_that_is_no_text_is_named(world: World) -> None:
    request = http_request(ActKind.ISOLATE, b64encode(b"\xff\xfe").decode(), KEY)

    answer = do_act.handler({**request, "isBase64Encoded": True}, Context())

    assert answer is not None
    assert (answer["statusCode"], json.loads(answer["body"])["text"]) == (400, "the body is no UTF-8 text")


def test_a_key_is_of_one_act_and_of_one_caller(world: World) -> None:
    world.asks(ActKind.ISOLATE, ISOLATE, KEY)

    other_act = world.asks(ActKind.RETIRE, ISOLATE, KEY)
    other_caller = world.asks(ActKind.ISOLATE, ISOLATE, KEY, caller="arn:aws:iam::123456789012:user/bob")

    assert other_act[1]["text"] == f"{KEY_HEADER}: this key was used for another act"
    assert "has an open incident" in other_caller[1]["text"]


def test_an_act_that_is_being_done_is_not_begun_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile: list[tuple[int, Any]] = []
    done = service.do_act

    def slow(*asked: Any) -> Any:
        meanwhile.append(world.asks(ActKind.ISOLATE, ISOLATE, KEY))
        return done(*asked)

    monkeypatch.setattr(do_act, "do_act", slow)

    status, _ = world.asks(ActKind.ISOLATE, ISOLATE, KEY)

    assert status == 200
    assert [(s, body["code"]) for s, body in meanwhile] == [(409, "IN_PROGRESS")]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(NotAccepted("busy"), 503, "NOT_NOW"), (HalfDone("one of two"), 409, "HALF_DONE")],
)
def test_what_could_not_be_finished_is_tried_again_with_the_same_key(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    def breaks(*asked: Any) -> Any:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(do_act, "do_act", breaks)
        refused = world.asks(ActKind.ISOLATE, ISOLATE, KEY)
    again = world.asks(ActKind.ISOLATE, ISOLATE, KEY)

    assert (refused[0], refused[1]["code"], refused[1]["text"]) == (status, code, str(error))
    assert again[0] == 200


@pytest.mark.parametrize(
    ("kind", "body", "status", "code"),
    [
        (ActKind.ISOLATE, {**ISOLATE, "node": "mi-0unknown"}, 404, "NOT_FOUND"),
        (ActKind.RESTART_JOB, {"job": "x"}, 404, "NOT_FOUND"),
        (ActKind.RELEASE, ISOLATE, 422, "UNFIT"),
        (ActKind.SUBMIT_JOB, {"spec": {**SPEC, "pool": "nowhere"}}, 422, "UNFIT"),
    ],
)
def test_a_refusal_says_of_what_kind_it_is(world: World, kind: ActKind, body: Any, status: int, code: str) -> None:
    found, answer = world.asks(kind, body)

    assert (found, answer["code"]) == (status, code)
    assert stored_node(world.ports, A).state is NodeState.HEALTHY


def test_a_fault_of_ours_is_no_refusal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(node_id: str) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(world.ports.nodes, "get", breaks)

    with pytest.raises(RuntimeError):
        world.asks(ActKind.ISOLATE, ISOLATE)


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        (ActKind.ISOLATE, ISOLATE, "NOT_NOW"),
        (ActKind.RESTART_JOB, {"job": "x"}, "NOT_NOW"),
        (ActKind.RECONCILE, {"why": "restored"}, None),
    ],
)
def test_while_the_records_went_back_only_what_sets_them_right_is_done(
    world: World, kind: ActKind, body: Any, code: str | None
) -> None:
    world.ports.epoch.renew(Epoch(), NOW - timedelta(hours=1))
    world.ports.epoch.outside = NOW  # type: ignore[attr-defined]

    status, answer = world.asks(kind, body)

    assert (status, answer.get("code")) == (503 if code else 200, code)


@pytest.mark.parametrize("module", FUNCTIONS.values())
def test_a_ping_asks_for_nothing(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    monkeypatch.setattr(composition, "ports", lambda: None)
    monkeypatch.setattr(composition, "reads_policy", lambda: False)

    assert module.handler(names.KEEP_WARM, None) is None
