"""Where people are told: which channel gets what, what it looks like there, and the digest that stands for many."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodeheal.contract.names import INCIDENT_DIGEST
from nodeheal.contract.notification import Notification
from nodeheal.contract.vocabulary import ChannelKind, Ending, Escalation, Phase
from nodeheal.domain.policy.policy import PolicyRefused, RecoveryPolicy, parse_policy
from nodeheal.domain.policy.policy_models import Channel, Severity
from nodeheal.domain.recovery.approval_links import Answer
from nodeheal.domain.recovery.incident import short_id
from nodeheal.ports import Ports
from nodeheal.ports.messaging import Delivery, Message
from nodeheal.services.notify.channel_kinds import KINDS
from nodeheal.services.notify.deliver_notification import notify
from nodeheal.services.notify.render_chat import DESCRIPTION_CHARACTERS
from nodeheal.services.operators.validate_policy import validate_policy
from nodeheal.services.sweep import sweep
from tests.support.builders import ACT, NOW, FrozenClock, memory_ports, node, xid
from tests.support.chat_schema import CustomNotification
from tests.support.questions import LINKS, question
from tests.support.recovery_story import Story

PAGES, ALL = (Severity.PAGE,), (Severity.PAGE, Severity.INFO)
DEPLOYED = {
    "email": ChannelKind.email,
    "ops-chat": ChannelKind.chat,
    "oncall": ChannelKind.pagerduty,
    "tracker": ChannelKind.webhook,
}
LINK = "https://eu-west-1.console.aws.amazon.com/states/home?region=eu-west-1#/v2/executions/details/arn:inc-1"
PAGED = Notification(
    key="inc-1/HANDED_TO_A_HUMAN",
    subject="[nodeheal] needs a human: mi-1, llama is down: GPU fell off the bus",
    body="Approve: https://approve.example/yes?secret",
    severity="PAGE",
    pool="demo",
    node_id="mi-1",
    job_id="llama",
    escalation=Escalation.LADDER_ENDED,
    incident_id="inc-1",
    ending=Ending.HANDED_TO_A_HUMAN,
    needed=("mi-1 is out of service. Repair it, and say so with one of:", "nodeheal nodes release mi-1 --why ..."),
    link=LINK,
)
RECOVERED = PAGED.model_copy(
    update={"key": "inc-1/RECOVERED", "severity": "INFO", "ending": Ending.RECOVERED, "escalation": None}
)


@pytest.fixture
def ports(clock: FrozenClock) -> Ports:
    return replace(memory_ports(clock), channels=DEPLOYED)


def telling(**channels: Channel) -> RecoveryPolicy:
    return ACT.model_copy(update={"channels": {name.replace("_", "-"): asked for name, asked in channels.items()}})


def sent(ports: Ports) -> list[Message]:
    return ports.notifier.sent  # type: ignore[attr-defined,no-any-return]


def sent_to(ports: Ports) -> list[tuple[str, str]]:
    return [(message.channel, message.notification.key) for message in sent(ports)]


def rendered(kind: ChannelKind, notification: Notification) -> Any:
    return KINDS[kind].message(notification, "any").rendered


# Which channel gets what ---------------------------------------------------------------------------------------------


def test_each_channel_gets_the_severities_that_it_wants_and_pagerduty_the_end_of_what_it_was_paged_for(
    ports: Ports,
) -> None:
    policy = telling(
        email=Channel(),
        ops_chat=Channel(severities=ALL),
        oncall=Channel(severities=PAGES),
        tracker=Channel(severities=()),
    )

    assert [notify(PAGED, ports, policy), notify(RECOVERED, ports, policy)] == [True, True]

    paged, recovered = PAGED.key, RECOVERED.key
    assert sorted(sent_to(ports)) == [
        ("email", paged),
        ("email", recovered),
        ("oncall", paged),
        ("oncall", recovered),
        ("ops-chat", paged),
        ("ops-chat", recovered),
    ]


def test_a_policy_that_says_nothing_of_channels_sends_everything_by_email_and_nothing_elsewhere(ports: Ports) -> None:
    for told in (PAGED, RECOVERED):
        notify(told, ports, ACT)

    assert sent(ports) == [Message(PAGED), Message(RECOVERED)]


def test_what_an_owner_is_told_and_what_no_channel_takes_stays_out_of_the_channels(ports: Ports) -> None:
    policy = telling(ops_chat=Channel(severities=PAGES))

    notify(RECOVERED.model_copy(update={"owner": "ada@example.com"}), ports, policy)
    is_sent = notify(RECOVERED, ports, policy)

    assert sent_to(ports) == [("email", RECOVERED.key)]
    assert not is_sent


def test_a_page_that_no_deployed_channel_takes_goes_by_email(ports: Ports) -> None:
    gone = telling(removed=Channel(severities=PAGES))

    assert notify(PAGED, ports, gone)
    assert sent_to(ports) == [("email", PAGED.key)]


def test_a_channel_that_fails_keeps_the_page_from_no_other_and_is_tried_again(ports: Ports) -> None:
    policy = telling(oncall=Channel(severities=PAGES), email=Channel(severities=PAGES))
    plain, broken = ports.notifier.send, ["oncall"]

    def send(message: Message, a_minute: int) -> Delivery:
        if message.channel in broken:
            raise ConnectionError("no answer")
        return plain(message, a_minute)

    ports.notifier.send = send  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        notify(PAGED, ports, policy)
    broken.clear()

    notify(PAGED, ports, policy)
    notify(PAGED, ports, policy)

    assert sent_to(ports) == [("email", PAGED.key), ("oncall", PAGED.key)]


def test_what_no_email_takes_is_sent_once_though_its_mark_was_lost(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, mark = telling(ops_chat=Channel(severities=ALL)), ports.notifier.mark_sent
    lost = [True]

    def breaks(key: str) -> bool:
        if key == PAGED.key and lost.pop():
            lost.append(False)
            raise TimeoutError
        return mark(key)

    monkeypatch.setattr(ports.notifier, "mark_sent", breaks)
    with pytest.raises(TimeoutError):
        notify(PAGED, ports, policy)

    notify(PAGED, ports, policy)

    assert (sent_to(ports), ports.notifier.was_sent(PAGED.key)) == ([("ops-chat", PAGED.key)], True)


def test_in_a_storm_pagerduty_still_gets_what_closes_its_alerts(ports: Ports) -> None:
    policy = telling(email=Channel(), oncall=Channel(severities=PAGES))

    for number in range(100):
        notify(RECOVERED.model_copy(update={"key": f"{number}", "incident_id": f"inc-{number}"}), ports, policy)

    assert [channel for channel, _ in sent_to(ports)].count("oncall") == 100


# What it looks like --------------------------------------------------------------------------------------------------


def test_pagerduty_is_triggered_and_resolved_under_one_key() -> None:
    trigger, resolve = rendered(ChannelKind.pagerduty, PAGED), rendered(ChannelKind.pagerduty, RECOVERED)

    assert (trigger["event_action"], trigger["dedup_key"]) == ("trigger", "inc-1")
    assert trigger["payload"]["severity"] == "critical"
    assert trigger["payload"]["source"] == "mi-1"
    assert trigger["links"] == [{"href": LINK, "text": "execution"}]
    assert resolve == {"event_action": "resolve", "dedup_key": "inc-1"}


def test_a_chat_message_says_what_is_needed_first_and_fits_the_schema_of_aws() -> None:
    message = rendered(ChannelKind.chat, PAGED)

    CustomNotification.model_validate(message)
    assert message["content"]["description"].splitlines() == [*PAGED.needed, LINK]
    assert message["metadata"]["threadId"] == "inc-1"


def test_a_long_chat_message_keeps_its_first_line_and_its_link() -> None:
    long = PAGED.model_copy(update={"needed": ("first", *("x" * 90 for _ in range(100)))})

    lines = rendered(ChannelKind.chat, long)["content"]["description"].splitlines()

    assert (lines[0], lines[-2:]) == ("first", ["...", LINK])
    assert sum(len(line) + 1 for line in lines) <= DESCRIPTION_CHARACTERS + len("...\n") + 1


@pytest.mark.parametrize(
    "evil", ["<!channel>", "<https://evil.example|click>", "@here", "[click](https://evil.example)", "`x`"]
)
def test_a_name_that_a_node_chose_is_no_mention_and_no_link_in_a_chat(evil: str) -> None:
    told = PAGED.model_copy(update={"subject": f"needs a human: {evil}", "needed": (f"look at {evil}",), "link": ""})

    content = rendered(ChannelKind.chat, told)["content"]

    for text in (content["title"].removeprefix(":rotating_light: "), content["description"]):
        assert not set(text) & set("<>[]`@|")
        assert "://" not in text


@pytest.mark.parametrize("kind", [kind for kind in ChannelKind if kind is not ChannelKind.email])
def test_no_channel_but_email_gets_a_link_that_approves(kind: ChannelKind) -> None:
    asks = question(Story(xid(79)))
    assert any(address in asks.body for address in LINKS.values())

    message = json.dumps(rendered(kind, asks))

    assert "approve.example" not in message
    assert f"nodeheal {Answer.approve} {short_id(str(asks.incident_id))} --why" in message


# What a policy may say -----------------------------------------------------------------------------------------------


def test_a_policy_by_which_nobody_would_be_paged_is_refused() -> None:
    with pytest.raises(PolicyRefused, match="none of them takes PAGE"):
        parse_policy('{"channels": {"email": {"severities": ["INFO"]}}}')


@pytest.mark.parametrize(
    ("channels", "complaint"),
    [
        ({"ops": {}}, "channels.ops: this deployment has no such channel; it has email, ops-chat, oncall, tracker"),
        (
            {"oncall": {"digest_hours": 24}},
            "channels.oncall.digest_hours: a channel of kind pagerduty takes no digests",
        ),
    ],
)
def test_the_validator_names_the_channel_that_is_not_there_or_cannot(channels: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        validate_policy(json.dumps({"channels": channels}), DEPLOYED)


# The digest ----------------------------------------------------------------------------------------------------------

DAILY = telling(email=Channel(severities=PAGES, digest_hours=24), oncall=Channel(severities=PAGES, digest_hours=24))
Opened = Callable[..., None]


@pytest.fixture
def opened(ports: Ports) -> Opened:
    """Opens an incident, so many hours after midnight of the day, and may end it."""
    from nodeheal.domain.recovery.incident import Incident

    def open_one(number: int, hours: float, ending: Ending | None = None) -> None:
        midnight = NOW.replace(hour=0)
        at = midnight + timedelta(hours=hours)
        incident = Incident(f"inc-{number}", f"mi-{number}", "demo", xid(79), at, "v1")
        ports.incidents.open(incident, node(f"mi-{number}", open_incident=incident.incident_id))
        if ending is not None:
            ports.incidents.finish(replace(incident, ending=ending, closed_at=at))

    return open_one


def digests(ports: Ports) -> list[Notification]:
    return [told for kind, told in ports.notifier.announced if kind == INCIDENT_DIGEST]  # type: ignore[attr-defined]


def test_a_digest_counts_the_incidents_of_its_day_and_has_a_line_for_each(
    ports: Ports, clock: FrozenClock, opened: Opened
) -> None:
    opened(1, 1.0, Ending.RECOVERED)
    opened(2, 2.0, Ending.RECOVERED)
    opened(3, 23.0)
    opened(4, 25.0, Ending.RECOVERED)  # the next day's
    clock.now = NOW.replace(hour=0) + timedelta(days=1, hours=2)

    sweep(ports, DAILY)

    [digest] = digests(ports)
    assert digest.channel == "email"
    assert digest.subject == "[nodeheal] digest: 3 incidents from 2026-03-01 00:00 to 2026-03-02 00:00 UTC"
    assert digest.needed[0].endswith("2 recovered, 1 open.")
    assert [line.split()[2] for line in digest.needed[1:]] == ["mi-1", "mi-2", "mi-3"]


def test_a_digest_goes_to_its_channel_once_though_everything_repeats_and_dies(
    ports: Ports, clock: FrozenClock, opened: Opened
) -> None:
    opened(1, 1.0, Ending.RECOVERED)
    clock.now = NOW.replace(hour=0) + timedelta(days=1)
    sweep(ports, DAILY)
    sweep(ports, DAILY)  # its announcement may be lost: it is announced until it has gone out
    [digest, again] = digests(ports)

    def dies(message: Message, a_minute: int) -> Delivery:
        plain(message, a_minute)
        raise TimeoutError("the function dies after it has sent")

    plain, ports.notifier.send = ports.notifier.send, dies  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        notify(digest, ports, DAILY)
    ports.notifier.send = plain  # type: ignore[method-assign]
    ports.notifier.being_sent.clear()  # type: ignore[attr-defined]
    is_sent_again = notify(again, ports, DAILY)
    sweep(ports, DAILY)

    assert not is_sent_again
    assert sent_to(ports) == [("email", digest.key)]
    assert len(digests(ports)) == 2


def test_a_day_without_incidents_has_no_digest_and_is_not_looked_at_again(ports: Ports, clock: FrozenClock) -> None:
    clock.now = NOW + timedelta(days=1)
    sweep(ports, DAILY)

    assert digests(ports) == []
    assert ports.notifier.was_sent("digest/email/2026-03-02T00")


def test_a_digest_is_as_readable_in_a_chat(ports: Ports, clock: FrozenClock, opened: Opened) -> None:
    opened(1, 1.0, Ending.RECOVERED)
    clock.now = NOW.replace(hour=0) + timedelta(days=1)
    policy = telling(email=Channel(severities=PAGES), ops_chat=Channel(severities=PAGES, digest_hours=12))
    sweep(ports, policy)
    clock.now -= timedelta(hours=12)
    sweep(ports, policy)
    [digest] = digests(ports)

    notify(digest, ports, policy)

    [message] = sent(ports)
    assert (message.channel, digest.phase) == ("ops-chat", Phase.NEWS)
    CustomNotification.model_validate(message.rendered)
