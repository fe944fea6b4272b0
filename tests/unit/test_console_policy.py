"""The console's pages of the policy: nothing is applied unseen, over another change, or without a reason."""

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from nodeheal.adapters.aws.policy_documents import PolicyDocuments
from nodeheal.api.client import Client
from nodeheal.domain.errors import NotAccepted
from nodeheal.domain.policy.policy_models import PoolPolicy
from nodeheal.services.intake.ingest import ingest
from tests.support.acts import MemoryControlPlane
from tests.support.appconfig import PLACE, FakeAppConfig
from tests.support.builders import ACT, memory_ports, node, xid
from tests.support.console import PageAnswer, ServedConsole, deployment_of, served

HOSTILE = "<script>alert(1)</script>"
OBSERVING = json.dumps({"default_pool": {"mode": "observe"}}, indent=2) + "\n"
ACTING = json.dumps({"default_pool": {"mode": "act"}}, indent=2) + "\n"
REFUSED = '{"default_pool": {"mode": "destroy"}}'


@pytest.fixture
def appconfig() -> FakeAppConfig:
    return FakeAppConfig()


@pytest.fixture
def documents(appconfig: FakeAppConfig) -> PolicyDocuments:
    """With one document in force."""
    documents = PolicyDocuments(appconfig, PLACE)
    documents.apply(OBSERVING, "user/grace: a quiet start")
    return documents


@pytest.fixture
def client() -> Client:
    ports = memory_ports()
    ports.nodes.save(node())
    return Client(ports, lambda: ACT, MemoryControlPlane(ports, ACT))


@pytest.fixture
def console(client: Client, documents: PolicyDocuments) -> Iterator[ServedConsole]:
    with served(client, deployment_of(client, documents=lambda: documents)) as console:
        console.enter()
        yield console


def shown(answer: PageAnswer) -> str:
    """The token of the change that a page shows, with which it may be applied; empty: it may not."""
    buttons: list[str] = re.findall(r'name="shown" value="(\w+)"', answer.text)
    return buttons[0] if buttons else ""


def text_of(answer: PageAnswer) -> str:
    """The text in the editor."""
    [text] = re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", answer.text, re.DOTALL)
    return unescape(text)


def compared(console: ServedConsole, text: str, over: int = 1) -> PageAnswer:
    return console.post("/policy/change", {"document": text, "over": str(over)})


def applied(console: ServedConsole, text: str, over: int = 1, why: str = "we trust it") -> PageAnswer:
    """As a person applies it who has looked at the change."""
    form = {"document": text, "over": str(over), "why": why}
    return console.post("/policy", {**form, "shown": shown(compared(console, text, over))})


def test_the_document_in_force_is_shown_with_who_applied_it_and_when(console: ServedConsole) -> None:
    page = console.get("/policy")
    assert "user/grace: a quiet start" in page.text
    assert "AppConfig version 1" in page.text
    assert text_of(page) == OBSERVING


def test_a_change_is_shown_with_what_each_setting_means_and_which_faults_it_touches(console: ServedConsole) -> None:
    text = unescape(compared(console, ACTING).text)
    assert "default_pool.mode" in text
    assert str(PoolPolicy.model_fields["mode"].description) in text
    assert re.search(r"\d+ faults would be treated differently", text)
    assert "xid/79" in text


def test_a_name_of_a_pool_that_is_not_there_is_noted(console: ServedConsole) -> None:
    text = compared(console, '{"pools": {"demoo": {"mode": "act"}, "demo": {}}}').text
    assert "No node is enrolled in demoo:" in text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [(REFUSED, "default_pool.mode"), ('{"shoe_size": 44}', "shoe_size"), ("{", "it is not JSON")],
)
def test_a_document_that_is_refused_names_the_field_and_is_not_lost(
    console: ServedConsole, appconfig: FakeAppConfig, text: str, complaint: str
) -> None:
    looked_at = compared(console, text)
    assert complaint in looked_at.text
    assert shown(looked_at) == ""

    answer = applied(console, text, why="by mistake")

    assert answer.status == 400
    assert complaint in answer.text
    assert text_of(answer) == text
    assert 'value="by mistake"' in answer.text
    assert len(appconfig.stored) == 1


def test_a_change_is_applied_with_the_reason_and_the_name(console: ServedConsole, documents: PolicyDocuments) -> None:
    answer = applied(console, ACTING)

    assert answer.status == 303
    assert "<strong>Applied.</strong>" in console.get(answer.headers["location"]).text
    in_force = documents.in_force()
    assert (in_force.text, in_force.version, in_force.why) == (ACTING, 2, "user/ada: we trust it")


