"""Heartbeats: what is written, how often, and what happens where they are not taken."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from nodeheal.agent.identity.sts_identity import StsIdentity
from nodeheal.agent.runtime.log_once import TOLD, LogOnce
from nodeheal.agent.transport.aws_client import AwsClient
from nodeheal.agent.transport.credentials import CredentialChain
from nodeheal.agent.transport.endpoint import endpoint
from nodeheal.agent.transport.heartbeat_client import (
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    HeartbeatContent,
    HeartbeatItem,
    HeartbeatRejected,
    request,
)
from nodeheal.agent.transport.heartbeat_thread import PATIENCE_SECONDS, HeartbeatThread
from nodeheal.agent.transport.training_samples import FORGOTTEN_SECONDS
from nodeheal.contract.signature import KEPT_SECONDS
from nodeheal.contract.training import ENDED, NodeTraining
from tests.support.agent_fakes import (
    IDENTITY,
    KEYS,
    PUBLIC_KEY,
    START,
    USER_ID,
    FakeEventBridge,
    FakeTime,
    eventually,
    public_key,
)
from tests.support.agent_loop import EVERY


@pytest.fixture
def item(bus: FakeEventBridge, time: FakeTime) -> Iterator[HeartbeatItem]:
    credentials, clock = CredentialChain(time.clock(), KEYS), time.clock()
    sts, table = (AwsClient(name, "eu-central-1", bus.url, credentials, clock) for name in ("sts", "dynamodb"))
    item = HeartbeatItem(IDENTITY.node_id, table, StsIdentity(sts))
    yield item
    item.close()


@pytest.fixture
def said_instead() -> list[str]:
    return []


@pytest.fixture
def heartbeat_thread(item: HeartbeatItem, time: FakeTime, said_instead: list[str]) -> HeartbeatThread:
    return HeartbeatThread(item, public_key, "boot-1", EVERY, time.clock(), lambda: said_instead.append("alive"))


def test_a_node_writes_its_own_item_and_asks_only_once_who_it_is(
    heartbeat_thread: HeartbeatThread, bus: FakeEventBridge
) -> None:
    delays = [heartbeat_thread.heartbeat() for _ in range(3)]

    first = bus.table.beats[0]
    assert first["TableName"] == "nodeheal-heartbeats"
    assert first["Key"] == {"who": {"S": USER_ID}}
    values = first["ExpressionAttributeValues"]
    assert float(values[":at"]["N"]) == START.timestamp()
    assert (values[":boot"], values[":every"]) == ({"S": "boot-1"}, {"N": "60"})
    assert int(values[":expires_at"]["N"]) == int(START.timestamp()) + KEPT_SECONDS
    assert len(bus.table.beats) == 3
    assert bus.table.asked_who == 1
    assert all(0.9 * EVERY <= delay <= EVERY for delay in delays)


def test_beats_of_one_interval_are_spread_over_it(item: HeartbeatItem, time: FakeTime) -> None:
    heartbeat_threads = [
        HeartbeatThread(item, public_key, "boot-1", EVERY, time.clock(), lambda: None) for _ in range(50)
    ]

    delays = {heartbeat_thread.heartbeat() for heartbeat_thread in heartbeat_threads}

    assert len(delays) > 40


@pytest.mark.parametrize(
    ("wanted", "then"),
    [
        ("300", 300.0),
        ("0", SHORTEST_SECONDS),
        ("1e9", LONGEST_SECONDS),
        ("NaN", EVERY),
        ("soon", EVERY),
        (10**400, EVERY),
        (None, EVERY),
    ],
)
def test_the_interval_is_what_the_control_plane_asks_for_within_bounds(
    heartbeat_thread: HeartbeatThread, bus: FakeEventBridge, wanted: Any, then: float
) -> None:
    bus.table.wanted = wanted

    delay = heartbeat_thread.heartbeat()

    assert 0.9 * then <= delay <= then


def test_where_the_role_may_not_beat_the_bus_hears_of_it_at_once_and_the_log_once(
    heartbeat_thread: HeartbeatThread,
    bus: FakeEventBridge,
    time: FakeTime,
    said_instead: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus.table.refusal = "AccessDeniedException"

    with caplog.at_level(logging.INFO):
        for _ in range(3):
            time.seconds += heartbeat_thread.heartbeat()
        bus.table.refusal = ""
        heartbeat_thread.heartbeat()

    assert len(said_instead) == 3
    assert bus.table.asked_who == 4  # it may have been given another role
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_each_reason_why_heartbeats_are_not_taken_is_said_once(
    heartbeat_thread: HeartbeatThread, bus: FakeEventBridge, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    reasons = ["AccessDeniedException", "ExpiredTokenException", "AccessDeniedException", "ResourceNotFoundException"]
    for bus.table.refusal in reasons * 3:
        time.seconds += heartbeat_thread.heartbeat()

    said = [str(vars(record)["why"]) for record in caplog.records if record.levelno == logging.ERROR]
    assert said == [f"400 {reason} no" for reason in dict.fromkeys(reasons)]


def test_a_reason_is_said_again_in_the_next_outage(
    heartbeat_thread: HeartbeatThread, bus: FakeEventBridge, caplog: pytest.LogCaptureFixture
) -> None:
    for bus.table.refusal in ("AccessDeniedException", "", "AccessDeniedException"):
        heartbeat_thread.heartbeat()

    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 2


def test_reasons_that_never_read_the_same_do_not_fill_the_log() -> None:
    reasons = LogOnce()

    assert [reasons.is_news(number) for number in range(100)].count(True) == TOLD


def test_a_node_with_credentials_that_are_not_its_machines_is_heard_over_the_bus(
    bus: FakeEventBridge, time: FakeTime, said_instead: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    credentials, clock = CredentialChain(time.clock(), KEYS), time.clock()
    sts, table = (AwsClient(name, "eu-central-1", bus.url, credentials, clock) for name in ("sts", "dynamodb"))
    heartbeat_thread = HeartbeatThread(
        HeartbeatItem("i-another", table, StsIdentity(sts)),
        public_key,
        "boot-1",
        EVERY,
        clock,
        lambda: said_instead.append("alive"),
    )

    with caplog.at_level(logging.ERROR):
        heartbeat_thread.heartbeat()

    assert bus.table.beats == []
    assert said_instead == ["alive"]
    assert str(vars(caplog.records[0])["why"]) == f"the credentials here are {USER_ID}'s, not i-another's"


def test_a_table_that_is_not_there_yet_is_a_refusal(
    heartbeat_thread: HeartbeatThread, bus: FakeEventBridge, said_instead: list[str]
) -> None:
    bus.table.refusal = "ResourceNotFoundException"

    heartbeat_thread.heartbeat()

    assert said_instead == ["alive"]


@pytest.mark.parametrize("error", ["ProvisionedThroughputExceededException", "InternalServerError", ""])
def test_an_outage_is_waited_out_with_chance_and_no_sooner_than_later_said_over_the_bus(
    heartbeat_thread: HeartbeatThread, bus: FakeEventBridge, time: FakeTime, said_instead: list[str], error: str
) -> None:
    if error:
        bus.table.refusal = error
    else:
        bus.stop()
    delays = []
    while time.seconds < PATIENCE_SECONDS:
        assert said_instead == []
        delays.append(heartbeat_thread.heartbeat())
        time.seconds += delays[-1]

    heartbeat_thread.heartbeat()

    assert said_instead == ["alive"]
    assert delays[0] <= 2
    assert EVERY / 2 <= max(delays) <= EVERY


def test_outages_that_were_over_in_between_are_not_one_long_one(
    heartbeat_thread: HeartbeatThread, bus: FakeEventBridge, time: FakeTime, said_instead: list[str]
) -> None:
    for refusal in ("InternalServerError", "", "InternalServerError"):
        bus.table.refusal = refusal
        heartbeat_thread.heartbeat()
        time.seconds += PATIENCE_SECONDS

    assert said_instead == []


def test_over_the_bus_too_it_is_said_once_an_interval(
    heartbeat_thread: HeartbeatThread, bus: FakeEventBridge, time: FakeTime, said_instead: list[str]
) -> None:
    bus.table.refusal = "InternalServerError"
    while time.seconds < PATIENCE_SECONDS + 10 * EVERY:
        time.seconds += heartbeat_thread.heartbeat()

    assert 5 <= len(said_instead) <= 11


def test_a_heartbeat_thread_beats_until_it_is_stopped(
    item: HeartbeatItem, bus: FakeEventBridge, time: FakeTime
) -> None:
    heartbeat_thread = HeartbeatThread(item, public_key, "boot-1", 0.01, time.clock(), lambda: None)
    heartbeat_thread.start()

    eventually(lambda: len(bus.table.beats) >= 3)
    heartbeat_thread.stop(5)

    assert not heartbeat_thread.is_alive()


def test_a_heartbeat_thread_that_meets_what_nobody_expected_goes_on_and_says_so_once(
    item: HeartbeatItem,
    bus: FakeEventBridge,
    time: FakeTime,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    heartbeat_thread, write, failures = (
        HeartbeatThread(item, public_key, "boot-1", 0.01, time.clock(), lambda: None),
        item.write,
        iter(range(3)),
    )

    def fails_at_first(heartbeat: HeartbeatContent) -> float | None:
        if next(failures, None) is not None:
            raise RuntimeError("nobody expected this")
        return write(heartbeat)

    monkeypatch.setattr(item, "write", fails_at_first)
    heartbeat_thread.start()

    eventually(lambda: bus.table.beats)
    heartbeat_thread.stop(5)

    said = ["heartbeats fail for an unexpected reason; retrying", "heartbeats are accepted again"]
    assert [record.getMessage() for record in caplog.records] == said


def test_an_answer_that_is_no_answer_is_a_failure_and_no_crash(item: HeartbeatItem, bus: FakeEventBridge) -> None:
    bus.table.answer = lambda target, body: (type("A", (), {"status": 502, "hangs_up": False}), b"<html>")  # type: ignore[method-assign,assignment,return-value]

    with pytest.raises(HeartbeatRejected, match="STS answered 502"):
        item.write(HeartbeatContent("boot-1", 0.0, EVERY, PUBLIC_KEY))


def test_the_item_is_small_enough_to_be_one_write_unit() -> None:
    trainings = [NodeTraining(f"{number}{'x' * 62}/{10**9 - 1}", 10**18 - 1) for number in range(9)]
    longest = HeartbeatContent("b" * 128, 1_795_290_959.123, 3_599.999, PUBLIC_KEY, trainings)
    who = "AROA" + "X" * 17 + ":mi-" + "0" * 17

    values: Any = request(who, longest)["ExpressionAttributeValues"]

    names_of_values = "".join(values).replace(":", "") + "who"
    assert len(names_of_values + who + "".join(text for value in values.values() for text in value.values())) < 1_024


def test_an_endpoint_is_the_regions_unless_the_environment_names_one() -> None:
    assert endpoint("dynamodb", "cn-north-1", {}) == "https://dynamodb.cn-north-1.amazonaws.com.cn"
    assert endpoint("sts", "eu-central-1", {"AWS_ENDPOINT_URL_STS": "https://vpce"}) == "https://vpce"
    assert endpoint("sts", "eu-central-1", {"AWS_ENDPOINT_URL": "http://all"}) == "http://all"
    assert endpoint("monitoring", "eu-central-1", {}) == "https://monitoring.eu-central-1.amazonaws.com"
    assert endpoint("monitoring", "eu-central-1", {"AWS_ENDPOINT_URL_CLOUDWATCH": "https://cw"}) == "https://cw"


@pytest.mark.parametrize("ahead", [timedelta(days=1), timedelta(days=-1)])
def test_a_beat_of_a_node_whose_clock_is_wrong_says_when_it_is_by_the_tables_time(
    heartbeat_thread: HeartbeatThread, bus: FakeEventBridge, time: FakeTime, ahead: timedelta
) -> None:
    bus.refuses_strange_times = True
    time.seconds = (datetime.now(UTC) - START - ahead).total_seconds()

    heartbeat_thread.heartbeat()

    [heartbeat] = bus.table.beats
    assert abs(float(heartbeat["ExpressionAttributeValues"][":at"]["N"]) - datetime.now(UTC).timestamp()) < 60


def test_a_beat_of_a_node_whose_clock_is_a_little_off_says_what_the_node_takes_it_for(
    heartbeat_thread: HeartbeatThread, bus: FakeEventBridge, time: FakeTime
) -> None:
    bus.date = format_datetime(START + timedelta(minutes=1), usegmt=True)

    heartbeat_thread.heartbeat()

    [heartbeat] = bus.table.beats
    assert float(heartbeat["ExpressionAttributeValues"][":at"]["N"]) == START.timestamp()


def test_heartbeats_and_their_failures_are_served(
    heartbeat_thread: HeartbeatThread, bus: FakeEventBridge, time: FakeTime
) -> None:
    before = {sample.name: sample.value for sample in heartbeat_thread.samples()}
    heartbeat_thread.heartbeat()
    bus.table.refusal = "AccessDeniedException"
    heartbeat_thread.heartbeat()
    time.seconds += 90.0

    assert before == {"heartbeats_total": 0, "heartbeat_failures_total": 0}
    assert {sample.name: sample.value for sample in heartbeat_thread.samples()} == {
        "heartbeats_total": 1,
        "heartbeat_failures_total": 1,
        "last_heartbeat_age_seconds": 90.0,
    }


def test_a_standstill_is_reported_once_two_looks_after_the_heartbeat_that_says_it(
    item: HeartbeatItem, time: FakeTime
) -> None:
    stalled, reported = list[NodeTraining](), list[NodeTraining]()
    stands, moves = NodeTraining("llama/2", 7, idle_seconds=31.0), list[NodeTraining]()
    thread = HeartbeatThread(
        item, public_key, "boot-1", EVERY, time.clock(), lambda: None, tuple, lambda: stalled, reported.append
    )

    due = list[tuple[bool, int]]()
    for now in ([stands], [stands], [stands], [stands], moves, [stands], [stands], [stands]):
        stalled[:] = now
        due.append((thread.has_new_alerts(), len(reported)))

    assert due == [(True, 0), (False, 0), (False, 1), (False, 1), (False, 1), (True, 1), (False, 1), (False, 2)]


def test_a_standstill_that_cannot_be_reported_ends_no_heartbeats_and_is_tried_again(
    item: HeartbeatItem, time: FakeTime
) -> None:
    tried = list[NodeTraining]()

    def full(training: NodeTraining) -> None:
        tried.append(training)
        raise OSError(28, "no space left on device")

    stands = NodeTraining("llama/2", 7, idle_seconds=31.0)
    thread = HeartbeatThread(
        item, public_key, "boot-1", EVERY, time.clock(), lambda: None, tuple, lambda: [stands], full
    )

    assert [thread.has_new_alerts() for _ in range(6)] == [True, False, False, True, False, False]
    assert len(tried) == 2


def test_runs_are_served_as_the_last_heartbeat_has_read_them_and_their_ages_grow(
    item: HeartbeatItem, time: FakeTime
) -> None:
    looks = [[NodeTraining("llama/3", 500, idle_seconds=2.0, saved_seconds=30.0)], []]
    thread = HeartbeatThread(item, public_key, "boot-1", EVERY, time.clock(), lambda: None, lambda: looks.pop(0))
    thread.heartbeat()
    time.seconds += 40

    of_run = {"training_job": "llama", "run": "3"}
    assert of_training(thread) == {
        "training_step": (500, of_run),
        "training_step_age_seconds": (42.0, of_run),
        "training_checkpoint_age_seconds": (70.0, of_run),
    }
    thread.heartbeat()
    assert of_training(thread) == {}


def test_runs_are_served_also_where_the_table_takes_no_heartbeat(
    item: HeartbeatItem, bus: FakeEventBridge, time: FakeTime
) -> None:
    bus.table.refusal = "AccessDeniedException"
    thread = HeartbeatThread(
        item, public_key, "boot-1", EVERY, time.clock(), lambda: None, lambda: [NodeTraining("llama/3", 500)]
    )

    thread.heartbeat()

    assert of_training(thread)["training_step"] == (500, {"training_job": "llama", "run": "3"})


def test_a_run_that_has_ended_is_served_no_more(item: HeartbeatItem, time: FakeTime) -> None:
    ended = NodeTraining("llama/3", 500, idle_seconds=1.0, pause=ENDED)
    thread = HeartbeatThread(item, public_key, "boot-1", EVERY, time.clock(), lambda: None, lambda: [ended])

    thread.heartbeat()

    assert of_training(thread) == {}


def test_what_a_killed_job_has_left_is_forgotten_after_an_hour(item: HeartbeatItem, time: FakeTime) -> None:
    thread = HeartbeatThread(
        item,
        public_key,
        "boot-1",
        EVERY,
        time.clock(),
        lambda: None,
        lambda: [NodeTraining("llama/3", 500, idle_seconds=FORGOTTEN_SECONDS - 10)],
    )
    thread.heartbeat()
    is_served = bool(of_training(thread))
    time.seconds += 10

    assert (is_served, of_training(thread)) == (True, {})


def of_training(thread: HeartbeatThread) -> dict[str, tuple[float, dict[str, str]]]:
    """The values of runs, by metric, with their labels."""
    samples = [sample for sample in thread.samples() if sample.name.startswith("training_")]
    return {sample.name: (sample.value, dict(sample.labels)) for sample in samples}
