"""When a node is silent, who is silent together, and whose word counts."""

from datetime import timedelta

import pytest

from nodeheal.agent.runtime.config import AgentConfig
from nodeheal.contract.vocabulary import NodeState, SchedulerKind, Verdict
from nodeheal.domain.fleet.cluster import Cluster
from nodeheal.domain.fleet.liveness import (
    CONFIRMED,
    UNREACHABLE,
    Heartbeat,
    NodeLiveness,
    ProbeAnswer,
    Silence,
    SilentNodes,
    apply_heartbeat,
    find_silent,
    judge,
)
from nodeheal.domain.policy.policy_models import Breaker
from tests.support.builders import NOW, node
from tests.support.incident_steps import A

RULES = Silence()
SSM_LOST = ProbeAnswer("SSM", is_up=False, text="connection lost")
UNREACHED = ProbeAnswer("SSM", is_up=False, text="connection lost", is_unreachable=True)
ECS_UP = ProbeAnswer("ECS", is_up=True, text="agent connected")
ECS_BLIND = ProbeAnswer("ECS", is_up=None, text="not registered")


def seen(number: int, seconds_ago: float, state: NodeState = NodeState.HEALTHY) -> NodeLiveness:
    return NodeLiveness(
        f"mi-{number:03}", NOW - timedelta(seconds=seconds_ago), state, Cluster(SchedulerKind.ECS, "training")
    )


def found(*liveness_page: NodeLiveness) -> SilentNodes:
    return find_silent(liveness_page, RULES, Breaker(), NOW)


def numbers(liveness_page: tuple[NodeLiveness, ...]) -> list[int]:
    return [int(one.node_id.removeprefix("mi-")) for one in liveness_page]


def heard(count: int) -> list[NodeLiveness]:
    return [seen(100 + number, 10) for number in range(count)]


def test_agents_speak_as_often_as_the_policy_expects() -> None:
    assert AgentConfig.__dataclass_fields__["heartbeat_seconds"].default == RULES.heartbeat_seconds
    assert RULES.silent_seconds == 300


@pytest.mark.parametrize(("seconds", "quiet"), [(119, False), (120, True)])
def test_a_node_is_quiet_when_two_heartbeats_are_missing(seconds: int, quiet: bool) -> None:
    assert RULES.is_quiet(seen(1, seconds), NOW) is quiet


@pytest.mark.parametrize(("seconds", "silent"), [(299, []), (300, [1]), (10_000, [1])])
def test_a_node_is_silent_after_so_many_missing_heartbeats(seconds: int, silent: list[int]) -> None:
    assert numbers(found(seen(1, seconds), *heard(20)).alone) == silent


@pytest.mark.parametrize("state", NodeState)
def test_a_node_out_of_service_may_be_silent(state: NodeState) -> None:
    watched = {NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION}

    assert bool(found(seen(1, 400, state), *heard(20)).alone) is (state in watched)


def test_the_newest_silence_is_looked_at_first() -> None:
    silent = found(seen(1, 9_000), seen(2, 400), seen(3, 90_000), *heard(20))

    assert numbers(silent.alone) == [2, 1, 3]


def test_many_that_stop_at_once_have_one_cause() -> None:
    silent = found(seen(1, 300), seen(2, 310), seen(3, 350), *heard(20))

    assert (silent.alone, [numbers(wave) for wave in silent.waves]) == ((), [[3, 2, 1]])


def test_the_first_of_a_wave_is_not_looked_at_alone() -> None:
    others_not_yet_silent = [seen(number, 240 + number) for number in range(2, 10)]

    silent = found(seen(1, 301), *others_not_yet_silent, *heard(20))

    assert (silent.alone, [numbers(wave) for wave in silent.waves]) == ((), [[1]])


def test_two_nodes_that_miss_one_heartbeat_are_not_part_of_a_wave() -> None:
    assert numbers(found(seen(1, 301), seen(2, 119), seen(3, 119), *heard(20)).alone) == [1]


def test_old_silences_do_not_hide_a_new_one() -> None:
    forgotten = [seen(number, 90_000 * number) for number in range(2, 10)]

    assert numbers(found(seen(1, 301), *forgotten, *heard(30)).alone)[0] == 1


def test_nodes_out_of_service_are_no_part_of_a_wave() -> None:
    isolated = [seen(number, 301, NodeState.ISOLATED) for number in range(2, 10)]

    assert numbers(found(seen(1, 301), *isolated, *heard(20)).alone) == [1]


def test_two_waves_are_told_apart() -> None:
    waves = [seen(n, 400) for n in range(3)] + [seen(10 + n, 40_000) for n in range(3)]

    assert [numbers(wave) for wave in found(*waves, *heard(20)).waves] == [[10, 11, 12], [0, 1, 2]]


def test_all_of_a_small_pool_at_once_are_too_many_and_its_only_node_is_not() -> None:
    assert found(seen(1, 400), seen(2, 400)).alone == ()
    assert numbers(found(seen(1, 400)).alone) == [1]
    assert numbers(found(seen(1, 400), seen(2, 400), seen(3, 10)).alone) == [2, 1]


@pytest.mark.parametrize(
    ("said", "verdict", "subcode"),
    [
        ((), Verdict.UNKNOWN, ""),
        ((ECS_BLIND,), Verdict.UNKNOWN, ""),
        ((ECS_BLIND, SSM_LOST), Verdict.FAILED, CONFIRMED),
        ((SSM_LOST, ECS_UP), Verdict.UNKNOWN, ""),
        ((UNREACHED,), Verdict.FAILED, UNREACHABLE),
        ((UNREACHED, ECS_UP), Verdict.UNKNOWN, ""),
    ],
)
def test_a_node_is_down_when_somebody_misses_it_and_nobody_hears_it(
    said: tuple[ProbeAnswer, ...], verdict: Verdict, subcode: str
) -> None:
    assert judge(said)[:2] == (verdict, subcode)


def test_what_everybody_said_is_told() -> None:
    assert judge((SSM_LOST, ECS_UP))[2] == "SSM: connection lost; ECS: agent connected"


def test_a_node_that_never_reported_has_no_heartbeat() -> None:
    known, beat = node(A, state=NodeState.ENROLLED), Heartbeat(f"AROA:{A}", "boot-1", NOW, 60)

    assert apply_heartbeat(known, beat, NOW) == known
    assert apply_heartbeat(node(A), beat, NOW).last_seen == NOW