def test_the_ends_of_lines_that_a_browser_sends_are_those_that_were_shown(
    console: ServedConsole, documents: PolicyDocuments
) -> None:
    form = {"document": ACTING.replace("\n", "\r\n"), "over": "1", "why": "x"}
    console.post("/policy", {**form, "shown": shown(compared(console, ACTING))})
    assert documents.in_force().text == ACTING


@pytest.mark.parametrize("token", ["", "0" * 64])
def test_a_text_whose_change_was_not_shown_is_shown_first(
    console: ServedConsole, appconfig: FakeAppConfig, token: str
) -> None:
    answer = console.post("/policy", {"document": ACTING, "over": "1", "why": "x", "shown": token})

    assert answer.status == 400
    assert "Not applied yet" in answer.text
    assert "default_pool.mode" in answer.text
    assert len(appconfig.stored) == 1
    assert console.post("/policy", {"document": ACTING, "over": "1", "why": "x", "shown": shown(answer)}).status == 303


def test_a_change_needs_a_reason(console: ServedConsole, appconfig: FakeAppConfig) -> None:
    answer = applied(console, ACTING, why=" \n")
    assert answer.status == 400
    assert "why: say why" in answer.text
    assert text_of(answer) == ACTING
    assert len(appconfig.stored) == 1


def test_what_is_in_force_is_not_applied_again(console: ServedConsole, appconfig: FakeAppConfig) -> None:
    assert applied(console, ACTING).status == 303
    for text, over in ((ACTING, 1), (f" {ACTING}", 2)):
        assert "nothing would change" in console.post("/policy", {"document": text, "over": str(over)}).text
    assert len(appconfig.stored) == 2


def test_a_document_that_somebody_else_applied_meanwhile_is_not_overwritten(
    console: ServedConsole, documents: PolicyDocuments, appconfig: FakeAppConfig
) -> None:
    token = shown(compared(console, ACTING))
    documents.apply('{"diagnostics_level": 3}', "user/grace: deeper")

    looked_at = compared(console, ACTING)
    answer = console.post("/policy", {"document": ACTING, "over": "1", "why": "we trust it", "shown": token})

    assert "user/grace: deeper" in looked_at.text
    assert shown(looked_at) == ""
    assert answer.status == 409
    assert "AppConfig version 2 is in force" in answer.text
    assert "user/grace: deeper" in answer.text
    assert text_of(answer) == ACTING
    assert 'value="we trust it"' in answer.text
    assert len(appconfig.stored) == 2
    # The page that says so shows the difference to that one, and goes on from there.
    assert "diagnostics_level" in answer.text
    form = {"document": ACTING, "over": "2", "why": "we trust it", "shown": shown(answer)}
    assert console.post("/policy", form).status == 303


def test_a_refusal_by_appconfig_is_said_and_the_text_is_kept(
    console: ServedConsole, appconfig: FakeAppConfig, documents: PolicyDocuments
) -> None:
    appconfig.validator = lambda text: "no such channel"
    answer = applied(console, ACTING)
    assert answer.status == 400
    assert "no such channel" in answer.text
    assert text_of(answer) == ACTING
    assert documents.in_force().version == 1


