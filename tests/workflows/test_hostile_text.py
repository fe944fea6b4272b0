"""Hostile text in every field that a node or a person can fill reaches people as text, and as nothing more (S5, S10).

Stories are played in which every string of every event, and of what people type, holds the payload, wherever the
contract takes it. Then all that people read is looked at: emails, the page behind a link, tables, JSON, errors.
"""

import json
import re
import shlex
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel, ValidationError
from typer.testing import CliRunner

from nodeheal.cli import connect
from nodeheal.cli.main import app
from nodeheal.contract.health_event import NodeFact
from nodeheal.contract.vocabulary import Action, Verdict
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.services.operators import approval_page
from nodeheal.services.operators.operator_guardrails import pause_node, pause_pool
from tests.support.acts import requested
from tests.support.approvals import both
from tests.support.builders import ACT, xid
from tests.support.fake_cluster import BROKEN, PEER, SPARE, FakeCluster
from tests.support.hostile_text import PAYLOADS
from tests.support.walker import STATE_MACHINES, Error, Json, load, walk

STEMS = sorted(path.name.removesuffix(".asl.json") for path in STATE_MACHINES.glob("*.asl.json"))

# What says whom and what an event is about: there the contract takes no text at all, as tests of its own say.
IDENTITY = {"node_id", "instance_id", "boot_id", "request_id", "event_id", "cluster", "pool", "schema_version"}
KNOWN = {"code", "family", "source", "verdict", "object_key", "directory", "path"}  # on which the story turns
Fact = TypeVar("Fact", bound=BaseModel)
RUN = CliRunner()


def poisoned(fact: Fact, payload: str) -> Fact:
    """The event with the payload in every string that takes it, cut to what the field holds."""
    said = fact.model_dump(mode="json")
    for name in said.keys() - IDENTITY - KNOWN:
        for value in _in_place_of(said[name], payload):
            try:
                taken = type(fact).model_validate({**said, name: value})
            except ValidationError:
                continue
            said = taken.model_dump(mode="json")
            break
    return type(fact).model_validate(said)


def _in_place_of(value: object, payload: str) -> Iterator[object]:
    for characters in (len(payload), 8_192, 1_000, 300, 128, 64):
        text = payload[:characters]
        yield from (text, [text], {text: "x"}, {"x": text}, {text: text}, {text: 1.0})
        if isinstance(value, list):
            yield [{**one, "reason": text} if isinstance(one, dict) else text for one in value]


class HostileCluster(FakeCluster):
    """Its nodes say the payload wherever they may."""

    def __init__(self, payload: str, policy: RecoveryPolicy = ACT) -> None:
        self.payload = payload
        super().__init__(policy)

    def _ingest(self, event: Any) -> None:
        super()._ingest(poisoned(event, self.payload))

    def _wakes(self, take: Any, told: Any) -> None:
        super()._wakes(take, poisoned(told, self.payload) if isinstance(told, NodeFact) else told)


APPROVE = RecoveryPolicy.model_validate(
    {**ACT.model_dump(mode="json"), "default_pool": {**ACT.default_pool.model_dump(mode="json"), "mode": "approve"}}
)


def recovers(payload: str) -> FakeCluster:
    it = HostileCluster(payload)
    it.reports(xid(79))
    return it


def is_handed_over(payload: str) -> FakeCluster:
    it = HostileCluster(payload)
    it.diagnoses = {BROKEN: Verdict.FAILED, PEER: Verdict.FAILED, SPARE: Verdict.FAILED}
    it.reports(xid(79))
    return it


def is_unknown(payload: str) -> FakeCluster:
    it = HostileCluster(payload)
    it.reports(xid(999))
    return it


def is_asked_for_by_hand(payload: str) -> FakeCluster:
    it = HostileCluster(payload)
    it.reports(requested(BROKEN, Action.REBOOT, payload[:1_000], it.ports))
    pause_node(PEER, 3_600, payload[:200], it.ports)
    pause_pool("demo", 3_600, payload[:200], it.ports)
    return it


