"""The policy: which documents are refused, and what its limits, windows and overrides mean."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from nodeheal.contract.steps import AttemptLimit
from nodeheal.contract.vocabulary import Action
from nodeheal.domain.policy.policy import RecoveryPolicy
from nodeheal.domain.policy.policy_models import (
    Breaker,
    Budget,
    Lemon,
    MaintenanceWindow,
    Mode,
    Override,
    PoolPolicy,
    Weekday,
)
from nodeheal.domain.verbs import VERBS
from tests.support.builders import ACT, NOW, xid
from tests.support.policies import with_policy

NODE = xid().node_id


@pytest.mark.parametrize("missing", ["REBOOT", "REPLACE", "RESTART_WORKLOAD"])
def test_a_policy_without_a_limit_is_refused(missing: str) -> None:
    limits = {name: limit for name, limit in ACT.model_dump(mode="json")["limits"].items() if name != missing}

    with pytest.raises(ValueError, match=f"{missing} is missing"):
        with_policy(limits=limits)


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [((), (), True), (("a",), ("b", "a"), True), (("a",), ("b",), False), ((), ("a",), False)],
    ids=["every pool twice", "one pool twice", "two pools", "one pool beside all"],
)
def test_an_override_that_stands_twice_is_refused(
    first: tuple[str, ...], second: tuple[str, ...], is_refused: bool
) -> None:
    rules = [{"fault": "xid/79", "ladder": ["REBOOT"], "pools": pools, "why": "so"} for pools in (first, second)]

    if is_refused:
        with pytest.raises(ValueError, match="xid/79 stands twice for the same pool"):
            with_policy(overrides=rules)
    else:
        assert len(with_policy(overrides=rules).overrides) == 2


def test_of_two_overrides_that_are_equally_exact_one_is_taken() -> None:
    rules = [
        {"fault": "xid/145", "ladder": ["REBOOT"], "pools": ["demo"], "why": "the pool's"},
        {"fault": "xid/145/X", "ladder": ["REPLACE"], "why": "the sub-code's"},
    ]

    found = with_policy(overrides=rules).override("xid/145/X", "demo")

    assert found is not None
    assert found.why == "the pool's"


def test_a_policy_that_is_let_act_has_no_mode_no_window_and_no_opt_out_left() -> None:
    held = {
        "mode": "observe",
        "modes": {"REBOOT": "approve"},
        "maintenance": [{"days": ["sunday"], "starts_at": "02:00", "minutes": 120, "why": "patching"}],
    }
    policy = with_policy(default_pool=held, pools={"demo": held}, opted_out={NODE: "lab machine"}).acting()

    for pool in ("demo", "another"):
        assert policy.why_only_observe(NODE, pool, NOW) == ""
        assert {policy.pool(pool).mode_of(action) for action in (Action.REBOOT, Action.REPLACE)} == {Mode.act}


@pytest.mark.parametrize(("nodes", "slots"), [(10_000, 1_000), (3, 1), (0, 1)])
def test_a_percentage_is_of_a_hundred_and_a_budgets_never_below_the_floor(nodes: int, slots: int) -> None:
    assert Budget(max_nodes=100_000, max_percent=10, floor_nodes=1).slots(nodes) == slots
    assert Breaker(max_nodes=100_000, percent=10).limit(10_000) == 1_000


def test_a_maintenance_window_holds_on_its_day_from_its_first_moment() -> None:
    sunday, monday = (
        MaintenanceWindow(days=(day,), starts_at="03:00", minutes=60, why="patching")
        for day in (Weekday.sunday, Weekday.monday)
    )

    assert sunday.holds(NOW)  # a Sunday, 03:00
    assert not sunday.holds(NOW - timedelta(seconds=1))
    assert not monday.holds(NOW)


def test_a_maintenance_window_takes_no_zone() -> None:
    with pytest.raises(ValueError, match="it is UTC"):
        MaintenanceWindow(days=(Weekday.sunday,), starts_at="03:00+02:00", minutes=60, why="patching")


def test_a_lemon_is_taken_out_or_not_a_lemon() -> None:
    with pytest.raises(ValueError, match="does not take a lemon out"):
        Lemon(action=Action.REBOOT)


def test_a_reset_stands_between_an_isolation_and_a_reboot() -> None:
    ladder = (Action.ISOLATE, Action.RESET_GPU, Action.REBOOT)

    assert Override(fault="xid/79", ladder=ladder, why="step by step").ladder == ladder


def test_a_policy_says_how_far_nodeheal_goes_with_each_action_that_does_something() -> None:
    known = {action for action, verb in VERBS.items() if verb.has_mode}

    assert {Action.ISOLATE, Action.REBOOT, Action.STOP_START, Action.REPLACE, Action.RESTART_WORKLOAD} <= known
    assert PoolPolicy(modes=dict.fromkeys(known, Mode.observe)).modes.keys() == known
    for action in set(Action) - known:
        with pytest.raises(ValueError, match="has no mode"):
            PoolPolicy(modes={action: Mode.observe})


def test_a_limit_that_counts_in_a_smaller_group_is_refused() -> None:
    limits = {**RecoveryPolicy().limits, Action.REPLACE: AttemptLimit(group=Action.REBOOT, limit=1, window_seconds=60)}

    with pytest.raises(ValidationError):
        RecoveryPolicy(limits=limits)