def test_what_was_written_is_shown_where_appconfig_cannot_be_asked_or_the_session_was_another(
    console: ServedConsole, appconfig: FakeAppConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = {"document": f"{ACTING}{HOSTILE}", "over": "1", "why": "x"}
    of_another_session = console.post("/policy", form, token="")

    def fail(**place: str) -> Iterator[Any]:
        raise NotAccepted("throttled")

    monkeypatch.setattr(appconfig, "paginate", fail)
    unreachable = console.post("/policy", form)

    assert (of_another_session.status, unreachable.status) == (403, 400)
    for answer in (of_another_session, unreachable):
        assert text_of(answer) == form["document"]
        assert HOSTILE not in answer.text


def test_the_last_incidents_are_replayed_by_both_documents(
    console: ServedConsole, client: Client, appconfig: FakeAppConfig
) -> None:
    ingest(xid(79), client.ports, ACT)

    otherwise = console.post("/policy/replay", {"document": ACTING, "over": "1"}).text
    alike = console.post("/policy/replay", {"document": '{"diagnostics_level": 3}', "over": "1"}).text

    assert "1 event. 1 incident would have gone another way." in otherwise
    assert re.search(r"Isolate →.*", otherwise)
    assert "Each incident would have gone the same way." in alike
    assert len(appconfig.stored) == 1


def test_versions_are_listed_with_their_reasons_the_newest_first(
    console: ServedConsole, documents: PolicyDocuments
) -> None:
    documents.apply(ACTING, "user/grace: at last")
    text = console.get("/policy/versions").text
    assert text.index("at last") < text.index("a quiet start")
    assert re.findall(r'href="(/policy/versions/\d+)"', text) == ["/policy/versions/1"]


def test_a_version_is_rolled_back_to_after_a_look_at_what_changes(
    console: ServedConsole, documents: PolicyDocuments, appconfig: FakeAppConfig
) -> None:
    documents.apply(ACTING, "user/grace: at last")

    preview = console.get("/policy/versions/1")
    answer = console.post("/policy/versions/1", {"over": "2", "why": "too early"})

    assert "default_pool.mode" in preview.text
    assert answer.status == 303
    in_force = documents.in_force()
    assert (in_force.version, in_force.why) == (1, "user/ada: too early")
    assert len(appconfig.stored) == 2


def test_a_rollback_is_done_once_and_not_over_another_change_or_without_a_reason(
    console: ServedConsole, documents: PolicyDocuments, appconfig: FakeAppConfig
) -> None:
    documents.apply(ACTING, "user/grace: at last")
    documents.apply('{"diagnostics_level": 3}', "user/grace: deeper")

    outdated = console.post("/policy/versions/1", {"over": "2", "why": "too early"})
    unexplained = console.post("/policy/versions/1", {"over": "3", "why": ""})

    assert (outdated.status, unexplained.status) == (409, 400)
    assert "user/grace: deeper" in outdated.text
    assert 'value="too early"' in outdated.text
    assert len(appconfig.deployments) == 3
    for _ in range(2):
        console.post("/policy/versions/1", {"over": "3", "why": "too early"})
    assert len(appconfig.deployments) == 4


def test_a_version_that_was_never_in_force_is_not_there(console: ServedConsole, appconfig: FakeAppConfig) -> None:
    appconfig.stored.append(ACTING)
    for answer in (
        console.get("/policy/versions/2"),
        console.post("/policy/versions/2", {"over": "1", "why": "x"}),
    ):
        assert answer.status == 404
    assert len(appconfig.deployments) == 1


def test_where_none_was_applied_the_default_is_said_to_be_in_force(client: Client) -> None:
    documents = PolicyDocuments(FakeAppConfig(), PLACE)
    with served(client, deployment_of(client, documents=lambda: documents)) as console:
        console.enter()
        assert "no document was applied yet" in console.get("/policy").text
        assert "No document was applied yet" in console.get("/policy/versions").text
        assert applied(console, ACTING, over=0).status == 303
    assert documents.in_force().version == 1


@pytest.mark.parametrize("path", ["/policy", "/policy/change", "/policy/replay", "/policy/versions/1"])
def test_a_form_without_the_sessions_token_changes_nothing(
    console: ServedConsole, appconfig: FakeAppConfig, path: str
) -> None:
    assert console.post(path, {"document": ACTING, "over": "1", "why": "x"}, token="").status == 403
    assert len(appconfig.deployments) == 1


def test_what_a_document_or_a_reason_says_is_text_in_every_page(
    console: ServedConsole, documents: PolicyDocuments
) -> None:
    hostile = json.dumps({"overrides": [{"fault": "xid/94", "ladder": ["OBSERVE"], "why": f"{HOSTILE}</textarea>"}]})
    documents.apply(hostile, f"{HOSTILE}\u202e")
    other = json.dumps({"opted_out": {"i-0123456789abcdef0": HOSTILE}, "pools": {HOSTILE: {}}})
    documents.apply(other, HOSTILE)
    answers = [
        *map(console.get, ("/policy", "/policy/versions", "/policy/versions/2", "/policy/versions/1")),
        *(compared(console, text, over=3) for text in (hostile, other, HOSTILE, f'{{"{HOSTILE}": 1}}')),
        console.post("/policy", {"document": f"{HOSTILE}</textarea>", "over": "2", "why": HOSTILE}),
    ]
    for answer in answers:
        assert answer.status in (200, 400, 409)
        assert HOSTILE not in answer.text
        assert "\u202e" not in answer.text
        assert answer.text.count("</textarea>") <= 1