def needs_approval(payload: str) -> FakeCluster:
    it = HostileCluster(payload, APPROVE)
    it.reports(xid(79))
    return it


STORIES = (recovers, is_handed_over, is_unknown, is_asked_for_by_hand, needs_approval)
PLAYED = [
    pytest.param(story, payload, id=f"{story.__name__}-{name}")
    for story in STORIES
    for name, payload in PAYLOADS.items()
]


@pytest.mark.parametrize(("story", "payload"), PLAYED)
def test_no_email_holds_more_than_text(story: Any, payload: str) -> None:
    it = story(payload)
    mails = [told for _, told in it.ports.notifier.announced]

    assert mails
    for mail in mails:
        assert mail.subject.isprintable() and len(mail.subject) < 100, mail.subject
        assert all(line.isprintable() for line in mail.body.split("\n")), mail.body
        # Wherever a phone breaks a line of it, only ours asks for something.
        assert mail.body.count("Needed:") == 1, mail.body
        assert [len(re.findall(rf"(?i)\b{label}:", mail.body)) > 1 for label in ("needed", "approve", "refuse")] == (
            [False] * 3
        ), mail.body
        assert not re.search(r"(?i)(https?://|mailto:|www\.)\S*evil", mail.subject + mail.body), mail.body
        assert not re.search(r"(?i)evil\.example(:\d+)?[/?]", mail.subject + mail.body), mail.body
        assert len(mail.body) < 30_000
        for line in commands_of(mail.body):
            assert runs_one_command(line), line


def commands_of(body: str) -> list[str]:
    """The lines that an email asks people to paste."""
    return [line.strip() for line in body.split("\n") if re.match(r"\s+(nodeheal|aws|make) ", line)]


def runs_one_command(line: str) -> bool:
    """Whether a shell would run this one command, with plain words."""
    split = list(shlex.shlex(line, posix=True, punctuation_chars=True))
    return not {";", "|", "||", "&", "&&", "<", ">", "(", ")"} & set(split) and "`" not in line and "$(" not in line


COMMANDS = (
    ("incidents", "list"),
    ("incidents", "show", "INCIDENT"),
    ("incidents", "export", "--since", "30d"),
    ("nodes", "list", "demo"),
    ("nodes", "show", BROKEN),
    ("nodes", "show", PEER),
    ("jobs", "list"),
    ("jobs", "show", "llama"),
    ("breaker", "show", "demo"),
    ("nodes", "list", "PAYLOAD"),
    ("nodes", "show", "PAYLOAD"),
    ("incidents", "show", "PAYLOAD"),
    ("jobs", "show", "PAYLOAD"),
)
JSON = (
    *((*words, "--json") for words in COMMANDS if words[1] != "export"),
    ("incidents", "export", "--format", "json"),
)


@pytest.mark.parametrize(("story", "payload"), PLAYED)
def test_no_command_prints_more_than_text(story: Any, payload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    it = story(payload)
    monkeypatch.setattr(connect, "ports", lambda table: it.ports)
    monkeypatch.setattr(connect, "policy", lambda: it.policy)
    monkeypatch.setattr(connect, "execution_url", lambda incident: "https://console.example/")

    for words in (*COMMANDS, *JSON):
        named = [it.incident_id if w == "INCIDENT" else payload[:100] if w == "PAYLOAD" else w for w in words]
        answer = RUN.invoke(app, named)
        assert answer.exception is None or isinstance(answer.exception, SystemExit), (words, answer.exception)
        printed = answer.output
        assert all(line.isprintable() for line in printed.split("\n")), (words, printed)
        assert not re.search(r"(?m)^(Needed|Evil)", printed), (words, printed)
        if words in JSON and answer.exit_code == 0:
            assert printed.isascii(), words
            json.loads(printed)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_an_export_holds_no_markup_of_others(payload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    it = is_handed_over(payload)
    monkeypatch.setattr(connect, "ports", lambda table: it.ports)

    page = RUN.invoke(app, ["incidents", "export", "--since", "30d"]).output

    assert not re.search(r"(?<!\\)<(script|img)", page)
    assert not re.search(r"(?<!\\)\]\(https?://evil", page)
    assert not re.search(r"(?m)^# Evil|^=", page)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags |= {tag, *(name for name, _ in attrs)}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_the_page_that_asks_holds_no_markup_of_others(payload: str) -> None:
    seen, it = _Tags(), needs_approval(payload)
    history = it.ports.incidents.history(it.incident_id)

    seen.feed(approval_page.question(history, history.incident.turn, both(), it.ports))

    assert not seen.tags & {"script", "img", "onerror", "iframe"}


# What the workflows publish by themselves: no function has looked at it.
ASKED_FOR: dict[str, Json] = {
    "recover_node": {"incident_id": "inc-20261121T055031-mi-0000000a-0123456789", "node_id": "mi-0000000a"},
    "run_job": {"job_id": "llama", "submission": 1},
}
BREAKS: dict[str, Json] = {"Open incident": Error("Boom"), "Choose nodes": Error("Boom")}


def paging_states() -> Iterator[tuple[str, str]]:
    for stem in STEMS:
        for name, state in load(stem)["States"].items():
            if str(state.get("Resource", "")).endswith(":sns:publish"):
                yield stem, name


def published(stem: str, state: str, given: Json, **breaks: Json) -> list[Json]:
    """What the state publishes where the first task breaks."""
    answers = {**BREAKS, **breaks, state: {}, "Mark escalated": {}, "Mark job escalated": {}}
    return walk(stem, given, answers).arguments_of(state)


def fields() -> Iterator[tuple[str, str, str]]:
    yield from ((stem, state, name) for stem, state in paging_states() for name in ASKED_FOR[stem])


@pytest.mark.parametrize("payload", [*PAYLOADS, "200 characters"])
@pytest.mark.parametrize(("stem", "state", "name"), list(fields()))
def test_a_page_of_a_workflow_holds_no_free_text_of_its_input(stem: str, state: str, name: str, payload: str) -> None:
    hostile = PAYLOADS.get(payload, "x" * 200)
    [usual] = published(stem, state, ASKED_FOR[stem])

    for told in (hostile, f"llama{hostile}", f"{hostile}\nllama"):
        for message in published(stem, state, {**ASKED_FOR[stem], name: told}):
            _is_plain(message, usual)


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize(("stem", "state"), list(paging_states()))
def test_a_page_of_a_workflow_holds_no_more_of_an_error_than_words(stem: str, state: str, payload: str) -> None:
    [usual] = published(stem, state, ASKED_FOR[stem])
    cause = Error("Boom", PAYLOADS[payload])

    [message] = published(stem, state, ASKED_FOR[stem], **{"Open incident": cause, "Choose nodes": cause})

    _is_plain(message, usual)


def _is_plain(message: Json, usual: Json) -> None:
    """It has the lines of the usual one, and in them nothing that a mail program makes a link of."""
    assert len(message["Message"].splitlines()) == len(usual["Message"].splitlines())
    texts = [message["Message"], message["Subject"], *(v["StringValue"] for v in message["MessageAttributes"].values())]
    for text in texts:
        assert not re.search(r"://|www\.|mailto:|[<>`$\x1b\x85\u2028\u2029\u202e]|example[/?]", text), text
        assert all(len(word) <= 128 for word in text.split()), text
    assert message["Subject"].isprintable()
    assert len(message["Subject"]) < 100


def test_every_workflow_pages_by_itself() -> None:
    assert {stem for stem, _ in paging_states()} == set(STEMS) == set(ASKED_FOR)
